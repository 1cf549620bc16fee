/* System call filters from tables, by libseccomp: the same lists hold on x86-64 and aarch64. Apart
 * from base (base_filter), because not every program links libseccomp.
 *
 * A filter holds for the calling thread and what it starts. Several may be loaded; the strictest
 * answer counts. Calls by another architecture's numbers end the process, unless filter_foreign()
 * says otherwise. */
#pragma once

#include <errno.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

typedef struct filter {
    scmp_filter_ctx ctx;
    int failed; /* errno of the first step that failed: filter_load() says it */
} filter;

/* otherwise: what happens to a call that no rule names. */
filter filter_new(uint32_t otherwise);
/* Before any rule: programs of 32 bits run, and the rules hold for their calls as well. */
void filter_foreign(filter *f);
/* Calls that this architecture does not have are left out. */
void filter_add(filter *f, uint32_t action, const int *calls, size_t n);
/* The call, when its argument n and mask is value. Several are alternatives. */
void filter_add_if(filter *f, uint32_t action, int call, unsigned n, uint64_t mask, uint64_t value);
/* Loads and frees it. gain: without no-new-privileges, which needs CAP_SYS_ADMIN. */
err *filter_load(filter *f, bool gain) ERR_MUST;

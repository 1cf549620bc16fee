/* System call filters from tables, through libseccomp: the same lists work on x86-64 and aarch64.
 * Separate library (base_filter), because not every program links libseccomp.
 *
 * A filter holds for the calling thread and everything it starts. Several may be loaded; the
 * strictest verdict wins. A call with another architecture's number kills the process, unless
 * filter_foreign() allows it. */
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
    int failed; /* errno of the first step that failed; reported by filter_load() */
} filter;

/* otherwise: the action for calls that no rule names. */
filter filter_new(uint32_t otherwise);
/* Allows 32-bit programs; the rules hold for their calls too. Call it before any rule is added. */
void filter_foreign(filter *f);
/* Adds one action for several calls. Calls that this architecture lacks are skipped. */
void filter_add(filter *f, uint32_t action, const int *calls, size_t n);
/* Adds a rule for a call whose argument n, masked, equals value. Several such rules are
 * alternatives. */
void filter_add_if(filter *f, uint32_t action, int call, unsigned n, uint64_t mask, uint64_t value);
/* Loads and frees the filter. gain: do not set no-new-privileges, which needs CAP_SYS_ADMIN. */
err *filter_load(filter *f, bool gain) ERR_MUST;

/* Putting a root under a slot: the moves inside the slot's mount namespace. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "warden/stage.h"
#include "wire/wardenp.h"

/* /etc/hosts and /etc/hostname, in the upper: no link of the image is followed. */
err *root_write_names(int uppers_fd, uint32_t n, const char *hostname) ERR_MUST;

typedef struct root_spec {
    int mount; /* from stage_build() */
    int pidfd;
    uint32_t uid_base;
    const char *hostname;
    uint32_t shm_mib;
    bool read_only;
    const struct wp_tmpfs *tmpfs;
    uint32_t ntmpfs;
} root_spec;
/* Called by a claimer in its staging namespace, to which it returns. After a failure the slot is
 * half of this and half of that: destroy it. */
err *root_swap(const stage *st, const root_spec *spec) ERR_MUST;

/* Putting a root under a slot: the moves inside the slot's mount namespace. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "warden/stage.h"
#include "wire/wardenp.h"

/* /etc/hosts and /etc/hostname, in the upper: no link of the image is followed. */
err *root_write_names(int uppers_fd, const char *upper, const char *hostname) ERR_MUST;
/* The same for resolv.conf. */
err *root_write_resolvers(int uppers_fd, const char *upper, const char *text) ERR_MUST;

typedef struct root_spec {
    int mount; /* from stage_build(); -1: the root is in its place */
    int pidfd;
    dev_t proc; /* what must lie at /proc where it leads to */
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
/* Only the root, of a slot that nobody has claimed; likewise. */
err *root_change(const stage *st, int pidfd, int mount) ERR_MUST;

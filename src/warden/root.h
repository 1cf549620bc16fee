/* Puts a root under a slot: the moves inside the slot's mount namespace. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "warden/stage.h"
#include "wire/wardenp.h"

/* Writes /etc/hosts and /etc/hostname into the upper, where no link of the image is followed. */
err *root_write_names(int uppers_fd, const char *upper, const char *hostname) ERR_MUST;
/* Writes /etc/resolv.conf in the same way. */
err *root_write_resolvers(int uppers_fd, const char *upper, const char *text) ERR_MUST;

typedef struct root_spec {
    int mount; /* from stage_build(); -1: the root is in place already */
    int pidfd;
    dev_t proc; /* device of the slot's /proc, compared once inside */
    uint32_t uid_base;
    const char *hostname;
    uint32_t shm_mib;
    bool read_only;
    const struct wp_tmpfs *tmpfs;
    uint32_t ntmpfs;
} root_spec;
/* Puts the root in place, mounts the tmpfs and sets the host name. Called by a claimer in its
 * staging namespace, to which it returns. After a failure the slot is half changed: destroy it. */
err *root_swap(const stage *st, const root_spec *spec) ERR_MUST;
/* Puts only the root in place, under a slot that is not claimed. The same holds after a failure. */
err *root_change(const stage *st, int pidfd, int mount) ERR_MUST;

/* Landlock: limits what a thread, and everything it starts from then on, may do to the file system.
 *
 * Uses raw system calls, because Debian 12 has no wrapper. The kernel is asked for its version;
 * rights that it does not know are left out. The only privilege needed is no-new-privileges. A
 * second domain can narrow the first, never widen it. A domain holds for the calling thread and the
 * threads that it starts afterwards: call it before there are others.
 *
 * Landlock does not restrict, on any kernel: stat, chmod, chown, utimes, O_PATH, descriptors that
 * are already open, and connecting to a unix socket by its path. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum landlock_right {
    LANDLOCK_READ = 1,  /* files, and the lists of directories */
    LANDLOCK_WRITE = 2, /* files; in directories also making, renaming and removing */
    LANDLOCK_RUN = 4,   /* execve; mapping code of a library counts as reading */
};
typedef struct landlock_rule {
    const char *path; /* including everything below it */
    unsigned rights;
    bool optional; /* need not exist */
} landlock_rule;

typedef struct landlock_domain {
    const landlock_rule *rules;
    size_t n;
    unsigned refused;   /* rights that only the rules grant; all others stay unrestricted */
    bool bind;          /* any TCP port may be bound */
    uint16_t bind_port; /* with bind false: the only port that may be bound; 0: none */
    bool scoped;        /* no signals or abstract sockets to processes outside (from ABI 6 on) */
} landlock_domain;

/* Returns the version of the kernel's interface, 0 if it has no Landlock. */
int landlock_abi(void);
/* Enters the domain. Does nothing if the kernel has no Landlock: check landlock_abi() and log
 * that. */
err *landlock_restrict(const landlock_domain *d) ERR_MUST;

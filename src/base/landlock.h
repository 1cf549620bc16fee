/* Landlock: what of the file system a thread, and whatever it starts from then on, may still touch.
 *
 * By raw system calls: there is no wrapper in Debian 12. What a kernel knows is found by asking,
 * and rights that it does not know are left out. It needs no privilege but no-new-privileges. A
 * domain can be narrowed by a second one, never widened. It holds for the calling thread and those
 * that it makes afterwards: call it before there are others.
 *
 * Not held by it, on any kernel: stat, chmod, chown, utimes, O_PATH, descriptors that are open, and
 * connecting to a unix socket by its path. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum landlock_right {
    LANDLOCK_READ = 1,  /* files, and the lists of directories */
    LANDLOCK_WRITE = 2, /* files; in directories: making, renaming and removing as well */
    LANDLOCK_RUN = 4,   /* execve; mapping code of a library is reading */
};
typedef struct landlock_rule {
    const char *path; /* with everything below it */
    unsigned rights;
    bool optional; /* need not exist */
} landlock_rule;

typedef struct landlock_domain {
    const landlock_rule *rules;
    size_t n;
    unsigned refused;   /* rights that nothing has but what the rules give */
    bool bind;          /* TCP ports can be bound, but for... */
    uint16_t bind_port; /* ...bind false: this one alone; 0: none */
    bool scoped;        /* no signal and no abstract unix socket to those outside (from ABI 6 on) */
} landlock_domain;

/* The version of the kernel's interface, 0 where there is none. */
int landlock_abi(void);
/* Does nothing where the kernel has no Landlock: ask landlock_abi() and say so. */
err *landlock_restrict(const landlock_domain *d) ERR_MUST;

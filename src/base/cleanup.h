/* Ownership by scope.
 *
 * A local that owns something says so where it is declared:
 *
 *     CLEANUP(closep) int fd = -1;
 *     CLEANUP(freep) char *name = NULL;
 *
 * and hands it on with TAKE_FD(fd) or TAKE_PTR(name). Every cleanup function takes a pointer to the
 * variable and must accept the empty value (NULL, -1, a zeroed struct). */
#pragma once

#include <stdlib.h>
#include <unistd.h>

#define CLEANUP(f) __attribute__((cleanup(f)))

#define TAKE_PTR(p)               \
    ({                            \
        __auto_type taken_ = (p); \
        (p) = NULL;               \
        taken_;                   \
    })

#define TAKE_FD(fd)        \
    ({                     \
        int taken_ = (fd); \
        (fd) = -1;         \
        taken_;            \
    })

/* Defines NAMEp() for a destructor NAME(type *) that accepts NULL. */
#define DEFINE_CLEANUP(type, name)       \
    static inline void name##p(type **p) \
    {                                    \
        name(*p);                        \
    }

#define ARRAY_LEN(a) (sizeof(a) / sizeof(*(a)))

static inline void freep(void *p)
{
    free(*(void **)p);
}

static inline void closep(const int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

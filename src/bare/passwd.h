/* Looks up users by name in the image's passwd and group files. A FIFO, a device or an endless file
 * there harms only the tenant: this code runs in init's forked child and in the kit. The rules are
 * docker's: a name wins over a number, a number needs no entry, extra groups are added only when no
 * group was named. */
#pragma once

#include "bare/sys.h"

#define NO_ID           0xffffffffu
#define USER_GROUPS_MAX 256
struct user {
    u32 uid, gid;
    u32 ngroups;
    u32 groups[USER_GROUPS_MAX];
    const char *name;  /* NULL if passwd does not know the id */
    const char *home;  /* never NULL */
    const char *shell; /* never NULL */
};
/* Resolves "name", "uid", "name:group", "uid:gid"; "" is 0. -ENOENT: not in the image's files;
 * -EINVAL: not a user, or an id beyond 32 bits. */
long user_resolve(const char *spec, struct user *ret);

#include "base/sysctl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"

#define NAME_BYTES 128

static int open_it(int proc_sys, const char *name, int flags)
{
    char path[NAME_BYTES];

    if ((size_t)snprintf(path, sizeof path, "%s", name) >= sizeof path)
        return -ENAMETOOLONG;
    for (char *c = path; *c; c++)
        *c = *c == '.' ? '/' : *c;
    int fd = openat(proc_sys, path, flags | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int sysctl_get(int proc_sys, const char *name, uint64_t *ret_value)
{
    char text[64], *end;
    CLEANUP(closep) int fd = open_it(proc_sys, name, O_RDONLY);

    if (fd < 0)
        return fd;
    ssize_t n = read(fd, text, sizeof text - 1);
    if (n < 0)
        return -errno;
    text[n] = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (end == text)
        return -EINVAL;
    *ret_value = value;
    return 0;
}

int sysctl_raise(int proc_sys, const char *name, uint64_t least)
{
    char text[32];
    uint64_t value = 0;
    int r = sysctl_get(proc_sys, name, &value);

    if (r || value >= least)
        return r;
    CLEANUP(closep) int fd = open_it(proc_sys, name, O_WRONLY);
    if (fd < 0)
        return fd;
    int n = snprintf(text, sizeof text, "%" PRIu64, least);
    return write(fd, text, (size_t)n) == n ? 0 : -errno;
}

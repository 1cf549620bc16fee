/* Limits how fast a slot may read from and write to the disk of the state, with io.max of cgroup
 * v2. Only there the data that the kernel writes back later is charged to the slot that made it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "warden/cgroup.h"

/* Finds the whole disk of a device, as the kernel limits only whole disks. A partition's disk is
 * the directory above it. */
static bool whole_disk(dev_t dev, unsigned *ret_major, unsigned *ret_minor)
{
    char path[64];

    *ret_major = major(dev);
    *ret_minor = minor(dev);
    snprintf(path, sizeof path, "/sys/dev/block/%u:%u/partition", *ret_major, *ret_minor);
    if (access(path, F_OK))
        return true;
    snprintf(path, sizeof path, "/sys/dev/block/%u:%u/../dev", *ret_major, *ret_minor);
    FILE *f = fopen(path, "re");
    bool ok = f && fscanf(f, "%u:%u", ret_major, ret_minor) == 2; /* NOLINT(cert-err34-c): sysfs */
    if (f)
        fclose(f);
    return ok;
}

static int write_rate(const cgroups *cg, const char *name, const cgroup_rate *r)
{
    char text[160];
    int n = snprintf(text, sizeof text, "%u:%u rbps=%" PRIu64 " wbps=%" PRIu64, r->major, r->minor,
                     r->bytes, r->bytes);

    if (r->operations)
        snprintf(text + n, sizeof text - (size_t)n, " riops=%u wiops=%u", r->operations,
                 r->operations);
    CLEANUP(closep) int fd = openat(cg->hier[0], name, O_WRONLY | O_CLOEXEC);
    return fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

/* Tests whether the kernel accepts the I/O limit for the disk, in a temporary cgroup beside the
 * slots'. Returns 0 or -errno. */
static int try_rate(const cgroups *cg, const cgroup_rate *r)
{
    char dir[256], name[300];

    snprintf(dir, sizeof dir, "%s/rate", cg->path + 1);
    if (mkdirat(cg->hier[0], dir, 0755) && errno != EEXIST)
        return -errno;
    snprintf(name, sizeof name, "%s/io.max", dir);
    int e = write_rate(cg, name, r);
    unlinkat(cg->hier[0], dir, AT_REMOVEDIR);
    return e;
}

err *cgroup_rate_open(const cgroups *cg, const char *state, cgroup_rate *r)
{
    struct stat st;

    if (!r->bytes)
        return NULL;
    if (!cg->v2)
        return err_remedy(err_new(ERR_UNAVAILABLE,
                                  "--disk-rate needs cgroup v2: the hierarchies of "
                                  "v1 do not know who wrote what"),
                          "Start the machine with cgroup v2 alone, or leave --disk-rate out.");
    if (stat(state, &st))
        return err_sys(ERR_INTERNAL, errno, "cannot look at %s", state);
    int e = whole_disk(st.st_dev, &r->major, &r->minor) ? try_rate(cg, r) : -ENODEV;
    return e ? err_remedy(err_sys(ERR_UNAVAILABLE, -e, "cannot limit the rate of disk %u:%u of %s",
                                  r->major, r->minor, state),
                          "Delegate the io controller to the warden's cgroup and put the state on "
                          "a file system with a disk of its own (XFS); or leave --disk-rate out.")
             : NULL;
}

err *cgroup_rate_set(const cgroups *cg, uint32_t n, const cgroup_rate *r)
{
    char name[256];

    if (!r->bytes)
        return NULL;
    snprintf(name, sizeof name, "%s/%u/io.max", cg->path + 1, n);
    int e = write_rate(cg, name, r);
    return e ? err_sys(ERR_WALL_FAILED, -e, "cannot limit the rate of the disk") : NULL;
}

/* Lifts the limits of one line: "MAJOR:MINOR rbps=… wbps=… riops=… wiops=…", one for each disk that
 * has a limit. */
static int cgroup_rate_lift(int fd, const char *line)
{
    char text[80];
    size_t n = strspn(line, "0123456789:");
    int len = snprintf(text, sizeof text, "%.*s rbps=max wbps=max riops=max wiops=max",
                       (int)(n < 24 ? n : 24), line);

    return !n || write(fd, text, (size_t)len) >= 0 ? 0 : -errno;
}

static int lift_all(const cgroups *cg, const char *name)
{
    char old[4096], *rest = NULL;
    CLEANUP(closep) int fd = openat(cg->hier[0], name, O_RDWR | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, old, sizeof old - 1);
    int e = 0;

    if (n < 0)
        return -errno;
    old[n] = 0;
    for (char *line = strtok_r(old, "\n", &rest); line && !e; line = strtok_r(NULL, "\n", &rest))
        e = cgroup_rate_lift(fd, line);
    return e;
}

err *cgroup_rate_renew(const cgroups *cg, uint32_t n, const cgroup_rate *r)
{
    char name[256];

    if (!cg->v2)
        return NULL;
    snprintf(name, sizeof name, "%s/%u/io.max", cg->path + 1, n);
    int e = lift_all(cg, name);
    if (e && (e != -ENOENT || r->bytes)) /* without the controller there is none to lift */
        return err_sys(ERR_WALL_FAILED, -e, "cannot lift an earlier rate of the disk");
    return cgroup_rate_set(cg, n, r);
}

/* Makes the cgroup beside the slots', for programs that the warden starts on a stranger's bytes. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "warden/cgroup.h"

static err *cgroup_helpers_set(int hierarchy, const char *dir, const char *file, uint64_t value)
{
    char name[300], text[32];

    snprintf(name, sizeof name, "%s/%s", dir, file);
    snprintf(text, sizeof text, "%" PRIu64, value);
    CLEANUP(closep) int fd = openat(hierarchy, name, O_WRONLY | O_CLOEXEC);
    return fd < 0 || write(fd, text, strlen(text)) < 0
               ? err_sys(ERR_UNAVAILABLE, errno, "cannot set %s", name)
               : NULL;
}

/* Makes and opens the cgroup in one hierarchy. Where both controllers are in one (v2), the second
 * call finds it made. */
static err *open_in(int hierarchy, const char *dir, int *ret_fd)
{
    char name[300];

    if (mkdirat(hierarchy, dir, 0755) && errno != EEXIST)
        return err_sys(ERR_UNAVAILABLE, errno, "cannot make cgroup %s", dir);
    snprintf(name, sizeof name, "%s/cgroup.procs", dir);
    *ret_fd = openat(hierarchy, name, O_WRONLY | O_CLOEXEC);
    return *ret_fd < 0 ? err_sys(ERR_UNAVAILABLE, errno, "cannot open %s", name) : NULL;
}

err *cgroup_helpers(const cgroups *cg, uint64_t memory, uint32_t pids,
                    int ret_join[CG_HELPERS_JOIN])
{
    char dir[256];

    snprintf(dir, sizeof dir, "%s/" CG_HELPERS, cg->path + 1);
    TRY(open_in(cg->of[CG_MEMORY], dir, &ret_join[0]));
    TRY(open_in(cg->of[CG_PIDS], dir, &ret_join[1]));
    TRY(cgroup_helpers_set(cg->of[CG_MEMORY], dir, cg->v2 ? "memory.max" : "memory.limit_in_bytes",
                           memory));
    return cgroup_helpers_set(cg->of[CG_PIDS], dir, "pids.max", pids);
}

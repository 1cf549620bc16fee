#include "warden/host.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/resource.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/sysctl.h"
#include "core/sysctl.h"

#define FD_OWN     1024u /* sockets, claims under way with all layers of two images, logs */
#define FD_CLAIMED 2u
#define FD_READY   2u /* in addition */
#define FD_WISH    65536u

void host_raise_sysctls(uint32_t sandboxes)
{
    CLEANUP(closep) int proc = open("/proc/sys", O_PATH | O_DIRECTORY | O_CLOEXEC);

    for (size_t i = 0; i < SYSCTL_NEEDS_N; i++) {
        const sysctl_need *s = &SYSCTL_NEEDS[i];
        uint64_t least = sysctl_goal_for(s, sandboxes);
        int r = sysctl_raise(proc, s->name, least);
        if (r && r != -ENOENT)
            log_warn("sysctl", "cannot raise %s to %" PRIu64 " (%s): errno %d", s->name, least,
                     s->why, -r);
    }
}

uint64_t host_threads_max(void)
{
    CLEANUP(closep) int proc = open("/proc/sys", O_PATH | O_DIRECTORY | O_CLOEXEC);
    uint64_t threads = 0;

    return sysctl_get(proc, "kernel.threads-max", &threads) ? 0 : threads;
}

void host_raise_shared(void)
{
    static const struct {
        const char *name;
        int resource;
    } SHARED[] = {
        {"bytes of message queues", RLIMIT_MSGQUEUE},
        {"pending signals", RLIMIT_SIGPENDING},
        {"locked memory", RLIMIT_MEMLOCK},
    };

    for (size_t i = 0; i < ARRAY_LEN(SHARED); i++) {
        struct rlimit r;
        if (!setrlimit(SHARED[i].resource, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}))
            continue;
        int errnum = errno;
        if (!getrlimit(SHARED[i].resource, &r) && r.rlim_max != RLIM_INFINITY)
            log_warn("start", "all sandboxes together have our own limit of %s, %lu: errno %d",
                     SHARED[i].name, (unsigned long)r.rlim_max, errnum);
    }
}

uint64_t host_descriptors(uint32_t max, uint32_t high)
{
    return FD_OWN + (uint64_t)FD_CLAIMED * (max + NUMBERS_HEADROOM) + (uint64_t)FD_READY * high;
}

static uint64_t may_have; /* open files; kept because the thread that reads frames may not ask */

err *host_fits(uint32_t max, uint32_t high)
{
    uint64_t need = host_descriptors(max, high);

    if (may_have >= need)
        return NULL;
    return err_remedy(err_sys(ERR_INVALID_REQUEST, EINVAL,
                              "%u slots, %u of them ready, need %" PRIu64
                              " open files, and the warden may have %" PRIu64,
                              max, high, need, may_have),
                      "Start the warden with a hard limit of open files of %" PRIu64
                      " (ulimit -Hn, LimitNOFILE=), or with a smaller --max or --pool.",
                      need);
}

err *host_raise_nofile(uint32_t max, uint32_t high)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r))
        return err_sys(ERR_INTERNAL, errno, "cannot read the limit of open files");
    const rlim_t most = r.rlim_max < FD_WISH ? FD_WISH : r.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &(struct rlimit){most, most})) {
        log_info("start", "descriptors stay limited to %lu: errno %d", (unsigned long)r.rlim_max,
                 errno);
        r.rlim_cur = r.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &r);
    }
    if (getrlimit(RLIMIT_NOFILE, &r))
        return err_sys(ERR_INTERNAL, errno, "cannot read the limit of open files");
    may_have = r.rlim_cur;
    return host_fits(max, high);
}

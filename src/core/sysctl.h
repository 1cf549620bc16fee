/* Kernel settings that all sandboxes of a node share, and what they must be for so many sandboxes.
 * The warden raises them when it starts, /readyz and `bothy doctor` tell which are too small.
 *
 * X(name, base, each, vital, why): base + each x sandboxes; vital: without it there are none.
 *
 * Not here, on purpose: kernel.keys.* (every slot has ids of its own and crun makes no keyring, so
 * the quota of one id is one sandbox's), vm.max_map_count and fs.nr_open's like (of one process),
 * fs.mount-max (of one mount namespace), net.ipv4.neigh.* (neighbours of
 * sandboxes are permanent, and those do not count). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SYSCTL_SANDBOXES 1000 /* what is checked for when nobody says how many */

#define SYSCTL_TABLE(X)                                                                            \
    X("user.max_user_namespaces", 1024, 65, true, "one for each sandbox, and 64 it may be given")  \
    X("user.max_mnt_namespaces", 1024, 65, false, "one for each sandbox, and 64 it may be given")  \
    X("user.max_pid_namespaces", 1024, 65, false, "one for each sandbox, and 64 it may be given")  \
    X("user.max_net_namespaces", 1024, 65, false, "one for each sandbox, and 64 it may be given")  \
    X("user.max_ipc_namespaces", 1024, 65, false, "one for each sandbox, and 64 it may be given")  \
    X("user.max_uts_namespaces", 1024, 65, false, "one for each sandbox, and 64 it may be given")  \
    X("user.max_cgroup_namespaces", 1024, 65, false,                                               \
      "one for each sandbox, and 64 it may be given")                                              \
    X("fs.inotify.max_user_instances", 0, 1024, false, "each sandbox may have 1024 of the host's") \
    X("fs.inotify.max_user_watches", 0, 16384, false,                                              \
      "each sandbox may have 65536 of the host's; a quarter of them at once is planned for")       \
    X("fs.fanotify.max_user_groups", 0, 64, false, "each sandbox may have 64 of the host's")       \
    X("kernel.pty.max", 1024, 64, false, "each sandbox may have 64 of the host's terminals")       \
    X("kernel.pid_max", 1048576, 512, false,                                                       \
      "512 processes for each sandbox, and numbers that do not come again soon")                   \
    X("kernel.threads-max", 32768, 128, false,                                                     \
      "each sandbox may have 512 threads; a quarter of them at once is planned for")               \
    X("fs.file-max", 65536, 1024, false, "open files of all sandboxes together")                   \
    X("fs.nr_open", 65536, 0, false, "a process of a sandbox may have 65536 open files")           \
    X("fs.aio-max-nr", 65536, 1024, false, "events of asynchronous I/O are counted for the host")

typedef struct sysctl_need {
    const char *name;
    uint64_t base, each;
    bool vital;
    const char *why;
} sysctl_need;
extern const sysctl_need SYSCTL_NEEDS[];
extern const size_t SYSCTL_NEEDS_N;

static inline uint64_t sysctl_need_for(const sysctl_need *s, uint32_t sandboxes)
{
    return s->base + s->each * sandboxes;
}

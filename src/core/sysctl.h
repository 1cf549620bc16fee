/* Kernel settings that all sandboxes of a node share, and the values needed for a number of
 * sandboxes. The warden raises them at its start; /readyz and `bothy doctor` report values that are
 * too small.
 *
 * X(name, base, each, per, vital, why): base + each x sandboxes, and at least one for each `per`
 * bytes of memory (0: memory does not count). vital: without it no sandbox can be made. A setting
 * that depends on memory is only a ceiling on kernel memory, which the sandboxes' own limits bound
 * already: the warden raises it to the maximum.
 *
 * Deliberately missing: kernel.keys.* (every slot has ids of its own and crun makes no keyring, so
 * the quota of one id belongs to one sandbox), vm.max_map_count and the like (limits per process),
 * fs.mount-max (per mount namespace), net.ipv4.neigh.* (neighbours of sandboxes are permanent
 * entries, which do not count). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SYSCTL_SANDBOXES 1000 /* the default number of sandboxes to check for */

#define SYSCTL_TABLE(X)                                                                         \
    X("user.max_user_namespaces", 1024, 65, 0, true,                                            \
      "one for each sandbox, and 64 it may be given")                                           \
    X("user.max_mnt_namespaces", 1024, 65, 0, false,                                            \
      "one for each sandbox, and 64 it may be given")                                           \
    X("user.max_pid_namespaces", 1024, 65, 0, false,                                            \
      "one for each sandbox, and 64 it may be given")                                           \
    X("user.max_net_namespaces", 1024, 65, 0, false,                                            \
      "one for each sandbox, and 64 it may be given")                                           \
    X("user.max_ipc_namespaces", 1024, 65, 0, false,                                            \
      "one for each sandbox, and 64 it may be given")                                           \
    X("user.max_uts_namespaces", 1024, 65, 0, false,                                            \
      "one for each sandbox, and 64 it may be given")                                           \
    X("user.max_cgroup_namespaces", 1024, 65, 0, false,                                         \
      "one for each sandbox, and 64 it may be given")                                           \
    X("fs.inotify.max_user_instances", 0, 1024, 0, false,                                       \
      "each sandbox may have 1024 of the host's")                                               \
    X("fs.inotify.max_user_watches", 0, 16384, 0, false,                                        \
      "each sandbox may have 65536 of the host's; a quarter of them at once is planned for")    \
    X("fs.fanotify.max_user_groups", 0, 64, 0, false, "each sandbox may have 64 of the host's") \
    X("kernel.pty.max", 1024, 64, 0, false, "each sandbox may have 64 of the host's terminals") \
    X("kernel.pid_max", 1048576, 512, 0, false,                                                 \
      "512 processes for each sandbox, and numbers that do not come again soon")                \
    X("kernel.threads-max", 32768, 1024, 0, false,                                              \
      "each sandbox may have 512 threads, and all together half of what there is")              \
    X("fs.file-max", 65536, 1024, 400, false,                                                   \
      "open files of all sandboxes together: memory limits them, not this")                     \
    X("fs.nr_open", 65536, 0, 0, false, "a process of a sandbox may have 65536 open files")     \
    X("fs.aio-max-nr", 65536, 1024, 0, false, "events of asynchronous I/O are counted for the host")

typedef struct sysctl_need {
    const char *name;
    uint64_t base, each, per;
    bool vital;
    const char *why;
} sysctl_need;
extern const sysctl_need SYSCTL_NEEDS[];
extern const size_t SYSCTL_NEEDS_N;

/* Returns the value needed. memory: of the machine, bytes; 0: not known. */
static inline uint64_t sysctl_need_for(const sysctl_need *s, uint32_t sandboxes, uint64_t memory)
{
    uint64_t least = s->base + s->each * sandboxes, by_memory = s->per ? memory / s->per : 0;

    return by_memory > least ? by_memory : least;
}
/* Returns the least value that the warden raises a setting to. */
static inline uint64_t sysctl_goal_for(const sysctl_need *s, uint32_t sandboxes)
{
    return s->per ? INT64_MAX : sysctl_need_for(s, sandboxes, 0);
}

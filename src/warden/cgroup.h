/* The slots' cgroups, on a pure v2 host and on hybrid v1: limits, usage, freezing, killing.
 *
 * A slot's cgroup is <path>/<n> in every hierarchy. All functions take the slot's number, open
 * relative to descriptors taken at start, and may be called from any thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "core/cpus.h"
#include "wire/wardenp.h"

enum cgroup_controller {
    CG_CPU,
    CG_CPUACCT,
    CG_MEMORY,
    CG_PIDS,
    CG_FREEZER,
    CG_CONTROLLERS
};
#define CG_HIERARCHIES_MAX 24

typedef struct cgroups {
    bool v2;
    bool swap;                    /* swap can be limited */
    const char *path;             /* "/bothy" */
    int hier[CG_HIERARCHIES_MAX]; /* roots of all hierarchies */
    size_t nhier;
    int of[CG_CONTROLLERS]; /* root of the hierarchy with this controller; not owned */
    int io;                 /* of the one that counts I/O; -1: none does */
    int cpuset;             /* likewise; -1: there is none, and processors are not chosen */
} cgroups;

/* Finds the hierarchies, leaves the slots' parent if we sit in it, turns controllers on. */
err *cgroup_open(const char *path, cgroups *ret_cg) ERR_MUST;

/* cgroup_helpers.c: <path>/unpack, for all unpackers together. A process joins by writing "0" to
 * each of ret_join, which the caller owns. */
#define CG_HELPERS      "unpack"
#define CG_HELPERS_JOIN 2
err *cgroup_helpers(const cgroups *cg, uint64_t memory, uint32_t pids,
                    int ret_join[CG_HELPERS_JOIN]) ERR_MUST;

/* cgroup_rate.c: bytes (0: no limit) and operations (0: likewise) a second, in either direction. */
typedef struct cgroup_rate {
    uint64_t bytes;
    uint32_t operations;
    unsigned major, minor; /* of the disk; cgroup_rate_open() finds it */
} cgroup_rate;
/* Tries it; an error where a rate is wanted and cannot hold. */
err *cgroup_rate_open(const cgroups *cg, const char *state, cgroup_rate *rate) ERR_MUST;
err *cgroup_rate_set(const cgroups *cg, uint32_t n, const cgroup_rate *rate) ERR_MUST;
/* Of a slot that an earlier warden made: its rate goes, ours comes, or none. */
err *cgroup_rate_renew(const cgroups *cg, uint32_t n, const cgroup_rate *rate) ERR_MUST;

/* What is 0 or what it has already stays. */
err *cgroup_limit(const cgroups *cg, uint32_t n, const struct wp_limits *have,
                  const struct wp_limits *l) ERR_MUST;
uint64_t cgroup_cpu_quota(uint32_t milli); /* in microseconds of each period */
/* The processors it may use; nothing where there is no cpuset. */
err *cgroup_set_cpus(const cgroups *cg, uint32_t n, const cpus_set *set) ERR_MUST;
bool cgroup_get_cpus(const cgroups *cg, uint32_t n, cpus_set *ret_set);
/* Thousandths of a processor, as cgroup_limit() wrote them; 0: not limited, or not there. */
uint32_t cgroup_get_cpu(const cgroups *cg, uint32_t n);
/* Bytes, for what /proc/meminfo says inside. False if the cgroup is not there. */
typedef struct cgroup_memory {
    uint64_t file, shmem, anon;
} cgroup_memory;
uint64_t cgroup_memory_used(const cgroups *cg, uint32_t n);
bool cgroup_memory_of(const cgroups *cg, uint32_t n, cgroup_memory *ret_memory);
/* The whole of a small file of slot n, NUL-terminated; false if it is not there. */
bool cgroup_read(const cgroups *cg, enum cgroup_controller c, uint32_t n, const char *file,
                 char *ret, size_t max);
/* The same where I/O is counted; false also if it is not. */
bool cgroup_read_io(const cgroups *cg, uint32_t n, const char *file, char *ret, size_t max);
/* The value behind "key " at the beginning of a line. */
uint64_t cgroup_keyed(const char *text, const char *key);
/* crun gives a user namespace's cgroup to its root: takes it back, forbids children. */
err *cgroup_take_back(const cgroups *cg, uint32_t n) ERR_MUST;
/* v1 does not count I/O where no device is throttled: the processes' own accounts, about 1,000 of
 * them at most. After an end that nobody has waited for yet it may be a little less than before. */
void cgroup_io_of_processes(const cgroups *cg, int proc_fd, uint32_t n, struct wp_usage *u);
/* Memory that cannot be taken from it: without the caches of files. */
uint64_t cgroup_memory_held(const cgroups *cg, uint32_t n);
/* cgroup_usage.c: what the cgroup counts, the rest stays. False if the cgroup is not there. */
bool cgroup_usage(const cgroups *cg, uint32_t n, struct wp_usage *ret_usage);
uint32_t cgroup_pids_limit(const cgroups *cg, uint32_t n); /* 0: none */
/* Freezing waits until it holds, at most CGROUP_FREEZE_NS, then thaws again: ERR_TIMEOUT. */
#define CGROUP_FREEZE_NS (2 * NS_PER_S)
err *cgroup_freeze(const cgroups *cg, uint32_t n, bool freeze) ERR_MUST;
/* The same in steps: asks once, without waiting. Called again until it is done, because v1 may hang
 * in FREEZING until the state is written again; or given up by cgroup_freeze_failed(), which thaws
 * and returns the error. */
err *cgroup_freeze_try(const cgroups *cg, uint32_t n, bool freeze, bool *ret_done) ERR_MUST;
err *cgroup_freeze_failed(const cgroups *cg, uint32_t n) ERR_MUST;
/* It stands still / nobody has asked it to, or it is not there. Between the two it is stopping. */
bool cgroup_frozen(const cgroups *cg, uint32_t n);
bool cgroup_thawed(const cgroups *cg, uint32_t n);
/* SIGKILL to everything inside; thaws, so that the signal is acted upon. */
/* The pids in the slot's cgroup, a line each; false: it has none. */
bool cgroup_pids(const cgroups *cg, uint32_t n, buf *ret_text);
void cgroup_kill(const cgroups *cg, uint32_t n);
/* Removes it in every hierarchy. False while something lives in it. */
bool cgroup_remove(const cgroups *cg, uint32_t n);
/* The parent; only when no slot is left. */
void cgroup_remove_parent(const cgroups *cg);
/* Numbers that have a cgroup, into ret[]; returns how many. */
size_t cgroup_list(const cgroups *cg, uint32_t *ret, size_t max);
/* True if the process is in the cgroup of slot n, in every hierarchy with a limit. */
bool cgroup_holds(const cgroups *cg, int proc_fd, int pid, uint32_t n);

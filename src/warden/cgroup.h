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
    int io;                 /* of the hierarchy that counts I/O; -1: none does */
    int cpuset;             /* of the one with cpuset; -1: none, and processors are not chosen */
} cgroups;

/* Finds the hierarchies, moves the warden out of the slots' parent if it sits in it, turns
 * controllers on. */
err *cgroup_open(const char *path, cgroups *ret_cg) ERR_MUST;

/* cgroup_helpers.c: makes <path>/unpack, the cgroup of all unpackers together. A process joins by
 * writing "0" to each of ret_join, which the caller owns. */
#define CG_HELPERS      "unpack"
#define CG_HELPERS_JOIN 2
err *cgroup_helpers(const cgroups *cg, uint64_t memory, uint32_t pids,
                    int ret_join[CG_HELPERS_JOIN]) ERR_MUST;

/* cgroup_rate.c: bytes and operations a second, in either direction; 0: no limit. */
typedef struct cgroup_rate {
    uint64_t bytes;
    uint32_t operations;
    unsigned major, minor; /* of the disk; cgroup_rate_open() finds it */
} cgroup_rate;
/* Finds the state's disk and tries the rate on it. Returns an error if a rate is set and cannot be
 * enforced. */
err *cgroup_rate_open(const cgroups *cg, const char *state, cgroup_rate *rate) ERR_MUST;
err *cgroup_rate_set(const cgroups *cg, uint32_t n, const cgroup_rate *rate) ERR_MUST;
/* Replaces the rate of a slot that an earlier warden made by this warden's, or by none. */
err *cgroup_rate_renew(const cgroups *cg, uint32_t n, const cgroup_rate *rate) ERR_MUST;

/* Writes the limits l, except those that are 0 or equal to the one in have. */
err *cgroup_limit(const cgroups *cg, uint32_t n, const struct wp_limits *have,
                  const struct wp_limits *l) ERR_MUST;
uint64_t cgroup_cpu_quota(uint32_t milli); /* in microseconds of each period */
/* Sets the processors that the slot may use. Does nothing where there is no cpuset. */
err *cgroup_set_cpus(const cgroups *cg, uint32_t n, const cpus_set *set) ERR_MUST;
bool cgroup_get_cpus(const cgroups *cg, uint32_t n, cpus_set *ret_set);
/* Returns the limit in thousandths of a processor, as cgroup_limit() wrote it; 0 if there is no
 * limit or no cgroup. */
uint32_t cgroup_get_cpu(const cgroups *cg, uint32_t n);
/* Memory in bytes, for the /proc/meminfo that is shown inside. cgroup_memory_of() returns false if
 * the cgroup is missing. */
typedef struct cgroup_memory {
    uint64_t file, shmem, anon;
} cgroup_memory;
uint64_t cgroup_memory_used(const cgroups *cg, uint32_t n);
bool cgroup_memory_of(const cgroups *cg, uint32_t n, cgroup_memory *ret_memory);
/* Reads the whole of a small file of slot n, NUL-terminated. Returns false if it is missing. */
bool cgroup_read(const cgroups *cg, enum cgroup_controller c, uint32_t n, const char *file,
                 char *ret, size_t max);
/* Reads a file of the hierarchy that counts I/O. Returns false also if there is none. */
bool cgroup_read_io(const cgroups *cg, uint32_t n, const char *file, char *ret, size_t max);
/* Returns the number behind "key " at the beginning of a line, 0 if there is none. */
uint64_t cgroup_keyed(const char *text, const char *key);
/* Takes the slot's cgroup back and forbids children: crun gives it to the root of the user
 * namespace. v2 only. */
err *cgroup_take_back(const cgroups *cg, uint32_t n) ERR_MUST;
/* Adds the I/O that the slot's processes count themselves, of about 1,000 at most: v1 counts none
 * where no device is throttled. While a process has ended and nothing has waited for it yet, the
 * sum may be a little less than before. */
void cgroup_io_of_processes(const cgroups *cg, int proc_fd, uint32_t n, struct wp_usage *u);
/* Returns the memory that cannot be reclaimed from the slot: without the caches of files. */
uint64_t cgroup_memory_held(const cgroups *cg, uint32_t n);
/* cgroup_usage.c: sets the members that the cgroup counts, leaves the others. Returns false if the
 * cgroup is missing. */
bool cgroup_usage(const cgroups *cg, uint32_t n, struct wp_usage *ret_usage);
uint32_t cgroup_pids_limit(const cgroups *cg, uint32_t n); /* 0: none */
/* Freezes or thaws. Freezing waits until it holds, at most CGROUP_FREEZE_NS, then thaws again and
 * returns ERR_TIMEOUT. */
#define CGROUP_FREEZE_NS (2 * NS_PER_S)
err *cgroup_freeze(const cgroups *cg, uint32_t n, bool freeze) ERR_MUST;
/* Freezes or thaws in steps: asks once, without waiting. Call it again until *ret_done is true,
 * because v1 may hang in FREEZING until the state is written again. Or give up with
 * cgroup_freeze_failed(), which thaws and returns the error. */
err *cgroup_freeze_try(const cgroups *cg, uint32_t n, bool freeze, bool *ret_done) ERR_MUST;
err *cgroup_freeze_failed(const cgroups *cg, uint32_t n) ERR_MUST;
/* cgroup_frozen(): everything inside stands still. cgroup_thawed(): no freeze is requested, or the
 * cgroup is missing. Between the two it is stopping. */
bool cgroup_frozen(const cgroups *cg, uint32_t n);
bool cgroup_thawed(const cgroups *cg, uint32_t n);
/* Lists the pids in the slot's cgroup, a line each. Returns false if it has none. */
bool cgroup_pids(const cgroups *cg, uint32_t n, buf *ret_text);
/* Sends SIGKILL to everything inside. On v1 it thaws, too, so that the signal is acted upon. */
void cgroup_kill(const cgroups *cg, uint32_t n);
/* Removes the slot's cgroup in every hierarchy. Returns false while a process is in it. */
bool cgroup_remove(const cgroups *cg, uint32_t n);
/* Removes the slots' parent. Call it only when no slot is left. */
void cgroup_remove_parent(const cgroups *cg);
/* Stores the numbers that have a cgroup in ret[], on v1 once for each hierarchy, and returns how
 * many. */
size_t cgroup_list(const cgroups *cg, uint32_t *ret, size_t max);
/* Returns true if the process is in the cgroup of slot n, in every hierarchy with a limit. */
bool cgroup_holds(const cgroups *cg, int proc_fd, int pid, uint32_t n);

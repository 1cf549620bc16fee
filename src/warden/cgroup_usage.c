/* Reads what a slot has used, as its cgroups count it. Eight small files on v1, seven on v2: a
 * sandbox costs some tens of microseconds. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "warden/cgroup.h"

static uint64_t number_of(const cgroups *cg, enum cgroup_controller c, uint32_t n, const char *file)
{
    char text[64];

    return cgroup_read(cg, c, n, file, text, sizeof text) ? strtoull(text, NULL, 10) : 0;
}

/* Adds up v1's lines "8:0 Read 123". Buffered writes are not charged to the writer, and since 6.10
 * nothing is counted for a device without a throttle: such a node has 0. */
static void io_v1(const char *text, struct wp_usage *u)
{
    for (const char *at = text; at && *at; at = strchr(at, '\n')) {
        at += *at == '\n';
        const char *word = strchr(at, ' '), *end = strchr(at, '\n');
        if (!word || (end && word > end))
            continue;
        if (!strncmp(word, " Read ", 6))
            u->io_read += strtoull(word + 6, NULL, 10);
        else if (!strncmp(word, " Write ", 7))
            u->io_written += strtoull(word + 7, NULL, 10);
    }
}

/* Adds up v2's lines "8:0 rbytes=1 wbytes=2 …". */
static void io_v2(const char *text, struct wp_usage *u)
{
    for (const char *at = text; (at = strstr(at, "rbytes=")); at += 7)
        u->io_read += strtoull(at + 7, NULL, 10);
    for (const char *at = text; (at = strstr(at, "wbytes=")); at += 7)
        u->io_written += strtoull(at + 7, NULL, 10);
}

static void usage_v1(const cgroups *cg, uint32_t n, struct wp_usage *u)
{
    char text[4096];

    u->cpu_us = number_of(cg, CG_CPUACCT, n, "cpuacct.usage") / 1000;
    if (cgroup_read(cg, CG_CPU, n, "cpu.stat", text, sizeof text))
        u->cpu_throttled_us = cgroup_keyed(text, "throttled_time") / 1000;
    u->memory = number_of(cg, CG_MEMORY, n, "memory.usage_in_bytes");
    u->memory_peak = number_of(cg, CG_MEMORY, n, "memory.max_usage_in_bytes");
    u->memory_limit = number_of(cg, CG_MEMORY, n, "memory.limit_in_bytes");
    if (cgroup_read(cg, CG_MEMORY, n, "memory.oom_control", text, sizeof text))
        u->oom_kills = cgroup_keyed(text, "oom_kill");
    if (cgroup_read_io(cg, n, "blkio.throttle.io_service_bytes", text, sizeof text))
        io_v1(text, u);
}

static void usage_v2(const cgroups *cg, uint32_t n, struct wp_usage *u)
{
    char text[4096];

    if (cgroup_read(cg, CG_CPU, n, "cpu.stat", text, sizeof text)) {
        u->cpu_us = cgroup_keyed(text, "usage_usec");
        u->cpu_throttled_us = cgroup_keyed(text, "throttled_usec");
    }
    u->memory = number_of(cg, CG_MEMORY, n, "memory.current");
    u->memory_peak = number_of(cg, CG_MEMORY, n, "memory.peak");
    u->memory_limit = number_of(cg, CG_MEMORY, n, "memory.max");
    if (cgroup_read(cg, CG_MEMORY, n, "memory.events", text, sizeof text))
        u->oom_kills = cgroup_keyed(text, "oom_kill");
    if (cgroup_read_io(cg, n, "io.stat", text, sizeof text))
        io_v2(text, u);
}

uint64_t cgroup_memory_held(const cgroups *cg, uint32_t n)
{
    uint64_t all = number_of(cg, CG_MEMORY, n, cg->v2 ? "memory.current" : "memory.usage_in_bytes");
    char text[8192];

    if (!cgroup_read(cg, CG_MEMORY, n, "memory.stat", text, sizeof text))
        return all;
    /* v1: its own pages; a slot has no children. */
    uint64_t files = cgroup_keyed(text, "inactive_file") + cgroup_keyed(text, "active_file");
    return all > files ? all - files : 0;
}

/* Adds the counts of one process, "read_bytes: N". They include those of its reaped children. */
static void add_process(int proc_fd, const char *pid, struct wp_usage *u)
{
    char name[32], text[512];

    snprintf(name, sizeof name, "%s/io", pid);
    CLEANUP(closep) int fd = openat(proc_fd, name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return; /* it has ended */
    text[n] = 0;
    u->io_read += cgroup_keyed(text, "read_bytes:");
    u->io_written += cgroup_keyed(text, "write_bytes:");
}

void cgroup_io_of_processes(const cgroups *cg, int proc_fd, uint32_t n, struct wp_usage *u)
{
    char text[8192], *save = NULL;

    if (cg->v2 || u->io_read || u->io_written ||
        !cgroup_read(cg, CG_PIDS, n, "cgroup.procs", text, sizeof text))
        return;
    for (char *pid = strtok_r(text, "\n", &save); pid; pid = strtok_r(NULL, "\n", &save))
        add_process(proc_fd, pid, u);
}

bool cgroup_usage(const cgroups *cg, uint32_t n, struct wp_usage *ret_usage)
{
    char text[32];

    if (!cgroup_read(cg, CG_PIDS, n, "pids.current", text, sizeof text))
        return false;
    ret_usage->pids = (uint32_t)strtoul(text, NULL, 10);
    if (cg->v2)
        usage_v2(cg, n, ret_usage);
    else
        usage_v1(cg, n, ret_usage);
    return true;
}

uint64_t cgroup_memory_used(const cgroups *cg, uint32_t n)
{
    return number_of(cg, CG_MEMORY, n, cg->v2 ? "memory.current" : "memory.usage_in_bytes");
}

uint32_t cgroup_pids_limit(const cgroups *cg, uint32_t n)
{
    return (uint32_t)number_of(cg, CG_PIDS, n, "pids.max");
}

bool cgroup_memory_of(const cgroups *cg, uint32_t n, cgroup_memory *ret_memory)
{
    char text[4096];

    if (!cgroup_read(cg, CG_MEMORY, n, "memory.stat", text, sizeof text))
        return false;
    *ret_memory = (cgroup_memory){.file = cgroup_keyed(text, cg->v2 ? "file" : "cache"),
                                  .shmem = cgroup_keyed(text, "shmem"),
                                  .anon = cgroup_keyed(text, cg->v2 ? "anon" : "rss")};
    return true;
}

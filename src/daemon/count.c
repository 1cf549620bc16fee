/* The metrics of bothyd's process and its disk. */
#include "daemon/count.h"

#include <sys/statvfs.h>

#include "base/process.h"
#include "base/str.h"

static metric PROCESS[PROCESS_METRICS_N] = {
    [PROCESS_CPU] = METRIC_COUNTER("process_cpu_seconds_total",
                                   "Processor time of bothyd, of user and system.", .unit = 1e-6),
    [PROCESS_MEMORY] =
        METRIC_GAUGE("process_resident_memory_bytes", "Memory of bothyd that is resident."),
    [PROCESS_FDS] = METRIC_GAUGE("process_open_fds", "Descriptors bothyd has open."),
    [PROCESS_FDS_MAX] = METRIC_GAUGE("process_max_fds", "Descriptors bothyd may have open."),
    [PROCESS_THREADS] = METRIC_GAUGE("process_threads", "Threads of bothyd."),
    [PROCESS_START] =
        METRIC_GAUGE("process_start_time_seconds", "When bothyd was started, in seconds of 1970."),
};

static const char *versions[] = {NULL, NULL};
enum {
    M_INFO,
    M_FREE,
    M_SIZE,
    M_INODES,
    M_COUNT
};
static metric METRICS[M_COUNT] = {
    [M_INFO] =
        METRIC_GAUGE_BY("bothy_build_info", "1, with the version of bothyd.", "version", versions),
    [M_FREE] = METRIC_GAUGE("bothy_disk_free_bytes",
                            "Room that bothyd may use on the disk of store and spools."),
    [M_SIZE] = METRIC_GAUGE("bothy_disk_size_bytes", "Size of the disk of store and spools."),
    [M_INODES] =
        METRIC_GAUGE("bothy_disk_free_inodes", "Files that can be made on that disk; 0 also where "
                                               "it has no such limit."),
};

static void daemon_count_look(void *arg)
{
    struct statvfs v;

    if (fstatvfs(*(int *)arg, &v))
        return;
    metric_set(&METRICS[M_FREE], 0, (int64_t)(v.f_bavail * v.f_frsize));
    metric_set(&METRICS[M_SIZE], 0, (int64_t)(v.f_blocks * v.f_frsize));
    metric_set(&METRICS[M_INODES], 0, (int64_t)v.f_favail);
}

void daemon_metrics(int state, const char *version)
{
    static int dir;

    dir = state;
    versions[0] = version;
    process_metrics(PROCESS);
    metric_register(METRICS, M_COUNT);
    metric_set(&METRICS[M_INFO], 0, 1);
    metric_look(daemon_count_look, &dir);
}

#include "base/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"

/* Since 6.2 the directory's size is their number; before, they are counted. */
static int64_t count_fds(void)
{
    struct stat st;
    int64_t n = 0;

    if (!stat("/proc/self/fd", &st) && st.st_size > 0)
        return st.st_size;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d)) /* NOLINT(concurrency-mt-unsafe): the stream is ours */
        n++;
    if (d)
        closedir(d);
    return n > 3 ? n - 3 : 0; /* ".", ".." and the directory's own */
}

/* "pages resident …" of statm, and the thread count behind the name of stat, which may hold
 * anything. */
static void look_proc(metric *m)
{
    CLEANUP(buf_done) buf statm = {0}, stat = {0};
    unsigned long resident = 0;
    long threads = 0;
    err *e = fs_read(AT_FDCWD, "/proc/self/statm", 4096, &statm);

    if (!e && sscanf(buf_cstr(&statm), "%*u %lu", &resident) == 1)
        metric_set(&m[PROCESS_MEMORY], 0, (int64_t)resident * sysconf(_SC_PAGESIZE));
    err_free(e);
    e = fs_read(AT_FDCWD, "/proc/self/stat", 4096, &stat);
    const char *rest = e ? NULL : strrchr(buf_cstr(&stat), ')');
    if (rest && sscanf(rest,
                       ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d "
                       "%*d %ld",
                       &threads) == 1)
        metric_set(&m[PROCESS_THREADS], 0, threads);
    err_free(e);
}

static void look(void *arg)
{
    metric *m = arg;
    struct rlimit limit;
    struct rusage used;

    if (!getrusage(RUSAGE_SELF, &used))
        metric_set(&m[PROCESS_CPU], 0,
                   (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 + used.ru_utime.tv_usec +
                       used.ru_stime.tv_usec);
    if (!getrlimit(RLIMIT_NOFILE, &limit))
        metric_set(&m[PROCESS_FDS_MAX], 0, (int64_t)limit.rlim_cur);
    metric_set(&m[PROCESS_FDS], 0, count_fds());
    look_proc(m);
}

void process_metrics(metric table[PROCESS_METRICS_N])
{
    metric_register(table, PROCESS_METRICS_N);
    metric_set(&table[PROCESS_START], 0, (int64_t)(now_real_ns() / NS_PER_S));
    metric_look(look, table);
}

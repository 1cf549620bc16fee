#include "base/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"

/* Counts open descriptors. Since Linux 6.2 the size of the directory is their number. */
static int64_t count_fds(void)
{
    struct stat st;
    int64_t n = 0;

    if (!stat("/proc/self/fd", &st) && st.st_size > 0)
        return st.st_size;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d)) /* NOLINT(concurrency-mt-unsafe): a stream of its own */
        n++;
    if (d)
        closedir(d);
    return n > 3 ? n - 3 : 0; /* ".", ".." and the descriptor of opendir */
}

/* Returns the n-th number, from 0, of a space-separated file in /proc, or -1. Counts from behind
 * the last character `after`, or from the beginning if `after` is 0. */
static int64_t number_in(const char *path, char after, int n)
{
    CLEANUP(buf_done) buf text = {0};
    CLEANUP(err_freep) err *e = fs_read(AT_FDCWD, path, 4096, &text);
    const char *at = e ? NULL : after ? strrchr(buf_cstr(&text), after) : buf_cstr(&text);

    for (at = at && after ? at + 2 : at; at && n; n--)
        at = (at = strchr(at, ' ')) ? at + 1 : NULL;
    return at ? strtoll(at, NULL, 10) : -1;
}

/* Sets memory and threads. In /proc/self/stat fields are counted from behind the process name,
 * which may hold any character: "(name) S …"; number 17 from there is the thread count. */
static void look_proc(metric *m)
{
    int64_t pages = number_in("/proc/self/statm", 0, 1);
    int64_t threads = number_in("/proc/self/stat", ')', 17);

    if (pages >= 0)
        metric_set(&m[PROCESS_MEMORY], 0, pages * sysconf(_SC_PAGESIZE));
    if (threads >= 0)
        metric_set(&m[PROCESS_THREADS], 0, threads);
}

static void process_look(void *arg)
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
    metric_look(process_look, table);
}

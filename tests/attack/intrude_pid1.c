/* Attempts on pid 1, which is bothy-init, and on descriptors of the host. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "intruder.h"

#define RT_SIGNALS 200000
#define FDS        64

/* Pipes, sockets and anonymous things by their kind, files by their path. */
static void say_link(const char *number, const char *target)
{
    say("%s%s=%.*s", number[0] == '0' && !number[1] ? "" : " ", number,
        target[0] == '/' ? (int)strlen(target) : (int)strcspn(target, ":["), target);
}

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static long descriptors(void)
{
    int numbers[256], n = 0;
    DIR *d = opendir("/proc/self/fd");
    struct dirent *e;

    while (d && (e = readdir(d)) && n < 256)
        if (e->d_name[0] != '.' && atoi(e->d_name) != dirfd(d))
            numbers[n++] = atoi(e->d_name);
    if (d)
        closedir(d);
    qsort(numbers, (size_t)n, sizeof *numbers, by_number);
    for (int i = 0; i < n; i++) {
        char path[64], name[16], target[512] = "";
        snprintf(name, sizeof name, "%d", numbers[i]);
        snprintf(path, sizeof path, "/proc/self/fd/%s", name);
        if (readlink(path, target, sizeof target - 1) > 0)
            say_link(name, target);
    }
    return 0;
}

static const char *const PID1_FILES[] = {
    "mem",    "maps",   "smaps",   "numa_maps", "environ",   "auxv",     "pagemap", "stack",
    "io",     "root/",  "cwd/",    "exe",       "map_files", "fd",       "fdinfo",  "ns/mnt",
    "ns/pid", "ns/net", "ns/user", "ns/uts",    "ns/ipc",    "ns/cgroup"};

static long pid1_read(void)
{
    char path[64];

    for (size_t i = 0; i < sizeof PID1_FILES / sizeof *PID1_FILES; i++) {
        snprintf(path, sizeof path, "/proc/1/%s", PID1_FILES[i]);
        long r = try_open(path, O_RDONLY);
        if (r >= 0 || (errno != EACCES && errno != EPERM))
            say_result(PID1_FILES[i], r);
    }
    errno = EACCES;
    return -1;
}

static long pid1_task_read(void)
{
    return try_open("/proc/1/task/1/mem", O_RDWR);
}

static long pid1_write(void)
{
    static const char *const FILES[] = {
        "mem",       "oom_score_adj",   "comm",          "clear_refs", "uid_map",      "gid_map",
        "setgroups", "coredump_filter", "timerslack_ns", "exe",        "attr/current", "autogroup"};
    char path[64];

    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        snprintf(path, sizeof path, "/proc/1/%s", FILES[i]);
        long r = try_write(path, "0");
        if (r >= 0 || (errno != EACCES && errno != EPERM && errno != ENOENT))
            say_result(FILES[i], r);
    }
    errno = EACCES;
    return -1;
}

static long pid1_links(void)
{
    static const char *const LINKS[] = {"exe",     "cwd",    "root",  "ns/mnt",
                                        "ns/user", "ns/pid", "ns/net"};
    char path[64], target[256];

    for (size_t i = 0; i < sizeof LINKS / sizeof *LINKS; i++) {
        snprintf(path, sizeof path, "/proc/1/%s", LINKS[i]);
        if (readlink(path, target, sizeof target) >= 0)
            say_result(LINKS[i], 0);
    }
    errno = EACCES;
    return -1;
}

static long pid1_fd(void)
{
    char path[64], target[256];

    for (int i = 0; i < FDS; i++) {
        snprintf(path, sizeof path, "/proc/1/fd/%d", i);
        if (try_open(path, O_RDONLY) >= 0 || try_open(path, O_RDWR) >= 0 ||
            readlink(path, target, sizeof target) >= 0)
            say_result(path, 0);
    }
    errno = EACCES;
    return -1;
}

static long pid1_walk(void)
{
    struct stat st;
    say_result("chdir root", chdir("/proc/1/root"));
    say_result("chdir cwd/..", chdir("/proc/1/cwd/.."));
    say_result("chroot root", chroot("/proc/1/root"));
    say_result("stat root/../..", stat("/proc/1/root/../..", &st));
    return 0;
}

static long pid1_attach(void)
{
    return ptrace(PTRACE_ATTACH, 1, 0, 0);
}

static long pid1_seize(void)
{
    return ptrace(PTRACE_SEIZE, 1, 0, 0);
}

static long pid1_vm_read(void)
{
    char to[16];
    struct iovec l = {to, sizeof to}, r = {(void *)0x400000, sizeof to};
    return process_vm_readv(1, &l, 1, &r, 1, 0);
}

static long pid1_vm_write(void)
{
    char from[16] = "";
    struct iovec l = {from, sizeof from}, r = {(void *)0x400000, sizeof from};
    return process_vm_writev(1, &l, 1, &r, 1, 0);
}

static long pidfd1(void)
{
    return syscall(SYS_pidfd_open, 1, 0);
}

static long pid1_getfd(void)
{
    long p = pidfd1();

    for (int i = 0; p >= 0 && i < FDS; i++)
        if (syscall(SYS_pidfd_getfd, p, i, 0) >= 0)
            return 0;
    return -1;
}

static long pid1_kcmp(void)
{
    return syscall(SYS_kcmp, 1, getpid(), 0, 0, 0);
}

static long pid1_prlimit(void)
{
    struct rlimit three = {3, 3}, one = {1, 1}, old;
    say_result("nofile", prlimit(1, RLIMIT_NOFILE, &three, NULL));
    say_result("cpu", prlimit(1, RLIMIT_CPU, &one, NULL));
    say_result("nproc", prlimit(1, RLIMIT_NPROC, &one, NULL));
    say_result("get", prlimit(1, RLIMIT_NOFILE, NULL, &old));
    return 0;
}

static long pid1_memory(void)
{
    long p = pidfd1();
    struct iovec all = {(void *)0x400000, 4096};
    void *page = (void *)0x400000;
    int node = 0, status = 0;

    say_result("process_madvise", syscall(SYS_process_madvise, p, &all, 1, 21, 0));
    say_result("process_mrelease", syscall(448, p, 0));
    say_result("move_pages", syscall(SYS_move_pages, 1, 1, &page, &node, &status, 0));
    say_result("migrate_pages", syscall(SYS_migrate_pages, 1, 1, &node, &node));
    return 0;
}

/* Pid 1 may be made slower by its own sandbox, and serves on; Python looks at that. */
static long pid1_priority(void)
{
    struct sched_param none = {0};
    setpriority(PRIO_PROCESS, 1, 19);
    sched_setscheduler(1, SCHED_IDLE, &none);
    return 0;
}

static long pid1_signals(void)
{
    static const int SIGNALS[] = {SIGKILL, SIGSTOP, SIGSEGV, SIGTERM, SIGINT, SIGQUIT,
                                  SIGCHLD, SIGPIPE, SIGALRM, SIGSYS,  SIGBUS, SIGTSTP};
    long p = pidfd1(), sent = 0;

    for (size_t i = 0; i < sizeof SIGNALS / sizeof *SIGNALS; i++) {
        sent += kill(1, SIGNALS[i]) == 0;
        sent += syscall(SYS_tgkill, 1, 1, SIGNALS[i]) == 0;
        sent += syscall(SYS_pidfd_send_signal, p, SIGNALS[i], NULL, 0) == 0;
    }
    say("%s", sent ? "sent" : errno_name(errno));
    return 0;
}

static long pid1_queue(void)
{
    union sigval v = {.sival_int = 1};
    long sent = 0;

    for (int i = 0; i < RT_SIGNALS; i++)
        sent += sigqueue(1, SIGRTMIN + i % 20, v) == 0;
    say("%s", sent == RT_SIGNALS ? "sent" : sent ? "some" : errno_name(errno));
    return 0;
}

/* Every namespace that any process shows, and every descriptor we have. */
static long setns_all(void)
{
    static const char *const KINDS[] = {"mnt", "pid", "net",    "user",
                                        "uts", "ipc", "cgroup", "time"};
    long joined = 0;
    char path[64];

    for (int pid = 0; pid < 300; pid++)
        for (size_t k = 0; k < sizeof KINDS / sizeof *KINDS; k++) {
            snprintf(path, sizeof path, "/proc/%d/ns/%s", pid, KINDS[k]);
            int fd = open(path, O_RDONLY | O_CLOEXEC);
            if (fd >= 0) {
                joined += setns(fd, 0) == 0;
                close(fd);
            }
        }
    for (int fd = 0; fd < FDS; fd++)
        joined += setns(fd, 0) == 0;
    joined += setns((int)pidfd1(), CLONE_NEWNS | CLONE_NEWPID) == 0;
    say("%ld joined", joined);
    return 0;
}

static long core_limit(void)
{
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    return setrlimit(RLIMIT_CORE, &all);
}

static long other_pids(void)
{
    /* Everybody but our own in this pid namespace; far above there is nobody. */
    long hit = 0;
    for (int pid = 100000; pid < 140000; pid++)
        hit += kill(pid, 0) == 0;
    say("%ld", hit);
    return 0;
}

const attempt PID1_ATTEMPTS[] = {
    {"descriptors", descriptors},       {"pid1-read", pid1_read},
    {"pid1-task-read", pid1_task_read}, {"pid1-write", pid1_write},
    {"pid1-links", pid1_links},         {"pid1-fd", pid1_fd},
    {"pid1-walk", pid1_walk},           {"pid1-attach", pid1_attach},
    {"pid1-seize", pid1_seize},         {"pid1-vm-read", pid1_vm_read},
    {"pid1-vm-write", pid1_vm_write},   {"pid1-getfd", pid1_getfd},
    {"pid1-kcmp", pid1_kcmp},           {"pid1-prlimit", pid1_prlimit},
    {"pid1-memory", pid1_memory},       {"pid1-priority", pid1_priority},
    {"pid1-signals", pid1_signals},     {"pid1-queue", pid1_queue},
    {"setns-all", setns_all},           {"core-limit", core_limit},
    {"other-pids", other_pids},         {NULL, NULL},
};

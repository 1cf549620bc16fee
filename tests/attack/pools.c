/* Pools of the kernel: all of one taken and held, and what a neighbour needs of them. */
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "intruder.h"

#define MOST 200000

static void all_descriptors(void)
{
    struct rlimit r;
    if (!getrlimit(RLIMIT_NOFILE, &r)) {
        r.rlim_cur = r.rlim_max;
        setrlimit(RLIMIT_NOFILE, &r);
    }
}

static int take_inotify(void)
{
    return inotify_init1(IN_CLOEXEC);
}

/* Each instance watches the same few files. */
#define WATCHED 256

static int take_watch(void)
{
    static int fd = -1, n;
    char path[64];

    if (n % WATCHED == 0)
        fd = inotify_init1(IN_CLOEXEC);
    snprintf(path, sizeof path, "/tmp/watched-%u-%d", geteuid(), n % WATCHED);
    if (n++ < WATCHED)
        close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    return inotify_add_watch(fd, path, IN_MODIFY);
}

static int take_pty(void)
{
    return open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
}

static int take_pid(void)
{
    pid_t self = getpid(), pid = fork();

    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() == self) /* it may be gone already */
            pause();
        _exit(0);
    }
    return pid;
}

/* As large as it goes, and full. */
static int take_pipe(void)
{
    static char page[4096];
    int p[2];

    if (pipe2(p, O_CLOEXEC | O_NONBLOCK))
        return -1;
    fcntl(p[1], F_SETPIPE_SZ, 1 << 20);
    while (write(p[1], page, sizeof page) > 0)
        ;
    return 0;
}

static int take_in_flight(void)
{
    static int s[2] = {-1, -1}, n;
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(200 * sizeof(int))];
    } c = {0};
    int *fds = (int *)CMSG_DATA(&c.head);
    struct msghdr m = {.msg_iov = &(struct iovec){"x", 1},
                       .msg_iovlen = 1,
                       .msg_control = &c,
                       .msg_controllen = sizeof c};

    if (n++ % 20 == 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, s))
        return -1;
    c.head = (struct cmsghdr){CMSG_LEN(200 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    for (int i = 0; i < 200; i++)
        fds[i] = 0;
    return (int)sendmsg(s[0], &m, 0);
}

static int take_lock(void)
{
    static int fd = -1, n;
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2L * n++, .l_len = 1};

    if (fd < 0)
        fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return n > 3000 ? -1 : fcntl(fd, F_SETLK, &l);
}

static int take_mqueue(void)
{
    static int n;
    char name[32];

    snprintf(name, sizeof name, "/q-%d-%d", getpid(), n++);
    return mq_open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0600, NULL);
}

static int take_unlinked_mqueue(void)
{
    mqd_t q = mq_open("/needed", O_CREAT | O_RDWR | O_CLOEXEC, 0600, NULL);

    mq_unlink("/needed");
    return q;
}

static int take_semaphores(void)
{
    return semget(IPC_PRIVATE, 250, IPC_CREAT | 0600);
}

static int take_segment(void)
{
    return shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
}

static int take_epoll(void)
{
    static int set = -1;
    struct epoll_event e = {.events = EPOLLIN};
    int fd = eventfd(0, EFD_CLOEXEC);

    /* Each descriptor once in every set; a new set when there is no new descriptor. */
    if (set < 0)
        set = epoll_create1(EPOLL_CLOEXEC);
    return fd < 0 ? -1 : epoll_ctl(set, EPOLL_CTL_ADD, fd, &e);
}

static int take_timer(void)
{
    timer_t t;
    return timer_create(CLOCK_MONOTONIC, NULL, &t);
}

static int take_signal(void)
{
    static sigset_t all;

    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    return sigqueue(getpid(), SIGRTMIN, (union sigval){0});
}

static int take_locked_memory(void)
{
    void *p = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? -1 : mlock(p, 1 << 16);
}

static int take_key(void)
{
    static int n;
    char name[32];
    snprintf(name, sizeof name, "key-%d", n++);
    return (int)syscall(SYS_add_key, "user", name, "x", 1, -4);
}

/* Namespaces in which there are as many of everything again, unless they count in all above too. */
static int take_nested(void)
{
    int ready[2], n = 0;
    char c = 'n';

    if (pipe2(ready, O_CLOEXEC))
        return -1;
    pid_t pid = fork();
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (!unshare(CLONE_NEWUSER | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWNS)) {
            while (n < 2000 && inotify_init1(IN_CLOEXEC) >= 0)
                n++;
            c = 'y';
        }
        if (write(ready[1], &c, 1) == 1 && c == 'y')
            pause();
        _exit(0);
    }
    if (pid > 0 && read(ready[0], &c, 1) != 1)
        c = 'n';
    close(ready[0]);
    close(ready[1]);
    errno = ENOSPC;
    return pid > 0 && c == 'y' ? 0 : -1;
}

/* A terminal file system of our own, which has no limit of its own. */
static int take_nested_pty(void)
{
    static const char place[] = "/tmp/terminals";
    static int made;

    if (!made++) {
        mkdir(place, 0755);
        if (nest(CLONE_NEWNS) < 0 || mount("none", place, "devpts", 0, "newinstance,ptmxmode=0666"))
            return -1;
    }
    return open("/tmp/terminals/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
}

static const struct {
    const char *name;
    int (*take)(void);
} POOLS[] = {
    {"inotify", take_inotify},
    {"watches", take_watch},
    {"ptys", take_pty},
    {"pids", take_pid},
    {"pipes", take_pipe},
    {"in-flight", take_in_flight},
    {"locks", take_lock},
    {"mqueues", take_mqueue},
    {"semaphores", take_semaphores},
    {"segments", take_segment},
    {"epoll", take_epoll},
    {"timers", take_timer},
    {"signals", take_signal},
    {"locked", take_locked_memory},
    {"keys", take_key},
    {"namespaces", take_nested},
    {"nested-ptys", take_nested_pty},
};

int hold(const char *pool)
{
    for (size_t i = 0; i < sizeof POOLS / sizeof *POOLS; i++) {
        if (strcmp(POOLS[i].name, pool) != 0)
            continue;
        int n = 0;
        all_descriptors();
        while (n < MOST && POOLS[i].take() >= 0)
            n++;
        printf("held %s %d %s\n", pool, n, n < MOST ? errno_name(errno) : "-");
        fflush(stdout);
        for (;;)
            pause();
    }
    return 2;
}

/* ---- what a neighbour needs ---- */

#define INOTIFY   64
#define PTYS      8
#define PROCESSES 100

static int count(int (*take)(void), int most)
{
    int n = 0;
    while (n < most && take() >= 0)
        n++;
    return n;
}

static long a_file(void)
{
    int fd = open("/tmp/needed", O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
    char got[8] = "";

    if (fd < 0 || write(fd, "needed", 6) != 6 || pread(fd, got, 6, 0) != 6)
        return -1;
    close(fd);
    return memcmp(got, "needed", 6) ? -1 : unlink("/tmp/needed");
}

int need(void)
{
    all_descriptors();
    printf("inotify %d\n", count(take_inotify, INOTIFY));
    printf("ptys %d\n", count(take_pty, PTYS));
    printf("processes %d\n", count(take_pid, PROCESSES));
    printf("mqueue %d\n", count(take_unlinked_mqueue, 1));
    printf("pipe %d\n", count(take_pipe, 1));
    printf("file %s\n", a_file() ? errno_name(errno) : "written");
    return 0;
}

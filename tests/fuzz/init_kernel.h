/* A kernel for pid 1: init's own code, whose every system call comes here (-Dsyscall=fuzz_kernel).
 * Files, records and processes are the input's; memory is malloc's, so that a read beyond a mapping
 * is seen; the end of a process is a jump out of it. One target includes this. */
#pragma once

/* Init takes the kernel's own headers: libc's must not bring their types a second time. */
#undef _GNU_SOURCE
#define _ISOC11_SOURCE 1
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>

#include "init/init.h"

#include "fuzz.h"

#define MAPS_MAX 64
#define FIRST_FD 16

long fuzz_kernel(long n, ...);

static struct {
    jmp_buf over; /* exec or exit of the process that is run */
    void *map[MAPS_MAX];
    size_t nmap;
    fuzz_in records;             /* what recvmsg gives: [fds][length, 2 bytes][bytes] */
    fuzz_in passwd, group, stat; /* files */
    fuzz_in open_file;           /* of the descriptor that was opened last */
    fuzz_in pids;                /* what /proc lists, two bytes each */
    int next_fd;
    uint32_t next_pid;
    bool child;    /* the next clone is the child */
    bool executed; /* how the process ended */
    const char *payload;
    size_t npayload;
} kernel;

/* A target's own calls, before all others; NULL: none. */
static bool (*kernel_own)(long n, const long a[6], long *ret);

static void kernel_reset(void)
{
    for (size_t i = 0; i < kernel.nmap; i++)
        free(kernel.map[i]);
    memset(&kernel, 0, sizeof kernel);
    kernel.next_fd = FIRST_FD;
    kernel.next_pid = 2;
}

static long kernel_map(size_t n, const void *from)
{
    if (kernel.nmap == MAPS_MAX || n > 64 << 20)
        return -ENOMEM;
    void *p = calloc(1, n ? n : 1);
    if (from)
        memcpy(p, from, n);
    kernel.map[kernel.nmap++] = p;
    return (long)p;
}

static long kernel_unmap(void *p)
{
    for (size_t i = 0; i < kernel.nmap; i++)
        if (kernel.map[i] == p) {
            free(p);
            kernel.map[i] = kernel.map[--kernel.nmap];
            return 0;
        }
    return -EINVAL;
}

static long kernel_open(const char *path)
{
    if (!strcmp(path, "/etc/passwd"))
        kernel.open_file = kernel.passwd;
    else if (!strcmp(path, "/etc/group"))
        kernel.open_file = kernel.group;
    else if (strstr(path, "/stat"))
        kernel.open_file = kernel.stat;
    else if (strcmp(path, "ptmx") != 0)
        return -ENOENT;
    return kernel.next_fd++;
}

static long kernel_read(void *p, size_t n)
{
    size_t k = n < kernel.open_file.n ? n : kernel.open_file.n;

    if (k)
        memcpy(p, kernel.open_file.p, k);
    kernel.open_file.p += k;
    kernel.open_file.n -= k;
    return (long)k;
}

/* Numbers of processes in rising order, as the kernel lists them. */
static long kernel_list(char *b, size_t max)
{
    size_t at = 0;

    while (kernel.pids.n && at + 64 <= max) {
        struct k_dirent *d = (struct k_dirent *)(b + at);
        static uint32_t last;
        last = kernel.next_pid + (uint32_t)fuzz_number(&kernel.pids, 2);
        d->len = (unsigned short)((offsetof(struct k_dirent, name) + 16 + 7) & ~7u);
        snprintf(d->name, 16, "%u", last);
        at += d->len;
    }
    return (long)at;
}

static long kernel_receive(struct k_msghdr *m)
{
    struct k_rights *r = m->control;
    size_t n = 0;

    if (!kernel.records.n)
        return 0;
    uint32_t nfds = fuzz_byte(&kernel.records) % 8,
             want = (uint32_t)fuzz_number(&kernel.records, 2);
    void *p = fuzz_bytes(&kernel.records, want, &n);
    size_t room = m->iov[0].len;
    memcpy(m->iov[0].base, p, n < room ? n : room);
    free(p);
    m->flags = (n > room ? K_MSG_TRUNC : 0) | (nfds > RIGHTS_MAX ? K_MSG_CTRUNC : 0);
    nfds = nfds > RIGHTS_MAX ? RIGHTS_MAX : nfds;
    *r = (struct k_rights){RIGHTS_HEAD + nfds * sizeof(int), K_SOL_SOCKET, K_SCM_RIGHTS, {0}};
    for (uint32_t i = 0; i < nfds; i++)
        r->fd[i] = kernel.next_fd++;
    m->controllen = nfds ? r->len : 0;
    return (long)(n < room ? n : room);
}

/* Every byte of what a program is given must be readable, and its lists must end. */
static void kernel_exec(char **argv, char **env)
{
    size_t sum = 0;

    MUST(argv && argv[0]);
    for (char **v = argv; *v; v++)
        sum += strlen(*v);
    for (char **v = env; *v; v++) {
        sum += strlen(*v);
        for (char **w = env; w < v; w++) /* each name once */
            MUST(strcspn(*v, "=") != strcspn(*w, "=") || strncmp(*v, *w, strcspn(*v, "=")) != 0);
        if (v - env > 64)
            break; /* long enough to have seen it */
    }
    kernel.executed = sum < SIZE_MAX;
    longjmp(kernel.over, 1);
}

static long kernel_mmap(const long a[6])
{
    int fd = (int)a[4];

    if (fd < 0)
        return kernel_map((size_t)a[1], NULL);
    return (size_t)a[1] <= kernel.npayload ? kernel_map((size_t)a[1], kernel.payload) : -EINVAL;
}

static long kernel_pread(const long a[6])
{
    size_t at = (size_t)a[3], n = (size_t)a[2];

    if (at >= kernel.npayload)
        return 0;
    n = n < kernel.npayload - at ? n : kernel.npayload - at;
    memcpy((void *)a[1], kernel.payload + at, n);
    return (long)n;
}

static long kernel_pipe(int *ends)
{
    ends[0] = kernel.next_fd++;
    ends[1] = kernel.next_fd++;
    return 0;
}

static long kernel_call(long n, const long a[6])
{
    switch (n) {
    case __NR_mmap:
        return kernel_mmap(a);
    case __NR_munmap:
        return kernel_unmap((void *)a[0]);
    case __NR_openat:
        return kernel_open((const char *)a[1]);
    case __NR_read:
        return kernel_read((void *)a[1], (size_t)a[2]);
    case __NR_pread64:
        return kernel_pread(a);
    case __NR_lseek:
        return a[2] == K_SEEK_END ? (long)kernel.npayload : 0;
    case __NR_statx:
        ((struct statx *)a[4])->stx_mode = K_S_IFREG;
        return 0;
    case __NR_getdents64:
        return kernel_list((char *)a[1], (size_t)a[2]);
    case __NR_recvmsg:
        return kernel_receive((struct k_msghdr *)a[1]);
    case __NR_pipe2:
        return kernel_pipe((int *)a[0]);
    case __NR_ioctl:
    case __NR_pidfd_open:
        return kernel.next_fd++;
    case __NR_clone:
        return kernel.child ? 0 : (long)kernel.next_pid++;
    case __NR_wait4:
        return 0;
    case __NR_execve:
        kernel_exec((char **)a[1], (char **)a[2]);
        return -ENOENT;
    case __NR_execveat:
        kernel_exec((char **)a[2], (char **)a[3]);
        return -ENOENT;
    case __NR_exit_group:
        longjmp(kernel.over, 1);
    default:
        return 0;
    }
}

long fuzz_kernel(long n, ...)
{
    long a[6];
    va_list ap;

    va_start(ap, n);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    long r = 0;
    if (!kernel_own || !kernel_own(n, a, &r))
        r = kernel_call(n, a);
    if (r >= 0 || r < -4095)
        return r;
    errno = (int)-r;
    return -1;
}

/* What a process of a sandbox can do to another: every way to look into it or to steer it, one line
 * each, "WAY possible" or "WAY REASON". Static: it runs in images without a libc. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static void tell(const char *way, long r)
{
    printf("%s %s\n", way, r >= 0 ? "possible" : strerror(errno));
}

static void try_open(long pid, const char *name, int flags)
{
    char path[64], byte;

    snprintf(path, sizeof path, "/proc/%ld/%s", pid, name);
    int fd = open(path, flags | O_NONBLOCK);
    long r = fd;
    if (fd >= 0 && flags == O_RDONLY && strcmp(name, "mem"))
        r = read(fd, &byte, 1);
    if (fd >= 0 && !strcmp(name, "mem"))
        r = pread(fd, &byte, 1, 0x400000);
    tell(name, r);
}

int main(int argc, char **argv)
{
    long pid = argc > 1 ? atol(argv[1]) : 0;
    char byte, link[64], target[64];
    struct iovec here = {&byte, 1}, there = {(void *)0x400000, 1};

    tell("ptrace-seize", ptrace(PTRACE_SEIZE, pid, 0, 0));
    tell("ptrace-attach", ptrace(PTRACE_ATTACH, pid, 0, 0));
    tell("process_vm_readv", process_vm_readv((pid_t)pid, &here, 1, &there, 1, 0));
    tell("process_vm_writev", process_vm_writev((pid_t)pid, &here, 1, &there, 1, 0));
    try_open(pid, "mem", O_RDWR);
    try_open(pid, "fd/0", O_RDONLY);
    try_open(pid, "fd/1", O_WRONLY);
    try_open(pid, "environ", O_RDONLY);
    try_open(pid, "exe", O_RDONLY);
    try_open(pid, "maps", O_RDONLY);
    snprintf(link, sizeof link, "/proc/%ld/fd/1", pid);
    tell("readlink-fd", readlink(link, target, sizeof target));
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    tell("pidfd_getfd", pidfd < 0 ? -1 : syscall(SYS_pidfd_getfd, pidfd, 1, 0));
    return 0;
}

/* The allow list of system calls, as seccomp filters. */
#include "daemon/calls.h"

#include <sched.h>
#include <sys/socket.h>

#include "base/filter.h"

#define NAMESPACES                                                                                \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | \
     CLONE_NEWNET)

static const int ALLOWED[] = {
    /* files */
    SCMP_SYS(access),
    SCMP_SYS(chmod),
    SCMP_SYS(chown),
    SCMP_SYS(close),
    SCMP_SYS(close_range),
    SCMP_SYS(copy_file_range),
    SCMP_SYS(dup),
    SCMP_SYS(dup2),
    SCMP_SYS(dup3),
    SCMP_SYS(faccessat),
    SCMP_SYS(faccessat2),
    SCMP_SYS(fadvise64),
    SCMP_SYS(fallocate),
    SCMP_SYS(fchmod),
    SCMP_SYS(fchmodat),
    SCMP_SYS(fchown),
    SCMP_SYS(fchownat),
    SCMP_SYS(fcntl),
    SCMP_SYS(fdatasync),
    SCMP_SYS(flock),
    SCMP_SYS(fstat),
    SCMP_SYS(fstatfs),
    SCMP_SYS(fsync),
    SCMP_SYS(ftruncate),
    SCMP_SYS(getcwd),
    SCMP_SYS(getdents64),
    SCMP_SYS(ioctl), /* Landlock refuses devices */
    SCMP_SYS(link),
    SCMP_SYS(linkat),
    SCMP_SYS(lseek),
    SCMP_SYS(lstat),
    SCMP_SYS(memfd_create),
    SCMP_SYS(mkdir),
    SCMP_SYS(mkdirat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(open),
    SCMP_SYS(openat),
    SCMP_SYS(openat2),
    SCMP_SYS(pipe),
    SCMP_SYS(pipe2),
    SCMP_SYS(pread64),
    SCMP_SYS(preadv),
    SCMP_SYS(preadv2),
    SCMP_SYS(pwrite64),
    SCMP_SYS(pwritev),
    SCMP_SYS(pwritev2),
    SCMP_SYS(read),
    SCMP_SYS(readlink),
    SCMP_SYS(readlinkat),
    SCMP_SYS(readv),
    SCMP_SYS(rename),
    SCMP_SYS(renameat),
    SCMP_SYS(renameat2),
    SCMP_SYS(rmdir),
    SCMP_SYS(sendfile),
    SCMP_SYS(splice),
    SCMP_SYS(stat),
    SCMP_SYS(statfs),
    SCMP_SYS(statx),
    SCMP_SYS(symlinkat),
    SCMP_SYS(sync_file_range),
    SCMP_SYS(tee),
    SCMP_SYS(truncate),
    SCMP_SYS(umask),
    SCMP_SYS(unlink),
    SCMP_SYS(unlinkat),
    SCMP_SYS(utimensat),
    SCMP_SYS(write),
    SCMP_SYS(writev),
    /* sockets; the families are below */
    SCMP_SYS(accept),
    SCMP_SYS(accept4),
    SCMP_SYS(bind),
    SCMP_SYS(connect),
    SCMP_SYS(getpeername),
    SCMP_SYS(getsockname),
    SCMP_SYS(getsockopt),
    SCMP_SYS(listen),
    SCMP_SYS(recvfrom),
    SCMP_SYS(recvmmsg),
    SCMP_SYS(recvmsg),
    SCMP_SYS(sendmmsg),
    SCMP_SYS(sendmsg),
    SCMP_SYS(sendto),
    SCMP_SYS(setsockopt),
    SCMP_SYS(shutdown),
    SCMP_SYS(socketpair),
    /* waiting and time */
    SCMP_SYS(clock_getres),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(epoll_create),
    SCMP_SYS(epoll_create1),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(epoll_pwait),
    SCMP_SYS(epoll_pwait2),
    SCMP_SYS(epoll_wait),
    SCMP_SYS(eventfd2),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(nanosleep),
    SCMP_SYS(pause),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(pselect6),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(select),
    SCMP_SYS(time),
    SCMP_SYS(timerfd_create),
    SCMP_SYS(timerfd_gettime),
    SCMP_SYS(timerfd_settime),
    SCMP_SYS(times),
    /* memory; MDWE refuses to make it executable */
    SCMP_SYS(brk),
    SCMP_SYS(madvise),
    SCMP_SYS(mincore),
    SCMP_SYS(mlock),
    SCMP_SYS(mmap),
    SCMP_SYS(mprotect),
    SCMP_SYS(mremap),
    SCMP_SYS(msync),
    SCMP_SYS(munlock),
    SCMP_SYS(munmap),
    /* threads, signals, own process */
    SCMP_SYS(arch_prctl),
    SCMP_SYS(capget),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(futex),
    SCMP_SYS(get_robust_list),
    SCMP_SYS(getcpu),
    SCMP_SYS(getegid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getgid),
    SCMP_SYS(getgroups),
    SCMP_SYS(getpgrp),
    SCMP_SYS(getpid),
    SCMP_SYS(getppid),
    SCMP_SYS(getrandom),
    SCMP_SYS(getresgid),
    SCMP_SYS(getresuid),
    SCMP_SYS(getrlimit),
    SCMP_SYS(getrusage),
    SCMP_SYS(gettid),
    SCMP_SYS(getuid),
    SCMP_SYS(kill),
    SCMP_SYS(membarrier),
    SCMP_SYS(pidfd_open),
    SCMP_SYS(pidfd_send_signal),
    SCMP_SYS(prctl),
    SCMP_SYS(prlimit64),
    SCMP_SYS(rseq),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigpending),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigtimedwait),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(sched_getparam),
    SCMP_SYS(sched_getscheduler),
    SCMP_SYS(sched_yield),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(setpriority),
    SCMP_SYS(set_tid_address),
    SCMP_SYS(setrlimit),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(sysinfo),
    SCMP_SYS(tgkill),
    SCMP_SYS(uname),
    SCMP_SYS(wait4),
    SCMP_SYS(waitid),
    /* starting skopeo, and confining it */
    SCMP_SYS(execve),
    SCMP_SYS(landlock_add_rule),
    SCMP_SYS(landlock_create_ruleset),
    SCMP_SYS(landlock_restrict_self),
    SCMP_SYS(seccomp),
    SCMP_SYS(vfork),
};

static const int FAMILIES[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};

err *calls_all(void)
{
    filter f = filter_new(SCMP_ACT_ERRNO(ENOSYS));

    filter_add(&f, SCMP_ACT_ALLOW, ALLOWED, ARRAY_LEN(ALLOWED));
    for (size_t i = 0; i < ARRAY_LEN(FAMILIES); i++)
        filter_add_if(&f, SCMP_ACT_ALLOW, SCMP_SYS(socket), 0, UINT32_MAX, (uint64_t)FAMILIES[i]);
    filter_add_if(&f, SCMP_ACT_ALLOW, SCMP_SYS(clone), 0, NAMESPACES, 0);
    return filter_load(&f, false);
}

static const int PROGRAMS[] = {SCMP_SYS(execve), SCMP_SYS(vfork)};

err *calls_no_programs(void)
{
    filter f = filter_new(SCMP_ACT_ALLOW);

    filter_add(&f, SCMP_ACT_ERRNO(EPERM), PROGRAMS, ARRAY_LEN(PROGRAMS));
    filter_add_if(&f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 0, CLONE_THREAD, 0);
    return filter_load(&f, false);
}

/* skopeo only sends requests. Landlock decides which files it opens. */
static const int NOT_SKOPEO[] = {
    SCMP_SYS(accept),     SCMP_SYS(accept4),           SCMP_SYS(chown),
    SCMP_SYS(fchown),     SCMP_SYS(fchownat),          SCMP_SYS(listen),
    SCMP_SYS(pidfd_open), SCMP_SYS(pidfd_send_signal), SCMP_SYS(memfd_create),
};

err *calls_skopeo(void)
{
    filter f = filter_new(SCMP_ACT_ALLOW);

    filter_add(&f, SCMP_ACT_ERRNO(EPERM), NOT_SKOPEO, ARRAY_LEN(NOT_SKOPEO));
    return filter_load(&f, false);
}

/* System calls without libc (x86-64, arm64). -DHOSTED calls libc's syscall() instead, so the same
 * code runs under the sanitizers in tests. Only calls of the generic table are used.
 *
 *     long r = SYS(read, fd, buf, len);      r < 0: -errno */
#pragma once

#include <asm/fcntl.h>
#include <asm/ioctls.h>
#include <asm/signal.h>
#include <asm/unistd.h>
#include <linux/errno.h>
#include <linux/poll.h>
#include <linux/prctl.h>
#include <linux/resource.h>
#include <linux/stat.h>
#include <linux/time.h>
#include <linux/utsname.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint32_t u32;
typedef uint64_t u64;

#ifdef HOSTED
#    include <errno.h>
long syscall(long n, ...);
static inline long sys_call(long n, long a, long b, long c, long d, long e, long f)
{
    long r = syscall(n, a, b, c, d, e, f);
    return r == -1 ? -(long)errno : r;
}
#elif defined(__x86_64__)
static inline long sys_call(long n, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long r;
    __asm__ volatile("syscall"
                     : "=a"(r)
                     : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return r;
}
#elif defined(__aarch64__)
static inline long sys_call(long n, long a, long b, long c, long d, long e, long f)
{
    register long x8 __asm__("x8") = n;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}
#else
#    error "no system call stub for this architecture"
#endif

#define SYS_PAD(n, a, b, c, d, e, f, ...) \
    sys_call(__NR_##n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define SYS(...) SYS_PAD(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)

/* Kernel structures that the UAPI headers do not define without libc. */
struct k_iovec {
    void *base;
    size_t len;
};
struct k_msghdr {
    void *name;
    int namelen;
    struct k_iovec *iov;
    size_t niov;
    void *control;
    size_t controllen;
    u32 flags;
};
#define RIGHTS_MAX 4
struct k_rights { /* one SCM_RIGHTS control message */
    size_t len;
    int level, type;
    int fd[RIGHTS_MAX];
};
#define RIGHTS_HEAD offsetof(struct k_rights, fd)
struct k_ucred {
    int pid;
    u32 uid, gid;
};
struct k_unix { /* an abstract name begins with NUL and is not terminated */
    unsigned short family;
    char path[108];
};
struct k_rlimit {
    u64 soft, hard;
};
struct k_dirent {
    u64 ino;
    int64_t off;
    unsigned short len;
    unsigned char type;
    char name[];
};
struct k_winsize {
    unsigned short rows, cols, x, y;
};
struct k_sigaction { /* SIG_DFL is all zero */
    u64 words[4];
};
#define K_SIGINFO_SIZE 128

enum {
    K_SOL_SOCKET = 1,
    K_SCM_RIGHTS = 1,
    K_SO_SNDBUF = 7,
    K_SO_PEERCRED = 17,
    K_AF_UNIX = 1,
    K_SOCK_STREAM = 1,
    K_SHUT_WR = 1,
    K_MSG_CTRUNC = 0x8,
    K_MSG_TRUNC = 0x20,
    K_MSG_DONTWAIT = 0x40,
    K_MSG_NOSIGNAL = 0x4000,
    K_MSG_CMSG_CLOEXEC = 0x40000000,
    K_SOCK_NONBLOCK = 04000,
    K_SOCK_CLOEXEC = 02000000,
    K_SFD_NONBLOCK = 04000,
    K_SFD_CLOEXEC = 02000000,
    K_WNOHANG = 1,
    K_WALL = 0x40000000,
    K_CLONE_VM = 0x100,
    K_CLONE_VFORK = 0x4000,
    K_PROT_READ = 1,
    K_PROT_WRITE = 2,
    K_MAP_SHARED = 1,
    K_MAP_PRIVATE = 2,
    K_MAP_ANON = 0x20,
    K_MAP_NORESERVE = 0x4000,
    K_MADV_DONTNEED = 4,
    K_MADV_DONTDUMP = 16,
    K_SEEK_SET = 0,
    K_SEEK_END = 2,
    K_F_DUPFD_CLOEXEC = 1030,
    K_SIG_BLOCK = 0,
    K_SIG_SETMASK = 2,
    K_SIGSET_SIZE = 8,
    K_NSIG = 64,
    K_S_IFMT = 0170000,
    K_S_IFREG = 0100000,
    K_AT_FDCWD = -100,
    K_AT_EMPTY_PATH = 0x1000,
    K_CLOCK_REALTIME = 0,
    K_CLOCK_MONOTONIC = 1,
    K_CLOCK_BOOTTIME = 7,
};

static inline bool sys_failed(long r) /* for calls that return addresses */
{
    return r < 0 && r > -4096;
}

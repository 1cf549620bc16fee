/* Put before the C library of bothyd and the warden (LD_PRELOAD): the n-th call of one sort fails.
 *
 * TORTURE_BOTHYD and TORTURE_WARDEN name a file that is mapped before main and shared with the
 * test: it arms, says which call is to fail and how, and reads which one did. Nothing is counted
 * while it is not armed, and on threads that are not on a request's path (`skip`). Each call fails
 * only as the kernel may let it fail: a write to an eventfd does not.
 *
 * Sorts: system calls; steps of SQLite; frames between bothyd and the warden; records between
 * bothyd and the inits of slots (the spine). */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#    define SO_PEERPIDFD 77
#endif

enum sort {
    SORT_CALL = 1,
    SORT_STORE,
    SORT_FRAME,
    SORT_SPINE,
};

struct control { /* the test packs it: see control.py */
    _Atomic uint32_t armed;
    uint32_t sort;
    uint32_t target; /* 0: count only */
    uint32_t choice; /* which of the ways in which it may fail, modulo their number */
    _Atomic uint32_t count;
    _Atomic uint32_t fired;
    int32_t errnum;
    uint32_t ways; /* how many ways the failed one has */
    char call[32];
    char thread[16];
    char skip[128]; /* "|keeper|refill|" */
};

static struct control *ctl;

__attribute__((constructor)) static void map_control(void)
{
    bool warden = !strcmp(program_invocation_short_name, "bothy-warden");
    bool bothyd = !strcmp(program_invocation_short_name, "bothyd");
    const char *path = warden ? getenv("TORTURE_WARDEN") : bothyd ? getenv("TORTURE_BOTHYD") : NULL;
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

    if (warden || bothyd)
        unsetenv("LD_PRELOAD"); /* what it starts is not tortured */
    if (fd < 0)
        return;
    void *p = mmap(NULL, sizeof *ctl, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    ctl = p == MAP_FAILED ? NULL : p;
}

static void *real(const char *name)
{
    void *p = dlsym(RTLD_NEXT, name);

    if (!p)
        abort();
    return p;
}

#define REAL(name)                          \
    static __typeof__(&(name)) next_##name; \
    if (!next_##name)                       \
    next_##name = (__typeof__(&(name)))real(#name)

static bool skipped(void)
{
    char name[20] = "|";

    prctl(PR_GET_NAME, name + 1);
    strcat(name, "|");
    return strstr(ctl->skip, name);
}

/* Is this the one? ways: how many there are to fail. */
static bool is_target(enum sort sort, const char *call, uint32_t ways)
{
    if (!ctl || !ctl->armed || ctl->sort != sort || skipped())
        return false;
    uint32_t n = atomic_fetch_add(&ctl->count, 1) + 1;
    if (n != ctl->target)
        return false;
    snprintf(ctl->call, sizeof ctl->call, "%s", call);
    prctl(PR_GET_NAME, ctl->thread);
    ctl->ways = ways;
    return true;
}

static void fire(int errnum)
{
    ctl->errnum = errnum;
    atomic_store(&ctl->fired, 1);
}

/* The errno a call fails with, 0 for none. */
static int fails(const char *call, const int *errnums)
{
    uint32_t n = 0;
    int keep = errno;

    while (errnums[n])
        n++;
    if (!n || !is_target(SORT_CALL, call, n)) {
        errno = keep;
        return 0;
    }
    fire(errnums[ctl->choice % n]);
    return errno = errnums[ctl->choice % n];
}

#define ERRS(...) ((const int[]){__VA_ARGS__, 0})
#define WRAP(ret, name, params, args, ...)   \
    ret name params                          \
    {                                        \
        REAL(name);                          \
        if (fails(#name, ERRS(__VA_ARGS__))) \
            return (ret)-1;                  \
        return next_##name args;             \
    }

/* ---- files ---- */

int open64(const char *path, int flags, ...)
{
    REAL(open64);
    va_list ap;
    va_start(ap, flags);
    mode_t mode = va_arg(ap, mode_t);
    va_end(ap);
    if (fails("open", flags & O_CREAT ? ERRS(EMFILE, ENOSPC, EIO) : ERRS(EMFILE, ENOMEM, EIO)))
        return -1;
    return next_open64(path, flags, mode);
}

int openat64(int dir, const char *path, int flags, ...)
{
    REAL(openat64);
    va_list ap;
    va_start(ap, flags);
    mode_t mode = va_arg(ap, mode_t);
    va_end(ap);
    if (fails("openat", flags & O_CREAT ? ERRS(EMFILE, ENOSPC, EIO) : ERRS(EMFILE, ENOMEM, EIO)))
        return -1;
    return next_openat64(dir, path, flags, mode);
}

/* What a descriptor is: an eventfd, a pipe that wakes somebody and the like do not fail. */
static bool is_kind(int fd, mode_t kind)
{
    struct stat st;
    int keep = errno;
    bool yes = !syscall(SYS_fstat, fd, &st) && (st.st_mode & S_IFMT) == kind;

    errno = keep;
    return yes;
}

#define WRAP_FILE(ret, name, params, args, ...)                                           \
    ret name params                                                                       \
    {                                                                                     \
        REAL(name);                                                                       \
        if (ctl && ctl->armed && is_kind(fd, S_IFREG) && fails(#name, ERRS(__VA_ARGS__))) \
            return (ret)-1;                                                               \
        return next_##name args;                                                          \
    }

WRAP_FILE(ssize_t, read, (int fd, void *p, size_t n), (fd, p, n), EIO)
WRAP_FILE(ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n), ENOSPC, EIO)
WRAP_FILE(ssize_t, pread64, (int fd, void *p, size_t n, off64_t at), (fd, p, n, at), EIO)
WRAP_FILE(ssize_t, pwrite64, (int fd, const void *p, size_t n, off64_t at), (fd, p, n, at), ENOSPC,
          EIO)
WRAP(int, fsync, (int fd), (fd), EIO, ENOSPC)
WRAP(int, fdatasync, (int fd), (fd), EIO, ENOSPC)
WRAP(int, ftruncate64, (int fd, off64_t n), (fd, n), EIO)
WRAP(int, fallocate64, (int fd, int mode, off64_t at, off64_t n), (fd, mode, at, n), ENOSPC, EIO)
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode), ENOSPC, EIO)
WRAP(int, mkdirat, (int dir, const char *path, mode_t mode), (dir, path, mode), ENOSPC, EIO)
WRAP(int, unlinkat, (int dir, const char *path, int flags), (dir, path, flags), EIO)
WRAP(int, renameat, (int d, const char *a, int e, const char *b), (d, a, e, b), ENOSPC, EIO)
WRAP(int, fchmod, (int fd, mode_t mode), (fd, mode), EIO)
WRAP(int, fchmodat, (int dir, const char *path, mode_t m, int f), (dir, path, m, f), EIO)
WRAP(int, fchown, (int fd, uid_t u, gid_t g), (fd, u, g), EIO)
WRAP(int, fchownat, (int dir, const char *p, uid_t u, gid_t g, int f), (dir, p, u, g, f), EIO)
WRAP(int, fstat64, (int fd, struct stat64 *st), (fd, st), EIO)
WRAP(int, fstatat64, (int dir, const char *p, struct stat64 *st, int f), (dir, p, st, f), ENOMEM,
     EIO)
WRAP(int, stat64, (const char *p, struct stat64 *st), (p, st), ENOMEM, EIO)
WRAP(int, fstatvfs64, (int fd, struct statvfs64 *st), (fd, st), EIO)
WRAP(int, flock, (int fd, int op), (fd, op), ENOLCK)
WRAP(void *, mmap64, (void *a, size_t n, int p, int f, int fd, off64_t at), (a, n, p, f, fd, at),
     ENOMEM)
WRAP(ssize_t, splice, (int in, off64_t *a, int out, off64_t *b, size_t n, unsigned f),
     (in, a, out, b, n, f), ENOSPC, EIO, ENOMEM)

/* Duplicates may find no place, locks may not be had; the rest of it, and letting go, does not
 * fail. */
int fcntl64(int fd, int cmd, ...)
{
    REAL(fcntl64);
    va_list ap;
    va_start(ap, cmd);
    void *arg = va_arg(ap, void *);
    va_end(ap);
    if ((cmd == F_DUPFD_CLOEXEC || cmd == F_DUPFD) && fails("fcntl(F_DUPFD)", ERRS(EMFILE)))
        return -1;
    if ((cmd == F_SETLK || cmd == F_OFD_SETLK) && ((struct flock *)arg)->l_type != F_UNLCK &&
        fails("fcntl(F_SETLK)", ERRS(ENOLCK)))
        return -1;
    return next_fcntl64(fd, cmd, arg);
}

WRAP(int, dup, (int fd), (fd), EMFILE)
WRAP(int, pipe2, (int fds[2], int flags), (fds, flags), EMFILE)

/* ---- sockets, waiting ---- */

WRAP(int, socket, (int d, int t, int p), (d, t, p), EMFILE, ENOBUFS)
WRAP(int, socketpair, (int d, int t, int p, int fds[2]), (d, t, p, fds), EMFILE)
WRAP(int, connect, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n), EAGAIN,
     ECONNREFUSED)
WRAP(int, accept4, (int fd, struct sockaddr *a, socklen_t *n, int f), (fd, a, n, f), EMFILE, ENOMEM)
WRAP(ssize_t, send, (int fd, const void *p, size_t n, int f), (fd, p, n, f), ECONNRESET, ENOBUFS)
WRAP(ssize_t, recv, (int fd, void *p, size_t n, int f), (fd, p, n, f), ECONNRESET)
WRAP(int, setsockopt, (int fd, int l, int o, const void *p, socklen_t n), (fd, l, o, p, n), ENOMEM)
int getsockopt(int fd, int level, int option, void *p, socklen_t *n)
{
    REAL(getsockopt);
    if (option == SO_PEERPIDFD && fails("getsockopt(SO_PEERPIDFD)", ERRS(EMFILE)))
        return -1;
    return next_getsockopt(fd, level, option, p, n);
}
/* Only what is added needs memory. */
int epoll_ctl(int fd, int op, int at, struct epoll_event *e)
{
    REAL(epoll_ctl);
    if (op == EPOLL_CTL_ADD && fails("epoll_ctl(ADD)", ERRS(ENOMEM, ENOSPC)))
        return -1;
    return next_epoll_ctl(fd, op, at, e);
}
WRAP(int, epoll_wait, (int fd, struct epoll_event *e, int n, int t), (fd, e, n, t), EINTR)
WRAP(int, poll, (struct pollfd * p, nfds_t n, int t), (p, n, t), EINTR, ENOMEM)
WRAP(int, eventfd, (unsigned n, int f), (n, f), EMFILE)
WRAP(int, pidfd_open, (pid_t pid, unsigned f), (pid, f), EMFILE, ENOMEM)

/* ---- mounts ---- */

WRAP(int, fsopen, (const char *fs, unsigned f), (fs, f), EMFILE, ENOMEM)
WRAP(int, fsconfig, (int fd, unsigned c, const char *k, const void *v, int a), (fd, c, k, v, a),
     ENOMEM, EIO)
WRAP(int, fsmount, (int fd, unsigned f, unsigned a), (fd, f, a), ENOMEM, EMFILE)
WRAP(int, open_tree, (int d, const char *p, unsigned f), (d, p, f), ENOMEM, EMFILE)
WRAP(int, mount_setattr, (int d, const char *p, unsigned f, struct mount_attr *a, size_t n),
     (d, p, f, a, n), ENOMEM)
WRAP(int, move_mount, (int d, const char *a, int e, const char *b, unsigned f), (d, a, e, b, f),
     ENOSPC, ENOMEM)
WRAP(int, mount, (const char *a, const char *b, const char *t, unsigned long f, const void *d),
     (a, b, t, f, d), ENOMEM, ENOSPC)
/* What is only detached is never busy. */
int umount2(const char *path, int flags)
{
    REAL(umount2);
    if (!(flags & MNT_DETACH) && fails("umount2", ERRS(EBUSY)))
        return -1;
    return next_umount2(path, flags);
}
WRAP(int, setns, (int fd, int t), (fd, t), ENOMEM)
WRAP(int, unshare, (int f), (f), ENOMEM, ENOSPC)
WRAP(ssize_t, fgetxattr, (int fd, const char *n, void *v, size_t s), (fd, n, v, s), EIO)
WRAP(int, fsetxattr, (int fd, const char *n, const void *v, size_t s, int f), (fd, n, v, s, f),
     ENOSPC, EIO)

int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *fa,
                 const posix_spawnattr_t *at, char *const argv[], char *const env[])
{
    REAL(posix_spawnp);
    int e = fails("posix_spawnp", ERRS(EAGAIN, ENOMEM));

    return e ? e : next_posix_spawnp(pid, file, fa, at, argv, env);
}

long syscall(long number, ...)
{
    static long (*next)(long, ...);
    long a[6];
    va_list ap;

    if (!next)
        next = (long (*)(long, ...))real("syscall");
    va_start(ap, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    if ((number == SYS_openat2 || number == SYS_openat) &&
        fails("openat2", ERRS(EMFILE, ENOMEM, EIO)))
        return -1;
    if (number == SYS_pivot_root && fails("pivot_root", ERRS(EBUSY, ENOMEM)))
        return -1;
    return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ---- frames ---- */

/* What a packet socket of bothyd leads to: 0 when it is none. */
static enum sort leads_to(int fd)
{
    struct sockaddr_un a = {0};
    socklen_t n = sizeof a;
    int keep = errno, type = 0;
    socklen_t tn = sizeof type;
    REAL(getsockopt);
    bool packets = !next_getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &tn) &&
                   type == SOCK_SEQPACKET && !getpeername(fd, (struct sockaddr *)&a, &n) &&
                   a.sun_family == AF_UNIX;

    errno = keep;
    if (!packets)
        return 0;
    return strstr(a.sun_path, "warden.sock") ? SORT_FRAME : SORT_SPINE;
}

static bool is_frame(int fd)
{
    return ctl && ctl->armed && ctl->sort >= SORT_FRAME && leads_to(fd) == ctl->sort;
}

static void close_rights(struct msghdr *m)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
            for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++)
                close(((int *)CMSG_DATA(c))[i]);
    m->msg_controllen = 0;
}

enum way { /* what happens to a frame */
    LOST,
    CUT,
    GARBAGE,
    ERROR,
};
/* The warden may leave a question unanswered. The spine is reliable, and what an init of the
 * tenant's keeps to itself is the tenant's own loss. */
static const struct {
    const char *peer;
    uint32_t out, in; /* how many of the ways */
    enum way to[3], from[4];
} PEERS[] = {
    [SORT_FRAME] = {"the warden", 3, 4, {LOST, CUT, GARBAGE}, {LOST, CUT, GARBAGE, ERROR}},
    [SORT_SPINE] = {"init", 3, 3, {ERROR, CUT, GARBAGE}, {CUT, GARBAGE, ERROR}},
};
static const char *const WAYS[] = {"lost", "cut", "garbage", "error"};

static void fire_frame(const char *direction, enum way way)
{
    snprintf(ctl->call, sizeof ctl->call, "%s %s: %s", direction, PEERS[ctl->sort].peer, WAYS[way]);
    fire(0);
}

static ssize_t send_broken(int fd, const struct msghdr *m, int flags, enum way way)
{
    REAL(sendmsg);
    static char text[1 << 16];
    size_t n = 0;

    for (size_t i = 0; i < m->msg_iovlen; i++) {
        memcpy(text + n, m->msg_iov[i].iov_base, m->msg_iov[i].iov_len);
        n += m->msg_iov[i].iov_len;
    }
    if (way == LOST)
        return (ssize_t)n;
    if (way == ERROR) {
        errno = ENOBUFS;
        return -1;
    }
    if (way == CUT) {
        shutdown(fd, SHUT_RDWR);
        errno = EPIPE;
        return -1;
    }
    for (size_t i = 16; i < n; i++) /* whose answer it is stays readable */
        text[i] = (char)(text[i] ^ 0xa5);
    struct iovec v = {text, n};
    struct msghdr broken = *m;
    broken.msg_iov = &v;
    broken.msg_iovlen = 1;
    return next_sendmsg(fd, &broken, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
    REAL(sendmsg);
    if (is_frame(fd) && is_target(ctl->sort, "", PEERS[ctl->sort].out)) {
        enum way way = PEERS[ctl->sort].to[ctl->choice % ctl->ways];
        fire_frame("to", way);
        return send_broken(fd, m, flags, way);
    }
    if (fails("sendmsg",
              m->msg_controllen ? ERRS(ETOOMANYREFS, ENOBUFS) : ERRS(ENOBUFS, ECONNRESET)))
        return -1;
    return next_sendmsg(fd, m, flags);
}

static ssize_t receive_broken(int fd, struct msghdr *m, ssize_t n, enum way way)
{
    char *p = m->msg_iov[0].iov_base;

    if (way == GARBAGE) {
        for (ssize_t i = 16; i < n; i++)
            p[i] = (char)(p[i] ^ 0xa5);
        return n;
    }
    close_rights(m);
    if (way == LOST) {
        errno = EAGAIN;
        return -1;
    }
    if (way == CUT) {
        shutdown(fd, SHUT_RDWR);
        return 0;
    }
    ((int32_t *)p)[1] = EIO; /* err of the head; a refusal has nothing behind it */
    if (ctl->sort == SORT_FRAME)
        return 16;
    if (*(uint32_t *)p != 68) /* EXIT is told, not asked for: its body stays */
        memset(p + 16, 0, (size_t)n - 16);
    return n;
}

ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
    REAL(recvmsg);
    bool frame = is_frame(fd);

    if (fails("recvmsg", ERRS(ECONNRESET, ENOMEM)))
        return -1;
    ssize_t n = next_recvmsg(fd, m, flags);
    if (frame && n >= 16 && is_target(ctl->sort, "", PEERS[ctl->sort].in)) {
        enum way way = PEERS[ctl->sort].from[ctl->choice % ctl->ways];
        fire_frame("from", way);
        return receive_broken(fd, m, n, way);
    }
    return n;
}

/* ---- the store ---- */

typedef struct sqlite3 sqlite3;
typedef struct sqlite3_stmt sqlite3_stmt;
sqlite3 *sqlite3_db_handle(sqlite3_stmt *) __attribute__((weak));
const char *sqlite3_errstr(int) __attribute__((weak));
int sqlite3_exec(sqlite3 *, const char *, int (*)(void *, int, char **, char **), void *, char **)
    __attribute__((weak));
int sqlite3_get_autocommit(sqlite3 *) __attribute__((weak));
int sqlite3_step(sqlite3_stmt *s);
int sqlite3_extended_errcode(sqlite3 *db);
const char *sqlite3_errmsg(sqlite3 *db);

static __thread sqlite3 *failed;
static __thread int failed_with;

/* BUSY, NOMEM, IOERR_WRITE, FULL; the last two roll the transaction back, as SQLite may. */
static const int STORE[] = {5, 7, 10 | 3 << 8, 13};

int sqlite3_step(sqlite3_stmt *s)
{
    REAL(sqlite3_step);
    static __thread bool inside;

    failed = NULL;
    if (inside || !is_target(SORT_STORE, "sqlite3_step", 4))
        return next_sqlite3_step(s);
    failed = sqlite3_db_handle(s);
    failed_with = STORE[ctl->choice % 4];
    if (ctl->choice % 4 >= 2 && !sqlite3_get_autocommit(failed)) {
        sqlite3 *db = failed;
        inside = true;
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
        inside = false;
        failed = db;
    }
    fire(failed_with);
    return failed_with;
}

int sqlite3_extended_errcode(sqlite3 *db)
{
    REAL(sqlite3_extended_errcode);
    return db && db == failed ? failed_with : next_sqlite3_extended_errcode(db);
}

const char *sqlite3_errmsg(sqlite3 *db)
{
    REAL(sqlite3_errmsg);
    return db && db == failed ? sqlite3_errstr(failed_with) : next_sqlite3_errmsg(db);
}

#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/id.h"
#include "base/str.h"

#define IN_ROOT_TRIES 128

bool fs_is_no_room(int errnum)
{
    return errnum == ENOSPC || errnum == EDQUOT;
}

static err_code code_of(int errnum)
{
    switch (errnum) {
    case ENOSPC:
    case EDQUOT:
        return ERR_DISK_FULL;
    case EROFS:
    case EIO:
    case EUCLEAN: /* "structure needs cleaning": a damaged file system */
        return ERR_UNAVAILABLE;
    case ENOENT:
        return ERR_NOT_FOUND;
    default:
        return ERR_INTERNAL;
    }
}

err *fs_error(int errnum, const char *fmt, ...)
{
    CLEANUP(freep) char *what = NULL;
    va_list ap;

    va_start(ap, fmt);
    what = str_vprintf(fmt, ap);
    va_end(ap);
    err *e = err_sys(code_of(errnum), errnum, "%s", what);
    if (code_of(errnum) != ERR_UNAVAILABLE)
        return e;
    return err_remedy(e, "Look for the reason in the kernel's log, mend the file system, mount it "
                         "for writing and start what uses it again (bothyd, bothy-warden).");
}

static err *read_opened(int opened, const char *name, size_t max, buf *ret_bytes)
{
    CLEANUP(closep) int fd = opened;
    CLEANUP(buf_done) buf b = {0};
    struct stat st;

    if (fd < 0)
        return fs_error(errno, "cannot open %s", name);
    if (fstat(fd, &st) || (!S_ISREG(st.st_mode) && st.st_size))
        return err_new(ERR_INTERNAL, "%s is not a regular file", name);
    for (;;) {
        buf_reserve(&b, 65536);
        ssize_t n = read(fd, b.p + b.len, 65536);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fs_error(errno, "cannot read %s", name);
        if (!n)
            break;
        b.len += (size_t)n;
        if (b.len > max)
            return err_new(ERR_TOO_LARGE, "%s is larger than %zu bytes", name, max);
    }
    buf_cstr(&b);
    *ret_bytes = b;
    b = (buf){0};
    return NULL;
}

err *fs_read(int dirfd, const char *name, size_t max, buf *ret_bytes)
{
    return read_opened(openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), name,
                       max, ret_bytes);
}

err *fs_read_linked(const char *path, size_t max, buf *ret_bytes)
{
    return read_opened(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), path, max, ret_bytes);
}

int fs_write_all(int fd, const void *p, size_t n)
{
    const char *at = p;

    while (n) {
        ssize_t k = write(fd, at, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return -errno;
        at += k;
        n -= (size_t)k;
    }
    return 0;
}

int fs_pwrite_all(int fd, const void *p, size_t n, uint64_t offset)
{
    const char *at = p;

    while (n) {
        ssize_t k = pwrite(fd, at, n, (off_t)offset);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return -errno;
        at += k;
        offset += (uint64_t)k;
        n -= (size_t)k;
    }
    return 0;
}

err *fs_write(int dirfd, const char *name, const void *p, size_t n, mode_t mode, bool durable)
{
    char suffix[9];

    id_random(suffix, 8);
    CLEANUP(freep) char *tmp = str_printf(".%s.%s", name, suffix);
    CLEANUP(closep)
    int fd = openat(dirfd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0)
        return fs_error(errno, "cannot create %s", name);
    int r = fs_write_all(fd, p, n);
    if (!r && durable && fsync(fd))
        r = -errno;
    FAULT_KILL("fs.not_renamed");
    bool renamed = !r && !renameat(dirfd, tmp, dirfd, name);
    if (!r && (!renamed || (durable && fsync(dirfd)))) /* makes the rename durable */
        r = -errno;
    if (!r)
        return NULL;
    if (!renamed)
        unlinkat(dirfd, tmp, 0);
    return fs_error(-r, "cannot write %s", name);
}

err *fs_dir(int dirfd, const char *name, mode_t mode, int *ret_fd)
{
    if (mkdirat(dirfd, name, mode) && errno != EEXIST)
        return fs_error(errno, "cannot make directory %s", name);
    int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fs_error(errno, "cannot open directory %s", name);
    *ret_fd = fd;
    return NULL;
}

err *fs_mkdirs(const char *path, mode_t mode)
{
    CLEANUP(freep) char *p = xstrdup(path);

    for (char *slash = strchr(p + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash)
            *slash = 0;
        if (mkdir(p, mode) && errno != EEXIST)
            return fs_error(errno, "cannot make directory %s", p);
        if (!slash)
            return NULL;
        *slash = '/';
    }
}

/* A tenant's tree may be arbitrarily deep; stack and descriptors are limited. Directories deeper
 * than this are moved up to the top and removed from there. */
#define REMOVE_DEPTH 64

/* budget: how many entries may still be removed, or NULL for all; -EAGAIN when more are left. */
static int empty_dir(int fd, int top, int depth, unsigned *budget);

static int remove_entry(int dirfd, const char *name, int top, int depth, unsigned *budget)
{
    char up[20] = ".deep";

    if (budget && !*budget)
        return -EAGAIN;
    if (budget)
        --*budget;

    if (!unlinkat(dirfd, name, 0) || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -errno;
    if (depth == REMOVE_DEPTH) {
        id_random(up + 5, 12);
        return renameat(dirfd, name, top, up) ? -errno : 0;
    }
    int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int r = empty_dir(fd, top, depth + 1, budget);
    if (!r && unlinkat(dirfd, name, AT_REMOVEDIR) && errno != ENOENT)
        r = -errno;
    return r;
}

/* Empties a directory. Takes ownership of fd. */
static int empty_dir(int fd, int top, int depth, unsigned *budget)
{
    DIR *d = fdopendir(fd);
    struct dirent *e;
    int r = 0;

    if (!d) {
        close(fd);
        return -ENOMEM;
    }
    while (!r && (e = readdir(d))) /* NOLINT(concurrency-mt-unsafe): a stream of its own */
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            r = remove_entry(fd, e->d_name, top, depth, budget);
    closedir(d);
    return r;
}

/* Removes a directory, in passes until no more entries were moved up into it. */
static int remove_dir(int dirfd, const char *name, unsigned *budget)
{
    CLEANUP(closep) int top = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (top < 0)
        return errno == ENOENT ? 0 : -errno;
    for (;;) {
        int fd = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int r = fd < 0 ? -errno : empty_dir(fd, top, 0, budget);
        if (r)
            return r;
        if (!unlinkat(dirfd, name, AT_REMOVEDIR) || errno == ENOENT)
            return 0;
        if (errno != ENOTEMPTY)
            return -errno;
    }
}

static int remove_tree(int dirfd, const char *name, unsigned *budget)
{
    if (!unlinkat(dirfd, name, 0) || errno == ENOENT)
        return 0;
    return errno == EISDIR || errno == EPERM ? remove_dir(dirfd, name, budget) : -errno;
}

err *fs_remove(int dirfd, const char *name)
{
    int r = remove_tree(dirfd, name, NULL);

    return r ? fs_error(-r, "cannot remove %s", name) : NULL;
}

err *fs_empty_some(int dirfd, unsigned each, bool *ret_more)
{
    int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;
    bool more = false;

    if (!d) {
        closep(&fd);
        return err_sys(ERR_INTERNAL, errno, "cannot list a directory");
    }
    while ((e = readdir(d))) { /* NOLINT(concurrency-mt-unsafe): a stream of its own */
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        unsigned budget = each;
        int k = remove_tree(fd, e->d_name, each ? &budget : NULL);
        more |= k == -EAGAIN;
        r = r || k == -EAGAIN ? r : k; /* an entry that cannot be removed does not stop the pass */
    }
    closedir(d);
    if (ret_more)
        *ret_more = more;
    return r ? fs_error(-r, "cannot empty a directory") : NULL;
}

err *fs_empty(int dirfd)
{
    return fs_empty_some(dirfd, 0, NULL);
}

int fs_open_in_root(int rootfd, const char *path, int flags)
{
    struct open_how how = {.flags = (uint64_t)flags | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    long fd = -1;

    /* EAGAIN: a mount or rename anywhere on the machine raced with the walk of a "..". */
    for (int tries = 0; tries < IN_ROOT_TRIES; tries++) {
        fd = syscall(SYS_openat2, rootfd, path, &how, sizeof how);
        if (fd >= 0 || errno != EAGAIN)
            break;
    }
    return fd < 0 ? -errno : (int)fd;
}

static err *lock_file(int dirfd, const char *name, int flags, int *ret_fd)
{
    CLEANUP(closep) int fd = openat(dirfd, name, flags | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return fs_error(errno, "cannot open the lock %s", name);
    if (flock(fd, LOCK_EX | LOCK_NB))
        return errno == EWOULDBLOCK
                   ? err_remedy(err_new(ERR_CONFLICT, "another instance holds %s", name),
                                "Stop the other instance, or give this one a directory of its own.")
                   : err_sys(ERR_INTERNAL, errno, "cannot lock %s", name);
    *ret_fd = TAKE_FD(fd);
    return NULL;
}

err *fs_lock(int dirfd, const char *name, int *ret_fd)
{
    return lock_file(dirfd, name, O_RDWR | O_CREAT, ret_fd);
}

err *fs_lock_there(int dirfd, const char *name, int *ret_fd)
{
    return lock_file(dirfd, name, O_RDONLY, ret_fd);
}

err *fs_lock_patient(int dirfd, const char *name, int *ret_fd)
{
    for (int left = FS_LOCK_PATIENCE_MS / 20;; left--) {
        err *failure = fs_lock(dirfd, name, ret_fd);
        if (!failure || failure->code != ERR_CONFLICT || !left)
            return failure;
        err_free(failure);
        usleep(20000);
    }
}

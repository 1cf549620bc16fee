#include "cli/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/landlock.h"
#include "base/str.h"
#include "base/thread.h"

#define BLOCK     (256 * 1024)
#define PERMS     0777
#define PIPE_SIZE (1 << 20)

/* A directory's mode and time are set at the end: it may be read-only, and writing files changes
 * its time. */
typedef struct later {
    char *path;
    mode_t mode;
    struct timespec mtime;
} later;

struct unpack {
    unpack_options o;
    char *only;
    int in, out; /* a pipe: out is fed, the writer reads in */
    pthread_t writer;
    bool joined;
    _Atomic bool complete; /* the whole stream was fed */
    err *failed;           /* set by the writer; read it after the join */
    _Atomic uint64_t files, bytes, left_out;
    /* used by the writer only */
    struct archive *tar;
    char *block;
    later *dirs;
    size_t ndirs, cap;
    char temporary[48];
};

/* One entry of the archive. */
typedef struct item {
    struct archive_entry *entry;
    char path[UNPACK_NAME_MAX + 1]; /* normalised; "" is the root */
    int dir;                        /* its parent */
    const char *leaf;
} item;

static err *unpack_refuse(const char *why)
{
    err *e = err_because(err_new(ERR_INVALID_REQUEST, "the archive from the sandbox is refused"),
                         "%s", why);

    return err_remedy(e, "Copy what you need file by file, or look at the archive: "
                         "bothy cp SANDBOX:PATH - | tar tv");
}

static err *unpack_fault(const char *what)
{
    bool full = errno == ENOSPC || errno == EDQUOT;
    err *e = err_sys(full ? ERR_DISK_FULL : ERR_INTERNAL, errno, "cannot %s", what);

    return full ? err_remedy(e, "Free space on this machine, where the copy goes.") : e;
}

/* ---- names ---- */

/* Removes "./", "//" and leading slashes. Returns false for "..", and for names too long or too
 * deep. */
static bool unpack_normalise(const char *name, char *ret_path)
{
    size_t n = 0;
    unsigned depth = 0;

    while (*name) {
        size_t len = strcspn(name, "/");
        if (len == 2 && name[0] == '.' && name[1] == '.')
            return false;
        if (len && !(len == 1 && name[0] == '.')) {
            if (n + len + 2 > UNPACK_NAME_MAX || len > NAME_MAX || ++depth > UNPACK_DEPTH)
                return false;
            if (n)
                ret_path[n++] = '/';
            memcpy(ret_path + n, name, len);
            n += len;
        }
        name += len + (name[len] == '/');
    }
    ret_path[n] = 0;
    return true;
}

static int open_beneath(const unpack *u, const char *path, uint64_t flags)
{
    struct open_how how = {.flags = flags | O_CLOEXEC,
                           .resolve =
                               RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};

    return (int)syscall(SYS_openat2, u->o.dir, *path ? path : ".", &how, sizeof how);
}

static err *open_made(unpack *u, char *path, int *ret_fd)
{
    for (char *slash = strchr(path, '/');; slash = strchr(slash + 1, '/')) {
        if (slash)
            *slash = 0;
        char *leaf = strrchr(path, '/');
        CLEANUP(freep) char *parent = leaf ? xstrndup(path, (size_t)(leaf - path)) : xstrdup("");
        CLEANUP(closep) int dir = open_beneath(u, parent, O_PATH | O_DIRECTORY);
        if (dir < 0)
            return unpack_fault("open a directory");
        if (mkdirat(dir, leaf ? leaf + 1 : path, PERMS) && errno != EEXIST)
            return unpack_fault("make a directory");
        if (!slash)
            break;
        *slash = '/';
    }
    *ret_fd = open_beneath(u, path, O_PATH | O_DIRECTORY);
    return *ret_fd < 0 ? unpack_fault("open a directory") : NULL;
}

/* Opens the directory that contains a name. Makes missing ones, which the stream did not list. */
static err *open_parent(unpack *u, const char *path, int *ret_fd, const char **ret_leaf)
{
    const char *slash = strrchr(path, '/');
    CLEANUP(freep) char *parent = slash ? xstrndup(path, (size_t)(slash - path)) : xstrdup("");

    *ret_leaf = slash ? slash + 1 : path;
    *ret_fd = open_beneath(u, parent, O_PATH | O_DIRECTORY);
    if (*ret_fd >= 0)
        return NULL;
    if (errno == ELOOP || errno == EXDEV)
        return unpack_refuse("a name in it leads through a symbolic link");
    return errno == ENOENT ? open_made(u, parent, ret_fd) : unpack_fault("open a directory");
}

/* ---- entries ---- */

static struct timespec mtime_of(struct archive_entry *e)
{
    struct timespec t = {archive_entry_mtime(e), archive_entry_mtime_nsec(e)};

    if (!archive_entry_mtime_is_set(e) || t.tv_nsec < 0 || t.tv_nsec > 999999999)
        t.tv_nsec = UTIME_NOW;
    return t;
}

/* Sets an owner, if we are root. Otherwise owners are left alone, as in tar. */
static void set_owner(const unpack *u, int dir, const char *name, struct archive_entry *e)
{
    la_int64_t uid = archive_entry_uid(e), gid = archive_entry_gid(e);

    if (!u->o.owners || geteuid() || uid < 0 || uid >= UINT32_MAX || gid < 0 || gid >= UINT32_MAX)
        return;
    if (fchownat(dir, name, (uid_t)uid, (gid_t)gid,
                 AT_SYMLINK_NOFOLLOW | (*name ? 0 : AT_EMPTY_PATH)))
        return; /* a file system without owners */
}

static void set_xattrs(const unpack *u, int fd, struct archive_entry *e)
{
    const char *key;
    const void *value;
    size_t n;

    if (!u->o.owners)
        return;
    archive_entry_xattr_reset(e);
    while (archive_entry_xattr_next(e, &key, &value, &n) == ARCHIVE_OK)
        if (str_starts(key, "user.") && fsetxattr(fd, key, value, n, 0))
            return; /* a file system without them */
}

/* Writes a file's content. The order and bounds of a sparse map come from the stream, so they are
 * checked. */
static err *write_content(unpack *u, int fd, uint64_t size)
{
    const void *p;
    size_t n;
    la_int64_t at;
    uint64_t end = 0;
    int r;

    while ((r = archive_read_data_block(u->tar, &p, &n, &at)) == ARCHIVE_OK) {
        if (at < 0 || (uint64_t)at < end || (uint64_t)at > size || n > size - (uint64_t)at)
            return unpack_refuse("bytes outside of their file");
        int e = fs_pwrite_all(fd, p, n, (uint64_t)at);
        if (e) {
            errno = -e;
            return unpack_fault("write a file");
        }
        atomic_fetch_add(&u->bytes, (uint64_t)at + n - end); /* holes count as bytes of a file */
        end = (uint64_t)at + n;
    }
    if (r != ARCHIVE_EOF)
        return unpack_refuse(str_or(archive_error_string(u->tar), "it is damaged"));
    atomic_fetch_add(&u->bytes, size - end);
    return end == size || !ftruncate(fd, (off_t)size) ? NULL : unpack_fault("write a file");
}

static err *fill_file(unpack *u, const item *it, int fd)
{
    struct archive_entry *e = it->entry;
    const struct timespec times[2] = {mtime_of(e), mtime_of(e)};

    TRY(write_content(u, fd, (uint64_t)archive_entry_size(e)));
    set_xattrs(u, fd, e);
    set_owner(u, fd, "", e);
    if (fchmod(fd, archive_entry_perm(e) & PERMS) || futimens(fd, times))
        return unpack_fault("set a file's mode");
    return NULL;
}

/* Replaces whatever exists under the name, links included, but not a directory. */
static err *put_in_place(unpack *u, const item *it)
{
    if (!renameat(it->dir, u->temporary, it->dir, it->leaf)) {
        atomic_fetch_add(&u->files, 1);
        return NULL;
    }
    err *e = errno == EISDIR || errno == ENOTEMPTY || errno == EEXIST
                 ? err_new(ERR_CONFLICT, "a directory is in the way")
                 : unpack_fault("put a file in its place");
    unlinkat(it->dir, u->temporary, 0);
    return e;
}

static err *write_file(unpack *u, const item *it)
{
    if (archive_entry_size(it->entry) < 0)
        return unpack_refuse("a file without a size");
    CLEANUP(closep)
    int fd =
        openat(it->dir, u->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return unpack_fault("create a file");
    err *e = fill_file(u, it, fd);
    if (e) {
        unlinkat(it->dir, u->temporary, 0);
        return e;
    }
    return put_in_place(u, it);
}

static err *write_symlink(unpack *u, const item *it)
{
    const char *target = archive_entry_symlink(it->entry);
    const struct timespec times[2] = {mtime_of(it->entry), mtime_of(it->entry)};

    if (!target || !*target || strlen(target) > UNPACK_NAME_MAX)
        return unpack_refuse("a symbolic link without a target");
    if (symlinkat(target, it->dir, u->temporary))
        return unpack_fault("make a symbolic link");
    set_owner(u, it->dir, u->temporary, it->entry);
    if (utimensat(it->dir, u->temporary, times, AT_SYMLINK_NOFOLLOW))
        return unpack_fault("set a link's time");
    return put_in_place(u, it);
}

static err *write_hard_link(unpack *u, const item *it, const char *to)
{
    char target[UNPACK_NAME_MAX + 1];
    CLEANUP(closep) int dir = -1;
    const char *leaf;
    struct stat st;

    if (!unpack_normalise(to, target) || !*target)
        return unpack_refuse("a hard link to what is not in it");
    TRY(open_parent(u, target, &dir, &leaf));
    if (fstatat(dir, leaf, &st, AT_SYMLINK_NOFOLLOW) || S_ISDIR(st.st_mode))
        return unpack_refuse("a hard link to what is not in it");
    if (linkat(dir, leaf, it->dir, u->temporary, 0))
        return unpack_fault("make a hard link");
    /* If both names are the same file already, rename does nothing and leaves both. */
    err *e = put_in_place(u, it);
    unlinkat(it->dir, u->temporary, 0);
    return e;
}

static void remember_dir(unpack *u, const item *it)
{
    if (u->ndirs == u->cap) {
        u->cap = u->cap ? u->cap * 2 : 64;
        u->dirs = xrealloc(u->dirs, u->cap * sizeof *u->dirs);
    }
    u->dirs[u->ndirs++] = (later){.path = xstrdup(it->path),
                                  .mode = archive_entry_perm(it->entry) & PERMS,
                                  .mtime = mtime_of(it->entry)};
}

static err *write_dir(unpack *u, const item *it)
{
    struct stat st;

    if (mkdirat(it->dir, it->leaf, 0700)) {
        if (errno != EEXIST)
            return unpack_fault("make a directory");
        if (fstatat(it->dir, it->leaf, &st, AT_SYMLINK_NOFOLLOW) || !S_ISDIR(st.st_mode))
            return err_new(ERR_CONFLICT, "something that is no directory is in the way");
    }
    CLEANUP(closep)
    int fd = openat(it->dir, it->leaf, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) {
        set_xattrs(u, fd, it->entry);
        set_owner(u, fd, "", it->entry);
    }
    remember_dir(u, it);
    return NULL;
}

static err *leave_out(unpack *u, const item *it)
{
    (void)it;
    atomic_fetch_add(&u->left_out, 1);
    return NULL;
}

static const struct {
    mode_t type;
    err *(*write)(unpack *u, const item *it);
} TYPES[] = {
    {AE_IFREG, write_file}, {AE_IFDIR, write_dir}, {AE_IFLNK, write_symlink}, {AE_IFIFO, leave_out},
    {AE_IFCHR, leave_out},  {AE_IFBLK, leave_out}, {AE_IFSOCK, leave_out},
};

static err *write_typed(unpack *u, const item *it)
{
    const char *hard = archive_entry_hardlink(it->entry);
    mode_t type = archive_entry_filetype(it->entry);

    if (hard)
        return write_hard_link(u, it, hard);
    for (size_t i = 0; i < ARRAY_LEN(TYPES); i++)
        if (TYPES[i].type == type)
            return TYPES[i].write(u, it);
    return unpack_refuse("an entry of a kind nobody knows");
}

static err *at_name(err *e, const char *path)
{
    return *path ? err_wrap(e, "%s", path) : e;
}

static err *write_entry(unpack *u, item *it)
{
    const char *name = archive_entry_pathname(it->entry);
    bool is_dir = archive_entry_filetype(it->entry) == AE_IFDIR;

    if (!name || !unpack_normalise(name, it->path))
        return unpack_refuse("a name in it leads outside, or is too long");
    if (u->only && (is_dir || archive_entry_hardlink(it->entry) || atomic_load(&u->files)))
        return unpack_refuse("it has more than the one file that was asked for");
    if (u->only)
        str_copy(it->path, sizeof it->path, u->only);
    if (!*it->path) {
        if (!is_dir)
            return unpack_refuse("its root is no directory");
        if (u->o.own_root)
            remember_dir(u, it);
        return NULL;
    }
    CLEANUP(closep) int dir = -1;
    TRY(at_name(open_parent(u, it->path, &dir, &it->leaf), it->path));
    it->dir = dir;
    return at_name(write_typed(u, it), it->path);
}

/* Sets modes and times of directories, the last first, so that children come before their
 * parents. */
static err *finish_dirs(unpack *u)
{
    for (size_t i = u->ndirs; i-- > 0;) {
        const later *d = &u->dirs[i];
        const struct timespec times[2] = {d->mtime, d->mtime};
        CLEANUP(closep) int fd = open_beneath(u, d->path, O_RDONLY | O_DIRECTORY);
        if (fd < 0 && errno == ENOENT)
            continue;
        if (fd < 0 || fchmod(fd, d->mode) || futimens(fd, times))
            return at_name(unpack_fault("set a directory's mode"), d->path);
    }
    return NULL;
}

static la_ssize_t read_piece(struct archive *a, void *arg, const void **ret_bytes)
{
    unpack *u = arg;
    ssize_t n;

    do
        n = read(u->in, u->block, BLOCK);
    while (n < 0 && errno == EINTR);
    if (n < 0 || (!n && !atomic_load(&u->complete))) {
        archive_set_error(a, n < 0 ? errno : EPIPE, "it was broken off");
        return -1;
    }
    *ret_bytes = u->block;
    return n;
}

static err *write_all(unpack *u)
{
    item it = {.dir = -1};
    int r;

    if (archive_read_open(u->tar, u, NULL, read_piece, NULL) != ARCHIVE_OK)
        return unpack_refuse(str_or(archive_error_string(u->tar), "it is no tar archive"));
    while ((r = archive_read_next_header(u->tar, &it.entry)) == ARCHIVE_OK || r == ARCHIVE_WARN)
        TRY(write_entry(u, &it));
    if (r != ARCHIVE_EOF)
        return unpack_refuse(str_or(archive_error_string(u->tar), "it is damaged"));
    if (u->only && !atomic_load(&u->files))
        return unpack_refuse("nothing is in it");
    return finish_dirs(u);
}

/* Confines this thread to the target directory by Landlock, if the kernel has it: a second barrier
 * behind openat2. */
static err *unpack_confine(const unpack *u)
{
    char path[32];

    snprintf(path, sizeof path, "/proc/self/fd/%d", u->o.dir);
    const landlock_rule rule = {.path = path, .rights = LANDLOCK_READ | LANDLOCK_WRITE};
    return landlock_restrict(&(landlock_domain){
        .rules = &rule, .n = 1, .refused = LANDLOCK_READ | LANDLOCK_WRITE | LANDLOCK_RUN});
}

static void *unpack_run(void *arg)
{
    unpack *u = arg;

    u->failed = unpack_confine(u);
    if (!u->failed)
        u->failed = write_all(u);
    if (u->failed) { /* the feeder notices by its next write */
        close(u->in);
        u->in = -1;
    } else { /* padding after the archive's end */
        while (read(u->in, u->block, BLOCK) > 0)
            ;
    }
    return NULL;
}

static err *open_pipe(unpack *u)
{
    int fd[2];

    if (pipe2(fd, O_CLOEXEC))
        return unpack_fault("make a pipe");
    fcntl(fd[1], F_SETPIPE_SZ, PIPE_SIZE); /* as large as we may */
    u->in = fd[0];
    u->out = fd[1];
    return NULL;
}

err *unpack_new(const unpack_options *o, unpack **ret_unpack)
{
    CLEANUP(unpack_freep) unpack *u = xcalloc(1, sizeof *u);
    char random[17];

    *u = (unpack){.o = *o, .in = -1, .out = -1, .joined = true, .block = xmalloc(BLOCK)};
    u->only = o->only ? xstrdup(o->only) : NULL;
    id_random(random, sizeof random - 1);
    snprintf(u->temporary, sizeof u->temporary, ".bothy-cp-%s", random);
    u->tar = archive_read_new();
    if (archive_read_support_format_tar(u->tar) != ARCHIVE_OK ||
        archive_read_append_filter(u->tar, ARCHIVE_FILTER_NONE) != ARCHIVE_OK)
        return err_new(ERR_INTERNAL, "cannot prepare the tar reader");
    TRY(open_pipe(u));
    int rc = pthread_create(&u->writer, NULL, unpack_run, u);
    if (rc)
        return err_sys(ERR_INTERNAL, rc, "cannot start a thread");
    u->joined = false;
    *ret_unpack = TAKE_PTR(u);
    return NULL;
}

bool unpack_feed(unpack *u, const void *p, size_t n)
{
    return !fs_write_all(u->out, p, n);
}

err *unpack_end(unpack *u, bool complete)
{
    if (u->joined)
        return NULL;
    atomic_store(&u->complete, complete);
    close(TAKE_FD(u->out));
    pthread_join(u->writer, NULL);
    u->joined = true;
    return TAKE_PTR(u->failed);
}

unpack_count unpack_counted(const unpack *u)
{
    return (unpack_count){.files = atomic_load(&u->files),
                          .bytes = atomic_load(&u->bytes),
                          .left_out = atomic_load(&u->left_out)};
}

void unpack_free(unpack *u)
{
    if (!u)
        return;
    err_free(unpack_end(u, false));
    if (u->tar)
        archive_read_free(u->tar);
    for (size_t i = 0; i < u->ndirs; i++)
        free(u->dirs[i].path);
    if (u->in >= 0)
        close(u->in);
    if (u->out >= 0)
        close(u->out);
    free(u->dirs);
    free(u->block);
    free(u->only);
    free(u);
}

#include "warden/copy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/map.h"
#include "base/str.h"

#define XATTRS_MAX   (64u << 10)
#define CHUNK        (8u << 20)
#define FLUSH_PIECE  (4 << 20)
#define LOOK_BYTES   (64u << 20) /* how often free space is checked */
#define LOOK_ENTRIES 1024u
#define OVERLAY      "trusted.overlay."

/* The first name of a file that has several. Names are the tenant's to choose: a path may have 32
 * KiB, and there may be a million files. So a directory's path is kept once, and all together has a
 * ceiling. */
typedef struct place { /* a directory of the copy that has such a file */
    struct place *next;
    char path[]; /* with a slash at its end; "": the root */
} place;
typedef struct first {
    const place *in;
    char name[];
} first;
#define LINK_COST 64u /* bytes that the map and malloc take for each */

typedef struct copying {
    int root;            /* of the copy */
    buf path;            /* of the current directory, in the form of place.path */
    place *places;       /* all */
    place *here;         /* of the current directory; NULL: not needed yet */
    map linked;          /* inode -> first * */
    uint64_t remembered; /* bytes that places and linked take */
    unsigned depth;
    bool no_share; /* the file system does not share blocks */
    const copy_how *how;
    uint64_t until_ns;
    uint64_t looked_at; /* bytes copied when free space was last checked */
    copy_what what;
} copying;

static err *copy_failed(const char *doing)
{
    int e = errno;

    return err_sys(e == ENOSPC || e == EDQUOT ? ERR_DISK_FULL : ERR_INTERNAL, e,
                   "cannot %s of the snapshot", doing);
}

static err *too_much(const char *what)
{
    return err_remedy(err_sys(ERR_TOO_LARGE, E2BIG, "the sandbox has written too much: %s", what),
                      "Remove what is not needed, or keep it elsewhere.");
}

static err *check_room(copying *c)
{
    struct statvfs fs;

    c->looked_at = c->what.copied;
    if (fstatvfs(c->root, &fs))
        return copy_failed("look at the file system");
    if ((uint64_t)fs.f_bavail * fs.f_frsize >= c->how->keep_free)
        return NULL;
    return err_sys(ERR_DISK_FULL, ENOSPC, "too little of the node's disk would stay free");
}

/* Returns an error if the copy must end. */
static err *copy_check(copying *c)
{
    if (c->how->given_up && c->how->given_up(c->how->arg))
        return err_sys(ERR_CONFLICT, ECANCELED, "nobody waits for the copy any more");
    if (now_mono_ns() > c->until_ns)
        return err_sys(ERR_TIMEOUT, ETIMEDOUT, "the copy took too long");
    if (c->what.copied - c->looked_at >= LOOK_BYTES || c->what.entries % LOOK_ENTRIES == 0)
        return check_room(c);
    return NULL;
}

static err *copy_count(copying *c)
{
    TRY(copy_check(c));
    return ++c->what.entries > COPY_ENTRIES_MAX ? too_much("more than a million files") : NULL;
}

/* ---- metadata ---- */

/* Returns true for attributes that overlayfs keeps for itself about an upper, and a lower has no
 * use for. */
static bool is_left_out(const char *name)
{
    static const char *const KEPT[] = {OVERLAY "opaque", OVERLAY "redirect"};

    if (!str_starts(name, OVERLAY))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(KEPT); i++)
        if (str_eq(name, KEPT[i]))
            return false;
    return true;
}

static err *copy_xattr(int from, int to, const char *name)
{
    CLEANUP(freep) char *value = xmalloc(XATTRS_MAX);
    ssize_t n = fgetxattr(from, name, value, XATTRS_MAX);

    if (n < 0 && errno == ENODATA)
        return NULL;
    if (n < 0 || fsetxattr(to, name, value, (size_t)n, 0))
        return copy_failed("copy an attribute");
    return NULL;
}

static err *copy_xattrs(int from, int to)
{
    CLEANUP(freep) char *names = NULL;
    ssize_t n = flistxattr(from, NULL, 0);

    if (n <= 0)
        return n && errno != EOPNOTSUPP ? copy_failed("list the attributes") : NULL;
    names = xmalloc(XATTRS_MAX);
    n = flistxattr(from, names, XATTRS_MAX);
    if (n < 0)
        return copy_failed("list the attributes");
    for (const char *name = names; name < names + n; name += strlen(name) + 1) {
        if (str_eq(name, OVERLAY "metacopy")) /* its bytes lie elsewhere; no mount uses that */
            return err_sys(ERR_UNSUPPORTED, EOPNOTSUPP, "a file without its content");
        if (!is_left_out(name))
            TRY(copy_xattr(from, to, name));
    }
    return NULL;
}

/* Copies metadata. The owner comes first: setting it clears set-uid bits and capabilities, which
 * the next steps put back. */
static err *copy_dress(int from, int to, const struct stat *st)
{
    const struct timespec times[] = {st->st_atim, st->st_mtim};

    if (fchown(to, st->st_uid, st->st_gid) || fchmod(to, st->st_mode & 07777))
        return copy_failed("set the owner and mode of a file");
    TRY(copy_xattrs(from, to));
    return futimens(to, times) ? copy_failed("set the times of a file") : NULL;
}

/* ---- files ---- */

static err *copy_range(copying *c, int from, int to, off_t at, off_t end)
{
    while (at < end) {
        off_t in = at, out = at;
        size_t want = end - at > CHUNK ? CHUNK : (size_t)(end - at);
        ssize_t n = copy_file_range(from, &in, to, &out, want, 0);
        if (n < 0)
            return copy_failed("copy a file");
        if (!n)
            return NULL; /* the file was truncated meanwhile */
        at += n;
        c->what.copied += (uint64_t)n;
        if (c->what.copied > COPY_BYTES_MAX)
            return too_much("more bytes than are copied where the file system cannot share them");
        TRY(copy_check(c));
    }
    return NULL;
}

/* Copies a file's data. Holes stay holes. */
static err *copy_data(copying *c, int from, int to, off_t size)
{
    off_t at = 0;

    while (at < size) {
        off_t data = lseek(from, at, SEEK_DATA);
        if (data < 0 && errno == ENXIO)
            break;
        if (data < 0)
            return copy_failed("read a file");
        off_t hole = lseek(from, data, SEEK_HOLE);
        if (hole < 0 || hole > size)
            hole = size;
        TRY(copy_range(c, from, to, data, hole));
        at = hole;
    }
    return ftruncate(to, size) ? copy_failed("size a file") : NULL;
}

/* Writes the next piece of a file's data to the disk and waits for that. Returns the offset to
 * continue at, or -1 behind the last piece. A tenant's rate may make the whole of a file take
 * hours, and a thread that waits for it cannot be interrupted. */
static off_t flush_piece(int fd, off_t at, off_t size)
{
    off_t data = lseek(fd, at, SEEK_DATA);

    if (data < 0 || data >= size)
        return -1;
    (void)sync_file_range(fd, data, FLUSH_PIECE,
                          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                              SYNC_FILE_RANGE_WAIT_AFTER);
    return size - data > FLUSH_PIECE ? data + FLUSH_PIECE : -1;
}

/* Writes a file's data to the disk, because sharing its blocks would wait for that without a
 * limit. */
static err *flush_before_sharing(copying *c, int from, off_t size)
{
    for (off_t at = flush_piece(from, 0, size); at >= 0; at = flush_piece(from, at, size))
        TRY(copy_check(c));
    return NULL;
}

static err *copy_fill(copying *c, int from, int to, off_t size)
{
    if (!size)
        return NULL;
    c->what.bytes += (uint64_t)size; /* neither of the two is above INT64_MAX */
    if (c->what.bytes > INT64_MAX)   /* files may be holes */
        c->what.bytes = INT64_MAX;
    if (!c->no_share)
        TRY(flush_before_sharing(c, from, size));
    if (!c->no_share && !ioctl(to, FICLONE, from))
        return NULL;
    if (!c->no_share && errno != EOPNOTSUPP && errno != ENOTTY && errno != EINVAL && errno != EXDEV)
        return copy_failed("share the blocks of a file");
    c->no_share = true;
    return copy_data(c, from, to, size);
}

static err *copy_file(copying *c, int from_dir, int to_dir, const char *name)
{
    CLEANUP(closep)
    int from = openat(from_dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;

    if (from < 0 || fstat(from, &st))
        return copy_failed("open a file");
    if (!S_ISREG(st.st_mode))
        return err_sys(ERR_CONFLICT, EAGAIN, "the tree changes while it is copied");
    CLEANUP(closep)
    int to = openat(to_dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (to < 0)
        return copy_failed("make a file");
    TRY(copy_fill(c, from, to, st.st_size));
    return copy_dress(from, to, &st);
}

/* ---- the others ---- */

static err *copy_symlink(int from_dir, int to_dir, const char *name, const struct stat *st)
{
    CLEANUP(freep) char *target = xmalloc(PATH_MAX);
    ssize_t n = readlinkat(from_dir, name, target, PATH_MAX - 1);

    if (n < 0)
        return copy_failed("read a link");
    target[n] = 0;
    return symlinkat(target, to_dir, name) ||
                   fchownat(to_dir, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW)
               ? copy_failed("make a link")
               : NULL;
}

static err *copy_node(copying *c, int to_dir, const char *name, const struct stat *st)
{
    bool whiteout = S_ISCHR(st->st_mode) && !st->st_rdev;
    bool plain = S_ISFIFO(st->st_mode) || S_ISSOCK(st->st_mode);

    if (!whiteout && !plain)
        return NULL; /* a tenant cannot make devices */
    c->what.whiteouts += whiteout;
    if (mknodat(to_dir, name, (st->st_mode & S_IFMT) | (whiteout ? 0 : 0600), 0))
        return copy_failed("make a special file");
    if (whiteout)
        return NULL;
    return fchownat(to_dir, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) ||
                   fchmodat(to_dir, name, st->st_mode & 07777, 0)
               ? copy_failed("make a special file")
               : NULL;
}

static err *copy_leaf(copying *c, int from_dir, int to_dir, const char *name, const struct stat *st)
{
    if (S_ISREG(st->st_mode))
        return copy_file(c, from_dir, to_dir, name);
    const struct timespec times[] = {st->st_atim, st->st_mtim};
    bool there = S_ISLNK(st->st_mode) || S_ISFIFO(st->st_mode) || S_ISSOCK(st->st_mode);
    TRY(S_ISLNK(st->st_mode) ? copy_symlink(from_dir, to_dir, name, st)
                             : copy_node(c, to_dir, name, st));
    return there && utimensat(to_dir, name, times, AT_SYMLINK_NOFOLLOW)
               ? copy_failed("set the times of a file")
               : NULL;
}

static err *remember_bytes(copying *c, size_t n)
{
    c->remembered += n + LINK_COST;
    return c->remembered > COPY_LINKS_MAX ? too_much("too many hard links with long names") : NULL;
}

static err *copy_remember(copying *c, uint64_t inode, const char *name)
{
    size_t n = strlen(name) + 1;

    if (!c->here) {
        TRY(remember_bytes(c, c->path.len));
        c->here = xmalloc(sizeof *c->here + c->path.len + 1);
        c->here->next = c->places;
        memcpy(c->here->path, buf_cstr(&c->path), c->path.len + 1);
        c->places = c->here;
    }
    TRY(remember_bytes(c, n));
    first *f = xmalloc(sizeof *f + n);
    f->in = c->here;
    memcpy(f->name, name, n);
    map_put_u64(&c->linked, inode, f);
    return NULL;
}

static err *link_to(copying *c, const first *f, int to_dir, const char *name)
{
    char path[PATH_MAX];

    if ((size_t)snprintf(path, sizeof path, "%s%s", f->in->path, f->name) >= sizeof path)
        return too_much("a hard link to a file whose path is too long");
    return linkat(c->root, path, to_dir, name, 0) ? copy_failed("make a hard link") : NULL;
}

/* Makes a hard link if this is a further name of a file that is copied already, and sets
 * *ret_linked. All whiteouts are one file: they are not linked. */
static err *link_again(copying *c, int to_dir, const char *name, const struct stat *st,
                       bool *ret_linked)
{
    *ret_linked = false;
    if (st->st_nlink < 2 || S_ISCHR(st->st_mode))
        return NULL;
    const first *f = map_get_u64(&c->linked, st->st_ino);
    if (!f)
        return copy_remember(c, st->st_ino, name);
    *ret_linked = true;
    return link_to(c, f, to_dir, name);
}

/* ---- directories ---- */

static err *copy_dir(copying *c, int from, int to);

static err *copy_enter(copying *c, int from_dir, int to_dir, const char *name)
{
    size_t before = c->path.len;
    place *here = c->here;
    CLEANUP(closep)
    int from = openat(from_dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (from < 0 || mkdirat(to_dir, name, 0700))
        return copy_failed("make a directory");
    CLEANUP(closep) int to = openat(to_dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (to < 0)
        return copy_failed("open a directory");
    if (c->depth >= COPY_DEPTH_MAX)
        return too_much("directories that are nested too deep");
    buf_printf(&c->path, "%s/", name);
    c->depth++;
    c->here = NULL;
    err *e = copy_dir(c, from, to);
    c->here = here;
    c->depth--;
    c->path.len = before;
    return e;
}

static err *copy_entry(copying *c, int from, int to, const char *name)
{
    struct stat st;
    bool linked;

    TRY(copy_count(c));
    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW))
        return copy_failed("look at a file");
    if (S_ISDIR(st.st_mode))
        return copy_enter(c, from, to, name);
    TRY(link_again(c, to, name, &st, &linked));
    return linked ? NULL : copy_leaf(c, from, to, name, &st);
}

static err *copy_entries(copying *c, DIR *d, int from, int to)
{
    struct dirent *n;

    for (;;) {
        errno = 0;
        n = readdir(d); /* NOLINT(concurrency-mt-unsafe): the stream is local */
        if (!n)
            return errno ? copy_failed("list a directory") : NULL;
        if (!str_eq(n->d_name, ".") && !str_eq(n->d_name, ".."))
            TRY(copy_entry(c, from, to, n->d_name));
    }
}

static err *copy_dir(copying *c, int from, int to)
{
    struct stat st;
    int fd = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d) {
        closep(&fd);
        return copy_failed("list a directory");
    }
    err *e = copy_entries(c, d, from, to);
    closedir(d);
    if (!e && fstat(from, &st))
        e = copy_failed("look at a directory");
    return e ? e : copy_dress(from, to, &st);
}

static void copying_done(copying *c)
{
    map_iter it = {0};

    while (map_next(&c->linked, &it))
        free(it.entry->value);
    map_done(&c->linked);
    for (place *p = c->places, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    buf_done(&c->path);
}

err *copy_tree(int from, int to, const copy_how *how, copy_what *ret_what)
{
    CLEANUP(copying_done)
    copying c = {.root = to, .how = how, .until_ns = now_mono_ns() + COPY_TIME_NS};

    if (how->until_ns && how->until_ns < c.until_ns)
        c.until_ns = how->until_ns;
    TRY(copy_dir(&c, from, to));
    *ret_what = c.what;
    return NULL;
}

/* ---- ahead of a copy ---- */

typedef struct flushing {
    bool wait; /* wait for the disk; otherwise writing is only begun */
    unsigned depth;
    uint64_t entries, until_ns;
} flushing;

static void flush_dir(flushing *f, int dir);

static void flush_file(const flushing *f, int fd, off_t size)
{
    if (!f->wait)
        (void)sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    for (off_t at = f->wait ? 0 : -1; at >= 0 && now_mono_ns() < f->until_ns;)
        at = flush_piece(fd, at, size);
}

static void flush_entry(flushing *f, int dir, const char *name)
{
    CLEANUP(closep)
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st))
        return;
    if (S_ISREG(st.st_mode) && st.st_size)
        flush_file(f, fd, st.st_size);
    if (S_ISDIR(st.st_mode) && f->depth < COPY_DEPTH_MAX) {
        f->depth++;
        flush_dir(f, fd);
        f->depth--;
    }
}

static void flush_dir(flushing *f, int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *n;

    if (!d) {
        closep(&fd);
        return;
    }
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is local */
    while ((n = readdir(d)) && ++f->entries < COPY_ENTRIES_MAX && now_mono_ns() < f->until_ns)
        if ((n->d_type == DT_REG || n->d_type == DT_DIR) && !str_eq(n->d_name, ".") &&
            !str_eq(n->d_name, ".."))
            flush_entry(f, dir, n->d_name);
    closedir(d);
}

/* Begins to write all files before it waits for the first. */
void copy_flush(int tree)
{
    uint64_t until_ns = now_mono_ns() + COPY_FLUSH_NS;

    flush_dir(&(flushing){.until_ns = until_ns}, tree);
    flush_dir(&(flushing){.wait = true, .until_ns = until_ns}, tree);
}

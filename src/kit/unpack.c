/* unpack: writes an entry stream into a directory. The stream is untrusted. Names have no ".."
 * (wire/kit.h), and a name that leads out of the directory through a link is an error.
 *
 * A file is written under a temporary name and renamed, so that a broken stream leaves no partial
 * file. Modes and times of directories are set last. */
#include <linux/openat2.h>

#include "kit/kit.h"

#define DIR_MODE  0777
#define WRITABLE  0200 /* setting user.* attributes needs it */
#define OWN_MODE  0700 /* the mode of a directory while it is filled */
#define PERMS     01777
#define PERMS_ALL 07777

enum {
    K_S_IFSOCK = 0140000,
    K_S_IFIFO = 0010000,
};

static int root;
static u64 resolve_how;
static u32 flags; /* the request's */
static bool is_root;
static u32 mask; /* umask for directories that no entry names; entries have their modes */

/* ---- directories, whose modes and times come last ---- */

struct later {
    struct later *next;
    struct kit_entry entry;
    char name[];
};
static struct later *dirs; /* linked list, the last one first */

static long unpack_remember(const kit_record *r)
{
    struct later *l = arena_take(sizeof *l + r->name_len + 1);

    if (!l)
        return -ENOMEM;
    l->entry = r->entry;
    memcpy(l->name, r->name, r->name_len);
    l->name[r->name_len] = 0;
    l->next = dirs;
    dirs = l;
    return 0;
}

static long open_below(const char *name, u64 how_flags)
{
    struct open_how how = {.flags = how_flags | O_CLOEXEC, .resolve = resolve_how};

    return SYS(openat2, root, *name ? name : ".", &how, sizeof how);
}

static u32 mode_of(const struct kit_entry *e)
{
    return e->mode & (flags & KIT_F_OWNERS && is_root ? PERMS_ALL : PERMS);
}

/* Sets the owner. As with tar, only root gives files away; other users keep their own files. */
static long set_owner(int dir, const char *base, const struct kit_entry *e)
{
    if (!(flags & KIT_F_OWNERS) || !is_root)
        return 0;
    return SYS(fchownat, dir, base, e->uid, e->gid,
               *base ? K_AT_SYMLINK_NOFOLLOW : K_AT_EMPTY_PATH);
}

static long set_time(int dir, const char *base, const struct kit_entry *e)
{
    struct __kernel_timespec t = {.tv_sec = e->mtime, .tv_nsec = e->mtime_ns}, v[2] = {t, t};

    return SYS(utimensat, dir, base, v, base ? K_AT_SYMLINK_NOFOLLOW : 0);
}

static long finish_dir(const struct later *l)
{
    long fd = open_below(l->name, DIR_FLAGS), r;

    if (fd < 0)
        return fd == -ENOENT ? 0 : fd; /* replaced by a later entry */
    r = set_owner((int)fd, "", &l->entry);
    if (r >= 0)
        r = SYS(fchmod, fd, mode_of(&l->entry));
    if (r >= 0)
        r = set_time((int)fd, NULL, &l->entry);
    SYS(close, fd);
    return r;
}

/* Sets modes and times of directories. A directory of another user, such as "." of /tmp, stays as
 * it is. */
static void finish_dirs(void)
{
    for (const struct later *l = dirs; l; l = l->next) {
        long r = finish_dir(l);
        if (r < 0 && r != -EPERM)
            out_error(r, l->name, text_len(l->name));
    }
}

/* ---- parents ---- */

static char parent[KIT_PATH_MAX + 1];
static int parent_fd = -1;

static long make_way(char *name)
{
    for (size_t i = 1;; i++) {
        if (name[i] && name[i] != '/')
            continue;
        char c = name[i];
        name[i] = 0;
        size_t base = i;
        while (base && name[base - 1] != '/')
            base--;
        char before = base ? name[base - 1] : 0;
        if (base)
            name[base - 1] = 0;
        long dir = open_below(base ? name : "", O_PATH | O_DIRECTORY);
        if (base)
            name[base - 1] = before;
        long r = dir < 0 ? dir : SYS(mkdirat, dir, name + base, DIR_MODE & ~mask);
        if (dir >= 0)
            SYS(close, dir);
        name[i] = c;
        if (r < 0 && r != -EEXIST)
            return r;
        if (!c)
            return 0;
    }
}

/* Opens the directory that a name lies in, creating it if missing. Kept open for the next name in
 * it. */
static long open_parent(const char *name, size_t n, int *ret_dir, char ret_base[256])
{
    size_t base = n;
    bool same = true;

    while (base && name[base - 1] != '/')
        base--;
    if (n - base > 255)
        return -ENAMETOOLONG;
    memcpy(ret_base, name + base, n - base);
    ret_base[n - base] = 0;
    size_t len = base ? base - 1 : 0;
    for (size_t i = 0; i < len && same; i++)
        same = parent[i] == name[i];
    if (parent_fd < 0 || !same || parent[len]) {
        fd_close(&parent_fd);
        memcpy(parent, name, len);
        parent[len] = 0;
        long fd = open_below(parent, O_PATH | O_DIRECTORY);
        if (fd == -ENOENT && len) {
            fd = make_way(parent);
            if (fd >= 0)
                fd = open_below(parent, O_PATH | O_DIRECTORY);
        }
        if (fd < 0)
            return fd;
        parent_fd = (int)fd;
    }
    *ret_dir = parent_fd;
    return 0;
}

/* ---- entries ---- */

/* The current entry. */
static struct now {
    struct kit_entry entry;
    char name[KIT_PATH_MAX + 1];
    size_t len;
    int dir; /* parent_fd */
    char base[256];
    char temp[TEMP_LEN];
    int fd;  /* of a regular file, -1: none */
    u64 end; /* of what was written */
} now = {.fd = -1};

static void drop_now(void)
{
    if (now.fd < 0)
        return;
    temp_drop(now.dir, now.temp, now.fd);
    fd_close(&now.fd);
}

/* Renames the file into place. It replaces anything except a directory; a link is replaced, not
 * followed. Renaming a hard link over another name of the same file does nothing, so the temporary
 * name is removed. */
static long put_in_place(void)
{
    long r = SYS(renameat2, now.dir, now.temp, now.dir, now.base, 0);

    if (r < 0 || now.entry.flags & KIT_E_HARDLINK)
        SYS(unlinkat, now.dir, now.temp, 0);
    return r;
}

/* Sets the owner before the mode: a change of owner clears bits of the mode. */
static long finish_file(void)
{
    long r = now.end < now.entry.size ? SYS(ftruncate, now.fd, now.entry.size) : 0;
    u32 mode = mode_of(&now.entry);
    bool as_made = mode & WRITABLE && !(mode & ~0777u) && !(flags & KIT_F_OWNERS);

    if (r >= 0)
        r = set_owner(now.fd, "", &now.entry);
    if (r >= 0 && !as_made)
        r = SYS(fchmod, now.fd, mode);
    if (r >= 0)
        r = set_time(now.fd, NULL, &now.entry);
    if (r < 0) {
        drop_now();
        return r;
    }
    fd_close(&now.fd);
    return put_in_place();
}

static long finish_now(void)
{
    return now.fd < 0 ? 0 : finish_file();
}

static long begin_file(void)
{
    long fd = temp_open(now.dir, (mode_of(&now.entry) & 0777) | WRITABLE, false, now.temp);

    if (fd < 0)
        return fd;
    now.fd = (int)fd;
    now.end = 0;
    return 0;
}

static long begin_directory(const kit_record *r)
{
    long e = SYS(mkdirat, now.dir, now.base, OWN_MODE);

    if (e == -EEXIST) { /* a link to a directory below the root will do */
        long fd = open_below(now.name, O_PATH | O_DIRECTORY);
        if (fd < 0)
            return fd == -ENOTDIR ? -EEXIST : fd;
        SYS(close, fd);
        if (flags & KIT_F_KEEP)
            return 0;
        e = 0;
    }
    return e < 0 ? e : unpack_remember(r);
}

static long put_node(long made)
{
    long r = made;

    if (r >= 0)
        r = set_owner(now.dir, now.temp, &now.entry);
    if (r >= 0)
        r = set_time(now.dir, now.temp, &now.entry);
    if (r >= 0)
        return put_in_place();
    if (made >= 0)
        SYS(unlinkat, now.dir, now.temp, 0);
    return r;
}

static long put_symlink(const char *target, size_t n)
{
    static char text[KIT_PATH_MAX + 1];

    if (!n)
        return -EINVAL;
    memcpy(text, target, n);
    text[n] = 0;
    temp_name(now.temp);
    return put_node(SYS(symlinkat, text, now.dir, now.temp));
}

/* Creates the FIFO with its final mode: changing the mode by name could reach a link that another
 * process put there. */
static long put_fifo(void)
{
    temp_name(now.temp);
    long before = SYS(umask, 0);
    long r = SYS(mknodat, now.dir, now.temp, K_S_IFIFO | mode_of(&now.entry), 0);

    SYS(umask, before);
    return put_node(r);
}

static long put_hard_link(const char *target, size_t n)
{
    static char text[KIT_PATH_MAX + 1];
    size_t base = n;

    memcpy(text, target, n);
    text[n] = 0;
    while (base && text[base - 1] != '/')
        base--;
    if (base)
        text[base - 1] = 0;
    long from = open_below(base ? text : "", O_PATH | O_DIRECTORY);
    if (from < 0)
        return from;
    temp_name(now.temp);
    long r = SYS(linkat, from, text + base, now.dir, now.temp, 0);
    SYS(close, from);
    return r < 0 ? r : put_in_place();
}

/* Reports an entry or attribute that the user cannot create, and skips it. */
static long leave_out(long why)
{
    out_error(why, now.name, now.len);
    return 0;
}

static long begin_typed(const kit_record *r)
{
    if (now.entry.flags & KIT_E_HARDLINK)
        return put_hard_link(r->bytes, r->bytes_len);
    switch (now.entry.mode & K_S_IFMT) {
    case K_S_IFREG:
        return begin_file();
    case K_S_IFDIR:
        return begin_directory(r);
    case K_S_IFLNK:
        return put_symlink(r->bytes, r->bytes_len);
    case K_S_IFIFO:
        return put_fifo();
    case K_S_IFSOCK:
        return leave_out(-ENXIO);
    default:
        return leave_out(-EPERM); /* devices */
    }
}

static long unpack_begin(const kit_record *r)
{
    now.entry = r->entry;
    now.len = r->name_len;
    memcpy(now.name, r->name, r->name_len);
    now.name[now.len] = 0;
    tally.entries++;
    if (!now.len) /* the directory itself: it exists, only its mode and time may change */
        return (r->entry.mode & K_S_IFMT) == K_S_IFDIR ? unpack_remember(r) : -EISDIR;
    long e = open_parent(now.name, now.len, &now.dir, now.base);
    if (e >= 0)
        e = begin_typed(r);
    if ((now.entry.mode & K_S_IFMT) != K_S_IFREG && e >= 0)
        out_alive();
    return e;
}

static long put_xattr(const kit_record *r)
{
    char key[256];
    long fd = now.fd;

    if (!(flags & KIT_F_XATTRS) || r->name_len > 255)
        return 0;
    memcpy(key, r->name, r->name_len);
    key[r->name_len] = 0;
    if (!text_starts(key, "user."))
        return 0;
    if (fd < 0 && (now.entry.mode & K_S_IFMT) == K_S_IFDIR)
        fd = open_below(now.name, DIR_FLAGS);
    long e = fd < 0 ? -EOPNOTSUPP : SYS(fsetxattr, fd, key, r->bytes, r->bytes_len, 0);
    if (fd >= 0 && fd != now.fd)
        SYS(close, fd);
    return e < 0 ? leave_out(e) : 0; /* the file itself was written */
}

static long put_data(const kit_record *r)
{
    if (now.fd < 0)
        return -EPROTO;
    long e = write_full(now.fd, r->bytes, r->bytes_len, r->offset);
    now.end = r->offset + r->bytes_len;
    tally.bytes += r->bytes_len;
    return e;
}

static long unpack_take(const kit_record *r)
{
    switch (r->type) {
    case KIT_ENTRY: {
        long e = finish_now();
        return e < 0 ? e : unpack_begin(r);
    }
    case KIT_XATTR:
        return put_xattr(r);
    case KIT_DATA:
        return put_data(r);
    case KIT_END:
        return finish_now();
    default:
        return 0;
    }
}

static long unpack_receive(void)
{
    kit_record r;
    long e;

    do {
        e = in_record(&r);
        if (e >= 0)
            e = unpack_take(&r);
    } while (e >= 0 && r.type != KIT_END);
    drop_now();
    fd_close(&parent_fd);
    return e;
}

static long open_root(const kit_request *rq)
{
    char base[256];
    int dir = -1;
    long fd = SYS(openat, K_AT_FDCWD, rq->path, DIR_FLAGS, 0);

    if (fd != -ENOENT || !(rq->flags & KIT_F_PARENTS))
        return fd;
    long r = path_parent(rq->path, true, &dir, base);
    if (r < 0)
        return r;
    r = SYS(mkdirat, dir, base, DIR_MODE);
    return r < 0 && r != -EEXIST ? r : SYS(openat, K_AT_FDCWD, rq->path, DIR_FLAGS, 0);
}

/* Absolute links are allowed when the target is the sandbox's whole tree; they resolve inside it.
 */
static u64 how_to_resolve(void)
{
    struct statx here, top;

    if (path_stat(root, "", K_AT_EMPTY_PATH, &here) >= 0 &&
        path_stat(K_AT_FDCWD, "/", 0, &top) >= 0 && here.stx_ino == top.stx_ino &&
        here.stx_dev_major == top.stx_dev_major && here.stx_dev_minor == top.stx_dev_minor)
        return RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
    return RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
}

void verb_unpack(const kit_request *rq)
{
    long fd = open_root(rq);

    if (fd < 0)
        out_fail(fd);
    mask = (u32)SYS(umask, 0);
    root = (int)fd;
    flags = rq->flags;
    is_root = SYS(geteuid) == 0;
    resolve_how = how_to_resolve();
    long r = unpack_receive();
    finish_dirs();
    if (r < 0)
        out_fail_at(r, now.name, now.len);
}

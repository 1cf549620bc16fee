/* stat, list, mkdir, move, remove. */
#include "kit/kit.h"

#define COMPONENT_MAX 255
#define MKDIR_MODE    0777
#define OWN_MODE      0700 /* until the requested mode is set */

long path_stat(int dir, const char *path, u32 flags, struct statx *ret)
{
    return SYS(statx, dir, path, flags, STATX_BASIC_STATS, ret);
}

static long need_stat(const char *path, bool follow, struct statx *ret)
{
    return path_stat(K_AT_FDCWD, path, follow ? 0 : K_AT_SYMLINK_NOFOLLOW, ret);
}

static void tree_check(long r)
{
    if (r < 0)
        out_fail(r);
}

void entry_of(int dir, const char *base, const struct statx *st, const char *name, size_t n)
{
    char target[KIT_PATH_MAX];
    long len = is_link(st) ? SYS(readlinkat, dir, base, target, sizeof target) : 0;

    out_entry(name, n, st, target, len > 0 ? (size_t)len : 0, 0);
    detail_of(dir, base, st);
}

/* ---- paths ---- */

/* Does mkdir -p of path[0, n); path is modified temporarily. */
static long make_parents(char *path, size_t n)
{
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && i != n)
            continue;
        char c = path[i];
        path[i] = 0;
        long r = SYS(mkdirat, K_AT_FDCWD, path, MKDIR_MODE);
        if (r == -EACCES)
            r = who_make_dir(path, MKDIR_MODE);
        path[i] = c;
        if (r < 0 && r != -EEXIST) {
            /* mkdir on an existing parent may fail with another error (read-only, no permission).
             * Only a missing parent is an error here. */
            struct statx st;
            path[i] = 0;
            long there = path_stat(K_AT_FDCWD, path, 0, &st);
            path[i] = c;
            if (there < 0)
                return r;
        }
    }
    return 0;
}

static size_t tree_trimmed(const char *path)
{
    size_t n = text_len(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    return n;
}

long path_parent(const char *path, bool parents, int *ret_dir, char ret_base[256])
{
    char at[KIT_PATH_MAX + 1];
    size_t n = tree_trimmed(path), base;

    if (n > KIT_PATH_MAX)
        return -ENAMETOOLONG;
    memcpy(at, path, n);
    at[n] = 0;
    for (base = n; base && at[base - 1] != '/'; base--)
        continue;
    size_t len = n - base;
    if (!len || (len == 1 && at[base] == '.') ||
        (len == 2 && at[base] == '.' && at[base + 1] == '.'))
        return -EBUSY; /* a root, or a path without a name of its own */
    if (len > COMPONENT_MAX)
        return -ENAMETOOLONG;
    memcpy(ret_base, at + base, len + 1);
    at[base] = 0;
    if (parents && base > 1) {
        long r = make_parents(at, base - 1);
        if (r < 0)
            return r;
    }
    long fd = SYS(openat, K_AT_FDCWD, base ? at : ".", DIR_FLAGS, 0);
    if (fd < 0)
        return fd;
    *ret_dir = (int)fd;
    return 0;
}

/* ---- stat and list ---- */

void verb_stat(const kit_request *rq)
{
    struct statx st;

    tree_check(need_stat(rq->path, rq->flags & KIT_F_FOLLOW, &st));
    entry_of(K_AT_FDCWD, rq->path, &st, "", 0);
}

static bool list_one(walk *w, int dir, const char *base, const struct statx *st)
{
    if (tally.entries >= w->rq->max) {
        tally.flags |= KIT_E_MORE;
        return false;
    }
    entry_of(dir, base, st, w->name, w->len);
    return true;
}

/* Lists a directory. The path itself may be a link to a directory; links below it are not followed.
 */
void verb_list(const kit_request *rq)
{
    static walk w;
    long dir = SYS(openat, K_AT_FDCWD, rq->path, DIR_FLAGS, 0);

    tree_check(dir);
    w.depth = rq->depth;
    w.after = rq->to;
    w.visit = list_one;
    w.rq = rq;
    walk_below(&w, (int)dir);
}

/* ---- changes ---- */

static void entry_now(int dir, const char *base)
{
    struct statx st;

    if (path_stat(dir, base, K_AT_SYMLINK_NOFOLLOW, &st) >= 0)
        entry_of(dir, base, &st, "", 0);
}

/* Sets exactly the requested mode, whatever the umask. Uses a descriptor: the owner of the parent
 * directory may have put a link in its place, and the kit may be root. */
static long set_mode(int dir, const char *base, u32 mode)
{
    int fd = (int)SYS(openat, dir, base, DIR_FLAGS | O_NOFOLLOW, 0);
    long r = fd < 0 ? fd : SYS(fchmod, fd, mode);

    fd_close(&fd);
    return r;
}

void verb_mkdir(const kit_request *rq)
{
    char base[256];
    struct statx st;
    int dir = -1;
    long r = path_parent(rq->path, rq->flags & KIT_F_PARENTS, &dir, base);

    /* "/" and "." exist, although they have no name in a parent. */
    if (r == -EBUSY && need_stat(rq->path, true, &st) >= 0)
        r = -EEXIST;
    else if (r >= 0)
        r = SYS(mkdirat, dir, base, rq->mode == KIT_MODE_NONE ? MKDIR_MODE : OWN_MODE);
    bool made = r >= 0;
    if (made && rq->mode != KIT_MODE_NONE)
        r = set_mode(dir, base, rq->mode);
    if (r == -EEXIST && !(rq->flags & KIT_F_NEW) && need_stat(rq->path, true, &st) >= 0 &&
        is_dir(&st))
        r = 0;
    if (r == -EEXIST && rq->flags & KIT_F_DIRECTORY && need_stat(rq->path, true, &st) >= 0 &&
        !is_dir(&st))
        r = -ENOTDIR;
    tree_check(r);
    tree_check(need_stat(rq->path, true, &st));
    out_entry("", 0, &st, "", 0, 0);
    detail_of(K_AT_FDCWD, rq->path, &st);
}

void verb_move(const kit_request *rq)
{
    char from_base[256], to_base[256];
    int from = -1, to = -1;

    tree_check(path_parent(rq->path, false, &from, from_base));
    tree_check(path_parent(rq->to, rq->flags & KIT_F_PARENTS, &to, to_base));
    tree_check(SYS(renameat2, from, from_base, to, to_base, rq->flags & KIT_F_NEW ? 1 : 0));
    entry_now(to, to_base);
}

/* Removes an entry. Reports each failure and continues; a directory that is not empty then stays.
 */
static bool remove_one(walk *w, int dir, const char *base, const struct statx *st)
{
    if (is_dir(st))
        return true; /* removed after its content */
    long r = SYS(unlinkat, dir, base, 0);
    if (r < 0 && r != -ENOENT)
        out_error(r, w->name, w->len);
    else
        tally.entries++;
    return true;
}

static bool remove_directory(walk *w, int dir, const char *base)
{
    long r = SYS(unlinkat, dir, base, K_AT_REMOVEDIR);

    if (r < 0 && r != -ENOENT)
        out_error(r, w->name, w->len);
    else
        tally.entries++;
    return true;
}

static void remove_below(int dir, const char *base)
{
    static walk w;
    long sub = SYS(openat, dir, base, DIR_FLAGS | O_NOFOLLOW, 0);

    tree_check(sub);
    w.depth = WALK_DEPTH_MAX;
    w.visit = remove_one;
    w.leave = remove_directory;
    walk_below(&w, (int)sub);
}

void verb_remove(const kit_request *rq)
{
    char base[256];
    struct statx st;
    int dir = -1;

    tree_check(path_parent(rq->path, false, &dir, base));
    tree_check(path_stat(dir, base, K_AT_SYMLINK_NOFOLLOW, &st));
    if (is_dir(&st) && rq->flags & KIT_F_RECURSIVE)
        remove_below(dir, base);
    tree_check(SYS(unlinkat, dir, base, is_dir(&st) ? K_AT_REMOVEDIR : 0));
    tally.entries++;
}

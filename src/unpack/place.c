#include "unpack/place.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"

#define IMPLICIT_MODE 0755

int place_open(const writer *w, const char *path, int flags)
{
    struct open_how how = {.flags = (uint64_t)flags | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};
    long fd = syscall(SYS_openat2, w->root, *path ? path : ".", &how, sizeof how);

    return fd < 0 ? -errno : (int)fd;
}

void place_forget_parent(writer *w)
{
    if (w->parent_fd >= 0)
        close(w->parent_fd);
    w->parent_fd = -1;
    w->parent_stale = false;
}

static err *no_parent(int errnum)
{
    return err_because(refuse("cannot enter the parent directory"), "%s", strerrordesc_np(errnum));
}

/* Makes one missing directory of a parent path. A name that exists but cannot be entered is a
 * dangling symlink or a loop, and is refused. */
static err *make_implicit(writer *w, const char *path, unsigned depth, int *ret_fd)
{
    size_t parent_len;
    const char *leaf = name_leaf(path, &parent_len);
    CLEANUP(freep) char *parent = xstrndup(path, parent_len);
    CLEANUP(closep) int up = place_open(w, parent, O_PATH | O_DIRECTORY);

    if (up < 0)
        return no_parent(-up);
    if (mkdirat(up, leaf, 0700))
        return errno == EEXIST ? no_parent(ENOENT)
                               : err_sys(ERR_INTERNAL, errno, "cannot make a directory");
    TRY(tally_implicit(&w->tally, path));
    TRY(place_later(w, (dir_later){.path = xstrdup(path), .depth = depth, .mode = IMPLICIT_MODE}));
    int fd = openat(up, leaf, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_sys(ERR_INTERNAL, errno, "cannot open a directory just made");
    *ret_fd = fd;
    return NULL;
}

static err *make_parents(writer *w, const char *path, int *ret_fd)
{
    CLEANUP(freep) char *part = xstrdup(path);
    CLEANUP(closep) int fd = -1;
    unsigned depth = 0;

    for (size_t at = 0, len = strlen(path); at < len;) {
        at += strcspn(path + at, "/");
        part[at] = 0;
        depth++;
        closep(&fd);
        fd = place_open(w, part, O_PATH | O_DIRECTORY);
        if (fd == -ENOENT)
            TRY(make_implicit(w, part, depth, &fd));
        if (fd < 0)
            return no_parent(-fd);
        if (at < len)
            part[at++] = '/';
    }
    *ret_fd = TAKE_FD(fd);
    return NULL;
}

/* Opens the parent into w->parent_fd, which is -errno if that fails. Makes missing parents if
 * `make` is set. */
static err *open_parent(writer *w, const char *path, size_t n, bool make)
{
    if (w->parent_fd >= 0 && !w->parent_stale && strncmp(w->parent_path, path, n) == 0 &&
        !w->parent_path[n])
        return NULL;
    place_forget_parent(w);
    memcpy(w->parent_path, path, n);
    w->parent_path[n] = 0;
    w->parent_fd = place_open(w, w->parent_path, O_PATH | O_DIRECTORY);
    if (w->parent_fd == -ENOENT && make)
        return make_parents(w, w->parent_path, &w->parent_fd);
    return NULL;
}

err *place_parent(writer *w, const char *path, int *ret_dir, const char **ret_leaf)
{
    size_t n;

    *ret_leaf = name_leaf(path, &n);
    *ret_dir = w->root;
    if (*ret_leaf == path)
        return NULL;
    TRY(open_parent(w, path, n, true));
    if (w->parent_fd < 0)
        return no_parent(-w->parent_fd);
    *ret_dir = w->parent_fd;
    return NULL;
}

static bool is_whiteout(const struct stat *st)
{
    return S_ISCHR(st->st_mode) && st->st_rdev == 0;
}

/* Removes an entry that is replaced. It may be part of the remembered parent's path, so that path
 * is looked up again. Its descriptor is not closed here: `dir` may be it. */
static err *remove_old(writer *w, int dir, const char *name, const struct stat *st)
{
    w->parent_stale = true;
    if (unlinkat(dir, name, S_ISDIR(st->st_mode) ? AT_REMOVEDIR : 0)) {
        if (S_ISDIR(st->st_mode) && (errno == ENOTEMPTY || errno == EEXIST))
            return refuse("an entry replaces a filled directory of its own layer");
        return err_sys(ERR_INTERNAL, errno, "cannot replace an entry");
    }
    return NULL;
}

err *place_clear(writer *w, int dir, const char *name, bool want_dir, enum place_found *ret_found)
{
    struct stat st;

    *ret_found = PLACE_FREE;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT ? NULL : err_sys(ERR_INTERNAL, errno, "cannot look at an entry");
    if (is_whiteout(&st)) {
        *ret_found = PLACE_WHITEOUT;
        w->tally.whiteouts--;
        return remove_old(w, dir, name, &st);
    }
    w->tally.duplicates++;
    if (S_ISDIR(st.st_mode) && want_dir) {
        *ret_found = PLACE_DIR;
        return NULL;
    }
    return remove_old(w, dir, name, &st);
}

err *place_later(writer *w, dir_later d)
{
    if (w->nlater == w->cap_later) {
        w->cap_later = w->cap_later ? w->cap_later * 2 : 256;
        w->later = xrealloc(w->later, w->cap_later * sizeof *w->later);
    }
    d.seq = w->nlater;
    w->later[w->nlater++] = d;
    w->names += strlen(d.path) + sizeof d;
    if (w->names > w->lim.names)
        return refuse("directory names over %lu bytes", (unsigned long)w->lim.names);
    return NULL;
}

static int deepest_first(const void *a, const void *b)
{
    const dir_later *x = a, *y = b;

    if (x->depth != y->depth)
        return x->depth > y->depth ? -1 : 1;
    int order = strcmp(x->path, y->path);
    return order ? order : (x->seq > y->seq) - (x->seq < y->seq);
}

static err *send_opaque(const writer *w, const dir_later *d)
{
    const char *path = *d->path ? d->path : ".";
    int r = w->opaque_fd >= 0 ? fs_write_all(w->opaque_fd, path, strlen(path) + 1) : 0;

    return r ? err_sys(ERR_INTERNAL, -r, "cannot hand on an opaque directory") : NULL;
}

/* Sets owner, time and mode of a directory, by its name: without a DAC capability this process may
 * not be able to open it. */
static err *finish_one(writer *w, const dir_later *d)
{
    const struct timespec times[2] = {d->mtime, d->mtime};
    size_t parent_len;
    const char *leaf = name_leaf(d->path, &parent_len);
    struct stat st;
    int dir = w->root;

    if (parent_len) {
        TRY(open_parent(w, d->path, parent_len, false));
        dir = w->parent_fd;
    }
    if (dir == -ENOENT || dir == -ENOTDIR || dir == -ELOOP)
        return NULL; /* replaced by a later entry */
    if (dir < 0)
        return err_because(refuse("a directory cannot be reached again"), "%s",
                           strerrordesc_np(-dir));
    if (!*leaf)
        leaf = ".";
    if (fstatat(dir, leaf, &st, AT_SYMLINK_NOFOLLOW)) {
        if (errno == ENOENT)
            return NULL;
        return errno == EACCES ? refuse("a directory lies behind a closed one")
                               : err_sys(ERR_INTERNAL, errno, "cannot look at a directory again");
    }
    if (!S_ISDIR(st.st_mode))
        return NULL;
    if ((d->uid || d->gid) && fchownat(dir, leaf, d->uid, d->gid, AT_SYMLINK_NOFOLLOW))
        return err_sys(ERR_INTERNAL, errno, "cannot set a directory's owner");
    if (utimensat(dir, leaf, times, AT_SYMLINK_NOFOLLOW) || fchmodat(dir, leaf, d->mode, 0))
        return err_sys(ERR_INTERNAL, errno, "cannot set a directory's mode and time");
    return NULL;
}

/* Returns true if a later record for the same path replaces this one. */
static bool is_superseded(const writer *w, size_t i)
{
    return i + 1 < w->nlater && strcmp(w->later[i].path, w->later[i + 1].path) == 0;
}

err *place_finish(writer *w)
{
    size_t n = 0;

    place_forget_parent(w);
    if (w->nlater)
        qsort(w->later, w->nlater, sizeof *w->later, deepest_first);
    for (size_t i = 0; i < w->nlater; i++) {
        if (w->later[i].opaque) {
            TRY(send_opaque(w, &w->later[i]));
            free(w->later[i].path);
        } else {
            w->later[n++] = w->later[i];
        }
    }
    w->nlater = n;
    for (size_t i = 0; i < w->nlater; i++)
        if (!is_superseded(w, i))
            TRY(finish_one(w, &w->later[i]));
    return NULL;
}

#include "warden/fix.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/str.h"

#define XATTRS_MAX (64u << 10)
#define LOOKS_MAX  (1u << 20) /* of entries of layers; no real image comes near */

typedef struct merged { /* what look_up_one() found */
    size_t found;
    bool in[];
} merged;

typedef struct made { /* a directory of the fix layer, and the layer whose metadata it gets */
    char *path;
    size_t from;
} made;

typedef struct fix {
    const fix_layer *layer;
    size_t n;
    map *implicit; /* per layer: set of paths */
    bool *in;      /* per layer: is it part of the merged directory that is looked up */
    int out;
    map known;    /* path -> merged: directories that several layers name are looked up once */
    size_t looks; /* so far, of LOOKS_MAX */
    map there;    /* set of paths made */
    made *made;
    size_t nmade;
} fix;

static void fix_done(fix *f)
{
    map_iter it = {0};

    for (size_t i = 0; i < f->n; i++)
        map_done(&f->implicit[i]);
    while (map_next(&f->known, &it))
        free(it.entry->value);
    map_done(&f->known);
    for (size_t i = 0; i < f->nmade; i++)
        free(f->made[i].path);
    free(f->implicit);
    free(f->in);
    free(f->made);
    map_done(&f->there);
}

static void fix_init(fix *f, const fix_layer *layer, size_t n, int out)
{
    *f = (fix){.layer = layer, .n = n, .out = out};
    f->implicit = xcalloc(n + 1, sizeof *f->implicit);
    f->in = xcalloc(n + 1, sizeof *f->in);
    for (size_t i = 0; i < n; i++)
        for (char **p = layer[i].meta.implicit; p && *p; p++)
            map_put_str(&f->implicit[i], *p, f);
}

static bool is_opaque(int tree, const char *path)
{
    CLEANUP(closep) int fd = openat(tree, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    char value;

    return fd >= 0 && fgetxattr(fd, "trusted.overlay.opaque", &value, 1) == 1 && value == 'y';
}

/* Does one step of overlayfs's lookup: of the layers that form the parent, finds those that form
 * this directory. Every component before the last is known to be a real directory in them. Returns
 * how many. */
static size_t look_up_one(fix *f, const char *path)
{
    size_t found = 0;
    bool hidden = false;

    for (size_t i = 0; i < f->n; i++) {
        struct stat st;
        if (!f->in[i])
            continue;
        f->in[i] = false;
        f->looks += !hidden;
        if (hidden || fstatat(f->layer[i].tree, path, &st, AT_SYMLINK_NOFOLLOW))
            continue;
        if (S_ISDIR(st.st_mode)) {
            f->in[i] = true;
            found++;
            hidden = is_opaque(f->layer[i].tree, path);
        } else {
            hidden = true; /* a whiteout, or a file that takes the directory's place */
        }
    }
    return found;
}

/* Calls look_up_one(), or repeats what it found before. */
static size_t look_up_known(fix *f, const char *path)
{
    merged *m = map_get_str(&f->known, path);

    if (m) {
        memcpy(f->in, m->in, f->n * sizeof *f->in);
        return m->found;
    }
    m = xmalloc(sizeof *m + f->n * sizeof *f->in);
    m->found = look_up_one(f, path);
    memcpy(m->in, f->in, f->n * sizeof *f->in);
    map_put_str(&f->known, path, m);
    return m->found;
}

/* Leaves in f->in the layers whose directories are merged at path, and returns how many. 0: no
 * directory is seen there. */
static size_t look_up(fix *f, const char *path)
{
    CLEANUP(freep) char *part = xstrdup(path);
    size_t found = 0;

    memset(f->in, 1, f->n);
    for (size_t at = 0, len = strlen(path); at < len;) {
        at += strcspn(path + at, "/");
        part[at] = 0;
        found = look_up_known(f, part);
        if (!found)
            return 0;
        if (at < len)
            part[at++] = '/';
    }
    return found;
}

/* Returns the layer whose metadata a merged directory ought to show: the topmost that describes
 * it. */
static size_t fix_describing(const fix *f, const char *path, size_t *ret_top)
{
    size_t top = f->n;

    for (size_t i = 0; i < f->n; i++) {
        if (!f->in[i])
            continue;
        if (top == f->n)
            top = i;
        if (!map_get_str(&f->implicit[i], path)) {
            *ret_top = top;
            return i;
        }
    }
    *ret_top = top;
    return top;
}

static err *make_one(fix *f, const char *path, size_t from)
{
    if (map_get_str(&f->there, path))
        return NULL;
    if (mkdirat(f->out, path, 0700))
        return err_sys(ERR_INTERNAL, errno, "cannot make a directory of the fix layer");
    map_put_str(&f->there, path, f);
    f->made = xrealloc(f->made, (f->nmade + 1) * sizeof *f->made);
    f->made[f->nmade++] = (made){xstrdup(path), from};
    return NULL;
}

/* Makes the directory and those above it, each with the layer whose metadata it gets. */
static err *make_path(fix *f, const char *path)
{
    CLEANUP(freep) char *part = xstrdup(path);
    size_t top;

    for (size_t at = 0, len = strlen(path); at < len;) {
        at += strcspn(path + at, "/");
        part[at] = 0;
        look_up(f, part);
        TRY(make_one(f, part, fix_describing(f, part, &top)));
        if (at < len)
            part[at++] = '/';
    }
    return NULL;
}

static err *fix_implicit(fix *f, const char *path)
{
    size_t top;

    if (!look_up(f, path) || fix_describing(f, path, &top) == top)
        return NULL;
    return make_path(f, path);
}

static err *fix_whiteouts(fix *f, size_t layer, const char *path)
{
    if (!*path || look_up(f, path) != 1 || !f->in[layer])
        return NULL;
    return make_path(f, path);
}

static err *copy_xattrs(int from, int to)
{
    CLEANUP(freep) char *names = xmalloc(XATTRS_MAX);
    CLEANUP(freep) char *value = xmalloc(XATTRS_MAX);
    ssize_t n = flistxattr(from, names, XATTRS_MAX);

    for (char *name = names; n > 0 && name < names + n; name += strlen(name) + 1) {
        if (!str_starts(name, "user."))
            continue;
        ssize_t k = fgetxattr(from, name, value, XATTRS_MAX);
        if (k < 0 || fsetxattr(to, name, value, (size_t)k, 0))
            return err_sys(ERR_INTERNAL, errno, "cannot copy an extended attribute");
    }
    return NULL;
}

static err *fix_dress(const fix *f, const made *m)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    CLEANUP(closep) int from = openat(f->layer[m->from].tree, m->path, flags);
    CLEANUP(closep) int to = openat(f->out, m->path, flags);
    struct stat st;

    if (from < 0 || to < 0 || fstat(from, &st))
        return err_sys(ERR_INTERNAL, errno, "cannot open a directory of the fix layer");
    TRY(copy_xattrs(from, to));
    if (fchown(to, st.st_uid, st.st_gid) || fchmod(to, st.st_mode & 07777) ||
        futimens(to, (struct timespec[]){st.st_mtim, st.st_mtim}))
        return err_sys(ERR_INTERNAL, errno, "cannot dress a directory of the fix layer");
    return NULL;
}

/* Makes the directories that one layer needs. */
static err *fix_one(fix *f, size_t layer)
{
    const meta *m = &f->layer[layer].meta;

    for (char **p = m->implicit; p && *p && f->looks <= LOOKS_MAX; p++)
        TRY(fix_implicit(f, *p));
    for (char **p = m->whiteout_dirs; p && *p && f->looks <= LOOKS_MAX; p++)
        TRY(fix_whiteouts(f, layer, *p));
    return f->looks <= LOOKS_MAX
               ? NULL
               : err_sys(ERR_IMAGE_UNSUPPORTED, EBADMSG,
                         "the layers have too many directories without an entry of their own");
}

err *fix_build(const fix_layer *layer, size_t n, int out, size_t *ret_made)
{
    CLEANUP(fix_done) fix f;

    fix_init(&f, layer, n, out);
    for (size_t i = 0; i < n; i++)
        TRY(fix_one(&f, i));
    /* Backwards: parents were made first and get their times last. */
    for (size_t i = f.nmade; i-- > 0;)
        TRY(fix_dress(&f, &f.made[i]));
    *ret_made = f.nmade;
    return NULL;
}

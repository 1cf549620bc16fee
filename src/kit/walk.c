/* Walks a tree by descriptors. The names of a directory are read whole and sorted before any is
 * visited: changes made while visiting are not visited, and two walks of one tree have the same
 * order. */
#include "kit/kit.h"

#define ARENA_MAX  (1ul << 30)
#define ARENA_MIN  (1ul << 24)
#define DENTS_ROOM (32u * 1024)

/* ---- arena ---- */

static char *arena;
static size_t arena_size, arena_used;

static bool arena_make(void)
{
    for (size_t n = ARENA_MAX; n >= ARENA_MIN && !arena; n /= 4) {
        arena = map_anon_lazy(n);
        arena_size = n;
    }
    return arena;
}

void *arena_take(size_t n)
{
    n = (n + 7) & ~7ul;
    if (!arena && !arena_make())
        return NULL;
    if (arena_size - arena_used < n)
        return NULL;
    arena_used += n;
    return arena + arena_used - n;
}

size_t arena_mark(void)
{
    return arena_used;
}

void arena_release(size_t mark)
{
    arena_used = mark;
}

/* ---- names of one directory ---- */

struct names {
    char **v;
    size_t n;
};

static int walk_compare(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return (unsigned char)*a - (unsigned char)*b;
}

static void walk_sift(char **v, size_t at, size_t n)
{
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && walk_compare(v[child], v[child + 1]) < 0)
            child++;
        if (walk_compare(v[at], v[child]) >= 0)
            return;
        char *t = v[at];
        v[at] = v[child];
        v[child] = t;
    }
}

static void walk_sort(char **v, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        walk_sift(v, i, n);
    while (n > 1) {
        char *t = v[0];
        v[0] = v[--n];
        v[n] = t;
        walk_sift(v, 0, n);
    }
}

static bool is_dots(const char *s)
{
    return s[0] == '.' && (!s[1] || (s[1] == '.' && !s[2]));
}

/* Copies the names into the arena, one behind the other; returns their number. */
static long read_texts(int dir, char **ret_first)
{
    static char dents[DENTS_ROOM];
    long count = 0, n;

    *ret_first = NULL;
    while ((n = SYS(getdents64, dir, dents, sizeof dents)) > 0)
        for (long at = 0; at < n;) {
            const struct k_dirent *d = (const struct k_dirent *)(dents + at);
            at += d->len;
            if (is_dots(d->name))
                continue;
            size_t len = text_len(d->name) + 1;
            char *to = arena_take(len);
            if (!to)
                return -ENOMEM;
            memcpy(to, d->name, len);
            if (!*ret_first)
                *ret_first = to;
            count++;
            out_alive();
        }
    return n < 0 ? n : count;
}

static long read_names(int dir, struct names *ret)
{
    char *at;
    long n = read_texts(dir, &at);

    if (n < 0)
        return n;
    ret->n = (size_t)n;
    ret->v = arena_take(ret->n * sizeof *ret->v);
    if (!ret->v)
        return -ENOMEM;
    for (size_t i = 0; i < ret->n; i++) {
        ret->v[i] = at;
        at += (text_len(at) + 1 + 7) & ~7ul;
    }
    walk_sort(ret->v, ret->n);
    return 0;
}

/* ---- down ---- */

static void kit_walk_below(walk *w, int dir, u32 level, const char *after);

/* Compares a name with `after`. < 0: the name and all below it were visited. 0: it was visited, and
 * below it everything up to `*rest`. > 0: it comes after. */
static int walk_against(const char *name, const char *after, const char **rest)
{
    size_t n = 0;

    *rest = "";
    if (!*after)
        return 1;
    while (after[n] && after[n] != '/' && name[n] == after[n])
        n++;
    bool ends = !after[n] || after[n] == '/';
    if (!name[n] && ends) {
        *rest = after[n] ? after + n + 1 : "";
        return 0;
    }
    if (ends)
        return 1;
    return (unsigned char)name[n] - (unsigned char)after[n];
}

static void walk_descend(walk *w, int dir, const char *base, u32 level, const char *after)
{
    size_t len = w->len;
    long sub = level < WALK_DEPTH_MAX ? SYS(openat, dir, base, DIR_FLAGS | O_NOFOLLOW, 0) : -ELOOP;

    if (sub < 0) {
        out_error(sub, w->name, w->len);
        return;
    }
    kit_walk_below(w, (int)sub, level + 1, after);
    SYS(close, sub);
    w->len = len;
    w->name[len] = 0;
}

static void walk_one(walk *w, int dir, const char *base, u32 level, int order, const char *after)
{
    struct statx st;
    long r = path_stat(dir, base, K_AT_SYMLINK_NOFOLLOW, &st);

    out_alive();
    if (r < 0) {
        if (r != -ENOENT) /* removed since the names were read */
            out_error(r, w->name, w->len);
        return;
    }
    w->shallow = false;
    if (order > 0 && !w->visit(w, dir, base, &st)) {
        w->stopped = true;
        return;
    }
    if (is_dir(&st) && level < w->depth && !w->shallow)
        walk_descend(w, dir, base, level, order ? "" : after);
    if (!w->stopped && is_dir(&st) && w->leave && !w->leave(w, dir, base))
        w->stopped = true;
}

static bool walk_append(walk *w, const char *base)
{
    size_t n = text_len(base), slash = w->len ? 1 : 0;

    if (w->len + slash + n > KIT_PATH_MAX)
        return false;
    if (slash)
        w->name[w->len++] = '/';
    memcpy(w->name + w->len, base, n + 1);
    w->len += n;
    return true;
}

static void kit_walk_below(walk *w, int dir, u32 level, const char *after)
{
    size_t mark = arena_mark(), len = w->len;
    struct names names = {0};
    long r = read_names(dir, &names);

    if (r < 0)
        out_error(r, w->name, w->len);
    for (size_t i = 0; r >= 0 && i < names.n && !w->stopped; i++) {
        const char *rest;
        int order = walk_against(names.v[i], after, &rest);
        if (order < 0)
            continue;
        if (walk_append(w, names.v[i]))
            walk_one(w, dir, names.v[i], level, order, rest);
        else
            out_error(-ENAMETOOLONG, w->name, w->len);
        w->len = len;
        w->name[len] = 0;
    }
    arena_release(mark);
}

void walk_below(walk *w, int dir)
{
    if (w->depth)
        kit_walk_below(w, dir, 1, w->after ? w->after : "");
}

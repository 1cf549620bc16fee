#include "warden/meta.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

#define FIRST    "bothy-unpack=1"
#define LAST     "end=1"
#define PATHS    65536 /* of each kind */
#define PATH_LEN 4095

static err *meta_bad(const char *why)
{
    return err_sys(ERR_INTERNAL, EPROTO, "the unpacker's report is not usable: %s", why);
}

/* Returns true for a relative path without an empty, "." or ".." component. */
static bool is_normal(const char *path)
{
    if (strlen(path) > PATH_LEN)
        return false;
    for (const char *at = path; *path;) {
        size_t n = strcspn(at, "/");
        if (!n || n > 255 || (n == 1 && *at == '.') || (n == 2 && at[0] == '.' && at[1] == '.'))
            return false;
        if (!at[n])
            return true;
        at += n + 1;
    }
    return true;
}

typedef struct paths {
    char **v;
    size_t n, cap;
} paths;

static void paths_done(paths *p)
{
    for (size_t i = 0; i < p->n; i++)
        free(p->v[i]);
    free(p->v);
}

static err *add_path(paths *to, char *value, bool root_too)
{
    size_t n;

    if (!percent_decode(value, &n) || !is_normal(value) || (!*value && !root_too))
        return meta_bad("a path");
    if (to->n == PATHS)
        return meta_bad("too many paths");
    if (to->n + 1 >= to->cap) {
        to->cap = to->cap ? to->cap * 2 : 16;
        to->v = xrealloc(to->v, to->cap * sizeof *to->v);
    }
    to->v[to->n++] = xstrdup(value);
    to->v[to->n] = NULL;
    return NULL;
}

static err *parse_count(const char *value, uint64_t max, uint64_t *ret_count)
{
    return str_to_u64(value, max, ret_count) ? NULL : meta_bad("a number");
}

static err *parse_line(char *line, meta *m, paths *implicit, paths *whiteout_dirs)
{
    char *value = strchr(line, '=');
    uint64_t flag = 0;

    if (!value)
        return meta_bad("a line without '='");
    *value++ = 0;
    if (str_eq(line, "diff_id"))
        return strlen(value) == 64 && hex_decode(value, m->diff_id, 32) ? NULL
                                                                        : meta_bad("diff_id");
    if (str_eq(line, "entries"))
        return parse_count(value, INT64_MAX, &m->entries);
    if (str_eq(line, "bytes"))
        return parse_count(value, INT64_MAX, &m->bytes);
    if (str_eq(line, "whiteouts"))
        return parse_count(value, INT64_MAX, &m->whiteouts);
    if (str_eq(line, "opaque_root")) {
        TRY(parse_count(value, 1, &flag));
        m->opaque_root = flag;
        return NULL;
    }
    if (str_eq(line, "implicit"))
        return add_path(implicit, value, false);
    if (str_eq(line, "whiteout_dir"))
        return add_path(whiteout_dirs, value, true);
    return NULL; /* a count of no interest here, or a key of a later version */
}

static err *parse_lines(char *text, meta *m, paths *implicit, paths *whiteout_dirs)
{
    bool first = true;

    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        if (first && !str_eq(line, FIRST))
            return meta_bad("its first line");
        if (str_eq(line, LAST))
            return end[1] ? meta_bad("lines after its end") : NULL;
        if (!first)
            TRY(parse_line(line, m, implicit, whiteout_dirs));
        first = false;
    }
    return meta_bad("its end is missing");
}

err *meta_parse(char *text, size_t n, meta *ret_meta)
{
    CLEANUP(paths_done) paths implicit = {0};
    CLEANUP(paths_done) paths whiteout_dirs = {0};
    meta m = {0};

    if (n > META_MAX || strlen(text) != n)
        return meta_bad("its length");
    TRY(parse_lines(text, &m, &implicit, &whiteout_dirs));
    m.implicit = implicit.v;
    m.whiteout_dirs = whiteout_dirs.v;
    implicit = whiteout_dirs = (paths){0};
    *ret_meta = m;
    return NULL;
}

void meta_done(meta *m)
{
    strv_free(m->implicit);
    strv_free(m->whiteout_dirs);
    *m = (meta){0};
}

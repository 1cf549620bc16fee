#include "cli/cp_plan.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

void place_parse(const char *word, place *ret_place)
{
    const char *colon = strchr(word, ':');

    *ret_place = (place){.path = word};
    if (word[0] == '/' || word[0] == '.' || !colon || colon == word ||
        memchr(word, '/', (size_t)(colon - word)))
        return;
    ret_place->sandbox = xstrndup(word, (size_t)(colon - word));
    ret_place->path = colon + 1;
}

void place_done(place *p)
{
    free(p->sandbox);
}

/* ---- paths ---- */

bool path_ends_with_slash(const char *path)
{
    return *path && path[strlen(path) - 1] == '/';
}

bool path_wants_content(const char *path)
{
    return str_eq(path, ".") || str_ends(path, "/.");
}

/* Returns the last part of a path and its length, without slashes after it. */
static const char *last_part(const char *path, size_t *ret_n)
{
    const char *end = path + strlen(path), *from;

    while (end > path && end[-1] == '/')
        end--;
    for (from = end; from > path && from[-1] != '/';)
        from--;
    *ret_n = (size_t)(end - from);
    return from;
}

static bool last_is_up(const char *path)
{
    size_t n;
    const char *from = last_part(path, &n);

    return n == 2 && from[0] == '.' && from[1] == '.';
}

bool path_has_name(const char *path)
{
    size_t n;
    const char *from = last_part(path, &n);

    return n && !(n == 1 && from[0] == '.') && !last_is_up(path);
}

static char *base_of(const char *path)
{
    size_t n;
    const char *from = last_part(path, &n);

    return path_has_name(path) ? xstrndup(from, n) : xstrdup("");
}

static char *parent_of(const char *path)
{
    size_t n;
    const char *from = last_part(path, &n);

    while (from > path + 1 && from[-1] == '/')
        from--;
    return from == path ? xstrdup(".") : xstrndup(path, (size_t)(from - path));
}

/* ---- plans ---- */

void plan_done(plan *p)
{
    free(p->dir);
    free(p->name);
}

err *plan_no_directory(const char *path)
{
    err *e = err_new(ERR_NOT_FOUND, "'%s' is no directory that exists", path);

    return err_remedy(err_kind(e, "path"), "Make it first, or leave the slash at its end out.");
}

err *plan_make(const char *from, bool from_dir, const char *to, enum found found, plan *ret_plan)
{
    if (from_dir && found == FOUND_OTHER)
        return err_remedy(
            err_new(ERR_CONFLICT, "'%s' is a file, and a directory cannot replace it", to),
            "Name a directory, or one that does not exist yet.");
    if (!from_dir && found != FOUND_DIR && (path_ends_with_slash(to) || !path_has_name(to)))
        return plan_no_directory(to);
    if (found == FOUND_DIR && last_is_up(from))
        return err_remedy(err_new(ERR_INVALID_REQUEST, "'%s' has no name of its own", from),
                          "End it with '/.' for what lies in it.");
    if (from_dir && (found == FOUND_NOTHING || path_wants_content(from)))
        *ret_plan = (plan){xstrdup(to), xstrdup(""), found == FOUND_NOTHING};
    else if (found == FOUND_DIR)
        *ret_plan = (plan){xstrdup(to), base_of(from), false};
    else
        *ret_plan = (plan){parent_of(to), base_of(to), false};
    return NULL;
}

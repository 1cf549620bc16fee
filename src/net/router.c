#include "net/router.h"

#include <string.h>

#include "base/cleanup.h"
#include "net/internal.h"

typedef struct span {
    const char *p;
    size_t n;
} span;

/* Matches one segment of a pattern against one of the path; both pointers are after a slash. */
static bool match_segment(const char **pattern, const char **path, span *param, size_t *nparam)
{
    size_t want = strcspn(*pattern, "/"), have = strcspn(*path, "/");
    bool is_param = **pattern == '{', is_rest = is_param && want > 2 && (*pattern)[want - 2] == '*';

    if (is_rest)
        have = strlen(*path);
    if (is_param ? !have && !is_rest : want != have || memcmp(*pattern, *path, want) != 0)
        return false;
    if (is_param)
        param[(*nparam)++] = (span){*path, have};
    *pattern += want;
    *path += have;
    return true;
}

/* Matches a path. Literal segments are compared as sent: an escaped letter makes another path. */
static bool net_router_match(const char *pattern, const char *path, span param[HTTP_PARAMS_MAX],
                             size_t *ret_n)
{
    *ret_n = 0;
    while (*pattern == '/' && *path == '/' && *ret_n < HTTP_PARAMS_MAX) {
        pattern++;
        path++;
        if (!match_segment(&pattern, &path, param, ret_n))
            return false;
    }
    return !*pattern && !*path;
}

/* Returns 2 for the method itself or "*", 1 if GET serves HEAD, else 0. */
static int method_serves(const char *method, const char *asked)
{
    return !strcmp(method, asked) || !strcmp(method, "*")
               ? 2
               : !strcmp(method, "GET") && !strcmp(asked, "HEAD");
}

static void router_allow(buf *list, const char *method)
{
    if (list->len)
        buf_str(list, ", ");
    buf_str(list, method);
    if (!strcmp(method, "GET"))
        buf_str(list, ", HEAD");
}

err *router_match(const route *table, size_t n, request *rq, response *rs, const route **ret_route)
{
    CLEANUP(buf_done) buf allowed = {0};
    span param[HTTP_PARAMS_MAX], best[HTTP_PARAMS_MAX];
    size_t nparam, nbest = 0;
    const route *found = NULL;

    for (size_t i = 0; i < n; i++) {
        if (!net_router_match(table[i].pattern, rq->raw_path, param, &nparam))
            continue;
        int serves = method_serves(table[i].method, rq->h1.method);
        if (!serves) {
            router_allow(&allowed, table[i].method);
        } else if (!found || serves == 2) {
            found = &table[i];
            memcpy(best, param, sizeof best);
            nbest = nparam;
        }
        if (serves == 2)
            break;
    }
    if (!found && allowed.len) {
        response_header(rs, "Allow", "%s", buf_cstr(&allowed));
        return err_new(ERR_METHOD_NOT_ALLOWED, "%s does not take %s", rq->path, rq->h1.method);
    }
    if (!found)
        return err_kind(err_new(ERR_NOT_FOUND, "there is no %s", rq->path), "route");
    for (size_t i = 0; i < nbest; i++)
        request_set_param(rq, i, best[i].p, best[i].n);
    *ret_route = found;
    return NULL;
}

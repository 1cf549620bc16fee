/* The door's entry points: finds the verb and the sandbox of a request. */
#include "door/swerex/swerex.h"

#include <string.h>

#include "door/swerex/internal.h"

const char *const SWEREX_OPERATIONS[] = {"swerex_none",
                                         "swerex_is_alive",
                                         "swerex_create_session",
                                         "swerex_run_in_session",
                                         "swerex_close_session",
                                         "swerex_execute",
                                         "swerex_read_file",
                                         "swerex_write_file",
                                         "swerex_upload",
                                         "swerex_close",
                                         NULL};

typedef struct verb {
    const char *name;
    rex_handler *handle; /* NULL: is_alive */
    bool makes;          /* the sandbox, if it does not exist yet */
} verb;
/* In the order of SWEREX_OPERATIONS. */
static const verb VERBS[] = {
    {"", NULL, false},
    {"is_alive", NULL, false},
    {"create_session", rex_create_session, true},
    {"run_in_session", rex_run_in_session, true},
    {"close_session", rex_close_session, true},
    {"execute", rex_execute, true},
    {"read_file", rex_read_file, true},
    {"write_file", rex_write_file, true},
    {"upload", rex_upload, true},
    {"close", rex_close, false},
};

swerex *swerex_new(const swerex_options *o)
{
    swerex *d = xcalloc(1, sizeof *d);

    d->o = *o;
    d->o.staged = o->staged ? o->staged : REX_STAGED_MAX;
    pthread_mutex_init(&d->lock, NULL);
    d->terminals = rex_terminals_new();
    return d;
}

void swerex_free(swerex *d)
{
    map_iter it = {0};

    if (!d)
        return;
    rex_terminals_free(d->terminals);
    while (map_next(&d->made, &it))
        free(it.entry->value);
    map_done(&d->made);
    map_done(&d->staged);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

/* Returns true for "/" with a token of this door: a key with a '.' in it. */
static bool is_root(const request *rq)
{
    const char *key = request_header(rq, "X-API-Key");

    return str_eq(request_path(rq), "/") && key && strchr(key, '.');
}

bool swerex_claims(const swerex *d, const request *rq)
{
    rex_path p;

    (void)d;
    return rex_path_parse(request_path(rq), &p) || is_root(rq);
}

static const verb *find_verb(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(VERBS); i++)
        if (str_eq(VERBS[i].name, name))
            return &VERBS[i];
    return NULL;
}

/* ---- is_alive ---- */

static bool swerex_lives(sandbox *sb)
{
    enum lifecycle state = sandbox_state(sb);

    return state != LIFE_GONE;
}

/* Answers is_alive. A sandbox that is not made yet counts as alive: the client asks before it sends
 * the request that makes it. */
static err *tell_alive(request *rq, response *rs, const rex_who *w)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(sandbox_view_done) sandbox_view v = {0};
    CLEANUP(freep) char *why = NULL;
    CLEANUP(err_freep) err *e = rex_find(rq, w, &sb);

    if (e)
        why = xstrdup(e->message);
    else if (sb && !swerex_lives(sb)) {
        sandbox_get(sb, &v);
        why = str_printf("sandbox %s has ended: %s", v.id, str_or(v.cause, "{}"));
    }
    response_json(rs, 200,
                  json_pack("{s:b,s:s}", "is_alive", why == NULL, "message", str_or(why, "")));
    return NULL;
}

/* ---- dispatch ---- */

static err *check_method(const request *rq, const verb *v, response *rs)
{
    const char *wanted = v->handle ? "POST" : "GET";

    if (str_eq(request_method(rq), wanted))
        return NULL;
    response_header(rs, "Allow", "%s", wanted);
    return err_new(ERR_METHOD_NOT_ALLOWED, "Method Not Allowed");
}

static err *swerex_serve(request *rq, response *rs, const verb *v, const rex_path *path)
{
    CLEANUP(rex_who_done) rex_who w = {0};
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;

    TRY(rex_admit(rq, path, &w));
    if (!*v->name) {
        response_json(rs, 200, json_pack("{s:s}", "message", "hello world"));
        return NULL;
    }
    if (!v->handle)
        return tell_alive(rq, rs, &w);
    if (!v->makes)
        TRY(rex_find(rq, &w, &sb));
    else
        TRY(rex_find_or_make(rq, rs, &w, &sb));
    return sb || !v->makes ? v->handle(rq, rs, &w, sb) : NULL;
}

void swerex_form(response *rs)
{
    response_set_form(rs, &REX_FORM);
}

err *swerex_dispatch(swerex *d, request *rq, response *rs)
{
    rex_path path = {.verb = ""};

    request_set_door(rq, d);
    swerex_form(rs);
    request_set_operation(rq, d->o.door, d->o.operation);
    if (!str_eq(request_path(rq), "/"))
        rex_path_parse(request_path(rq), &path);
    const verb *v = find_verb(path.verb);
    if (!v)
        return err_kind(err_new(ERR_NOT_FOUND, "Not Found"), "route");
    request_set_operation(rq, d->o.door, d->o.operation + (size_t)(v - VERBS));
    TRY(check_method(rq, v, rs));
    return swerex_serve(rq, rs, v, &path);
}

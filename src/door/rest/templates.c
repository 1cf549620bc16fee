/* /v1/templates: named sets of defaults for sandboxes. */
#include <stdio.h>
#include <string.h>

#include "api/openapi.h"
#include "base/json.h"
#include "base/str.h"
#include "door/rest/internal.h"
#include "door/rest/spec.h"

#define BODY_MAX (1 << 20)

/* ---- as JSON ---- */

static void set_text(json_t *o, const char *name, const char *s)
{
    if (s)
        json_object_set_new(o, name, json_string(s));
}

static void set_seconds(json_t *o, const char *name, uint64_t ms)
{
    if (ms)
        json_object_set_new(o, name, json_integer((json_int_t)(ms / 1000)));
}

static void set_octal(json_t *o, const char *name, uint32_t n)
{
    char text[16];

    snprintf(text, sizeof text, "%03o", n);
    json_object_set_new(o, name, json_string(text));
}

/* Converts NAME=value strings to an object. */
static json_t *pairs_json(char *const *v)
{
    json_t *o = json_object();

    for (size_t i = 0; v && v[i]; i++) {
        const char *eq = strchr(v[i], '=');
        CLEANUP(freep) char *name = eq ? xstrndup(v[i], (size_t)(eq - v[i])) : NULL;
        if (eq)
            json_object_set_new(o, name, json_string(eq + 1));
    }
    return o;
}

static void set_count(json_t *o, const char *name, uint64_t n)
{
    if (n)
        json_object_set_new(o, name, json_integer((json_int_t)n));
}

/* Returns only the limits that the template sets; view_limits() shows all of them. */
static json_t *limits_asked(const limits *l)
{
    json_t *o = json_object();

    set_count(o, "memory", l->memory);
    set_count(o, "pids", l->pids);
    set_count(o, "disk", l->disk);
    set_count(o, "nofile", l->nofile);
    set_count(o, "nofile_hard", l->nofile_hard);
    set_count(o, "shm", (uint64_t)l->shm_mib << 20);
    set_count(o, "execs", l->execs);
    if (l->cpu_milli)
        json_object_set_new(o, "cpu", json_real((double)l->cpu_milli / 1000));
    return o;
}

static json_t *tmpfs_json(const sandbox_spec *s)
{
    json_t *all = json_array();

    for (size_t i = 0; i < s->ntmpfs; i++) {
        json_t *one = json_pack("{s:s,s:I,s:b}", "path", s->tmpfs[i].path, "size",
                                (json_int_t)s->tmpfs[i].size, "exec", s->tmpfs[i].exec);
        set_octal(one, "mode", s->tmpfs[i].mode);
        json_array_append_new(all, one);
    }
    return all;
}

static void set_start(json_t *o, const start_spec *s)
{
    if (!s->argv)
        return;
    json_t *start = json_pack("{s:o}", "argv", view_strings(s->argv));
    set_text(start, "user", s->user);
    set_text(start, "cwd", s->cwd);
    json_object_set_new(o, "start", start);
}

/* Returns the request that would make the same template again. */
static json_t *template_request(const template_view *t)
{
    const sandbox_spec *s = &t->spec;
    json_t *o =
        json_pack("{s:s,s:s*,s:b,s:o,s:o,s:o,s:o,s:b,s:o}", "name", t->name, "image", s->image,
                  "public", t->public, "env", pairs_json(s->env), "labels", pairs_json(s->labels),
                  "limits", limits_asked(&s->limits), "tmpfs", tmpfs_json(s), "read_only",
                  s->read_only, "grants", s->setuid ? json_pack("[s]", "setuid") : json_array());

    set_text(o, "snapshot", s->snapshot);
    set_text(o, "user", s->user);
    set_text(o, "cwd", s->cwd);
    set_seconds(o, "ttl", s->ttl_ms);
    set_seconds(o, "idle", s->idle_ms);
    if (s->has_umask)
        set_octal(o, "umask", s->umask);
    if (s->has_network)
        set_text(o, "network", network_grant_name(s->network));
    set_start(o, &s->start);
    return o;
}

static json_t *view_template(const template_view *t)
{
    static const char *const MAY_BE_NULL[] = {"image", "snapshot", "user",    "cwd",  "ttl",
                                              "idle",  "umask",    "network", "start"};
    json_t *o = template_request(t);

    for (size_t i = 0; i < ARRAY_LEN(MAY_BE_NULL); i++)
        if (!json_object_get(o, MAY_BE_NULL[i]))
            json_object_set_new(o, MAY_BE_NULL[i], json_null());
    json_object_set_new(o, "id", json_string(t->id));
    json_object_set_new(o, "owner", json_string(t->owner));
    json_object_set_new(o, "created", view_time(t->created_ns));
    json_object_set_new(o, "changed", view_time(t->changed_ns));
    return o;
}

/* ---- requests ---- */

/* Moves name, public and spec out of the request. */
static void take_template(create_template *in, template_view *out)
{
    sandbox_spec *s = &out->spec;

    out->name = TAKE_PTR(in->name);
    out->public = in->public;
    *s = (sandbox_spec){.image = TAKE_PTR(in->image),
                        .snapshot = TAKE_PTR(in->snapshot),
                        .env = TAKE_PTR(in->env),
                        .user = TAKE_PTR(in->user),
                        .cwd = TAKE_PTR(in->cwd),
                        .labels = TAKE_PTR(in->labels),
                        .ttl_ms = in->has_ttl ? in->ttl * 1000 : 0,
                        .idle_ms = in->has_idle ? in->idle * 1000 : 0,
                        .read_only = in->read_only,
                        .has_network = in->network != CREATE_TEMPLATE_NETWORK_UNSET,
                        .network = in->network == CREATE_TEMPLATE_NETWORK_OPEN ? NETWORK_OPEN
                                                                               : NETWORK_NONE,
                        .has_umask = in->has_umask,
                        .umask = in->umask};
    if (in->has_limits)
        spec_take_limits(&in->limits, &s->limits);
    spec_take_tmpfs(in->tmpfs, in->ntmpfs, s);
    if (in->has_start)
        spec_take_start(&in->start, s);
    for (size_t i = 0; i < in->ngrants; i++)
        s->setuid |= in->grants[i] == CREATE_TEMPLATE_GRANTS_SETUID;
}

err *rest_template_create(request *rq, response *rs)
{
    CLEANUP(create_template_done) create_template in = {0};
    CLEANUP(template_view_done) template_view t = {0};
    CLEANUP(template_view_done) template_view made = {0};
    CLEANUP(buf_done) buf body = {0};

    TRY(request_body(rq, BODY_MAX, &body));
    TRY(create_template_decode(body.p, body.len, &in));
    take_template(&in, &t);
    TRY(engine_template_create(rest_engine(rq), rest_caller(rq), &t, &made));
    response_json(rs, 201, view_template(&made));
    return NULL;
}

err *rest_template_list(request *rq, response *rs)
{
    CLEANUP(freep) template_view *all = NULL;
    size_t n = 0;

    TRY(engine_template_list(rest_engine(rq), rest_caller(rq), &all, &n));
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(list, view_template(&all[i]));
        template_view_done(&all[i]);
    }
    response_json(rs, 200, json_pack("{s:o}", "templates", list));
    return NULL;
}

err *rest_template_get(request *rq, response *rs)
{
    CLEANUP(template_view_done) template_view t = {0};

    TRY(engine_template_manage(rest_engine(rq), rest_caller(rq), request_param(rq, 0), &t));
    response_json(rs, 200, view_template(&t));
    return NULL;
}

/* Applies a patch to the template's request, so that the result is
 * decoded and checked like a new one. */
static err *templates_patched(const template_view *t, const buf *body, create_template *ret_in)
{
    CLEANUP(buf_done) buf text = {0};
    CLEANUP(json_decrefp) json_t *patch = NULL;
    CLEANUP(json_decrefp) json_t *whole = template_request(t);
    const char *name;
    json_t *value;

    TRY(json_parse(body->p, body->len, &patch));
    if (!json_is_object(patch))
        return err_new(ERR_INVALID_REQUEST, "the body must be an object");
    json_object_foreach(patch, name, value)
    {
        if (json_is_null(value))
            json_object_del(whole, name);
        else
            json_object_set(whole, name, value);
    }
    json_write(&text, whole);
    return create_template_decode(text.p, text.len, ret_in);
}

err *rest_template_update(request *rq, response *rs)
{
    CLEANUP(create_template_done) create_template in = {0};
    CLEANUP(template_view_done) template_view t = {0};
    CLEANUP(template_view_done) template_view made = {0};
    CLEANUP(buf_done) buf body = {0};

    TRY(request_body(rq, BODY_MAX, &body));
    TRY(engine_template_manage(rest_engine(rq), rest_caller(rq), request_param(rq, 0), &t));
    TRY(templates_patched(&t, &body, &in));
    free(t.name);
    sandbox_spec_done(&t.spec);
    take_template(&in, &t);
    TRY(engine_template_update(rest_engine(rq), rest_caller(rq), &t, &made));
    response_json(rs, 200, view_template(&made));
    return NULL;
}

err *rest_template_delete(request *rq, response *rs)
{
    TRY(engine_template_remove(rest_engine(rq), rest_caller(rq), request_param(rq, 0)));
    response_status(rs, 204);
    return NULL;
}

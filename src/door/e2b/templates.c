/* Template builds, aliases, tags. The engine runs the builds (engine/build.h). */
#include "door/e2b/templates.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/digest.h"

#define LINES_PAGE  100u
#define UPLOAD_TIME 3600u /* seconds that an upload URL is valid */

/* ---- names ---- */

err *e2b_source(const e2b *d, const caller *c, const char *name, sandbox_spec *ret_spec)
{
    CLEANUP(snapshot_row_done) snapshot_row snapshot = {0};
    char id[SANDBOX_ID_LEN + 1] = "";
    err *e = engine_build_spec(d->o.engine, c, name, id, ret_spec);

    if (!e || e->code != ERR_NOT_FOUND)
        return e;
    size_t n = strcspn(name, ":");
    if (n != SANDBOX_ID_LEN || (name[n] && !str_eq(name + n, ":" BUILD_DEFAULT)))
        return e;
    memcpy(id, name, n);
    id[n] = 0;
    err *unknown = engine_snapshot_find(d->o.engine, c, id, &snapshot);
    if (unknown) {
        err_free(e);
        return unknown;
    }
    err_free(e);
    *ret_spec = (sandbox_spec){.snapshot = xstrdup(id)};
    return NULL;
}

const char *e2b_own_image(const e2b *d, const char *name)
{
    return str_eq(name, "base")                  ? d->o.base_image
           : str_eq(name, "code-interpreter-v1") ? d->o.code_interpreter_image
                                                 : NULL;
}

void e2b_own_start(const e2b *d, const char *name, start_spec *start)
{
    const char *text = d->o.code_interpreter_start;

    if (!text || !*text || !str_eq(name, "code-interpreter-v1"))
        return;
    strv_push(&start->argv, xstrdup("sh"));
    strv_push(&start->argv, xstrdup("-c"));
    strv_push(&start->argv, xstrdup(text));
}

/* ---- builds ---- */

static json_t *tags_json(const build_row *r)
{
    json_t *list = json_loads(r->tags, 0, NULL);

    return list ? list : json_array();
}

err *templates_new(request *rq, response *rs)
{
    CLEANUP(json_decrefp) json_t *body = NULL;
    CLEANUP(template_asked_done) template_asked a = {0};
    CLEANUP(build_row_done) build_row row = {0};

    TRY(control_body(rq, NULL, &body));
    TRY(template_asked_parse(body, &a));
    TRY(engine_build_new(e2b_engine(rq), e2b_caller(rq), a.name, a.tags, &a.limits, &row));
    response_json(rs, 202,
                  json_pack("{s:s,s:s,s:b,s:[s],s:[s],s:o}", "templateID", row.template, "buildID",
                            row.id, "public", 0, "names", row.name, "aliases", row.name, "tags",
                            tags_json(&row)));
    return NULL;
}

/* Gives the build the internet if the node allows it, like a sandbox that does not ask. */
static void take_network(const e2b *d, const caller *c, build_recipe *r)
{
    err *e = engine_check_network(d->o.engine, c);

    r->base.network = e ? NETWORK_NONE : NETWORK_OPEN;
    err_free(e);
}

static err *resolve_base(const e2b *d, const caller *c, build_recipe *r)
{
    CLEANUP(freep) char *name = TAKE_PTR(r->base.template);

    if (!name)
        return NULL;
    err *e = e2b_source(d, c, name, &r->base);
    if (!e || e->code != ERR_NOT_FOUND || !e2b_own_image(d, name))
        return err_wrap(e, "fromTemplate");
    err_free(e);
    r->base.image = xstrdup(e2b_own_image(d, name));
    e2b_own_start(d, name, &r->base.start);
    return NULL;
}

err *templates_start(request *rq, response *rs)
{
    CLEANUP(json_decrefp) json_t *body = NULL;
    CLEANUP(build_recipe_done) build_recipe r = {0};
    const e2b *d = e2b_of(rq);

    TRY(control_body(rq, NULL, &body));
    TRY(build_recipe_parse(body, &r));
    TRY(resolve_base(d, e2b_caller(rq), &r));
    take_network(d, e2b_caller(rq), &r);
    TRY(engine_build_start(d->o.engine, e2b_caller(rq), request_param(rq, 0), request_param(rq, 1),
                           &r));
    response_json(rs, 202, json_object());
    return NULL;
}

/* ---- progress ---- */

static json_t *text_json(const char *text)
{
    CLEANUP(buf_done) buf b = {0};

    buf_json_string(&b, text, strlen(text));
    json_t *j = json_loadb(b.p, b.len, JSON_DECODE_ANY, NULL);
    return j ? j : json_string("");
}

static json_t *line_json(const build_line *l)
{
    return json_pack("{s:o,s:o,s:s,s:s}", "timestamp", view_when(l->at_ns), "message",
                     text_json(l->text), "level", l->level, "step", l->step);
}

static err *templates_number(const request *rq, const char *name, uint64_t max, uint64_t *value)
{
    const char *text = request_query(rq, name);

    if (text && *text && !str_to_u64(text, max, value))
        return err_new(ERR_INVALID_REQUEST, "%s: must be a number, at most %llu", name,
                       (unsigned long long)max);
    return NULL;
}

static err *templates_entries(request *rq, const build_row *row, json_t **ret_entries)
{
    uint64_t from = 0, limit = LINES_PAGE;
    build_line *lines = NULL;
    size_t n = 0;

    TRY(templates_number(rq, "logsOffset", UINT32_MAX, &from));
    TRY(templates_number(rq, "limit", UINT32_MAX, &limit));
    limit = limit > LINES_PAGE ? LINES_PAGE : limit;
    engine_build_log(e2b_engine(rq), row->id, from, limit, &lines, &n);
    *ret_entries = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(*ret_entries, line_json(&lines[i]));
    build_lines_free(lines, n);
    return NULL;
}

err *templates_status(request *rq, response *rs)
{
    CLEANUP(build_row_done) build_row row = {0};
    json_t *list = NULL;

    /* Read before the lines: all lines of a build that has ended are there. */
    TRY(engine_build_find(e2b_engine(rq), e2b_caller(rq), request_param(rq, 0),
                          request_param(rq, 1), &row));
    TRY(templates_entries(rq, &row, &list));
    json_t *o = json_pack("{s:s,s:s,s:s,s:[],s:o}", "templateID", row.template, "buildID", row.id,
                          "status", row.state, "logs", "logEntries", list);
    if (row.reason) {
        json_t *reason = json_loads(row.reason, 0, NULL);
        json_object_set_new(reason, "logEntries", json_array());
        json_object_set_new(o, "reason", reason ? reason : json_null());
    }
    response_json(rs, 200, o);
    return NULL;
}

err *templates_logs(request *rq, response *rs)
{
    CLEANUP(build_row_done) build_row row = {0};
    json_t *list = NULL;

    TRY(engine_build_find(e2b_engine(rq), e2b_caller(rq), request_param(rq, 0),
                          request_param(rq, 1), &row));
    TRY(templates_entries(rq, &row, &list));
    response_json(rs, 200, json_pack("{s:o}", "logs", list));
    return NULL;
}

/* ---- files ---- */

/* Signs an upload URL for this template and hash. It is valid until that time, and until a key of
 * the template's owner is removed. */
static void upload_sign(const e2b *d, const char *owner, const char *template, const char *hash,
                        const char *until, char ret_text[2 * SHA256_LEN + 1])
{
    CLEANUP(freep) char *text = str_printf("upload:%s:%s:%s", template, hash, until);

    e2b_mac(d, text, engine_key_epoch(d->o.engine, owner), ret_text);
}

static char *link_for(request *rq, const char *owner, const char *template, const char *hash)
{
    const char *host = request_header(rq, "Host"), *proto = request_header(rq, "X-Forwarded-Proto");
    char until[24], signature[2 * SHA256_LEN + 1];

    snprintf(until, sizeof until, "%llu",
             (unsigned long long)(now_real_ns() / NS_PER_S + UPLOAD_TIME));
    upload_sign(e2b_of(rq), owner, template, hash, until, signature);
    return str_printf("%s://%s/templates/%s/files/%s?until=%s&signature=%s",
                      str_eq(proto, "https") ? "https" : "http", str_or(host, "localhost"),
                      template, hash, until, signature);
}

err *templates_link(request *rq, response *rs)
{
    const char *template = request_param(rq, 0), *hash = request_param(rq, 1);
    CLEANUP(freep) char *owner = NULL;
    const caller *c = e2b_caller(rq);

    if (!build_hash_valid(hash))
        return err_new(ERR_INVALID_REQUEST, "a hash is %u hexadecimal digits", UPLOAD_HASH_LEN);
    TRY(engine_build_owner(e2b_engine(rq), template, &owner));
    if (!str_eq(owner, c->owner) && c->role != CALLER_ADMIN)
        return err_kind(err_new(ERR_NOT_FOUND, "there is no template '%.64s'", template),
                        "template");
    CLEANUP(freep) char *url = link_for(rq, owner, template, hash);
    bool there = engine_upload_present(e2b_engine(rq), owner, hash);
    response_json(rs, 201, json_pack("{s:b,s:s}", "present", there, "url", url));
    return NULL;
}

static err *read_body(void *arg, void *p, size_t max, size_t *ret_n)
{
    return request_body_read(arg, p, max, ret_n);
}

static err *no_address(void)
{
    return err_new(ERR_UNAUTHENTICATED, "the address for an upload is not one of ours");
}

static err *check_signature(request *rq, const char *template, const char *hash, char **ret_owner)
{
    const char *until = request_query(rq, "until"), *given = request_query(rq, "signature");
    CLEANUP(freep) char *owner = NULL;
    char right[2 * SHA256_LEN + 1];
    uint64_t s = 0;

    if (!until || !given || strlen(until) > 20 || strlen(template) > SANDBOX_ID_LEN ||
        !build_hash_valid(hash))
        return no_address();
    err *e = engine_build_owner(e2b_engine(rq), template, &owner);
    if (e && e->code != ERR_NOT_FOUND)
        return e;
    err_free(e);
    upload_sign(e2b_of(rq), str_or(owner, ""), template, hash, until, right);
    if (strlen(given) != sizeof right - 1 || !bytes_equal_ct(given, right, sizeof right - 1) ||
        !owner)
        return no_address();
    if (!str_to_u64(until, UINT64_MAX, &s) || s < now_real_ns() / NS_PER_S)
        return err_remedy(err_new(ERR_FORBIDDEN, "the time for this upload is over"),
                          "Ask for another address.");
    *ret_owner = TAKE_PTR(owner);
    return NULL;
}

err *templates_upload(request *rq, response *rs)
{
    const char *template = request_param(rq, 0), *hash = request_param(rq, 1);
    CLEANUP(freep) char *owner = NULL;

    TRY(check_signature(rq, template, hash, &owner));
    TRY(request_set_party(rq, owner));
    request_set_kind(rq, STREAM_FILES);
    TRY(engine_upload(e2b_engine(rq), owner, hash, read_body, rq));
    response_status(rs, 204);
    return NULL;
}

/* ---- templates ---- */

err *templates_alias(request *rq, response *rs)
{
    const char *name = request_param(rq, 0);
    char id[SANDBOX_ID_LEN + 1] = "";
    build_row *rows = NULL;
    size_t n = 0;
    err *e = engine_build_spec(e2b_engine(rq), e2b_caller(rq), name, id, NULL);

    if (e && e->code == ERR_NOT_FOUND && !strchr(name, ':')) { /* it may have other tags only */
        TRY(engine_build_list(e2b_engine(rq), e2b_caller(rq), name, &rows, &n));
        if (n)
            str_copy(id, sizeof id, rows[0].template);
        build_rows_free(rows, n);
    }
    bool own = e2b_own_image(e2b_of(rq), name) != NULL;
    if (e && (e->code != ERR_NOT_FOUND || (!n && !own)))
        return e;
    err_free(e);
    response_json(rs, 200,
                  json_pack("{s:s,s:b}", "templateID", id[0] ? id : name, "public", id[0] == 0));
    return NULL;
}

static err *tags_body(request *rq, const char *member, json_t **ret_body, const char **ret_name,
                      char ***ret_tags)
{
    TRY(control_body(rq, NULL, ret_body));
    *ret_name = json_str(*ret_body, member);
    if (!*ret_name || !**ret_name)
        return err_new(ERR_INVALID_REQUEST, "%s: missing", member);
    return wire_strings(json_object_get(*ret_body, "tags"), "tags", BUILD_TAGS_MAX, BUILD_TAG_LEN,
                        ret_tags);
}

err *templates_tag(request *rq, response *rs)
{
    CLEANUP(json_decrefp) json_t *body = NULL;
    CLEANUP(strv_freep) char **tags = NULL;
    char id[BUILD_ID_LEN + 1];
    const char *name;

    TRY(tags_body(rq, "target", &body, &name, &tags));
    TRY(engine_build_tag(e2b_engine(rq), e2b_caller(rq), name, tags, id));
    response_json(rs, 201,
                  json_pack("{s:s,s:O}", "buildID", id, "tags", json_object_get(body, "tags")));
    return NULL;
}

err *templates_untag(request *rq, response *rs)
{
    CLEANUP(json_decrefp) json_t *body = NULL;
    CLEANUP(strv_freep) char **tags = NULL;
    const char *name;

    TRY(tags_body(rq, "name", &body, &name, &tags));
    TRY(engine_build_untag(e2b_engine(rq), e2b_caller(rq), name, tags));
    response_status(rs, 204);
    return NULL;
}

err *templates_tags(request *rq, response *rs)
{
    build_row *rows = NULL;
    size_t n = 0, k;
    json_t *list = json_array(), *tag;

    err *e = engine_build_list(e2b_engine(rq), e2b_caller(rq), request_param(rq, 0), &rows, &n);
    for (size_t i = 0; i < n; i++) {
        CLEANUP(json_decrefp) json_t *tags = tags_json(&rows[i]);
        json_array_foreach(tags, k, tag) json_array_append_new(
            list, json_pack("{s:O,s:s,s:o}", "tag", tag, "buildID", rows[i].id, "createdAt",
                            view_when(rows[i].changed_ns)));
    }
    build_rows_free(rows, n);
    if (!e && !n)
        e = err_kind(err_new(ERR_NOT_FOUND, "there is no template '%.128s'", request_param(rq, 0)),
                     "template");
    if (e) {
        json_decref(list);
        return e;
    }
    response_json(rs, 200, list);
    return NULL;
}

/* Returns one template of the list. Templates that were not built here get a zero build id. */
static json_t *templates_listed(const template_view *t, const build_row *rows, size_t n)
{
    static const char NO_BUILD[] = "00000000-0000-0000-0000-000000000000";
    const build_row *b = NULL;

    for (size_t i = 0; i < n; i++)
        if (str_eq(rows[i].template, t->id) && str_eq(rows[i].snapshot, t->spec.snapshot))
            b = &rows[i];
    return json_pack("{s:s,s:s,s:I,s:I,s:I,s:b,s:[s],s:[s],s:o,s:o,s:n,s:n,s:i,s:i,s:s,s:s}",
                     "templateID", t->id, "buildID", b ? b->id : NO_BUILD, "cpuCount",
                     (json_int_t)((t->spec.limits.cpu_milli + 999) / 1000), "memoryMB",
                     (json_int_t)(t->spec.limits.memory >> 20), "diskSizeMB",
                     (json_int_t)(t->spec.limits.disk >> 20), "public", t->public, "aliases",
                     t->name, "names", t->name, "createdAt", view_when(t->created_ns), "updatedAt",
                     view_when(t->changed_ns), "createdBy", "lastSpawnedAt", "spawnCount", 0,
                     "buildCount", b ? 1 : 0, "envdVersion", ENVD_VERSION, "buildStatus", "ready");
}

err *templates_list(request *rq, response *rs)
{
    template_view *all = NULL;
    build_row *rows = NULL;
    size_t n = 0, nrows = 0;

    TRY(engine_build_list(e2b_engine(rq), e2b_caller(rq), NULL, &rows, &nrows));
    err *e = engine_template_list(e2b_engine(rq), e2b_caller(rq), &all, &n);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(list, templates_listed(&all[i], rows, nrows));
        template_view_done(&all[i]);
    }
    free(all);
    build_rows_free(rows, nrows);
    if (e) {
        json_decref(list);
        return e;
    }
    response_json(rs, 200, list);
    return NULL;
}

err *templates_delete(request *rq, response *rs)
{
    const char *name = request_param(rq, 0);
    err *e = engine_build_remove(e2b_engine(rq), e2b_caller(rq), name);

    if (e && e->code == ERR_NOT_FOUND && strcspn(name, ":") == SANDBOX_ID_LEN) {
        err_free(e);
        e = snapshots_remove(rq, name);
    }
    TRY(e);
    response_status(rs, 204);
    return NULL;
}

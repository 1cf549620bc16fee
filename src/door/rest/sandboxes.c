/* /v1/sandboxes: create, list, show, change, end. */
#include <string.h>

#include "api/openapi.h"
#include "base/str.h"
#include "core/lifecycle.h"
#include "door/rest/internal.h"
#include "door/rest/spec.h"

#define BODY_MAX    (4 << 20)
#define CREATE_HELD (128 << 10) /* memory that a create counts for, in addition to its body */

/* ---- create ---- */

/* Moves the decoded request into a spec. A member that a spec cannot
 * express is an error, never ignored. */
static err *take_create(create_sandbox *in, sandbox_spec *out)
{
    if (in->tier == CREATE_SANDBOX_TIER_STRONG)
        return err_remedy(err_new(ERR_UNSUPPORTED, "tier: this node has no strong tier"),
                          "Leave tier out for the light one, or use a node that has it.");
    *out = (sandbox_spec){.image = TAKE_PTR(in->image),
                          .template = TAKE_PTR(in->template),
                          .snapshot = TAKE_PTR(in->snapshot),
                          .name = TAKE_PTR(in->name),
                          .env = TAKE_PTR(in->env),
                          .secrets = TAKE_PTR(in->secrets),
                          .user = TAKE_PTR(in->user),
                          .cwd = TAKE_PTR(in->cwd),
                          .labels = TAKE_PTR(in->labels),
                          .ttl_ms = in->has_ttl ? in->ttl * 1000 : 0,
                          .idle_ms = in->has_idle ? in->idle * 1000 : 0,
                          .queue_ms = in->has_queue_wait ? in->queue_wait * 1000 : 0,
                          .read_only = in->read_only,
                          .has_network = in->network != CREATE_SANDBOX_NETWORK_UNSET,
                          .network = in->network == CREATE_SANDBOX_NETWORK_OPEN ? NETWORK_OPEN
                                                                                : NETWORK_NONE,
                          .has_umask = in->has_umask,
                          .umask = in->umask};
    if (in->has_limits)
        spec_take_limits(&in->limits, &out->limits);
    spec_take_tmpfs(in->tmpfs, in->ntmpfs, out);
    if (in->has_start)
        spec_take_start(&in->start, out);
    for (size_t i = 0; i < in->ngrants; i++)
        out->setuid |= in->grants[i] == CREATE_SANDBOX_GRANTS_SETUID;
    return NULL;
}

typedef struct creating {
    engine *engine;
    sandbox *sb;
} creating;

static void on_created(void *arg, err *failure, sandbox *sb, bool replay)
{
    wait_finish(arg, failure, 201, sb ? view_sandbox_now(sb) : NULL, replay);
    sandbox_unref(sb);
}

static void create_over(void *arg, bool early)
{
    creating *c = arg;

    if (early && c->sb)
        engine_create_leave(c->engine, c->sb);
    sandbox_unref(c->sb);
    free(c);
}

static enum pull_policy policy_of(enum create_sandbox_pull p)
{
    return p == CREATE_SANDBOX_PULL_ALWAYS  ? PULL_ALWAYS
           : p == CREATE_SANDBOX_PULL_NEVER ? PULL_NEVER
                                            : PULL_MISSING;
}

err *rest_sandbox_create(request *rq, response *rs)
{
    CLEANUP(create_sandbox_done) create_sandbox in = {0};
    CLEANUP(sandbox_spec_done) sandbox_spec spec = {0};
    CLEANUP(body_wipe) buf body = {0};
    request_hold *hold = NULL;
    idempotency idem;

    TRY(request_body(rq, BODY_MAX, &body));
    TRY(rest_idempotency(rq, &body, &idem));
    TRY(create_sandbox_decode(body.p, body.len, &in));
    TRY(take_create(&in, &spec));
    TRY(request_hold_new(rq, body.len + CREATE_HELD, &hold));
    creating *made = xcalloc(1, sizeof *made);
    wait_ticket *t = wait_start(rq, rs, false);
    made->engine = rest_engine(rq);
    wait_hold(t, hold);
    wait_over(t, create_over, made);
    made->sb = engine_create(made->engine, rest_caller(rq), &spec, policy_of(in.pull), &idem,
                             on_created, t);
    return NULL;
}

/* ---- list ---- */

static const char *query_find(void *arg, const char *name)
{
    return request_query(arg, name);
}

static void collect_label(void *arg, const char *name, const char *value)
{
    if (!strcmp(name, "label"))
        strv_push(arg, xstrdup(value));
}

static void collect_state(void *arg, const char *name, const char *value)
{
    enum lifecycle state = strcmp(name, "state") ? LIFE_STATES : lifecycle_by_name(value);

    if (state != LIFE_STATES)
        *(unsigned *)arg |= 1u << state;
}

err *rest_sandbox_list(request *rq, response *rs)
{
    CLEANUP(sandbox_list_query_done) sandbox_list_query q = {0};
    CLEANUP(strv_freep) char **labels = NULL;
    CLEANUP(freep) sandbox_view *views = NULL;
    CLEANUP(freep) char *next = NULL;
    unsigned states = 0;
    size_t n = 0;

    TRY(sandbox_list_query_decode(query_find, rq, &q));
    request_query_each(rq, collect_label, &labels);
    request_query_each(rq, collect_state, &states);
    sandbox_filter f = {
        .labels = labels, .states = states, .name = q.name, .after = q.cursor, .max = q.limit};
    TRY(engine_list(rest_engine(rq), rest_caller(rq), &f, &views, &n, &next));
    CLEANUP(freep) box_usage *usage = q.usage ? engine_usage(rest_engine(rq), views, n) : NULL;
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *one = view_sandbox(&views[i]);
        if (usage)
            json_object_set_new(one, "usage", view_box_usage(&usage[i]));
        json_array_append_new(list, one);
        sandbox_view_done(&views[i]);
    }
    response_json(
        rs, 200,
        json_pack("{s:o,s:o}", "sandboxes", list, "next", next ? json_string(next) : json_null()));
    return NULL;
}

/* ---- one sandbox ---- */

/* GET /v1/sandboxes/{id}. Only here with the receipt and the pause facts:
 * they would be most of a long list. */
err *rest_sandbox_get(request *rq, response *rs)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(sandbox_view_done) sandbox_view v = {0};
    sandbox_get_query q = {0};

    TRY(sandbox_get_query_decode(query_find, rq, &q));
    TRY(engine_find(rest_engine(rq), rest_caller(rq), request_param(rq, 0), &sb));
    sandbox_get(sb, &v);
    json_t *o = view_sandbox(&v);
    json_object_set_new(o, "pause", view_pause(&v));
    json_object_set_new(o, "walls", view_walls(&v));
    CLEANUP(freep) box_usage *usage = engine_usage(rest_engine(rq), &v, q.usage ? 1 : 0);
    if (q.usage)
        json_object_set_new(o, "usage", view_box_usage(usage));
    response_json(rs, 200, o);
    return NULL;
}

err *rest_sandbox_update(request *rq, response *rs)
{
    CLEANUP(patch_sandbox_done) patch_sandbox in = {0};
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(buf_done) buf body = {0};

    TRY(request_body(rq, BODY_MAX, &body));
    TRY(patch_sandbox_decode(body.p, body.len, &in));
    sandbox_patch p = {.has_ttl = in.has_ttl,
                       .ttl_ms = in.has_ttl ? in.ttl * 1000 : 0,
                       .has_idle = in.has_idle,
                       .idle_ms = in.has_idle ? in.idle * 1000 : 0,
                       .labels = in.labels};
    if (in.has_limits)
        spec_take_limits(&in.limits, &p.limits);
    TRY(engine_find(rest_engine(rq), rest_caller(rq), request_param(rq, 0), &sb));
    TRY(engine_update(rest_engine(rq), rest_caller(rq), sb, &p));
    response_json(rs, 200, view_sandbox_now(sb));
    return NULL;
}

static enum cause_kind cause_of(enum sandbox_delete_query_cause c)
{
    return c == SANDBOX_DELETE_QUERY_CAUSE_BUDGET   ? CAUSE_BUDGET
           : c == SANDBOX_DELETE_QUERY_CAUSE_POLICY ? CAUSE_POLICY
                                                    : CAUSE_REQUESTED;
}

/* DELETE /v1/sandboxes with an Idempotency-Key: ends the sandbox of a create
 * whose id the client never learned. */
err *rest_sandbox_undo(request *rq, response *rs)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    const buf any = {0}; /* matches any body of the create */
    idempotency idem;

    TRY(rest_idempotency(rq, &any, &idem));
    if (!idem.key)
        return err_remedy(err_new(ERR_INVALID_REQUEST, "Idempotency-Key: is missing"),
                          "Send the key of the create that is to be undone, or end a sandbox by "
                          "its id.");
    TRY(engine_find_by_key(rest_engine(rq), rest_caller(rq), &idem, &sb));
    if (!sb)
        return err_kind(err_new(ERR_NOT_FOUND, "no sandbox of yours was created with this key"),
                        "sandbox");
    TRY(engine_delete(rest_engine(rq), rest_caller(rq), sb, CAUSE_REQUESTED, NULL));
    response_json(rs, 200, view_sandbox_now(sb));
    return NULL;
}

err *rest_sandbox_delete(request *rq, response *rs)
{
    CLEANUP(sandbox_delete_query_done) sandbox_delete_query q = {0};
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;

    TRY(sandbox_delete_query_decode(query_find, rq, &q));
    TRY(engine_find(rest_engine(rq), rest_caller(rq), request_param(rq, 0), &sb));
    TRY(engine_delete(rest_engine(rq), rest_caller(rq), sb, cause_of(q.cause), q.detail));
    response_json(rs, 200, view_sandbox_now(sb));
    return NULL;
}

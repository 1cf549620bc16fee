/* /v1/snapshots, snapshots of a sandbox, and forks. */
#include "api/openapi.h"
#include "base/json.h"
#include "door/rest/internal.h"
#include "door/rest/spec.h"
#include "door/shared/fork.h"

static json_t *view_snapshot(const snapshot_row *r)
{
    json_t *o = json_pack("{s:s,s:s,s:s,s:s,s:I,s:I,s:s}", "id", r->id, "owner", r->owner,
                          "sandbox", r->sandbox, "image", r->image, "bytes", (json_int_t)r->bytes,
                          "entries", (json_int_t)r->entries, "holds", "files");

    json_object_set_new(o, "created", view_time(r->created_ns));
    return o;
}

static void on_taken(void *arg, err *failure, const snapshot_row *row, uint64_t still_ns)
{
    json_t *o = row ? view_snapshot(row) : NULL;

    if (o)
        json_object_set_new(o, "still_ms", json_real((double)still_ns / 1e6));
    wait_finish(arg, failure, 201, o, false);
}

/* Starts a snapshot. The disk decides how long it takes, so no request thread waits. */
err *rest_snapshot_create(request *rq, response *rs)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;

    TRY(engine_find(rest_engine(rq), rest_caller(rq), request_param(rq, 0), &sb));
    wait_ticket *t = wait_start(rq, rs, false);
    err *refused = engine_snapshot_start(rest_engine(rq), rest_caller(rq), sb, on_taken, t);
    if (refused)
        wait_finish(t, refused, 0, NULL, false);
    return NULL;
}

static err *answer_list(request *rq, response *rs, const sandbox *sb)
{
    CLEANUP(freep) snapshot_row *rows = NULL;
    size_t n = 0;

    TRY(engine_snapshot_list(rest_engine(rq), rest_caller(rq), sb, &rows, &n));
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(list, view_snapshot(&rows[i]));
        snapshot_row_done(&rows[i]);
    }
    response_json(rs, 200, json_pack("{s:o}", "snapshots", list));
    return NULL;
}

err *rest_snapshot_list(request *rq, response *rs)
{
    return answer_list(rq, rs, NULL);
}

err *rest_sandbox_snapshots(request *rq, response *rs)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;

    TRY(engine_find(rest_engine(rq), rest_caller(rq), request_param(rq, 0), &sb));
    return answer_list(rq, rs, sb);
}

err *rest_snapshot_get(request *rq, response *rs)
{
    CLEANUP(snapshot_row_done) snapshot_row row = {0};

    TRY(engine_snapshot_find(rest_engine(rq), rest_caller(rq), request_param(rq, 0), &row));
    response_json(rs, 200, view_snapshot(&row));
    return NULL;
}

err *rest_snapshot_delete(request *rq, response *rs)
{
    TRY(engine_snapshot_remove(rest_engine(rq), rest_caller(rq), request_param(rq, 0)));
    response_status(rs, 204);
    return NULL;
}

/* ---- forks ---- */

#define FORK_BODY_MAX (4 << 20) /* each child has a spec of its own */

static json_t *view_forked(const void *arg, sandbox *const *children, size_t n, uint64_t still_ns)
{
    json_t *list = json_array();

    (void)arg;
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, view_sandbox_now(children[i]));
    return json_pack("{s:o,s:s,s:f}", "sandboxes", list, "holds", "files", "still_ms",
                     (double)still_ns / 1e6);
}

static fork_request take_fork(fork_sandbox *in)
{
    fork_request r = {.count = (unsigned)in->count,
                      .despite_secrets = in->despite_secrets,
                      .spec = {.env = TAKE_PTR(in->env),
                               .secrets = TAKE_PTR(in->secrets),
                               .labels = TAKE_PTR(in->labels),
                               .ttl_ms = in->has_ttl ? in->ttl * 1000 : 0,
                               .queue_ms = in->has_queue_wait ? in->queue_wait * 1000 : 0}};

    if (in->has_limits)
        spec_take_limits(&in->limits, &r.spec.limits);
    return r;
}

err *rest_sandbox_fork(request *rq, response *rs)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(fork_sandbox_done) fork_sandbox in = {.count = 1};
    CLEANUP(body_wipe) buf body = {0};
    fork_asked a = {.engine = rest_engine(rq), .who = rest_caller(rq), .view = view_forked};

    TRY(engine_find(rest_engine(rq), rest_caller(rq), request_param(rq, 0), &sb));
    TRY(request_body(rq, FORK_BODY_MAX, &body));
    if (body.len)
        TRY(fork_sandbox_decode(body.p, body.len, &in));
    TRY(request_hold_new(rq, in.count * (body.len + FORK_HELD), &a.hold));
    a.parent = sb;
    a.what = take_fork(&in);
    fork_start(rq, rs, &a);
    return NULL;
}

/* …/reset. */
#include "api/openapi.h"
#include "door/rest/internal.h"

#define BODY_MAX   (4 << 20)
#define RESET_HELD (128 << 10) /* what a reset counts for beside its body */

typedef struct waiting {
    wait_ticket *ticket;
    request_hold *hold; /* until it is done, also when its caller has gone */
} waiting;

static json_t *sandbox_json(sandbox *sb)
{
    CLEANUP(sandbox_view_done) sandbox_view v;

    sandbox_get(sb, &v);
    return view_sandbox(&v);
}

static void on_reset(void *arg, err *failure, sandbox *sb, bool replay)
{
    waiting *w = arg;

    wait_finish(w->ticket, failure, 200, sb ? sandbox_json(sb) : NULL, replay);
    request_hold_free(w->hold);
    free(w);
    sandbox_unref(sb);
}

err *rest_sandbox_reset(request *rq, response *rs)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(reset_sandbox_done) reset_sandbox in = {0};
    CLEANUP(sandbox_spec_done) sandbox_spec with = {0};
    CLEANUP(body_wipe) buf body = {0};
    request_hold *hold = NULL;
    idempotency idem;

    TRY(request_body(rq, BODY_MAX, &body));
    TRY(rest_idempotency(rq, &body, &idem));
    if (body.len)
        TRY(reset_sandbox_decode(body.p, body.len, &in));
    TRY(engine_find(rest_engine(rq), rest_caller(rq), request_param(rq, 0), &sb));
    with.env = TAKE_PTR(in.env);
    with.secrets = TAKE_PTR(in.secrets);
    with.queue_ms = in.has_queue_wait ? in.queue_wait * 1000 : 0;
    TRY(request_hold_new(rq, body.len + RESET_HELD, &hold));
    waiting *w = xcalloc(1, sizeof *w);
    *w = (waiting){wait_start(rq, rs, false), hold};
    engine_reset(rest_engine(rq), rest_caller(rq), sb, &with, &idem, on_reset, w);
    return NULL;
}

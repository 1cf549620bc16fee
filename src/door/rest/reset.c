/* …/reset. */
#include "api/openapi.h"
#include "door/rest/internal.h"

#define BODY_MAX   (4 << 20)
#define RESET_HELD (128 << 10) /* memory that a reset counts for, in addition to its body */

static void on_reset(void *arg, err *failure, sandbox *sb, bool replay)
{
    wait_finish(arg, failure, 200, sb ? view_sandbox_now(sb) : NULL, replay);
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
    wait_ticket *t = wait_start(rq, rs, false);
    wait_hold(t, hold);
    engine_reset(rest_engine(rq), rest_caller(rq), sb, &with, &idem, on_reset, t);
    return NULL;
}

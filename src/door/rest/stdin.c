/* POST …/stdin: appends at once, or waits without a thread until the command has read enough. */
#include <string.h>

#include "api/openapi.h"
#include "base/str.h"
#include "door/rest/internal.h"

#define STDIN_MAX (1 << 20) /* of one request */

typedef struct feed {
    exec *x;
    exec_watch watch;
    buf body;
    uint64_t offset; /* UINT64_MAX: append */
    bool eof;
    request_hold *hold;
    char *request_id;
} feed;

static void on_room(void *arg)
{
    relay_wake(arg);
}

static void on_start(void *ctx, relay_job *job)
{
    feed *f = ctx;

    f->watch = (exec_watch){.notify = on_room, .arg = job};
    exec_watch_add(f->x, &f->watch);
}

static void on_free(void *ctx)
{
    feed *f = ctx;

    exec_unwatch(f->x, &f->watch);
    exec_unref(f->x);
    secret_wipe(f->body.p, f->body.cap);
    buf_done(&f->body);
    request_hold_free(f->hold);
    free(f->request_id);
    free(f);
}

/* Pushed back: more than stdin_max bytes wait to be read. */
static bool is_full(const err *e)
{
    return e && e->code == ERR_QUOTA_EXCEEDED && str_eq(e->kind, "stdin");
}

static enum relay_next on_step(void *ctx, relay_io *io)
{
    feed *f = ctx;
    CLEANUP(err_freep) err *failure = exec_stdin(f->x, f->body.p, f->body.len, f->offset, f->eof);

    if (is_full(failure))
        return RELAY_WAIT;
    if (failure) {
        http_error_answer(io->out, failure, io->keep_alive, f->request_id);
    } else {
        CLEANUP(json_decrefp)
        json_t *body = json_pack("{s:I}", "length", (json_int_t)exec_stdin_length(f->x));
        http_json_answer(io->out, 200, body, io->keep_alive, f->request_id, NULL);
    }
    return io->keep_alive ? RELAY_DONE : RELAY_CLOSE;
}

static const relay_ops FEED_OPS = {
    .kind = STREAM_INPUT, .start = on_start, .step = on_step, .free = on_free};

static const char *query_find(void *arg, const char *name)
{
    return request_query(arg, name);
}

err *rest_process_stdin(request *rq, response *rs)
{
    CLEANUP(process_stdin_query_done) process_stdin_query q = {0};
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(exec_unrefp) exec *x = NULL;
    CLEANUP(body_wipe) buf body = {0};
    request_hold *hold = NULL;

    TRY(process_stdin_query_decode(query_find, rq, &q));
    TRY(rest_find_exec(rq, &sb, &x));
    TRY(engine_awake(sb));
    TRY(request_body(rq, STDIN_MAX, &body));
    TRY(request_hold_new(rq, body.len, &hold));
    feed *f = xcalloc(1, sizeof *f);
    *f = (feed){.x = TAKE_PTR(x),
                .body = body,
                .offset = q.has_offset ? q.offset : UINT64_MAX,
                .eof = q.eof,
                .hold = hold,
                .request_id = xstrdup(request_id(rq))};
    body = (buf){0};
    response_relay(rs, &FEED_OPS, f);
    return NULL;
}

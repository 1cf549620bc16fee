#include "door/shared/feed.h"

#include "base/cleanup.h"
#include "base/str.h"

typedef struct feed {
    exec *x;
    exec_watch watch;
    buf body;
    size_t fed;
    feed_options o;
    const error_form *form;
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

bool feed_is_full(const err *e)
{
    return e && e->code == ERR_QUOTA_EXCEEDED && str_eq(e->kind, "stdin");
}

/* Appends the body. A large body is appended in pieces, as a whole it could be refused for its
 * size. With an offset it stays whole, as the offset is that of the whole body. */
static err *feed_append(feed *f)
{
    bool pieces = f->o.offset == UINT64_MAX && f->body.len > FEED_WHOLE;

    for (;;) {
        size_t left = f->body.len - f->fed;
        size_t n = pieces && left > FEED_PIECE ? FEED_PIECE : left;
        bool last = n == left;
        TRY(exec_stdin(f->x, f->body.p ? f->body.p + f->fed : "", n, f->o.offset,
                       last && f->o.eof));
        f->fed += n;
        if (last)
            return NULL;
    }
}

static enum relay_next on_step(void *ctx, relay_io *io)
{
    feed *f = ctx;
    CLEANUP(err_freep) err *failure = feed_append(f);

    if (feed_is_full(failure)) {
        if (!f->o.deadline_ns || io->now < f->o.deadline_ns) {
            io->wake_at = f->o.deadline_ns;
            return RELAY_WAIT;
        }
        err_free(failure);
        failure = err_new(ERR_TIMEOUT, "the command has not read its input in time");
    }
    if (failure && f->o.told)
        failure = f->o.told(f->x, failure);
    if (failure)
        http_error_answer_as(io->out, f->form, failure, io->keep_alive, f->request_id);
    else
        f->o.answer(io, f->x, f->request_id);
    return io->keep_alive ? RELAY_DONE : RELAY_CLOSE;
}

static const relay_ops FEED_OPS = {
    .kind = STREAM_INPUT, .start = on_start, .step = on_step, .free = on_free};

err *feed_start(request *rq, response *rs, exec *x, buf *body, const feed_options *o)
{
    request_hold *hold = NULL;

    TRY(request_hold_new(rq, body->len, &hold));
    feed *f = xcalloc(1, sizeof *f);
    *f = (feed){.x = exec_ref(x),
                .body = *body,
                .o = *o,
                .form = response_form(rs),
                .hold = hold,
                .request_id = xstrdup(request_id(rq))};
    *body = (buf){0};
    response_relay(rs, &FEED_OPS, f);
    return NULL;
}

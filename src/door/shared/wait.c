#include "door/shared/wait.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "base/thread.h"
#include "door/shared/stream.h"
#include "wire/sse.h"

struct wait_ticket {
    _Atomic int refs;
    pthread_mutex_t lock;
    relay_job *job; /* between start and free */
    char *request_id;
    const error_form *form;
    bool events;
    request_hold *hold; /* released by wait_finish() */
    /* under the lock */
    buf pending;         /* events that the relay has not got yet */
    bool finished, gone; /* there is an answer; the caller has disconnected */
    err *failure;
    int status;
    json_t *body;
    bool replay;
    void (*over)(void *arg, bool early);
    void *over_arg;
    /* used by the relay only */
    bool head_sent;
};

static void ticket_unref(wait_ticket *t)
{
    if (atomic_fetch_sub(&t->refs, 1) > 1)
        return;
    err_free(t->failure);
    json_decref(t->body);
    buf_done(&t->pending);
    free(t->request_id);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

static void on_start(void *ctx, relay_job *job)
{
    wait_ticket *t = ctx;
    LOCK_SCOPE(&t->lock);

    t->job = job;
}

static void on_free(void *ctx)
{
    wait_ticket *t = ctx;

    pthread_mutex_lock(&t->lock);
    t->job = NULL;
    t->gone = true;
    bool early = !t->finished;
    pthread_mutex_unlock(&t->lock);
    if (t->over)
        t->over(t->over_arg, early);
    ticket_unref(t);
}

static enum relay_next answer_whole(wait_ticket *t, relay_io *io)
{
    if (t->failure)
        http_error_answer_as(io->out, t->form, t->failure, io->keep_alive, t->request_id);
    else if (!t->body)
        http_head_write(io->out, &(http_head){.status = t->status,
                                              .keep_alive = io->keep_alive,
                                              .request_id = t->request_id});
    else
        http_json_answer(io->out, t->status, t->body, io->keep_alive, t->request_id,
                         t->replay ? "Idempotent-Replay: true\r\n" : NULL);
    return io->keep_alive ? RELAY_DONE : RELAY_CLOSE;
}

static void last_event(wait_ticket *t, buf *events)
{
    CLEANUP(buf_done) buf data = {0};
    CLEANUP(json_decrefp)
    json_t *e = t->failure ? json_pack("{s:o}", "error", json_of_err(t->failure, t->request_id))
                           : NULL; /* in the form of an error answer */

    json_write(&data, e ? e : t->body);
    sse_write(events, e ? "error" : "image", NULL, data.p, data.len);
}

static enum relay_next answer_events(wait_ticket *t, relay_io *io)
{
    CLEANUP(buf_done) buf events = {0};

    if (!t->head_sent) {
        http_head_write(io->out, &(http_head){.status = 200,
                                              .type = "text/event-stream",
                                              .length = -1,
                                              .chunked = io->http11,
                                              .keep_alive = io->keep_alive && io->http11,
                                              .request_id = t->request_id});
        t->head_sent = true;
    }
    buf_append(&events, t->pending.p, t->pending.len);
    buf_clear(&t->pending);
    if (t->finished)
        last_event(t, &events);
    if (events.len)
        stream_put(io, events.p, events.len);
    if (!t->finished)
        return RELAY_WAIT;
    stream_put(io, NULL, 0);
    return stream_done(io);
}

static enum relay_next on_step(void *ctx, relay_io *io)
{
    wait_ticket *t = ctx;
    LOCK_SCOPE(&t->lock);

    /* A pull that fails before its first event gets an ordinary error answer. */
    if (t->events && !(t->finished && t->failure && !t->head_sent))
        return answer_events(t, io);
    return t->finished ? answer_whole(t, io) : RELAY_WAIT;
}

static const relay_ops WAIT_OPS = {
    .kind = STREAM_WAIT, .start = on_start, .step = on_step, .free = on_free};

wait_ticket *wait_start(request *rq, response *rs, bool events)
{
    wait_ticket *t = xcalloc(1, sizeof *t);

    t->refs = 2;
    t->events = events;
    t->form = response_form(rs);
    t->request_id = xstrdup(request_id(rq));
    pthread_mutex_init(&t->lock, NULL);
    response_relay(rs, &WAIT_OPS, t);
    return t;
}

void wait_hold(wait_ticket *t, request_hold *hold)
{
    t->hold = hold;
}

void wait_over(wait_ticket *t, void (*over)(void *arg, bool early), void *arg)
{
    t->over = over;
    t->over_arg = arg;
}

static void wake_locked(wait_ticket *t)
{
    if (t->job)
        relay_wake(t->job);
}

void wait_event(wait_ticket *t, const char *event, json_t *data)
{
    CLEANUP(json_decrefp) json_t *owned = data;
    CLEANUP(buf_done) buf text = {0};
    LOCK_SCOPE(&t->lock);

    json_write(&text, owned);
    if (t->pending.len < 65536) /* a client that does not read misses progress, not the result */
        sse_write(&t->pending, event, NULL, text.p, text.len);
    wake_locked(t);
}

bool wait_finish(wait_ticket *t, err *failure, int status, json_t *body, bool replay)
{
    pthread_mutex_lock(&t->lock);
    t->failure = failure;
    t->status = status;
    t->body = body;
    t->replay = replay;
    t->finished = true;
    bool gone = t->gone;
    wake_locked(t);
    pthread_mutex_unlock(&t->lock);
    request_hold_free(t->hold);
    ticket_unref(t);
    return !gone;
}

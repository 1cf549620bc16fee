/* POST …/stdin: bytes for a command, appended when there is room. No thread waits for that: the
 * relay tries again whenever the command has read some (the exec's watch). */
#include <string.h>

#include "base/str.h"
#include "door/rest/internal.h"

typedef struct feed {
    exec *x;
    exec_watch watch;
    buf body; /* may hold secrets: wiped */
    uint64_t offset;
    bool eof;
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
    free(f->request_id);
    free(f);
}

/* What the command has not read yet is too much: the one refusal that passes by itself. */
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

static const relay_ops FEED_OPS = {.start = on_start, .step = on_step, .free = on_free};

void feed_start(request *rq, response *rs, exec *x, buf *body, uint64_t offset, bool eof)
{
    feed *f = xcalloc(1, sizeof *f);

    f->x = exec_ref(x);
    f->body = *body;
    *body = (buf){0};
    f->offset = offset;
    f->eof = eof;
    f->request_id = xstrdup(request_id(rq));
    response_relay(rs, &FEED_OPS, f);
}

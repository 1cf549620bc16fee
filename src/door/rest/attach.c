/* A WebSocket to one command: its output from an offset and then live, its input, control messages.
 *
 * One relay job per connection. Output is read from the spool by offset, so that a client
 * that reconnects continues where it was. Input goes to the command as it comes, also while
 * the peer takes no output. At most one message waits if the command's buffer is full;
 * meanwhile the peer is not read. */
#include <stdio.h>
#include <string.h>

#include "api/openapi.h"
#include "base/clock.h"
#include "base/str.h"
#include "door/rest/internal.h"
#include "wire/ws.h"

#define PROTOCOL    "bothy.v1"
#define MESSAGE_MAX (64 * 1024)
#define CHUNK       (16 * 1024)
#define STEP_BYTES  (64 * 1024)
#define SAID_MAX    (16 * 1024)       /* bytes of answers to control messages that wait */
#define MEMORY      (2 * MESSAGE_MAX) /* of one connection at most, without the output */
#define EARLY_NS    (20 * NS_PER_MS)  /* as in follow.c: time for a start to fail */
#define LINGER_NS   (2 * NS_PER_S)    /* for the peer's close frame, after bothyd's */

enum { /* first byte of a message */
    KIND_IN,
    KIND_OUT,
    KIND_ERR,
    KIND_CONTROL,
};

typedef struct attach {
    exec *x;
    sandbox *sb;
    ws *ws;
    exec_watch watch;
    exec_hold *hold[3]; /* by stream */
    request_hold *memory;
    uint64_t at[3]; /* by stream: the next byte to send */
    buf lines;      /* for the response head */
    buf pending;    /* input that the command has no room for */
    buf said;       /* frames that answer control messages */
    char *request_id;
    uint64_t forked, close_by;
    bool is_new, begun, refused;
    bool eof;  /* input ends behind `pending` */
    bool uses; /* it counts as activity of the sandbox */
} attach;

/* ---- input ---- */

static bool is_full(const err *e)
{
    return e && e->code == ERR_QUOTA_EXCEEDED && str_eq(e->kind, "stdin");
}

static void attach_say(attach *a, buf *out, json_t *owned)
{
    static const char HEAD = KIND_CONTROL;
    CLEANUP(json_decrefp) json_t *j = owned;
    CLEANUP(buf_done) buf text = {0};

    json_write(&text, j);
    ws_put(a->ws, out, &HEAD, 1, text.p, text.len);
}

/* Reports that a message of the peer had no effect. */
static void attach_complain(attach *a, err *e)
{
    if (e)
        attach_say(a, &a->said, json_pack("{s:o}", "error", json_of_err(e, a->request_id)));
    err_free(e);
}

/* Reports once that input is no longer accepted; later input is dropped. */
static void refuse_input(attach *a, err *e)
{
    if (!a->refused)
        attach_complain(a, e);
    else
        err_free(e);
    a->refused = true;
    a->eof = false;
    secret_wipe(a->pending.p, a->pending.len);
    buf_done(&a->pending);
}

/* Gives the command as much input as it has room for. */
static void attach_feed(attach *a)
{
    size_t done = 0;
    err *e = NULL;

    while (done < a->pending.len && !e) {
        size_t n = a->pending.len - done < CHUNK ? a->pending.len - done : CHUNK;
        e = exec_stdin(a->x, a->pending.p + done, n, UINT64_MAX, false);
        if (!e)
            done += n;
    }
    if (!e && a->eof)
        e = exec_stdin(a->x, NULL, 0, UINT64_MAX, true);
    if (e && !is_full(e)) {
        refuse_input(a, e);
        return;
    }
    a->eof &= e != NULL;
    err_free(e);
    secret_wipe(a->pending.p, done);
    buf_consume(&a->pending, done);
    if (!a->pending.len)
        buf_done(&a->pending);
}

static void take_input(attach *a, const char *p, size_t n)
{
    if (a->refused || a->eof || !n)
        return;
    buf_append(&a->pending, p, n);
    attach_feed(a);
}

static err *send_signal(attach *a, const attach_control *c)
{
    static const uint32_t SCOPES[] = {[ATTACH_CONTROL_SCOPE_UNSET] = SP_TO_PROC,
                                      [ATTACH_CONTROL_SCOPE_PROCESS] = SP_TO_PROC,
                                      [ATTACH_CONTROL_SCOPE_GROUP] = SP_TO_GROUP,
                                      [ATTACH_CONTROL_SCOPE_SESSION] = SP_TO_SESSION,
                                      [ATTACH_CONTROL_SCOPE_TREE] = SP_TO_TREE};
    int signo = rest_signal_number(c->signal);

    if (signo < 0)
        return err_new(ERR_INVALID_REQUEST, "signal: '%s' is no signal", c->signal);
    return exec_signal(a->x, signo, SCOPES[c->scope]);
}

static err *take_control(attach *a, const char *p, size_t n)
{
    CLEANUP(attach_control_done) attach_control c = {0};

    TRY(attach_control_decode(p, n, &c));
    if (c.has_resize)
        TRY(exec_resize(a->x, (uint16_t)c.resize.rows, (uint16_t)c.resize.cols));
    if (c.signal)
        TRY(send_signal(a, &c));
    if (c.stdin == ATTACH_CONTROL_STDIN_EOF && !a->refused) {
        a->eof = true;
        attach_feed(a);
    }
    return NULL;
}

static void on_message(void *arg, bool text, const void *p, size_t n)
{
    attach *a = arg;
    const char *bytes = p;

    if (text || !n || (*bytes != KIND_IN && *bytes != KIND_CONTROL))
        ws_close(a->ws, WS_UNSUPPORTED_DATA, "binary messages that begin with 0 or 3");
    else if (*bytes == KIND_IN)
        take_input(a, bytes + 1, n - 1);
    else
        attach_complain(a, take_control(a, bytes + 1, n - 1));
}

static bool has_enough(const attach *a)
{
    return a->pending.len || a->said.len > SAID_MAX || ws_is_full(a->ws);
}

static bool on_input(void *ctx, const void *p, size_t n)
{
    attach *a = ctx;

    ws_feed(a->ws, p, n);
    return !has_enough(a);
}

/* ---- output ---- */

static const char *stdio_name(enum stdio_mode m)
{
    return m == STDIO_PTY ? "pty" : m == STDIO_MERGED ? "merged" : "pipes";
}

static void rest_attach_begin(attach *a, relay_io *io, const exec_state *st)
{
    char exec_id[24], offset[48];

    http_head_write(io->out, &(http_head){.status = 101,
                                          .length = -1,
                                          .request_id = a->request_id,
                                          .extra = buf_cstr(&a->lines)});
    buf_done(&a->lines);
    snprintf(exec_id, sizeof exec_id, "%lu", st->id);
    snprintf(offset, sizeof offset, "%lu.%lu", a->at[1], a->at[2]);
    attach_say(a, io->out,
               json_pack("{s:{s:s,s:s,s:s,s:b,s:s}}", "attached", "sandbox", sandbox_id(a->sb),
                         "exec", exec_id, "stdio", stdio_name(st->stdio), "stdin", st->stdin_open,
                         "offset", offset));
    a->begun = true;
}

static void put_gap(attach *a, buf *out, int stream, uint64_t to)
{
    attach_say(a, out,
               json_pack("{s:{s:s,s:I,s:I}}", "gap", "stream", stream == 1 ? "out" : "err", "from",
                         (json_int_t)a->at[stream], "to", (json_int_t)to));
    a->at[stream] = to;
}

enum pour {
    POUR_DRY,
    POUR_MORE,
    POUR_FAILED
};

/* Sends what one stream has, up to its limit, while the step has room. */
static enum pour attach_pour(attach *a, buf *out, int stream, uint64_t limit)
{
    char chunk[CHUNK];

    while (a->at[stream] < limit) {
        uint64_t gap = 0, left = limit - a->at[stream];
        size_t n = 0;
        err *e = exec_read(a->x, stream, a->at[stream], chunk,
                           left < sizeof chunk ? (size_t)left : sizeof chunk, &n, &gap);
        if (e) {
            err_drop(e, "attach");
            return POUR_FAILED;
        }
        if (gap > a->at[stream]) {
            put_gap(a, out, stream, gap);
            continue;
        }
        if (!n)
            return POUR_DRY;
        ws_put(a->ws, out, &(char){(char)stream}, 1, chunk, n);
        a->at[stream] += n;
        if (out->len >= STEP_BYTES)
            return POUR_MORE;
    }
    return POUR_DRY;
}

static uint64_t limit_of(const exec_state *st, int stream)
{
    if (st->end.how == EXEC_RUNNING)
        return UINT64_MAX;
    return stream == 1 ? st->end.out_bytes : st->end.err_bytes;
}

static enum pour pour_both(attach *a, buf *out, const exec_state *st)
{
    enum pour got = POUR_DRY;

    for (int s = 1; s <= 2 && got == POUR_DRY; s++)
        got = attach_pour(a, out, s, limit_of(st, s));
    for (int s = 1; s <= 2; s++)
        exec_hold_move(a->hold[s], a->at[s]);
    return got;
}

static void say_end(attach *a, relay_io *io, const exec_state *st)
{
    CLEANUP(sandbox_view_done) sandbox_view v;

    sandbox_get(a->sb, &v);
    attach_say(a, io->out, json_pack("{s:o}", "end", view_end(st->id, &st->end, v.cause)));
    ws_close(a->ws, WS_NORMAL, NULL);
    ws_flush(a->ws, io->out);
    a->close_by = io->now + LINGER_NS;
}

/* Returns whether the start has succeeded, as far as that is known so early. */
static bool is_due(attach *a, relay_io *io, const exec_state *st)
{
    if (!a->is_new || st->end.how != EXEC_RUNNING)
        return true;
    if (!st->started)
        return false;
    if (!a->forked)
        a->forked = io->now;
    io->wake_at = a->forked + EARLY_NS;
    return st->length[0] || st->length[1] || io->now >= io->wake_at;
}

/* Waits for the peer's close frame after bothyd's was sent. Otherwise the
 * peer would lose unread output. */
static enum relay_next step_closing(attach *a, relay_io *io)
{
    ws_flush(a->ws, io->out);
    if (!a->close_by)
        a->close_by = io->now + LINGER_NS;
    if (ws_is_over(a->ws) || io->now >= a->close_by)
        return RELAY_CLOSE;
    io->wake_at = a->close_by;
    return RELAY_WAIT;
}

static enum relay_next step_open(attach *a, relay_io *io, const exec_state *st)
{
    uint64_t wake = 0;

    attach_feed(a);
    buf_append(io->out, a->said.p, a->said.len);
    buf_done(&a->said);
    ws_flush(a->ws, io->out); /* before has_enough() checks */
    enum pour got = pour_both(a, io->out, st);
    if (got == POUR_FAILED) {
        ws_close(a->ws, WS_INTERNAL, "the output cannot be read");
        return step_closing(a, io);
    }
    if (got == POUR_DRY && st->end.how != EXEC_RUNNING) {
        say_end(a, io, st);
        return step_closing(a, io);
    }
    io->full = has_enough(a);
    if (!ws_alive(a->ws, io->now, io->full, &wake))
        return RELAY_CLOSE;
    ws_flush(a->ws, io->out);
    io->wake_at = wake;
    return got == POUR_MORE ? RELAY_MORE : RELAY_WAIT;
}

static enum relay_next on_step(void *ctx, relay_io *io)
{
    attach *a = ctx;
    exec_state st;

    if (io->stalled)
        return RELAY_CLOSE;
    /* The state is read before the bytes: if it shows the end, all bytes can be read below. */
    exec_get(a->x, &st);
    if (!a->begun) {
        if (!is_due(a, io, &st)) {
            io->full = true; /* take no input before the command has begun */
            return RELAY_WAIT;
        }
        CLEANUP(err_freep) err *failure = a->is_new ? exec_end_error(&st.end) : NULL;
        if (failure) {
            http_error_answer(io->out, failure, false, a->request_id);
            return RELAY_CLOSE;
        }
        rest_attach_begin(a, io, &st);
    }
    return ws_is_closing(a->ws) ? step_closing(a, io) : step_open(a, io, &st);
}

/* ---- lifetime ---- */

static void on_news(void *arg)
{
    relay_wake(arg);
}

static void on_start(void *ctx, relay_job *job)
{
    attach *a = ctx;

    a->watch = (exec_watch){.notify = on_news, .arg = job};
    exec_watch_add(a->x, &a->watch);
    for (int s = 1; s <= 2; s++)
        a->hold[s] = exec_hold_new(a->x, s, a->at[s]);
}

static void on_free(void *ctx)
{
    attach *a = ctx;

    for (int s = 1; s <= 2; s++)
        exec_hold_free(a->hold[s]);
    exec_unwatch(a->x, &a->watch);
    exec_unref(a->x);
    if (a->uses)
        sandbox_stream_end(a->sb);
    sandbox_unref(a->sb);
    ws_free(a->ws);
    request_hold_free(a->memory);
    secret_wipe(a->pending.p, a->pending.cap);
    buf_done(&a->pending);
    buf_done(&a->said);
    buf_done(&a->lines);
    free(a->request_id);
    free(a);
}

static const relay_ops ATTACH_OPS = {.kind = STREAM_TERMINAL,
                                     .start = on_start,
                                     .step = on_step,
                                     .input = on_input,
                                     .free = on_free};

err *attach_check(request *rq, response *rs, buf *ret_lines)
{
    ws_offer offer = {request_header(rq, "Sec-WebSocket-Version"),
                      request_header(rq, "Sec-WebSocket-Key"),
                      request_header(rq, "Sec-WebSocket-Protocol")};

    response_header(rs, "Sec-WebSocket-Version", "13"); /* an error has it, too */
    if (!request_upgrades(rq, "websocket"))
        return err_remedy(err_new(ERR_INVALID_REQUEST, "this is a WebSocket"),
                          "Send GET with 'Connection: Upgrade' and 'Upgrade: websocket'.");
    return ws_accept(&offer, PROTOCOL, ret_lines);
}

err *attach_start(request *rq, response *rs, sandbox *sb, exec *x, const attach_options *o,
                  buf *lines)
{
    request_hold *memory = NULL;

    TRY(request_hold_new(rq, MEMORY, &memory));
    attach *a = xcalloc(1, sizeof *a);
    *a = (attach){.x = exec_ref(x),
                  .sb = sandbox_ref(sb),
                  .memory = memory,
                  .at = {0, o->from[1], o->from[2]},
                  .lines = *lines,
                  .request_id = xstrdup(request_id(rq)),
                  .is_new = o->is_new,
                  .uses = sandbox_stream_begin(sb)};
    *lines = (buf){0};
    a->ws =
        ws_new(&(ws_options){.message_max = MESSAGE_MAX + 1, .on_message = on_message, .arg = a});
    response_relay(rs, &ATTACH_OPS, a);
    return NULL;
}

/* Input of processes: SendInput, CloseStdin, and StreamInput, whose body may stay open for any
 * time. None of them holds a thread while the command does not read. */
#include "base/clock.h"
#include "door/e2b/process_call.h"
#include "door/shared/feed.h"
#include "wire/connect.h"
#include "wire/http1.h"

#define PENDING_MAX (UINT64_C(256) << 10) /* of a stream; beyond that its client is not read */
#define MESSAGE_MAX (512u << 10)
/* Memory of a stream: pending input, a message under way, and the decoded previous one (base64 is 4
 * bytes for 3). */
#define HELD_MAX (PENDING_MAX + MESSAGE_MAX + MESSAGE_MAX / 4 * 3)

static err *check_kind(exec *x, enum process_input_kind kind)
{
    exec_state st;

    exec_get(x, &st);
    if (kind == INPUT_NONE)
        return err_new(ERR_INVALID_REQUEST, "input: neither stdin nor pty");
    if (kind == INPUT_PTY && st.stdio != STDIO_PTY)
        return err_remedy(err_new(ERR_CONFLICT, "the process has no terminal"),
                          "Send the bytes as stdin.");
    if (kind == INPUT_STDIN && st.stdio == STDIO_PTY)
        return err_remedy(err_new(ERR_CONFLICT, "the process has a terminal"),
                          "Send the bytes as pty.");
    return NULL;
}

static err *check_open(exec *x, const process_selector *s)
{
    exec_state st;

    exec_get(x, &st);
    return st.end.how == EXEC_RUNNING ? NULL : process_not_found(s);
}

static void answer_empty(relay_io *io, exec *x, const char *request_id)
{
    CLEANUP(json_decrefp) json_t *body = json_object();

    (void)x;
    http_json_answer(io->out, 200, body, io->keep_alive, request_id, NULL);
}

err *process_send_input_rpc(envd_call *c, request *rq, response *rs)
{
    CLEANUP(process_request_done) process_request in = {0};
    CLEANUP(exec_unrefp) exec *x = NULL;
    uint64_t ms = 0;

    TRY(connect_timeout(request_header(rq, "Connect-Timeout-Ms"), &ms));
    TRY(process_read(c, rq, &in, &x));
    TRY(check_open(x, &in.process));
    TRY(check_kind(x, in.input));
    return feed_start(rq, rs, x, &in.bytes,
                      &(feed_options){.offset = UINT64_MAX,
                                      .deadline_ns = ms ? now_mono_ns() + ms * NS_PER_MS : 0,
                                      .answer = answer_empty,
                                      .told = process_told});
}

/* Closes a process's stdin. Succeeds if it has none or if it is closed already. */
err *process_close_stdin_rpc(envd_call *c, request *rq, response *rs)
{
    CLEANUP(process_request_done) process_request in = {0};
    CLEANUP(exec_unrefp) exec *x = NULL;
    exec_state st;

    TRY(process_read(c, rq, &in, &x));
    TRY(check_open(x, &in.process));
    exec_get(x, &st);
    if (st.stdio == STDIO_PTY)
        return err_remedy(err_new(ERR_CONFLICT, "the stdin of a terminal cannot be closed"),
                          "Send Ctrl+D (0x04) to it instead.");
    if (st.stdin_open)
        TRY(process_told(x, exec_stdin(x, NULL, 0, UINT64_MAX, true)));
    response_json(rs, 200, json_object());
    return NULL;
}

/* ---- StreamInput ---- */

typedef struct input {
    sandbox *sb;
    exec *x; /* NULL: not named yet */
    exec_watch watch;
    relay_job *job;
    http1_framing body;
    connect_decoder decoder;
    buf pending; /* to be fed to the command */
    err *failure;
    bool expects;
    request_hold *hold;
    char *request_id;
} input;

static void on_room(void *arg)
{
    relay_wake(arg);
}

static void on_start(void *ctx, relay_job *job)
{
    input *i = ctx;

    i->job = job;
}

static err *name_process(input *i, const process_selector *s)
{
    CLEANUP(exec_unrefp) exec *x = NULL;

    if (i->x)
        return err_new(ERR_INVALID_REQUEST, "the stream has named its process already");
    TRY(process_find(i->sb, s, &x));
    TRY(check_open(x, s));
    i->x = TAKE_PTR(x);
    i->watch = (exec_watch){.notify = on_room, .arg = i->job};
    exec_watch_add(i->x, &i->watch);
    return NULL;
}

static err *on_message(void *arg, const char *p, size_t n)
{
    CLEANUP(process_request_done) process_request in = {0};
    input *i = arg;

    TRY(process_input_decode(p, n, &in));
    if (in.has_process)
        return name_process(i, &in.process);
    if (in.input == INPUT_NONE)
        return NULL; /* a keepalive */
    if (!i->x)
        return err_new(ERR_INVALID_REQUEST, "the stream has not named its process");
    TRY(check_kind(i->x, in.input));
    buf_append(&i->pending, in.bytes.p, in.bytes.len);
    return NULL;
}

/* Feeds pending input to the command as far as there is room. */
static err *process_input_feed(input *i)
{
    while (i->pending.len) {
        size_t n = i->pending.len < FEED_PIECE ? i->pending.len : FEED_PIECE;
        CLEANUP(err_freep) err *e = exec_stdin(i->x, i->pending.p, n, UINT64_MAX, false);
        if (feed_is_full(e))
            return NULL;
        if (e)
            return process_told(i->x, TAKE_PTR(e));
        secret_wipe(i->pending.p, n);
        buf_consume(&i->pending, n);
    }
    buf_done(&i->pending); /* thousands of streams wait: keep no empty buffer */
    return NULL;
}

static bool wants_more(const input *i)
{
    return !i->failure && !http1_body_ended(&i->body) && i->pending.len < PENDING_MAX;
}

static err *process_input_take(input *i, const char *p, size_t n)
{
    CLEANUP(freep) char *decoded = xmalloc(n);
    size_t used = 0, got = 0;

    TRY(http1_body(&i->body, p, n, decoded, &used, &got));
    if (http1_body_ended(&i->body)) /* the rest is the next request's, even if this one fails */
        relay_unread(i->job, p + used, n - used);
    err *e = connect_feed(&i->decoder, decoded, got, on_message, i);
    secret_wipe(decoded, got);
    TRY(e);
    if (http1_body_ended(&i->body))
        TRY(connect_finish(&i->decoder));
    return process_input_feed(i);
}

static bool on_input(void *ctx, const void *p, size_t n)
{
    input *i = ctx;

    if (http1_body_ended(&i->body))
        relay_unread(i->job, p, n);
    else if (!i->failure)
        i->failure = process_input_take(i, p, n);
    return wants_more(i);
}

static enum relay_next process_input_tell(input *i, relay_io *io)
{
    bool whole = http1_body_ended(&i->body);
    bool keep = io->keep_alive && whole;

    if (i->failure) {
        http_error_answer_as(io->out, &E2B_FORM_STREAM, i->failure, keep, i->request_id);
        return keep ? RELAY_DONE : RELAY_CLOSE;
    }
    CLEANUP(buf_done) buf body = {0};
    connect_message(&body, "{}", 2);
    connect_end(&body, NULL, NULL);
    http_head_write(io->out, &(http_head){.status = 200,
                                          .type = "application/connect+json",
                                          .length = (int64_t)body.len,
                                          .keep_alive = keep,
                                          .request_id = i->request_id});
    buf_append(io->out, body.p, body.len);
    return keep ? RELAY_DONE : RELAY_CLOSE;
}

static enum relay_next on_step(void *ctx, relay_io *io)
{
    input *i = ctx;

    if (i->expects) {
        buf_str(io->out, "HTTP/1.1 100 Continue\r\n\r\n");
        i->expects = false;
        return RELAY_MORE;
    }
    if (!i->failure && i->x)
        i->failure = process_input_feed(i);
    if (i->failure || (http1_body_ended(&i->body) && !i->pending.len))
        return process_input_tell(i, io);
    io->full = !wants_more(i);
    return RELAY_WAIT;
}

static void on_free(void *ctx)
{
    input *i = ctx;

    if (i->x && !i->failure) /* the client disconnected; the command still gets its input */
        err_free(process_input_feed(i));
    if (i->x)
        exec_unwatch(i->x, &i->watch);
    exec_unref(i->x);
    sandbox_unref(i->sb);
    connect_decoder_done(&i->decoder);
    secret_wipe(i->pending.p, i->pending.cap);
    buf_done(&i->pending);
    err_free(i->failure);
    request_hold_free(i->hold);
    free(i->request_id);
    free(i);
}

static const relay_ops INPUT_OPS = {
    .kind = STREAM_INPUT, .start = on_start, .step = on_step, .input = on_input, .free = on_free};

err *process_stream_input_rpc(envd_call *c, request *rq, response *rs)
{
    request_hold *hold = NULL;

    TRY(request_hold_new(rq, HELD_MAX, &hold));
    input *i = xcalloc(1, sizeof *i);
    i->sb = sandbox_ref(c->sb);
    i->hold = hold;
    i->decoder.max = MESSAGE_MAX;
    i->request_id = xstrdup(request_id(rq));
    request_body_take(rq, &i->body, &i->expects);
    response_relay(rs, &INPUT_OPS, i);
    return NULL;
}

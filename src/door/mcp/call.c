/* One tools/call: waits for its sandbox, runs the tool, reports progress, answers.
 *
 * A job of the relay; no thread waits. An answer within a second, or to a peer that accepts no
 * stream, is one JSON document. Later answers are a stream of events, because clients and
 * proxies time out when no head comes. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "door/mcp/fit.h"
#include "door/mcp/internal.h"
#include "door/shared/stream.h"
#include "wire/sse.h"

#define STREAM_AFTER_NS NS_PER_S
#define PING_NS         (15 * NS_PER_S)
#define TELL_NS         (NS_PER_S / 2) /* between two progress messages, */
#define TELL_ANYWAY_NS  (5 * NS_PER_S) /* also without new output */

/* ---- errors for a model ---- */

typedef struct advice {
    err_code code;
    const char *kind; /* NULL: any */
    const char *remedy;
} advice;
static const advice ADVICE[] = {
    {ERR_NOT_FOUND, "path",
     "Look with list or search what is there; paths begin at / or at the working directory."},
    {ERR_NOT_FOUND, "exec", "Use the `exec` that run answered, with the same sandbox."},
    {ERR_NOT_FOUND, "session", "Begin it with session_run."},
    {ERR_NOT_FOUND, "command", "Use the `command` that session_run answered."},
    {ERR_NOT_FOUND, "sandbox", "Make one with create, and pass its id as `sandbox`."},
    {ERR_EXEC_FAILED, NULL,
     "Check that the program is in the image: run `command -v NAME`, or install it."},
    {ERR_SANDBOX_GONE, NULL, "Make a new one with create; the files of this one are lost."},
    {ERR_INVALID_REQUEST, NULL, "Correct the argument that is named and call again."},
    {ERR_TIMEOUT, NULL, "Call again with a larger timeout_ms, or do less at once."},
};

static const char *advice_for(const err *e)
{
    for (size_t i = 0; !e->remedy && i < ARRAY_LEN(ADVICE); i++)
        if (ADVICE[i].code == e->code && (!ADVICE[i].kind || str_eq(ADVICE[i].kind, e->kind)))
            return ADVICE[i].remedy;
    return err_remedy_of(e);
}

static json_t *failure_result(const mcp_call *c, const err *e)
{
    const char *remedy = advice_for(e);
    json_t *data = json_of_err(e, c->request_id);
    CLEANUP(freep)
    char *text = str_printf("Error (%s): %s%s%s\nRemedy: %s", err_info_of(e->code)->name,
                            e->message, e->cause ? ": " : "", str_or(e->cause, ""), remedy);

    json_object_set_new(data, "remedy", json_string(remedy));
    /* Not as structuredContent, which clients validate against the schema of a success. */
    return json_pack("{s:[{s:s,s:o}],s:{s:o},s:b}", "content", "type", "text", "text",
                     fit_json(text, strlen(text)), "_meta", "dev.bothy/error", data, "isError", 1);
}

/* ---- answers ---- */

static void send_event(mcp_call *c, relay_io *io, const buf *message)
{
    CLEANUP(buf_done) buf event = {0};

    sse_write(&event, "message", NULL, message->p, message->len);
    stream_put(io, event.p, event.len);
    c->last_sent = io->now;
}

static void stream_head(mcp_call *c, relay_io *io)
{
    http_head_write(io->out, &(http_head){.status = 200,
                                          .type = "text/event-stream",
                                          .length = -1,
                                          .chunked = io->http11,
                                          .keep_alive = io->keep_alive && io->http11,
                                          .request_id = c->request_id,
                                          .extra = "Cache-Control: no-store\r\n"});
    c->head_sent = true;
    c->last_sent = io->now;
}

static enum relay_next call_answer(mcp_call *c, relay_io *io, const buf *message)
{
    c->finished = true;
    if (c->head_sent) {
        send_event(c, io, message);
        stream_put(io, NULL, 0);
        return stream_done(io);
    }
    http_head_write(io->out, &(http_head){.status = 200,
                                          .type = "application/json",
                                          .length = (int64_t)message->len,
                                          .keep_alive = io->keep_alive,
                                          .request_id = c->request_id});
    buf_append(io->out, message->p, message->len);
    return io->keep_alive ? RELAY_DONE : RELAY_CLOSE;
}

static enum relay_next answer_result(mcp_call *c, relay_io *io, json_t *result)
{
    CLEANUP(buf_done) buf message = {0};

    if (c->modern)
        json_object_set_new(result, "resultType", json_string("complete"));
    rpc_result(&message, c->msg.id, result);
    return call_answer(c, io, &message);
}

static enum relay_next answer_done(mcp_call *c, relay_io *io)
{
    json_t *text = json_stringn(c->text.p ? c->text.p : "", c->text.len);

    if (c->sb)
        json_object_set_new(c->data, "sandbox", json_string(sandbox_id(c->sb)));
    return answer_result(c, io,
                         json_pack("{s:[{s:s,s:o}],s:O,s:b}", "content", "type", "text", "text",
                                   text, "structuredContent", c->data, "isError", 0));
}

/* Answers with an error. If the session's sandbox has ended, forgets it, so that
 * the next call makes a new one. */
static enum relay_next answer_failure(mcp_call *c, relay_io *io, err *failure)
{
    CLEANUP(err_freep) err *e = failure;

    if (e->code == ERR_SANDBOX_GONE && c->s && c->seat) {
        mcp_session_take_seat(c->s, c->seat, NULL);
        e = err_remedy(e, "Call again: a new sandbox is made. Files and processes of the old one "
                          "are lost.");
    }
    return answer_result(c, io, failure_result(c, e));
}

static enum relay_next answer_cancelled(mcp_call *c, relay_io *io)
{
    CLEANUP(buf_done) buf message = {0};

    rpc_error(&message, c->msg.id, RPC_CANCELLED, "the request was cancelled", NULL);
    return call_answer(c, io, &message);
}

/* ---- progress ---- */

static void call_say(mcp_call *c, buf *out)
{
    if (!c->begun)
        buf_str(out, "the sandbox is being made");
    else if (c->tool->say)
        c->tool->say(c, out);
    else
        buf_str(out, "under way");
}

static void call_tell(mcp_call *c, relay_io *io)
{
    CLEANUP(buf_done) buf words = {0}, message = {0};
    double seconds = (double)(io->now - c->began) / (double)NS_PER_S;

    call_say(c, &words);
    rpc_notify(&message, "notifications/progress",
               json_pack("{s:O,s:f,s:o}", "progressToken", c->msg.token, "progress", seconds,
                         "message", json_stringn(words.p ? words.p : "", words.len)));
    if (!c->head_sent)
        stream_head(c, io);
    send_event(c, io, &message);
    c->last_told = io->now;
}

static uint64_t bytes_of(const mcp_call *c)
{
    exec_state st;

    if (!c->x)
        return 0;
    exec_get(c->x, &st);
    return st.length[0] + st.length[1];
}

static void tell_if_due(mcp_call *c, relay_io *io)
{
    uint64_t bytes = bytes_of(c), since = io->now - c->last_told;

    if (since >= TELL_ANYWAY_NS || (bytes != c->told && since >= TELL_NS)) {
        call_tell(c, io);
        c->told = bytes;
    }
}

static void wake_by(relay_io *io, uint64_t at)
{
    if (at && (!io->wake_at || at < io->wake_at))
        io->wake_at = at;
}

static enum relay_next keep_waiting(mcp_call *c, relay_io *io)
{
    wake_by(io, c->wake_at);
    if (!c->events)
        return RELAY_WAIT;
    if (c->msg.token) {
        tell_if_due(c, io);
        wake_by(io, c->last_told + (bytes_of(c) != c->told ? TELL_NS : TELL_ANYWAY_NS));
    }
    if (!c->head_sent && io->now - c->began >= STREAM_AFTER_NS)
        stream_head(c, io);
    if (c->head_sent && io->now - c->last_sent >= PING_NS) {
        CLEANUP(buf_done) buf comment = {0};
        sse_write_comment(&comment, "ping");
        stream_put(io, comment.p, comment.len);
        c->last_sent = io->now;
    }
    wake_by(io, c->head_sent ? c->last_sent + PING_NS : c->began + STREAM_AFTER_NS);
    return RELAY_WAIT;
}

/* ---- the job ---- */

void mcp_call_wake(void *call)
{
    relay_wake(((mcp_call *)call)->job);
}

void mcp_call_cancel(mcp_call *c)
{
    atomic_store(&c->cancelled, true);
    relay_wake(c->job);
}

static void call_stop(mcp_call *c)
{
    if (c->begun && c->tool->stop)
        c->tool->stop(c);
}

static void on_start(void *ctx, relay_job *job)
{
    mcp_call *c = ctx;

    c->job = c->waiter.job = job;
    if (c->seat)
        making_wait(c->seat, &c->waiter);
    if (c->s)
        mcp_session_join(c->s, c);
}

/* Does the next part of the work. Sets *ret_done when the tool has its answer. */
static err *go_on(mcp_call *c, uint64_t now, bool *ret_done)
{
    if (!c->sb && c->seat) {
        err *failure = NULL;
        if (!making_look(c->seat, &c->sb, &failure))
            return NULL;
        if (failure)
            return failure;
    }
    if (!c->begun) {
        c->begun = true;
        TRY(c->tool->begin(c));
    }
    return c->tool->poll(c, now, ret_done);
}

static enum relay_next on_step(void *ctx, relay_io *io)
{
    mcp_call *c = ctx;
    bool done = false;

    if (io->stalled)
        return RELAY_CLOSE;
    if (!c->began)
        c->began = c->last_told = io->now;
    if (atomic_load(&c->cancelled)) {
        call_stop(c);
        return answer_cancelled(c, io);
    }
    c->wake_at = 0;
    err *failure = go_on(c, io->now, &done);
    if (failure)
        return answer_failure(c, io, failure);
    return done ? answer_done(c, io) : keep_waiting(c, io);
}

/* Returns whether a closed connection cancels the call. Clients of the older era over HTTP cancel
 * with a message, so for them it does not. */
static bool leaving_cancels(const mcp_call *c)
{
    return c->modern || !c->announced;
}

/* Deletes the sandbox of a call that never began: if it was made for this call alone, or if the
 * session ended meanwhile and did not find it. */
static void leave_seat(mcp_call *c)
{
    if (c->tool->sandbox_at == SIZE_MAX || mcp_session_has_ended(c->s))
        making_drop(c->door->o.engine, c->seat);
}

static void call_unwatch(mcp_call *c)
{
    if (!c->watch.notify)
        return;
    if (c->sh)
        session_unwatch(c->sh, &c->watch);
    else
        exec_unwatch(c->x, &c->watch);
}

static void on_free(void *ctx)
{
    mcp_call *c = ctx;

    if (c->job && c->s)
        mcp_session_part(c->s, c);
    if (c->job && c->seat)
        making_unwait(c->seat, &c->waiter);
    call_unwatch(c);
    if (!c->finished && leaving_cancels(c))
        call_stop(c);
    if (!c->begun && c->seat)
        leave_seat(c);
    kit_call_free(c->k);
    exec_unref(c->x);
    session_unref(c->sh);
    sandbox_unref(c->sb);
    making_unref(c->seat);
    if (c->own_free)
        c->own_free(c->own);
    c->tool->done(c->args);
    free(c->args);
    buf_done(&c->text);
    json_decref(c->data);
    rpc_message_done(&c->msg);
    request_hold_free(c->hold);
    mcp_session_unref(c->s);
    free(c->client);
    free(c->who.owner);
    free(c->request_id);
    free(c);
}

static const relay_ops CALL_OPS = {
    .kind = STREAM_OUTPUT, .start = on_start, .step = on_step, .free = on_free};

/* ---- start ---- */

static const mcp_tool *tool_by_name(const char *name)
{
    for (size_t i = 0; name && i < MCP_NTOOLS; i++)
        if (!strcmp(MCP_TOOLS[i].name, name))
            return &MCP_TOOLS[i];
    return NULL;
}

static err *no_sandbox(void)
{
    return err_remedy(
        err_kind(err_new(ERR_NOT_FOUND, "this session has no sandbox"), "sandbox"),
        "Go on: nothing was run or written in one yet, and the next tool that needs one makes it.");
}

static err *find_sandbox(mcp_call *c, request *rq)
{
    const char *named = NULL;

    if (c->tool->sandbox_at == SIZE_MAX)
        return NULL;
    memcpy(&named, (char *)c->args + c->tool->sandbox_at, sizeof named);
    if (named)
        return engine_find(c->door->o.engine, &c->who, named, &c->sb);
    if (c->s) {
        TRY(mcp_session_seat(c->s, &c->who, c->tool->finds ? NULL : mcp_spec_of_url, rq, &c->seat));
        return c->seat ? NULL : no_sandbox();
    }
    return err_remedy(err_new(ERR_INVALID_REQUEST, "sandbox: is missing"),
                      "Call create once, and pass the id that it answers as `sandbox` in every "
                      "call: this connection has no session that would remember it.");
}

/* Prepares a call. The arguments are checked before a sandbox is made. */
static err *call_prepare(mcp_call *c, request *rq)
{
    const json_t *given = json_object_get(c->msg.params, "arguments");
    CLEANUP(json_decrefp)
    json_t *args = given && !json_is_null(given) ? json_incref((json_t *)given) : json_object();

    if (!json_is_object(args))
        return err_new(ERR_INVALID_REQUEST, "arguments: must be an object");
    TRY(c->tool->decode(args, c->args));
    TRY(find_sandbox(c, rq));
    return c->tool->prepare ? c->tool->prepare(c) : NULL;
}

static void answer_at_once(mcp_call *c, response *rs, err *failure)
{
    CLEANUP(err_freep) err *e = failure;
    CLEANUP(buf_done) buf message = {0};
    json_t *result = failure_result(c, e);

    if (c->modern)
        json_object_set_new(result, "resultType", json_string("complete"));
    rpc_result(&message, c->msg.id, result);
    response_status(rs, 200);
    response_bytes(rs, "application/json", message.p, message.len);
}

static void take_caller(mcp_call *c, const caller *who)
{
    c->who = *who;
    c->who.owner = xstrdup(who->owner);
}

static void take_client(mcp_call *c, const request *rq)
{
    const char *client = mcp_client(rq);

    c->client = client ? xstrdup(client) : NULL;
    c->announced = mcp_issued(rq) != NULL;
}

err *mcp_call_start(mcp *d, request *rq, response *rs, mcp_session **s, rpc_message *m, size_t body)
{
    const char *name = json_str(m->params, "name"), *accept = request_header(rq, "Accept");
    const mcp_tool *tool = tool_by_name(name);
    request_hold *hold = NULL;

    if (!tool)
        return err_remedy(
            err_kind(err_new(ERR_INVALID_REQUEST, "there is no tool '%.64s'", str_or(name, "")),
                     "params"),
            "tools/list says which there are.");
    TRY(request_hold_new(rq, body, &hold));
    mcp_call *c = xcalloc(1, sizeof *c);
    c->door = d;
    c->s = TAKE_PTR(*s);
    c->tool = tool;
    c->msg = *m;
    *m = (rpc_message){0};
    c->hold = hold;
    c->modern = c->msg.version != NULL;
    c->events = accept && strstr(accept, "text/event-stream");
    c->request_id = xstrdup(request_id(rq));
    c->args = xcalloc(1, tool->args_size);
    take_caller(c, request_user(rq));
    take_client(c, rq);
    err *e = call_prepare(c, rq);
    if (!e) {
        response_relay(rs, &CALL_OPS, c);
        return NULL;
    }
    answer_at_once(c, rs, e);
    c->finished = true;
    on_free(c);
    return NULL;
}

err *mcp_call_kit(mcp_call *c, const kit_request *rq, const char *user)
{
    kit_call *k = NULL;

    TRY(engine_kit(c->door->o.engine, &c->who, c->sb, rq, user, &k));
    kit_call_free(c->k);
    c->k = k;
    kit_call_watch(k, mcp_call_wake, c);
    return NULL;
}

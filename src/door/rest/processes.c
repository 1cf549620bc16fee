/* …/exec and …/processes: run, start, list, output, stdin, signal. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "api/openapi.h"
#include "base/str.h"
#include "door/rest/internal.h"

#define BODY_MAX  (4 << 20)
#define STDIN_MAX (1 << 20) /* of one request, and of exec's stdin member */

static err *find_sandbox(request *rq, sandbox **ret)
{
    return engine_find(rest_engine(rq), rest_caller(rq), request_param(rq, 0), ret);
}

err *rest_find_exec(request *rq, sandbox **ret_sandbox, exec **ret_exec)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;

    TRY(find_sandbox(rq, &sb));
    TRY(engine_exec_find(sb, request_param(rq, 1), ret_exec));
    *ret_sandbox = TAKE_PTR(sb);
    return NULL;
}

/* ---- start ---- */

static enum stdio_mode stdio_of(enum exec_request_stdio s)
{
    return s == EXEC_REQUEST_STDIO_PTY      ? STDIO_PTY
           : s == EXEC_REQUEST_STDIO_MERGED ? STDIO_MERGED
                                            : STDIO_PIPES;
}

static void take_exec(exec_request *in, exec_spec *out)
{
    *out = (exec_spec){.argv = TAKE_PTR(in->argv),
                       .env = TAKE_PTR(in->env),
                       .user = TAKE_PTR(in->user),
                       .cwd = TAKE_PTR(in->cwd),
                       .stdio = stdio_of(in->stdio),
                       .stdin_open = in->stdin_open || in->stdin.n,
                       .rows = (uint16_t)in->rows,
                       .cols = (uint16_t)in->cols,
                       .timeout_ms = in->timeout_ms,
                       .exec_fd = -1};
}

/* Starts the command and appends the stdin that came with the request. */
static err *processes_start(request *rq, sandbox *sb, exec **ret_exec, bool *ret_replay)
{
    CLEANUP(exec_request_done) exec_request in = {0};
    CLEANUP(exec_spec_done) exec_spec spec = {.exec_fd = -1};
    CLEANUP(body_wipe) buf body = {0};
    CLEANUP(exec_unrefp) exec *x = NULL;
    idempotency idem;

    TRY(request_body(rq, BODY_MAX, &body));
    TRY(rest_idempotency(rq, &body, &idem));
    TRY(exec_request_decode(body.p, body.len, &in));
    if (in.stdin.n && in.stdin_open)
        return err_new(ERR_INVALID_REQUEST, "stdin: goes without stdin_open");
    if (in.stdin.n > STDIN_MAX)
        return err_remedy(err_new(ERR_TOO_LARGE, "stdin: more than 1 MiB"),
                          "Start it with stdin_open and send the bytes to .../stdin.");
    take_exec(&in, &spec);
    TRY(engine_exec(rest_engine(rq), rest_caller(rq), sb, &spec, &idem, &x, ret_replay));
    /* On a replay, a kill of bothyd may have cut the first input off, so it is sent again. Not to a
     * terminal: how much of it arrived is unknown. */
    if (in.stdin.n && (!*ret_replay || spec.stdio != STDIO_PTY))
        TRY(exec_stdin_all(x, in.stdin.p, in.stdin.n));
    *ret_exec = TAKE_PTR(x);
    return NULL;
}

err *rest_parse_offsets(const char *text, uint64_t *ret_out, uint64_t *ret_err)
{
    const char *dot = strchr(text, '.');
    CLEANUP(freep) char *first = dot ? xstrndup(text, (size_t)(dot - text)) : xstrdup(text);

    if (!str_to_u64(first, INT64_MAX, ret_out) || (dot && !str_to_u64(dot + 1, INT64_MAX, ret_err)))
        return err_new(ERR_INVALID_REQUEST, "offset: '%s' is not <out>.<err>", text);
    return NULL;
}

/* POST /v1/sandboxes/{id}/exec — run to the end and answer once, or as events. */
err *rest_sandbox_exec(request *rq, response *rs)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(exec_unrefp) exec *x = NULL;
    const char *last = request_header(rq, "Last-Event-ID");
    follow_options o = {.form = rest_wants_events(rq) ? &FOLLOW_EVENTS : &FOLLOW_RESULT,
                        .until = UNTIL_END,
                        .streams = 1u << 1 | 1u << 2,
                        .is_exec = true};

    if (last)
        TRY(rest_parse_offsets(last, &o.from[1], &o.from[2]));
    TRY(find_sandbox(rq, &sb));
    TRY(processes_start(rq, sb, &x, &o.replay));
    follow_start(rq, rs, sb, x, &o);
    return NULL;
}

static json_t *process_json(sandbox *sb, exec *x)
{
    CLEANUP(sandbox_view_done) sandbox_view v;
    exec_state st;

    sandbox_get(sb, &v);
    exec_get(x, &st);
    return view_process(&st, v.cause);
}

/* POST …/processes: starts a command, and answers through the relay when it is known to run. */
err *rest_process_start(request *rq, response *rs)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(exec_unrefp) exec *x = NULL;
    follow_options o = {.form = &FOLLOW_STARTED, .is_exec = true};

    TRY(find_sandbox(rq, &sb));
    TRY(processes_start(rq, sb, &x, &o.replay));
    follow_start(rq, rs, sb, x, &o);
    return NULL;
}

/* ---- list and get ---- */

err *rest_process_list(request *rq, response *rs)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(freep) exec **list = NULL;
    size_t n = 0;

    TRY(find_sandbox(rq, &sb));
    TRY(engine_exec_list(sb, &list, &n));
    CLEANUP(sandbox_view_done) sandbox_view v;
    sandbox_get(sb, &v);
    json_t *all = json_array();
    for (size_t i = 0; i < n; i++) {
        exec_state st;
        exec_get(list[i], &st);
        json_array_append_new(all, view_process(&st, v.cause));
        exec_unref(list[i]);
    }
    response_json(rs, 200, json_pack("{s:o}", "processes", all));
    return NULL;
}

err *rest_process_get(request *rq, response *rs)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(exec_unrefp) exec *x = NULL;

    TRY(rest_find_exec(rq, &sb, &x));
    response_json(rs, 200, process_json(sb, x));
    return NULL;
}

err *rest_process_delete(request *rq, response *rs)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(exec_unrefp) exec *x = NULL;
    exec_state st;

    TRY(rest_find_exec(rq, &sb, &x));
    exec_get(x, &st);
    if (st.end.how == EXEC_RUNNING)
        TRY(exec_signal(x, SIGKILL, SP_TO_TREE));
    response_json(rs, 200, process_json(sb, x));
    return NULL;
}

/* ---- output ---- */

static const char *query_find(void *arg, const char *name)
{
    return request_query(arg, name);
}

static err *output_range(request *rq, const process_output_query *q, bool events, follow_options *o)
{
    const char *last = request_header(rq, "Last-Event-ID");
    uint64_t first = 0, second = 0;
    bool both = q->stream == PROCESS_OUTPUT_QUERY_STREAM_BOTH ||
                (events && q->stream == PROCESS_OUTPUT_QUERY_STREAM_UNSET);
    int one = q->stream == PROCESS_OUTPUT_QUERY_STREAM_ERR ? 2 : 1;

    if (both && !events)
        return err_remedy(err_new(ERR_INVALID_REQUEST, "stream: raw bytes are of one stream"),
                          "Ask for stream=out or stream=err, or for text/event-stream.");
    TRY(rest_parse_offsets(last ? last : q->offset, &first, &second));
    o->streams = both ? 1u << 1 | 1u << 2 : 1u << one;
    if (both || last || strchr(q->offset, '.')) {
        o->from[1] = first;
        o->from[2] = second;
    } else {
        o->from[one] = first;
    }
    return NULL;
}

/* Answers with the bytes that exist now. */
static err *output_now(response *rs, exec *x, const follow_options *o, size_t max)
{
    int stream = o->streams & 2 ? 1 : 2;
    uint64_t at = o->from[stream], gap = 0;
    CLEANUP(buf_done) buf b = {0};
    exec_state st;
    size_t n = 0;

    exec_get(x, &st);
    if (at > st.length[stream - 1])
        return err_because(
            err_kind(err_new(ERR_RANGE, "offset %lu is beyond the stream", at), "output"),
            "its length is %lu", st.length[stream - 1]);
    buf_reserve(&b, max);
    TRY(exec_read(x, stream, at, b.p, max, &n, &gap));
    if (gap > at) {
        at = gap;
        TRY(exec_read(x, stream, at, b.p, max, &n, &gap));
    }
    response_status(rs, 200);
    response_header(rs, "Bothy-Offset", "%lu", at);
    response_header(rs, "Bothy-Length", "%lu", st.length[stream - 1]);
    response_header(rs, "Bothy-Ended", "%s", st.end.how == EXEC_RUNNING ? "false" : "true");
    response_bytes(rs, "application/octet-stream", b.p, n);
    return NULL;
}

err *rest_process_output(request *rq, response *rs)
{
    CLEANUP(process_output_query_done) process_output_query q = {0};
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(exec_unrefp) exec *x = NULL;
    bool events = rest_wants_events(rq);
    follow_options o = {.form = events ? &FOLLOW_EVENTS : &FOLLOW_RAW};

    TRY(process_output_query_decode(query_find, rq, &q));
    TRY(output_range(rq, &q, events, &o));
    TRY(rest_find_exec(rq, &sb, &x));
    if (q.follow == PROCESS_OUTPUT_QUERY_FOLLOW_NO && !events)
        return output_now(rs, x, &o, q.max);
    o.until = q.follow == PROCESS_OUTPUT_QUERY_FOLLOW_EOF   ? UNTIL_EOF
              : q.follow == PROCESS_OUTPUT_QUERY_FOLLOW_END ? UNTIL_END
                                                            : UNTIL_NOW;
    follow_start(rq, rs, sb, x, &o);
    return NULL;
}

/* ---- signals ---- */

int rest_signal_number(const char *text)
{
    uint64_t n = 0;

    if (str_to_u64(text, 64, &n))
        return n ? (int)n : -1;
    if (str_starts(text, "SIG"))
        text += 3;
    for (int i = 1; i < 32; i++) {
        const char *name = sigabbrev_np(i);
        if (name && !strcmp(name, text))
            return i;
    }
    return -1;
}

err *rest_process_signal(request *rq, response *rs)
{
    static const uint32_t SCOPES[] = {[SIGNAL_REQUEST_SCOPE_UNSET] = SP_TO_PROC,
                                      [SIGNAL_REQUEST_SCOPE_PROCESS] = SP_TO_PROC,
                                      [SIGNAL_REQUEST_SCOPE_GROUP] = SP_TO_GROUP,
                                      [SIGNAL_REQUEST_SCOPE_SESSION] = SP_TO_SESSION,
                                      [SIGNAL_REQUEST_SCOPE_TREE] = SP_TO_TREE};
    CLEANUP(signal_request_done) signal_request in = {0};
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(exec_unrefp) exec *x = NULL;
    CLEANUP(buf_done) buf body = {0};

    TRY(request_body(rq, 4096, &body));
    TRY(signal_request_decode(body.p, body.len, &in));
    TRY(rest_find_exec(rq, &sb, &x));
    int signo = rest_signal_number(in.signal);
    if (signo < 0)
        return err_new(ERR_INVALID_REQUEST, "signal: '%s' is no signal", in.signal);
    TRY(exec_signal(x, signo, SCOPES[in.scope]));
    response_status(rs, 204);
    return NULL;
}

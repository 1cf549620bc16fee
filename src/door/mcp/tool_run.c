/* The tools run, session_run and output. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "api/mcp.h"
#include "base/clock.h"
#include "door/mcp/fit.h"
#include "door/mcp/internal.h"

/* Bytes of a stream that are shown. The tail is larger: there builds
 * and tests say what went wrong. */
#define OUT_HEAD 8192
#define OUT_TAIL 16384
#define ERR_HEAD 2048
#define ERR_TAIL 8192
#define LAST     160              /* bytes of output that are searched for the last line */
#define EARLY_NS (20 * NS_PER_MS) /* by then a program that cannot be run has failed */
#define START_NS (10 * NS_PER_S)  /* time limit for a shell to start */

/* ---- streams as text ---- */

static err *read_exec(void *arg, uint64_t offset, void *p, size_t max, size_t *ret_n,
                      uint64_t *ret_gap_to, int stream)
{
    mcp_call *c = arg;

    return c->sh ? session_read(c->sh, c->seq, stream, offset, p, max, ret_n, ret_gap_to)
                 : exec_read(c->x, stream, offset, p, max, ret_n, ret_gap_to);
}

static err *read_out(void *arg, uint64_t offset, void *p, size_t max, size_t *ret_n,
                     uint64_t *ret_gap_to)
{
    return read_exec(arg, offset, p, max, ret_n, ret_gap_to, 1);
}

static err *read_err(void *arg, uint64_t offset, void *p, size_t max, size_t *ret_n,
                     uint64_t *ret_gap_to)
{
    return read_exec(arg, offset, p, max, ret_n, ret_gap_to, 2);
}

/* Returns the call that reads the rest of a stream. It names the sandbox, as ids of execs and
 * sessions are unique only within one. */
static char *rest_call(const mcp_call *c, const char *stream)
{
    const char *sb = sandbox_id(c->sb);

    if (!c->sh)
        return str_printf("output(sandbox=\"%s\", exec=\"%lu\", stream=\"%s\", ", sb, exec_id(c->x),
                          stream);
    return str_printf("output(sandbox=\"%s\", session=\"%lu\", command=\"%lu\", stream=\"%s\", ",
                      sb, session_id(c->sh), c->seq, stream);
}

static err *put_stream(mcp_call *c, int stream, uint64_t length, buf *out, bool *cut)
{
    CLEANUP(freep) char *rest = rest_call(c, stream == 1 ? "out" : "err");
    fit_source s = {.read = stream == 1 ? read_out : read_err,
                    .arg = c,
                    .length = length,
                    .head = stream == 1 ? OUT_HEAD : ERR_HEAD,
                    .tail = stream == 1 ? OUT_TAIL : ERR_TAIL,
                    .rest = rest};
    bool one = false;

    TRY(fit_stream(out, &s, &one));
    *cut |= one;
    return NULL;
}

/* Puts both streams into the text, and separately into the data. */
static err *put_streams(mcp_call *c, const uint64_t length[2])
{
    CLEANUP(buf_done) buf out = {0}, errors = {0};
    bool cut = false;

    TRY(put_stream(c, 1, length[0], &out, &cut));
    TRY(put_stream(c, 2, length[1], &errors, &cut));
    buf_append(&c->text, out.p, out.len);
    if (errors.len) {
        if (out.len && out.p[out.len - 1] != '\n')
            buf_char(&c->text, '\n');
        buf_str(&c->text, "[stderr]\n");
        buf_append(&c->text, errors.p, errors.len);
    }
    if (!out.len && !errors.len)
        buf_str(&c->text, "(no output)");
    json_object_set_new(c->data, "out", json_stringn(out.p ? out.p : "", out.len));
    json_object_set_new(c->data, "err", json_stringn(errors.p ? errors.p : "", errors.len));
    json_object_set_new(c->data, "out_bytes", json_integer((json_int_t)length[0]));
    json_object_set_new(c->data, "err_bytes", json_integer((json_int_t)length[1]));
    json_object_set_new(c->data, "truncated", json_boolean(cut));
    return NULL;
}

/* ---- run ---- */

static err *take_spec(mcp_run *in, exec_spec *spec)
{
    if (!in->command == !in->argv)
        return err_new(ERR_INVALID_REQUEST, "command, argv: one of them is needed, and not both");
    *spec = (exec_spec){.argv = TAKE_PTR(in->argv),
                        .env = TAKE_PTR(in->env),
                        .user = TAKE_PTR(in->user),
                        .cwd = TAKE_PTR(in->cwd),
                        .stdio = STDIO_PIPES,
                        .stdin_open = in->stdin != NULL,
                        .timeout_ms = in->timeout_ms,
                        .exec_fd = -1};
    if (!in->command)
        return NULL;
    strv_push(&spec->argv, xstrdup("sh"));
    strv_push(&spec->argv, xstrdup("-c"));
    strv_push(&spec->argv, TAKE_PTR(in->command));
    return NULL;
}

err *tool_run_begin(mcp_call *c)
{
    CLEANUP(exec_spec_done) exec_spec spec = {.exec_fd = -1};
    const idempotency none = {0};
    mcp_run *in = c->args;
    bool replay = false;

    TRY(take_spec(in, &spec));
    TRY(engine_exec(c->door->o.engine, &c->who, c->sb, &spec, &none, &c->x, &replay));
    c->watch = (exec_watch){.notify = mcp_call_wake, .arg = c};
    exec_watch_add(c->x, &c->watch);
    return in->stdin ? exec_stdin_all(c->x, in->stdin, strlen(in->stdin)) : NULL;
}

void tool_run_stop(mcp_call *c)
{
    if (c->x && !((const mcp_run *)c->args)->background)
        err_drop(exec_signal(c->x, SIGKILL, SP_TO_TREE), "mcp");
}

/* Copies the last complete line of output. */
static size_t last_line(mcp_call *c, uint64_t length, char line[LAST])
{
    uint64_t gap = 0, from = length > LAST ? length - LAST : 0;
    char bytes[LAST];
    size_t n = 0;

    err *e = exec_read(c->x, 1, from, bytes, sizeof bytes, &n, &gap);
    err_free(e);
    while (!e && n && (bytes[n - 1] == '\n' || bytes[n - 1] == '\r'))
        n--;
    const char *begin = e || !n ? NULL : memrchr(bytes, '\n', n);
    size_t at = begin ? (size_t)(begin - bytes) + 1 : 0;
    n = e ? 0 : n - at;
    memcpy(line, bytes + at, n);
    return n;
}

void tool_run_say(mcp_call *c, buf *out)
{
    char line[LAST];
    exec_state st;

    if (!c->x)
        return;
    exec_get(c->x, &st);
    size_t n = last_line(c, st.length[0], line);
    if (n)
        fit_text(out, line, n);
    else
        buf_printf(out, "%lu bytes of output", st.length[0] + st.length[1]);
}

static const char *tool_run_plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

/* Puts the first line that a model reads. */
static void put_end(mcp_call *c, const exec_state *st, double seconds)
{
    const exec_end *end = &st->end;

    if (end->how == EXEC_EXITED)
        buf_printf(&c->text, "exit code %d", end->exit_code);
    else if (end->how == EXEC_TIMED_OUT)
        buf_printf(&c->text, "timed out after %.1f s and was killed; what it had started, too",
                   seconds);
    else if (end->how == EXEC_UNKNOWN)
        buf_str(&c->text, MCP_NOT_KNOWN);
    else
        buf_printf(&c->text, "%s by signal %d (%s)", exec_how_name(end->how), end->signal,
                   str_or(sigabbrev_np(end->signal), "?"));
    if (end->oom)
        buf_str(&c->text, "; out of memory");
    if (end->how == EXEC_EXITED)
        buf_printf(&c->text, " after %.1f s", seconds);
    buf_char(&c->text, '\n');
}

static void put_end_data(mcp_call *c, const exec_state *st, double seconds)
{
    const exec_end *end = &st->end;
    char id[24];

    snprintf(id, sizeof id, "%lu", st->id);
    c->data = json_pack("{s:s,s:s,s:b,s:f}", "exec", id, "how", exec_how_name(end->how),
                        "out_of_memory", end->oom, "seconds", seconds);
    if (end->how == EXEC_EXITED)
        json_object_set_new(c->data, "exit_code", json_integer(end->exit_code));
    else if (end->signal)
        json_object_set_new(c->data, "signal", json_integer(end->signal));
}

static err *answer_background(mcp_call *c, const exec_state *st)
{
    static const uint64_t NOTHING[2] = {0};

    put_end_data(c, st, 0);
    TRY(put_streams(c, NOTHING));
    buf_clear(&c->text);
    buf_printf(&c->text,
               "It runs as exec %lu. Its output: output(sandbox=\"%s\", exec=\"%lu\", "
               "wait_ms=10000).",
               st->id, sandbox_id(c->sb), st->id);
    return NULL;
}

/* Returns true if a program that cannot be run would have failed by now. */
static bool is_under_way(mcp_call *c, const exec_state *st, uint64_t now)
{
    if (!st->started)
        return false;
    if (!c->since)
        c->since = now;
    c->wake_at = c->since + EARLY_NS;
    return now >= c->wake_at;
}

err *tool_run_poll(mcp_call *c, uint64_t now, bool *ret_done)
{
    const mcp_run *in = c->args;
    exec_state st;

    exec_get(c->x, &st);
    bool running = st.end.how == EXEC_RUNNING;
    if (running && !(in->background && is_under_way(c, &st, now)))
        return NULL;
    *ret_done = true;
    if (running)
        return answer_background(c, &st);
    TRY(exec_end_error(&st.end));
    double seconds = (double)(st.end.ended_ns - st.end.started_ns) / (double)NS_PER_S;
    put_end(c, &st, seconds);
    put_end_data(c, &st, seconds);
    return put_streams(c, (const uint64_t[]){st.end.out_bytes, st.end.err_bytes});
}

/* ---- session_run ---- */

/* Finds the live session of that name, or makes one. */
static err *find_session(mcp_call *c, const char *name)
{
    const idempotency none = {0};
    session_spec spec = {.name = name, .shell = "auto", .mode = SESSION_AUTO};
    CLEANUP(session_state_done) session_state st = {0};
    bool replay = false;

    TRY(engine_awake(c->sb));
    CLEANUP(err_freep) err *e = engine_session_find(c->sb, name, &c->sh);
    if (e && e->code != ERR_NOT_FOUND)
        return TAKE_PTR(e);
    if (!e) {
        session_get(c->sh, &st);
        if (st.life != SESSION_ENDED)
            return NULL;
        session_unref(TAKE_PTR(c->sh));
    }
    return engine_session_new(c->door->o.engine, &c->who, c->sb, &spec, &none, &c->sh, &replay);
}

err *tool_session_begin(mcp_call *c)
{
    const mcp_session_run *in = c->args;
    err *e = find_session(c, in->session);

    if (e && e->code == ERR_CONFLICT) { /* another call has just made it */
        err_free(e);
        e = find_session(c, in->session);
    }
    if (e)
        return e;
    c->watch = (exec_watch){.notify = mcp_call_wake, .arg = c};
    session_watch_add(c->sh, &c->watch);
    return NULL;
}

void tool_session_stop(mcp_call *c)
{
    CLEANUP(command_state_done) command_state st = {0};

    if (!c->seq || !c->sh)
        return;
    err *e = session_command(c->sh, c->seq, &st);
    if (!e && st.kind == COMMAND_RUNNING)
        e = session_interrupt(c->sh);
    err_drop(e, "mcp");
}

/* Returns why the shell cannot run a command; NULL while it may still start. A shell that
 * ended without output does not work. */
static err *no_shell(mcp_call *c, uint64_t now)
{
    CLEANUP(session_state_done) session_state st = {0};

    session_get(c->sh, &st);
    err *e = exec_end_error(&st.shell.end);
    if (e)
        return err_wrap(e, "the shell '%s'", st.program);
    if (st.life == SESSION_ENDED)
        return err_remedy(err_new(ERR_EXEC_FAILED, "the image has no shell that works"),
                          "Use run with argv, or an image that has bash or sh.");
    if (st.life != SESSION_STARTING) {
        /* another command runs: its end wakes the call, and may start a shell again */
        c->since = 0;
        return NULL;
    }
    if (!c->since)
        c->since = now;
    c->wake_at = c->since + START_NS;
    return now >= c->wake_at ? err_new(ERR_TIMEOUT, "the shell does not start") : NULL;
}

/* Tries to begin the command. *ret_runs is false while it is not its turn. */
static err *try_command(mcp_call *c, uint64_t now, bool *ret_runs)
{
    const mcp_session_run *in = c->args;
    command_spec spec = {
        .text = in->command, .n = strlen(in->command), .timeout_ms = in->timeout_ms};
    bool replay = false;
    err *e = engine_session_run(c->sb, c->sh, &spec, NULL, &c->seq, &replay);

    if (!session_is_busy(e)) {
        *ret_runs = !e;
        return e;
    }
    err_free(e);
    *ret_runs = false;
    return no_shell(c, now);
}

static bool is_known(const command_state *st)
{
    return st->kind != COMMAND_UNKNOWN && st->kind != COMMAND_NOT_RUN;
}

static void put_command_data(mcp_call *c, const command_state *st)
{
    bool late = st->flags & COMMAND_F_TIMED_OUT, killed = st->flags & COMMAND_F_OOM;
    bool restarted = st->flags & COMMAND_F_RESTARTED;
    char id[24], seq[24];

    snprintf(id, sizeof id, "%lu", st->session);
    snprintf(seq, sizeof seq, "%lu", st->seq);
    c->data = json_pack("{s:s,s:s,s:s,s:b,s:b,s:b}", "session", id, "command", seq, "kind",
                        command_kind_name(st->kind), "timed_out", late, "out_of_memory", killed,
                        "restarted", restarted);
    if (is_known(st))
        json_object_set_new(c->data, "exit_code", json_integer(st->status));
    if (st->cwd)
        json_object_set_new(c->data, "cwd", fit_json(st->cwd, strlen(st->cwd)));
}

/* Returns what state the next command finds, where a model might expect another. */
static const char *kept_after(const command_state *st)
{
    if (st->kind == COMMAND_EXITED)
        return "; the session goes on, its directory, variables and functions are kept";
    if (st->kind == COMMAND_RESUMED && st->flags & COMMAND_F_RESTARTED)
        return "; the shell was lost and started again: only the directory and exported variables "
               "from before this command are kept; functions, other variables and background jobs "
               "are gone";
    if (st->kind == COMMAND_RESUMED)
        return "; the shell was replaced or killed: directory, variables and functions are again "
               "what they were before this command";
    return st->kind == COMMAND_ENDED && st->flags & COMMAND_F_TIMED_OUT ? "; the session goes on"
                                                                        : "";
}

static void put_command(mcp_call *c, const command_state *st)
{
    if (st->kind == COMMAND_NOT_RUN)
        buf_str(&c->text, "it was not run, and nothing has changed: send it again");
    else if (st->kind == COMMAND_UNKNOWN)
        buf_str(&c->text, MCP_NOT_KNOWN);
    else
        buf_printf(&c->text, "exit code %d", st->status);
    if (st->cwd) {
        buf_str(&c->text, ", in ");
        fit_text(&c->text, st->cwd, strlen(st->cwd));
    }
    if (st->flags & COMMAND_F_TIMED_OUT)
        buf_printf(&c->text, "; timed out and was %s",
                   st->rung > RUNG_INT ? "killed" : "interrupted");
    if (st->flags & COMMAND_F_OOM)
        buf_str(&c->text, "; out of memory");
    buf_str(&c->text, kept_after(st));
    buf_char(&c->text, '\n');
}

err *tool_session_poll(mcp_call *c, uint64_t now, bool *ret_done)
{
    CLEANUP(command_state_done) command_state st = {0};
    bool runs = c->seq != 0;

    if (!runs)
        TRY(try_command(c, now, &runs));
    if (!runs)
        return NULL;
    TRY(session_command(c->sh, c->seq, &st));
    if (st.kind == COMMAND_RUNNING)
        return NULL;
    *ret_done = true;
    put_command(c, &st);
    put_command_data(c, &st);
    return put_streams(c, st.length);
}

/* ---- output ---- */

err *tool_output_begin(mcp_call *c)
{
    const mcp_output *in = c->args;

    if (!in->exec == !in->session || !in->session != !in->command)
        return err_new(ERR_INVALID_REQUEST,
                       "exec, session: either exec, or session and command, must be named");
    c->watch = (exec_watch){.notify = mcp_call_wake, .arg = c};
    if (in->exec) {
        err *e = engine_exec_find(c->sb, in->exec, &c->x);
        if (e) {
            c->watch.notify = NULL;
            return e;
        }
        exec_watch_add(c->x, &c->watch);
        return NULL;
    }
    err *e = engine_session_find(c->sb, in->session, &c->sh);
    if (e) {
        c->watch.notify = NULL;
        return e;
    }
    session_watch_add(c->sh, &c->watch);
    if (!str_to_u64(in->command, UINT64_MAX, &c->seq))
        return err_kind(err_new(ERR_NOT_FOUND, "there is no command '%s'", in->command), "command");
    return NULL;
}

typedef struct progress {
    bool ended, has_code;
    int code;
    uint64_t length;
} progress;

static err *tool_run_look(mcp_call *c, int stream, progress *ret)
{
    CLEANUP(command_state_done) command_state cs = {0};
    exec_state st;

    if (c->sh) {
        TRY(session_command(c->sh, c->seq, &cs));
        *ret = (progress){.ended = cs.kind != COMMAND_RUNNING,
                          .has_code = cs.kind == COMMAND_ENDED || cs.kind == COMMAND_EXITED ||
                                      cs.kind == COMMAND_RESUMED,
                          .code = cs.status,
                          .length = cs.length[stream - 1]};
        return NULL;
    }
    exec_get(c->x, &st);
    *ret = (progress){.ended = st.end.how != EXEC_RUNNING,
                      .has_code = st.end.how == EXEC_EXITED,
                      .code = st.end.exit_code,
                      .length = st.length[stream - 1]};
    return NULL;
}

static err *read_part(mcp_call *c, int stream, const mcp_output *in, buf *b, uint64_t *ret_at)
{
    uint64_t gap = 0, at = in->offset;
    size_t n = 0;

    buf_reserve(b, in->limit);
    TRY(read_exec(c, at, b->p, in->limit, &n, &gap, stream));
    if (gap > at) {
        at = gap;
        TRY(read_exec(c, at, b->p, in->limit, &n, &gap, stream));
    }
    b->len = n;
    *ret_at = at;
    return NULL;
}

static void put_part(mcp_call *c, const progress *p, const buf *b, uint64_t at, size_t shown)
{
    const mcp_output *in = c->args;
    uint64_t next = at + shown, left = p->length > next ? p->length - next : 0;

    if (at > in->offset)
        buf_printf(&c->text,
                   "[bytes %lu to %lu were dropped: the command wrote more than is kept]\n",
                   in->offset, at);
    size_t from = c->text.len;
    fit_text(&c->text, b->p ? b->p : "", shown);
    c->data = json_pack("{s:o,s:I,s:I,s:I,s:b}", "text",
                        json_stringn(c->text.p ? c->text.p + from : "", c->text.len - from),
                        "offset", (json_int_t)at, "next", (json_int_t)next, "length",
                        (json_int_t)p->length, "ended", p->ended);
    if (p->ended && p->has_code)
        json_object_set_new(c->data, "exit_code", json_integer(p->code));
    if (left)
        buf_printf(&c->text, "\n[%lu byte%s follow%s; go on with offset=%lu]", left,
                   tool_run_plural(left), left == 1 ? "s" : "", next);
    else if (!p->ended)
        buf_printf(&c->text, "\n[it still runs; go on with offset=%lu, wait_ms=10000]", next);
    else if (p->has_code)
        buf_printf(&c->text, "\n[it has ended with exit code %d]", p->code);
    else
        buf_str(&c->text, "\n[it has ended]");
}

err *tool_output_poll(mcp_call *c, uint64_t now, bool *ret_done)
{
    const mcp_output *in = c->args;
    int stream = in->stream == MCP_OUTPUT_STREAM_ERR ? 2 : 1;
    CLEANUP(buf_done) buf b = {0};
    progress p;
    uint64_t at = 0;

    /* The state is read before the bytes: if it shows the end, all bytes can be read. */
    TRY(tool_run_look(c, stream, &p));
    c->wake_at = c->began + in->wait_ms * NS_PER_MS;
    if (!p.ended && p.length <= in->offset && now < c->wake_at)
        return NULL;
    *ret_done = true;
    TRY(read_part(c, stream, in, &b, &at));
    size_t shown =
        at + b.len < p.length ? fit_head(b.p, b.len, b.len > 4 ? b.len - 1 : b.len) : b.len;
    put_part(c, &p, &b, at, shown);
    return NULL;
}

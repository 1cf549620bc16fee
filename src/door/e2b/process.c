/* process.Process over Connect: commands and terminals. A process's pid is the id of its exec.
 *
 * Streams are jobs of the relay (process_stream.c). process_input.c handles input, process_wire.c
 * the messages. */
#include "door/e2b/process.h"

#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "door/e2b/internal.h"
#include "door/e2b/process_call.h"
#include "door/shared/stream.h"
#include "wire/connect.h"

#define START_MAX   (8u << 20)
#define KEEPALIVE_S 90      /* if the header is absent, as in envd */
#define ARG_MAX_LEN 131072u /* the kernel's limit: one argument with its NUL */
#define DEADLINE_NS \
    (100 * NS_PER_MS) /* a stream ends that long before its limit: clients that \
                         stop by themselves at the limit read why it ended */

/* ---- which process ---- */

err *process_not_found(const process_selector *s)
{
    err *e = s->tag ? err_new(ERR_NOT_FOUND, "process with tag %s not found", s->tag)
                    : err_new(ERR_NOT_FOUND, "process with pid %u not found", s->pid);

    return err_remedy(err_kind(e, "process"), "List the sandbox's processes.");
}

/* Finds the newest exec whose note has this tag. */
static err *find_tag(sandbox *sb, const process_selector *s, exec **ret)
{
    CLEANUP(freep) exec **list = NULL;
    exec *found = NULL;
    size_t n = 0;

    TRY(engine_exec_list(sb, &list, &n));
    for (size_t i = n; i-- > 0;) {
        CLEANUP(freep) char *text = found ? NULL : exec_note(list[i]);
        CLEANUP(json_decrefp) json_t *note = text ? json_loads(text, 0, NULL) : NULL;
        if (note && str_eq(json_str(note, "tag"), s->tag))
            found = exec_ref(list[i]);
        exec_unref(list[i]);
    }
    *ret = found;
    return found ? NULL : process_not_found(s);
}

err *process_find(sandbox *sb, const process_selector *s, exec **ret)
{
    char id[16];

    if (s->tag)
        return find_tag(sb, s, ret);
    snprintf(id, sizeof id, "%u", s->pid);
    err *e = engine_exec_find(sb, id, ret);
    if (e && e->code == ERR_NOT_FOUND) {
        err_free(e);
        return process_not_found(s);
    }
    return e;
}

/* An ended process is unknown to envd. */
err *process_told(exec *x, err *e)
{
    if (!e || e->code != ERR_CONFLICT || !str_eq(e->kind, "exec"))
        return e;
    err_free(e);
    return process_not_found(&(process_selector){.pid = (uint32_t)exec_id(x)});
}

/* ---- requests ---- */

static err *read_stream_body(request *rq, buf *body, const char **ret_message, size_t *ret_n)
{
    TRY(request_body(rq, START_MAX + CONNECT_HEAD, body));
    return connect_single(body->p ? body->p : "", body->len, ret_message, ret_n);
}

static uint64_t keepalive_ns(const request *rq)
{
    const char *header = request_header(rq, "Keepalive-Ping-Interval");
    uint64_t s = KEEPALIVE_S;

    if (!header || !str_to_u64(header, 3600, &s) || !s)
        s = KEEPALIVE_S;
    return s * NS_PER_S;
}

/* Returns when a stream with this time limit ends (monotonic ns); 0 if it has none. */
static uint64_t deadline_of(uint64_t ms)
{
    uint64_t ns = ms * NS_PER_MS, early = ns / 2 < DEADLINE_NS ? ns / 2 : DEADLINE_NS;

    return ms ? now_mono_ns() + ns - early : 0;
}

/* ---- Start ---- */

/* Returns true for "bash -l -c TEXT", the form in which SDKs send a command. */
static bool is_shell(const process_start *s)
{
    const char *cmd = strrchr(s->argv[0], '/');

    return str_eq(cmd ? cmd + 1 : s->argv[0], "bash") && strv_len(s->argv) == 4 &&
           str_eq(s->argv[1], "-l") && str_eq(s->argv[2], "-c");
}

static err *check_args(const process_start *s)
{
    for (char **a = s->argv; *a; a++)
        if (strlen(*a) >= ARG_MAX_LEN)
            return err_remedy(
                err_new(ERR_EXEC_FAILED, "an argument has %zu bytes, the kernel takes %u",
                        strlen(*a), ARG_MAX_LEN - 1),
                "Write the text to a file and run that, or run the command with stdin off.");
    return NULL;
}

/* Passes a text that is too long for an argument by stdin, if the command has no stdin of its own.
 * The shell reads it whole, runs it, and gives it /dev/null as stdin. Then *ret_fed is true and
 * ret_text is to be fed. */
static err *lay_out(process_start *s, bool *ret_fed, buf *ret_text)
{
    if (!is_shell(s) || !s->no_stdin || s->has_pty || strlen(s->argv[3]) < ARG_MAX_LEN)
        return check_args(s);
    buf_str(ret_text, s->argv[3]);
    free(s->argv[3]);
    s->argv[3] = xstrdup("eval \"$(cat)\" </dev/null");
    *ret_fed = true;
    return NULL;
}

/* Returns the working directory; a relative one begins at the user's home. */
static char *cwd_of(const process_start *s)
{
    if (!s->cwd)
        return NULL;
    return s->cwd[0] == '/' || s->cwd[0] == '~' ? xstrdup(s->cwd) : str_printf("~/%s", s->cwd);
}

static exec_spec spec_of(process_start *s, const char *user, uint64_t timeout_ms, bool fed)
{
    return (exec_spec){.argv = TAKE_PTR(s->argv),
                       .env = TAKE_PTR(s->env),
                       .user = user ? xstrdup(user) : NULL,
                       .cwd = cwd_of(s),
                       .cwd_home = true,
                       .stdio = s->has_pty ? STDIO_PTY : STDIO_PIPES,
                       .stdin_open = s->has_pty || !s->no_stdin || fed,
                       .rows = s->rows,
                       .cols = s->cols,
                       .timeout_ms =
                           timeout_ms < SPEC_TIMEOUT_MAX_MS ? timeout_ms : SPEC_TIMEOUT_MAX_MS,
                       .exec_fd = -1};
}

static err *feed_text(exec *x, const buf *text)
{
    TRY(exec_feed(x, text->p, text->len, 0));
    return exec_stdin(x, NULL, 0, UINT64_MAX, true);
}

static err *start_exec(envd_call *c, process_start *s, uint64_t timeout_ms, exec **ret)
{
    CLEANUP(exec_spec_done) exec_spec spec = {.exec_fd = -1};
    CLEANUP(exec_unrefp) exec *x = NULL;
    CLEANUP(freep) char *note = process_note(s);
    CLEANUP(body_wipe) buf text = {0};
    bool fed = false, replay = false;

    TRY(lay_out(s, &fed, &text));
    spec = spec_of(s, c->user, timeout_ms, fed);
    TRY(engine_exec(c->door->o.engine, c->as, c->sb, &spec, &(idempotency){0}, &x, &replay));
    exec_note_set(x, TAKE_PTR(note));
    err *e = fed ? feed_text(x, &text) : NULL;
    if (e && e->code == ERR_CONFLICT) { /* it has ended already; its end record says why */
        err_free(e);
        e = NULL;
    }
    if (e) { /* half a text must not run, and no client knows the process yet */
        err_drop(exec_signal(x, SIGKILL, SP_TO_TREE), "e2b");
        return e;
    }
    *ret = TAKE_PTR(x);
    return NULL;
}

static err *process_start_rpc(envd_call *c, request *rq, response *rs)
{
    CLEANUP(process_start_done) process_start s = {0};
    CLEANUP(exec_unrefp) exec *x = NULL;
    CLEANUP(body_wipe) buf body = {0};
    const char *message = NULL;
    uint64_t timeout_ms = 0;
    size_t n = 0;

    TRY(connect_timeout(request_header(rq, "Connect-Timeout-Ms"), &timeout_ms));
    TRY(read_stream_body(rq, &body, &message, &n));
    TRY(process_start_decode(message, n, &s));
    TRY(start_exec(c, &s, timeout_ms, &x));
    process_stream_start(rq, rs, c->sb, x,
                         &(process_stream){.is_new = true,
                                           .cwd = s.cwd,
                                           .user = c->user,
                                           .keepalive_ns = keepalive_ns(rq),
                                           .deadline_ns = deadline_of(timeout_ms)});
    return NULL;
}

/* ---- Connect ---- */

static err *process_connect_rpc(envd_call *c, request *rq, response *rs)
{
    CLEANUP(process_request_done) process_request in = {0};
    CLEANUP(exec_unrefp) exec *x = NULL;
    CLEANUP(buf_done) buf body = {0};
    const char *message = NULL;
    uint64_t timeout_ms = 0;
    size_t n = 0;

    TRY(connect_timeout(request_header(rq, "Connect-Timeout-Ms"), &timeout_ms));
    TRY(read_stream_body(rq, &body, &message, &n));
    TRY(process_request_decode(message, n, &in));
    TRY(process_find(c->sb, &in.process, &x));
    process_stream_start(rq, rs, c->sb, x,
                         &(process_stream){.keepalive_ns = keepalive_ns(rq),
                                           .deadline_ns = deadline_of(timeout_ms)});
    return NULL;
}

/* ---- unary ---- */

static json_t *info_of(exec *x, const exec_state *st)
{
    CLEANUP(freep) char *text = exec_note(x);
    json_t *info = text ? json_loads(text, 0, NULL) : NULL;

    if (!info) /* of another door, or from before a restart of bothyd: use the journal's */
        info = json_pack("{s:{s:s,s:[],s:{}}}", "config", "cmd", st->command, "args", "envs");
    json_object_set_new(info, "pid", json_integer((json_int_t)st->id));
    return info;
}

static err *process_list_rpc(envd_call *c, request *rq, response *rs)
{
    CLEANUP(freep) exec **list = NULL;
    json_t *all = json_array();
    size_t n = 0;

    (void)rq;
    err *e = engine_exec_list(c->sb, &list, &n);
    for (size_t i = 0; i < n; i++) {
        exec_state st;
        exec_get(list[i], &st);
        if (st.end.how == EXEC_RUNNING)
            json_array_append_new(all, info_of(list[i], &st));
        exec_unref(list[i]);
    }
    response_json(rs, 200, json_pack("{s:o}", "processes", all));
    return e;
}

err *process_read(envd_call *c, request *rq, process_request *ret_in, exec **ret_exec)
{
    CLEANUP(process_request_done) process_request in = {0};
    CLEANUP(body_wipe) buf body = {0};

    TRY(request_body(rq, START_MAX, &body));
    TRY(process_request_decode(body.p ? body.p : "", body.len, &in));
    TRY(process_find(c->sb, &in.process, ret_exec));
    *ret_in = in;
    in = (process_request){0};
    return NULL;
}

static err *process_signal_rpc(envd_call *c, request *rq, response *rs)
{
    CLEANUP(process_request_done) process_request in = {0};
    CLEANUP(exec_unrefp) exec *x = NULL;

    TRY(process_read(c, rq, &in, &x));
    if (!in.signo)
        return err_remedy(err_new(ERR_UNSUPPORTED, "invalid signal"),
                          "Send SIGNAL_SIGTERM or SIGNAL_SIGKILL.");
    exec_state st;
    exec_get(x, &st);
    if (st.end.how != EXEC_RUNNING)
        return process_not_found(&in.process);
    /* SIGKILL goes to the whole process tree: no client could end the descendants afterwards. */
    TRY(process_told(x, exec_signal(x, in.signo, in.signo == SIGKILL ? SP_TO_TREE : SP_TO_PROC)));
    response_json(rs, 200, json_object());
    return NULL;
}

static err *process_update_rpc(envd_call *c, request *rq, response *rs)
{
    CLEANUP(process_request_done) process_request in = {0};
    CLEANUP(exec_unrefp) exec *x = NULL;

    TRY(process_read(c, rq, &in, &x));
    if (in.has_pty)
        TRY(process_told(x, exec_resize(x, in.rows, in.cols)));
    response_json(rs, 200, json_object());
    return NULL;
}

/* ---- dispatch ---- */

static const struct {
    const char *name;
    bool stream;
    err *(*serve)(envd_call *c, request *rq, response *rs);
} METHODS[] = {
    {"Start", true, process_start_rpc},
    {"Connect", true, process_connect_rpc},
    {"List", false, process_list_rpc},
    {"SendInput", false, process_send_input_rpc},
    {"StreamInput", true, process_stream_input_rpc},
    {"CloseStdin", false, process_close_stdin_rpc},
    {"SendSignal", false, process_signal_rpc},
    {"Update", false, process_update_rpc},
};

/* Every SDK speaks JSON. Parameters such as "; charset=utf-8" are accepted. */
static err *check_type(const request *rq, bool stream)
{
    const char *type = str_or(request_header(rq, "Content-Type"), "");
    const char *want = stream ? "application/connect+json" : "application/json";

    if (str_starts(type, want) && strchr(";", type[strlen(want)]))
        return NULL;
    return err_remedy(err_new(ERR_UNSUPPORTED, "Content-Type: '%s'", type),
                      "Send %s: this server speaks Connect with JSON.", want);
}

err *process_rpc(envd_call *c, request *rq, response *rs)
{
    const char *name = strrchr(request_path(rq), '/') + 1;

    for (size_t i = 0; i < ARRAY_LEN(METHODS); i++) {
        if (!str_eq(METHODS[i].name, name))
            continue;
        if (!str_eq(request_method(rq), "POST"))
            return err_new(ERR_METHOD_NOT_ALLOWED, "%s is called by POST", name);
        TRY(check_type(rq, METHODS[i].stream));
        return METHODS[i].serve(c, rq, rs);
    }
    return e2b_missing(MISSING_PROCESS, "process.Process has no %s", name);
}

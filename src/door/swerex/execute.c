/* execute: runs one command outside all sessions, as subprocess.run() does. */
#include <errno.h>
#include <string.h>

#include "door/shared/follow.h"
#include "door/swerex/internal.h"
#include "door/swerex/text.h"
#include "wire/spine.h"

static void command_free(void *arg)
{
    rex_command_done(arg);
    free(arg);
}

static void execute_raise(const follow *f, relay_io *io, const char *class, buf *text)
{
    rex_exception(io, class, text->p, text->len, f->request_id);
}

/* Returns the error that Python's subprocess raises if the child cannot be started; NULL if it
 * ran. */
static err *start_error(const rex_command *c, const exec_state *st)
{
    const exec_end *end = &st->end;

    if (end->how == EXEC_NOT_STARTED && end->stage == SP_ST_EXEC)
        return rex_os_error(end->errnum, c->argv[0]);
    if (end->how == EXEC_NOT_STARTED && end->stage == SP_ST_CWD)
        return rex_os_error(end->errnum, str_or(c->cwd, "."));
    return follow_start_error(st);
}

static err *read_followed(void *from, int stream, uint64_t offset, void *p, size_t max,
                          size_t *ret_n, uint64_t *ret_gap_to)
{
    return follow_read(from, stream, offset, p, max, ret_n, ret_gap_to);
}

static void tell_timeout(const follow *f, relay_io *io, const rex_command *c)
{
    CLEANUP(buf_done) buf text = {0};

    buf_str(&text, "Timeout (");
    rex_repr_float(&text, c->timeout);
    buf_str(&text, "s) exceeded while running command");
    execute_raise(f, io, REX_E("CommandTimeoutError"), &text);
}

static void tell_nonzero(const follow *f, relay_io *io, const rex_command *c, int code,
                         const buf out[2])
{
    CLEANUP(buf_done) buf text = {0};

    if (*c->error_msg)
        buf_printf(&text, "%s: ", c->error_msg);
    buf_printf(&text, "Command %s failed with exit code %d. Stdout:\n", c->shown, code);
    rex_repr(&text, out[0].p, out[0].len);
    buf_str(&text, "\nStderr:\n");
    rex_repr(&text, out[1].p, out[1].len);
    execute_raise(f, io, REX_E("NonZeroExitCodeError"), &text);
}

static void tell_result(const follow *f, relay_io *io, int code, const buf out[2])
{
    CLEANUP(buf_done) buf body = {0};

    buf_str(&body, "{\"stdout\":");
    buf_json_string(&body, out[0].p, out[0].len);
    buf_str(&body, ",\"stderr\":");
    buf_json_string(&body, out[1].p, out[1].len);
    buf_printf(&body, ",\"exit_code\":%d}", code);
    rex_answer(io, 200, &body, f->request_id);
}

static err *execute_lost(follow *f)
{
    return err_remedy(
        err_because(err_new(ERR_SANDBOX_GONE, "it is not known how the command ended"), "%s",
                    str_or(follow_cause(f), "the sandbox has ended")),
        "Look whether it had an effect before it is sent again.");
}

static err *tell_end(follow *f, relay_io *io, const exec_state *st)
{
    const rex_command *c = f->o.arg;
    const exec_end *end = &st->end;
    buf out[2] = {0};

    if (end->how == EXEC_TIMED_OUT) {
        tell_timeout(f, io, c);
        return NULL;
    }
    if (end->how == EXEC_UNKNOWN)
        return execute_lost(f);
    err *e = rex_output(read_followed, f, 1, end->out_bytes, &out[0]);
    if (!e)
        e = rex_output(read_followed, f, 2, end->err_bytes, &out[1]);
    int code = end->how == EXEC_EXITED ? end->exit_code : -end->signal;
    if (!e && c->check && code)
        tell_nonzero(f, io, c, code, out);
    else if (!e)
        tell_result(f, io, code, out);
    buf_done(&out[0]);
    buf_done(&out[1]);
    return e;
}

static enum relay_next execute_step(follow *f, relay_io *io, const exec_state *st)
{
    if (st->end.how == EXEC_RUNNING)
        return RELAY_WAIT;
    CLEANUP(err_freep) err *e = start_error(f->o.arg, st);
    if (!e)
        e = tell_end(f, io, st);
    if (e)
        http_error_answer_as(io->out, &REX_FORM, e, io->keep_alive, f->request_id);
    return follow_finish(io);
}

static const follow_form EXECUTED = {.step = execute_step, .free = command_free};

err *rex_execute(request *rq, response *rs, const rex_who *w, sandbox *sb)
{
    CLEANUP(rex_command_done) rex_command c = {0};
    CLEANUP(exec_unrefp) exec *x = NULL;
    CLEANUP(body_wipe) buf body = {0};
    const char *key = request_header(rq, "X-Request-ID");
    bool replay = false;

    (void)w;
    TRY(request_body(rq, REX_BODY_MAX, &body));
    TRY(rex_command_decode(body.p, body.len, &c));
    double ms = c.timeout * 1000;
    exec_spec spec = {.argv = c.argv,
                      .env = c.env,
                      .cwd = c.cwd,
                      .stdio = c.merge ? STDIO_MERGED : STDIO_PIPES,
                      .timeout_ms = c.timeout < 0 ? 0
                                    : ms < 1      ? 1
                                                  : (uint64_t)ms,
                      .exec_fd = -1};
    idempotency idem = {.key = key && ascii_visible(key) && strlen(key) <= 255 ? key : NULL,
                        .body = body.p,
                        .nbody = body.len};
    if (!*c.argv[0])
        return rex_os_error(ENOENT, "");
    TRY(engine_exec(rex_engine(rq), rex_caller(rq), sb, &spec, &idem, &x, &replay));
    follow_options o = {.form = &EXECUTED, .until = UNTIL_END, .streams = 6};
    rex_command *kept = xcalloc(1, sizeof *kept);
    *kept = c;
    c = (rex_command){0};
    o.arg = kept;
    follow_start(rq, rs, sb, x, &o);
    return NULL;
}

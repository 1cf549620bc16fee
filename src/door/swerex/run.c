/* Actions in a session's own shell, on pipes: check the text, wait for the turn, run, answer. Each
 * is a relay job; no thread waits.
 *
 * SWE-ReX checks the syntax of every command first, so that nothing of a wrong one runs. A shell
 * reads a line whole before it runs it, so here only texts of several lines need that check. A
 * single line is checked afterwards, if it has failed the way wrong syntax does. */
#include <string.h>

#include "base/clock.h"
#include "door/shared/brief.h"
#include "door/swerex/internal.h"
#include "door/swerex/text.h"

#define CHECK_MAX (512u << 10)    /* bytes of a text that is checked before it runs */
#define START_NS  (10 * NS_PER_S) /* a shell that is silent for so long has not started */
#define ROOM_NS   (NS_PER_S / 2)  /* between two tries to get memory for an output */
#define START_MS  10000           /* for the files that a shell sources by itself */

enum stage {
    STAGE_CHECK, /* the shell's -n option reads the text */
    STAGE_TURN,
    STAGE_RUN,
    STAGE_CLASSIFY, /* the command has failed: the same check */
};

typedef struct run {
    rex_ground g;
    rex_action a;
    bool opening; /* the command prepares a new session */
    enum stage stage;
    exec *check;
    exec_watch on_session, on_check;
    relay_job *job;
    exec_key key;
    bool has_key, watched, held;
    bool crowded; /* it has ended, but its owner has no memory left for the output */
    uint64_t seq;
    uint64_t starting; /* since when its shell has been starting; 0: it is not */
    command_state end;
    buf output;
    int status; /* of the answer; 0: none yet */
    buf body;
} run;

/* ---- the context ---- */

err *rex_ground_take(request *rq, sandbox *sb, session *s, size_t held, rex_ground *ret)
{
    const caller *c = rex_caller(rq);
    request_hold *hold = NULL;

    TRY(request_hold_new(rq, held, &hold));
    *ret = (rex_ground){.engine = rex_engine(rq),
                        .who = *c,
                        .sb = sandbox_ref(sb),
                        .s = s ? session_ref(s) : NULL,
                        .request_id = xstrdup(request_id(rq)),
                        .hold = hold,
                        .uses = sandbox_stream_begin(sb)};
    ret->who.owner = xstrdup(c->owner);
    return NULL;
}

void rex_ground_done(rex_ground *g)
{
    if (g->uses)
        sandbox_stream_end(g->sb);
    session_unref(g->s);
    sandbox_unref(g->sb);
    request_hold_free(g->hold);
    free(g->who.owner);
    free(g->request_id);
}

/* ---- the check ---- */

static void on_news(void *arg)
{
    relay_wake(arg);
}

static void check_drop(run *r)
{
    if (!r->check)
        return;
    exec_unwatch(r->check, &r->on_check);
    exec_discard(r->check, DISCARD_KILL);
    exec_unref(TAKE_PTR(r->check));
}

static err *check_begin(run *r)
{
    CLEANUP(session_state_done) session_state st;

    session_get(r->g.s, &st);
    bool other = st.dialect == DIALECT_DASH || st.dialect == DIALECT_ASH;
    char *argv[] = {other ? "sh" : "bash", "-n", NULL};
    exec_spec spec = {.argv = argv, .stdin_open = true, .exec_fd = -1, .transient = true};
    bool replay = false;
    exec *x = NULL;
    TRY(engine_exec(r->g.engine, &r->g.who, r->g.sb, &spec, &(idempotency){0}, &x, &replay));
    r->check = x;
    r->on_check = (exec_watch){.notify = on_news, .arg = r->job};
    exec_watch_add(x, &r->on_check);
    err *e = exec_stdin(x, r->a.command, r->a.n, UINT64_MAX, false);
    if (!e)
        e = exec_stdin(x, "\n", 1, UINT64_MAX, true);
    if (e && e->code != ERR_CONFLICT) /* CONFLICT: the check has ended, and its status counts */
        check_drop(r);
    return e;
}

static err *read_exec(void *from, int stream, uint64_t offset, void *p, size_t max, size_t *ret_n,
                      uint64_t *ret_gap_to)
{
    return exec_read(from, stream, offset, p, max, ret_n, ret_gap_to);
}

static err *tell_syntax(run *r, const exec_state *st)
{
    CLEANUP(buf_done) buf out = {0};
    CLEANUP(buf_done) buf bad = {0};
    CLEANUP(buf_done) buf text = {0};
    CLEANUP(buf_done) buf extra = {0};

    TRY(rex_output(read_exec, r->check, 1, st->end.out_bytes, &out));
    TRY(rex_output(read_exec, r->check, 2, st->end.err_bytes, &bad));
    buf_printf(&text, "Error (exit code %d) while checking bash command \n", st->end.exit_code);
    rex_repr(&text, r->a.command, r->a.n);
    buf_printf(&text, "\n---- Stderr ----\n%s\n---- Stdout ----\n%s", buf_cstr(&bad),
               buf_cstr(&out));
    buf_str(&extra, "\"bash_stdout\":");
    buf_json_string(&extra, out.p, out.len);
    buf_str(&extra, ",\"bash_stderr\":");
    buf_json_string(&extra, bad.p, bad.len);
    r->status = rex_exception_body(&r->body, REX_E("BashIncorrectSyntaxError"), text.p, text.len,
                                   buf_cstr(&extra));
    return NULL;
}

/* Returns true if the text has several lines that are not empty: a part could run before the rest
 * is read. */
static bool has_lines(const char *text, size_t n)
{
    while (n && strchr(" \t\n", text[n - 1]))
        n--;
    while (n && strchr(" \t\n", *text)) {
        text++;
        n--;
    }
    return memchr(text, '\n', n) != NULL;
}

/* Returns true if the command may have failed by wrong syntax: bash exits with 2, or with 1 inside
 * an expansion. */
static bool looks_wrong(run *r)
{
    const command_state *c = &r->end;
    const char *text = buf_cstr(&r->output);

    return c->kind == COMMAND_ENDED && r->a.n <= CHECK_MAX &&
           (c->status == 2 ||
            (c->status == 1 && (strstr(text, "syntax error") || strstr(text, "unexpected EOF"))));
}

/* ---- answers ---- */

static void tell_error(run *r, err *owned)
{
    CLEANUP(err_freep) err *e = owned;

    r->status = err_info_of(e->code)->http;
    REX_FORM.write(&r->body, e, r->g.request_id, &r->status);
}

static void run_raise(run *r, const char *class, buf *text)
{
    r->status = rex_exception_body(&r->body, class, text->p, text->len, NULL);
}

static void tell_timeout(run *r)
{
    CLEANUP(buf_done) buf text = {0};

    if (r->opening) {
        buf_str(&text, "Timeout exceeded.");
        run_raise(r, "pexpect.exceptions.TIMEOUT", &text);
        return;
    }
    buf_str(&text, "timeout after ");
    rex_repr_float(&text, r->a.timeout);
    buf_str(&text, " seconds while running command ");
    rex_repr(&text, r->a.command, r->a.n);
    run_raise(r, REX_E("CommandTimeoutError"), &text);
}

static void tell_nonzero(run *r)
{
    CLEANUP(buf_done) buf text = {0};

    if (*r->a.error_msg)
        buf_printf(&text, "%s: ", r->a.error_msg);
    buf_str(&text, "Command ");
    rex_repr(&text, r->a.command, r->a.n);
    buf_printf(&text, " failed with exit code %d. Here is the output:\n", r->end.status);
    rex_repr(&text, r->output.p, r->output.len);
    run_raise(r, REX_E("NonZeroExitCodeError"), &text);
}

static void tell_lost(run *r)
{
    CLEANUP(buf_done) buf text = {0};
    CLEANUP(sandbox_view_done) sandbox_view v = {0};

    sandbox_get(r->g.sb, &v);
    buf_printf(&text, "it is not known how the command ended; sandbox %s is %s %s", v.id, v.state,
               str_or(v.cause, ""));
    run_raise(r, REX_E("NoExitCodeError"), &text);
}

void rex_observation(buf *body, const buf *output, const char *code, const char *expected)
{
    buf_str(body, "{\"output\":");
    buf_json_string(body, output->p, output->len);
    buf_printf(body, ",\"exit_code\":%s,\"failure_reason\":\"\",\"expect_string\":", code);
    buf_json_string(body, expected, strlen(expected));
    buf_str(body, ",\"session_type\":\"bash\"}");
}

enum relay_next rex_tell_observation(const rex_ground *g, relay_io *io, const buf *output,
                                     const char *code, const char *expected)
{
    CLEANUP(buf_done) buf body = {0};

    rex_observation(&body, output, code, expected);
    return rex_answer(io, 200, &body, g->request_id);
}

static void tell_opened(run *r)
{
    buf_str(&r->body, "{\"output\":");
    buf_json_string(&r->body, r->output.p, r->output.len);
    buf_str(&r->body, ",\"session_type\":\"bash\"}");
    r->status = 200;
}

static void tell_end(run *r)
{
    bool known = r->end.kind != COMMAND_UNKNOWN && r->end.kind != COMMAND_NOT_RUN;
    char code[16];

    if (r->end.flags & COMMAND_F_TIMED_OUT) {
        tell_timeout(r);
    } else if (r->opening && known) {
        tell_opened(r);
    } else if (!known && (r->opening || r->a.check == REX_CHECK_RAISE)) {
        tell_lost(r);
    } else if (r->end.status && r->a.check == REX_CHECK_RAISE) {
        tell_nonzero(r);
    } else {
        str_copy(code, sizeof code, "null");
        if (known && r->a.check != REX_CHECK_IGNORE)
            snprintf(code, sizeof code, "%d", r->end.status);
        rex_observation(&r->body, &r->output, code, REX_PROMPT);
        r->status = 200;
    }
}

/* ---- steps ---- */

/* Returns an error if the shell did not start: it ended at once, or was silent for START_NS. */
static err *no_shell(run *r, const relay_io *io)
{
    CLEANUP(session_state_done) session_state st;

    session_get(r->g.s, &st);
    bool dead = st.life == SESSION_ENDED && !st.commands;
    /* The shell can start again while this run waits for its turn, because the session restarts a
     * shell that an earlier command has ended. Each start has START_NS of its own. */
    if (st.life != SESSION_STARTING)
        r->starting = 0;
    else if (!r->starting)
        r->starting = io->now;
    bool mute = r->starting && io->now - r->starting >= START_NS;
    if (!dead && !mute)
        return NULL;
    err *e = dead ? exec_end_error(&st.shell.end) : NULL;
    if (!e)
        e = err_new(ERR_EXEC_FAILED, dead ? "it ended at once" : "it says nothing");
    return err_remedy(err_wrap(e, "the shell '%s'", st.program),
                      "Use an image with bash, dash or busybox ash; execute needs none.");
}

/* Starts the command. Returns false if the session is busy. An error becomes the answer. */
static bool take_turn(run *r)
{
    double ms = r->a.timeout < 0 ? 0 : r->a.timeout * 1000;
    command_spec spec = {.text = r->a.command,
                         .n = r->a.n,
                         .timeout_ms = r->a.timeout < 0 ? 0
                                       : ms < 1         ? 1
                                                        : (uint64_t)ms,
                         .merge = true};
    bool replay = false;
    err *e =
        engine_session_run(r->g.sb, r->g.s, &spec, r->has_key ? &r->key : NULL, &r->seq, &replay);

    if (session_is_busy(e)) {
        err_free(e);
        return false;
    }
    if (e)
        tell_error(r, e);
    r->stage = STAGE_RUN;
    return true;
}

static void step_turn(run *r, relay_io *io)
{
    err *e = no_shell(r, io);

    if (e)
        tell_error(r, e);
    else if (!take_turn(r))
        io->wake_at = io->now + NS_PER_S;
}

typedef struct of_command {
    session *s;
    uint64_t seq;
} of_command;

static err *read_command(void *from, int stream, uint64_t offset, void *p, size_t max,
                         size_t *ret_n, uint64_t *ret_gap_to)
{
    const of_command *c = from;

    return session_read(c->s, c->seq, stream, offset, p, max, ret_n, ret_gap_to);
}

static err *read_output(session *s, const command_state *c, buf *ret_output)
{
    of_command from = {s, c->seq};

    TRY(rex_output(read_command, &from, 1, c->length[0], ret_output));
    TRY(rex_output(read_command, &from, 2, c->length[1], ret_output)); /* the shell's own errors */
    rex_strip(ret_output);
    return NULL;
}

/* Returns how much memory an output needs until it is answered: as text, and in the answer. */
static size_t size_of(const command_state *c)
{
    size_t n = 0;

    for (size_t i = 0; i < 2; i++)
        n += c->length[i] < REX_OUTPUT_MAX ? c->length[i] : REX_OUTPUT_MAX;
    return 2 * n;
}

/* Reserves memory for the output of the ended command. Returns false if its owner holds too much at
 * the moment; the answer waits then. An error would make clients send the command again, and
 * nothing in the protocol tells the second one from the first. */
static bool has_room(run *r)
{
    CLEANUP(err_freep) err *e = NULL;

    if (!r->held)
        e = request_hold_more(r->g.hold, size_of(&r->end));
    r->held = !e;
    r->crowded = e != NULL;
    return r->held;
}

/* Returns true if the command has ended and its output was read, or if an error is the answer. */
static bool has_ended(void *arg)
{
    run *r = arg;
    err *e = session_command(r->g.s, r->seq, &r->end);

    if (!e && (r->end.kind == COMMAND_RUNNING || !has_room(r))) {
        command_state_done(&r->end);
        r->end = (command_state){0};
        return false;
    }
    if (!e)
        e = read_output(r->g.s, &r->end, &r->output);
    if (e)
        tell_error(r, e);
    return true;
}

/* Returns true if the end can be answered now, false if the syntax has to be checked first. */
static bool is_answer(run *r)
{
    return r->opening || r->check || !looks_wrong(r);
}

static void step_run(run *r, relay_io *io)
{
    if (!has_ended(r)) {
        io->wake_at = r->crowded ? io->now + ROOM_NS : 0;
        return;
    }
    if (r->status)
        return;
    if (!is_answer(r)) {
        r->stage = STAGE_CLASSIFY;
        err_drop(check_begin(r), "swerex");
    }
    if (r->stage == STAGE_RUN || !r->check)
        tell_end(r);
}

static void step_check(run *r)
{
    exec_state st;

    if (r->check)
        exec_get(r->check, &st);
    if (r->check && st.end.how == EXEC_RUNNING)
        return;
    if (r->check && st.end.how == EXEC_EXITED && st.end.exit_code) {
        err *e = tell_syntax(r, &st);
        if (e)
            tell_error(r, e);
    } else if (r->stage == STAGE_CLASSIFY) {
        tell_end(r);
    } else {
        r->stage = STAGE_TURN;
    }
}

static enum relay_next run_step(void *ctx, relay_io *io)
{
    run *r = ctx;

    if (r->stage == STAGE_CHECK || r->stage == STAGE_CLASSIFY)
        step_check(r);
    if (!r->status && r->stage == STAGE_TURN)
        step_turn(r, io);
    if (!r->status && r->stage == STAGE_RUN)
        step_run(r, io);
    return r->status ? rex_answer(io, r->status, &r->body, r->g.request_id) : RELAY_WAIT;
}

static void run_start(void *ctx, relay_job *job)
{
    run *r = ctx;

    r->job = job;
    r->on_session = (exec_watch){.notify = on_news, .arg = job};
    r->watched = true;
    session_watch_add(r->g.s, &r->on_session);
    if (r->stage == STAGE_CHECK)
        err_drop(check_begin(r), "swerex"); /* on failure the text runs unchecked */
}

static void run_free(void *ctx)
{
    run *r = ctx;

    if (r->watched)
        session_unwatch(r->g.s, &r->on_session);
    check_drop(r);
    command_state_done(&r->end);
    buf_done(&r->output);
    buf_done(&r->body);
    rex_action_done(&r->a);
    rex_ground_done(&r->g);
    free(r);
}

static const relay_ops RUN_OPS = {
    .kind = STREAM_OUTPUT, .start = run_start, .step = run_step, .free = run_free};

/* Answers a command that ends within a moment, without the relay. Returns false if the relay has to
 * continue. */
static bool answer_now(run *r, response *rs)
{
    if (r->stage != STAGE_TURN || !take_turn(r))
        return false;
    if (!r->status) {
        if (!brief_wait(r->g.s, has_ended, r))
            return false;
        if (!r->status && !is_answer(r)) { /* the relay reads the output again */
            command_state_done(&r->end);
            r->end = (command_state){0};
            buf_clear(&r->output);
            return false;
        }
    }
    if (!r->status)
        tell_end(r);
    response_status(rs, r->status);
    response_bytes(rs, "application/json", r->body.p, r->body.len);
    run_free(r);
    return true;
}

err *rex_run_start(request *rq, response *rs, sandbox *sb, session *s, rex_action *a,
                   const exec_key *key)
{
    run *r = xcalloc(1, sizeof *r);
    err *e = rex_ground_take(rq, sb, s, a->n, &r->g);

    if (e) {
        free(r);
        return e;
    }
    r->a = *a;
    *a = (rex_action){0};
    if (key)
        r->key = *key;
    r->has_key = key != NULL;
    r->stage = r->a.n <= CHECK_MAX && has_lines(r->a.command, r->a.n) ? STAGE_CHECK : STAGE_TURN;
    if (!answer_now(r, rs))
        response_relay(rs, &RUN_OPS, r);
    return NULL;
}

/* ---- a new session ---- */

/* Returns the commands that make a session's shell like SWE-ReX's interactive one: it has read
 * ~/.bashrc, expands aliases, and has its prompt, which sourced files may check. */
static char *opening_text(char *const *sources)
{
    CLEANUP(buf_done) buf text = {0};

    buf_str(&text, "export PS1=" REX_PROMPT " PS2= PS0=\n"
                   "if [ -n \"$BASH_VERSION\" ]; then shopt -s expand_aliases\n"
                   "[ ! -r ~/.bashrc ] || . ~/.bashrc\nfi\n");
    for (size_t i = 0; sources && sources[i]; i++)
        buf_printf(&text, "command . %s\n", sources[i]);
    buf_str(&text, "export PS1=" REX_PROMPT " PS2= PS0=\n");
    return buf_take(&text);
}

err *rex_opening_start(request *rq, response *rs, sandbox *sb, session *s, rex_opening *o,
                       const exec_key *key)
{
    rex_action a = {.session = TAKE_PTR(o->session),
                    .command = opening_text(o->sources),
                    .error_msg = xstrdup(""),
                    .timeout = o->sources ? o->timeout : START_MS / 1000.0,
                    .check = REX_CHECK_IGNORE};
    run *r = xcalloc(1, sizeof *r);

    a.n = strlen(a.command);
    err *e = rex_ground_take(rq, sb, s, a.n, &r->g);
    if (e) {
        rex_action_done(&a);
        free(r);
        return e;
    }
    r->a = a;
    if (key)
        r->key = *key;
    r->has_key = key != NULL;
    r->opening = true;
    r->stage = STAGE_TURN;
    response_relay(rs, &RUN_OPS, r);
    return NULL;
}

/* ---- interrupt ---- */

typedef struct halt {
    rex_ground g;
    exec_watch watch;
    bool watched;
    uint64_t seq; /* the command to interrupt; 0: none runs */
} halt;

static void halt_start(void *ctx, relay_job *job)
{
    halt *h = ctx;

    h->watch = (exec_watch){.notify = on_news, .arg = job};
    h->watched = true;
    session_watch_add(h->g.s, &h->watch);
}

static void halt_free(void *ctx)
{
    halt *h = ctx;

    if (h->watched)
        session_unwatch(h->g.s, &h->watch);
    rex_ground_done(&h->g);
    free(h);
}

/* Reads the output of the session's last command if that timed out: no answer contained it. */
static err *last_words(halt *h, buf *ret_output)
{
    CLEANUP(session_state_done) session_state st;
    CLEANUP(command_state_done) command_state c = {0};

    session_get(h->g.s, &st);
    if (!st.commands)
        return NULL;
    TRY(session_command(h->g.s, st.commands, &c));
    if (!(c.flags & COMMAND_F_TIMED_OUT) || c.kind == COMMAND_RUNNING)
        return NULL;
    TRY(read_output(h->g.s, &c, ret_output));
    rex_trim(ret_output);
    return NULL;
}

static enum relay_next halt_step(void *ctx, relay_io *io)
{
    halt *h = ctx;
    CLEANUP(command_state_done) command_state c = {0};
    CLEANUP(buf_done) buf output = {0};

    err *e = h->seq ? session_command(h->g.s, h->seq, &c) : NULL;
    if (!e && h->seq && c.kind == COMMAND_RUNNING)
        return RELAY_WAIT;
    if (!e)
        e = last_words(h, &output);
    if (e) {
        http_error_answer_as(io->out, &REX_FORM, e, io->keep_alive, h->g.request_id);
        err_free(e);
        return io->keep_alive ? RELAY_DONE : RELAY_CLOSE;
    }
    return rex_tell_observation(&h->g, io, &output, "0", REX_PROMPT);
}

static const relay_ops HALT_OPS = {
    .kind = STREAM_OUTPUT, .start = halt_start, .step = halt_step, .free = halt_free};

err *rex_interrupt_start(request *rq, response *rs, sandbox *sb, session *s)
{
    CLEANUP(session_state_done) session_state st;
    halt *h = xcalloc(1, sizeof *h);
    err *e = rex_ground_take(rq, sb, s, 0, &h->g);

    session_get(s, &st);
    h->seq = st.running;
    if (!e && st.running)
        e = session_interrupt(s);
    if (e) {
        halt_free(h);
        return e;
    }
    response_relay(rs, &HALT_OPS, h);
    return NULL;
}

/* Actions on a terminal: is_interactive_command, is_interactive_quit, expect, and interrupts.
 *
 * A session's shell has no terminal. An action that needs one gets a second shell on a terminal,
 * which begins with the session's directory, variables, functions and aliases. Programs run in
 * front of it for as long as the client likes. When its prompt comes back, its directory and
 * exported variables are copied to the session, and it ends. Actions are relay jobs: no thread
 * waits. */
#include <string.h>

#include "base/clock.h"
#include "door/swerex/terminal.h"
#include "door/swerex/text.h"

#define START_NS  (10 * NS_PER_S)
#define SOON_NS   (5 * NS_PER_S) /* limit for answers that a shell gives at once */
#define DUMP_MAX  (4u << 20)
#define PART      (96u << 10) /* bytes of an argument: the kernel takes 128 KiB */
#define UNIQUE    "UNIQUESTRING29234"
#define CODE_FROM "EXITCODESTART"
#define CODE_TO   "EXITCODEEND"
#define BACK_FROM "STATEBEGIN29234"
#define BACK_TO   "STATEEND29234"
#define BACK_TOP  "STATEFROM29234"

#define DUMP_BASH                                                                      \
    "declare -p 2>/dev/null; echo " BACK_FROM "; declare -f; alias -p; printf 'cd -- " \
    "%q\\n' \"$PWD\""
#define DUMP_SH "export -p; echo " BACK_FROM "; alias; printf 'cd -- \"%s\"\\n' \"$PWD\""
#define PROMPTS "PS1=" REX_PROMPT " PS2= PS0=; unset PROMPT_COMMAND"
/* The state is passed in arguments. bash reads it as its rc file through a pipe, so that no file is
 * made. */
#define BOOT_BASH                                                                         \
    "exec bash --noprofile --noediting --rcfile <(printf '{ '; printf %s \"$@\"; printf " \
    "'\\n} 2>/dev/null\\nstty -echo 2>/dev/null\\n" PROMPTS "\\n') -i"
#define BOOT_SH                                                                                \
    "s=; for p; do s=$s$p; done; eval \"$s\" 2>/dev/null; unset s p; stty -echo 2>/dev/null; " \
    "export PS1=" REX_PROMPT " PS2=; exec sh -i"
#define BACK(quoted)                                                                         \
    "printf '%s%s\\n' STATEFROM 29234; (unset SHLVL TERM COLUMNS LINES PS1 PS2 PS0; export " \
    "-p; printf '%s%s\\n' STATEBEGIN 29234; printf 'cd -- " quoted                           \
    "\\n' \"$PWD\"); printf '%s%s\\n' STATEEND 29234\n"

enum stage {
    STAGE_DUMP, /* the session prints its state */
    STAGE_BOOT, /* waits for the shell's first prompt */
    STAGE_WAIT, /* waits for the text the client expects */
    STAGE_QUIT, /* switches the echo off again */
    STAGE_CODE, /* asks for the command's exit status */
    STAGE_STOP, /* ^Z was sent: the job ignores ^C */
    STAGE_KILL, /* the stopped job is killed */
    STAGE_BACK, /* the shell prints its state */
    STAGE_HOME, /* the session takes that state over */
};

typedef struct act {
    rex_ground g;
    rex_action a;
    rex_terminal *t;
    rex_expect *wanted; /* the client's patterns and the prompt */
    rex_expect *own;    /* the text that the stage waits for */
    enum stage stage;
    exec_watch on_session, on_output;
    exec *watched; /* the exec that on_output watches; a reference */
    relay_job *job;
    bool sent, took, raises;
    uint64_t seq, deadline;
    int tries;
    char *text; /* command to run in the session */
    buf output;
    char code[16];
    const char *expected;
} act;

static void on_news(void *arg)
{
    relay_wake(arg);
}

static enum relay_next interactive_finish(const relay_io *io)
{
    return io->keep_alive ? RELAY_DONE : RELAY_CLOSE;
}

static enum relay_next tell_error(act *a, relay_io *io, err *owned)
{
    CLEANUP(err_freep) err *e = owned;

    http_error_answer_as(io->out, &REX_FORM, e, io->keep_alive, a->g.request_id);
    return interactive_finish(io);
}

static enum relay_next interactive_raise(act *a, relay_io *io, const char *class, const char *text)
{
    return rex_exception(io, class, text, strlen(text), a->g.request_id);
}

/* ---- the shell ---- */

static void watch_output(act *a, exec *x)
{
    a->watched = exec_ref(x);
    a->on_output = (exec_watch){.notify = on_news, .arg = a->job};
    exec_watch_add(x, &a->on_output);
}

static err *interactive_boot(act *a, bool bash, const buf *state)
{
    CLEANUP(strv_freep) char **argv = NULL;
    char *env[] = {"TERM=dumb", "PS1=" REX_PROMPT, "PS2=", "PS0=", NULL};
    bool replay = false;
    exec *x = NULL;

    strv_push(&argv, xstrdup(bash ? "bash" : "sh"));
    strv_push(&argv, xstrdup("-c"));
    strv_push(&argv, xstrdup(bash ? BOOT_BASH : BOOT_SH));
    strv_push(&argv, xstrdup("sh"));
    for (size_t i = 0; i < state->len; i += PART)
        strv_push(&argv, xstrndup(state->p + i, state->len - i < PART ? state->len - i : PART));
    exec_spec spec = {.argv = argv,
                      .env = env,
                      .stdio = STDIO_PTY,
                      .rows = 24,
                      .cols = 80,
                      .stdin_open = true,
                      .exec_fd = -1,
                      .transient = true};
    TRY(engine_exec(a->g.engine, &a->g.who, a->g.sb, &spec, &(idempotency){0}, &x, &replay));
    pthread_mutex_lock(&a->t->lock);
    a->t->x = x;
    a->t->program = true;
    pthread_mutex_unlock(&a->t->lock);
    watch_output(a, x);
    return NULL;
}

/* Runs a->text in the session's own shell. *ret_over is false while it runs. */
static err *in_session(act *a, relay_io *io, bool *ret_over)
{
    CLEANUP(command_state_done) command_state c = {0};
    command_spec spec = {.text = a->text, .n = strlen(a->text), .timeout_ms = SOON_NS / NS_PER_MS};
    bool replay = false;

    *ret_over = false;
    if (!a->seq) {
        CLEANUP(err_freep)
        err *e = engine_session_run(a->g.sb, a->g.s, &spec, NULL, &a->seq, &replay);
        io->wake_at = io->now + NS_PER_S;
        if (session_is_busy(e))
            return NULL;
        if (e)
            return TAKE_PTR(e);
    }
    TRY(session_command(a->g.s, a->seq, &c));
    *ret_over = c.kind != COMMAND_RUNNING;
    return NULL;
}

static err *read_dump(const act *a, buf *ret_state)
{
    CLEANUP(command_state_done) command_state c = {0};
    uint64_t gap = 0;
    size_t n = 1;

    TRY(session_command(a->g.s, a->seq, &c));
    if (c.length[0] > DUMP_MAX)
        return err_new(ERR_TOO_LARGE, "the session's state has more than %u MiB", DUMP_MAX >> 20);
    while (n && ret_state->len < c.length[0]) {
        buf_reserve(ret_state, c.length[0] - ret_state->len);
        TRY(session_read(a->g.s, a->seq, 1, ret_state->len, ret_state->p + ret_state->len,
                         c.length[0] - ret_state->len, &n, &gap));
        ret_state->len += n;
    }
    return NULL;
}

static bool is_bash(const act *a)
{
    CLEANUP(session_state_done) session_state st;

    session_get(a->g.s, &st);
    return st.dialect == DIALECT_BASH;
}

/* ---- stages ---- */

static void expect_own(act *a, const char *text)
{
    rex_expect_free(TAKE_PTR(a->own));
    err_drop(rex_expect_new(NULL, text, &a->own), "swerex");
}

static void interactive_enter(act *a, relay_io *io, enum stage stage, uint64_t ns)
{
    a->stage = stage;
    a->deadline = ns == UINT64_MAX ? 0 : io->now + ns;
}

static uint64_t interactive_patience(const act *a)
{
    return a->a.timeout < 0 ? UINT64_MAX : (uint64_t)(a->a.timeout * 1e9);
}

static enum relay_next interactive_over(act *a, relay_io *io);

static enum relay_next send_action(act *a, relay_io *io)
{
    CLEANUP(buf_done) buf line = {0};

    if (a->a.interrupt) {
        buf_char(&line, '\003');
    } else {
        buf_append(&line, a->a.command, a->a.n);
        buf_char(&line, '\n');
    }
    a->sent = true;
    err *e = rex_terminal_type(a->t, line.p, line.len);
    if (e && a->a.interrupt) { /* its shell has ended meanwhile */
        err_free(e);
        return interactive_over(a, io);
    }
    if (e)
        return tell_error(a, io, e);
    interactive_enter(a, io, STAGE_WAIT, interactive_patience(a));
    return RELAY_MORE;
}

static enum relay_next step_dump(act *a, relay_io *io)
{
    CLEANUP(buf_done) buf state = {0};
    bool over = false;

    if (!a->text)
        a->text = xstrdup(is_bash(a) ? DUMP_BASH : DUMP_SH);
    err *e = in_session(a, io, &over);
    if (!e && !over)
        return RELAY_WAIT;
    if (!e)
        e = read_dump(a, &state);
    if (!e)
        rex_settle(&state, BACK_FROM);
    if (!e)
        e = interactive_boot(a, is_bash(a), &state);
    if (e)
        return tell_error(a, io, e);
    expect_own(a, REX_PROMPT);
    interactive_enter(a, io, STAGE_BOOT, START_NS);
    return RELAY_MORE;
}

static enum relay_next interactive_nonzero(act *a, relay_io *io)
{
    CLEANUP(buf_done) buf text = {0};

    if (*a->a.error_msg)
        buf_printf(&text, "%s: ", a->a.error_msg);
    buf_str(&text, "Command ");
    rex_repr(&text, a->a.command, a->a.n);
    buf_printf(&text, " failed with exit code %s. Here is the output:\n", a->code);
    rex_repr(&text, a->output.p, a->output.len);
    return interactive_raise(a, io, REX_E("NonZeroExitCodeError"), buf_cstr(&text));
}

/* Sends the answer when nothing is left to do. */
static enum relay_next interactive_tell(act *a, relay_io *io)
{
    if (a->raises)
        return interactive_nonzero(a, io);
    return rex_tell_observation(&a->g, io, &a->output, a->code, a->expected);
}

/* Asks the terminal's shell for its state, once its prompt is back. */
static enum relay_next go_home(act *a, relay_io *io)
{
    const char *line = is_bash(a) ? BACK("%q") : BACK("\"%s\"");
    err *e = rex_terminal_type(a->t, line, strlen(line));

    if (e) {
        err_drop(e, "swerex");
        return interactive_tell(a, io);
    }
    expect_own(a, BACK_TO);
    interactive_enter(a, io, STAGE_BACK, SOON_NS);
    return RELAY_MORE;
}

static enum relay_next ask_code(act *a, relay_io *io)
{
    static const char LINE[] = "echo " CODE_FROM "$?" CODE_TO "\n";
    err *e = rex_terminal_type(a->t, LINE, strlen(LINE));

    if (e)
        return tell_error(a, io, e);
    expect_own(a, CODE_TO);
    interactive_enter(a, io, STAGE_CODE, SOON_NS);
    return RELAY_MORE;
}

static enum relay_next interactive_quiet(act *a, relay_io *io)
{
    static const char LINE[] = "stty -echo 2>/dev/null; echo UNIQUE''STRING29234\n";
    err *e = rex_terminal_type(a->t, LINE, strlen(LINE));

    if (e)
        return tell_error(a, io, e);
    expect_own(a, UNIQUE);
    interactive_enter(a, io, STAGE_QUIT, SOON_NS);
    return RELAY_MORE;
}

/* Removes the echo of the command, if there is one, as SWE-ReX's server does. */
static void trim_echo(act *a)
{
    rex_trim(&a->output);
    if (!a->a.interrupt && a->output.len >= a->a.n &&
        memcmp(a->output.p, a->a.command, a->a.n) == 0) {
        buf_consume(&a->output, a->a.n);
        rex_trim(&a->output);
    }
}

static enum relay_next interactive_matched(act *a, relay_io *io, const rex_match *m)
{
    bool plain = !a->a.interactive && !a->a.quit && !a->a.interrupt;

    rex_strip(&a->output);
    a->expected = m->last ? REX_PROMPT : m->pattern;
    if (a->a.quit)
        return interactive_quiet(a, io);
    if (!plain) {
        trim_echo(a);
        return m->last ? go_home(a, io) : interactive_tell(a, io);
    }
    str_copy(a->code, sizeof a->code, "null");
    if (!m->last)
        return a->a.check == REX_CHECK_RAISE
                   ? interactive_raise(
                         a, io, REX_E("NoExitCodeError"),
                         "the command has not ended: what it was to say has come before")
                   : interactive_tell(a, io);
    return a->a.check == REX_CHECK_IGNORE ? go_home(a, io) : ask_code(a, io);
}

/* Ends the terminal's shell and makes the state between the marks a command of the session. */
static enum relay_next take_state(act *a, relay_io *io, buf *said)
{
    const char *from = said->len ? memmem(said->p, said->len, BACK_TOP, strlen(BACK_TOP)) : NULL;

    rex_terminal_end(a->t);
    free(TAKE_PTR(a->text));
    a->seq = 0;
    if (!from)
        return interactive_tell(a, io);
    size_t at = (size_t)(from - said->p) + strlen(BACK_TOP);
    CLEANUP(buf_done) buf state = {0};
    buf_append(&state, said->p + at, said->len - at);
    rex_strip(&state);
    rex_settle(&state, BACK_FROM);
    a->text = str_printf("{ %s\n} 2>/dev/null", buf_cstr(&state));
    a->stage = STAGE_HOME;
    return RELAY_MORE;
}

/* Reads the exit status after the last mark. Returns false if there is none: an echoed mark has no
 * number. */
static bool take_code(act *a, buf *said)
{
    const char *text = buf_cstr(said), *from = NULL;

    for (const char *p = text; (p = strstr(p, CODE_FROM)); p += strlen(CODE_FROM))
        from = p + strlen(CODE_FROM);
    size_t n = from ? strspn(from, "0123456789") : 0;
    if (!n || n >= sizeof a->code)
        return false;
    str_copy(a->code, n + 1, from);
    a->raises = a->a.check == REX_CHECK_RAISE && !str_eq(a->code, "0");
    return true;
}

/* Continues after the text that the stage waited for has come. */
static enum relay_next interactive_arrived(act *a, relay_io *io, buf *said, const rex_match *m)
{
    switch (a->stage) {
    case STAGE_BOOT:
        return send_action(a, io);
    case STAGE_CODE:
        return take_code(a, said) ? go_home(a, io) : RELAY_MORE;
    case STAGE_QUIT:
        return go_home(a, io);
    case STAGE_STOP: {
        static const char LINE[] = "kill -9 %1\n";
        err_drop(rex_terminal_type(a->t, LINE, strlen(LINE)), "swerex");
        interactive_enter(a, io, STAGE_KILL, interactive_patience(a));
        buf_append(&a->output, said->p, said->len);
        return RELAY_MORE;
    }
    case STAGE_BACK:
        return take_state(a, io, said);
    case STAGE_WAIT:
    case STAGE_KILL:
    default:
        buf_append(&a->output, said->p, said->len);
        return interactive_matched(a, io, m);
    }
}

static enum relay_next timed_out(act *a, relay_io *io)
{
    CLEANUP(buf_done) buf text = {0};

    buf_str(&text, "timeout after ");
    rex_repr_float(&text, a->a.timeout);
    buf_str(&text, " seconds while running command ");
    rex_repr(&text, a->a.command, a->a.n);
    return interactive_raise(a, io, REX_E("CommandTimeoutError"), buf_cstr(&text));
}

/* Handles a stage that has timed out. */
static enum relay_next interactive_late(act *a, relay_io *io)
{
    if (a->stage == STAGE_BACK)
        return interactive_tell(a, io);
    if (a->stage == STAGE_CODE || a->stage == STAGE_QUIT)
        return interactive_raise(a, io, REX_E("NoExitCodeError"),
                                 "timeout while getting exit code");
    if (a->stage == STAGE_BOOT)
        return interactive_raise(a, io, "pexpect.exceptions.TIMEOUT",
                                 "the terminal's shell says nothing");
    if (!a->a.interrupt)
        return timed_out(a, io);
    if (a->stage == STAGE_WAIT && ++a->tries < a->a.retries)
        return send_action(a, io);
    if (a->stage != STAGE_WAIT)
        return interactive_raise(a, io, "pexpect.exceptions.TIMEOUT",
                                 "Failed to interrupt session");
    err_drop(rex_terminal_type(a->t, "\032", 1), "swerex");
    interactive_enter(a, io, STAGE_STOP, interactive_patience(a));
    return RELAY_MORE;
}

/* Handles the end of the shell. For an interrupt that is a success. */
static enum relay_next interactive_over(act *a, relay_io *io)
{
    rex_terminal_end(a->t);
    if (a->a.interrupt || a->stage == STAGE_BACK)
        return interactive_tell(a, io);
    return interactive_raise(
        a, io, "pexpect.exceptions.EOF",
        "End Of File (EOF). The shell on the terminal has ended; the session lives.");
}

static enum relay_next step_home(act *a, relay_io *io)
{
    bool is_over = false;

    err *e = in_session(a, io, &is_over);

    if (!e && !is_over)
        return RELAY_WAIT;
    err_drop(e, "swerex");
    return interactive_tell(a, io);
}

static enum relay_next interactive_look(act *a, relay_io *io)
{
    CLEANUP(buf_done) buf said = {0};
    rex_match m;

    if (a->stage == STAGE_DUMP)
        return step_dump(a, io);
    if (a->stage == STAGE_HOME)
        return step_home(a, io);
    if (a->stage == STAGE_WAIT && !a->sent)
        return send_action(a, io);
    bool callers = a->stage == STAGE_WAIT || a->stage == STAGE_STOP || a->stage == STAGE_KILL;
    bool ended = rex_terminal_over(a->t); /* read before its output, so that none is missed */
    enum rex_found found = rex_terminal_find(a->t, callers ? a->wanted : a->own, &said, &m);
    if (found == REX_FOUND)
        return interactive_arrived(a, io, &said, &m);
    if (ended && found == REX_NOTHING)
        return interactive_over(a, io);
    if (a->deadline && io->now >= a->deadline)
        return interactive_late(a, io);
    io->wake_at = found == REX_MORE ? io->now : a->deadline; /* let other jobs of the lane run */
    return RELAY_WAIT;
}

static void give_back(act *a)
{
    if (!a->took)
        return;
    pthread_mutex_lock(&a->t->lock);
    a->t->taken = a->took = false;
    pthread_mutex_unlock(&a->t->lock);
}

/* Frees the terminal before the answer is sent: the client may act again at once. */
static enum relay_next act_step(void *ctx, relay_io *io)
{
    enum relay_next next = interactive_look(ctx, io);

    if (next == RELAY_DONE || next == RELAY_CLOSE)
        give_back(ctx);
    return next;
}

static void act_start(void *ctx, relay_job *job)
{
    act *a = ctx;

    a->job = job;
    a->on_session = (exec_watch){.notify = on_news, .arg = job};
    session_watch_add(a->g.s, &a->on_session);
    CLEANUP(exec_unrefp) exec *x = NULL;
    pthread_mutex_lock(&a->t->lock);
    x = a->t->x ? exec_ref(a->t->x) : NULL;
    pthread_mutex_unlock(&a->t->lock);
    if (x)
        watch_output(a, x);
}

static void act_free(void *ctx)
{
    act *a = ctx;

    if (a->job)
        session_unwatch(a->g.s, &a->on_session);
    if (a->watched)
        exec_unwatch(a->watched, &a->on_output);
    exec_unref(a->watched);
    give_back(a);
    rex_terminal_unref(a->t);
    rex_expect_free(a->wanted);
    rex_expect_free(a->own);
    free(a->text);
    buf_done(&a->output);
    rex_action_done(&a->a);
    rex_ground_done(&a->g);
    free(a);
}

static const relay_ops ACT_OPS = {
    .kind = STREAM_TERMINAL, .start = act_start, .step = act_step, .free = act_free};

/* Returns the session's terminal. A shell that an earlier action left at its prompt is replaced, so
 * that the new one begins with the session's current state. */
static rex_terminal *get_terminal(const act *a, rex_terminals *all)
{
    rex_terminal *t = rex_terminal_get(all, a->g.sb, a->g.s, true);

    if (!rex_terminal_left(t))
        return t;
    rex_terminal_end(t);
    rex_terminal_unref(t);
    return rex_terminal_get(all, a->g.sb, a->g.s, true);
}

/* Takes the terminal for this action. Fails if another action uses it. */
static err *take_terminal(act *a, rex_terminals *all)
{
    a->t = get_terminal(a, all);
    pthread_mutex_lock(&a->t->lock);
    bool free_now = !a->t->taken;
    if (free_now)
        a->t->taken = a->took = true;
    a->stage = a->t->x ? STAGE_WAIT : STAGE_DUMP;
    pthread_mutex_unlock(&a->t->lock);
    if (free_now)
        return NULL;
    return err_remedy(err_new(ERR_CONFLICT, "another command waits on this session's terminal"),
                      "Wait for it, or send a BashInterruptAction.");
}

/* t: the terminal to interrupt; its reference is taken. NULL: the action takes one itself. */
static err *act_begin(request *rq, response *rs, sandbox *sb, session *s, rex_action *in,
                      rex_terminal *t)
{
    act *a = xcalloc(1, sizeof *a);

    str_copy(a->code, sizeof a->code, "0");
    a->expected = REX_PROMPT;
    a->stage = STAGE_WAIT;
    a->t = t;
    err *e = rex_expect_new(in->expect, REX_PROMPT, &a->wanted);
    if (!e)
        e = rex_ground_take(rq, sb, s, in->n + REX_PENDING_MAX + rex_expect_size(a->wanted), &a->g);
    if (!e) {
        a->a = *in;
        *in = (rex_action){0};
        e = t ? NULL : take_terminal(a, rex_of(rq)->terminals);
    }
    if (e) {
        act_free(a);
        return e;
    }
    response_relay(rs, &ACT_OPS, a);
    return NULL;
}

err *rex_terminal_start(request *rq, response *rs, sandbox *sb, session *s, rex_action *in)
{
    return act_begin(rq, rs, sb, s, in, NULL);
}

/* Runs beside the action that uses the terminal, and starts no shell. */
err *rex_terminal_interrupt(request *rq, response *rs, sandbox *sb, session *s, rex_action *in)
{
    rex_terminal *t = rex_terminal_get(rex_of(rq)->terminals, sb, s, false);

    if (t && rex_terminal_busy(t))
        return act_begin(rq, rs, sb, s, in, t);
    rex_terminal_unref(t);
    return rex_interrupt_start(rq, rs, sb, s);
}

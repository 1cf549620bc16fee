/* Detached sessions: the shell is connected to no stream of an exec. One exec starts it. A short
 * exec carries each command and reports its result. Other execs run a step of the ladder, and end
 * the shell (detached.sh). An interrupted exec is replaced by another; the shell takes a command
 * only once. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/str.h"
#include "session/internal.h"

extern const char SESSION_DETACHED_SH[]; /* detached.sh */

/* Names the directory of the session's shell; each shell has its own. */
static void name_of(const session *s, char ret_name[64])
{
    snprintf(ret_name, 64, ".by-%s.%u", s->token, s->info.restarts);
}

void detached_place(const session *s, buf *out)
{
    char name[64];

    name_of(s, name);
    buf_printf(out, "__by_D=/dev/shm/%s\n[ -d $__by_D ] || __by_D=/tmp/%s\n", name, name);
}

char **detached_argv(const session *s, const char *verb, char **words)
{
    CLEANUP(strv_freep) char **owned = words;
    char **argv = NULL, name[64];

    name_of(s, name);
    const char *const head[] = {"/bin/sh", "-c", SESSION_DETACHED_SH, name, verb};
    for (size_t i = 0; i < ARRAY_LEN(head); i++)
        strv_push(&argv, xstrdup(head[i]));
    for (char **w = owned; w && *w; w++)
        strv_push(&argv, xstrdup(*w));
    return argv;
}

/* Fills the spec of an exec beside the shell, as the session's user. */
static void detached_fill(const session *s, const char *verb, char **words, exec_spec *ret_spec)
{
    *ret_spec = (exec_spec){.exec_fd = -1,
                            .argv = detached_argv(s, verb, words),
                            .user = *s->info.user ? xstrdup(s->info.user) : NULL,
                            .stdio = STDIO_PIPES};
}

/* ---- a command ---- */

static char *detached_number(uint64_t n)
{
    char text[24];

    snprintf(text, sizeof text, "%lu", n);
    return xstrdup(text);
}

err *detached_carry(session *s, journal_rec *r, size_t bytes, uint32_t *ret_index)
{
    CLEANUP(exec_spec_done) exec_spec spec = {.exec_fd = -1};
    exec_log_entry log = {.rec = r, .ret_index = ret_index};
    char **words = NULL;
    exec *x = NULL;
    bool replay;

    strv_push(&words, detached_number(r->command.seq));
    strv_push(&words, detached_number(bytes));
    detached_fill(s, "run", words, &spec);
    spec.stdin_open = true;
    TRY(exec_start_session(s->execs, &spec, NULL, &log, &x, &replay));
    session_drop_shell(s);
    session_take_shell(s, x);
    memset(s->s, 0, sizeof s->s);
    return NULL;
}

err *detached_feed(session *s)
{
    return s->frame.len ? exec_feed(s->shell, s->frame.p, s->frame.len, 0) : NULL;
}

void detached_drop_frame(session *s)
{
    secret_wipe(s->frame.p, s->frame.len);
    buf_done(&s->frame);
}

void detached_release(session *s)
{
    err *e = exec_stdin(s->shell, "\n", 1, UINT64_MAX, true);

    err_free(e); /* the exec is gone: the next one removes the files */
}

void detached_release_unfed(session *s)
{
    err_free(exec_stdin(s->shell, NULL, 0, UINT64_MAX, true)); /* the exec is gone */
}

enum detached_news detached_news(const exec_end *end)
{
    static const struct {
        int code;
        enum detached_news news;
    } CODES[] = {{0, DETACHED_WELL},
                 {122, DETACHED_NEVER},
                 {123, DETACHED_DEAD_BEFORE},
                 {137, DETACHED_DEAD}};

    for (size_t i = 0; i < ARRAY_LEN(CODES); i++)
        if (end->how == EXEC_EXITED && end->exit_code == CODES[i].code)
            return CODES[i].news;
    return DETACHED_CUT;
}

/* ---- beside it ---- */

static void on_helper(void *arg)
{
    pump_kick(&((session *)arg)->job);
}

void detached_drop_helper(session *s)
{
    if (!s->helper)
        return;
    exec_unwatch(s->helper, &s->helper_watch);
    exec_discard(s->helper, DISCARD_END);
    exec_unref(TAKE_PTR(s->helper));
}

err *detached_help(session *s, const char *verb)
{
    CLEANUP(exec_spec_done) exec_spec spec = {.exec_fd = -1};
    char **words = NULL;
    exec *x = NULL;
    bool replay;

    strv_push(&words, detached_number(s->run.seq));
    detached_fill(s, verb, words, &spec);
    spec.transient = true;
    TRY(exec_start(s->execs, &spec, NULL, &x, &replay));
    detached_drop_helper(s);
    s->helper = x;
    s->helper_ns = exec_table_clock(s->execs);
    s->helper_watch = (exec_watch){.notify = on_helper, .arg = s};
    exec_watch_add(x, &s->helper_watch);
    return NULL;
}

bool detached_is_helped(const session *s)
{
    exec_state st;

    if (!s->helper)
        return false;
    exec_get(s->helper, &st);
    return st.end.how == EXEC_RUNNING;
}

/* ---- the end ---- */

/* Ends the session. Its shell is from here on the exec that kills it: the session ends with that
 * exec. */
err *detached_close(session *s)
{
    CLEANUP(exec_spec_done) exec_spec spec = {.exec_fd = -1};
    journal_rec r = {.type = JOURNAL_SESSION, .exec = s->id, .session = s->info};
    exec_log_entry log = {.rec = &r};
    exec *x = NULL;
    bool replay;

    if (s->info.flags & JOURNAL_S_CLOSED)
        return NULL;
    if (!session_end_command(s, &(exec_end){.how = EXEC_UNKNOWN}))
        return err_new(ERR_UNAVAILABLE, "the end of its command could not be written");
    r.session.flags |= JOURNAL_S_CLOSED;
    detached_fill(s, "close", NULL, &spec);
    TRY(exec_start_session(s->execs, &spec, NULL, &log, &x, &replay));
    s->info = r.session;
    FAULT_KILL("session.detached_closed");
    session_drop_shell(s);
    session_take_shell(s, x);
    memset(s->s, 0, sizeof s->s);
    pump_kick(&s->job);
    return NULL;
}

bool detached_is_over(const session *s)
{
    return session_is_detached(s) && exec_table_is_over(s->execs);
}

/* A session's work on a pump thread: scans the shell's output for trailers, ends commands, steps
 * through the ladder, restarts a shell that died. */
#include <signal.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "session/internal.h"

#define CHUNK        (64u * 1024)
#define QUANTUM      (4u << 20) /* most bytes of a stream scanned in one run */
#define RETRY_NS     (200 * NS_PER_MS)
#define KILLS_NS     (15 * NS_PER_MS)
#define CARRIED_NS   (500 * NS_PER_MS) /* the same where an exec has to check */
#define SIGNALS_NS   (2 * NS_PER_S)
#define RESTARTS_MAX 1000u
#define FAILURES_MAX 5u
#define HELPER_NS    (5 * NS_PER_S) /* the ladder waits at most this long for a step to finish */
#define CARRIED_MAX  120u

/* ---- trailers ---- */

static void set_cwd(session *s, const trailer *t)
{
    free(s->cwd);
    s->cwd = xstrndup(t->cwd, t->ncwd);
}

/* Records a cut: n bytes at `at` that the driver wrote, which are not output. If all cuts are used,
 * extends the last one up to the end of these bytes; readers then lose the output in between. */
static void job_cut(struct stretch *st, uint64_t at, size_t n)
{
    uint64_t from = at - st->start;
    struct journal_cut *last = st->ncut ? &st->cut[st->ncut - 1] : NULL;

    if (last && (last->at + last->n == from || st->ncut == JOURNAL_CUTS)) {
        last->n = (uint32_t)(from + n - last->at);
        return;
    }
    st->cut[st->ncut++] = (struct journal_cut){.at = from, .n = (uint32_t)n};
}

/* Returns the id of a SYNC request. After a lost shell is back with its earlier state, it is
 * unclear whether it was lost before or during the running command. The trailer that comes first
 * decides: the command's own, or the answer to SYNC. */
static unsigned sync_id(const session *s)
{
    return 1 + (unsigned)(s->run.seq % 255);
}

static void ask_sync(session *s)
{
    char text[64];

    if (!s->run.seq || session_is_detached(s))
        return;
    snprintf(text, sizeof text, FRAME_SYNC, sync_id(s)); /* fixed length: input_mend relies on it */
    err_drop(exec_feed(s->shell, text, strlen(text), exec_stdin_length(s->shell)), "session");
}

static void job_greet(session *s, const trailer *t)
{
    s->dialect = t->kind == TRAILER_BASH   ? DIALECT_BASH
                 : t->kind == TRAILER_DASH ? DIALECT_DASH
                                           : DIALECT_ASH;
    s->greeted = true;
    s->failures = 0;
    if (s->life == SESSION_STARTING)
        s->life = s->run.seq ? SESSION_RUNNING : SESSION_IDLE;
}

static void note_pid(session *s, const trailer *t)
{
    s->pid = t->pid;
    if (t->kind != TRAILER_PID)
        set_cwd(s, t);
}

/* Handles a trailer with the session's token, on stdout. */
static void on_session_trailer(session *s, const trailer *t)
{
    note_pid(s, t);
    if (t->kind == TRAILER_RESUMED) {
        s->run.resumed_status = t->status;
        if (s->depth)
            s->depth--;
        ask_sync(s);
    } else if (t->kind != TRAILER_PID && t->kind != TRAILER_SYNC) {
        job_greet(s, t);
    }
}

static void on_own_trailer(session *s, const trailer *t)
{
    note_pid(s, t);
    s->run.found = true;
    s->run.kind = t->kind;
    s->run.status = t->status;
}

static void on_trailer(session *s, int i, uint64_t at, const trailer *t)
{
    struct stretch *st = &s->s[i];
    bool sync = !t->own && t->kind == TRAILER_SYNC && s->run.seq && st->resumed &&
                t->status == (int)sync_id(s);
    bool lost = !t->own && t->kind == TRAILER_RESUMED && s->run.seq && session_is_detached(s);

    if (!t->own && t->kind == TRAILER_RESUMED)
        st->resumed = true;
    if (t->own || sync || lost) {
        st->found = true;
        st->stop = at;
        st->tail = (uint32_t)t->n;
    } else {
        job_cut(st, at, t->n);
    }
    if (i)
        return;
    if (t->own)
        on_own_trailer(s, t);
    else
        on_session_trailer(s, t);
}

/* ---- scanning ---- */

/* Scans one piece of a stream. Returns false if there is no more for now. */
static bool scan_chunk(session *s, int i, char *chunk)
{
    struct stretch *st = &s->s[i];
    uint64_t gap = 0;
    size_t n = 0, at = 0;
    trailer t;

    err *e = exec_read(s->shell, i + 1, st->pos, chunk, CHUNK, &n, &gap);
    if (e) {
        err_drop(e, "session");
        return false;
    }
    if (gap > st->pos) {
        st->pos = gap;
        return true;
    }
    if (!n)
        return false;
    enum trailer_found f =
        trailer_find(chunk, n, s->token, s->run.seq ? s->run.token : NULL, &at, &t);
    uint64_t where = st->pos + at;
    st->pos = where;
    if (f == TRAILER_HERE) {
        st->pos += t.n;
        on_trailer(s, i, where, &t);
        return !st->found;
    }
    /* A partial trailer at the end of the output waits; one at the end of the chunk is read again.
     */
    return f == TRAILER_NONE ? n == CHUNK : n == CHUNK && at > 0;
}

/* Returns true if there is more: run again. */
static bool job_scan(session *s, char *chunk)
{
    bool more = false;

    for (int i = 0; i < 2; i++) {
        uint64_t begun = s->s[i].pos;
        bool go = !s->s[i].found;
        while (go && s->s[i].pos - begun < QUANTUM)
            go = scan_chunk(s, i, chunk);
        more = more || go;
        if (!s->hold[i])
            s->hold[i] = exec_hold_new(s->shell, i + 1, s->s[i].pos);
        else if (s->s[i].pos > begun)
            exec_hold_move(s->hold[i], s->s[i].pos);
    }
    return more;
}

/* ---- the command's end ---- */

static bool finish_found(session *s)
{
    if (!s->run.found)
        return command_finish(s, COMMAND_RESUMED, s->run.resumed_status);
    if (s->run.kind == TRAILER_EXITED && !s->run.exit_counted) { /* ending may take several tries */
        s->run.exit_counted = true;
        s->after_exit = true;
        s->depth++;
    }
    return command_finish(s, s->run.kind == TRAILER_EXITED ? COMMAND_EXITED : COMMAND_ENDED,
                          s->run.status);
}

/* Returns true if the next command may begin. A command that is over may have killed the shell
 * below, or signals that bothyd sent may still be searching for processes; neither must hit the
 * next command. Waits for a limited time only. */
static bool is_settled(session *s)
{
    uint64_t now = exec_table_clock(s->execs);
    bool kills = s->run.record_flags & JOURNAL_C_KILLS;
    bool pending = session_is_detached(s) ? detached_is_helped(s) : exec_signals_pending(s->shell);

    if (!s->run.wait_ns && (kills || pending))
        s->run.wait_ns = now + (pending                  ? SIGNALS_NS
                                : session_is_detached(s) ? CARRIED_NS
                                                         : KILLS_NS);
    return !s->run.wait_ns || now >= s->run.wait_ns || (!kills && !pending);
}

/* Returns true if a command has ended and the output behind it has not been scanned. */
static bool session_job_settle(session *s)
{
    if (!s->run.seq || s->run.over || !s->s[0].found || !s->s[1].found || !is_settled(s))
        return false;
    if (!finish_found(s)) {
        s->retry_ns = exec_table_clock(s->execs) + RETRY_NS;
        return false;
    }
    s->life = SESSION_IDLE;
    return s->s[0].pos < exec_length(s->shell, 1) || s->s[1].pos < exec_length(s->shell, 2);
}

/* ---- the shell's end ---- */

static int status_of(const exec_end *end)
{
    return end->how == EXEC_EXITED ? end->exit_code : end->signal ? 128 + end->signal : 1;
}

bool session_end_command(session *s, const exec_end *end)
{
    bool known = end->how != EXEC_UNKNOWN && end->how != EXEC_NOT_STARTED &&
                 !(s->info.flags & JOURNAL_S_CLOSED) && !s->run.adopted;

    if (!s->run.seq)
        return true;
    s->run.over = true;
    for (int i = 0; i < 2; i++)
        if (!s->s[i].found) {
            s->s[i].found = true;
            s->s[i].stop = s->s[i].pos;
        }
    if (s->run.found && !(known && s->run.record_flags & JOURNAL_C_KILLS))
        return finish_found(s);
    s->run.flags |= (known ? COMMAND_F_RESTARTED : 0) | (end->oom ? COMMAND_F_OOM : 0);
    return command_finish(s, known ? COMMAND_RESUMED : COMMAND_UNKNOWN, status_of(end));
}

static bool may_restart(session *s)
{
    return s->greeted && !(s->info.flags & JOURNAL_S_CLOSED) && !exec_table_is_over(s->execs) &&
           s->info.restarts < RESTARTS_MAX && s->failures < FAILURES_MAX;
}

/* Starts a new shell in the last directory; kills all that the old one left behind. */
static void job_restart(session *s)
{
    exec *x = NULL;
    bool replay;

    if (!s->shell)
        return;
    if (session_is_detached(s)) {
        err_drop(detached_help(s, "end"), "session");
    } else {
        err *old = exec_signal_part(s->shell, SIGKILL, SP_TO_TREE, 0, 0);
        err_free(old); /* fails if no process is left */
    }
    s->info.restarts++;
    err *e = session_start_shell(s, NULL, &replay, &x);
    if (e) {
        LOG_ABOUT(exec_table_sandbox(s->execs), NULL, 0);
        log_warn("session", "sandbox %s, session %lu: %s", exec_table_sandbox(s->execs), s->id,
                 e->message);
        bool counts = e->code != ERR_UNAVAILABLE; /* the sandbox is not reachable yet */
        err_free(e);
        s->info.restarts--;
        s->failures += counts;
        s->retry_ns = exec_table_clock(s->execs) + 5 * RETRY_NS;
        return;
    }
    FAULT_KILL("session.restarted");
    session_drop_shell(s);
    session_take_shell(s, x);
    s->life = SESSION_STARTING;
    s->greeted = s->after_exit = false;
    s->depth = 0;
    s->pid = 0;
    memset(s->s, 0, sizeof s->s);
}

static void on_shell_end(session *s, const exec_end *end)
{
    if (!session_end_command(s, end)) {
        s->retry_ns = exec_table_clock(s->execs) + RETRY_NS;
        return;
    }
    if (may_restart(s)) {
        job_restart(s);
        return;
    }
    s->life = SESSION_ENDED;
}

/* ---- the end of what carried a command ---- */

/* Carries the command again. It does not run twice: its files, or its shell, hold the result. In a
 * full sandbox it may take a while until an exec can start. */
static void carry_again(session *s)
{
    journal_rec r = s->last;
    uint32_t index;

    if (exec_table_is_over(s->execs) || s->run.carried > CARRIED_MAX) {
        on_shell_end(s, &(exec_end){.how = EXEC_UNKNOWN});
        return;
    }
    if (s->run.carried++ % 2) {
        s->retry_ns = exec_table_clock(s->execs) + 5 * RETRY_NS;
        return;
    }
    r.command.in_bytes = s->frame.len;
    err *e = detached_carry(s, &r, s->frame.len, &index);
    if (e) {
        err_drop(e, "session");
        s->retry_ns = exec_table_clock(s->execs) + 5 * RETRY_NS;
        return;
    }
    command_note(s, &r, index);
    s->run.found = s->run.exit_counted = false;
    err_drop(detached_feed(s), "session");
}

static void not_run(session *s)
{
    for (int i = 0; i < 2; i++)
        s->s[i].stop = s->s[i].start;
    if (command_finish(s, COMMAND_NOT_RUN, 0))
        s->life = SESSION_IDLE;
    else
        s->retry_ns = exec_table_clock(s->execs) + RETRY_NS;
}

static void on_carrier_end(session *s, const exec_end *end)
{
    enum detached_news news = detached_news(end);
    bool dead = news == DETACHED_DEAD || news == DETACHED_DEAD_BEFORE;

    if (!s->greeted || s->info.flags & JOURNAL_S_CLOSED) {
        s->life = SESSION_ENDED;
        return;
    }
    if (news == DETACHED_DEAD_BEFORE && s->frame.len && may_restart(s)) {
        job_restart(s); /* carry_again() follows */
        return;
    }
    if (s->run.seq && (news == DETACHED_NEVER || news == DETACHED_DEAD_BEFORE))
        not_run(s);
    if (dead && !s->retry_ns)
        on_shell_end(s, &(exec_end){.how = EXEC_SIGNALLED, .signal = SIGKILL});
    else if (s->run.seq && !s->retry_ns && !(s->s[0].found && s->s[1].found))
        carry_again(s);
}

/* ---- the ladder ---- */

static err *send_rung(session *s, enum rung rung)
{
    static const char *const VERBS[RUNGS] = {[RUNG_INT] = "int",
                                             [RUNG_KILL_TREE] = "tree",
                                             [RUNG_KILL_SHELL] = "shell",
                                             [RUNG_RESTART] = "end"};

    if (rung && session_is_detached(s))
        return detached_help(s, VERBS[rung]);
    switch (rung) {
    case RUNG_INT:
        return exec_signal_part(s->shell, SIGINT, SP_TO_GROUP, 0, 0);
    case RUNG_KILL_TREE:
        return exec_signal_part(s->shell, SIGKILL, SP_TO_BELOW, s->pid, s->run.boot_ns);
    case RUNG_KILL_SHELL:
        return exec_signal_part(s->shell, SIGKILL, SP_TO_PID, s->pid, 0);
    case RUNG_RESTART:
        return exec_signal_part(s->shell, SIGKILL, SP_TO_TREE, 0, 0);
    default:
        return NULL;
    }
}

/* Gives the steps more time, because each is an exec. The last step does not end the exec that
 * carries the command, so that one is killed here. */
static void climb_detached(session *s, uint64_t now)
{
    ladder *l = &s->run.ladder;
    bool helped = detached_is_helped(s);

    if (helped && l->next_ns && now < s->helper_ns + HELPER_NS && l->next_ns < now + NS_PER_S)
        l->next_ns = now + NS_PER_S;
    if (!helped && l->rung == RUNG_RESTART)
        err_free(exec_signal_part(s->shell, SIGKILL, SP_TO_TREE, 0, 0));
}

static void job_climb(session *s, uint64_t now)
{
    struct running *r = &s->run;

    if (!r->seq || s->s[0].found)
        return;
    if (r->deadline_ns && now >= r->deadline_ns) {
        r->deadline_ns = 0;
        if (!(r->flags & COMMAND_F_INTERRUPTED))
            r->flags |= COMMAND_F_TIMED_OUT;
        ladder_start(&r->ladder, now,
                     session_is_detached(s) || now < r->begun_ns + 100 * NS_PER_MS);
    }
    if (session_is_detached(s))
        climb_detached(s, now);
    ladder before = r->ladder;
    enum rung rung = ladder_step(&r->ladder, now, s->pid > 1 || session_is_detached(s));
    err *e = send_rung(s, rung);
    if (e && e->code == ERR_UNAVAILABLE) { /* nothing was sent: only a step that was tried counts */
        r->ladder = before;
        r->ladder.next_ns = now + RETRY_NS;
    } else if (rung == RUNG_KILL_SHELL) {
        s->killed = true;
    }
    err_drop(e, "interrupt");
}

/* ---- together ---- */

static uint64_t job_sooner(uint64_t a, uint64_t b)
{
    return !a || (b && b < a) ? b : a;
}

void session_arm(session *s)
{
    uint64_t at = job_sooner(job_sooner(s->run.deadline_ns, s->run.ladder.next_ns), s->retry_ns);

    at = job_sooner(at, s->run.wait_ns);

    if (at)
        exec_table_timer(s->execs, &s->timer, at);
}

/* Lock held. Returns true if it must run again at once. */
static bool job_work(session *s, char *chunk)
{
    exec_state st;
    uint64_t now = exec_table_clock(s->execs);

    if (s->retry_ns && now >= s->retry_ns)
        s->retry_ns = 0;
    if (s->run.refused && !s->retry_ns && !command_undo(s))
        s->retry_ns = now + RETRY_NS;
    /* Reads the state before the bytes: if it shows the end, every byte can be read below. */
    exec_get(s->shell, &st);
    bool more = job_scan(s, chunk);
    more = session_job_settle(s) || more;
    /* Nothing is begun or signalled until session_table_wake(). */
    if (exec_table_is_paused(s->execs))
        return more;
    if (st.end.how != EXEC_RUNNING && !more && s->life != SESSION_ENDED && !s->retry_ns)
        session_is_detached(s) ? on_carrier_end(s, &st.end) : on_shell_end(s, &st.end);
    job_climb(s, now);
    session_arm(s);
    return more;
}

void session_catch_up(session *s)
{
    CLEANUP(freep) char *chunk = xmalloc(CHUNK);

    while (s->life != SESSION_ENDED && s->shell && job_work(s, chunk))
        continue;
}

static session *session_of(pump_job *j)
{
    return (session *)((char *)j - offsetof(session, job));
}

static void job_run(pump_job *j)
{
    session *s = session_of(j);
    char chunk[CHUNK];
    bool more = false;

    {
        LOCK_SCOPE(&s->lock);
        if (s->closed || !s->shell)
            return;
        if (s->life != SESSION_ENDED)
            more = job_work(s, chunk);
    }
    session_notify(s);
    if (more)
        pump_kick(j);
}

static void job_ref(pump_job *j)
{
    session_ref(session_of(j));
}

static void job_unref(pump_job *j)
{
    session_unref(session_of(j));
}

static void on_timer(pump_timer *t)
{
    pump_kick(&((session *)((char *)t - offsetof(session, timer)))->job);
}

void session_job_init(session *s)
{
    s->job = (pump_job){.run = job_run, .ref = job_ref, .unref = job_unref};
    pump_job_init(exec_table_pump(s->execs), &s->job,
                  hash_bytes(&(uintptr_t){(uintptr_t)s}, sizeof(uintptr_t)));
    s->timer.fire = on_timer;
}

void session_job_done(session *s)
{
    pump_timer_cancel(exec_table_pump(s->execs), &s->timer);
}

/* Sessions after a restart: reads them from the journal, and decides about commands that ran. */
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "session/internal.h"

static session *load_known(session_table *t, uint64_t id)
{
    for (size_t i = t->n; i-- > 0;)
        if (t->all[i]->id == id)
            return t->all[i];
    return NULL;
}

static session *load_enter(session_table *t, uint64_t id)
{
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 8;
        t->all = xrealloc(t->all, t->cap * sizeof(session *));
    }
    return t->all[t->n++] = session_alloc(t->execs, id);
}

/* Returns false if the session's shell was never begun: such a record is ignored. */
static bool has_shell(session_table *t, uint64_t id)
{
    exec *x = NULL;
    err *e = exec_find(t->execs, id, &x);

    if (e) {
        err_free(e);
        return false;
    }
    exec_unref(x);
    return true;
}

/* Returns true for the next command, or for the newest once more: carried by another exec, or by
 * one that never began. */
static bool load_fits(const session *s, uint64_t seq)
{
    return seq == s->ncommands + 1 ||
           (seq && seq == s->ncommands && !s->last_end.type && session_is_detached(s));
}

static void on_record(void *arg, uint32_t index, const journal_rec *r)
{
    session_table *t = arg;
    session *s = load_known(t, r->exec);

    if (r->type == JOURNAL_SESSION) {
        if (!has_shell(t, r->session.shell))
            return;
        if (!s) {
            s = load_enter(t, r->exec);
            s->created_ns = r->session.real_ns;
        }
        s->info = r->session;
    } else if (s && r->type == JOURNAL_COMMAND && load_fits(s, r->command.seq)) {
        command_note(s, r, index);
    } else if (s && r->type == JOURNAL_COMMAND_END && r->command_end.seq <= s->ncommands &&
               !s->commands[r->command_end.seq - 1].end) {
        command_note_end(s, r, index);
    } else {
        log_warn("session", "record %u of sandbox %s does not fit and is ignored", index,
                 exec_table_sandbox(t->execs));
    }
}

/* Returns the deadline: the time limit continues by the wall clock. */
static uint64_t deadline_of(const session *s, const struct journal_command *c)
{
    if (!c->timeout_ms)
        return 0;
    return exec_table_clock(s->execs) + exec_table_left(s->execs, c->real_ns, c->timeout_ms);
}

/* Takes the shell's pid and depth from the end of the previous command. */
static void take_before(session *s)
{
    const struct command_ref *c = s->ncommands > 1 ? &s->commands[s->ncommands - 2] : NULL;
    journal_rec begin, end;

    if (!c || !c->end)
        return;
    err *e = exec_log_read(s->execs, c->begin, &begin);
    if (!e)
        e = exec_log_read(s->execs, c->end - 1, &end);
    if (!e && begin.command.shell == s->info.shell) {
        s->pid = end.command_end.shell_pid;
        s->depth = end.command_end.depth;
    }
    err_drop(e, "session");
}

/* Takes up a command that the journal shows as begun and not ended. */
static void take_up(session *s)
{
    const struct journal_command *c = &s->last.command;

    s->run = (struct running){.seq = c->seq,
                              .boot_ns = c->boot_ns,
                              .begun_ns = exec_table_clock(s->execs),
                              .deadline_ns = deadline_of(s, c),
                              .record_flags = c->flags,
                              .adopted = true};
    hex_encode(c->token, JOURNAL_TOKEN, s->run.token);
    take_before(s);
    if (c->flags & JOURNAL_C_FOLD)
        s->depth = 1;
    if (c->flags & JOURNAL_C_SAVEPOINT)
        s->depth++;
    for (int i = 0; i < 2; i++)
        s->s[i] = (struct stretch){.start = c->start[i], .pos = c->start[i]};
    s->life = SESSION_RUNNING;
}

/* Takes the shell's state from the last end record: start of its next output, pid, depth. */
static void take_last(session *s)
{
    const struct journal_command_end *e = &s->last_end.command_end;

    for (int i = 0; i < 2; i++) {
        uint64_t at = e->stop[i] + e->tail[i];
        if (e->kind == COMMAND_NOT_RUN) /* bytes before its start were cut from it */
            at = s->last.command.start[i];
        s->s[i] = (struct stretch){.start = at, .pos = at};
    }
    s->pid = e->shell_pid;
    s->depth = e->depth;
    if (*e->cwd)
        s->cwd = xstrdup(e->cwd);
    s->life = SESSION_IDLE;
}

/* Ends a command whose frame was not written whole: the shell does not know of it. If the end
 * record finds no room, the job retries. */
static void forget_frame(session *s)
{
    FAULT_KILL("session.not_run");
    if (session_is_detached(s))
        detached_release_unfed(s); /* it waits for the rest of the frame */
    command_undo(s);
}

/* Finds the exec whose streams are read. For a detached session it is the newest command's, unless
 * the shell is newer. An exec that never began carried nothing. */
static err *find_shell(session *s, exec **ret_exec)
{
    bool carried = session_is_detached(s) && s->ncommands;

    if (carried && s->last.command.shell > s->info.shell) {
        err *e = exec_find(s->execs, s->last.command.shell, ret_exec);
        if (!e)
            return NULL;
        err_free(e);
    }
    return exec_find(s->execs, s->info.shell, ret_exec);
}

static err *take_shell(session *s)
{
    exec *x = NULL;
    exec_state st;

    TRY(find_shell(s, &x));
    exec_get(x, &st);
    exec_pump_beside(x, &s->job);
    session_take_shell(s, x);
    hex_encode(s->info.token, JOURNAL_TOKEN, s->token);
    bool here = s->ncommands && (session_is_detached(s) ? s->last.command.shell > s->info.shell
                                                        : s->last.command.shell == s->info.shell);
    s->life = SESSION_STARTING;
    if (here && s->last_end.type)
        take_last(s);
    else if (s->ncommands && !s->last_end.type)
        take_up(s);
    uint64_t base[2] = {s->s[0].start, s->s[1].start};
    exec_set_base(x, base);
    /* The dialect is stated at the beginning of the shell's output, if that is still kept. */
    s->greeted = here;
    s->dialect = here ? DIALECT_UNKNOWN : s->dialect;
    if (s->run.seq &&
        (exec_id(x) < s->last.command.shell ||
         (st.end.how == EXEC_RUNNING &&
          exec_stdin_length(x) < s->last.command.in_offset + s->last.command.in_bytes)))
        forget_frame(s);
    else if (s->run.seq && session_is_detached(s) && st.end.how == EXEC_RUNNING)
        /* If this fails, the shell has the frame already. */
        err_free(exec_feed_read(x, s->last.command.in_bytes, &s->frame));
    else if (session_is_detached(s) && here && s->last_end.type)
        detached_release(s);
    return NULL;
}

/* Learns the dialect from the first trailer. */
static void look_back(session *s)
{
    char text[1024];
    uint64_t gap = 0;
    size_t n = 0, at = 0;
    trailer t;

    CLEANUP(exec_unrefp) exec *x = NULL;
    err *e = exec_find(s->execs, s->info.shell, &x);
    if (!e)
        e = exec_read(x, 1, 0, text, sizeof text, &n, &gap);
    if (e) {
        err_free(e);
        return;
    }
    if (trailer_find(text, n, s->token, NULL, &at, &t) != TRAILER_HERE)
        return;
    s->dialect = t.kind == TRAILER_BASH   ? DIALECT_BASH
                 : t.kind == TRAILER_DASH ? DIALECT_DASH
                                          : DIALECT_ASH;
    s->after_exit = true; /* perhaps: an unneeded savepoint does no harm */
}

/* Ends old commands without an end record. A command with a later one does not run; only one whose
 * frame could not be stored has no end. */
static err *settle_old(session *s)
{
    for (size_t i = 0; i + 1 < s->ncommands; i++) {
        struct command_ref *c = &s->commands[i];
        journal_rec begin, r = {.type = JOURNAL_COMMAND_END, .exec = s->id};
        uint32_t index;
        if (c->end)
            continue;
        TRY(exec_log_read(s->execs, c->begin, &begin));
        if ((uintptr_t)map_get(&s->keys, begin.command.key, 16) == i + 1)
            map_take(&s->keys, begin.command.key, 16);
        r.command_end.seq = i + 1;
        r.command_end.real_ns = now_real_ns();
        r.command_end.kind = COMMAND_NOT_RUN;
        memcpy(r.command_end.stop, begin.command.start, sizeof r.command_end.stop);
        TRY(exec_log(s->execs, &r, &index));
        c->end = index + 1;
    }
    return NULL;
}

err *session_load(session_table *t)
{
    TRY(exec_log_each(t->execs, on_record, t));
    for (size_t i = 0; i < t->n; i++) {
        session *s = t->all[i];
        LOCK_SCOPE(&s->lock);
        err_drop(settle_old(s), "session"); /* no room yet: done at the next start */
        TRY(take_shell(s));
        if (s->id < exec_table_reset_id(t->execs))
            session_reset(s);
        if (s->greeted)
            look_back(s);
        session_catch_up(s);
        pump_kick(&s->job);
    }
    return NULL;
}

/* The verbs of callers for an exec: start, state, read, watch, signal, resize. */
#include "exec/exec.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/str.h"
#include "base/thread.h"
#include "exec/internal.h"

#define DISCARD_NS    NS_PER_S
#define LIST_PAGE     16u
#define LIST_PAUSE_US 30u

static const char *const HOW[] = {
    [EXEC_RUNNING] = "running",     [EXEC_EXITED] = "exited", [EXEC_SIGNALLED] = "signalled",
    [EXEC_TIMED_OUT] = "timed_out", [EXEC_KILLED] = "killed", [EXEC_NOT_STARTED] = "not_started",
    [EXEC_UNKNOWN] = "unknown",
};

const char *exec_how_name(enum exec_how how)
{
    return (size_t)how < ARRAY_LEN(HOW) ? HOW[how] : "unknown";
}

/* Writes the argv as a text for people: joined by spaces, cut with "..." between two characters. */
static void command_text(char *const *argv, char ret_text[JOURNAL_COMMAND_MAX])
{
    size_t n = 0, max = JOURNAL_COMMAND_MAX - 1;
    bool cut = false;

    for (size_t i = 0; argv[i] && !cut; i++) {
        if (i && n < max)
            ret_text[n++] = ' ';
        size_t len = strlen(argv[i]);
        cut = len > max - n;
        memcpy(ret_text + n, argv[i], cut ? max - n : len);
        n += cut ? max - n : len;
    }
    if (cut) {
        n = max - 3;
        while (n && ((unsigned char)ret_text[n] & 0xc0) == 0x80)
            n--;
        for (int i = 0; i < 3; i++)
            ret_text[n++] = '.';
    }
    memset(ret_text + n, 0, JOURNAL_COMMAND_MAX - n);
}

static uint32_t begin_flags(const exec_spec *spec)
{
    return (spec->stdio == STDIO_MERGED ? JOURNAL_F_MERGED : 0) |
           (spec->stdio == STDIO_PTY ? JOURNAL_F_PTY : 0) |
           (spec->stdin_open ? JOURNAL_F_STDIN : 0) | (spec->transient ? JOURNAL_F_TRANSIENT : 0) |
           (spec->start ? JOURNAL_F_START : 0);
}

/* Finds the exec of this key, or the start command that was begun already; *ret_exec NULL: it is
 * new. Lock held. */
static err *exec_exec_replay(exec_table *t, const exec_spec *spec, const exec_key *key,
                             exec **ret_exec)
{
    struct past *started = spec->start && t->start_id ? table_past(t, t->start_id) : NULL;
    struct key_entry *k = key && exec_key_is_set(key->key) ? table_key(t, key->key) : NULL;
    struct past *p = k ? table_past(t, k->id) : NULL;

    *ret_exec = NULL;
    if (started) /* a create, an `attached` and the keeper may find it due at the same time */
        return table_exec(t, started, ret_exec);
    if (!p)
        return NULL;
    if (memcmp(k->body, key->body, 16) != 0)
        return err_new(ERR_IDEMPOTENCY_MISMATCH,
                       "this idempotency key was used for another request (exec %lu)", k->id);
    return table_exec(t, p, ret_exec);
}

/* Returns true if few descriptors are left. The kernel hands out the lowest free fd, so a high
 * number means most are in use. Keep the last eighth for existing callers and sandboxes. */
static bool descriptors_short(const exec_hub *h)
{
    int fd = fcntl(h->o.spool_dir, F_DUPFD_CLOEXEC, 0);
    bool is_short = fd < 0 || (rlim_t)fd >= h->descriptors - h->descriptors / 8;

    closep(&fd);
    return is_short;
}

/* Fails if the sandbox is paused. Lock held. */
static err *check_awake(const exec_table *t)
{
    if (!t->paused_mono || t->briefly)
        return NULL;
    return err_kind(err_new(ERR_SANDBOX_PAUSED, "sandbox %s is paused", t->sandbox), "sandbox");
}

/* Checks the number of live execs. Lock held. */
static err *admit_live(const exec_table *t, bool transient)
{
    if (transient && t->ntransient >= TRANSIENT_MAX)
        return err_remedy(err_new(ERR_SANDBOX_EXHAUSTED,
                                  "the sandbox has %zu file requests under way, the limit is %u",
                                  t->ntransient, TRANSIENT_MAX),
                          "Wait until some have ended, then try again.");
    if (!transient && t->nlive - t->ntransient >= t->live_max)
        return err_new(ERR_SANDBOX_EXHAUSTED, "the sandbox has %zu live commands, the limit is %u",
                       t->nlive - t->ntransient, t->live_max);
    return NULL;
}

err *table_admit(const exec_table *t)
{
    if (t->gone || t->ended)
        return err_kind(err_new(ERR_SANDBOX_GONE, "sandbox %s has ended", t->sandbox), "sandbox");
    if (!t->box)
        return err_new(ERR_UNAVAILABLE, "sandbox %s is not reachable yet", t->sandbox);
    TRY(check_awake(t));
    if (t->shut)
        return err_retry_after(
            err_kind(err_new(ERR_UNAVAILABLE, "sandbox %s is being reset", t->sandbox), "sandbox"),
            1);
    if (descriptors_short(t->hub))
        return err_retry_after(
            err_because(err_new(ERR_UNAVAILABLE, "the node has too many live commands"),
                        "seven of eight descriptors are taken"),
            5);
    return NULL;
}

/* Checks that an exec may be started now. Lock held. */
static err *exec_admit(const exec_table *t, bool transient)
{
    TRY(table_admit(t));
    TRY(admit_live(t, transient));
    if (t->npast >= (transient ? VERBS_MAX : EXECS_MAX))
        return err_remedy(err_new(ERR_SANDBOX_EXHAUSTED,
                                  "the sandbox has run %zu commands and file requests", t->npast),
                          "Make a new sandbox, or run many small commands in one shell.");
    return NULL;
}

/* Records a session, or a command of one, before the BEGIN of its shell. Without that BEGIN the
 * session does not exist, and the command was never run. Lock held. */
static err *begin_session(exec_table *t, const exec_log_entry *log)
{
    journal_rec *r = log->rec;
    uint32_t index;

    if (r->type == JOURNAL_COMMAND)
        r->command.shell = t->next_id;
    else
        r->session.shell = t->next_id;
    if (!r->exec)
        r->exec = t->next_id;
    TRY(journal_append(&t->journal, r, &index));
    FAULT_KILL("session.recorded");
    table_log(t, index);
    if (log->ret_index)
        *log->ret_index = index;
    return NULL;
}

/* Takes the id, makes the stdin file, appends BEGIN: from now on an END will follow. Lock held. */
static err *exec_begin(exec_table *t, const exec_spec *spec, const exec_key *key,
                       const exec_log_entry *log, exec **ret_exec, int *ret_keep)
{
    journal_rec r = {.type = JOURNAL_BEGIN, .exec = t->next_id};
    uint32_t index;

    r.begin.real_ns = now_real_ns();
    r.begin.timeout_ms = spec->timeout_ms;
    r.begin.flags = begin_flags(spec);
    command_text(spec->argv, r.begin.command);
    if (key) {
        memcpy(r.begin.key, key->key, 16);
        memcpy(r.begin.body, key->body, 16);
    }
    exec *x = table_exec_new(t, t->next_id, &r.begin);
    x->out[0].awaited = spec->awaited;
    table_live_add(x); /* before anything can fail: an unref under the lock is never the last */
    err *e = spec->stdin_open && (t->frames || spec->stdio != STDIO_PTY) ? input_make(x, ret_keep)
                                                                         : NULL;
    FAULT_KILL("exec.id_taken");
    if (!e && log)
        e = begin_session(t, log);
    bool recorded = !e && log;
    if (!e)
        e = journal_append(&t->journal, &r, &index);
    FAULT_KILL("exec.begun");
    *ret_exec = x;
    if (e && recorded) /* the id is that shell's, which never began */
        t->next_id++;
    if (e)
        return e;
    t->next_id++;
    table_begin(t, x->id, index, spec->transient);
    table_key_put(t, x->id, &r.begin);
    if (spec->start)
        t->start_id = x->id;
    x->here = true;
    x->asked_ns = now_mono_ns();
    if (spec->timeout_ms)
        exec_deadline(x, spec->timeout_ms * NS_PER_MS);
    return NULL;
}

/* Begins an exec and sends it to the box. Lock held. */
static err *exec_exec_start(exec_table *t, const exec_spec *spec, const exec_key *key,
                            const exec_log_entry *log, exec **ret_exec, bool *ret_begun)
{
    CLEANUP(closep) int keep = -1;

    TRY(exec_begin(t, spec, key, log, ret_exec, &keep));
    *ret_begun = true;
    exec *x = *ret_exec;
    err *e = t->ops->exec(t->box, x->id, spec, keep);
    FAULT_KILL("exec.spawn_sent");
    if (e) { /* never sent: the job ends it */
        x->refused = e->errnum ? e->errnum : EIO;
        return e;
    }
    if (!t->frames)
        x->fd[SP_FD_KEEP] = TAKE_FD(keep);
    return NULL;
}

err *exec_start(exec_table *t, const exec_spec *spec, const exec_key *key, exec **ret_exec,
                bool *ret_replay)
{
    return exec_start_session(t, spec, key, NULL, ret_exec, ret_replay);
}

err *exec_start_session(exec_table *t, const exec_spec *spec, const exec_key *key,
                        const exec_log_entry *log, exec **ret_exec, bool *ret_replay)
{
    exec *x = NULL;
    bool begun = false;
    err *e;

    {
        LOCK_SCOPE(&t->lock);
        TRY(exec_exec_replay(t, spec, key, &x));
        if (x) {
            *ret_exec = x;
            *ret_replay = true;
            return NULL;
        }
        TRY(exec_admit(t, spec->transient));
        if (log)
            TRY(table_admit_log(t));
        t->busy_ns = now_mono_ns();
        e = exec_exec_start(t, spec, key, log, &x, &begun);
    }
    if (!e) {
        *ret_exec = x;
        *ret_replay = false;
        return NULL;
    }
    if (begun)
        pump_kick(&x->job);
    else
        table_live_drop(x);
    exec_unref(x);
    return e;
}

err *exec_replay(exec_table *t, const exec_key *key, exec **ret_exec)
{
    LOCK_SCOPE(&t->lock);
    return exec_exec_replay(t, &(exec_spec){0}, key, ret_exec);
}

err *exec_find(exec_table *t, uint64_t id, exec **ret_exec)
{
    LOCK_SCOPE(&t->lock);
    struct past *p = table_past(t, id);
    if (!p || p->transient)
        return err_kind(err_new(ERR_NOT_FOUND, "sandbox %s has no exec %lu", t->sandbox, id),
                        "exec");
    return table_exec(t, p, ret_exec);
}

size_t exec_count_running(exec_table *t)
{
    size_t n = 0;

    LOCK_SCOPE(&t->lock);
    for (const exec *x = t->live; x && !t->ended; x = x->live_next)
        n += !x->ended && !exec_is_transient(x);
    return n;
}

size_t exec_count_busy(exec_table *t, uint64_t *ret_last_ns)
{
    size_t n = 0;

    LOCK_SCOPE(&t->lock);
    for (const exec *x = t->live; x && !t->ended; x = x->live_next)
        n += !x->ended && !x->shell && !(x->flags & JOURNAL_F_START);
    *ret_last_ns = t->busy_ns;
    return n;
}

uint64_t exec_table_start_id(exec_table *t)
{
    LOCK_SCOPE(&t->lock);
    return t->start_id;
}

enum exec_start exec_table_start(exec_table *t, bool made)
{
    LOCK_SCOPE(&t->lock);

    if (t->start_id)
        return EXEC_START_BEGUN;
    if (t->journal.damaged || t->behind)
        return EXEC_START_UNSURE;
    return made || t->attached ? EXEC_START_DUE : EXEC_START_EARLY;
}

uint64_t exec_table_ooms(exec_table *t)
{
    LOCK_SCOPE(&t->lock);
    return t->ooms_ns && now_mono_ns() - t->ooms_ns < OOMS_SETTLE_NS ? t->ooms_before : t->ooms;
}

/* Returns the ids of the newest execs that callers see, in order. */
static uint64_t *list_ids(exec_table *t, size_t max, size_t *ret_n)
{
    LOCK_SCOPE(&t->lock);
    size_t first = t->npast, n = 0;

    for (size_t count = 0; first && count < max; first--)
        count += !t->past[first - 1].transient;
    uint64_t *ids = xcalloc(t->npast - first + 1, sizeof *ids);
    for (size_t i = first; i < t->npast; i++)
        if (!t->past[i].transient)
            ids[n++] = t->past[i].id;
    *ret_n = n;
    return ids;
}

static size_t list_page(exec_table *t, const uint64_t *ids, size_t n, exec **list)
{
    size_t found = 0;

    LOCK_SCOPE(&t->lock);
    for (size_t i = 0; i < n; i++) {
        struct past *p = table_past(t, ids[i]);
        err *e = p ? table_exec(t, p, &list[found]) : NULL;
        if (e)
            err_drop(e, "exec_list");
        else
            found += p != NULL;
    }
    return found;
}

/* Lists execs in pages, because each ended exec costs some system calls. The thread of all boxes
 * may wait for the table's lock. So it is held for one page, by one list at a time, and left free
 * for a moment after each: a waiting thread would not get it from a loop that takes it again at
 * once. */
void exec_list(exec_table *t, size_t max, exec ***ret_execs, size_t *ret_n)
{
    size_t n, found = 0;
    CLEANUP(freep) uint64_t *ids = list_ids(t, max, &n);
    exec **list = xcalloc(n + 1, sizeof(exec *));

    LOCK_SCOPE(&t->list_lock);
    for (size_t at = 0; at < n; at += LIST_PAGE) {
        if (at)
            usleep(LIST_PAUSE_US);
        found += list_page(t, ids + at, n - at < LIST_PAGE ? n - at : LIST_PAGE, list + found);
    }
    *ret_execs = list;
    *ret_n = found;
}

/* ---- state ---- */

void exec_end_of(const journal_rec *r, exec_end *ret_end)
{
    const struct journal_end *e = &r->end;
    const struct sp_rec *rec = &e->rec;

    *ret_end = (exec_end){
        .how = (enum exec_how)e->how,
        .errnum = e->errnum,
        .oom = e->flags & JOURNAL_E_OOM,
        .uid = rec->uid,
        .gid = rec->gid,
        .started_ns = rec->start_real,
        .ended_ns = rec->end_real,
        .utime_us = rec->utime_us,
        .stime_us = rec->stime_us,
        .maxrss_kb = rec->maxrss_kb,
        .out_bytes = e->length[0],
        .err_bytes = e->length[1],
    };
    if (rec->state == SP_FAILED)
        ret_end->stage = (int)rec->stage;
    if (rec->state == SP_EXITED && WIFEXITED(rec->status))
        ret_end->exit_code = WEXITSTATUS(rec->status);
    if (rec->state == SP_EXITED && WIFSIGNALED(rec->status))
        ret_end->signal = WTERMSIG(rec->status);
}

void exec_get(exec *x, exec_state *ret_state)
{
    exec_table *t = x->table;

    *ret_state = (exec_state){.id = x->id, .begun_ns = x->begin_ns};
    ret_state->start = x->flags & JOURNAL_F_START;
    ret_state->stdio = x->flags & JOURNAL_F_PTY      ? STDIO_PTY
                       : x->flags & JOURNAL_F_MERGED ? STDIO_MERGED
                                                     : STDIO_PIPES;
    memcpy(ret_state->command, x->command, sizeof ret_state->command);
    {
        LOCK_SCOPE(&t->lock);
        ret_state->pid = x->pid;
        ret_state->started = x->answered || x->rec.state;
        ret_state->runs = atomic_load(&x->runs);
        ret_state->stdin_open =
            !x->ended && !x->stdin_over && x->flags & JOURNAL_F_STDIN && !atomic_load(&x->in_eof);
        ret_state->lingering = x->ended && x->live;
        ret_state->end = x->end;
        /* The job of a live exec drains it before it writes the end record: until then no end is
         * shown. */
        if (!x->ended && !x->live && (t->ended || t->gone))
            ret_state->end.how = EXEC_UNKNOWN;
    }
    for (int i = 0; i < 2; i++)
        ret_state->length[i] = atomic_load(&x->out[i].length);
    ret_state->end.out_dropped = spool_dropped(&x->out[0], 0, UINT64_MAX);
    ret_state->end.err_dropped = spool_dropped(&x->out[1], 0, UINT64_MAX);
}

static err *not_started(const exec_end *end, err_code code, const char *what)
{
    return err_sys(code, end->errnum, "%s", what);
}

err *exec_end_error(const exec_end *end)
{
    bool unmapped = end->errnum == EINVAL;

    if (end->how != EXEC_NOT_STARTED)
        return NULL;
    switch (end->stage) {
    case SP_ST_USER:
        return unmapped ? not_started(end, ERR_USER_NOT_MAPPED, "the user's id is not mapped")
                        : not_started(end, ERR_USER_NOT_FOUND, "the user was not found");
    case SP_ST_GROUPS:
    case SP_ST_GID:
    case SP_ST_UID:
        return unmapped ? not_started(end, ERR_USER_NOT_MAPPED, "the user's id is not mapped")
                        : not_started(end, ERR_INTERNAL, "cannot change to the user");
    case SP_ST_CWD:
        return not_started(end, ERR_CWD_NOT_FOUND, "cannot enter the working directory");
    case SP_ST_EXEC:
        return not_started(end, ERR_EXEC_FAILED, "cannot run the program");
    case 0:
        break;
    default:
        return not_started(end, ERR_INTERNAL, "the command could not be prepared");
    }
    if (end->errnum == EAGAIN || end->errnum == ENOSPC || end->errnum == EMFILE ||
        end->errnum == ENFILE || end->errnum == ENOMEM)
        return not_started(end, ERR_SANDBOX_EXHAUSTED, "the sandbox cannot start another process");
    if (end->errnum)
        return not_started(end, ERR_INTERNAL, "the sandbox refused the command");
    return err_remedy(err_new(ERR_UNAVAILABLE, "the command was never started"),
                      "Send the request again; it had no effect.");
}

err *exec_read(exec *x, int stream, uint64_t offset, void *p, size_t max, size_t *ret_n,
               uint64_t *ret_gap_to)
{
    if (stream != 1 && stream != 2)
        return err_new(ERR_INVALID_REQUEST, "there is no stream %d", stream);
    return spool_read(&x->out[stream - 1], offset, p, max, ret_n, ret_gap_to);
}

/* ---- following ---- */

struct exec_hold {
    exec *x;
    int stream;
    spool_hold hold;
};

exec_hold *exec_hold_new(exec *x, int stream, uint64_t at)
{
    exec_hold *h = xcalloc(1, sizeof *h);

    h->x = exec_ref(x);
    h->stream = stream;
    spool_hold_add(&x->out[stream - 1], &h->hold, at);
    return h;
}

/* Retries now what waits for a later retry. */
static void go_on(exec *x)
{
    atomic_store(&x->retry_due, true);
    pump_kick(&x->job);
}

void exec_hold_move(exec_hold *h, uint64_t at)
{
    if (spool_hold_move(&h->x->out[h->stream - 1], &h->hold, at))
        go_on(h->x);
}

void exec_hold_free(exec_hold *h)
{
    if (!h)
        return;
    if (spool_hold_remove(&h->x->out[h->stream - 1], &h->hold))
        go_on(h->x);
    exec_unref(h->x);
    free(h);
}

/* ---- watching ---- */

void exec_watch_add(exec *x, exec_watch *w)
{
    LOCK_SCOPE(&x->watch_lock);
    w->next = x->watches;
    x->watches = w;
}

void exec_unwatch(exec *x, exec_watch *w)
{
    LOCK_SCOPE(&x->watch_lock);
    for (exec_watch **p = &x->watches; *p; p = &(*p)->next)
        if (*p == w) {
            *p = w->next;
            return;
        }
}

void exec_notify(exec *x)
{
    LOCK_SCOPE(&x->watch_lock);
    for (exec_watch *w = x->watches; w; w = w->next)
        w->notify(w->arg);
}

/* ---- signals and the rest ---- */

/* Checks that the exec is live and its box reachable. Lock held. */
static err *check_live(const exec *x)
{
    if (x->table->gone || x->table->ended)
        return err_kind(err_new(ERR_SANDBOX_GONE, "sandbox %s has ended", x->table->sandbox),
                        "sandbox");
    if (!x->live || x->reset)
        return err_kind(err_new(ERR_CONFLICT, "exec %lu has ended", x->id), "exec");
    if (!x->table->box)
        return err_new(ERR_UNAVAILABLE, "sandbox %s is not reachable yet", x->table->sandbox);
    return NULL;
}

/* Records a signal that ends the exec in the journal before it is sent, so that an end while bothyd
 * is down still reads `killed`. A full disk does not prevent a kill. Lock held. */
static void note_asked(exec *x, int signo)
{
    exec_table *t = x->table;
    struct past *p = table_past(t, x->id);
    journal_rec r = {.type = JOURNAL_ASKED, .exec = x->id, .asked = {.signo = (uint32_t)signo}};

    if (x->asked & 1u << signo)
        return;
    x->asked |= 1u << signo;
    if (p)
        p->asked = x->asked;
    err_drop(journal_append(&t->journal, &r, NULL), "signal");
    FAULT_KILL("signal.recorded");
}

err *exec_signal(exec *x, int signo, uint32_t scope)
{
    exec_table *t = x->table;
    signal_spec s = {.exec = x->id, .signo = (uint32_t)signo, .scope = scope};

    if (signo < 1 || signo > 64)
        return err_new(ERR_INVALID_REQUEST, "there is no signal %d", signo);
    if (scope >= SP_SCOPES || scope == SP_TO_ALL || scope == SP_TO_PID || scope == SP_TO_BELOW)
        return err_new(ERR_INVALID_REQUEST, "an exec has no signal scope %u", scope);
    LOCK_SCOPE(&t->lock);
    TRY(check_live(x));
    TRY(check_awake(t));
    if (signo == SIGKILL || signo == SIGTERM)
        note_asked(x, signo);
    TRY(t->ops->signal(t->box, &s));
    FAULT_KILL("signal.sent");
    return NULL;
}

err *exec_probe(exec *x)
{
    exec_table *t = x->table;
    signal_spec s = {.exec = x->id, .cookie = EXEC_PROBE, .scope = SP_TO_PROC};

    LOCK_SCOPE(&t->lock);
    TRY(check_live(x));
    TRY(check_awake(t));
    return t->ops->signal(t->box, &s);
}

void exec_discard(exec *x, enum exec_discard how)
{
    exec_table *t = x->table;
    bool live;

    if (how == DISCARD_END && x->flags & JOURNAL_F_STDIN && !atomic_load(&x->in_eof))
        err_drop(exec_stdin(x, NULL, 0, UINT64_MAX, true), "discard");
    {
        LOCK_SCOPE(&t->lock);
        x->discarded = true;
        live = x->live;
        if (live && how == DISCARD_END) {
            exec_deadline(x, DISCARD_NS);
        } else if (live) { /* as the first or second step of a time limit */
            x->timed_out = how == DISCARD_KILL;
            atomic_store(&x->due, true);
            pump_kick(&x->limit);
        }
    }
    if (live)
        pump_kick(&x->job);
    else
        table_forget_streams(x);
}

err *exec_resize(exec *x, uint16_t rows, uint16_t cols)
{
    exec_table *t = x->table;

    if (!(x->flags & JOURNAL_F_PTY))
        return err_new(ERR_CONFLICT, "exec %lu has no terminal", x->id);
    if (!rows || !cols)
        return err_new(ERR_INVALID_REQUEST, "a terminal has at least one row and one column");
    LOCK_SCOPE(&t->lock);
    TRY(check_live(x));
    if (t->frames)
        return t->ops->resize(t->box, x->id, rows, cols);
    atomic_store(&x->size, (uint32_t)rows << 16 | cols);
    pump_kick(&x->job);
    return NULL;
}

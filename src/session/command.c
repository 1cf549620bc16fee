/* Commands of a session: run, query, read. */
#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/id.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "session/internal.h"

#define DEPTH_MAX  128u /* most waiting shells: from here on no savepoint is made */
#define DEPTH_FOLD 24u  /* bash: from here on waiting shells are merged into one */

const char *command_kind_name(enum command_kind k)
{
    static const char *const NAMES[] = {
        [COMMAND_RUNNING] = "running",     [COMMAND_ENDED] = "ended",
        [COMMAND_EXITED] = "shell_exited", [COMMAND_RESUMED] = "resumed",
        [COMMAND_UNKNOWN] = "unknown",     [COMMAND_NOT_RUN] = "not_run"};

    return (size_t)k < ARRAY_LEN(NAMES) ? NAMES[k] : "unknown";
}

static uint64_t now_boot_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_BOOTTIME, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* ---- the index ---- */

static bool has_key(const uint8_t key[16])
{
    static const uint8_t none[16];

    return memcmp(key, none, sizeof none) != 0;
}

void command_note(session *s, const journal_rec *r, uint32_t index)
{
    if (r->command.seq == s->ncommands) { /* carried by another exec */
        s->commands[s->ncommands - 1].begin = index;
        s->last = *r;
        return;
    }
    if (s->ncommands == s->commands_cap) {
        s->commands_cap = s->commands_cap ? 2 * s->commands_cap : 16;
        s->commands = xrealloc(s->commands, s->commands_cap * sizeof *s->commands);
    }
    s->commands[s->ncommands++] = (struct command_ref){.begin = index};
    if (has_key(r->command.key))
        map_put(&s->keys, r->command.key, 16, (void *)(uintptr_t)r->command.seq);
    s->last = *r;
    memset(&s->last_end, 0, sizeof s->last_end);
}

void command_note_end(session *s, const journal_rec *r, uint32_t index)
{
    s->commands[r->command_end.seq - 1].end = index + 1;
    if (r->command_end.seq != s->ncommands)
        return;
    s->last_end = *r;
    if (r->command_end.kind == COMMAND_NOT_RUN && has_key(s->last.command.key))
        map_take(&s->keys, s->last.command.key, 16);
}

/* Lock held. Returns the records of a command; *ret_end.type is 0 while it runs. */
static err *command_find(session *s, uint64_t seq, journal_rec *ret_cmd, journal_rec *ret_end)
{
    if (!seq || seq > s->ncommands)
        return err_kind(err_new(ERR_NOT_FOUND, "session %lu has no command %lu", s->id, seq),
                        "command");
    if (seq == s->ncommands) {
        *ret_cmd = s->last;
        *ret_end = s->last_end;
        return NULL;
    }
    const struct command_ref *c = &s->commands[seq - 1];
    *ret_end = (journal_rec){0};
    TRY(exec_log_read(s->execs, c->begin, ret_cmd));
    if (c->end)
        TRY(exec_log_read(s->execs, c->end - 1, ret_end));
    return NULL;
}

/* ---- the end ---- */

void command_start_stretch(session *s, const uint64_t at[2])
{
    for (int i = 0; i < 2; i++)
        s->s[i] = (struct stretch){.start = at[i], .pos = at[i]};
    exec_set_base(s->shell, at);
}

static void fill_end(session *s, enum command_kind kind, int status, journal_rec *r)
{
    struct journal_command_end *e = &r->command_end;

    *r = (journal_rec){.type = JOURNAL_COMMAND_END, .exec = s->id};
    e->seq = s->run.seq;
    e->real_ns = now_real_ns();
    for (int i = 0; i < 2; i++) {
        e->stop[i] = s->s[i].stop;
        e->tail[i] = s->s[i].tail;
        memcpy(e->cut[i], s->s[i].cut, sizeof e->cut[i]);
    }
    e->kind = (uint32_t)kind;
    e->flags = s->run.flags;
    e->ooms = s->run.flags & COMMAND_F_OOM ? (uint32_t)atomic_load(&s->oom_told) : 0;
    e->status = status;
    e->shell_pid = s->pid;
    e->depth = s->depth;
    e->rung = (uint16_t)s->run.ladder.rung;
    if (s->cwd && strlen(s->cwd) < sizeof e->cwd)
        memcpy(e->cwd, s->cwd, strlen(s->cwd) + 1);
}

typedef struct oom_question {
    session *s;
    uint64_t seq;
} oom_question;

static void oom_answered(void *arg, uint32_t ooms)
{
    CLEANUP(freep) oom_question *q = arg;

    atomic_store(&q->s->oom_told, q->seq << 32 | ooms);
    pump_kick(&q->s->job);
    session_unref(q->s);
}

/* Returns true if the status is that of SIGKILL and neither time limit nor interrupt sent it: it
 * may have been the memory limit. */
static bool may_be_oom(const session *s, int status)
{
    return status == 128 + SIGKILL &&
           !(s->run.flags & (COMMAND_F_TIMED_OUT | COMMAND_F_INTERRUPTED));
}

/* Returns false while the node is being asked for OOM kills; the job runs again when it has
 * answered. */
static bool oom_known(session *s, int status)
{
    uint64_t told = atomic_load(&s->oom_told);

    if (s->run.flags & COMMAND_F_OOM || !may_be_oom(s, status))
        return true;
    if (!s->run.oom_asked) {
        oom_question *q = xcalloc(1, sizeof *q);
        *q = (oom_question){session_ref(s), s->run.seq};
        s->run.oom_asked = true;
        exec_table_ask_ooms(s->execs, oom_answered, q);
        told = atomic_load(&s->oom_told);
    }
    if (told >> 32 != s->run.seq)
        return false;
    s->run.flags |= (uint32_t)told ? COMMAND_F_OOM : 0;
    return true;
}

bool command_finish(session *s, enum command_kind kind, int status)
{
    uint64_t next[2];
    journal_rec r;
    uint32_t index;

    if (kind != COMMAND_UNKNOWN && kind != COMMAND_NOT_RUN && !oom_known(s, status))
        return false;
    FAULT_KILL("session.command_over");
    fill_end(s, kind, status, &r);
    err *e = exec_log_end(s->shell, &r, &index);
    if (e) {
        err_drop(e, "session");
        return false;
    }
    FAULT_KILL("session.command_ended");
    command_note_end(s, &r, index);
    metric_add(&SESSION_METRICS[M_COMMANDS], kind - 1, 1);
    if (!s->run.adopted && s->run.begun_ns)
        metric_observe_ns(&SESSION_METRICS[M_COMMAND_SECONDS], 0, now_mono_ns() - s->run.begun_ns);
    if (session_is_detached(s) && kind != COMMAND_NOT_RUN)
        detached_release(s);
    detached_drop_frame(s);
    for (int i = 0; i < 2; i++)
        next[i] = s->s[i].stop + s->s[i].tail;
    s->run = (struct running){0};
    exec_table_touch(s->execs);
    command_start_stretch(s, next);
    return true;
}

/* ---- run ---- */

bool session_is_busy(const err *e)
{
    return e && ((e->code == ERR_CONFLICT && str_eq(e->kind, "command")) ||
                 (e->code == ERR_UNAVAILABLE && str_eq(e->kind, "session")));
}

static err *check_idle(const session *s)
{
    switch (s->info.flags & JOURNAL_S_CLOSED ? SESSION_ENDED : s->life) {
    case SESSION_IDLE:
        break;
    case SESSION_STARTING:
        return err_retry_after(
            err_kind(err_new(ERR_UNAVAILABLE, "the shell of session %lu is being started", s->id),
                     "session"),
            1);
    case SESSION_RUNNING:
        return err_remedy(
            err_kind(err_new(ERR_CONFLICT, "command %lu of session %lu runs", s->run.seq, s->id),
                     "command"),
            "Wait for it, interrupt it, say queue, or open another session.");
    case SESSION_ENDED:
        return err_kind(err_new(ERR_CONFLICT, "session %lu has ended", s->id), "session");
    }
    if (s->ncommands >= COMMANDS_MAX)
        return err_remedy(
            err_new(ERR_SANDBOX_EXHAUSTED, "session %lu has run %u commands", s->id, COMMANDS_MAX),
            "Open a new session.");
    return NULL;
}

/* Returns the command of this key, or 0. */
static err *command_replay(session *s, const exec_key *key, uint64_t *ret_seq)
{
    journal_rec cmd = {0}, end = {0};

    *ret_seq = key && has_key(key->key) ? (uintptr_t)map_get(&s->keys, key->key, 16) : 0;
    if (!*ret_seq)
        return NULL;
    if (*ret_seq == s->run.seq && s->run.refused)
        return err_retry_after(err_new(ERR_DISK_FULL,
                                       "command %lu was not run, and there is no room to say so",
                                       *ret_seq),
                               1);
    TRY(command_find(s, *ret_seq, &cmd, &end));
    if (now_real_ns() > cmd.command.real_ns + KEY_LIFE_NS) {
        *ret_seq = 0;
        return NULL;
    }
    if (memcmp(cmd.command.body, key->body, 16) != 0)
        return err_new(ERR_IDEMPOTENCY_MISMATCH,
                       "this idempotency key was used for another request (command %lu)", *ret_seq);
    return NULL;
}

/* Copies the first bytes for display, if they are valid UTF-8. */
static void command_display(const command_spec *c, char ret_text[JOURNAL_TEXT_MAX])
{
    size_t n = c->n < JOURNAL_TEXT_MAX - 1 ? c->n : JOURNAL_TEXT_MAX - 4;

    while (n < c->n && n && ((unsigned char)c->text[n] & 0xc0) == 0x80)
        n--;
    memcpy(ret_text, c->text, n);
    if (n < c->n)
        memcpy(ret_text + n, "...", sizeof "...");
    if (!utf8_valid(ret_text, strlen(ret_text)))
        memset(ret_text, 0, JOURNAL_TEXT_MAX);
}

static void make_frame(session *s, const command_spec *c, const char *token, frame *ret_frame)
{
    unsigned risks = frame_risks(c->text, c->n, s->dialect);
    bool keep = risks & RISK_REPLACE || (s->dialect == DIALECT_ASH && s->after_exit);

    *ret_frame = (frame){.text = c->text,
                         .n = c->n,
                         .savepoint = keep && s->depth < DEPTH_MAX,
                         .merge = c->merge,
                         .bulk = s->dialect == DIALECT_BASH && c->n > FRAME_BULK_AT,
                         .lead = s->killed && !session_is_detached(s),
                         .fold = s->dialect == DIALECT_BASH && s->depth >= DEPTH_FOLD &&
                                 !session_is_detached(s),
                         .keep = risks & RISK_KILL,
                         .readonly = risks & RISK_READONLY};
    memcpy(ret_frame->token, token, FRAME_TOKEN + 1);
}

/* Marks the command as running. From here on it runs, even if bothyd dies. */
static void command_begin(session *s, const journal_rec *r)
{
    uint64_t now = exec_table_begin_clock(s->execs);

    s->run = (struct running){.seq = r->command.seq,
                              .boot_ns = r->command.boot_ns,
                              .begun_ns = now,
                              .record_flags = r->command.flags};
    hex_encode(r->command.token, JOURNAL_TOKEN, s->run.token);
    if (r->command.timeout_ms)
        s->run.deadline_ns = now + r->command.timeout_ms * NS_PER_MS;
    if (r->command.flags & JOURNAL_C_FOLD)
        s->depth = 1; /* the shell that takes over says so, and none waits then */
    if (r->command.flags & JOURNAL_C_SAVEPOINT)
        s->depth++;
    s->life = SESSION_RUNNING;
    exec_table_touch(s->execs);
}

bool command_undo(session *s)
{
    struct stretch before[2] = {s->s[0], s->s[1]};

    s->s[0].stop = s->s[0].start;
    s->s[1].stop = s->s[1].start;
    if (s->run.record_flags & JOURNAL_C_SAVEPOINT && !s->run.refused)
        s->depth--;
    s->run.refused = true;
    s->run.deadline_ns = 0;
    s->run.ladder = (ladder){0};
    bool done = command_finish(s, COMMAND_NOT_RUN, 0);
    memcpy(s->s, before, sizeof before);
    if (done)
        s->life = SESSION_IDLE;
    return done;
}

err *session_replay(session *s, const exec_key *key, uint64_t *ret_seq)
{
    LOCK_SCOPE(&s->lock);
    return command_replay(s, key, ret_seq);
}

err *session_run(session *s, const command_spec *c, const exec_key *key, uint64_t *ret_seq,
                 bool *ret_replay)
{
    CLEANUP(buf_done) buf text = {0};
    journal_rec r = {.type = JOURNAL_COMMAND, .exec = s->id};
    struct journal_command *cmd = &r.command;
    uint32_t index;
    frame f;

    TRY(frame_check(c->text, c->n));
    LOCK_SCOPE(&s->lock);
    TRY(command_replay(s, key, ret_seq));
    *ret_replay = *ret_seq != 0;
    if (*ret_seq)
        return NULL;
    TRY(check_idle(s));
    random_bytes(cmd->token, sizeof cmd->token);
    char token[FRAME_TOKEN + 1];
    hex_encode(cmd->token, sizeof cmd->token, token);
    make_frame(s, c, token, &f);
    frame_write(&f, &text);
    if (key) {
        memcpy(cmd->key, key->key, 16);
        memcpy(cmd->body, key->body, 16);
    }
    cmd->seq = s->ncommands + 1;
    cmd->shell = s->info.shell;
    cmd->real_ns = now_real_ns();
    cmd->boot_ns = now_boot_ns();
    cmd->timeout_ms = c->timeout_ms;
    cmd->in_offset = session_is_detached(s) ? 0 : exec_stdin_length(s->shell);
    cmd->in_bytes = text.len;
    cmd->start[0] = session_is_detached(s) ? 0 : s->s[0].start;
    cmd->start[1] = session_is_detached(s) ? 0 : s->s[1].start;
    cmd->flags = (f.merge ? JOURNAL_C_MERGE : 0) | (f.savepoint ? JOURNAL_C_SAVEPOINT : 0) |
                 (f.keep ? JOURNAL_C_KILLS : 0) | (f.fold ? JOURNAL_C_FOLD : 0);
    command_display(c, cmd->text);
    TRY(session_is_detached(s) ? detached_carry(s, &r, text.len, &index)
                               : exec_log(s->execs, &r, &index));
    FAULT_KILL("session.command_recorded");
    command_note(s, &r, index);
    command_begin(s, &r);
    err *e = exec_feed(s->shell, text.p, text.len, cmd->in_offset);
    if (session_is_detached(s) && !e)
        buf_append(&s->frame, text.p, text.len);
    secret_wipe(text.p, text.len);
    if (e) {
        if (session_is_detached(s))
            detached_release_unfed(s);
        command_undo(s);
        pump_kick(&s->job); /* the job retries if that could not be written */
        return e;
    }
    s->killed = false;
    FAULT_KILL("session.frame_appended");
    session_arm(s);
    *ret_seq = cmd->seq;
    return NULL;
}

/* ---- look ---- */

/* Lock held. A command's range of a stream: from memory while it runs, else from its end record. */
struct extent {
    uint64_t start, stop;
    const struct journal_cut *cut;
    unsigned ncut;
};

static struct extent extent_of(const session *s, const journal_rec *cmd, const journal_rec *end,
                               int i)
{
    struct extent x = {.start = cmd->command.start[i]};

    if (end->type) {
        x.stop = end->command_end.stop[i];
        x.cut = end->command_end.cut[i];
        while (x.ncut < JOURNAL_CUTS && x.cut[x.ncut].n)
            x.ncut++;
    } else {
        const struct stretch *st = &s->s[i];
        x.stop = st->found ? st->stop : st->pos;
        x.cut = st->cut;
        x.ncut = st->ncut;
    }
    if (x.stop < x.start)
        x.stop = x.start;
    return x;
}

static uint64_t extent_length(const struct extent *x)
{
    uint64_t n = x->stop - x->start;

    for (unsigned k = 0; k < x->ncut; k++)
        n -= x->cut[k].n < n ? x->cut[k].n : n;
    return n;
}

/* Returns the stream position of a command's byte; *ret_n: bytes that follow it without a cut. */
static uint64_t extent_map(const struct extent *x, uint64_t offset, uint64_t *ret_n)
{
    uint64_t at = offset;

    for (unsigned k = 0; k < x->ncut; k++) {
        if (at < x->cut[k].at) {
            *ret_n = x->cut[k].at - at;
            return x->start + at;
        }
        at += x->cut[k].n;
    }
    *ret_n = x->stop - x->start > at ? x->stop - x->start - at : 0;
    return x->start + at;
}

/* The inverse of extent_map(). */
static uint64_t extent_offset(const struct extent *x, uint64_t where)
{
    uint64_t at = where > x->start ? where - x->start : 0, less = 0;

    for (unsigned k = 0; k < x->ncut && x->cut[k].at < at; k++)
        less += at - x->cut[k].at < x->cut[k].n ? at - x->cut[k].at : x->cut[k].n;
    return at - less;
}

/* Returns a reference to the exec that the command ran in. */
static err *shell_of(session *s, const journal_rec *cmd, exec **ret_exec)
{
    if (s->shell && cmd->command.shell == exec_id(s->shell)) {
        *ret_exec = exec_ref(s->shell);
        return NULL;
    }
    return exec_find(s->execs, cmd->command.shell, ret_exec);
}

/* Reads a directory that is too long for the record from the trailer, while that is kept. */
static char *long_cwd(exec *x, const journal_rec *end, const char *token)
{
    const struct journal_command_end *e = &end->command_end;
    CLEANUP(freep) char *text = xmalloc(TRAILER_MAX);
    uint64_t gap = 0;
    size_t n = 0, at = 0;
    trailer t;

    if (!e->tail[0] || e->tail[0] > TRAILER_MAX)
        return NULL;
    err *failure = exec_read(x, 1, e->stop[0], text, e->tail[0], &n, &gap);
    if (failure) {
        err_free(failure);
        return NULL;
    }
    if (trailer_find(text, n, token, token, &at, &t) != TRAILER_HERE)
        return NULL;
    return xstrndup(t.cwd, t.ncwd);
}

static char *cwd_of(session *s, exec *x, const journal_rec *cmd, const journal_rec *end)
{
    char token[FRAME_TOKEN + 1];

    if (!end->type || end->command_end.kind == COMMAND_UNKNOWN ||
        end->command_end.kind == COMMAND_NOT_RUN)
        return NULL;
    if (*end->command_end.cwd)
        return xstrdup(end->command_end.cwd);
    if (cmd->command.seq == s->ncommands && s->cwd)
        return xstrdup(s->cwd);
    hex_encode(cmd->command.token, JOURNAL_TOKEN, token);
    return long_cwd(x, end, token);
}

err *session_command(session *s, uint64_t seq, command_state *ret_state)
{
    journal_rec cmd = {0}, end = {0};
    CLEANUP(exec_unrefp) exec *x = NULL;

    LOCK_SCOPE(&s->lock);
    TRY(command_find(s, seq, &cmd, &end));
    TRY(shell_of(s, &cmd, &x));
    const struct journal_command_end *e = &end.command_end;
    *ret_state = (command_state){.session = s->id,
                                 .seq = seq,
                                 .kind = end.type ? (enum command_kind)e->kind : COMMAND_RUNNING,
                                 .status = end.type ? e->status : 0,
                                 .flags = end.type ? e->flags : s->run.flags,
                                 .rung = end.type ? (enum rung)e->rung : s->run.ladder.rung,
                                 .started_ns = cmd.command.real_ns,
                                 .ended_ns = end.type ? e->real_ns : 0,
                                 .cwd = cwd_of(s, x, &cmd, &end)};
    memcpy(ret_state->text, cmd.command.text, sizeof ret_state->text);
    for (int i = 0; i < 2; i++) {
        struct extent at = extent_of(s, &cmd, &end, i);
        ret_state->length[i] = extent_length(&at);
        ret_state->dropped[i] = exec_dropped(x, i + 1, at.start, at.stop);
    }
    return NULL;
}

void command_state_done(command_state *st)
{
    free(st->cwd);
    st->cwd = NULL;
}

/* NOLINTNEXTLINE(readability-function-size): exec_read's, and which command */
err *session_read(session *s, uint64_t seq, int stream, uint64_t offset, void *p, size_t max,
                  size_t *ret_n, uint64_t *ret_gap_to)
{
    journal_rec cmd = {0}, end = {0};
    CLEANUP(exec_unrefp) exec *x = NULL;
    uint64_t left, gap = 0;

    if (stream != 1 && stream != 2)
        return err_new(ERR_INVALID_REQUEST, "there is no stream %d", stream);
    LOCK_SCOPE(&s->lock);
    TRY(command_find(s, seq, &cmd, &end));
    TRY(shell_of(s, &cmd, &x));
    struct extent at = extent_of(s, &cmd, &end, stream - 1);
    uint64_t length = extent_length(&at);
    if (offset > length && s->run.carried && seq == s->run.seq) { /* it is read again */
        *ret_n = 0;
        *ret_gap_to = 0;
        return NULL;
    }
    if (offset > length)
        return err_new(ERR_RANGE, "offset %lu lies beyond the stream's length %lu", offset, length);
    uint64_t where = extent_map(&at, offset, &left);
    *ret_n = 0;
    *ret_gap_to = 0;
    if (!left)
        return NULL;
    TRY(exec_read(x, stream, where, p, max < left ? max : (size_t)left, ret_n, &gap));
    if (gap > where)
        *ret_gap_to = extent_offset(&at, gap < at.stop ? gap : at.stop);
    return NULL;
}

exec_hold *session_hold(session *s, uint64_t seq, int stream, uint64_t offset)
{
    LOCK_SCOPE(&s->lock);
    if (!s->shell || seq != s->run.seq)
        return NULL;
    return exec_hold_new(s->shell, stream, s->last.command.start[stream - 1] + offset);
}

void session_hold_move(session *s, uint64_t seq, exec_hold *h, int stream, uint64_t offset)
{
    journal_rec cmd = {0}, end = {0};

    if (!h)
        return;
    LOCK_SCOPE(&s->lock);
    err *e = command_find(s, seq, &cmd, &end);
    if (e)
        err_free(e);
    else
        exec_hold_move(h, cmd.command.start[stream - 1] + offset);
}

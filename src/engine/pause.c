/* Pause and resume.
 *
 * The record says what was requested. It is committed first, then the freezer follows it. After a
 * kill at any instruction, the next start freezes sandboxes whose record says paused and thaws the
 * others. If the freezer fails, the record is changed back.
 *
 *     pause:  time limits stop -> record `paused`, since when -> FREEZE -> answer
 *     resume: journal: until when -> record `running`, later ttl -> THAW -> time limits run on
 *             -> answer
 *
 * The journal is written before the record, which loses the start of the pause. */
#include <string.h>

#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "engine/internal.h"

#define MOVERS_MAX 16u
#define AGAIN_NS   NS_PER_S         /* first retry of a failed pause at the end of the TTL */
#define AGAIN_MAX  6u               /* doublings of that */
#define RESISTS    3u               /* failed freezes of a sandbox at its TTL's end; then it ends */
#define RESUME_NS  (300 * NS_PER_S) /* new TTL of a resumed sandbox whose own is over */
#define TURN_NS    (5 * NS_PER_S)   /* how long a pause waits for its turn */
#define RESUMES    "resumes"        /* file with a struct resume_times */

uint64_t sandbox_now(const sandbox *sb)
{
    return sb->state == LIFE_PAUSED ? sb->paused_ns : clock_real(sb->engine->o.clock);
}

err *sandbox_move_begin(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);

    if (sb->movers >= MOVERS_MAX)
        return err_retry_after(
            err_new(ERR_UNAVAILABLE, "%u changes of sandbox %s wait already", MOVERS_MAX, sb->id),
            1);
    sb->movers++;
    while (sb->moving)
        pthread_cond_wait(&sb->moved, &sb->lock);
    sb->movers--;
    sb->moving = true;
    return NULL;
}

err *sandbox_move_try(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);

    if (sb->moving)
        return err_retry_after(err_new(ERR_UNAVAILABLE, "sandbox %s is being changed", sb->id), 1);
    sb->moving = true;
    return NULL;
}

void sandbox_move_end(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);

    sb->moving = false;
    pthread_cond_broadcast(&sb->moved);
}

void sandbox_copy_begin(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);

    while (sb->moving || sb->copying)
        pthread_cond_wait(&sb->moved, &sb->lock);
    sb->copying = true;
}

void sandbox_copy_end(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);

    sb->copying = false;
    pthread_cond_broadcast(&sb->moved);
}

/* Fails instead of waiting for a snapshot, which may take minutes. */
err *sandbox_not_copied(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);

    if (!sb->copying)
        return NULL;
    return err_retry_after(
        err_new(ERR_UNAVAILABLE, "a snapshot of sandbox %s is being taken", sb->id), 1);
}

/* Returns the end time. Only the change under way writes it, but others read it. */
static uint64_t ends_of(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);
    return sb->ends_ns;
}

static enum lifecycle state_of(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);
    return sb->state;
}

/* Enters a state, with its times. Returns false if the sandbox has ended meanwhile. */
static bool pause_enter(sandbox *sb, enum lifecycle state, uint64_t paused_ns, uint64_t ends_ns)
{
    LOCK_SCOPE(&sb->lock);

    if (sb->state == LIFE_GONE || sb->deleting || !sandbox_enter(sb, state))
        return false;
    sb->paused_ns = paused_ns;
    sb->ends_ns = ends_ns;
    if (state == LIFE_RUNNING)
        sandbox_set_idle(sb, sb->idle_ms); /* a paused sandbox is not idle */
    return true;
}

/* Returns the error for a sandbox that ended meanwhile, or is about to. */
static err *ended_meanwhile(sandbox *sb)
{
    if (state_of(sb) == LIFE_GONE)
        return sandbox_usable(sb);
    return err_new(ERR_SANDBOX_GONE, "sandbox %s is being ended", sb->id);
}

/* Maps NOT_FOUND and SANDBOX_GONE from the store or backend to this sandbox's own 'gone' error. */
static err *or_gone(sandbox *sb, err *failure)
{
    if (!failure || (failure->code != ERR_NOT_FOUND && failure->code != ERR_SANDBOX_GONE))
        return failure;
    err_free(failure);
    return ended_meanwhile(sb);
}

static uint64_t pause_later(uint64_t ends_ns, uint64_t from_ns, uint64_t to_ns)
{
    return ends_ns && to_ns > from_ns ? ends_ns + (to_ns - from_ns) : ends_ns;
}

static void wake_sessions(sandbox *sb)
{
    session_table *sessions;

    {
        LOCK_SCOPE(&sb->lock);
        sessions = sb->sessions;
    }
    if (sessions)
        session_table_wake(sessions);
}

static void go_on(sandbox *sb)
{
    exec_table_resume(sb->table);
    wake_sessions(sb);
}

void sandbox_let_go(sandbox *sb, uint64_t still_ns)
{
    exec_table_let_go(sb->table, still_ns);
    wake_sessions(sb);
}

static void pause_tell(sandbox *sb, const char *type, const char *by)
{
    log_info(type, "sandbox %s: by %s", sb->id, by);
}

/* Loads resume-time statistics saved by an earlier bothyd process. A missing or short file means
 * none. */
void pause_recall(engine *e)
{
    CLEANUP(buf_done) buf b = {0};

    if (e->o.state_dir < 0)
        return;
    err *failure = fs_read(e->o.state_dir, RESUMES, sizeof(resume_times), &b);
    if (!failure && b.len == sizeof(resume_times))
        memcpy(&e->resumes, b.p, sizeof(resume_times));
    err_free(failure);
}

static void pause_remember(engine *e, const resume_times *t)
{
    if (e->o.state_dir >= 0)
        err_drop(fs_write(e->o.state_dir, RESUMES, t, sizeof *t, 0600, false), "resume");
}

static void pause_took(engine *e, uint64_t ns)
{
    resume_times now;

    {
        LOCK_SCOPE(&e->lock);
        resume_times_add(&e->resumes, ns);
        now = e->resumes;
    }
    pause_remember(e, &now);
}

static bool has_resumed(engine *e)
{
    LOCK_SCOPE(&e->lock);
    return e->resumes.n;
}

/* ---- pause ---- */

/* Changes the record back to running, after the sandbox could not be frozen. */
static void pause_undo(sandbox *sb, uint64_t since_ns)
{
    engine *e = sb->engine;
    uint64_t ends = pause_later(ends_of(sb), since_ns, clock_real(e->o.clock));

    err_drop(store_sandbox_pause(e->o.store, sb->id, lifecycle_name(LIFE_RUNNING), 0, ends),
             "pause");
    if (pause_enter(sb, LIFE_RUNNING, 0, ends))
        go_on(sb);
}

/* Measures a first resume, so that an estimate exists: thaws the sandbox and freezes it again. */
static err *pause_probe(sandbox *sb, uint64_t commit_ns)
{
    const backend_ops *ops = sb->engine->o.backend->ops;
    uint64_t begun = now_mono_ns();

    TRY(ops->thaw(sb->box));
    pause_took(sb->engine, now_mono_ns() - begun + commit_ns);
    return ops->freeze(sb->box);
}

static err *pause_freeze(sandbox *sb, uint64_t commit_ns)
{
    TRY(sb->engine->o.backend->ops->freeze(sb->box));
    FAULT_KILL("pause.frozen");
    return has_resumed(sb->engine) ? NULL : pause_probe(sb, commit_ns);
}

static err *pause_now(engine *e, sandbox *sb)
{
    uint64_t since = clock_real(e->o.clock), ends = ends_of(sb), begun = now_mono_ns();

    if (exec_table_pauses(sb->table) >= PAUSES_MAX)
        return err_remedy(
            err_new(ERR_SANDBOX_EXHAUSTED, "sandbox %s was paused %u times", sb->id, PAUSES_MAX),
            "Make a new sandbox.");
    exec_table_pause(sb->table, since);
    err *failure =
        store_sandbox_pause(e->o.store, sb->id, lifecycle_name(LIFE_PAUSED), since, ends);
    if (failure) {
        go_on(sb);
        return or_gone(sb, failure);
    }
    FAULT_KILL("pause.recorded");
    uint64_t commit_ns = now_mono_ns() - begun;
    if (!pause_enter(sb, LIFE_PAUSED, since, ends)) {
        go_on(sb);
        return ended_meanwhile(sb);
    }
    failure = pause_freeze(sb, commit_ns);
    if (!failure)
        return NULL;
    pause_undo(sb, since);
    if (failure->code == ERR_TIMEOUT)
        failure = err_remedy(failure, "Something inside would not stand still for two seconds; all "
                                      "goes on as before. Try again.");
    return or_gone(sb, failure);
}

static err *check_can(engine *e, const caller *c)
{
    TRY(caller_require(c, CALLER_USER));
    if (e->o.backend->ops->freeze)
        return NULL;
    return err_new(ERR_UNSUPPORTED, "the backend '%s' cannot pause a sandbox",
                   e->o.backend->caps.name);
}

/* Pauses a sandbox. sandbox_move_begin() was called. */
static err *pause_it(engine *e, const caller *c, sandbox *sb)
{
    if (state_of(sb) == LIFE_PAUSED)
        return NULL;
    TRY(sandbox_usable(sb));
    TRY(sandbox_not_copied(sb));
    if (!turns_take(&e->freezes, sb->owner, now_mono_ns() + TURN_NS))
        return err_retry_after(
            err_new(ERR_UNAVAILABLE, "too many pauses of '%s' are under way", sb->owner), 1);
    err *failure = pause_now(e, sb);
    turns_give(&e->freezes, sb->owner);
    if (!failure)
        pause_tell(sb, "paused", c->owner);
    return failure;
}

err *engine_pause(engine *e, const caller *c, sandbox *sb)
{
    TRY(check_can(e, c));
    TRY(sandbox_move_begin(sb));
    err *failure = pause_it(e, c, sb);
    sandbox_move_end(sb);
    return failure;
}

/* ---- at the end of the TTL ---- */

static bool is_over(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);
    return sb->state == LIFE_RUNNING && !sb->deleting && sb->ttl_pauses && sb->ends_ns &&
           sb->ends_ns <= clock_real(sb->engine->o.clock);
}

bool pause_at_ttl(const sandbox *sb)
{
    return sb->ttl_pauses && sb->engine->o.backend->ops->freeze;
}

/* Schedules a retry after a failed pause: the warden may be away, or a disk full. Returns true if
 * the sandbox can never be paused. */
static bool put_off(sandbox *sb, const err *failure)
{
    LOCK_SCOPE(&sb->lock);
    unsigned shift = sb->pause_tries < AGAIN_MAX ? sb->pause_tries : AGAIN_MAX;

    sb->pause_tries++;
    sb->pause_resisted += failure->code == ERR_TIMEOUT;
    sb->pause_again_ns = clock_mono(sb->engine->o.clock) + (AGAIN_NS << shift);
    return failure->code == ERR_SANDBOX_EXHAUSTED || sb->pause_resisted >= RESISTS;
}

void pause_forgive(sandbox *sb)
{
    sb->pause_tries = sb->pause_resisted = 0;
    sb->pause_again_ns = 0;
}

static void pause_for_ttl(engine *e, sandbox *sb)
{
    bool now = false;

    err *failure = sandbox_move_begin(sb);
    if (!failure) {
        now = is_over(sb);
        failure = now ? sandbox_not_copied(sb) : NULL;
        if (now && !failure)
            failure = pause_now(e, sb);
        sandbox_move_end(sb);
    }
    if (!failure) {
        LOCK_SCOPE(&sb->lock);
        pause_forgive(sb);
    }
    if (!failure && now)
        pause_tell(sb, "paused", "its time");
    if (failure && put_off(sb, failure))
        engine_end(sb, &(cause){.kind = CAUSE_TTL});
    err_drop(failure, "pause");
}

/* Returns a reference to a sandbox that is to be paused now, or NULL. Skips those that are being
 * changed or copied: the keeper must not wait. */
static sandbox *pause_due(engine *e)
{
    uint64_t now = clock_real(e->o.clock), mono = clock_mono(e->o.clock);
    LOCK_SCOPE(&e->lock);
    map_iter it = {0};

    while (map_next(&e->live, &it)) {
        sandbox *sb = it.entry->value;
        LOCK_SCOPE(&sb->lock);
        if (sb->state == LIFE_RUNNING && !sb->deleting && sb->bound && !sb->moving &&
            !sb->copying && pause_at_ttl(sb) && sb->ends_ns && sb->ends_ns <= now &&
            sb->pause_again_ns <= mono)
            return sandbox_ref(sb);
    }
    return NULL;
}

bool pause_look(engine *e)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = pause_due(e);

    if (sb)
        pause_for_ttl(e, sb);
    return sb;
}

/* ---- resume ---- */

static err *resume_now(engine *e, sandbox *sb, uint64_t *ret_paused_ns)
{
    uint64_t since = sb->paused_ns, ends = ends_of(sb), now = clock_real(e->o.clock);
    if (ends && ends <= since) /* it was paused at the end of its TTL */
        ends = since + RESUME_NS;
    const char *paused = lifecycle_name(LIFE_PAUSED), *running = lifecycle_name(LIFE_RUNNING);

    /* Only a restart of bothyd needs this: a full disk does not prevent a resume. */
    err_drop(exec_table_note_pause(sb->table, now), "resume");
    FAULT_KILL("resume.noted");
    TRY(or_gone(
        sb, store_sandbox_pause(e->o.store, sb->id, running, 0, pause_later(ends, since, now))));
    FAULT_KILL("resume.recorded");
    err *failure = e->o.backend->ops->thaw(sb->box);
    if (failure) {
        err_drop(store_sandbox_pause(e->o.store, sb->id, paused, since, ends), "resume");
        return or_gone(sb, failure);
    }
    FAULT_KILL("resume.going_on");
    if (!pause_enter(sb, LIFE_RUNNING, 0, pause_later(ends, since, now)))
        return ended_meanwhile(sb);
    go_on(sb);
    *ret_paused_ns = now > since ? now - since : 0;
    return NULL;
}

static err *resume_it(engine *e, const caller *c, sandbox *sb, resumed *ret_resumed)
{
    uint64_t begun = now_mono_ns();

    if (state_of(sb) != LIFE_PAUSED)
        return sandbox_usable(sb); /* a running sandbox is success */
    TRY(sandbox_not_copied(sb));
    TRY(resume_now(e, sb, &ret_resumed->paused_ns));
    ret_resumed->took_ns = now_mono_ns() - begun;
    pause_took(e, ret_resumed->took_ns);
    pause_tell(sb, "resumed", c->owner);
    return NULL;
}

err *engine_resume(engine *e, const caller *c, sandbox *sb, resumed *ret_resumed)
{
    *ret_resumed = (resumed){0};
    TRY(check_can(e, c));
    TRY(sandbox_move_begin(sb));
    err *failure = resume_it(e, c, sb, ret_resumed);
    sandbox_move_end(sb);
    return failure;
}

/* ---- at start ---- */

void sandbox_settle_pause(sandbox *sb, bool frozen)
{
    const backend_ops *ops = sb->engine->o.backend->ops;

    if (!ops->freeze)
        return;
    if (state_of(sb) != LIFE_PAUSED) {
        if (frozen)
            err_drop(ops->thaw(sb->box), "reconcile");
        return;
    }
    err *failure = ops->freeze(sb->box);
    if (!failure)
        return;
    LOG_ABOUT(sb->id, NULL, 0);
    log_warn("reconcile", "sandbox %s was paused and runs: %s", sb->id, failure->message);
    err_free(failure);
    pause_undo(sb, sb->paused_ns);
}

/* ---- keeper thread ---- */

sandbox *pause_expired(engine *e)
{
    uint64_t now = clock_real(e->o.clock), keep = e->o.keep_paused_ms * NS_PER_MS;
    LOCK_SCOPE(&e->lock);
    map_iter it = {0};

    while (map_next(&e->live, &it)) {
        sandbox *sb = it.entry->value;
        LOCK_SCOPE(&sb->lock);
        if (sb->state == LIFE_PAUSED && !sb->deleting && !sb->moving && !sb->copying &&
            sb->paused_ns + keep <= now)
            return sandbox_ref(sb);
    }
    return NULL;
}

void pause_end(engine *e, sandbox *sb)
{
    CLEANUP(freep)
    char *detail = str_printf("it was paused for longer than the %lu s that one is kept",
                              e->o.keep_paused_ms / 1000);

    engine_end(sb, &(cause){.kind = CAUSE_TTL, .detail = detail});
}

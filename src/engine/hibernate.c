/* Hibernation: the sandbox's box is destroyed; its record stays, and what the backend keeps beside
 * a box (a volume). Memory and processes are lost; when it wakes, commands that ran read as killed
 * by a reset.
 *
 *     hibernate:  record `hibernated` -> the end of its box is expected -> the box is destroyed
 *     wake:       reset.c, with the state `running` in the same commit as the new box
 *
 * The record is committed first. A kill behind it leaves an orphaned box, which the next start
 * destroys. */
#include <string.h>

#include "base/log.h"
#include "base/thread.h"
#include "engine/internal.h"

#define WAKE_NS     (60 * NS_PER_S) /* how long a request waits for its sandbox to wake */
#define WAITING_MAX 128             /* requests; each holds a thread meanwhile */

/* Checks that the sandbox is usable and not about to end. Lock held. */
static err *check_awake(sandbox *sb)
{
    TRY(sandbox_usable_locked(sb));
    if (sb->ending || sb->deleting || !sb->tie)
        return err_kind(err_new(ERR_SANDBOX_GONE, "sandbox %s is being ended", sb->id), "sandbox");
    return NULL;
}

/* Checks that the sandbox can hibernate. *ret_was: it is hibernated already. */
static err *hibernate_look(sandbox *sb, bool *ret_was, uint64_t *ret_ends)
{
    LOCK_SCOPE(&sb->lock);

    *ret_was = sb->state == LIFE_HIBERNATED && !sb->cause && !sb->deleting;
    *ret_ends = sb->ends_ns;
    return *ret_was ? NULL : check_awake(sb);
}

/* Marks the sandbox as hibernated. event_lock is held, so no event is being delivered; later events
 * of the box are dropped. */
static err *hibernate_leave(sandbox *sb)
{
    LOCK_SCOPE(&sb->event_lock);
    LOCK_SCOPE(&sb->lock);

    TRY(check_awake(sb));
    if (!sandbox_enter(sb, LIFE_HIBERNATED))
        return err_new(ERR_CONFLICT, "sandbox %s cannot hibernate now", sb->id);
    sb->tie->loose = true;
    return NULL;
}

static err *sleep_now(engine *e, sandbox *sb)
{
    bool was;
    uint64_t ends;

    TRY(hibernate_look(sb, &was, &ends));
    if (was)
        return NULL;
    TRY(sandbox_not_copied(sb));
    TRY(store_sandbox_pause(e->o.store, sb->id, lifecycle_name(LIFE_HIBERNATED), 0, ends));
    TRY(hibernate_leave(sb)); /* an error: it has ended, as its record says */
    engine_destroy_soon(e, sandbox_box(sb).id, "hibernate");
    log_info("hibernate", "sandbox %s sleeps", sb->id);
    return NULL;
}

err *engine_hibernate(engine *e, const caller *c, sandbox *sb)
{
    LOG_ABOUT(sb->id, NULL, 0);
    TRY(caller_require(c, CALLER_USER));
    TRY(sandbox_move_begin(sb));
    err *failure = sleep_now(e, sb);
    sandbox_move_end(sb);
    return failure;
}

/* ---- boxes that were taken away ---- */

void engine_on_taken(engine *e, bool (*taken)(void *arg, const char *id, bool asleep), void *arg)
{
    LOCK_SCOPE(&e->sleep.lock);

    e->taken_arg = arg;
    e->taken = taken;
}

/* Calls the function of engine_on_taken(). The lock keeps its argument alive. */
static bool tell_taken(engine *e, const char *id, bool asleep)
{
    LOCK_SCOPE(&e->sleep.lock);
    return e->taken && e->taken(e->taken_arg, id, asleep);
}

/* Begins a change of the sandbox if no other one is under way: the keeper must not wait. Returns
 * false otherwise. */
static bool take_move(sandbox *sb, uint64_t *ret_ends)
{
    LOCK_SCOPE(&sb->lock);
    bool lived = sb->state == LIFE_RUNNING || sb->state == LIFE_PAUSED;

    *ret_ends = sb->ends_ns;
    if (!lived || sb->deleting || sb->cause || sb->moving || sb->movers)
        return false;
    return sb->moving = true;
}

static bool lie_down(sandbox *sb)
{
    LOCK_SCOPE(&sb->event_lock);
    LOCK_SCOPE(&sb->lock);

    if (sb->deleting || !sandbox_enter(sb, LIFE_HIBERNATED))
        return false;
    sb->ending = false;
    return true;
}

bool sleep_instead(sandbox *sb)
{
    engine *e = sb->engine;
    uint64_t ends;

    if (!tell_taken(e, sb->id, false) || !take_move(sb, &ends))
        return false;
    err *failure =
        store_sandbox_pause(e->o.store, sb->id, lifecycle_name(LIFE_HIBERNATED), 0, ends);
    bool asleep = !failure && lie_down(sb);
    if (failure)
        err_drop(failure, "hibernate");
    if (asleep)
        engine_destroy_soon(e, sandbox_box(sb).id, "hibernate");
    sandbox_move_end(sb);
    if (asleep)
        tell_taken(e, sb->id, true);
    return asleep;
}

void engine_on_asleep(engine *e, void (*wanted)(void *arg, const char *id), void *arg)
{
    e->asleep_arg = arg;
    e->asleep = wanted;
}

err *asleep_error(const sandbox *sb)
{
    const engine *e = sb->engine;

    if (e->asleep)
        e->asleep(e->asleep_arg, sb->id);
    return err_retry_after(
        err_new(ERR_UNAVAILABLE, "sandbox %s is hibernated, and is being resumed", sb->id), 1);
}

/* ---- requests to hibernated sandboxes ---- */

/* Returns true if waiting helps: the sandbox will be woken, or its pid 1 will report that it was
 * claimed. */
static bool is_coming(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);
    if (sb->cause || sb->deleting)
        return false;
    return sb->state == LIFE_HIBERNATED ? sb->engine->asleep != NULL
                                        : sb->state == LIFE_CREATING && sb->recovering;
}

void sleep_changed(engine *e)
{
    LOCK_SCOPE(&e->sleep.lock);
    e->sleep.changes++;
    pthread_cond_broadcast(&e->sleep.changed);
}

static unsigned hibernate_changes(engine *e)
{
    LOCK_SCOPE(&e->sleep.lock);
    return e->sleep.changes;
}

void engine_let_go(engine *e)
{
    LOCK_SCOPE(&e->sleep.lock);
    e->sleep.over = true;
    pthread_cond_broadcast(&e->sleep.changed);
}

/* Waits for a change of any sandbox. Returns false on a timeout, if too many requests wait already,
 * or if bothyd is stopping. */
static bool wait_change(engine *e, unsigned seen, uint64_t until)
{
    LOCK_SCOPE(&e->sleep.lock);

    if (e->sleep.waiting >= WAITING_MAX)
        return false;
    e->sleep.waiting++;
    while (e->sleep.changes == seen && !e->sleep.over && now_mono_ns() < until)
        cond_wait_until(&e->sleep.changed, &e->sleep.lock, until);
    e->sleep.waiting--;
    return e->sleep.changes != seen;
}

/* Waits until the sandbox can be used. Each check that finds it hibernated requests it again, so
 * that a resume that failed is retried. */
err *engine_wait_awake(sandbox *sb)
{
    engine *e = sb->engine;
    uint64_t until = now_mono_ns() + WAKE_NS;

    for (;;) {
        unsigned seen = hibernate_changes(e);
        err *failure = sandbox_usable(sb);
        if (!failure || !is_coming(sb) || !wait_change(e, seen, until))
            return failure;
        err_free(failure);
    }
}

/* Ends whose row is queued. A sandbox stays in memory until its row is written, so that its cause
 * is known however long a disk is full.
 *
 *   any thread        end_record() queues the row
 *   writer's thread   the row is written: hands the sandbox to the keeper
 *   keeper            destroys its box
 *
 * A kill of bothyd in between leaves a box that still lives, or is dead with its exit status: the
 * next start continues from there. An end by time is evident from the row (cause_without_box()), so
 * that box is destroyed as soon as the disk refuses the row: nothing runs for longer than it
 * may. */
#include <string.h>

#include "base/fault.h"
#include "base/str.h"
#include "base/thread.h"
#include "engine/internal.h"

/* ---- the store's answer ---- */

/* Hands a sandbox to the keeper, which destroys its box or drops its reference. Engine's lock
 * held. */
static void hand_over(engine *e, sandbox *sb)
{
    sb->next_ended = e->written;
    e->written = sandbox_ref(sb);
    pthread_cond_signal(&e->wake);
}

/* Called on the store's writer thread. */
static void on_end(void *arg, const char *id, bool settled)
{
    engine *e = arg;
    LOCK_SCOPE(&e->lock);
    sandbox *sb = map_get_str(&e->ended, id);

    if (!sb || sb->end_written || (!settled && (!sb->end_early || sb->end_handed)))
        return;
    sb->end_written = settled;
    if (!sb->end_handed)
        hand_over(e, sb);
    sb->end_handed = true;
}

void ended_open(engine *e)
{
    store_state_watch(e->o.store, on_end, e);
}

/* ---- recording ---- */

/* Returns true if a start that finds no box can tell from the row that the time was over. Lock
 * held. */
static bool is_evident(const sandbox *sb, const cause *c)
{
    return c->kind == CAUSE_TTL && (sb->state == LIFE_PAUSED || !pause_at_ttl(sb));
}

void end_record(sandbox *sb, const cause *c, bool destroy)
{
    engine *e = sb->engine;
    CLEANUP(freep) char *text = cause_json(c);
    bool early;

    {
        LOCK_SCOPE(&sb->lock);
        early = destroy && is_evident(sb, c);
    }
    {
        LOCK_SCOPE(&e->lock);
        sb->end_destroys = destroy;
        sb->end_early = early;
        if (!map_put_str(&e->ended, sb->id, sb))
            sandbox_ref(sb);
    }
    FAULT_KILL("end.decided");
    store_sandbox_state_queued(e->o.store, sb->id, lifecycle_name(LIFE_GONE), text,
                               clock_real(e->o.clock));
}

sandbox *ended_find(engine *e, const char *id)
{
    LOCK_SCOPE(&e->lock);
    sandbox *sb = map_get_str(&e->ended, id);

    return sb ? sandbox_ref(sb) : NULL;
}

/* ---- keeper thread ---- */

static void finish_end(engine *e, sandbox *sb)
{
    bool destroy, written;

    {
        LOCK_SCOPE(&e->lock);
        destroy = sb->end_destroys;
        sb->end_destroys = false;
        written = sb->end_written && map_get_str(&e->ended, sb->id) == sb;
        if (written)
            map_take_str(&e->ended, sb->id);
        sb->end_handed = false;
    }
    if (destroy) {
        FAULT_KILL("end.recorded");
        engine_destroy_soon(e, sandbox_box(sb).id, "end");
        FAULT_KILL("end.destroyed");
    }
    if (written)
        sandbox_unref(sb);
}

void ended_finish_all(engine *e)
{
    sandbox *all;

    {
        LOCK_SCOPE(&e->lock);
        all = TAKE_PTR(e->written);
    }
    for (sandbox *next; all; all = next) {
        next = all->next_ended;
        finish_end(e, all);
        sandbox_unref(all);
    }
}

void ended_close(engine *e)
{
    map_iter it = {0};

    err_drop(store_flush(e->o.store), "end"); /* else the next start settles them */
    store_state_watch(e->o.store, NULL, NULL);
    ended_finish_all(e);
    while (map_next(&e->ended, &it))
        sandbox_unref(it.entry->value);
    map_done(&e->ended);
}

/* ---- at start ---- */

/* Returns the cause for a sandbox whose box is missing: its time, if that was over. */
static cause cause_without_box(engine *e, const sandbox *sb)
{
    uint64_t now = clock_real(e->o.clock), keep = e->o.keep_paused_ms * NS_PER_MS;
    bool over = sb->state == LIFE_RUNNING && sb->ends_ns && sb->ends_ns <= now && !pause_at_ttl(sb);

    /* Sandboxes that ran until the machine went down were lost with it. */
    if (!e->o.same_boot)
        return (cause){.kind = CAUSE_NODE_LOST};
    if (over || (sb->state == LIFE_PAUSED && sb->paused_ns + keep <= now))
        return (cause){.kind = CAUSE_TTL};
    return (cause){.kind = CAUSE_NODE_LOST};
}

void end_row(engine *e, const sandbox_row *row, const cause *known, bool destroy)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = sandbox_from_row(e, row);
    bool creating = sb->state == LIFE_CREATING;
    cause why = known ? *known : cause_without_box(e, sb);

    if (why.kind == CAUSE_NODE_LOST && known)
        why = cause_without_box(e, sb).kind == CAUSE_TTL ? (cause){.kind = CAUSE_TTL} : why;
    /* After a power cut it is not known whether the create was answered: the sandbox was lost in
     * either case. */
    if (creating && !e->o.rebooted)
        why = (cause){.kind = CAUSE_CREATE_FAILED, .stage = "interrupted"};
    if (creating)
        store_sandbox_free_key_queued(e->o.store, sb->id);
    {
        LOCK_SCOPE(&sb->lock);
        sandbox_decide(sb, &why);
        sb->state = LIFE_GONE;
    }
    end_record(sb, &why, destroy);
    metric_add(&ENGINE_METRICS[M_ENDED], why.kind, 1);
}

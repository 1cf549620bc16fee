/* The keeper: ends sandboxes whose time is over and forgets records and spools after theirs. */
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "engine/internal.h"

#define SWEEP_EVERY_NS (60 * NS_PER_S)
#define SHED_AT_ONCE   256
#define SHED_MARGIN_NS (2 * NS_PER_S) /* an end is committed a moment after its time */

void engine_destroy_soon(engine *e, const char *id, const char *what)
{
    const backend_ops *ops = e->o.backend->ops;

    if (ops->destroy_soon)
        ops->destroy_soon(e->o.backend, id);
    else
        err_drop(ops->destroy(e->o.backend, id), what);
}

void engine_end_decided(sandbox *sb, const cause *c)
{
    LOG_ABOUT(sb->id, NULL, 0);
    metric_add(&ENGINE_METRICS[M_ENDED], c->kind, 1);
    log_info("end", "sandbox %s: %s", sb->id, cause_name(c->kind));
    end_record(sb, c, true);
    sandbox_finish(sb, c);
}

void engine_end(sandbox *sb, const cause *c)
{
    {
        LOCK_SCOPE(&sb->lock);
        if (sb->state == LIFE_GONE || sb->deleting)
            return;
        sb->deleting = true;
        sandbox_decide(sb, c);
    }
    engine_end_decided(sb, c);
}

/* One whose TTL has passed and that ends with it, as a reference; NULL when there is none. What is
 * being moved may be given other time, which was asked for in time. */
static sandbox *expired(engine *e)
{
    uint64_t now = clock_real(e->o.clock);
    LOCK_SCOPE(&e->lock);
    map_iter it = {0};

    while (map_next(&e->live, &it)) {
        sandbox *sb = it.entry->value;
        LOCK_SCOPE(&sb->lock);
        if (sb->state == LIFE_RUNNING && !sb->deleting && !sb->moving && sb->ends_ns &&
            sb->ends_ns <= now && !pause_at_ttl(sb))
            return sandbox_ref(sb);
    }
    return NULL;
}

/* An interrupted create whose init has not spoken in time. */
static sandbox *unsettled(engine *e)
{
    uint64_t now = clock_mono(e->o.clock);
    LOCK_SCOPE(&e->lock);
    map_iter it = {0};

    while (map_next(&e->live, &it)) {
        sandbox *sb = it.entry->value;
        LOCK_SCOPE(&sb->lock);
        if (sb->recovering && sb->state == LIFE_CREATING && !sb->deleting &&
            sb->recover_by_ns <= now)
            return sandbox_ref(sb);
    }
    return NULL;
}

/* No record stays for twice its time, however short that is. */
static uint64_t sweep_every(const engine *e)
{
    uint64_t every = SWEEP_EVERY_NS, record = e->o.keep_record_ms * NS_PER_MS,
             spool = e->o.keep_spool_ms * NS_PER_MS;

    every = record < every ? record : every;
    every = spool < every ? spool : every;
    return every > NS_PER_S ? every : NS_PER_S;
}

static void sweep(engine *e)
{
    char(*ids)[SANDBOX_ID_LEN + 1] = NULL;
    uint64_t now = clock_real(e->o.clock), keep = e->o.keep_record_ms * NS_PER_MS;
    size_t n = 0;

    err_drop(store_sandbox_forget(e->o.store, now > keep ? now - keep : 0, &ids, &n), "sweep");
    for (size_t i = 0; i < n; i++)
        err_drop(exec_table_remove(e->o.execs, ids[i], false), "sweep");
    free(ids);
}

/* Streams of sandboxes that ended long enough ago; their journals stay with the record. Each look
 * begins a little before the last one's end: an end is committed a moment after its time. */
static void drop_spools(engine *e)
{
    uint64_t now = clock_real(e->o.clock), keep = e->o.keep_spool_ms * NS_PER_MS;
    uint64_t before = now > keep ? now - keep : 0;
    char(*ids)[SANDBOX_ID_LEN + 1] = NULL;
    size_t n = 0;

    if (before < e->dropped_until) /* the clock was set back */
        e->dropped_until = 0;
    uint64_t from = e->dropped_until > SWEEP_EVERY_NS ? e->dropped_until - SWEEP_EVERY_NS : 0;
    err *failure = store_sandbox_ended(e->o.store, from, before, &ids, &n);
    if (failure) {
        err_drop(failure, "sweep");
        return;
    }
    for (size_t i = 0; i < n; i++)
        err_drop(exec_table_remove(e->o.execs, ids[i], true), "sweep");
    free(ids);
    e->dropped_until = before;
}

/* The disk of the spools is short: streams go, of ended sandboxes the oldest first, then of ended
 * commands of the sandbox that has most. What runs is not touched: it waits. */
static void shed(engine *e)
{
    uint64_t now = clock_real(e->o.clock);
    uint64_t from = e->shed_until > e->dropped_until ? e->shed_until : e->dropped_until;
    char(*ids)[SANDBOX_ID_LEN + 1] = NULL;
    size_t n = 0, i = 0, commands = 0;

    from = from > SHED_MARGIN_NS && from <= now ? from - SHED_MARGIN_NS : 0;
    err_drop(store_sandbox_ended(e->o.store, from, now, &ids, &n), "shed");
    for (; i < n && exec_hub_is_short(e->o.execs); i++)
        err_drop(exec_table_remove(e->o.execs, ids[i], true), "shed");
    free(ids);
    if (i == n)
        e->shed_until = now;
    while (commands < SHED_AT_ONCE && exec_hub_is_short(e->o.execs) && exec_hub_evict(e->o.execs))
        commands++;
    if (i || commands)
        log_warn("disk_full",
                 "the spools' disk is short: output of %zu sandboxes that have ended "
                 "and of %zu commands is gone",
                 i, commands);
}

static bool wait_a_second(engine *e, bool busy)
{
    LOCK_SCOPE(&e->lock);

    if (!busy && !e->stopping && !e->nleft && !e->endings && !e->written)
        cond_wait_until(&e->wake, &e->lock, now_mono_ns() + NS_PER_S);
    return !e->stopping;
}

void engine_on_look(engine *e, void (*look)(void *arg), void *arg)
{
    LOCK_SCOPE(&e->look_lock);

    e->look = look;
    e->look_arg = arg;
}

static void door_look(engine *e)
{
    LOCK_SCOPE(&e->look_lock);

    if (e->look)
        e->look(e->look_arg);
}

void *engine_keeper(void *arg)
{
    engine *e = arg;
    uint64_t swept = clock_mono(e->o.clock);

    bool busy = false;

    while (wait_a_second(e, busy)) {
        if (exec_hub_is_short(e->o.execs))
            shed(e); /* first: it makes room for what the others write */
        create_cancel_left(e);
        ending_finish_all(e);
        ended_finish_all(e);
        for (sandbox *sb; (sb = expired(e));) {
            engine_end(sb, &(cause){.kind = CAUSE_TTL});
            sandbox_unref(sb);
        }
        for (sandbox *sb; (sb = pause_expired(e));) {
            pause_end(e, sb);
            sandbox_unref(sb);
        }
        door_look(e);
        idle_look(e);
        start_look(e);
        snapshot_prune(e);
        builds_keep(e);
        for (sandbox *sb; (sb = unsettled(e));) {
            sandbox_give_up(sb);
            sandbox_unref(sb);
        }
        if (clock_mono(e->o.clock) - swept > sweep_every(e)) {
            swept = clock_mono(e->o.clock);
            sweep(e);
            drop_spools(e);
        }
        busy = pause_look(e); /* one a round, and last: a freezer may take its time */
    }
    return NULL;
}

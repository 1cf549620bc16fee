/* The keeper: a thread that ends sandboxes whose time is over, and does work that other threads
 * leave to it. */
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "engine/internal.h"

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

/* Returns true if the TTL of sb has passed and sb ends with it. A change under way may extend the
 * TTL, and was requested in time: then the answer is false. */
static bool is_expired(sandbox *sb)
{
    uint64_t now = clock_real(sb->engine->o.clock);
    LOCK_SCOPE(&sb->lock);

    return sb->state == LIFE_RUNNING && !sb->deleting && !sb->moving && sb->ends_ns &&
           sb->ends_ns <= now && !pause_at_ttl(sb);
}

static void end_expired(engine *e)
{
    size_t n = 0;
    CLEANUP(freep) sandbox **all = engine_live_where(e, is_expired, &n);

    for (size_t i = 0; i < n; i++) {
        if (is_expired(all[i])) /* still */
            engine_end(all[i], &(cause){.kind = CAUSE_TTL});
        sandbox_unref(all[i]);
    }
}

/* Returns a reference to an interrupted create whose init has not reported in time, or NULL. */
static sandbox *keep_unsettled(engine *e)
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
    bool busy = false;

    while (wait_a_second(e, busy)) {
        create_cancel_left(e);
        ending_finish_all(e);
        ended_finish_all(e);
        end_expired(e);
        for (sandbox *sb; (sb = pause_expired(e));) {
            pause_end(e, sb);
            sandbox_unref(sb);
        }
        door_look(e);
        idle_look(e);
        start_look(e);
        snapshot_prune(e);
        builds_keep(e);
        for (sandbox *sb; (sb = keep_unsettled(e));) {
            sandbox_give_up(sb);
            sandbox_unref(sb);
        }
        busy = pause_look(e); /* one per round, and last: a freezer may be slow */
    }
    return NULL;
}

/* Ends idle sandboxes. This file finds those in use, the node measures what the others consume, and
 * core/idle decides. Keeper thread; only sandboxes with an idle limit are checked. */
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "engine/internal.h"

void sandbox_set_idle(sandbox *sb, uint64_t idle_ms)
{
    sb->idle_ms = idle_ms;
    if (!idle_ms) {
        free(sb->meter);
        sb->meter = NULL;
    } else if (!sb->meter) {
        sb->meter = xcalloc(1, sizeof *sb->meter);
    } else {
        idle_reset(sb->meter);
    }
}

err *sandbox_use_begin(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);

    TRY(sandbox_usable_locked(sb));
    sb->uses++;
    return NULL;
}

void sandbox_use_end(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);
    sb->uses--;
    sb->used_ns = clock_mono(sb->engine->o.clock);
}

bool sandbox_stream_begin(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);

    if (sb->cause || sb->state == LIFE_GONE)
        return false;
    sb->uses++;
    return true;
}

void sandbox_stream_end(sandbox *sb)
{
    sandbox_use_end(sb);
}

/* Returns true if the sandbox is in use, or was after the first sample. Lock held. */
static bool in_use(sandbox *sb)
{
    uint64_t began = sb->meter->n ? sb->meter->s[sb->meter->first].at_ns : UINT64_MAX;
    uint64_t last = 0;

    if (sb->uses || sb->moving || sb->used_ns > began)
        return true;
    if (sb->table && (exec_count_busy(sb->table, &last) || last > began))
        return true;
    return sb->sessions && session_count_busy(sb->sessions);
}

uint64_t sandbox_idle_for(sandbox *sb)
{
    if (!sb->meter || sb->state != LIFE_RUNNING)
        return UINT64_MAX;
    return in_use(sb) ? 0 : idle_for_ns(sb->meter);
}

/* Returns true if a sample is due. */
static bool wants_sample(sandbox *sb, uint64_t now)
{
    LOCK_SCOPE(&sb->lock);

    if (!sb->meter || sb->deleting || sb->state != LIFE_RUNNING)
        return false;
    if (in_use(sb)) {
        idle_reset(sb->meter);
        return false;
    }
    return idle_due(sb->meter, sb->idle_ms, now);
}

static bool has_meter(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);
    return sb->meter;
}

/* Returns the sandboxes with an idle limit whose sample is due. The engine's lock is not held:
 * their commands and sessions have locks of their own. */
static sandbox **idle_collect(engine *e, size_t *ret_n)
{
    uint64_t now = clock_mono(e->o.clock);
    size_t all = 0, n = 0;
    sandbox **v = engine_live_where(e, has_meter, &all);

    for (size_t i = 0; i < all; i++) {
        if (wants_sample(v[i], now))
            v[n++] = v[i];
        else
            sandbox_unref(v[i]);
    }
    *ret_n = n;
    return v;
}

void engine_on_idle(engine *e, bool (*idle)(void *arg, const char *id), void *arg)
{
    LOCK_SCOPE(&e->sleep.lock);

    e->idle_arg = arg;
    e->idle = idle;
}

/* Returns true if the operator hibernates the sandbox instead. Sandbox's lock not held. */
static bool sleeps_instead(sandbox *sb)
{
    engine *e = sb->engine;
    LOCK_SCOPE(&e->sleep.lock);

    return e->idle && e->idle(e->idle_arg, sb->id);
}

/* Adds a sample. Returns true if the sandbox is idle. */
static bool is_idle(sandbox *sb, const box_usage *u)
{
    LOCK_SCOPE(&sb->lock);

    if (!sb->meter || sb->deleting || sb->state != LIFE_RUNNING || in_use(sb))
        return false;
    idle_add(sb->meter,
             &(idle_sample){.at_ns = clock_mono(sb->engine->o.clock),
                            .cpu_us = u->cpu_us,
                            .bytes = u->io_read + u->io_written + u->net_rx + u->net_tx});
    return idle_is(sb->meter, sb->idle_ms);
}

/* Returns true if the sandbox is to end: nothing has used it since the sample. Callers that begin
 * to use it from here on get the answer that it has ended. */
static bool idle_decide(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);

    if (!sb->meter || sb->deleting || sb->state != LIFE_RUNNING || in_use(sb))
        return false;
    sb->deleting = true;
    return sandbox_decide(sb, &(cause){.kind = CAUSE_IDLE});
}

void idle_look(engine *e)
{
    size_t n = 0;
    CLEANUP(freep) sandbox **all = idle_collect(e, &n);
    if (!n)
        return;
    CLEANUP(freep) box_usage *used = xcalloc(n, sizeof *used);

    usage_of_live(e, all, n, used);
    for (size_t i = 0; i < n; i++) {
        /* a sandbox without a measurement is not idle */
        if (used[i].known && is_idle(all[i], &used[i]) && !sleeps_instead(all[i]) &&
            idle_decide(all[i]))
            engine_end_decided(all[i], &(cause){.kind = CAUSE_IDLE});
        sandbox_unref(all[i]);
    }
}

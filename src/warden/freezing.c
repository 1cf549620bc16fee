#include "warden/freezing.h"

#include <errno.h>

#include "base/clock.h"
#include "base/thread.h"
#include "warden/snapshot.h"

#define WAIT_MIN_NS (NS_PER_MS / 5)
#define WAIT_MAX_NS (20 * NS_PER_MS)

/* Counts the job at its first step; returns false if a later FREEZE or THAW of the slot has begun.
 */
static bool freezing_is_last(warden *w, slot *s, job *j, uint64_t now)
{
    LOCK_SCOPE(&w->lock);

    if (!j->begun_ns) {
        j->begun_ns = now;
        j->turn = ++s->freezes;
    }
    return j->turn == s->freezes;
}

static bool freezing_is_claimed(warden *w, const slot *s)
{
    LOCK_SCOPE(&w->lock);
    return s->state == SLOT_CLAIMED;
}

/* Records the end of a FREEZE or THAW. A destroy in the meantime has thawed the slot so that the
 * kill is acted upon; the slot is thawed again in case this job froze it afterwards. */
static void freezing_end(warden *w, slot *s)
{
    bool dying;

    {
        LOCK_SCOPE(&w->lock);
        s->frozen = !cgroup_thawed(&w->cg, s->n);
        s->freezing = false;
        dying = s->state != SLOT_CLAIMED;
    }
    if (dying)
        err_drop(cgroup_freeze(&w->cg, s->n, false), "freeze");
}

/* Returns how long to wait for the next step: as long as the job has taken so far, so that it
 * doubles. */
static uint64_t freezing_wait(const job *j, uint64_t now)
{
    uint64_t wait = now - j->begun_ns;

    return wait < WAIT_MIN_NS ? WAIT_MIN_NS : wait > WAIT_MAX_NS ? WAIT_MAX_NS : wait;
}

uint64_t freezing_step(warden *w, slot *s, job *j, err **ret_outcome)
{
    uint64_t now = now_mono_ns();
    bool done = false;

    *ret_outcome = NULL;
    if (!j->begun_ns && snapshot_leaves(w, s, j->type == WP_FREEZE))
        return 0;
    if (!freezing_is_last(w, s, j, now)) {
        *ret_outcome = err_sys(ERR_TIMEOUT, ETIMEDOUT, "another pause or resume came meanwhile");
        return 0;
    }
    err *e = cgroup_freeze_try(&w->cg, s->n, j->type == WP_FREEZE, &done);
    if (!e && !done && now < j->begun_ns + CGROUP_FREEZE_NS && freezing_is_claimed(w, s))
        return now + freezing_wait(j, now);
    if (!e && !done)
        e = cgroup_freeze_failed(&w->cg, s->n);
    freezing_end(w, s);
    *ret_outcome = e;
    return 0;
}

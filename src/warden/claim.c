#include "warden/claim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "warden/ahead.h"
#include "warden/counters.h"
#include "warden/destroy.h"
#include "warden/fifo.h"
#include "warden/network.h"
#include "warden/privs.h"
#include "warden/quota.h"
#include "warden/refill.h"
#include "warden/root.h"
#include "warden/stage.h"
#include "warden/view.h"
#include "warden/walls.h"
#include "warden/warden.h"

/* ---- one claim ---- */

static err *claim_build(stage *st, slot *s, const claim_job *c, const char *name, int *ret_mount)
{
    char upper[48];

    snprintf(upper, sizeof upper, "uppers/%s", name);
    return stage_build(st,
                       &(stage_spec){.layers = c->stack.path,
                                     .nlayers = c->stack.n,
                                     .upper = upper,
                                     .userns = s->userns,
                                     .uid_base = slot_uid_base(s->n),
                                     .nosuid = !(c->spec.flags & WP_CLAIM_SETUID)},
                       ret_mount);
}

typedef struct times {
    uint64_t queue, build, swap;
} times;

/* Chooses the upper. If another image was put under the slot ahead, the first upper belongs to its
 * root, and a second one is made. */
static err *choose_upper(const warden *w, const slot *s, const claim_job *c, char ret_name[24])
{
    bool other = s->ahead.owner && !ahead_fits(s, &c->spec);

    snprintf(ret_name, 24, "%u%s", s->n, other ? "/b" : "");
    if (!other)
        return NULL;
    TRY(refill_make_upper(w, ret_name, 0));
    FAULT_KILL("claim.second_upper");
    return NULL;
}

static err *claim_limit(const warden *w, const slot *s, const struct wp_limits *l)
{
    if (!FAULT("wall.claim.limits"))
        TRY(cgroup_limit(&w->cg, s->n, &s->made, l));
    return walls_limits(w, s, &s->made, l);
}

static err *write_resolvers(const warden *w, const char *upper)
{
    char text[256];

    network_resolv_conf(w, text, sizeof text);
    return root_write_resolvers(w->uppers_fd, upper, text);
}

/* Shows the sandbox its limits. The refill has shown it the defaults. */
static err *claim_show(warden *w, slot *s, const struct wp_limits *l)
{
    TRY(view_set_cpus(w, s, l->cpu_milli));
    return l->memory == s->made.memory ? NULL : view_show_memory(w, s);
}

static err *claim_hold(warden *w, slot *s, const struct wp_claim *c)
{
    TRY(walls_blame(claim_limit(w, s, &c->limits), WALL_CGROUP, WALLS_AT_CLAIM));
    TRY(walls_blame(quota_limit(w, s->project, c->limits.disk), WALL_DISK, WALLS_AT_CLAIM));
    TRY(claim_show(w, s, &c->limits));
    FAULT_KILL("claim.limited");
    return c->flags & WP_CLAIM_NETWORK_OPEN ? network_open(w, s) : NULL;
}

/* Makes the slot a sandbox. Every failure destroys the slot. */
static err *do_claim(warden *w, stage *st, slot *s, const claim_job *c, times *ret)
{
    CLEANUP(closep) int record = -1;
    CLEANUP(closep) int mount = -1;
    char upper[24];
    uint64_t t0 = now_mono_ns();

    TRY(slot_claim_begin(s, &record));
    FAULT_KILL("claim.begun");
    TRY(choose_upper(w, s, c, upper));
    TRY(root_write_names(w->uppers_fd, upper, c->hostname));
    if (c->spec.flags & WP_CLAIM_NETWORK_OPEN)
        TRY(write_resolvers(w, upper));
    FAULT_KILL("claim.named");
    if (!ahead_fits(s, &c->spec)) {
        TRY(claim_build(st, s, c, upper, &mount));
        FAULT_KILL("claim.built");
    }
    uint64_t t1 = now_mono_ns();
    TRY(root_swap(st, &(root_spec){.mount = mount,
                                   .pidfd = s->pidfd,
                                   .proc = s->proc,
                                   .uid_base = slot_uid_base(s->n),
                                   .hostname = c->hostname,
                                   .shm_mib = c->spec.limits.shm_mib,
                                   .read_only = c->spec.flags & WP_CLAIM_READ_ONLY,
                                   .tmpfs = c->tmpfs,
                                   .ntmpfs = c->spec.ntmpfs}));
    FAULT_KILL("claim.swapped");
    TRY(claim_hold(w, s, &c->spec));
    TRY(slot_claim_done(record));
    FAULT_KILL("claim.recorded");
    *ret = (times){t0 - c->j->received_ns, t1 - t0, now_mono_ns() - t1};
    return NULL;
}

/* Settles a claim: the slot is destroyed if the claim failed, was cancelled, or its connection has
 * closed. Takes warden.lock. */
static err *claim_settle(warden *w, slot *s, const claim_job *c, err *e)
{
    LOCK_SCOPE(&w->lock);

    if (!e && s->doomed)
        e = err_sys(ERR_CONFLICT, ECANCELED, "the sandbox was destroyed");
    if (!e && conn_closed(c->j->c))
        e = err_sys(ERR_CONFLICT, ECANCELED, "the connection closed");
    if (e && e->code == ERR_WALL_FAILED)
        walls_note(w, e);
    if (e)
        destroy_slot(w, s);
    else
        s->state = SLOT_CLAIMED;
    return e;
}

static void claim_answer(const warden *w, slot *s, claim_job *c, const times *t)
{
    bool disk = w->quota && c->spec.limits.disk;
    const struct wp_claimed a = {.slot = s->n,
                                 .uid_base = slot_uid_base(s->n),
                                 .hello = sizeof s->hello,
                                 .walls = (WALLS_CLAIM_OUTSIDE & ~(disk ? 0 : WALL_BIT(DISK))) |
                                          (s->network ? WALL_BIT(EGRESS) : 0),
                                 .queue_ns = t->queue,
                                 .build_ns = t->build,
                                 .swap_ns = t->swap};

    count_claim(0, t->queue, t->build, t->swap);
    job_answer(c->j, &a, sizeof a, &s->hello, sizeof s->hello, s->conn);
    claim_job_free(c);
}

static void claim_serve(warden *w, stage *st, slot *s, claim_job *c)
{
    times t = {0};
    err *e = do_claim(w, st, s, c, &t);

    LOG_ABOUT(s->id, NULL, 0);
    if (e)
        log_warn("claim", "sandbox %s, slot %u: %s: %s", s->id, s->n, e->message,
                 str_or(e->cause, "no cause"));
    e = claim_settle(w, s, c, e);
    FAULT_KILL("claim.settled");
    if (e)
        claim_job_end(c, e);
    else
        claim_answer(w, s, c, &t);
    FAULT_KILL("claim.answered");
    stage_drop(st);
    layers_stack_done(&s->ahead); /* from here on the slot's own image keeps its layers */
    LOCK_SCOPE(&w->lock);
    closep(&s->conn); /* bothyd's alone from here on */
    closep(&s->userns);
    s->conn = s->userns = -1;
    slot_unref(w, s);
}

void *claim_run(void *arg)
{
    warden *w = arg;
    stage st = {0};
    err *e = stage_enter(w->o.state, &st);

    if (e) {
        log_error("claim", "%s: %s", e->message, str_or(e->cause, "no cause"));
        abort();
    }
    privs_thread("claimer");
    for (;;) {
        slot *s;
        claim_job *c = fifo_take(w, &s);
        if (c)
            claim_serve(w, &st, s, c);
        else
            ahead_give(w, &st, s);
    }
    return NULL;
}

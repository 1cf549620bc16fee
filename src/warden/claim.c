#include "warden/claim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "core/admit.h"
#include "warden/bundle.h"
#include "warden/counters.h"
#include "warden/destroy.h"
#include "warden/privs.h"
#include "warden/refill.h"
#include "warden/root.h"
#include "warden/stage.h"
#include "warden/warden.h"

#define DEADLINE_MAX_MS (24u * 3600 * 1000)
#define WAITING_MAX     4096
#define ADMISSION_NS    (200 * NS_PER_MS) /* how often available memory is looked at again */

typedef struct claim_job {
    struct claim_job *next;
    job *j;
    struct wp_claim spec;
    struct wp_tmpfs tmpfs[WP_TMPFS_MAX];
    uint64_t deadline_ns;
    layers_stack stack; /* held from the start: no prune takes a layer away */
} claim_job;

/* ---- the FIFO ---- */

static void fill_defaults(struct wp_limits *l)
{
    l->memory = l->memory ? l->memory : BUNDLE_MEMORY;
    l->cpu_milli = l->cpu_milli ? l->cpu_milli : BUNDLE_CPU_MILLI;
    l->pids = l->pids ? l->pids : BUNDLE_PIDS;
    l->shm_mib = l->shm_mib ? l->shm_mib : BUNDLE_SHM_MIB;
}

static claim_job *job_of(job *j)
{
    claim_job *c = xcalloc(1, sizeof *c);
    const uint8_t *body = j->body;

    memcpy(&c->spec, body, sizeof c->spec);
    memcpy(c->tmpfs, body + sizeof c->spec, c->spec.ntmpfs * sizeof *c->tmpfs);
    c->j = j;
    uint64_t ms = c->spec.deadline_ms < DEADLINE_MAX_MS ? c->spec.deadline_ms : DEADLINE_MAX_MS;
    c->deadline_ns = j->received_ns + ms * NS_PER_MS;
    fill_defaults(&c->spec.limits);
    return c;
}

static void claim_job_free(claim_job *c)
{
    layers_stack_done(&c->stack);
    free(c);
}

static void end(claim_job *c, err *e)
{
    count_claim(job_errnum(e), 0, 0, 0);
    job_end(c->j, e);
    claim_job_free(c);
}

static err *refuse(const warden *w, const claim_job *c)
{
    if (slot_find(w, c->spec.sandbox.id))
        return err_sys(ERR_CONFLICT, EEXIST, "sandbox %s exists", c->spec.sandbox.id);
    for (const claim_job *q = w->waiting; q; q = q->next)
        if (!strcmp(q->spec.sandbox.id, c->spec.sandbox.id))
            return err_sys(ERR_CONFLICT, EEXIST, "sandbox %s waits already", c->spec.sandbox.id);
    if (w->nwaiting >= WAITING_MAX)
        return err_sys(ERR_UNAVAILABLE, EAGAIN, "too many claims wait");
    if (c->spec.limits.disk)
        return err_sys(ERR_UNSUPPORTED, ENOTSUP, "this node cannot limit disk space");
    if (c->spec.limits.memory > w->memory_total * w->o.overcommit)
        return err_sys(ERR_UNSUPPORTED, ENOTSUP, "the node has no room for so much memory");
    return NULL;
}

void claim_add(warden *w, job *j)
{
    claim_job *c = job_of(j);
    err *e = layers_stack_of(w->layers, c->spec.image.sha256, &c->stack);

    pthread_mutex_lock(&w->lock);
    if (!e)
        e = refuse(w, c);
    if (!e) {
        *w->waiting_tail = c;
        w->waiting_tail = &c->next;
        w->nwaiting++;
        pthread_cond_signal(&w->claims);
        pthread_cond_broadcast(&w->refill);
    }
    pthread_mutex_unlock(&w->lock);
    if (e)
        end(c, e);
}

/* With the lock. */
static claim_job *unlink_at(warden *w, claim_job **at)
{
    claim_job *c = *at;

    *at = c->next;
    if (w->waiting_tail == &c->next)
        w->waiting_tail = at;
    w->nwaiting--;
    return c;
}

bool claim_cancel(warden *w, const char *id)
{
    for (claim_job **at = &w->waiting; *at; at = &(*at)->next)
        if (!strcmp((*at)->spec.sandbox.id, id)) {
            end(unlink_at(w, at), err_sys(ERR_CONFLICT, ECANCELED, "the sandbox was destroyed"));
            return true;
        }
    return false;
}

void claim_drop_of(warden *w, const conn *c)
{
    LOCK_SCOPE(&w->lock);

    for (claim_job **at = &w->waiting; *at;) {
        if ((*at)->j->c == c)
            end(unlink_at(w, at), err_sys(ERR_CONFLICT, ECANCELED, "the connection closed"));
        else
            at = &(*at)->next;
    }
}

/* ---- admission ---- */

static uint64_t memory_available(const warden *w)
{
    CLEANUP(buf_done) buf b = {0};
    err *e = fs_read(w->proc_fd, "meminfo", 65536, &b);
    const char *at = e ? NULL : strstr(buf_cstr(&b), "MemAvailable:");

    err_free(e);
    return at ? strtoull(at + strlen("MemAvailable:"), NULL, 10) * 1024 : 0;
}

static bool admits(const warden *w, const claim_job *c)
{
    const admit_rules rules = {
        .max_sandboxes = w->o.max, .overcommit = w->o.overcommit, .reserve_percent = w->o.reserve};
    const admit_node node = {.memory = w->memory_total,
                             .available = memory_available(w),
                             .limits_sum = w->memory_claimed,
                             .sandboxes = w->claimed};

    return admit(&rules, &node, c->spec.limits.memory) == ADMIT_NOW;
}

static slot *ready_slot(warden *w)
{
    for (uint32_t n = 0; w->ready && n < w->nslots; n++) {
        slot *s = w->slots[n];
        if (!s || s->state != SLOT_READY)
            continue;
        if (!slot_dead(s))
            return s;
        destroy_slot(w, s); /* it died while it waited */
    }
    return NULL;
}

static void end_expired(warden *w, uint64_t now)
{
    for (claim_job **at = &w->waiting; *at;) {
        if ((*at)->deadline_ns > now) {
            at = &(*at)->next;
            continue;
        }
        unsigned after = refill_retry_after(w);
        end(unlink_at(w, at),
            err_retry_after(err_sys(ERR_POOL_EXHAUSTED, ETIMEDOUT,
                                    "no slot was free in time; retry after %u s", after),
                            (int)after));
    }
}

/* With the lock; when the head of the FIFO and a slot meet, both leave their places. A claim with
 * no time to wait is given what is there before it expires. */
static claim_job *match(warden *w, slot **ret_slot)
{
    claim_job *c = w->waiting;
    slot *s = c && admits(w, c) ? ready_slot(w) : NULL;

    if (!s) {
        end_expired(w, now_mono_ns());
        return NULL;
    }
    unlink_at(w, &w->waiting);
    s->state = SLOT_CLAIMING;
    memcpy(s->id, c->spec.sandbox.id, sizeof s->id);
    s->image = c->spec.image;
    s->limits = c->spec.limits;
    map_put_str(&w->by_id, s->id, s);
    w->ready--;
    w->claimed++;
    w->memory_claimed += s->limits.memory;
    slot_ref(s);
    pthread_cond_broadcast(&w->refill);
    *ret_slot = s;
    return c;
}

static uint64_t next_look(const warden *w)
{
    uint64_t at = 0;

    if (!w->waiting)
        return 0;
    if (w->ready) /* what holds the head up is memory: nobody tells us when it comes back */
        at = now_mono_ns() + ADMISSION_NS;
    for (const claim_job *c = w->waiting; c; c = c->next)
        if (!at || c->deadline_ns < at)
            at = c->deadline_ns;
    return at;
}

static claim_job *take(warden *w, slot **ret_slot)
{
    LOCK_SCOPE(&w->lock);

    for (;;) {
        claim_job *c = match(w, ret_slot);
        if (c)
            return c;
        cond_wait_until(&w->claims, &w->lock, next_look(w));
    }
}

/* ---- one claim ---- */

static err *build(const stage *st, slot *s, const claim_job *c, int *ret_mount)
{
    char upper[32];

    snprintf(upper, sizeof upper, "uppers/%u", s->n);
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

/* Every failure destroys the slot. */
static err *do_claim(const warden *w, const stage *st, slot *s, const claim_job *c, times *ret)
{
    CLEANUP(closep) int record = -1;
    CLEANUP(closep) int mount = -1;
    uint64_t t0 = now_mono_ns();

    TRY(slot_claim_begin(s, &record));
    TRY(root_write_names(w->uppers_fd, s->n, s->id));
    TRY(build(st, s, c, &mount));
    uint64_t t1 = now_mono_ns();
    TRY(root_swap(st, &(root_spec){.mount = mount,
                                   .pidfd = s->pidfd,
                                   .uid_base = slot_uid_base(s->n),
                                   .hostname = s->id,
                                   .shm_mib = c->spec.limits.shm_mib,
                                   .read_only = c->spec.flags & WP_CLAIM_READ_ONLY,
                                   .tmpfs = c->tmpfs,
                                   .ntmpfs = c->spec.ntmpfs}));
    TRY(cgroup_limit(&w->cg, s->n, &c->spec.limits));
    TRY(slot_claim_done(record));
    *ret = (times){t0 - c->j->received_ns, t1 - t0, now_mono_ns() - t1};
    return NULL;
}

/* With the lock: a slot whose claim failed, was cancelled, or has nobody to go to, goes. */
static err *settle(warden *w, slot *s, const claim_job *c, err *e)
{
    LOCK_SCOPE(&w->lock);

    if (!e && s->doomed)
        e = err_sys(ERR_CONFLICT, ECANCELED, "the sandbox was destroyed");
    if (!e && conn_closed(c->j->c))
        e = err_sys(ERR_CONFLICT, ECANCELED, "the connection closed");
    if (e)
        destroy_slot(w, s);
    else
        s->state = SLOT_CLAIMED;
    return e;
}

static void answer(slot *s, claim_job *c, const times *t)
{
    const struct wp_claimed a = {.slot = s->n,
                                 .uid_base = slot_uid_base(s->n),
                                 .hello = sizeof s->hello,
                                 .queue_ns = t->queue,
                                 .build_ns = t->build,
                                 .swap_ns = t->swap};

    count_claim(0, t->queue, t->build, t->swap);
    job_answer(c->j, &a, sizeof a, &s->hello, sizeof s->hello, s->conn);
    claim_job_free(c);
}

static void serve(warden *w, const stage *st, slot *s, claim_job *c)
{
    times t = {0};
    err *e = do_claim(w, st, s, c, &t);

    if (e)
        log_warn("claim", "sandbox %s, slot %u: %s: %s", s->id, s->n, e->message,
                 str_or(e->cause, "no cause"));
    e = settle(w, s, c, e);
    if (e)
        end(c, e);
    else
        answer(s, c, &t);
    LOCK_SCOPE(&w->lock);
    closep(&s->conn); /* bothyd's alone from here on */
    closep(&s->userns);
    s->conn = s->userns = -1;
    slot_unref(w, s);
}

void *claim_run(void *arg)
{
    warden *w = arg;
    stage st;
    err *e = stage_enter(w->o.state, &st);

    if (e) {
        log_error("claim", "%s: %s", e->message, str_or(e->cause, "no cause"));
        abort();
    }
    privs_thread("claimer");
    for (;;) {
        slot *s;
        claim_job *c = take(w, &s);
        serve(w, &st, s, c);
    }
    return NULL;
}

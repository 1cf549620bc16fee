#include "warden/fifo.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/thread.h"
#include "warden/ahead.h"
#include "warden/bundle.h"
#include "warden/counters.h"
#include "warden/destroy.h"
#include "warden/network.h"
#include "warden/refill.h"
#include "warden/warden.h"

#define DEADLINE_MAX_MS (24u * 3600 * 1000)
#define WAITING_MAX     4096 /* of all owners; a full queue takes from its longest line */
#define ADMISSION_NS    (200 * NS_PER_MS) /* how often available memory is checked again */
#define AVAILABLE_NS    (5 * NS_PER_MS)

/* ---- a claim ---- */

static void fill_defaults(struct wp_limits *l)
{
    l->memory = l->memory ? l->memory : BUNDLE_MEMORY;
    l->cpu_milli = l->cpu_milli ? l->cpu_milli : BUNDLE_CPU_MILLI;
    l->pids = l->pids ? l->pids : BUNDLE_PIDS;
    l->shm_mib = l->shm_mib ? l->shm_mib : BUNDLE_SHM_MIB;
}

static claim_job *claim_at(rounds_entry *e)
{
    return e ? (claim_job *)((char *)e - offsetof(claim_job, turn)) : NULL;
}

/* Reads the members behind the mounts, as the frame's flags announce them. */
static void read_rest(claim_job *c)
{
    const char *rest = (const char *)(c->tmpfs + c->spec.ntmpfs);
    bool named = c->spec.flags & WP_CLAIM_NAMED;

    memcpy(c->hostname, named ? rest : c->spec.sandbox.id, sizeof c->hostname);
    if (c->spec.flags & WP_CLAIM_OWNED)
        memcpy(&c->owner, rest + (named ? sizeof(struct wp_id) : 0), sizeof c->owner);
}

static claim_job *job_of(job *j)
{
    claim_job *c = xcalloc(1, sizeof *c);

    memcpy(&c->spec, j->body, sizeof c->spec);
    c->tmpfs = (const struct wp_tmpfs *)(j->body + sizeof c->spec);
    read_rest(c);
    c->j = j;
    uint64_t ms = c->spec.deadline_ms < DEADLINE_MAX_MS ? c->spec.deadline_ms : DEADLINE_MAX_MS;
    c->deadline_ns = j->received_ns + ms * NS_PER_MS;
    fill_defaults(&c->spec.limits);
    return c;
}

void claim_job_free(claim_job *c)
{
    layers_stack_done(&c->stack);
    free(c);
}

void claim_job_end(claim_job *c, err *e)
{
    count_claim(job_errnum(e), 0, 0, 0);
    job_end(c->j, e);
    claim_job_free(c);
}

/* ---- the list (with the lock) ---- */

static void fifo_append(fifo *f, claim_job *c)
{
    c->prev = f->tail;
    *(f->tail ? &f->tail->next : &f->head) = c;
    f->tail = c;
    f->n++;
    rounds_add(&f->turns, &c->turn, c->owner);
    map_put_str(&f->by_id, c->spec.sandbox.id, c);
    if (!f->earliest_ns || c->deadline_ns < f->earliest_ns)
        f->earliest_ns = c->deadline_ns;
}

/* Takes a claim out of the queue. served: its owner's next turn is behind all others'. */
static void unlink_job(fifo *f, claim_job *c, bool served)
{
    (served ? rounds_serve : rounds_remove)(&f->turns, &c->turn);
    *(c->prev ? &c->prev->next : &f->head) = c->next;
    *(c->next ? &c->next->prev : &f->tail) = c->prev;
    c->prev = c->next = NULL;
    f->n--;
    map_take_str(&f->by_id, c->spec.sandbox.id);
    if (!f->n) {
        f->earliest_ns = 0; /* otherwise it may be too early: one wake-up in vain */
        f->held_by = ADMIT_NOW;
    }
}

claim_job *fifo_cancel(warden *w, const char *id)
{
    claim_job *c = map_get_str(&w->fifo.by_id, id);

    if (!c)
        return NULL;
    unlink_job(&w->fifo, c, false);
    count_queue(QUEUE_CANCELLED, now_mono_ns() - c->j->received_ns);
    pthread_cond_signal(&w->claims); /* it may have held up the claims behind it */
    return c;
}

/* Claims that are taken out under the lock, to be ended after it. */
typedef struct taken {
    claim_job *head; /* the last first */
    uint32_t n;
    char refills[WP_POOL_ERROR]; /* why refills fail; "": they do not */
    int refills_errnum;
} taken;

static void take_out(warden *w, claim_job *c, taken *to)
{
    unlink_job(&w->fifo, c, false);
    c->next = to->head;
    to->head = c;
}

void fifo_drop_of(warden *w, const conn *of)
{
    taken gone = {0};
    claim_job *following;

    pthread_mutex_lock(&w->lock);
    for (claim_job *c = w->fifo.head; c; c = following) {
        following = c->next;
        if (c->j->c == of)
            take_out(w, c, &gone);
    }
    pthread_cond_signal(&w->claims);
    pthread_mutex_unlock(&w->lock);
    for (claim_job *c = gone.head; c; c = following) {
        following = c->next;
        count_queue(QUEUE_CANCELLED, now_mono_ns() - c->j->received_ns);
        claim_job_end(c, err_sys(ERR_CONFLICT, ECANCELED, "the connection closed"));
    }
}

/* ---- admission ---- */

/* Returns MemAvailable, at most AVAILABLE_NS old: a burst does not read it for each claim. */
static uint64_t memory_available(warden *w)
{
    char text[1024];
    uint64_t now = now_mono_ns();

    if (w->available_at_ns && now - w->available_at_ns < AVAILABLE_NS)
        return w->available;
    ssize_t n = pread(w->meminfo_fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    const char *at = strstr(text, "MemAvailable:"); /* the third line */
    w->available = at ? strtoull(at + strlen("MemAvailable:"), NULL, 10) * 1024 : 0;
    w->available_at_ns = now;
    return w->available;
}

static admit_rules rules_of(const warden *w)
{
    return (admit_rules){
        .max_sandboxes = w->o.max, .overcommit = w->o.overcommit, .reserve_percent = w->o.reserve};
}

static admit_ask ask_of(const claim_job *c)
{
    return (admit_ask){.memory = c->spec.limits.memory, .pids = c->spec.limits.pids};
}

enum admit_verdict fifo_admit(warden *w, const admit_ask *ask, const slot *instead_of)
{
    static const struct wp_limits NONE;
    const admit_rules rules = rules_of(w);
    const struct wp_limits *less = instead_of ? &instead_of->limits : &NONE;
    const admit_node node = {.memory = w->memory_total,
                             .available = memory_available(w),
                             .limits_sum =
                                 w->memory_claimed - admit_counted(w->memory_total, less->memory),
                             .threads = w->threads,
                             .pids_sum = w->pids_claimed - less->pids,
                             .sandboxes = w->claimed - (instead_of ? 1 : 0)};

    return admit(&rules, &node, ask);
}

/* Asks admission for a claim. Remembers the reason that holds it up, and counts it once. */
static enum admit_verdict try_claim(warden *w, claim_job *c)
{
    const admit_ask ask = ask_of(c);
    enum admit_verdict v = fifo_admit(w, &ask, NULL);

    if (v != ADMIT_NOW && c->held == ADMIT_NOW)
        count_admission_wait(v);
    if (v != ADMIT_NOW)
        c->held = v;
    return v;
}

/* Returns the first claim in turn that has room. A claim that is held up by its own limits steps
 * aside for those of other owners. */
static claim_job *first_admitted(warden *w)
{
    enum admit_verdict held_by = ADMIT_NOW;

    for (rounds_entry *e = NULL; (e = rounds_next(&w->fifo.turns, e));) {
        enum admit_verdict v = try_claim(w, claim_at(e));
        if (v == ADMIT_NOW) {
            w->fifo.held_by = ADMIT_NOW;
            return claim_at(e);
        }
        held_by = held_by == ADMIT_NOW ? v : held_by;
        if (admit_holds_all(v))
            break;
    }
    w->fifo.held_by = held_by;
    return NULL;
}

/* ---- arriving ---- */

static err *fifo_refuse(const warden *w, const claim_job *c)
{
    if (slot_find(w, c->spec.sandbox.id))
        return err_sys(ERR_CONFLICT, EEXIST, "sandbox %s exists", c->spec.sandbox.id);
    if (map_get_str(&w->fifo.by_id, c->spec.sandbox.id))
        return err_sys(ERR_CONFLICT, EEXIST, "sandbox %s waits already", c->spec.sandbox.id);
    if (c->spec.limits.disk && !w->quota)
        return err_sys(ERR_UNSUPPORTED, ENOTSUP, "this node cannot limit disk space");
    if (c->spec.flags & WP_CLAIM_NETWORK_OPEN && !network_offered(w))
        return err_sys(ERR_UNSUPPORTED, ENOTSUP, "this node offers no network");
    const admit_rules rules = rules_of(w);
    const admit_node empty = {
        .memory = w->memory_total, .available = w->memory_total, .threads = w->threads};
    const admit_ask ask = ask_of(c);
    enum admit_verdict v = admit(&rules, &empty, &ask);
    return admit_is_never(v) ? err_sys(ERR_UNSUPPORTED, ENOTSUP, "%s", admit_text(v)) : NULL;
}

static err *too_many(const warden *w)
{
    return err_retry_after(err_sys(ERR_UNAVAILABLE, EAGAIN, "%u claims wait already", w->fifo.n),
                           (int)refill_retry_after(w, w->fifo.n));
}

/* Makes room in a full queue: gives up the last claim of its longest line for an owner with a
 * shorter one. */
static err *make_room(warden *w, const claim_job *c, taken *ret_pushed)
{
    if (w->fifo.n < WAITING_MAX)
        return NULL;
    claim_job *last = claim_at(rounds_longest(&w->fifo.turns));
    if (last->turn.line->n <= rounds_waiting(&w->fifo.turns, c->owner) + 1)
        return too_many(w);
    take_out(w, last, ret_pushed);
    return NULL;
}

static void end_pushed(claim_job *c, err *e)
{
    count_queue(QUEUE_EXPIRED, now_mono_ns() - c->j->received_ns);
    claim_job_end(c, e);
}

void fifo_add(warden *w, job *j)
{
    claim_job *c = job_of(j);
    err *e = layers_stack_of(w->layers, c->spec.image.sha256, &c->stack), *full = NULL;
    taken pushed = {0};

    pthread_mutex_lock(&w->lock);
    if (!e)
        e = fifo_refuse(w, c);
    if (!e)
        e = make_room(w, c, &pushed);
    if (pushed.head)
        full = too_many(w);
    if (!e) {
        fifo_append(&w->fifo, c);
        pthread_cond_signal(&w->claims);
        if (!w->ready) /* otherwise fifo_match() wakes the refill */
            pthread_cond_signal(&w->refill);
    }
    pthread_mutex_unlock(&w->lock);
    if (pushed.head)
        end_pushed(pushed.head, full);
    if (e) {
        count_refused(e);
        job_end(j, e);
        claim_job_free(c);
    }
}

/* ---- meeting ---- */

static void take_expired(warden *w, uint64_t now, taken *ret_late)
{
    fifo *f = &w->fifo;
    claim_job *following;

    if (!f->earliest_ns || f->earliest_ns > now)
        return;
    f->earliest_ns = 0;
    if (w->pool.failures) {
        memcpy(ret_late->refills, w->refill_error, sizeof ret_late->refills);
        ret_late->refills_errnum = w->refill_errnum;
    }
    for (claim_job *c = f->head; c; c = following) {
        following = c->next;
        if (c->deadline_ns <= now) {
            take_out(w, c, ret_late);
            ret_late->n++;
        } else if (!f->earliest_ns || c->deadline_ns < f->earliest_ns)
            f->earliest_ns = c->deadline_ns;
    }
    /* An expired claim that retries stands behind the claims that still wait, and the expired ones
     * retry in their order. The list has the last first. */
    uint32_t before = f->n + ret_late->n;
    for (claim_job *c = ret_late->head; c; c = c->next)
        c->retry_after = refill_retry_after(w, --before);
    pthread_cond_signal(&w->refill);
}

/* Returns the errno for an expired claim. If the disk takes nothing more, that is the reason, not
 * the length of the queue. */
static int errnum_of(const claim_job *c, const taken *late)
{
    int e = late->refills_errnum;

    return c->held == ADMIT_NOW && (e == EROFS || fs_is_no_room(e)) ? e : ETIMEDOUT;
}

/* Ends the expired claims. The retry time of each counts the claims that retry before it. */
static void end_expired(const taken *late)
{
    claim_job *following;

    for (claim_job *c = late->head; c; c = following) {
        following = c->next;
        err *e = err_sys(ERR_POOL_EXHAUSTED, errnum_of(c, late),
                         "no slot was free in time; retry after %u s", c->retry_after);
        if (c->held != ADMIT_NOW)
            e = err_because(e, "%s", admit_text(c->held));
        else if (*late->refills)
            e = err_because(e, "refills fail: %s", late->refills);
        count_queue(QUEUE_EXPIRED, now_mono_ns() - c->j->received_ns);
        claim_job_end(c, err_retry_after(e, (int)c->retry_after));
    }
}

/* Matches the claim whose turn it is with a slot: both leave their lists. Returns NULL if one of
 * them is missing. */
static claim_job *fifo_match(warden *w, slot **ret_slot)
{
    claim_job *c = first_admitted(w);
    slot *s = c ? ahead_pick(w, &c->spec) : NULL;

    if (!s)
        return NULL;
    unlink_job(&w->fifo, c, true);
    slot_leave_ready(w, s);
    s->state = SLOT_CLAIMING;
    memcpy(s->id, c->spec.sandbox.id, sizeof s->id);
    s->image = c->spec.image;
    s->limits = c->spec.limits;
    map_put_str(&w->by_id, s->id, s);
    w->claimed++;
    slot_promise(w, s);
    uint64_t now = now_mono_ns();
    pool_claimed(&w->pool, now);
    ahead_expect(w, &c->spec);
    count_queue(QUEUE_SERVED, now - c->j->received_ns);
    slot_ref(s);
    pthread_cond_signal(&w->refill);
    if (w->fifo.head && w->ready)
        pthread_cond_signal(&w->claims); /* there may be room for another one, too */
    *ret_slot = s;
    return c;
}

/* Returns the earlier of two times; 0 is never. */
static uint64_t fifo_sooner(uint64_t a, uint64_t b)
{
    return !a || (b && b < a) ? b : a;
}

static uint64_t next_look(const warden *w)
{
    uint64_t at = w->fifo.earliest_ns;

    if (w->fifo.head && w->ready) { /* memory holds it up: no event tells when it is free */
        return fifo_sooner(now_mono_ns() + ADMISSION_NS, at);
    }
    return at;
}

claim_job *fifo_take(warden *w, slot **ret_slot)
{
    for (;;) {
        taken late = {0};
        pthread_mutex_lock(&w->lock);
        /* A claim with no time to wait gets a slot that is ready before it expires. */
        claim_job *c = fifo_match(w, ret_slot);
        if (!c)
            take_expired(w, now_mono_ns(), &late);
        slot *bare = NULL;
        uint64_t again = 0;
        if (!c && !late.head && !(bare = ahead_begin(w, &again))) {
            refill_hurry(w);
            cond_wait_until(&w->claims, &w->lock, fifo_sooner(next_look(w), again));
        }
        pthread_mutex_unlock(&w->lock);
        end_expired(&late);
        if (bare)
            *ret_slot = bare;
        if (c || bare)
            return c;
    }
}

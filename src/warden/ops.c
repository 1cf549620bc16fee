#include "warden/ops.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/release.h"
#include "base/sock.h"
#include "base/str.h"
#include "base/thread.h"
#include "warden/ahead.h"
#include "warden/bundle.h"
#include "warden/counters.h"
#include "warden/destroy.h"
#include "warden/fifo.h"
#include "warden/freezing.h"
#include "warden/host.h"
#include "warden/network.h"
#include "warden/privs.h"
#include "warden/queue.h"
#include "warden/quota.h"
#include "warden/refill.h"
#include "warden/snapshot.h"
#include "warden/view.h"
#include "warden/walls.h"
#include "warden/warden.h"

#define OPS_WORKERS     2
#define FREEZE_WORKERS  2 /* a queue each; one that resists is put back */
#define LIMITS_WORKERS  4 /* separate: a lower limit blocks until page cache is reclaimed */
#define FATE_WORKERS    2 /* separate, as a request waits for a pid 1 that is ending */
#define LOOK_WORKERS    2 /* separate, as usage is read of every process on cgroup v1 */
#define LAYERS_WORKERS  2
#define COPY_WORKERS    2 /* separate, as a snapshot takes as long as its files do */
#define UNPACK_WORKERS  9 /* bothyd has as many layers under way; most of the time they wait */
#define LIST_PAGE       1000u
#define LIMITS_AGAIN_NS (10 * NS_PER_MS)

static queue ops, freezes[FREEZE_WORKERS], limits, fates, looks, slow, unpacks, copies;

/* ---- finding the slot ---- */

static err *no_sandbox(const char *id)
{
    return err_kind(err_sys(ERR_NOT_FOUND, ENOENT, "no sandbox %s", id), "sandbox");
}

/* Finds a claimed slot and returns a reference to it. */
static err *ops_hold(warden *w, const struct wp_id *id, slot **ret_slot)
{
    LOCK_SCOPE(&w->lock);
    slot *s = slot_find(w, id->id);

    if (!s)
        return no_sandbox(id->id);
    if (s->state != SLOT_CLAIMED)
        return err_sys(ERR_CONFLICT, EBUSY, "sandbox %s is being made", id->id);
    slot_ref(s);
    *ret_slot = s;
    return NULL;
}

static void ops_release(warden *w, slot *s)
{
    LOCK_SCOPE(&w->lock);
    slot_unref(w, s);
}

static err *hold_living(warden *w, const struct wp_id *id, slot **ret_slot)
{
    slot *s = NULL;

    TRY(ops_hold(w, id, &s));
    assert(s);
    if (!slot_dead(s)) {
        *ret_slot = s;
        return NULL;
    }
    ops_release(w, s);
    return err_sys(ERR_SANDBOX_GONE, ESRCH, "pid 1 of sandbox %s has ended", id->id);
}

static struct wp_id id_of(const job *j)
{
    struct wp_id id;

    memcpy(&id, j->body, sizeof id);
    return id;
}

/* ---- one function per type ---- */

static void op_attach(warden *w, job *j)
{
    struct wp_id id = id_of(j);
    CLEANUP(closep) int fd = -1;
    slot *s = NULL;
    err *e = ops_hold(w, &id, &s);

    if (s) {
        /* Pid 1 may be frozen: nothing is read, the connection waits in its backlog. When that is
         * full (connections of bothyd processes that died), connecting fails with EAGAIN: the
         * warden never waits for a sandbox. */
        e = sock_connect(s->dirfd, "spine", SOCK_SEQPACKET | SOCK_NONBLOCK, &fd);
        ops_release(w, s);
    }
    if (!e && fcntl(fd, F_SETFL, 0)) /* only connecting must not block */
        e = err_sys(ERR_INTERNAL, errno, "cannot prepare the connection");
    if (e)
        job_end(j, e);
    else
        job_answer(j, NULL, 0, NULL, 0, fd);
}

static void op_destroy(warden *w, job *j)
{
    struct wp_id id = id_of(j);

    pthread_mutex_lock(&w->lock);
    claim_job *waiting = NULL;
    slot *s = slot_find(w, id.id);
    if (!s)
        waiting = fifo_cancel(w, id.id);
    else if (s->state == SLOT_CLAIMING)
        s->doomed = true; /* its claimer destroys it */
    else
        destroy_slot(w, s);
    pthread_mutex_unlock(&w->lock);
    if (waiting)
        claim_job_end(waiting, err_sys(ERR_CONFLICT, ECANCELED, "the sandbox was destroyed"));
    job_end(j, NULL); /* a sandbox that does not exist counts as destroyed */
}

static uint32_t flags_of(const slot *s)
{
    return (slot_dead(s) ? WP_BOX_DEAD : 0) | (s->frozen ? WP_BOX_FROZEN : 0);
}

static void op_list(warden *w, job *j)
{
    struct wp_list l;
    CLEANUP(freep) struct wp_box *box = xcalloc(LIST_PAGE, sizeof *box);

    memcpy(&l, j->body, sizeof l);
    l.n = l.next = 0;
    pthread_mutex_lock(&w->lock);
    for (uint32_t n = l.from; n < w->nslots; n++) {
        const slot *s = w->slots[n];
        if (!s || s->state != SLOT_CLAIMED)
            continue;
        if (l.n == LIST_PAGE) {
            l.next = n;
            break;
        }
        struct wp_box *b = &box[l.n++];
        *b = (struct wp_box){
            .slot = n, .uid_base = slot_uid_base(n), .pid = (uint32_t)s->pid, .flags = flags_of(s)};
        memcpy(b->sandbox.id, s->id, sizeof s->id);
    }
    pthread_mutex_unlock(&w->lock);
    job_answer(j, &l, sizeof l, box, l.n * sizeof *box, -1);
}

/* Fills the usage of the sandbox that u names. The slot is held, not locked: reading may take a
 * while. */
static void fill_usage(warden *w, struct wp_usage *u)
{
    slot *s = NULL;
    err *e = ops_hold(w, &u->sandbox, &s);

    if (!s || !cgroup_usage(&w->cg, s->n, u))
        u->flags = WP_USAGE_UNKNOWN;
    if (s) {
        net_bytes b;
        if (s->network && network_usage(w, s->n, &b, &u->net_dropped)) {
            u->net_rx = b.rx;
            u->net_tx = b.tx;
        }
        quota_used(w, s->project, &u->disk, &u->inodes);
        cgroup_io_of_processes(&w->cg, w->proc_fd, s->n, u);
        u->flags |= flags_of(s);
        ops_release(w, s);
    }
    err_free(e);
}

static void op_stats(warden *w, job *j)
{
    struct wp_stats st;
    CLEANUP(freep) char *all = xcalloc(WP_STATS_MAX, sizeof(struct wp_usage));

    memcpy(&st, j->body, sizeof st);
    uint32_t size = st.size < WP_USAGE_FIRST ? WP_USAGE_FIRST : st.size & ~7u;
    if (size > sizeof(struct wp_usage))
        size = sizeof(struct wp_usage);
    for (uint32_t i = 0; i < st.n; i++) {
        struct wp_usage u = {0};
        memcpy(&u.sandbox, j->body + sizeof st + i * sizeof u.sandbox, sizeof u.sandbox);
        fill_usage(w, &u);
        memcpy(all + (size_t)i * size, &u, size);
    }
    st.size = st.size ? size : 0; /* a peer that gave no size does not know the field */
    job_answer(j, &st, sizeof st, all, (size_t)st.n * size, -1);
}

static void op_metrics(warden *w, job *j)
{
    CLEANUP(buf_done) buf text = {0};

    count_write(w, WP_FRAME_MAX - sizeof(struct wp_hdr), &text);
    job_answer(j, text.p, text.len, NULL, 0, -1);
}

/* Returns the queue for a sandbox's FREEZEs and THAWs. It is always the same one, so that their
 * steps come one after the other. The id is random up to its last character. */
static queue *freezes_of(const job *j)
{
    return freezes + (unsigned char)j->body[SANDBOX_ID_LEN - 1] % FREEZE_WORKERS;
}

static void op_freeze(warden *w, job *j)
{
    struct wp_id id = id_of(j);
    uint64_t again = 0;
    slot *s = NULL;
    err *e = j->begun_ns ? ops_hold(w, &id, &s) : hold_living(w, &id, &s);

    if (s) {
        again = freezing_step(w, s, j, &e);
        ops_release(w, s);
    }
    if (again)
        queue_later(freezes_of(j), j, again);
    else
        job_end(j, e);
}

/* Admits higher limits like a sandbox that comes with them. Lock held. */
static err *admit_limit(warden *w, slot *s, const struct wp_limits *l)
{
    const admit_ask ask = {.memory = l->memory ? l->memory : s->limits.memory,
                           .pids = l->pids ? l->pids : s->limits.pids};
    bool higher = ask.memory > s->limits.memory || ask.pids > s->limits.pids;
    enum admit_verdict v = higher ? fifo_admit(w, &ask, s) : ADMIT_NOW; /* lower always goes */

    if (admit_is_never(v))
        return err_sys(ERR_UNSUPPORTED, ENOTSUP, "%s", admit_text(v));
    if (v != ADMIT_NOW)
        return err_retry_after(err_sys(ERR_UNAVAILABLE, EAGAIN, "%s", admit_text(v)),
                               (int)refill_retry_after(w, w->fifo.n));
    return NULL;
}

/* Updates the sums of limits. A limit of 0 stays as it is. A slot that is being destroyed has left
 * the sums. Lock held. */
static void account_limits(warden *w, slot *s, const struct wp_limits *l)
{
    if (s->state != SLOT_CLAIMED)
        return;
    slot_unpromise(w, s);
    s->limits.memory = l->memory ? l->memory : s->limits.memory;
    s->limits.pids = l->pids ? l->pids : s->limits.pids;
    slot_promise(w, s);
    pthread_cond_signal(&w->claims);
}

/* Returns the larger value of each limit that admission counts. A slot is counted with these while
 * its limits change, so that there is room for the old and for the new ones. */
static struct wp_limits higher_of(const struct wp_limits *a, const struct wp_limits *b)
{
    return (struct wp_limits){.memory = a->memory > b->memory ? a->memory : b->memory,
                              .pids = a->pids > b->pids ? a->pids : b->pids};
}

/* Refuses less memory than is in use: a kernel of cgroup v2 would kill to get there. */
static err *check_held(const warden *w, const slot *s, uint64_t memory)
{
    uint64_t held = memory && memory < s->limits.memory ? cgroup_memory_held(&w->cg, s->n) : 0;

    if (held <= memory)
        return NULL;
    return err_sys(ERR_CONFLICT, ENOMEM, "%" PRIu64 " bytes are in use", held);
}

/* Sets the limits of the cgroup and reads them back. If memory cannot be taken back after all,
 * restores the limit before. */
static err *limit_cgroup(const warden *w, const slot *s, uint64_t before, const struct wp_limits *l)
{
    static const struct wp_limits NONE;
    err *e = cgroup_limit(&w->cg, s->n, &NONE, l);

    if (!e)
        return walls_limits(w, s, &NONE, l);
    if (l->memory && before)
        err_drop(cgroup_limit(&w->cg, s->n, &NONE, &(struct wp_limits){.memory = before}),
                 "limits");
    if (e->errnum == EBUSY)
        e->errnum = ENOMEM;
    return e;
}

/* Sets the limits and reads them back. The sandbox is then shown the new ones. */
static err *apply_limits(warden *w, slot *s, uint64_t before, const struct wp_limits *l)
{
    TRY(check_held(w, s, l->memory));
    TRY(limit_cgroup(w, s, before, l));
    if (l->disk)
        TRY(quota_limit(w, s->project, l->disk));
    if (l->cpu_milli)
        TRY(view_set_cpus(w, s, l->cpu_milli));
    return l->memory ? view_show_memory(w, s) : NULL;
}

/* Begins a LIMITS. Returns false if another one of the slot is under way: the sums must have what
 * was set last. */
static bool limiting_begin(warden *w, slot *s)
{
    LOCK_SCOPE(&w->lock);
    bool mine = !s->limiting;

    s->limiting = true;
    return mine;
}

/* Counts the limits before setting them, so that no other sandbox is promised the same. */
static err *set_limits(warden *w, slot *s, const struct wp_limits *l)
{
    pthread_mutex_lock(&w->lock);
    const struct wp_limits before = s->limits, meanwhile = higher_of(&before, l);
    err *e = admit_limit(w, s, l);
    if (!e) {
        account_limits(w, s, &meanwhile);
        pthread_mutex_unlock(&w->lock);
        e = apply_limits(w, s, before.memory, l);
        pthread_mutex_lock(&w->lock);
        account_limits(w, s, &before);
        if (!e)
            account_limits(w, s, l);
    }
    s->limiting = false;
    pthread_mutex_unlock(&w->lock);
    return e;
}

static void op_limits(warden *w, job *j)
{
    struct wp_limits_of l;
    slot *s = NULL;

    memcpy(&l, j->body, sizeof l);
    if (l.limits.shm_mib || (l.limits.disk && !w->quota)) {
        job_end(j, err_sys(ERR_UNSUPPORTED, ENOTSUP, "%s",
                           l.limits.shm_mib ? "the size of /dev/shm cannot be changed"
                                            : "this node cannot limit disk space"));
        return;
    }
    err *e = ops_hold(w, &l.sandbox, &s);
    bool turn = !s || limiting_begin(w, s);
    if (s && turn)
        e = set_limits(w, s, &l.limits);
    if (s)
        ops_release(w, s);
    if (turn)
        job_end(j, e);
    else
        queue_later(&limits, j, now_mono_ns() + LIMITS_AGAIN_NS);
}

/* Reports whether pid 1 lives, or how it ended as far as the kernel tells. The cgroup exists until
 * the slot is destroyed. */
static void op_fate(warden *w, job *j)
{
    struct wp_fate_of ask;
    struct wp_usage u = {0};
    slot *s = NULL;

    memcpy(&ask, j->body, sizeof ask);
    err *e = ops_hold(w, &ask.sandbox, &s);

    if (!s) {
        job_end(j, e);
        return;
    }
    if (ask.wait_ms)
        slot_wait_dead(s, (int)ask.wait_ms);
    (void)cgroup_usage(&w->cg, s->n, &u);
    struct wp_fate f = {.oom_kills = u.oom_kills,
                        .memory_peak = u.memory_peak,
                        .memory_limit = u.memory_limit,
                        .flags = slot_dead(s) ? WP_FATE_DEAD : 0};
    if (f.flags & WP_FATE_DEAD && slot_status(w->proc_fd, s, &f.status))
        f.flags |= WP_FATE_STATUS;
    ops_release(w, s);
    job_answer(j, &f, sizeof f, NULL, 0, -1);
}

/* Makes a socket in the slot's network namespace, dual-stack: connect it to ::ffff:127.0.0.1, then
 * ::1. */
static err *socket_in(const warden *w, const slot *s, int *ret_fd)
{
    int off = 0;
    err *e = network_socket(w, s, AF_INET6, SOCK_STREAM, 0, ret_fd);

    if (e && e->errnum == EAFNOSUPPORT) { /* a kernel without IPv6 */
        err_free(e);
        return network_socket(w, s, AF_INET, SOCK_STREAM, 0, ret_fd);
    }
    if (!e)
        setsockopt(*ret_fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    return e;
}

static void op_socket(warden *w, job *j)
{
    struct wp_id id = id_of(j);
    CLEANUP(closep) int fd = -1;
    slot *s = NULL;
    err *e = hold_living(w, &id, &s);

    if (s) {
        e = socket_in(w, s, &fd);
        ops_release(w, s);
    }
    if (e)
        job_end(j, e);
    else
        job_answer(j, NULL, 0, NULL, 0, fd);
}

static void op_unpack(warden *w, job *j)
{
    struct wp_unpack u;
    layers_unpacked what;

    memcpy(&u, j->body, sizeof u);
    err *e = layers_unpack(w->layers, u.diff_id.sha256, u.format, j->fd, &what);
    if (e) {
        job_end(j, e);
        return;
    }
    const struct wp_unpacked a = {
        .bytes = what.bytes, .entries = what.entries, .was_there = what.was_there};
    job_answer(j, &a, sizeof a, NULL, 0, -1);
}

static void op_layers(warden *w, job *j)
{
    struct wp_layers ask;
    uint8_t here[WP_LAYERS_MAX];

    memcpy(&ask, j->body, sizeof ask);
    layers_have(w->layers, (const uint8_t(*)[32])(j->body + sizeof ask), ask.n, here);
    job_answer(j, &ask, sizeof ask, here, ask.n, -1);
}

static void op_image(warden *w, job *j)
{
    struct wp_image i;

    memcpy(&i, j->body, sizeof i);
    job_end(j, layers_image(w->layers, i.image.sha256, (const uint8_t(*)[32])(j->body + sizeof i),
                            i.n));
}

/* Returns the image digests of all claimed slots; malloc'ed. */
static uint8_t (*images_in_use(warden *w, size_t *ret_n))[32]
{
    LOCK_SCOPE(&w->lock);
    uint8_t(*list)[32] = xcalloc(w->nslots, sizeof *list);
    size_t n = 0;

    for (uint32_t i = 0; i < w->nslots; i++) {
        const slot *s = w->slots[i];
        if (s && s->state != SLOT_MAKING && s->state != SLOT_READY)
            memcpy(list[n++], s->image.sha256, sizeof *list);
    }
    *ret_n = n;
    return list;
}

static void forget_ahead(warden *w, const uint8_t (*images)[32], size_t n)
{
    pthread_mutex_lock(&w->lock);
    ahead_forget(w, images, n);
    slot_unlock_release(w);
}

static void op_prune(warden *w, job *j)
{
    struct wp_prune p;
    layers_pruned what;
    size_t nuse;

    memcpy(&p, j->body, sizeof p);
    forget_ahead(w, (const uint8_t(*)[32])(j->body + sizeof p), p.n);
    uint8_t(*use)[32] = images_in_use(w, &nuse);
    err *e = layers_prune(w->layers, (const uint8_t(*)[32])(j->body + sizeof p), p.n,
                          (const uint8_t(*)[32])use, nuse, p.flags & WP_PRUNE_UNCLAIMED, &what);
    free(use);
    if (e) {
        job_end(j, e);
        return;
    }
    const struct wp_pruned a = {what.layers, what.bytes};
    job_answer(j, &a, sizeof a, NULL, 0, -1);
}

static enum pool_why why_of(const warden *w, enum pool_why plan)
{
    if (!w->pool.failures)
        return plan;
    return w->refill_errnum == EROFS         ? POOL_READ_ONLY
           : fs_is_no_room(w->refill_errnum) ? POOL_NO_ROOM
                                             : plan;
}

/* Reports the state of the pool. Lock held. */
static struct wp_pool pool_state(warden *w, uint64_t now)
{
    const pool_level l = refill_level(w);
    pool copy = w->pool; /* asking must not change the pool */
    const claim_job *oldest = w->fifo.head;
    struct wp_pool p = {
        .low = w->pool.low,
        .high = w->pool.high,
        .max = w->pool.max,
        .ready = w->ready,
        .making = w->making,
        .claimed = w->claimed,
        .dying = w->ndying,
        .waiting = w->fifo.n,
        .refills_failed = w->refills_failed,
        .failures = w->pool.failures,
        .why = why_of(w, pool_decide(&copy, &l, now).why),
        .held_by = w->fifo.held_by,
        .refill_ns = w->pool.refill_ns,
        .oldest_wait_ns = oldest ? now - oldest->j->received_ns : 0,
        .next_try_ns = w->pool.not_before_ns > now ? w->pool.not_before_ns - now : 0,
        .memory = w->memory_total,
        .memory_limits = w->memory_claimed,
        .memory_limits_max = w->memory_total * w->o.overcommit,
    };

    memcpy(p.last_error, w->refill_error, sizeof p.last_error);
    return p;
}

static void op_pool(warden *w, job *j)
{
    struct wp_watermarks set;
    err *e = NULL;

    memcpy(&set, j->body, sizeof set);
    pthread_mutex_lock(&w->lock);
    if (set.flags & WP_POOL_SET && set.high > w->pool.max)
        e = err_sys(ERR_INVALID_REQUEST, EINVAL, "the high watermark %u is above the maximum of %u",
                    set.high, w->pool.max);
    else if (set.flags & WP_POOL_SET)
        e = host_fits(w->pool.max, set.high);
    if (set.flags & WP_POOL_SET && !e) {
        w->pool.low = set.low;
        w->pool.high = set.high;
        pthread_cond_signal(&w->refill);
    }
    const struct wp_pool p = pool_state(w, now_mono_ns());
    pthread_mutex_unlock(&w->lock);
    if (e)
        job_end(j, e);
    else
        job_answer(j, &p, sizeof p, NULL, 0, -1);
}

static void op_hello(warden *w, job *j)
{
    struct wp_hello h;

    memcpy(&h, j->body, sizeof h);
    if (h.min > WP_VERSION || h.max < WP_VERSION_MIN) {
        job_end(j, err_sys(ERR_UNSUPPORTED, EPROTONOSUPPORT,
                           "this warden (%s) speaks versions %u to %u, not %u to %u; upgrade "
                           "bothyd first, then the warden",
                           BOTHY_RELEASE, WP_VERSION_MIN, WP_VERSION, h.min, h.max));
        return;
    }
    uint32_t version = h.max < WP_VERSION ? h.max : WP_VERSION; /* the newest that both speak */
    h = (struct wp_hello){.min = version,
                          .max = version,
                          .caps = (w->cg.v2 ? WP_CAP_CGROUP_V2 : 0) |
                                  (w->cg.swap ? WP_CAP_SWAP_LIMIT : 0) |
                                  (w->quota ? WP_CAP_DISK_LIMIT : 0) | WP_CAP_WALLS | WP_CAP_USAGE |
                                  WP_CAP_RELEASE | WP_CAP_FATE | WP_CAP_SNAPSHOT | WP_CAP_NAMED |
                                  WP_CAP_OWNED | (network_offered(w) ? WP_CAP_NETWORK : 0)};
    job_answer(j, &h, sizeof h, NULL, 0, -1);
}

static void op_release(warden *w, job *j)
{
    (void)w;
    job_answer(j, BOTHY_RELEASE, strlen(BOTHY_RELEASE), NULL, 0, -1);
}

static void op_walls(warden *w, job *j)
{
    struct wp_walls f;

    memcpy(&f, j->body, sizeof f);
    pthread_mutex_lock(&w->lock);
    slot *s = slot_find(w, f.sandbox.id);
    if (s && s->state == SLOT_CLAIMED) {
        err *e = walls_failed(f.failed, WALLS_AT_CLAIM, "inside");
        LOG_ABOUT(s->id, NULL, 0);
        log_warn("claim", "sandbox %s, slot %u: %s: %s", s->id, s->n, e->message, e->cause);
        walls_note(w, e);
        err_free(e);
        destroy_slot(w, s);
    }
    pthread_mutex_unlock(&w->lock);
    job_answer(j, NULL, 0, NULL, 0, -1);
}

static void op_snapshot(warden *w, job *j)
{
    struct wp_snapshot ask;
    struct wp_snapshotted a = {0};
    slot *s = NULL;

    memcpy(&ask, j->body, sizeof ask);
    err *e = hold_living(w, &ask.sandbox, &s);
    if (s) {
        e = snapshot_take(w, s, j, &ask, &a);
        ops_release(w, s);
    } else if (e->errnum == ENOENT) {
        e->errnum = ESRCH; /* a missing file of a copy is ENOENT, too */
    }
    if (e)
        job_end(j, e);
    else
        job_answer(j, &a, sizeof a, NULL, 0, -1);
}

static const struct {
    void (*run)(warden *w, job *j);
    queue *in; /* NULL: at once, by the thread that reads frames */
} OPS[WP_TYPES] = {
    [WP_HELLO] = {op_hello, NULL},       [WP_CLAIM] = {fifo_add, NULL},
    [WP_ATTACH] = {op_attach, &ops},     [WP_DESTROY] = {op_destroy, &ops},
    [WP_LIST] = {op_list, NULL},         [WP_STATS] = {op_stats, &looks},
    [WP_METRICS] = {op_metrics, &looks}, [WP_FREEZE] = {op_freeze, freezes},
    [WP_THAW] = {op_freeze, freezes},    [WP_LIMITS] = {op_limits, &limits},
    [WP_SOCKET] = {op_socket, &ops},     [WP_UNPACK] = {op_unpack, &unpacks},
    [WP_IMAGE] = {op_image, &slow},      [WP_PRUNE] = {op_prune, &slow},
    [WP_POOL] = {op_pool, NULL},         [WP_LAYERS] = {op_layers, &ops},
    [WP_WALLS] = {op_walls, &ops},       [WP_RELEASE] = {op_release, NULL},
    [WP_FATE] = {op_fate, &fates},       [WP_SNAPSHOT] = {op_snapshot, &copies},
};

static void *ops_work(void *arg)
{
    queue *q = arg;

    if (q == &copies)
        privs_copier();
    else if (q != &slow && q != &unpacks)
        privs_thread("ops");
    else
        pthread_setname_np(pthread_self(), "layers"); /* it starts bothy-unpack */
    for (;;) {
        job *j = queue_get(q);
        OPS[j->type].run(q->w, j);
    }
    return NULL;
}

void ops_start(warden *w)
{
    queue_init(&ops, w);
    queue_init(&limits, w);
    queue_init(&fates, w);
    queue_init(&looks, w);
    queue_init(&slow, w);
    queue_init(&unpacks, w);
    queue_init(&copies, w);
    for (int i = 0; i < OPS_WORKERS; i++)
        thread_detach("ops", ops_work, &ops);
    for (int i = 0; i < FREEZE_WORKERS; i++) {
        queue_init(&freezes[i], w);
        thread_detach("ops", ops_work, &freezes[i]);
    }
    for (int i = 0; i < LIMITS_WORKERS; i++)
        thread_detach("ops", ops_work, &limits);
    for (int i = 0; i < FATE_WORKERS; i++)
        thread_detach("ops", ops_work, &fates);
    for (int i = 0; i < LOOK_WORKERS; i++)
        thread_detach("ops", ops_work, &looks);
    for (int i = 0; i < LAYERS_WORKERS; i++)
        thread_detach("layers", ops_work, &slow);
    for (int i = 0; i < COPY_WORKERS; i++)
        thread_detach("copier", ops_work, &copies);
    for (int i = 0; i < UNPACK_WORKERS; i++)
        thread_detach("layers", ops_work, &unpacks);
}

void ops_take(warden *w, job *j)
{
    queue *q = OPS[j->type].in;

    if (q == freezes)
        q = freezes_of(j);
    if (!q)
        OPS[j->type].run(w, j);
    else if (!queue_put(q, j))
        job_end(j, err_sys(ERR_UNAVAILABLE, EAGAIN, "too many requests wait"));
}

/* Removes output to make room, with a mark in the journal: when a sandbox or its owner keeps more
 * than it may, and when the disk is short. First it removes output of ended execs, the oldest
 * first; then the oldest bytes of live streams, the longest first. Bytes that a follower has still
 * to read stay, and then the command waits. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "exec/internal.h"

/* Returns a reference to the oldest ended exec that still has streams, or NULL. */
static exec *evict_evictable(exec_table *t)
{
    exec *x = NULL;

    LOCK_SCOPE(&t->lock);
    while (t->evicted < t->npast) {
        struct past *p = &t->past[t->evicted++];
        exec *there = map_get_u64(&t->execs, p->id);
        if (!p->end || p->evicted || (there && there->live))
            continue;
        p->evicted = true;
        err *e = table_exec(t, p, &x);
        if (!e)
            return x;
        err_drop(e, "evict");
    }
    return NULL;
}

/* Makes an exec evictable again whose marks found no room in the journal. */
static void evict_put_back(const exec *x)
{
    exec_table *t = x->table;
    LOCK_SCOPE(&t->lock);
    struct past *p = table_past(t, x->id);

    if (!p)
        return;
    p->evicted = false;
    if ((size_t)(p - t->past) < t->evicted)
        t->evicted = (size_t)(p - t->past);
}

/* Removes the streams of the oldest ended exec that has some. Returns false if there is none, or if
 * that could not be recorded. */
static bool evict_one(exec_table *t)
{
    CLEANUP(exec_unrefp) exec *x = evict_evictable(t);
    bool gone = true;

    if (!x)
        return false;
    for (int i = 0; i < 2; i++)
        gone &= spool_drop(&x->out[i]);
    if (!gone)
        evict_put_back(x);
    return gone;
}

/* ---- shares ---- */

#define SHARE_NS   (100 * NS_PER_MS)
#define OWNERS_MIN 4u                   /* the room is shared by at least so many owners */
#define LIVE_MIN   (UINT64_C(64) << 10) /* bytes that each live stream keeps */
#define VERB_MAX   (UINT64_C(1) << 20)  /* ceiling of a verb's stream that is held back */
#define TRIES      16u

void table_count_bytes(exec_table *t, int64_t n)
{
    struct exec_account *a = atomic_load(&t->account);

    atomic_fetch_add(&t->spool_bytes, n);
    atomic_fetch_add(&t->hub->spool_bytes, n);
    if (!a)
        return;
    atomic_fetch_add(&a->bytes, n);
    atomic_fetch_add(&t->counted, n);
}

/* Counts the owners who have output, and one more who may get some. */
static uint64_t share_parts(exec_hub *h)
{
    map_iter it = {0};
    uint64_t n = 1;

    LOCK_SCOPE(&h->lock);
    while (map_next(&h->accounts, &it))
        n += atomic_load(&((struct exec_account *)it.entry->value)->bytes) > (int64_t)LIVE_MIN;
    return n > OWNERS_MIN ? n : OWNERS_MIN;
}

/* Returns an owner's share of the room for output, which is the free space and what all output
 * has. */
static uint64_t share_of_owner(exec_hub *h)
{
    uint64_t now = now_mono_ns(), kept;

    if (now - atomic_load(&h->share_ns) < SHARE_NS)
        return atomic_load(&h->share);
    int64_t used = atomic_load(&h->spool_bytes);
    uint64_t space = h->spools.space(h->spools.root, &kept);
    uint64_t share = space == UINT64_MAX ? space : (space + (used > 0 ? (uint64_t)used : 0));

    if (share != UINT64_MAX)
        share /= share_parts(h);
    if (h->o.owner_max && share > h->o.owner_max)
        share = h->o.owner_max;
    atomic_store(&h->share, share);
    atomic_store(&h->share_ns, now);
    return share;
}

/* Returns true if kept exceeds max, by more than max / slack; slack 0: at all. */
static bool share_is_above(int64_t kept, uint64_t max, unsigned slack)
{
    return kept > 0 && (uint64_t)kept > max && (!slack || (uint64_t)kept - max > max / slack);
}

static bool table_is_above(exec_table *t, unsigned slack)
{
    return share_is_above(atomic_load(&t->spool_bytes), t->hub->o.sandbox_max, slack);
}

static bool owner_is_above(exec_table *t, unsigned slack)
{
    struct exec_account *a = atomic_load(&t->account);

    return a && share_is_above(atomic_load(&a->bytes), share_of_owner(t->hub), slack);
}

bool table_is_over(exec_table *t)
{
    return table_is_above(t, 0) || owner_is_above(t, 0);
}

/* ---- making room ---- */

static uint64_t stream_kept(spool *s)
{
    uint64_t length = atomic_load(&s->length);

    return length - spool_dropped(s, 0, length);
}

/* Returns a reference to the live exec whose stream keeps the most bytes, but fewer than *below, or
 * NULL. */
static exec *longest_stream(exec_table *t, uint64_t *below, int *ret_i)
{
    uint64_t most = LIVE_MIN;
    exec *found = NULL;

    LOCK_SCOPE(&t->lock);
    for (exec *x = t->live; x; x = x->live_next)
        for (int i = 0; i < 2 && !exec_is_transient(x); i++) {
            uint64_t kept = stream_kept(&x->out[i]);
            if (kept <= most || kept >= *below)
                continue;
            most = kept;
            found = x;
            *ret_i = i;
        }
    *below = most;
    return found ? exec_ref(found) : NULL;
}

/* Halves the longest live stream that can be shortened. */
static bool table_trim(exec_table *t)
{
    uint64_t below = UINT64_MAX;

    for (unsigned i = 0; i < TRIES; i++) {
        int stream;
        CLEANUP(exec_unrefp) exec *x = longest_stream(t, &below, &stream);
        if (!x)
            return false;
        if (spool_trim(&x->out[stream], below / 2 > LIVE_MIN ? below / 2 : LIVE_MIN))
            return true;
    }
    return false;
}

/* Returns a reference to the table with the most bytes, but fewer than `below`, or NULL; of one
 * owner, or of any. */
static exec_table *evict_largest(exec_hub *h, const struct exec_account *of, uint64_t below,
                                 uint64_t *ret_bytes)
{
    exec_table *found = NULL;
    map_iter it = {0};

    LOCK_SCOPE(&h->lock);
    *ret_bytes = 0;
    while (map_next(&h->tables, &it)) {
        exec_table *t = it.entry->value;
        int64_t kept = atomic_load(&t->spool_bytes);
        if (kept <= 0 || (uint64_t)kept <= *ret_bytes || (uint64_t)kept >= below ||
            (of && atomic_load(&t->account) != of))
            continue;
        found = t;
        *ret_bytes = (uint64_t)kept;
    }
    return found ? exec_table_ref(found) : NULL;
}

/* Shrinks one of the owner's sandboxes, the largest that can be. Returns false if none can. */
static bool owner_shrink(exec_table *t, bool (*shrink)(exec_table *t))
{
    uint64_t below = UINT64_MAX;

    for (unsigned i = 0; i < TRIES; i++) {
        exec_table *of = evict_largest(t->hub, atomic_load(&t->account), below, &below);
        if (!of)
            return false;
        bool done = shrink(of);
        exec_table_unref(of);
        if (done)
            return true;
    }
    return false;
}

void table_make_room(exec_table *t)
{
    while (table_is_above(t, 0) && (evict_one(t) || table_trim(t)))
        continue;
    while (owner_is_above(t, 0) && (owner_shrink(t, evict_one) || owner_shrink(t, table_trim)))
        continue;
}

/* Returns true if the limits are exceeded clearly: while a job makes room, they are exceeded a
 * little. */
static bool table_is_choked(exec_table *t)
{
    return table_is_above(t, 8) || owner_is_above(t, 8);
}

enum spool_status exec_choke(exec *x, int i)
{
    if (!table_is_choked(x->table))
        return SPOOL_MORE;
    if (exec_is_transient(x)) {
        spool_limit(&x->out[i], VERB_MAX); /* it continues as far as its reader has read */
        return SPOOL_MORE;
    }
    if (stream_kept(&x->out[i]) < LIVE_MIN)
        return SPOOL_MORE;
    /* A full disk leaves an owner so small a share that his streams wait here, before a write. */
    return spool_set_is_full(&x->table->hub->spools) ? SPOOL_NOSPACE : SPOOL_HELD;
}

size_t exec_quantum(exec *x, size_t max)
{
    return max > LIVE_MIN && table_is_choked(x->table) ? (size_t)LIVE_MIN : max;
}

/* ---- a disk that is short ---- */

bool exec_hub_evict(exec_hub *h)
{
    uint64_t below = UINT64_MAX;
    exec_table *t;

    while ((t = evict_largest(h, NULL, below, &below))) {
        bool done = evict_one(t);
        exec_table_unref(t);
        if (done)
            return true;
    }
    return false;
}

bool exec_hub_is_short(exec_hub *h)
{
    return spool_set_is_short(&h->spools);
}

/* Output of ended execs that goes for room: a sandbox's when it keeps more than it may, the largest
 * one's when the disk is short. The oldest first, with a mark in the journal. */
#include "base/cleanup.h"
#include "base/log.h"
#include "base/thread.h"
#include "exec/internal.h"

/* The oldest ended exec that still has streams, or NULL. */
static exec *evictable(exec_table *t)
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

static bool evict_one(exec_table *t)
{
    CLEANUP(exec_unrefp) exec *x = evictable(t);

    if (!x)
        return false;
    for (int i = 0; i < 2; i++) {
        uint64_t length = atomic_load(&x->out[i].length);
        uint64_t kept = length - spool_dropped(&x->out[i], 0, length);
        if (spool_drop(&x->out[i]))
            atomic_fetch_sub(&t->spool_bytes, (int64_t)kept);
    }
    return true;
}

bool table_is_over(exec_table *t)
{
    int64_t kept = atomic_load(&t->spool_bytes);

    return kept > 0 && (uint64_t)kept > t->hub->o.sandbox_max;
}

void table_evict(exec_table *t)
{
    while (table_is_over(t) && evict_one(t))
        continue;
}

/* A reference to the table with the most bytes below so many, or NULL. */
static exec_table *largest(exec_hub *h, uint64_t below, uint64_t *ret_bytes)
{
    exec_table *found = NULL;
    map_iter it = {0};

    LOCK_SCOPE(&h->lock);
    *ret_bytes = 0;
    while (map_next(&h->tables, &it)) {
        int64_t kept = atomic_load(&((exec_table *)it.entry->value)->spool_bytes);
        if (kept <= 0 || (uint64_t)kept <= *ret_bytes || (uint64_t)kept >= below)
            continue;
        found = it.entry->value;
        *ret_bytes = (uint64_t)kept;
    }
    return found ? exec_table_ref(found) : NULL;
}

bool exec_hub_evict(exec_hub *h)
{
    uint64_t below = UINT64_MAX;
    exec_table *t;

    while ((t = largest(h, below, &below))) {
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

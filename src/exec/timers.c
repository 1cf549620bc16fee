/* Timers of the pump: a binary heap. */
#include "base/cleanup.h"
#include "base/str.h"
#include "base/thread.h"
#include "exec/lane.h"

static void heap_place(pump *p, size_t i, pump_timer *t)
{
    p->heap[i] = t;
    t->heap = i + 1;
}

static void heap_up(pump *p, size_t i, pump_timer *t)
{
    while (i && p->heap[(i - 1) / 2]->at_ns > t->at_ns) {
        heap_place(p, i, p->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    heap_place(p, i, t);
}

static void heap_down(pump *p, size_t i, pump_timer *t)
{
    for (;;) {
        size_t c = 2 * i + 1;
        if (c + 1 < p->nheap && p->heap[c + 1]->at_ns < p->heap[c]->at_ns)
            c++;
        if (c >= p->nheap || p->heap[c]->at_ns >= t->at_ns)
            break;
        heap_place(p, i, p->heap[c]);
        i = c;
    }
    heap_place(p, i, t);
}

static void heap_take(pump *p, pump_timer *t)
{
    size_t i = t->heap - 1;
    pump_timer *last = p->heap[--p->nheap];

    t->heap = 0;
    if (last == t)
        return;
    if (i && p->heap[(i - 1) / 2]->at_ns > last->at_ns)
        heap_up(p, i, last);
    else
        heap_down(p, i, last);
}

void pump_timer_set(pump *p, pump_timer *t, uint64_t at_ns)
{
    LOCK_SCOPE(&p->lock);
    if (t->heap)
        heap_take(p, t);
    if (p->nheap == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 64;
        p->heap = xrealloc(p->heap, p->cap * sizeof(pump_timer *));
    }
    t->at_ns = at_ns;
    p->nheap++;
    heap_up(p, p->nheap - 1, t);
    if (t->heap == 1)
        pthread_cond_signal(&p->cond);
}

void pump_timer_cancel(pump *p, pump_timer *t)
{
    LOCK_SCOPE(&p->lock);
    if (t->heap)
        heap_take(p, t);
}

pump_timer *timers_take(pump *p, uint64_t now, uint64_t *ret_next)
{
    pump_timer *t = p->nheap ? p->heap[0] : NULL;

    *ret_next = t ? t->at_ns : 0;
    if (!t || t->at_ns > now)
        return NULL;
    heap_take(p, t);
    return t;
}

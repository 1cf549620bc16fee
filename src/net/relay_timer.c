/* Timers of a lane: a heap of its jobs, ordered by due time. */
#include "base/str.h"
#include "net/relay_internal.h"

static void heap_put(lane *l, size_t at, relay_job *j)
{
    l->heap[at] = j;
    j->heap_at = at;
}

static void heap_up(lane *l, size_t at, relay_job *j)
{
    while (at > 1 && l->heap[at / 2]->due > j->due) {
        heap_put(l, at, l->heap[at / 2]);
        at /= 2;
    }
    heap_put(l, at, j);
}

static void heap_down(lane *l, size_t at, relay_job *j)
{
    for (size_t child; (child = 2 * at) <= l->nheap; at = child) {
        if (child < l->nheap && l->heap[child + 1]->due < l->heap[child]->due)
            child++;
        if (l->heap[child]->due >= j->due)
            break;
        heap_put(l, at, l->heap[child]);
    }
    heap_put(l, at, j);
}

static void heap_move(lane *l, size_t at, relay_job *j)
{
    if (at > 1 && l->heap[at / 2]->due > j->due)
        heap_up(l, at, j);
    else
        heap_down(l, at, j);
}

void relay_timer_clear(relay_job *j)
{
    lane *l = j->lane;
    size_t at = j->heap_at;

    if (!at)
        return;
    j->heap_at = 0;
    relay_job *last = l->heap[l->nheap--];
    if (last != j)
        heap_move(l, at, last);
}

void relay_timer_set(relay_job *j, uint64_t due)
{
    lane *l = j->lane;

    if (!due) {
        relay_timer_clear(j);
        return;
    }
    if (j->heap_at && j->due == due)
        return;
    j->due = due;
    if (j->heap_at) {
        heap_move(l, j->heap_at, j);
        return;
    }
    if (l->nheap + 2 > l->heap_cap) {
        l->heap_cap = l->heap_cap ? 2 * l->heap_cap : 64;
        l->heap = xrealloc(l->heap, l->heap_cap * sizeof(relay_job *));
    }
    heap_up(l, ++l->nheap, j);
}

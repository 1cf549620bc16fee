#include "operator/queue.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"

/* ---- the heap ---- */

static bool is_before(const queue_item *a, const queue_item *b)
{
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->order < b->order;
}

static void queue_place(queue *q, queue_item *i, size_t at)
{
    q->heap[at - 1] = i;
    i->at = at;
}

static void heap_up(queue *q, queue_item *i, size_t at)
{
    for (; at > 1 && is_before(i, q->heap[at / 2 - 1]); at /= 2)
        queue_place(q, q->heap[at / 2 - 1], at);
    queue_place(q, i, at);
}

static void heap_down(queue *q, queue_item *i, size_t at)
{
    for (size_t next; (next = at * 2) <= q->n; at = next) {
        if (next < q->n && is_before(q->heap[next], q->heap[next - 1]))
            next++;
        if (!is_before(q->heap[next - 1], i))
            break;
        queue_place(q, q->heap[next - 1], at);
    }
    queue_place(q, i, at);
}

static void heap_put(queue *q, queue_item *i)
{
    if (q->n == q->room) {
        q->room = q->room ? q->room * 2 : 64;
        q->heap = xrealloc(q->heap, q->room * sizeof(void *));
    }
    heap_up(q, i, ++q->n);
}

/* Sets when the item is due, whether it waits already or not. */
static void wait_until(queue *q, queue_item *i, uint64_t due)
{
    i->due_ns = due ? due : 1;
    i->order = q->orders++;
    if (!i->at) {
        heap_put(q, i);
        return;
    }
    heap_up(q, i, i->at);
    heap_down(q, i, i->at);
}

static queue_item *heap_take_first(queue *q)
{
    queue_item *first = q->heap[0], *last = q->heap[--q->n];

    if (first != last)
        heap_down(q, last, 1);
    first->at = 0;
    return first;
}

/* ---- keys ---- */

static queue_item *item_of(queue *q, const char *key)
{
    size_t n = strnlen(key, QUEUE_KEY_MAX);
    queue_item *i = map_get(&q->items, key, n);

    if (!i) {
        i = xcalloc(1, sizeof *i + n + 1);
        memcpy(i->key, key, n);
        map_put(&q->items, key, n, i);
    }
    return i;
}

static void queue_forget(queue *q, queue_item *i)
{
    if (i->at || i->failures)
        return;
    map_take_str(&q->items, i->key);
    free(i);
}

void queue_done(queue *q)
{
    map_iter it = {0};

    while (map_next(&q->items, &it))
        free(it.entry->value);
    map_done(&q->items);
    free(q->heap);
    *q = (queue){0};
}

void queue_add(queue *q, const char *key, uint64_t due)
{
    queue_item *i = item_of(q, key);

    if (due < i->not_before_ns)
        due = i->not_before_ns;
    if (!i->at || due < i->due_ns)
        wait_until(q, i, due);
}

bool queue_take(queue *q, uint64_t now, char ret_key[QUEUE_KEY_MAX + 1])
{
    if (!q->n || q->heap[0]->due_ns > now)
        return false;
    queue_item *i = heap_take_first(q);
    str_copy(ret_key, QUEUE_KEY_MAX + 1, i->key);
    queue_forget(q, i);
    return true;
}

uint64_t queue_next(const queue *q)
{
    return q->n ? q->heap[0]->due_ns : 0;
}

void queue_failed(queue *q, const char *key, uint64_t now)
{
    queue_item *i = item_of(q, key);
    uint64_t wait = QUEUE_BACKOFF_NS;

    for (unsigned k = 0; k < i->failures && wait < QUEUE_BACKOFF_MAX_NS; k++)
        wait *= 2;
    i->failures++;
    i->not_before_ns = now + (wait < QUEUE_BACKOFF_MAX_NS ? wait : QUEUE_BACKOFF_MAX_NS);
    wait_until(q, i, i->not_before_ns);
}

void queue_succeeded(queue *q, const char *key)
{
    queue_item *i = map_get_str(&q->items, key);

    if (!i)
        return;
    i->failures = 0;
    i->not_before_ns = 0;
    queue_forget(q, i);
}

size_t queue_waiting(const queue *q)
{
    return q->n;
}

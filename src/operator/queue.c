#include "operator/queue.h"

#include <stdlib.h>

#include "base/str.h"

static queue_item *item_of(queue *q, const char *key)
{
    queue_item *i = map_get_str(&q->items, key);

    if (!i) {
        i = xcalloc(1, sizeof *i);
        str_copy(i->key, sizeof i->key, key);
        map_put_str(&q->items, i->key, i);
    }
    return i;
}

void queue_done(queue *q)
{
    map_iter it = {0};

    while (map_next(&q->items, &it))
        free(it.entry->value);
    map_done(&q->items);
}

void queue_add(queue *q, const char *key, uint64_t due)
{
    queue_item *i = item_of(q, key);

    if (due < i->not_before_ns)
        due = i->not_before_ns;
    if (!i->due_ns || due < i->due_ns)
        i->due_ns = due ? due : 1;
}

static queue_item *first(const queue *q)
{
    map_iter it = {0};
    queue_item *best = NULL;

    while (map_next(&q->items, &it)) {
        queue_item *i = it.entry->value;
        if (i->due_ns && (!best || i->due_ns < best->due_ns))
            best = i;
    }
    return best;
}

static void forget(queue *q, queue_item *i)
{
    if (i->due_ns || i->failures)
        return;
    map_take_str(&q->items, i->key);
    free(i);
}

bool queue_take(queue *q, uint64_t now, char ret_key[QUEUE_KEY_MAX + 1])
{
    queue_item *i = first(q);

    if (!i || i->due_ns > now)
        return false;
    str_copy(ret_key, QUEUE_KEY_MAX + 1, i->key);
    i->due_ns = 0;
    forget(q, i);
    return true;
}

uint64_t queue_next(const queue *q)
{
    const queue_item *i = first(q);

    return i ? i->due_ns : 0;
}

void queue_failed(queue *q, const char *key, uint64_t now)
{
    queue_item *i = item_of(q, key);
    uint64_t wait = QUEUE_BACKOFF_NS;

    for (unsigned k = 0; k < i->failures && wait < QUEUE_BACKOFF_MAX_NS; k++)
        wait *= 2;
    i->failures++;
    i->not_before_ns = now + (wait < QUEUE_BACKOFF_MAX_NS ? wait : QUEUE_BACKOFF_MAX_NS);
    i->due_ns = i->not_before_ns;
}

void queue_succeeded(queue *q, const char *key)
{
    queue_item *i = map_get_str(&q->items, key);

    if (!i)
        return;
    i->failures = 0;
    i->not_before_ns = 0;
    forget(q, i);
}

size_t queue_waiting(const queue *q)
{
    map_iter it = {0};
    size_t n = 0;

    while (map_next(&q->items, &it))
        n += ((const queue_item *)it.entry->value)->due_ns != 0;
    return n;
}

/* Work by key: what is to be looked at, and when. Pure; the owner locks, and brings the time.
 *
 * A key that is asked for again while it waits is looked at once, at the earlier time. One that
 * fails waits QUEUE_BACKOFF_NS, twice that, ... QUEUE_BACKOFF_MAX_NS, and what happens meanwhile
 * does not shorten that: whoever is refused does not come back sooner because others are busy.
 *
 * A heap by time and a map by key: each call costs the logarithm of the keys that wait. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"

#define QUEUE_BACKOFF_NS     UINT64_C(200000000)
#define QUEUE_BACKOFF_MAX_NS UINT64_C(60000000000)
#define QUEUE_KEY_MAX        320

typedef struct queue_item {
    uint64_t due_ns;
    uint64_t order;         /* of equal times the first asked for is first */
    uint64_t not_before_ns; /* after a failure */
    unsigned failures;      /* in a row */
    size_t at;              /* its place in the heap, from 1; 0: it does not wait */
    char key[];
} queue_item;

typedef struct queue {
    map items; /* key → queue_item */
    queue_item **heap;
    size_t n, room;
    uint64_t orders;
} queue;

void queue_done(queue *q);
/* At the latest then; sooner if it was asked for sooner. */
void queue_add(queue *q, const char *key, uint64_t due);
/* The one that is due first, if it is due by now: copied to ret_key, and it waits no more. */
bool queue_take(queue *q, uint64_t now, char ret_key[QUEUE_KEY_MAX + 1]);
uint64_t queue_next(const queue *q); /* when something is due; 0: nothing waits */
/* How the look went: a failure waits, success forgets its failures. */
void queue_failed(queue *q, const char *key, uint64_t now);
void queue_succeeded(queue *q, const char *key);
size_t queue_waiting(const queue *q);

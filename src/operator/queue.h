/* A queue of keys to reconcile, each with its due time. Pure: the owner locks and passes the time
 * in.
 *
 * A key that is added again while it waits is reconciled once, at the earlier time. A key that
 * failed waits QUEUE_BACKOFF_NS, then twice that, ... up to QUEUE_BACKOFF_MAX_NS. New events do not
 * shorten that wait: a failing key must not retry faster because other objects are busy.
 *
 * A heap by time and a map by key: each call costs the logarithm of the number of waiting keys. */
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
    uint64_t order;         /* among equal due times, the key added first comes first */
    uint64_t not_before_ns; /* earliest retry after a failure */
    unsigned failures;      /* consecutive */
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
/* Enqueues the key for `due`, or earlier if it waits for an earlier time already. */
void queue_add(queue *q, const char *key, uint64_t due);
/* Takes the first key that is due by `now` out of the queue, into ret_key. Returns false if none
 * is. */
bool queue_take(queue *q, uint64_t now, char ret_key[QUEUE_KEY_MAX + 1]);
uint64_t queue_next(const queue *q); /* when the next key is due; 0: none waits */
/* Reports how a reconcile ended. A failed key waits for its retry; success resets its failures. */
void queue_failed(queue *q, const char *key, uint64_t now);
void queue_succeeded(queue *q, const char *key);
size_t queue_waiting(const queue *q);

/* Queues of requests between the thread that reads frames and the workers that answer. A worker
 * that would have to wait puts its job back and takes the next one. Any thread. */
#pragma once

#include <pthread.h>

#include "warden/conn.h"

#define QUEUE_MAX 4096u

typedef struct queue {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    job *head, **tail;
    job *later; /* put back; in no order */
    size_t count;
    bool took_late; /* the last job was a late one, taken before new ones */
    struct warden *w;
} queue;

void queue_init(queue *q, struct warden *w);
/* Returns false if QUEUE_MAX jobs wait already. */
bool queue_put(queue *q, job *j);
/* Puts back a job that queue_get() returned; it comes again at that time. */
void queue_later(queue *q, job *j, uint64_t at_ns);
/* Waits for a job and returns it: the first that was put, or else one that was put back and whose
 * time has come. A late job takes turns with those that were put. */
job *queue_get(queue *q);

#include "warden/queue.h"

#include "base/clock.h"
#include "base/thread.h"

void queue_init(queue *q, struct warden *w)
{
    *q = (queue){.w = w};
    pthread_mutex_init(&q->lock, NULL);
    cond_init(&q->cond);
    q->tail = &q->head;
}

bool queue_put(queue *q, job *j)
{
    LOCK_SCOPE(&q->lock);

    if (q->count >= QUEUE_MAX)
        return false;
    j->next = NULL;
    *q->tail = j;
    q->tail = &j->next;
    q->count++;
    pthread_cond_signal(&q->cond);
    return true;
}

void queue_later(queue *q, job *j, uint64_t at_ns)
{
    LOCK_SCOPE(&q->lock);

    j->again_ns = at_ns;
    j->next = q->later;
    q->later = j;
    pthread_cond_signal(&q->cond);
}

/* Returns the place of the earliest of the jobs put back, or NULL if there is none. Lock held. */
static job **queue_earliest(queue *q)
{
    job **best = NULL;

    for (job **at = &q->later; *at; at = &(*at)->next)
        if (!best || (*at)->again_ns < (*best)->again_ns)
            best = at;
    return best;
}

/* Takes the first job. Lock held. */
static job *queue_first(queue *q)
{
    job *j = q->head;

    q->head = j->next;
    if (!q->head)
        q->tail = &q->head;
    q->count--;
    return j;
}

job *queue_get(queue *q)
{
    LOCK_SCOPE(&q->lock);

    for (;;) {
        if (q->head)
            return queue_first(q);
        job **back = queue_earliest(q), *j = back ? *back : NULL;
        if (j && j->again_ns <= now_mono_ns()) {
            *back = j->next;
            return j;
        }
        cond_wait_until(&q->cond, &q->lock, j ? j->again_ns : 0);
    }
}

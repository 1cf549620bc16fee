#include "warden/queue.h"

#include "base/clock.h"
#include "base/thread.h"

#define LATE_NS (20 * NS_PER_MS) /* a job that was put back waits at most so long behind new ones */

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
        job **back = queue_earliest(q), *j = back ? *back : NULL;
        uint64_t now = j ? now_mono_ns() : 0;
        if (q->head && (!j || q->took_late || now < j->again_ns + LATE_NS)) {
            q->took_late = false;
            return queue_first(q);
        }
        if (j && j->again_ns <= now) {
            q->took_late = q->head;
            *back = j->next;
            return j;
        }
        cond_wait_until(&q->cond, &q->lock, j ? j->again_ns : 0);
    }
}

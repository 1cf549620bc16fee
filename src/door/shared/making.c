#include "door/shared/making.h"

#include <pthread.h>

#include "base/str.h"
#include "base/thread.h"

struct making {
    _Atomic unsigned refs;
    pthread_mutex_t lock;
    bool done, left;
    sandbox *pending; /* for engine_create_leave() */
    sandbox *sb;
    err *failure;
    making_waiter *waiters;
};

static making *making_alloc(void)
{
    making *m = xcalloc(1, sizeof *m);

    m->refs = 1;
    pthread_mutex_init(&m->lock, NULL);
    return m;
}

making *making_ref(making *m)
{
    m->refs++;
    return m;
}

void making_unref(making *m)
{
    if (!m || --m->refs)
        return;
    sandbox_unref(m->pending);
    sandbox_unref(m->sb);
    err_free(m->failure);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static void on_made(void *arg, err *failure, sandbox *sb, bool replay)
{
    making *m = arg;

    (void)replay;
    pthread_mutex_lock(&m->lock);
    m->done = true;
    m->failure = failure;
    m->sb = sb;
    for (making_waiter *w = m->waiters; w; w = w->next)
        relay_wake(w->job);
    pthread_mutex_unlock(&m->lock);
    making_unref(m);
}

making *making_new(engine *e, const caller *c, sandbox_spec *spec, const idempotency *idem)
{
    static const idempotency NONE;
    making *m = making_alloc();

    sandbox *pending =
        engine_create(e, c, spec, PULL_MISSING, idem ? idem : &NONE, on_made, making_ref(m));
    LOCK_SCOPE(&m->lock);
    m->pending = pending;
    return m;
}

making *making_of(sandbox *sb)
{
    making *m = making_alloc();

    m->done = true;
    m->sb = sb;
    return m;
}

bool making_ended(making *m)
{
    LOCK_SCOPE(&m->lock);
    return m->done;
}

bool making_look(making *m, sandbox **ret_sandbox, err **ret_failure)
{
    LOCK_SCOPE(&m->lock);
    if (!m->done)
        return false;
    *ret_failure = m->failure ? err_copy(m->failure) : NULL;
    *ret_sandbox = m->sb ? sandbox_ref(m->sb) : NULL;
    return true;
}

void making_wait(making *m, making_waiter *w)
{
    LOCK_SCOPE(&m->lock);
    w->next = m->waiters;
    m->waiters = w;
}

void making_unwait(making *m, making_waiter *w)
{
    LOCK_SCOPE(&m->lock);
    for (making_waiter **at = &m->waiters; *at; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            return;
        }
}

static void shared_making_leave(engine *e, making *m, bool also_done)
{
    pthread_mutex_lock(&m->lock);
    sandbox *of = m->left ? NULL : !m->done ? m->pending : also_done ? m->sb : NULL;
    if (of)
        sandbox_ref(of);
    m->left |= of != NULL;
    pthread_mutex_unlock(&m->lock);
    if (of)
        engine_create_leave(e, of);
    sandbox_unref(of);
}

void making_leave(engine *e, making *m)
{
    shared_making_leave(e, m, false);
}

void making_drop(engine *e, making *m)
{
    shared_making_leave(e, m, true);
}

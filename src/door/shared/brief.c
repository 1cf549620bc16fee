#include "door/shared/brief.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/thread.h"

#define BRIEF_NS  (2 * NS_PER_MS)
#define BRIEF_MAX 8 /* threads that may wait at the same time */

struct brief {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool news;
};

static void on_news(void *arg)
{
    struct brief *b = arg;

    LOCK_SCOPE(&b->lock);
    b->news = true;
    pthread_cond_signal(&b->cond);
}

static bool wait_for(session *s, bool (*over)(void *arg), void *arg)
{
    struct brief b = {.lock = PTHREAD_MUTEX_INITIALIZER};
    exec_watch w = {.notify = on_news, .arg = &b};
    uint64_t until = now_mono_ns() + BRIEF_NS;
    bool is_over;

    cond_init(&b.cond);
    session_watch_add(s, &w);
    for (;;) {
        is_over = over(arg);
        if (is_over || now_mono_ns() >= until)
            break;
        LOCK_SCOPE(&b.lock);
        while (!b.news && now_mono_ns() < until)
            cond_wait_until(&b.cond, &b.lock, until);
        b.news = false;
    }
    session_unwatch(s, &w);
    pthread_cond_destroy(&b.cond);
    return is_over;
}

bool brief_wait(session *s, bool (*over)(void *arg), void *arg)
{
    static _Atomic int waiting;
    bool is_over = atomic_fetch_add(&waiting, 1) < BRIEF_MAX && wait_for(s, over, arg);

    atomic_fetch_sub(&waiting, 1);
    return is_over;
}

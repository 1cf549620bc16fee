#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

#include "base/clock.h"

/* Sanitizers need far more stack than the code itself. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define STACK (8 * THREAD_STACK)
#elif defined(__has_feature)
#    if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#        define STACK (8 * THREAD_STACK)
#    endif
#endif
#ifndef STACK
#    define STACK THREAD_STACK
#endif

static pthread_t start(const char *name, void *(*run)(void *), void *arg, int detached)
{
    pthread_attr_t attr;
    sigset_t all, old;
    pthread_t t;

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK);
    if (detached)
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* inherited: no moment with signals open */
    if (pthread_create(&t, &attr, run, arg))
        abort();
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (!detached) /* a detached thread may be gone already */
        pthread_setname_np(t, name);
    return t;
}

pthread_t thread_start(const char *name, void *(*run)(void *), void *arg)
{
    return start(name, run, arg, 0);
}

void thread_detach(const char *name, void *(*run)(void *), void *arg)
{
    start(name, run, arg, 1);
}

int cond_init(pthread_cond_t *c)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int r = pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
    return r;
}

int cond_wait_until(pthread_cond_t *c, pthread_mutex_t *m, uint64_t mono_ns)
{
    if (!mono_ns) {
        pthread_cond_wait(c, m);
        return 1;
    }
    struct timespec t = {(time_t)(mono_ns / NS_PER_S), (long)(mono_ns % NS_PER_S)};
    return pthread_cond_timedwait(c, m, &t) != ETIMEDOUT;
}

#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
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

typedef struct job {
    char name[16]; /* cut to the kernel's length; empty: the process's name stays */
    void *(*run)(void *);
    void *arg;
} job;

/* Names the thread from inside it: naming another thread writes to /proc, which is not permitted
 * here. */
static void *thread_begin(void *arg)
{
    job j = *(job *)arg;

    free(arg);
    if (*j.name)
        pthread_setname_np(pthread_self(), j.name);
    return j.run(j.arg);
}

static int base_thread_start(const char *name, void *(*run)(void *), void *arg, int detached,
                             pthread_t *ret_thread)
{
    pthread_attr_t attr;
    sigset_t all, old;
    job *j = malloc(sizeof *j);

    if (!j)
        return ENOMEM;
    *j = (job){.run = run, .arg = arg};
    snprintf(j->name, sizeof j->name, "%s", name);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK);
    if (detached)
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* inherited: never runs with signals open */
    int bad = pthread_create(ret_thread, &attr, thread_begin, j);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (bad)
        free(j);
    return bad;
}

pthread_t thread_start(const char *name, void *(*run)(void *), void *arg)
{
    pthread_t t;

    if (base_thread_start(name, run, arg, 0, &t))
        abort();
    return t;
}

err *thread_try_start(const char *name, void *(*run)(void *), void *arg, pthread_t *ret_thread)
{
    int bad = base_thread_start(name, run, arg, 0, ret_thread);

    if (!bad)
        return NULL;
    return err_remedy(err_sys(ERR_UNAVAILABLE, bad, "cannot start the thread '%s'", name),
                      "Try again later. The machine has no room for more threads: see "
                      "kernel.threads-max and the memory that is free.");
}

void thread_detach(const char *name, void *(*run)(void *), void *arg)
{
    pthread_t t;

    if (base_thread_start(name, run, arg, 1, &t))
        abort();
}

bool thread_try_detach(void *(*run)(void *), void *arg)
{
    pthread_t t;

    return !base_thread_start("", run, arg, 1, &t);
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

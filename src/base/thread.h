/* Threads with small stacks and scoped locks. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

#define THREAD_STACK (256 * 1024)

/* Starts a thread with all signals blocked; 15 bytes of its name count. Aborts when the machine has
 * no room for it: for threads of the program itself, at its start. */
pthread_t thread_start(const char *name, void *(*run)(void *), void *arg);
/* The same, detached. */
void thread_detach(const char *name, void *(*run)(void *), void *arg);
/* The same, for threads that a request causes. ERR_UNAVAILABLE: there is no room for it now. */
err *thread_try_start(const char *name, void *(*run)(void *), void *arg,
                      pthread_t *ret_thread) ERR_MUST;
/* The same, for a thread one can do without: false when there is no room for it. */
bool thread_try_detach(void *(*run)(void *), void *arg);

static inline pthread_mutex_t *mutex_lock_scoped(pthread_mutex_t *m)
{
    pthread_mutex_lock(m);
    return m;
}
static inline void mutex_unlockp(pthread_mutex_t **m)
{
    if (*m)
        pthread_mutex_unlock(*m);
}
/* Holds the mutex to the end of the enclosing scope. */
#define LOCK_NAME_(line) locked_##line
#define LOCK_NAME(line)  LOCK_NAME_(line)
#define LOCK_SCOPE(m)      \
    CLEANUP(mutex_unlockp) \
    __attribute__((unused)) pthread_mutex_t *LOCK_NAME(__LINE__) = mutex_lock_scoped(m)

/* Waits on cond until the CLOCK_MONOTONIC time (0: for ever). False when the time has passed.
 * The condition must come from cond_init(). */
int cond_init(pthread_cond_t *c);
int cond_wait_until(pthread_cond_t *c, pthread_mutex_t *m, uint64_t mono_ns);

/* Threads with small stacks and scoped locks. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

#define THREAD_STACK (256 * 1024)

/* Starts a thread with all signals blocked. Its name is cut to 15 bytes. Aborts if the thread
 * cannot be made: for the program's own threads, at its start. */
pthread_t thread_start(const char *name, void *(*run)(void *), void *arg);
/* Like thread_start(), detached. */
void thread_detach(const char *name, void *(*run)(void *), void *arg);
/* Like thread_start(), for threads that a request causes. ERR_UNAVAILABLE if there is no room
 * now. */
err *thread_try_start(const char *name, void *(*run)(void *), void *arg,
                      pthread_t *ret_thread) ERR_MUST;
/* Starts a detached, optional thread without a name of its own. Returns false if there is no
 * room. */
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

/* Initialises a condition for cond_wait_until(). */
int cond_init(pthread_cond_t *c);
/* Waits on cond until the CLOCK_MONOTONIC time (0: for ever). Returns 0 after that time has passed.
 * The condition must come from cond_init(). */
int cond_wait_until(pthread_cond_t *c, pthread_mutex_t *m, uint64_t mono_ns);

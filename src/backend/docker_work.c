/* A few threads for work that waits for the engine. */
#include <stdlib.h>

#include "backend/docker.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/thread.h"

typedef struct job {
    struct job *next;
    uint64_t due_ns;
    void (*run)(void *);
    void *arg;
} job;

struct docker_work {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    job *jobs; /* by due_ns */
    bool ending;
    unsigned n;
    pthread_t thread[];
};

/* Returns the next job that is due; NULL when the threads must end. */
static job *next_job(docker_work *w)
{
    LOCK_SCOPE(&w->lock);
    for (;;) {
        job *j = w->jobs;
        if (j && (w->ending || j->due_ns <= now_mono_ns())) {
            w->jobs = j->next;
            return j;
        }
        if (w->ending)
            return NULL;
        cond_wait_until(&w->wake, &w->lock, j ? j->due_ns : 0);
    }
}

static void *docker_work_work(void *arg)
{
    job *j;

    while ((j = next_job(arg))) {
        j->run(j->arg);
        free(j);
    }
    return NULL;
}

docker_work *docker_work_new(unsigned threads)
{
    docker_work *w = xcalloc(1, sizeof *w + threads * sizeof *w->thread);

    pthread_mutex_init(&w->lock, NULL);
    cond_init(&w->wake);
    for (w->n = 0; w->n < threads; w->n++)
        w->thread[w->n] = thread_start("docker", docker_work_work, w);
    return w;
}

void docker_work_post(docker_work *w, unsigned delay_ms, void (*run)(void *), void *arg)
{
    job *j = xcalloc(1, sizeof *j), **at;

    *j = (job){.due_ns = now_mono_ns() + delay_ms * NS_PER_MS, .run = run, .arg = arg};
    LOCK_SCOPE(&w->lock);
    for (at = &w->jobs; *at && (*at)->due_ns <= j->due_ns; at = &(*at)->next)
        ;
    j->next = *at;
    *at = j;
    pthread_cond_signal(&w->wake);
}

void docker_work_stop(docker_work *w)
{
    if (!w)
        return;
    {
        LOCK_SCOPE(&w->lock);
        w->ending = true;
        pthread_cond_broadcast(&w->wake);
    }
    for (unsigned i = 0; i < w->n; i++)
        pthread_join(w->thread[i], NULL);
    w->n = 0;
}

void docker_work_free(docker_work *w)
{
    if (!w)
        return;
    docker_work_stop(w);
    for (job *j; (j = w->jobs);) {
        w->jobs = j->next;
        j->run(j->arg);
        free(j);
    }
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

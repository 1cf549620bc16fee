/* Pulls: a queue, a few workers, and callers that join a pull under way. */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/metric.h"
#include "base/str.h"
#include "image/images.h"

enum {
    M_PULLS,
    M_PULL_TIME
};
static const char *const PULL_ENDS[] = {"here", "pulled", "failed", NULL};
static metric METRICS[] = {
    [M_PULLS] = METRIC_COUNTER_BY("bothy_image_pulls_total", "Images asked for, by outcome.",
                                  "outcome", PULL_ENDS),
    [M_PULL_TIME] = METRIC_HISTOGRAM("bothy_image_pull_seconds", "Time of a fetch with unpacking."),
};

struct pull_job {
    pull_job *next;
    char *key; /* in image_store.jobs until its callers are notified */
    char *reference;
    char *name;  /* the name it will be found by */
    char *owner; /* the first caller; others join only with the same login */
    enum pull_policy policy;
    bool quick;  /* needs no fetch as far as known, so it waits for no turn */
    bool looked; /* it was searched for, and is missing */
    err *bad;    /* error of an invalid name */
    pull_events *waiter;
    size_t nwaiters;
};

static void job_free(pull_job *j)
{
    free(j->key);
    free(j->reference);
    free(j->name);
    free(j->owner);
    free(j->waiter);
    err_free(j->bad);
    free(j);
}

/* ---- on a worker ---- */

typedef struct telling {
    image_store *s;
    pull_job *j;
} telling;

/* Copies the list of callers. They may join at any time, and callbacks run without the lock. */
static size_t copy_waiters(image_store *s, const pull_job *j, pull_events **ret_list)
{
    LOCK_SCOPE(&s->lock);
    *ret_list = xcalloc(j->nwaiters + 1, sizeof **ret_list);
    memcpy(*ret_list, j->waiter, j->nwaiters * sizeof **ret_list);
    return j->nwaiters;
}

static void tell_progress(void *arg, const pull_progress *p)
{
    const telling *t = arg;
    CLEANUP(freep) pull_events *list = NULL;
    size_t n = copy_waiters(t->s, t->j, &list);

    for (size_t i = 0; i < n; i++)
        if (list[i].progress)
            list[i].progress(list[i].arg, p);
}

static err *not_here(const pull_job *j)
{
    return err_kind(err_remedy(err_new(ERR_NOT_FOUND, "image '%.200s' is not here", j->reference),
                               "Pull it first, or let the pull policy fetch what is missing."),
                    "image");
}

/* Searches for the image; *ret_image stays NULL if it is missing or must be fetched anyway. */
static err *pull_look(image_store *s, const pull_job *j, image **ret_image)
{
    if (j->policy == PULL_ALWAYS || j->looked)
        return NULL;
    err *e = engine_has_images(s) ? engine_look(s, j->name, ret_image)
                                  : image_find(s, j->name, ret_image);
    if (!e)
        metric_add(&METRICS[M_PULLS], 0, 1);
    if (e && engine_has_images(s) && e->code != ERR_NOT_FOUND)
        return e; /* the engine does not answer */
    err_free(e);
    return NULL;
}

static bool may_fetch(const pull_job *j)
{
    return j->policy != PULL_NEVER && !str_starts(j->reference, "sha256:") &&
           !str_starts(j->name, "sha256:");
}

static err *pull_fetch(image_store *s, pull_job *j, image **ret_image)
{
    telling t = {s, j};
    uint64_t began = now_mono_ns();

    err *e = fetch_image(s,
                         &(fetch_request){.owner = j->owner,
                                          .reference = j->reference,
                                          .name = j->name,
                                          .progress = {tell_progress, &t}},
                         ret_image);
    metric_add(&METRICS[M_PULLS], e ? 2 : 1, 1);
    metric_observe_ns(&METRICS[M_PULL_TIME], 0, now_mono_ns() - began);
    return e;
}

/* Runs a job. Returns neither error nor image if it has to be fetched and must wait for a turn
 * first. */
static err *run_job(image_store *s, pull_job *j, image **ret_image)
{
    if (j->bad)
        return TAKE_PTR(j->bad);
    TRY(pull_look(s, j, ret_image));
    if (*ret_image)
        return NULL;
    if (!may_fetch(j))
        return not_here(j);
    return engine_has_images(s) && j->quick ? NULL : pull_fetch(s, j, ret_image);
}

/* Notifies all callers and frees the job. After the first step no caller can join it. */
static void finish_job(image_store *s, pull_job *j, err *failure, image *got)
{
    {
        LOCK_SCOPE(&s->lock);
        map_take_str(&s->jobs, j->key);
    }
    for (size_t i = 0; i < j->nwaiters; i++)
        j->waiter[i].done(j->waiter[i].arg, failure ? err_copy(failure) : NULL,
                          got ? image_ref(got) : NULL);
    err_free(failure);
    image_unref(got);
    job_free(j);
}

static unsigned running_of(const image_store *s, const char *owner)
{
    unsigned n = 0;

    for (size_t i = 0; i < IMAGE_PULLS; i++)
        n += s->running[i] && str_eq(s->running[i]->owner, owner);
    return n;
}

/* Returns true if an owner without a running pull waits: it goes before another owner's second
 * pull. */
static bool others_wait(const image_store *s, const char *owner)
{
    for (const pull_job *j = s->first; j; j = j->next)
        if (!j->quick && !str_eq(j->owner, owner) && !running_of(s, j->owner))
            return true;
    return false;
}

static bool may_start(const image_store *s, const pull_job *j)
{
    if (j->quick)
        return true;
    unsigned own = running_of(s, j->owner);
    return s->pulling < IMAGE_PULLS && own < IMAGE_PULLS_EACH &&
           (!own || !others_wait(s, j->owner));
}

static void begin_pulling(image_store *s, const pull_job *j)
{
    size_t i = 0;

    while (s->running[i])
        i++;
    s->running[i] = j;
    s->pulling++;
}

/* Takes the first job that may start out of the queue. Lock held. */
static pull_job *take_job(image_store *s)
{
    pull_job *before = NULL;

    for (pull_job *j = s->first; j; before = j, j = j->next) {
        if (!may_start(s, j))
            continue;
        if (before)
            before->next = j->next;
        else
            s->first = j->next;
        if (s->last == j)
            s->last = before;
        if (!j->quick)
            begin_pulling(s, j);
        return j;
    }
    return NULL;
}

static pull_job *wait_job(image_store *s)
{
    pull_job *j;

    LOCK_SCOPE(&s->lock);
    while (!s->stopping && !(j = take_job(s)))
        cond_wait_until(&s->changed, &s->lock, 0);
    return s->stopping ? NULL : j;
}

/* Frees the job's turn. Called before the job is freed, because other threads read its owner. */
static void end_pulling(image_store *s, const pull_job *j)
{
    LOCK_SCOPE(&s->lock);
    for (size_t i = 0; i < IMAGE_PULLS; i++)
        if (s->running[i] == j) {
            s->running[i] = NULL;
            s->pulling--;
        }
    pthread_cond_broadcast(&s->changed);
}

/* Lock held. */
static void pull_enqueue(image_store *s, pull_job *j)
{
    j->next = NULL;
    if (s->last)
        s->last->next = j;
    else
        s->first = j;
    s->last = j;
    pthread_cond_broadcast(&s->changed);
}

/* Refuses a job if its owner has too many waiting. Lock held. Callers may disconnect without
 * notice, so nothing else bounds the queue. */
static err *may_wait(const image_store *s, const pull_job *j)
{
    unsigned n = 0;

    for (const pull_job *w = j->quick ? NULL : s->first; w; w = w->next)
        n += !w->quick && str_eq(w->owner, j->owner);
    if (n < IMAGE_QUEUED_EACH)
        return NULL;
    err *e = err_because(err_new(ERR_QUOTA_EXCEEDED, "too many of your pulls wait"),
                         "%u are in the queue", n);
    return err_retry_after(err_remedy(e, "Wait until some of them are done."), 5);
}

/* Puts a job back, now waiting for a turn to fetch; its callers stay. */
static err *queue_again(image_store *s, pull_job *j)
{
    LOCK_SCOPE(&s->lock);

    j->quick = false;
    j->looked = true;
    TRY(may_wait(s, j));
    pull_enqueue(s, j);
    return NULL;
}

static void *run_worker(void *arg)
{
    image_store *s = arg;
    pull_job *j;

    while ((j = wait_job(s))) {
        image *got = NULL;
        err *failure = run_job(s, j, &got);
        end_pulling(s, j);
        if (!failure && !got)
            failure = queue_again(s, j);
        if (failure || got)
            finish_job(s, j, failure, got);
    }
    return NULL;
}

/* ---- from any thread ---- */

static void add_waiter(pull_job *j, const pull_events *ev)
{
    j->waiter = xrealloc(j->waiter, (j->nwaiters + 1) * sizeof *j->waiter);
    j->waiter[j->nwaiters++] = *ev;
}

/* Renames the job to the full digest. A short digest cannot be fetched, and the image's name may
 * move to another image. */
static void found_by_digest(pull_job *j, const image *here)
{
    char hex[65];

    hex_encode(here->digest, 32, hex);
    err_free(TAKE_PTR(j->bad));
    free(j->name);
    j->name = str_printf("sha256:%s", hex);
}

/* Makes a job for a request; an invalid name becomes a job that fails. */
static pull_job *job_new(image_store *s, const char *owner, const char *reference, const char *as,
                         enum pull_policy policy)
{
    CLEANUP(image_unrefp) image *here = NULL;
    pull_job *j = xcalloc(1, sizeof *j);

    err_free(image_find(s, as ? as : reference, &here));
    j->policy = policy;
    j->bad = image_normalise(reference, &j->reference);
    if (!j->bad && as)
        j->bad = image_normalise_as(as, &j->name);
    if (!j->bad && engine_has_images(s))
        j->bad = engine_check(j->reference, j->name);
    if (!j->reference)
        j->reference = xstrdup(reference);
    if (!j->name)
        j->name = xstrdup(as ? as : j->reference);
    if (here && !as && !str_eq(here->name, j->name) && policy != PULL_ALWAYS)
        found_by_digest(j, here);
    j->quick = j->bad || policy == PULL_NEVER ||
               ((here || engine_has_images(s)) && policy == PULL_MISSING);
    j->owner = owner ? xstrdup(owner) : NULL;
    bool stays_quick = j->quick && !engine_has_images(s);
    j->key = str_printf("%d %s %s %llx", (int)policy, j->name, j->reference,
                        (unsigned long long)(stays_quick ? 0 : login_tag(s, owner, j->reference)));
    return j;
}

static err *pull_ask(image_store *s, pull_job *j, const pull_events *ev)
{
    LOCK_SCOPE(&s->lock);
    pull_job *there = map_get_str(&s->jobs, j->key);
    err *refused = there ? NULL : may_wait(s, j);

    if (refused || there) {
        job_free(j);
    } else {
        map_put_str(&s->jobs, j->key, j);
        pull_enqueue(s, j);
    }
    if (!refused)
        add_waiter(there ? there : j, ev);
    return refused;
}

void image_ensure(image_store *s, const char *reference, const char *as, enum pull_policy policy,
                  const pull_events *ev)
{
    err *refused = pull_ask(s, job_new(s, ev->owner, reference, as, policy), ev);

    if (refused)
        ev->done(ev->arg, refused, NULL);
}

void pull_start(image_store *s)
{
    metric_register(METRICS, ARRAY_LEN(METRICS));
    for (; s->nworkers < IMAGE_WORKERS; s->nworkers++)
        s->worker[s->nworkers] = thread_start("image", run_worker, s);
}

void pull_stop(image_store *s)
{
    pull_job *left;

    {
        LOCK_SCOPE(&s->lock);
        s->stopping = true;
        pthread_cond_broadcast(&s->changed);
    }
    if (s->stop_fd >= 0)
        (void)!write(s->stop_fd, &(uint64_t){1}, sizeof(uint64_t));
    for (unsigned i = 0; i < s->nworkers; i++)
        pthread_join(s->worker[i], NULL);
    while ((left = s->first)) {
        s->first = left->next;
        finish_job(s, left, err_new(ERR_DRAINING, "the node is going down"), NULL);
    }
    s->last = NULL;
}

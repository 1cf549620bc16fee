/* The thread that makes the requests of kube_watch. */
#include <string.h>

#include "backend/kubernetes/kube_watch.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"

struct kube_watcher {
    kube *k;
    kube_watch *watch; /* watcher thread only */
    const kube_watch_events *events;
    void *arg;
    char *path;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop, synced;
    err *trouble;
    kube_watch_counts counts;
};

static void on_there(void *arg, const char *uid, const json_t *object)
{
    kube_watcher *w = arg;

    w->events->there(w->arg, uid, object);
}

static void on_gone(void *arg, const char *uid, const json_t *object)
{
    kube_watcher *w = arg;

    w->events->gone(w->arg, uid, object);
}

static void on_synced(void *arg)
{
    kube_watcher *w = arg;

    if (w->events->synced)
        w->events->synced(w->arg);
    LOCK_SCOPE(&w->lock);
    w->synced = true;
    pthread_cond_broadcast(&w->changed);
}

static const kube_watch_events EVENTS = {on_there, on_gone, on_synced};

static bool goes_on(void *arg)
{
    kube_watcher *w = arg;

    LOCK_SCOPE(&w->lock);
    return !w->stop;
}

static bool on_bytes(void *arg, const void *p, size_t n)
{
    kube_watcher *w = arg;
    bool more = kube_watch_feed(w->watch, p, n);

    LOCK_SCOPE(&w->lock);
    kube_watch_count(w->watch, &w->counts); /* now, because a stream lasts for minutes */
    return more;
}

/* Stores the last error; logs it when it is the first after a success. */
static void kube_watcher_note(kube_watcher *w, const err *e)
{
    LOCK_SCOPE(&w->lock);
    bool news = e && !w->trouble;

    err_free(w->trouble);
    w->trouble = e ? err_copy(e) : NULL;
    kube_watch_count(w->watch, &w->counts);
    if (news && !w->stop)
        log_warn("kubernetes", "%s: %s: %s", w->path, e->message, str_or(e->cause, "-"));
}

/* Returns false if the watcher was stopped. */
static bool wait_ms(kube_watcher *w, uint64_t ms)
{
    uint64_t until = now_mono_ns() + ms * NS_PER_MS;

    LOCK_SCOPE(&w->lock);
    while (!w->stop && ms && now_mono_ns() < until)
        cond_wait_until(&w->changed, &w->lock, until);
    return !w->stop;
}

static void kube_watcher_step(kube_watcher *w, const kube_watch_ask *ask)
{
    CLEANUP(json_decrefp) json_t *page = NULL;
    uint64_t began = now_mono_ns();
    bool lists = ask->what == KUBE_ASK_LIST;
    kube_call call = {.method = "GET",
                      .path = ask->path,
                      .arg = w,
                      .on_tick = goes_on,
                      .on_bytes = lists ? NULL : on_bytes,
                      .timeout_ms = lists ? 2 * KUBE_CALL_MS : 0,
                      .silence_ms = KUBE_SILENCE_MS,
                      .once = true};

    err *e = kube_do(w->k, &call, lists ? &page : NULL);
    kube_watcher_note(w, e);
    if (e || !lists)
        kube_watch_ended(w->watch, e, (now_mono_ns() - began) / NS_PER_MS);
    else
        kube_watch_page(w->watch, page);
}

static void *kube_watcher_run(void *arg)
{
    kube_watcher *w = arg;
    kube_watch_ask ask;

    for (;;) {
        kube_watch_next(w->watch, &ask);
        if (!wait_ms(w, ask.wait_ms) || !goes_on(w))
            return NULL;
        kube_watcher_step(w, &ask);
    }
}

kube_watcher *kube_watcher_new(kube *k, const kube_watch_options *o)
{
    kube_watcher *w = xcalloc(1, sizeof *w);
    kube_watch_options own = *o;

    w->k = k;
    w->events = o->events;
    w->arg = o->arg;
    w->path = xstrdup(o->path);
    own.events = &EVENTS;
    own.arg = w;
    w->watch = kube_watch_new(&own);
    pthread_mutex_init(&w->lock, NULL);
    cond_init(&w->changed);
    w->thread = thread_start("kube-watch", kube_watcher_run, w);
    return w;
}

bool kube_watcher_synced(kube_watcher *w, uint64_t until)
{
    LOCK_SCOPE(&w->lock);
    while (!w->synced && now_mono_ns() < until)
        cond_wait_until(&w->changed, &w->lock, until);
    return w->synced;
}

err *kube_watcher_trouble(kube_watcher *w)
{
    LOCK_SCOPE(&w->lock);
    return w->trouble ? err_copy(w->trouble) : NULL;
}

void kube_watcher_counts(kube_watcher *w, kube_watch_counts *ret_counts)
{
    LOCK_SCOPE(&w->lock);
    *ret_counts = w->counts;
}

void kube_watcher_free(kube_watcher *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    kube_watch_free(w->watch);
    err_free(w->trouble);
    free(w->path);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

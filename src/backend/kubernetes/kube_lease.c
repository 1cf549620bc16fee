/* The lease's thread, and the decisions about it without I/O. */
#include "backend/kubernetes/kube_lease.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"

#define LEAVE_NS (2 * NS_PER_S)

struct kube_lease {
    kube *k;
    kube_lease_options o;
    char *ns, *name, *identity, *path;
    kube_lease_seen seen; /* lease thread only */
    json_t *object;       /* as last read or written; lease thread only */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop, ended;
    uint64_t until; /* held until then; 0: not held */
    uint64_t epoch;
    char *holder;
    err *trouble;
};

/* ---- without I/O ---- */

void kube_time(uint64_t real_ns, char ret_text[KUBE_TIME_MAX])
{
    time_t s = (time_t)(real_ns / NS_PER_S);
    struct tm tm;
    char day[24];

    gmtime_r(&s, &tm);
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(ret_text, KUBE_TIME_MAX, "%s.%06uZ", day, (unsigned)(real_ns % NS_PER_S / 1000));
}

void kube_lease_look(kube_lease_seen *seen, const json_t *object, uint64_t now)
{
    const json_t *spec = json_object_get(object, "spec");
    const char *version =
        str_or(json_str(json_object_get(object, "metadata"), "resourceVersion"), "");
    int64_t seconds = json_int(spec, "leaseDurationSeconds", 0);
    int64_t turns = json_int(spec, "leaseTransitions", 0);

    if (!object) {
        *seen = (kube_lease_seen){0};
        return;
    }
    if (!seen->there || strcmp(seen->version, version) != 0)
        seen->changed = now;
    seen->there = true;
    str_copy(seen->version, sizeof seen->version, version);
    str_copy(seen->holder, sizeof seen->holder, str_or(json_str(spec, "holderIdentity"), ""));
    /* Clamp absurd durations: a candidate must be able to take over in the end. */
    seen->duration_ms = seconds < 1 ? 1000 : seconds > 3600 ? 3600000 : (uint64_t)seconds * 1000;
    seen->transitions = turns > 0 ? (uint64_t)turns : 0;
}

enum kube_lease_act kube_lease_decide(const kube_lease_seen *seen, const char *identity,
                                      uint64_t now)
{
    if (!seen->there)
        return KUBE_LEASE_CREATE;
    if (str_eq(seen->holder, identity))
        return KUBE_LEASE_RENEW;
    if (!*seen->holder || now - seen->changed >= seen->duration_ms * NS_PER_MS)
        return KUBE_LEASE_TAKE;
    return KUBE_LEASE_WAIT;
}

/* ---- the record ---- */

/* Returns the lease object with our spec; keeps its other fields. */
static json_t *kube_lease_record(const kube_lease *l, enum kube_lease_act act, const char *holder,
                                 unsigned duration_ms)
{
    char now[KUBE_TIME_MAX];
    json_t *o = l->seen.there
                    ? json_deep_copy(l->object)
                    : json_pack("{s:s, s:s, s:{s:s, s:s}}", "apiVersion", "coordination.k8s.io/v1",
                                "kind", "Lease", "metadata", "name", l->name, "namespace", l->ns);
    json_t *spec = json_object_get(o, "spec");

    kube_time(now_real_ns(), now);
    if (!json_is_object(spec)) {
        spec = json_object();
        json_object_set_new(o, "spec", spec);
    }
    json_object_set_new(spec, "holderIdentity", json_string(holder));
    json_object_set_new(spec, "leaseDurationSeconds", json_integer((duration_ms + 999) / 1000));
    json_object_set_new(spec, "renewTime", json_string(now));
    if (act == KUBE_LEASE_CREATE || act == KUBE_LEASE_TAKE) {
        json_object_set_new(spec, "acquireTime", json_string(now));
        json_object_set_new(
            spec, "leaseTransitions",
            json_integer((json_int_t)(l->seen.transitions + (act == KUBE_LEASE_TAKE))));
    }
    return o;
}

static err *kube_lease_send(kube_lease *l, enum kube_lease_act act, const char *holder,
                            unsigned duration_ms, json_t **ret_object)
{
    CLEANUP(json_decrefp) json_t *body = kube_lease_record(l, act, holder, duration_ms);
    CLEANUP(freep) char *list = kube_path(&KUBE_LEASES, l->ns, NULL, NULL);
    bool creates = act == KUBE_LEASE_CREATE;

    return kube_do(l->k,
                   &(kube_call){.method = creates ? "POST" : "PUT",
                                .path = creates ? list : l->path,
                                .json = body,
                                .timeout_ms = l->o.renew_ms / 2,
                                .once = true},
                   ret_object);
}

/* ---- state for other threads ---- */

static void kube_lease_told(kube_lease *l, bool held)
{
    if (l->o.changed)
        l->o.changed(l->o.arg, held, l->epoch);
    log_info("kubernetes", held ? "lease %s/%s is held" : "lease %s/%s is lost", l->ns, l->name);
}

/* Stores the state; calls `changed` if it did. until 0: not held. */
static void kube_lease_publish(kube_lease *l, uint64_t until)
{
    pthread_mutex_lock(&l->lock);
    bool before = l->until != 0, now = until != 0;
    l->until = until;
    l->epoch = l->seen.transitions;
    free(l->holder);
    l->holder = *l->seen.holder ? xstrdup(l->seen.holder) : NULL;
    pthread_mutex_unlock(&l->lock);
    if (before != now)
        kube_lease_told(l, now);
}

static void kube_lease_note(kube_lease *l, err *e)
{
    LOCK_SCOPE(&l->lock);
    bool news = e && !l->trouble;

    err_free(l->trouble);
    l->trouble = e;
    if (news)
        log_warn("kubernetes", "lease %s/%s: %s: %s", l->ns, l->name, e->message,
                 str_or(e->cause, "-"));
}

bool kube_lease_held(kube_lease *l, uint64_t *ret_epoch)
{
    LOCK_SCOPE(&l->lock);
    if (ret_epoch)
        *ret_epoch = l->epoch;
    return now_mono_ns() < l->until;
}

char *kube_lease_holder(kube_lease *l)
{
    LOCK_SCOPE(&l->lock);
    return l->holder ? xstrdup(l->holder) : NULL;
}

err *kube_lease_trouble(kube_lease *l)
{
    LOCK_SCOPE(&l->lock);
    return l->trouble ? err_copy(l->trouble) : NULL;
}

/* ---- the thread ---- */

static void kube_lease_keep(kube_lease *l, json_t *object)
{
    json_decref(l->object);
    l->object = object;
    kube_lease_look(&l->seen, object, now_mono_ns());
}

static err *kubernetes_kube_lease_look(kube_lease *l)
{
    json_t *object = NULL;
    err *e = kube_do(
        l->k, &(kube_call){.method = "GET", .path = l->path, .timeout_ms = l->o.renew_ms / 2},
        &object);

    if (e && e->code == ERR_NOT_FOUND) {
        err_free(e);
        e = NULL;
    }
    if (!e)
        kube_lease_keep(l, object);
    return e;
}

/* Renews, takes or checks the lease once. A holder renews its last version without reading it: a
 * conflict shows that it changed. */
static err *kube_lease_turn(kube_lease *l)
{
    uint64_t now = now_mono_ns();
    json_t *object = NULL;

    if (!l->until || now >= l->until)
        TRY(kubernetes_kube_lease_look(l));
    enum kube_lease_act act = kube_lease_decide(&l->seen, l->identity, now_mono_ns());
    if (act == KUBE_LEASE_WAIT) {
        kube_lease_publish(l, 0);
        return NULL;
    }
    now = now_mono_ns();
    err *e = kube_lease_send(l, act, l->identity, l->o.duration_ms, &object);
    if (e && e->code == ERR_CONFLICT) { /* another was faster, or our write's answer was lost */
        err_free(e);
        TRY(kubernetes_kube_lease_look(l));
        if (!str_eq(l->seen.holder, l->identity))
            kube_lease_publish(l, 0);
        return NULL;
    }
    TRY(e);
    kube_lease_keep(l, object);
    kube_lease_publish(l, now + l->o.renew_ms * NS_PER_MS);
    return NULL;
}

static bool kube_lease_rest(kube_lease *l)
{
    uint32_t random = 0;

    random_bytes(&random, sizeof random);
    LOCK_SCOPE(&l->lock);
    unsigned ms = l->o.retry_ms;
    if (!l->until) /* candidates try at different times */
        ms += random % (ms + ms / 5 + 1);
    uint64_t until = now_mono_ns() + ms * NS_PER_MS;
    while (!l->stop && now_mono_ns() < until)
        cond_wait_until(&l->changed, &l->lock, until);
    return !l->stop;
}

static void give_back(kube_lease *l)
{
    if (kube_lease_held(l, NULL))
        err_drop(kube_lease_send(l, KUBE_LEASE_RENEW, "", 1000, NULL),
                 "a lease was not given back");
    kube_lease_publish(l, 0);
}

static void *kube_lease_run(void *arg)
{
    kube_lease *l = arg;

    do {
        kube_lease_note(l, kube_lease_turn(l));
        if (l->until && now_mono_ns() >= l->until)
            kube_lease_publish(l, 0);
    } while (kube_lease_rest(l));
    give_back(l);
    LOCK_SCOPE(&l->lock);
    l->ended = true;
    pthread_cond_broadcast(&l->changed);
    return NULL;
}

kube_lease *kube_lease_new(kube *k, const kube_lease_options *o)
{
    kube_lease *l = xcalloc(1, sizeof *l);

    l->k = k;
    l->o = *o;
    l->ns = xstrdup(o->ns);
    l->name = xstrdup(o->name);
    l->identity = xstrdup(o->identity);
    l->path = kube_path(&KUBE_LEASES, o->ns, o->name, NULL);
    l->o.duration_ms = o->duration_ms ? o->duration_ms : KUBE_LEASE_MS;
    l->o.renew_ms = o->renew_ms ? o->renew_ms : KUBE_LEASE_RENEW_MS;
    l->o.retry_ms = o->retry_ms ? o->retry_ms : KUBE_LEASE_RETRY_MS;
    pthread_mutex_init(&l->lock, NULL);
    cond_init(&l->changed);
    l->thread = thread_start("kube-lease", kube_lease_run, l);
    return l;
}

void kube_lease_leave(kube_lease *l)
{
    uint64_t until = now_mono_ns() + LEAVE_NS;

    LOCK_SCOPE(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->changed);
    while (!l->ended && now_mono_ns() < until)
        cond_wait_until(&l->changed, &l->lock, until);
}

void kube_lease_free(kube_lease *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    json_decref(l->object);
    err_free(l->trouble);
    free(l->holder);
    free(l->ns);
    free(l->name);
    free(l->identity);
    free(l->path);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

#include "operator/operator_run.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "backend/kubernetes/kube_watch.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "base/thread.h"
#include "operator/names.h"

#define DELETE_GRACE_S (-1) /* the pod's own grace period */

typedef struct run_watch {
    operator_run *run;
    enum operator_kind kind;
    kube_watcher *watcher;
} run_watch;

struct operator_run {
    kube *k;
    kube_operator *op;
    run_watch watch[OPERATOR_KINDS];
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t woken;
    bool wake, stop;
};

/* ---- the API ---- */

static err *api_get(void *arg, const char *path, json_t **ret_object)
{
    return kube_get(arg, path, ret_object);
}

static err *api_create(void *arg, const char *path, const json_t *object, json_t **ret_object)
{
    return kube_create(arg, path, object, ret_object);
}

static err *api_patch(void *arg, const char *path, enum operator_patch how, const json_t *patch)
{
    if (how == OPERATOR_APPLY)
        return kube_apply(arg, path, OPERATOR_MANAGER, true, patch, NULL);
    CLEANUP(buf_done) buf full = {0};
    buf_str(&full, path);
    kube_query(&full, "fieldManager", OPERATOR_MANAGER);
    return kube_patch(arg, buf_cstr(&full), KUBE_PATCH_MERGE, patch, NULL);
}

static err *api_remove(void *arg, const char *path, const char *uid)
{
    return kube_delete(arg, path, uid, DELETE_GRACE_S, NULL);
}

static const operator_api API = {api_get, api_create, api_patch, api_remove};

/* ---- watches ---- */

static void on_there(void *arg, const char *uid, const json_t *object)
{
    run_watch *w = arg;

    operator_saw(w->run->op, w->kind, uid, object);
}

static void on_gone(void *arg, const char *uid, const json_t *object)
{
    run_watch *w = arg;

    operator_lost(w->run->op, w->kind, uid, object);
}

static void on_synced(void *arg)
{
    run_watch *w = arg;

    operator_synced(w->run->op, w->kind);
}

static const kube_watch_events EVENTS = {on_there, on_gone, on_synced};

static const kube_resource RESOURCES[OPERATOR_KINDS] = {
    [OPERATOR_TEMPLATE] = {OPERATOR_GROUP, "v1alpha1", "sandboxtemplates"},
    [OPERATOR_POOL] = {OPERATOR_GROUP, "v1alpha1", "sandboxpools"},
    [OPERATOR_SANDBOX] = {OPERATOR_GROUP, "v1alpha1", "sandboxes"},
    [OPERATOR_POD] = {"", "v1", "pods"},
    [OPERATOR_NODE] = {"", "v1", "nodes"},
};

static void operator_run_watch(operator_run *r, const operator_run_options *o,
                               enum operator_kind kind)
{
    bool everywhere = kind == OPERATOR_TEMPLATE || kind == OPERATOR_NODE;
    CLEANUP(freep)
    char *path = kube_path(&RESOURCES[kind], everywhere ? NULL : o->namespace, NULL, NULL);
    CLEANUP(freep) char *labels = str_printf(LABEL_CELL "=%s", o->cell);
    run_watch *w = &r->watch[kind];

    *w = (run_watch){.run = r, .kind = kind};
    w->watcher =
        kube_watcher_new(r->k, &(kube_watch_options){.path = path,
                                                     .labels = kind == OPERATOR_POD ? labels : NULL,
                                                     .events = &EVENTS,
                                                     .arg = w});
}

/* ---- the thread ---- */

static void operator_run_wake(void *arg)
{
    operator_run *r = arg;
    LOCK_SCOPE(&r->lock);

    r->wake = true;
    pthread_cond_signal(&r->woken);
}

/* Waits until something is due. Returns false if the operator is stopping. */
static bool operator_run_rest(operator_run *r, uint64_t until)
{
    LOCK_SCOPE(&r->lock);

    while (!r->wake && !r->stop)
        if (!cond_wait_until(&r->woken, &r->lock, until))
            break;
    r->wake = false;
    return !r->stop;
}

static void *operator_run_work(void *arg)
{
    operator_run *r = arg;

    while (operator_run_rest(r, operator_step(r->op)))
        ;
    return NULL;
}

/* ---- start and end ---- */

operator_run *operator_run_new(const operator_run_options *o)
{
    operator_run *r = xcalloc(1, sizeof *r);
    operator_options op = {.api = &API,
                           .api_arg = o->k,
                           .host = o->host,
                           .host_arg = o->host_arg,
                           .clock = &CLOCK_SYSTEM,
                           .wake = operator_run_wake,
                           .wake_arg = r,
                           .namespace = o->namespace,
                           .cell = o->cell,
                           .bothy_image = o->bothy_image,
                           .image_volume = o->image_volume,
                           .disk = o->disk,
                           .shm_mib = o->shm_mib,
                           .instance = o->instance,
                           .policy = o->policy,
                           .records = o->records};

    memcpy(op.record_key, o->record_key, sizeof op.record_key);
    r->k = o->k;
    pthread_mutex_init(&r->lock, NULL);
    cond_init(&r->woken);
    r->op = operator_new(&op);
    secret_wipe(op.record_key, sizeof op.record_key);
    operator_build_walls(r->op);
    for (int i = 0; i < OPERATOR_KINDS; i++)
        operator_run_watch(r, o, (enum operator_kind)i);
    r->thread = thread_start("operator", operator_run_work, r);
    return r;
}

kube_operator *operator_run_operator(operator_run *r)
{
    return r->op;
}

err *operator_run_trouble(operator_run *r)
{
    for (int i = 0; i < OPERATOR_KINDS; i++) {
        err *e = kube_watcher_trouble(r->watch[i].watcher);
        if (e)
            return err_wrap(e, "%s", RESOURCES[i].plural);
    }
    return NULL;
}

void operator_run_free(operator_run *r)
{
    if (!r)
        return;
    for (int i = 0; i < OPERATOR_KINDS; i++)
        kube_watcher_free(r->watch[i].watcher);
    {
        LOCK_SCOPE(&r->lock);
        r->stop = true;
        pthread_cond_signal(&r->woken);
    }
    pthread_join(r->thread, NULL);
    operator_free(r->op);
    pthread_cond_destroy(&r->woken);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

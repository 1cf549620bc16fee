/* The operator's object cache and reconcile queue. */
#include "operator/operator.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "operator/operator_internal.h"

uint64_t op_now(const kube_operator *op)
{
    return clock_mono(op->o.clock);
}

uint64_t op_real(const kube_operator *op)
{
    return clock_real(op->o.clock);
}

bool op_held(const kube_operator *op)
{
    return op->o.host->held(op->o.host_arg);
}

/* ---- the queue ---- */

/* Returns true if the key is due sooner than any other was. */
static bool add_locked(kube_operator *op, uint64_t due, const char *fmt, va_list ap)
{
    char key[QUEUE_KEY_MAX + 1];
    uint64_t before = queue_next(&op->queue);

    vsnprintf(key, sizeof key, fmt, ap);
    queue_add(&op->queue, key, due);
    return !before || queue_next(&op->queue) < before;
}

void op_add_locked(kube_operator *op, uint64_t due, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    bool sooner = add_locked(op, due, fmt, ap);
    va_end(ap);
    if (sooner && op->o.wake)
        op->o.wake(op->o.wake_arg);
}

void op_add(kube_operator *op, uint64_t due, const char *fmt, ...)
{
    va_list ap;
    bool sooner;

    va_start(ap, fmt);
    {
        LOCK_SCOPE(&op->lock);
        sooner = add_locked(op, due, fmt, ap);
    }
    va_end(ap);
    if (sooner && op->o.wake)
        op->o.wake(op->o.wake_arg);
}

/* ---- objects ---- */

static void seen_free(seen *s)
{
    switch (s->kind) {
    case OPERATOR_TEMPLATE:
        crd_template_done(&s->template);
        break;
    case OPERATOR_POOL:
        crd_pool_done(&s->pool);
        break;
    case OPERATOR_SANDBOX:
        crd_sandbox_done(&s->sandbox);
        break;
    case OPERATOR_POD:
        pod_view_done(&s->pod);
        break;
    default:
        break;
    }
    free(s->uid);
    free(s->name);
    free(s->error);
    free(s);
}

static void unref_locked(seen *s)
{
    if (s && --s->refs == 0)
        seen_free(s);
}

void seen_unref(kube_operator *op, seen *s)
{
    LOCK_SCOPE(&op->lock);
    unref_locked(s);
}

static err *read_node(const json_t *j, seen *s)
{
    const json_t *all = json_object_get(json_object_get(j, "status"), "conditions");

    s->node.unschedulable = json_flag(json_object_get(j, "spec"), "unschedulable");
    for (size_t i = 0; i < json_array_size(all); i++)
        if (str_eq(json_str(json_array_get(all, i), "type"), "Ready"))
            s->node.ready = str_eq(json_str(json_array_get(all, i), "status"), "True");
    return NULL;
}

static err *read_object(const json_t *j, seen *s)
{
    switch (s->kind) {
    case OPERATOR_TEMPLATE:
        TRY(crd_template_decode(j, &s->template));
        return crd_template_check(&s->template);
    case OPERATOR_POOL:
        TRY(crd_pool_decode(j, &s->pool));
        return crd_pool_check(&s->pool);
    case OPERATOR_SANDBOX:
        TRY(crd_sandbox_decode(j, &s->sandbox));
        return crd_sandbox_check(&s->sandbox);
    case OPERATOR_POD:
        return pod_view_decode(j, &s->pod);
    default:
        return read_node(j, s);
    }
}

/* Makes the cached copy of an object. An invalid object is kept with its name and error, because
 * its users must report the error. */
static seen *seen_new(enum operator_kind kind, const char *uid, const json_t *j)
{
    seen *s = xcalloc(1, sizeof *s);
    const char *name = json_str(json_object_get(j, "metadata"), "name");

    *s = (seen){.refs = 1, .kind = kind, .uid = xstrdup(uid), .name = xstrdup(str_or(name, ""))};
    err *e = read_object(j, s);
    if (e)
        s->error = xstrdup(e->message);
    err_free(e);
    if (kind == OPERATOR_POOL)
        label_of_name(s->name, s->label);
    return s;
}

seen *op_find(kube_operator *op, enum operator_kind kind, const char *uid)
{
    LOCK_SCOPE(&op->lock);
    seen *s = map_get_str(&op->objects[kind], uid);

    if (s)
        s->refs++;
    return s;
}

seen *op_find_name_locked(kube_operator *op, enum operator_kind kind, const char *name)
{
    static const enum index_by BY[OPERATOR_KINDS] = {[OPERATOR_TEMPLATE] = TEMPLATES_BY_NAME,
                                                     [OPERATOR_POOL] = POOLS_BY_NAME,
                                                     [OPERATOR_NODE] = NODES_BY_NAME};
    assert(kind != OPERATOR_SANDBOX && kind != OPERATOR_POD);
    const seen_list *l = index_find(&op->index, BY[kind], name);

    return l->n ? l->v[l->n - 1] : NULL;
}

seen *op_find_name(kube_operator *op, enum operator_kind kind, const char *name)
{
    LOCK_SCOPE(&op->lock);
    seen *s = op_find_name_locked(op, kind, name);

    if (s)
        s->refs++;
    return s;
}

seen **op_pods_of(kube_operator *op, const char *pool, size_t *ret_n)
{
    LOCK_SCOPE(&op->lock);
    const seen_list *l = index_find(&op->index, PODS_BY_POOL, pool);
    seen **all = xcalloc(l->n + 1, sizeof(void *));

    for (size_t i = 0; i < l->n; i++) {
        all[i] = l->v[i];
        all[i]->refs++;
    }
    *ret_n = l->n;
    return all;
}

bool op_is_crowded(const kube_operator *op)
{
    return op->objects[OPERATOR_SANDBOX].count > OPERATOR_OBJECTS_MAX / 2;
}

/* ---- tracks ---- */

static void *track_of(map *m, const char *uid, size_t size)
{
    void *t = map_get_str(m, uid);

    if (!t) {
        t = xcalloc(1, size);
        map_put_str(m, uid, t);
    }
    return t;
}

pod_track *op_pod_track(kube_operator *op, const char *uid)
{
    pod_track *t = track_of(&op->pods, uid, sizeof *t);

    if (!t->seen_ns)
        t->seen_ns = op_now(op);
    return t;
}

pool_track *op_pool_track(kube_operator *op, const char *uid)
{
    pool_track *t = track_of(&op->pools, uid, sizeof *t);

    if (!t->since_ns)
        t->since_ns = op_now(op);
    return t;
}

sandbox_track *op_sandbox_track(kube_operator *op, const char *uid)
{
    return track_of(&op->sandboxes, uid, sizeof(sandbox_track));
}

record_track *op_record_track(kube_operator *op, const char *id)
{
    record_track *t = track_of(&op->records, id, sizeof *t);

    if (!t->since_ns)
        t->since_ns = op_now(op);
    return t;
}

/* Lock held. */
static void pool_track_free(pool_track *t)
{
    static const pool_counts NONE = {0};

    if (!t)
        return;
    t->lost = true;
    if (t->looks)
        return;
    count_pool(&NONE, 0, &t->counts, t->pending);
    pool_memory_done(&t->memory);
    free(t->coming);
    free(t);
}

pool_track *op_pool_track_hold(kube_operator *op, const char *uid)
{
    LOCK_SCOPE(&op->lock);
    pool_track *t = op_pool_track(op, uid);

    t->looks++;
    return t;
}

void op_pool_track_drop(kube_operator *op, pool_track *t)
{
    LOCK_SCOPE(&op->lock);

    if (t && !--t->looks && t->lost)
        pool_track_free(t);
}

static void sandbox_track_free(sandbox_track *t)
{
    if (!t)
        return;
    free(t->refused);
    free(t->pod_uid);
    free(t);
}

static void drop_track(kube_operator *op, enum operator_kind kind, const char *uid)
{
    if (kind == OPERATOR_POD)
        free(map_take_str(&op->pods, uid));
    if (kind == OPERATOR_TEMPLATE)
        free(map_take_str(&op->templates, uid));
    if (kind == OPERATOR_POOL)
        pool_track_free(map_take_str(&op->pools, uid));
    if (kind == OPERATOR_SANDBOX)
        sandbox_track_free(map_take_str(&op->sandboxes, uid));
}

/* ---- which keys an event affects ---- */

static void concern_all(kube_operator *op, enum index_by by, const char *key, const char *prefix,
                        uint64_t due)
{
    const seen_list *l = index_find(&op->index, by, key);

    for (size_t i = 0; i < l->n; i++)
        op_add_locked(op, due, "%s/%s", prefix, l->v[i]->uid);
}

/* Enqueues the pools with this label. A reconcile takes as long as the pool has pods, so
 * events of a large pool share one. */
static void concern_pool(kube_operator *op, const char *label, uint64_t now)
{
    size_t n = index_find(&op->index, PODS_BY_POOL, label)->n;

    concern_all(op, POOLS_BY_LABEL, label, "pool",
                n < POOL_LARGE ? now : now + n * POOL_LOOK_NS_PER_POD);
}

static void concern_template(kube_operator *op, const seen *t, uint64_t now)
{
    op_add_locked(op, now, "template/%s", t->uid);
    concern_all(op, POOLS_BY_TEMPLATE, t->name, "pool", now);
    concern_all(op, SANDBOXES_BY_TEMPLATE, t->name, "sandbox", now);
}

static void concern_sandbox_of(kube_operator *op, const pod_view *p, uint64_t now)
{
    const char *id = pod_label(p, LABEL_SANDBOX);
    const char *uid = id ? map_get_str(&op->by_id, id) : NULL;

    if (uid)
        op_add_locked(op, now, "sandbox/%s", uid);
    else if (id && op->o.records && map_get_str(&op->records, id))
        op_add_locked(op, now, "record/%s", id);
}

static void concern_node(kube_operator *op, const char *node, uint64_t now)
{
    const seen_list *l = index_find(&op->index, PODS_BY_NODE, node);

    for (size_t i = 0; i < l->n; i++) {
        op_add_locked(op, now, "pod/%s", l->v[i]->uid);
        concern_sandbox_of(op, &l->v[i]->pod, now);
    }
}

/* Returns true if the spec is unchanged: some cell wrote the status. */
static bool is_same_spec(const seen *a, const seen *b)
{
    return a && !a->error && !b->error &&
           a->template.meta.generation == b->template.meta.generation;
}

/* Enqueues all keys that a change of s affects. before: the object it replaces, or NULL. */
static void operator_concern(kube_operator *op, const seen *s, const seen *before)
{
    uint64_t now = op_now(op);

    switch (s->kind) {
    case OPERATOR_TEMPLATE:
        if (is_same_spec(before, s))
            op_add_locked(op, now, "template/%s", s->uid);
        else
            concern_template(op, s, now);
        break;
    case OPERATOR_POOL:
        op_add_locked(op, now, "pool/%s", s->uid);
        concern_all(op, TEMPLATES_BY_NAME, s->pool.spec.template, "template", now);
        /* Sandboxes that wait for a pod of the pool are reconciled when anything happens to it. */
        concern_all(op, SANDBOXES_WAITING, s->name, "sandbox", now);
        break;
    case OPERATOR_SANDBOX:
        op_add_locked(op, now, "sandbox/%s", s->uid);
        break;
    case OPERATOR_POD:
        op_pod_track(op, s->uid);
        op_add_locked(op, now, "pod/%s", s->uid);
        concern_pool(op, pod_label(&s->pod, LABEL_POOL), now);
        concern_sandbox_of(op, &s->pod, now);
        break;
    default:
        concern_node(op, s->name, now);
        break;
    }
}

/* ---- reports of the watches ---- */

/* Indexes a Sandbox by the id in its status, which can be trusted:
 * only the operator writes statuses. */
static void index_id(kube_operator *op, const seen *s)
{
    const char *id = s->sandbox.status.id;

    if (s->kind == OPERATOR_SANDBOX && id && id_is_sandbox(id))
        free(map_put_str(&op->by_id, id, xstrdup(s->uid)));
}

void operator_saw(kube_operator *op, enum operator_kind kind, const char *uid, const json_t *object)
{
    seen *s = seen_new(kind, uid, object);
    LOCK_SCOPE(&op->lock);
    map *all = &op->objects[kind];

    if (all->count >= OPERATOR_OBJECTS_MAX && !map_get_str(all, uid)) {
        log_warn("operator", "%s is left alone: there are too many", s->name);
        unref_locked(s);
        return;
    }
    seen *old = map_put_str(all, uid, s);
    index_take(&op->index, old);
    index_put(&op->index, s);
    index_id(op, s);
    operator_concern(op, s, old);
    unref_locked(old);
}

void operator_lost(kube_operator *op, enum operator_kind kind, const char *uid,
                   const json_t *object)
{
    seen *s;

    {
        LOCK_SCOPE(&op->lock);
        s = map_take_str(&op->objects[kind], uid);
        index_take(&op->index, s);
        if (s && kind == OPERATOR_SANDBOX && s->sandbox.status.id)
            free(map_take_str(&op->by_id, s->sandbox.status.id));
    }
    if (kind == OPERATOR_POD && object) { /* its last state counts */
        seen *last = seen_new(kind, uid, object);
        pod_gone(op, last);
        seen_unref(op, last);
    } else if (kind == OPERATOR_POD && s) {
        pod_gone(op, s);
    }
    LOCK_SCOPE(&op->lock);
    if (s)
        operator_concern(op, s, NULL);
    drop_track(op, kind, uid);
    unref_locked(s);
}

void operator_synced(kube_operator *op, enum operator_kind kind)
{
    LOCK_SCOPE(&op->lock);

    op->synced[kind] = true;
    op_add_locked(op, op_now(op), "sweep");
}

static bool is_synced(kube_operator *op)
{
    LOCK_SCOPE(&op->lock);

    /* The Node watch is optional: RBAC may forbid it. */
    for (int i = 0; i < OPERATOR_KINDS; i++)
        if (!op->synced[i] && i != OPERATOR_NODE)
            return false;
    return true;
}

/* ---- events ---- */

#define RETRY_FIRST_S 1u
#define RETRY_MOST_S  60u

void operator_created(kube_operator *op, const char *object_uid, const char *id, err *failure)
{
    LOCK_SCOPE(&op->lock);
    sandbox_track *t = op_sandbox_track(op, object_uid);
    unsigned wait = RETRY_FIRST_S;

    t->claiming = false;
    free(t->refused);
    t->refused = NULL;
    if (!failure) {
        str_copy(t->id, sizeof t->id, id);
        t->tries = 0;
        free(map_put_str(&op->by_id, id, xstrdup(object_uid)));
    } else {
        for (unsigned i = 0; i < t->tries && wait < RETRY_MOST_S; i++)
            wait *= 2;
        t->tries++;
        t->refused = str_printf("%s%s%s", failure->message, failure->cause ? ": " : "",
                                str_or(failure->cause, ""));
        t->retry_ns = op_real(op) + (wait < RETRY_MOST_S ? wait : RETRY_MOST_S) * NS_PER_S;
    }
    op_add_locked(op, op_now(op), "sandbox/%s", object_uid);
    err_free(failure);
}

static void count_claim(pool_track *t, const char *class)
{
    if (!class)
        t->failed++;
    else if (!strcmp(class, "exact"))
        t->exact++;
    else if (!strcmp(class, "kubelet"))
        t->kubelet++;
    else
        t->cold++;
}

void operator_claimed(kube_operator *op, const char *pool, const char *class)
{
    LOCK_SCOPE(&op->lock);
    const seen_list *l = index_find(&op->index, POOLS_BY_LABEL, pool);

    for (size_t i = 0; i < l->n; i++) {
        pool_track *t = op_pool_track(op, l->v[i]->uid);
        demand_claimed(&t->demand, op_now(op));
        t->claimed_real_ns = op_real(op);
        count_claim(t, class);
    }
    concern_pool(op, pool, op_now(op));
}

void operator_placed(kube_operator *op, const char *id, const char *pool)
{
    LOCK_SCOPE(&op->lock);

    if (!op->o.records || map_get_str(&op->by_id, id))
        return;
    record_track *t = op_record_track(op, id);
    t->placed = true;
    str_copy(t->pool, sizeof t->pool, pool);
    op_add_locked(op, op_now(op), "record/%s", id);
}

void operator_sandbox_changed(kube_operator *op, const char *id)
{
    LOCK_SCOPE(&op->lock);
    const char *uid = map_get_str(&op->by_id, id);

    if (uid)
        op_add_locked(op, op_now(op), "sandbox/%s", uid);
    else if (op->o.records)
        op_add_locked(op, op_now(op), "record/%s", id);
}

void operator_pod_changed(kube_operator *op, const char *pod_uid)
{
    LOCK_SCOPE(&op->lock);
    const seen *s = map_get_str(&op->objects[OPERATOR_POD], pod_uid);

    if (!s)
        return;
    op_add_locked(op, op_now(op), "pod/%s", pod_uid);
    concern_pool(op, pod_label(&s->pod, LABEL_POOL), op_now(op));
}

void operator_wanted(kube_operator *op, const char *id)
{
    LOCK_SCOPE(&op->lock);
    const char *uid = map_get_str(&op->by_id, id);

    if (!uid)
        return;
    op_sandbox_track(op, uid)->wanted = true;
    op_add_locked(op, op_now(op), "sandbox/%s", uid);
}

bool operator_keeps(kube_operator *op, const char *id)
{
    LOCK_SCOPE(&op->lock);
    const char *uid = map_get_str(&op->by_id, id);
    const seen *s = uid ? map_get_str(&op->objects[OPERATOR_SANDBOX], uid) : NULL;

    return s && !s->error && s->sandbox.status.volume && !s->sandbox.meta.deleting_ns &&
           s->sandbox.status.phase != PHASE_TERMINATED;
}

/* Lock held. */
static const crd_template *template_of(kube_operator *op, const crd_sandbox *x)
{
    const seen *p = op_find_name_locked(op, OPERATOR_POOL, x->spec.pool);
    const char *name = p ? p->pool.spec.template : x->spec.template;
    const seen *t = op_find_name_locked(op, OPERATOR_TEMPLATE, name);

    return t && !t->error ? &t->template : NULL;
}

bool operator_idle(kube_operator *op, const char *id)
{
    LOCK_SCOPE(&op->lock);
    const char *uid = map_get_str(&op->by_id, id);
    const seen *s = uid ? map_get_str(&op->objects[OPERATOR_SANDBOX], uid) : NULL;
    const crd_template *t = s ? template_of(op, &s->sandbox) : NULL;
    bool disk = s && (s->sandbox.status.volume || (t && t->spec.workspace.path));

    if (!s || s->error || !disk)
        return false;
    if (!t && !s->sandbox.spec.has_idle)
        return true; /* its template is gone, and the idle time with it: it stays awake */
    if (!sandbox_idle_ms(&s->sandbox, t))
        return false;
    op_add_locked(op, op_now(op), "sandbox/%s", uid);
    return true;
}

static void concern_all_pools(kube_operator *op)
{
    map_iter it = {0};

    while (map_next(&op->objects[OPERATOR_POOL], &it))
        op_add_locked(op, op_now(op), "pool/%s", ((const seen *)it.entry->value)->uid);
}

void operator_policy_found(kube_operator *op, enum policy_state s)
{
    LOCK_SCOPE(&op->lock);

    if (op->policy == s || op->policy == POLICY_VOUCHED)
        return;
    op->policy = s;
    concern_all_pools(op);
}

enum policy_state operator_policy(kube_operator *op)
{
    LOCK_SCOPE(&op->lock);
    return op->policy;
}

/* ---- the work ---- */

static const struct {
    const char *prefix;
    enum operator_work work;
    err *(*look)(kube_operator *op, const char *what, uint64_t *again);
} LOOKS[] = {
    {"template/", WORK_TEMPLATE, reconcile_template},
    {"pool/", WORK_POOL, reconcile_pool},
    {"pod/", WORK_POD, reconcile_pod},
    {"sandbox/", WORK_SANDBOX, reconcile_sandbox},
    {"record/", WORK_RECORD, reconcile_record},
    {"sweep", WORK_SWEEP, reconcile_sweep},
};

static err *operator_operator_look(kube_operator *op, const char *key, uint64_t *again)
{
    uint64_t began = op_now(op);

    for (size_t i = 0; i < ARRAY_LEN(LOOKS); i++)
        if (str_starts(key, LOOKS[i].prefix)) {
            err *e = LOOKS[i].look(op, key + strlen(LOOKS[i].prefix), again);
            count_look(LOOKS[i].work, e, op_now(op) - began);
            return e;
        }
    return NULL;
}

/* Requeues or forgets a key after its reconcile. Logs a failure, unless the API server is away
 * or the object changed meanwhile. */
static void operator_finish(kube_operator *op, const char *key, err *failure, uint64_t again)
{
    if (failure && failure->code != ERR_UNAVAILABLE && failure->code != ERR_CONFLICT)
        log_warn("operator", "%s: %s%s%s", key, failure->message, failure->cause ? ": " : "",
                 str_or(failure->cause, ""));
    {
        LOCK_SCOPE(&op->lock);
        if (failure)
            queue_failed(&op->queue, key, op_now(op));
        else
            queue_succeeded(&op->queue, key);
        if (!failure && again)
            queue_add(&op->queue, key, again);
    }
    err_free(failure);
}

static uint64_t operator_sooner(uint64_t a, uint64_t b)
{
    return !a || (b && b < a) ? b : a;
}

/* Lock held. */
static void count_all(kube_operator *op)
{
    count_waiting(queue_waiting(&op->queue));
    for (int i = 0; i < OPERATOR_KINDS; i++)
        count_objects(i, op->objects[i].count);
}

uint64_t operator_step(kube_operator *op)
{
    char key[QUEUE_KEY_MAX + 1];
    uint64_t walls = step_walls(op);

    count_leading(op_held(op));
    if (!is_synced(op))
        return operator_sooner(walls, op_now(op) + UNHELD_NS);
    for (;;) {
        {
            LOCK_SCOPE(&op->lock);
            bool is_due = queue_take(&op->queue, op_now(op), key);
            if (!is_due)
                count_all(op);
            if (!is_due)
                return operator_sooner(walls, queue_next(&op->queue));
        }
        uint64_t again = 0;
        log_ids_clear(); /* the engine's log ids: each reconcile has other ones */
        if (!op_held(op)) {
            op_add(op, op_now(op) + UNHELD_NS, "%s", key);
            continue;
        }
        err *failure = operator_operator_look(op, key, &again);
        operator_finish(op, key, failure, again);
    }
}

/* ---- start and end ---- */

kube_operator *operator_new(const operator_options *o)
{
    kube_operator *op = xcalloc(1, sizeof *op);

    op->o = *o;
    op->namespace = xstrdup(o->namespace);
    op->cell = xstrdup(o->cell);
    op->bothy_image = xstrdup(o->bothy_image);
    op->instance = xstrdup(str_or(o->instance, OPERATOR_MANAGER));
    op->manifest = (manifest_options){.cell = op->cell,
                                      .bothy_image = op->bothy_image,
                                      .image_volume = o->image_volume,
                                      .disk = o->disk,
                                      .shm_mib = o->shm_mib};
    op->policy = o->policy;
    pthread_mutex_init(&op->lock, NULL);
    operator_metrics_init();
    return op;
}

static void free_values(map *m, void (*done)(void *value))
{
    map_iter it = {0};

    while (map_next(m, &it))
        done(it.entry->value);
    map_done(m);
}

static void free_seen(void *s)
{
    unref_locked(s);
}

static void free_pool(void *t)
{
    pool_track_free(t);
}

static void free_sandbox(void *t)
{
    sandbox_track_free(t);
}

void operator_free(kube_operator *op)
{
    if (!op)
        return;
    index_done(&op->index);
    for (int i = 0; i < OPERATOR_KINDS; i++)
        free_values(&op->objects[i], free_seen);
    free_values(&op->pods, free);
    free_values(&op->pools, free_pool);
    free_values(&op->sandboxes, free_sandbox);
    free_values(&op->templates, free);
    free_values(&op->records, free);
    free_values(&op->by_id, free);
    free_values(&op->events, free);
    free_values(&op->idle_disks, free);
    free_values(&op->nodes_silent, free);
    free_values(&op->nodes_draining, free);
    queue_done(&op->queue);
    pthread_mutex_destroy(&op->lock);
    secret_wipe(op->o.record_key, sizeof op->o.record_key);
    free(op->namespace);
    free(op->cell);
    free(op->bothy_image);
    free(op->instance);
    free(op);
}

void operator_look_done(operator_look *l)
{
    free(l->cause);
    free(l->cause_message);
    free(l->owner);
    free(l->image);
    free(l->class);
    free(l->box);
    strv_free(l->labels);
    *l = (operator_look){0};
}

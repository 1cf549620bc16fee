/* Which pool a create takes its pod from. */
#include <string.h>

#include "base/str.h"
#include "base/thread.h"
#include "operator/operator_internal.h"

/* A template's limits are what its pods have: less would not be kept, more not be had. */
static bool fits(const kube_operator *op, const operator_wish *w, const crd_template *t)
{
    const manifest_options *o = &op->manifest;
    bool open = t->spec.network.egress != EGRESS_NONE;

    return (!w->memory || w->memory == t->spec.memory) &&
           (!w->disk || w->disk == template_disk(&t->spec, o)) &&
           (!w->cpu_milli || w->cpu_milli == t->spec.cpu_milli) &&
           (!w->shm_mib || w->shm_mib == o->shm_mib) && w->network == open;
}

const char *op_owner_of(const kube_operator *op, const crd_sandbox *s)
{
    return s->spec.tenant && *s->spec.tenant ? s->spec.tenant : op->namespace;
}

static bool is_granted(const kube_operator *op, const crd_template *t, const crd_pool *p,
                       const char *owner)
{
    err *e = template_grant_check(t, p, op->namespace, owner);
    bool granted = !e;

    err_free(e);
    return granted;
}

/* 2: pods of it are just that; 1: they become it; 0: no. */
static int match(const kube_operator *op, const operator_wish *w, const crd_pool *p,
                 const crd_template *t)
{
    if (p->meta.deleting_ns || !is_granted(op, t, p, w->owner) || !fits(op, w, t))
        return 0;
    if (!p->spec.any_image)
        return str_eq(t->spec.image, w->image) ? 2 : 0;
    err *e = template_image_check(&t->spec, w->image);
    bool allowed = !e;
    err_free(e);
    return allowed ? 1 : 0;
}

/* A pod that is made for one sandbox runs that one's image from the first; NULL: the template's. */
static const char *asked(const operator_wish *w)
{
    return w->image && *w->image ? w->image : NULL;
}

static void fill(kube_operator *op, const seen *pool, const crd_template *t, const operator_wish *w,
                 operator_source *ret)
{
    const crd_pool *p = &pool->pool;
    const pod_identity who = {.name = "",
                              .namespace = op->namespace,
                              .pool = p->meta.name,
                              .image = p->spec.any_image ? asked(w) : NULL};
    json_t *pod = manifest_pod(t, p->spec.any_image, &op->manifest, &who);
    char applied[HASH_TEXT_LEN + 1];

    *ret = (operator_source){.any_image = p->spec.any_image,
                             .most = p->spec.max_sandboxes,
                             .open = t->spec.network.egress != EGRESS_NONE,
                             .walled = t->spec.network.egress != EGRESS_ALL};
    label_of_name(p->meta.name, ret->pool);
    template_hash(t, p->spec.any_image, &op->manifest, ret->hash);
    op_applied_of(p, ret->hash, applied);
    ret->built = !strcmp(applied, op_pool_track(op, pool->uid)->applied);
    /* A pod that is made for one sandbox has no volume that was made for it. */
    if (!t->spec.workspace.path)
        ret->pod_spec = json_incref(json_object_get(pod, "spec"));
    json_decref(pod);
}

/* A pod of its own as the template has it, whose walls reconcile_sandbox() has built. narrow:
 * without a network, whatever the template gives. Policies only add to each other, so that one must
 * not have the hash of the others; the label `none` is its wall. */
static void fill_alone(kube_operator *op, const crd_template *t, const operator_wish *w,
                       bool narrow, operator_source *ret)
{
    const pod_identity who = {.name = "", .namespace = op->namespace, .image = asked(w)};
    crd_template is = *t; /* borrows everything */

    if (narrow)
        is.spec.network = (network_spec){.egress = EGRESS_NONE};
    json_t *pod = manifest_pod(&is, false, &op->manifest, &who);
    bool none = is.spec.network.egress == EGRESS_NONE;
    *ret = (operator_source){.pod_spec = json_incref(json_object_get(pod, "spec")),
                             .open = !none,
                             .walled = is.spec.network.egress != EGRESS_ALL,
                             .built = !none || op->none_built};
    template_hash(&is, false, &op->manifest, ret->hash);
    json_decref(pod);
}

/* No pool is called so: a pod on somebody's disk is nobody else's, and is not kept ready. */
#define POOL_OF_SLEEPERS "0_woken"

/* A pod of its own on the disk it had, with the image it had; whichever pool it came from. */
static bool source_of_sleeper(kube_operator *op, const operator_wish *w, operator_source *ret)
{
    const char *uid = map_get_str(&op->by_id, w->waking);
    const seen *s = uid ? map_get_str(&op->objects[OPERATOR_SANDBOX], uid) : NULL;
    const seen *p = s ? op_find_name_locked(op, OPERATOR_POOL, s->sandbox.spec.pool) : NULL;
    const char *name = p ? p->pool.spec.template : s ? s->sandbox.spec.template : NULL;
    const seen *t = op_find_name_locked(op, OPERATOR_TEMPLATE, name);

    if (!s || !t || t->error || !s->sandbox.status.volume ||
        !is_granted(op, &t->template, p ? &p->pool : NULL, op_owner_of(op, &s->sandbox)))
        return false;
    const pod_identity who = {.name = "",
                              .namespace = op->namespace,
                              .image = asked(w),
                              .volume = s->sandbox.status.volume};
    json_t *pod = manifest_pod(&t->template, false, &op->manifest, &who);
    *ret = (operator_source){.pod_spec = json_incref(json_object_get(pod, "spec")),
                             .open = t->template.spec.network.egress != EGRESS_NONE,
                             .walled = t->template.spec.network.egress != EGRESS_ALL,
                             .built = true}; /* before it is woken */
    template_hash(&t->template, false, &op->manifest, ret->hash);
    str_copy(ret->pool, sizeof ret->pool, POOL_OF_SLEEPERS);
    json_decref(pod);
    return true;
}

/* A pool's pods have what its template gives; one that is to have less gets a pod of its own. So
 * does one of a template alone. */
static bool is_alone(const seen *object, const seen *pool, const seen *template)
{
    bool narrow =
        object->sandbox.spec.has_egress && template->template.spec.network.egress != EGRESS_NONE;

    return (!pool || narrow) && !template->template.spec.workspace.path;
}

/* Of an image alone: there is no template whose word counts. */
static bool names_nothing(const crd_sandbox *s)
{
    return !(s->spec.pool && *s->spec.pool) && !(s->spec.template && *s->spec.template);
}

/* The object, not the request, says whose pool is taken. An object that names a pool or a
 * template has its pods or none: without them it would have another's limits and walls. */
static bool source_of_object(kube_operator *op, const operator_wish *w, operator_source *ret)
{
    const seen *s = map_get_str(&op->objects[OPERATOR_SANDBOX], w->object_uid);
    const seen *p = s ? op_find_name_locked(op, OPERATOR_POOL, s->sandbox.spec.pool) : NULL;
    const char *name = p ? p->pool.spec.template : s ? s->sandbox.spec.template : NULL;
    const seen *t = op_find_name_locked(op, OPERATOR_TEMPLATE, name);

    if (s && names_nothing(&s->sandbox))
        return false;
    ret->refused = true;
    if (!s || !t || t->error || (p && p->error) ||
        !is_granted(op, &t->template, p ? &p->pool : NULL, op_owner_of(op, &s->sandbox)))
        return false;
    if (is_alone(s, p, t))
        fill_alone(op, &t->template, w, s->sandbox.spec.has_egress, ret);
    else if (p)
        fill(op, p, &t->template, w, ret);
    return p || is_alone(s, p, t);
}

bool operator_source_of(kube_operator *op, const operator_wish *w, operator_source *ret_source)
{
    LOCK_SCOPE(&op->lock);
    map_iter it = {0};
    const seen *best = NULL;
    int how = 0;

    *ret_source = (operator_source){0};
    if (w->waking)
        return source_of_sleeper(op, w, ret_source);
    if (w->object_uid)
        return source_of_object(op, w, ret_source);
    while (map_next(&op->objects[OPERATOR_POOL], &it)) {
        const seen *s = it.entry->value;
        const seen *t = op_find_name_locked(op, OPERATOR_TEMPLATE, s->pool.spec.template);
        int m = !s->error && t && !t->error ? match(op, w, &s->pool, &t->template) : 0;
        if (m > how || (best && m == how && strcmp(s->name, best->name) < 0))
            best = s, how = m;
    }
    if (!best)
        return false;
    fill(op, best, &op_find_name_locked(op, OPERATOR_TEMPLATE, best->pool.spec.template)->template,
         w, ret_source);
    return true;
}

/* Decides which pool a create takes its pod from. */
#include <string.h>

#include "base/str.h"
#include "base/thread.h"
#include "operator/operator_internal.h"

/* Returns whether the template's limits, which its pods have, are those asked for. Lower limits
 * would not be enforced, higher ones not be provided. */
static bool source_fits(const kube_operator *op, const operator_wish *w, const crd_template *t)
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

/* Returns 2 if the pool's pods run the image already, 1 if they can take
 * it at the claim, 0 if neither. */
static int source_match(const kube_operator *op, const operator_wish *w, const crd_pool *p,
                        const crd_template *t)
{
    if (p->meta.deleting_ns || !is_granted(op, t, p, w->owner) || !source_fits(op, w, t))
        return 0;
    if (!p->spec.any_image)
        return str_eq(t->spec.image, w->image) ? 2 : 0;
    err *e = template_image_check(&t->spec, w->image);
    bool allowed = !e;
    err_free(e);
    return allowed ? 1 : 0;
}

/* Returns the image of a pod made for one sandbox; NULL: the template's. */
static const char *source_asked(const operator_wish *w)
{
    return w->image && *w->image ? w->image : NULL;
}

static void source_fill(kube_operator *op, const seen *pool, const crd_template *t,
                        const operator_wish *w, operator_source *ret)
{
    const crd_pool *p = &pool->pool;
    const pod_identity who = {.name = "",
                              .namespace = op->namespace,
                              .pool = p->meta.name,
                              .image = p->spec.any_image ? source_asked(w) : NULL};
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
    /* No volume is made for the pod of one sandbox, so a template with
     * a workspace gives no such pod. */
    if (!t->spec.workspace.path)
        ret->pod_spec = json_incref(json_object_get(pod, "spec"));
    json_decref(pod);
}

/* Fills in a pod of its own from the template. reconcile_sandbox() has built its NetworkPolicy.
 * narrow: without a network, even if the template gives one. Policies only add up, so a narrowed
 * pod must not have the hash of the others; the policy for the label `none` isolates it. */
static void fill_alone(kube_operator *op, const crd_template *t, const operator_wish *w,
                       bool narrow, operator_source *ret)
{
    const pod_identity who = {.name = "", .namespace = op->namespace, .image = source_asked(w)};
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

/* A name that no pool can have: a pod on a sandbox's old disk is for that
 * sandbox only, never for a warm pool. */
#define POOL_OF_SLEEPERS "0_woken"

/* Fills in a pod for a hibernated sandbox, with the disk and the image it
 * had, whichever pool it came from. */
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
                              .image = source_asked(w),
                              .volume = s->sandbox.status.volume};
    json_t *pod = manifest_pod(&t->template, false, &op->manifest, &who);
    *ret = (operator_source){.pod_spec = json_incref(json_object_get(pod, "spec")),
                             .open = t->template.spec.network.egress != EGRESS_NONE,
                             .walled = t->template.spec.network.egress != EGRESS_ALL,
                             .built = true}; /* reconcile_sandbox() builds it before the resume */
    template_hash(&t->template, false, &op->manifest, ret->hash);
    str_copy(ret->pool, sizeof ret->pool, POOL_OF_SLEEPERS);
    json_decref(pod);
    return true;
}

/* Returns whether the sandbox needs a pod of its own: it names only a template, or it wants less
 * network than the pool's pods have. */
static bool is_alone(const seen *object, const seen *pool, const seen *template)
{
    bool narrow =
        object->sandbox.spec.has_egress && template->template.spec.network.egress != EGRESS_NONE;

    return (!pool || narrow) && !template->template.spec.workspace.path;
}

/* Returns whether the object names only an image, so that no template restricts it. */
static bool names_nothing(const crd_sandbox *s)
{
    return !(s->spec.pool && *s->spec.pool) && !(s->spec.template && *s->spec.template);
}

/* Finds the source for a Sandbox object. The object decides which pool is used, not the
 * request. An object that names a pool or template gets a pod of that or none: another's would
 * have other limits and NetworkPolicies. */
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
        source_fill(op, p, &t->template, w, ret);
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
        int m = !s->error && t && !t->error ? source_match(op, w, &s->pool, &t->template) : 0;
        if (m > how || (best && m == how && strcmp(s->name, best->name) < 0))
            best = s, how = m;
    }
    if (!best)
        return false;
    source_fill(op, best,
                &op_find_name_locked(op, OPERATOR_TEMPLATE, best->pool.spec.template)->template, w,
                ret_source);
    return true;
}

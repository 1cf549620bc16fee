/* Reconciles pods that are claimed, or seem to be: carries out what plan_pod() orders.
 * The backend holds the stream to init and does most of the work; here is only the
 * part that needs the API server. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "operator/operator_internal.h"

#define RECORD_LATE_NS UINT64_C(5000000000) /* for the claim's own write of the labels */

uint64_t op_mono_of(const kube_operator *op, uint64_t real_ns)
{
    uint64_t real = op_real(op), now = op_now(op);

    if (!real_ns)
        return 0;
    if (real_ns >= real)
        return now + (real_ns - real);
    return now > real - real_ns ? now - (real - real_ns) : 1;
}

seen *op_pod_of(kube_operator *op, const char *id)
{
    LOCK_SCOPE(&op->lock);
    const seen_list *l = index_find(&op->index, PODS_BY_SANDBOX, id);

    if (l->n)
        l->v[0]->refs++;
    return l->n ? l->v[0] : NULL;
}

bool op_node_draining(kube_operator *op, const char *node)
{
    LOCK_SCOPE(&op->lock);
    const seen *s = op_find_name_locked(op, OPERATOR_NODE, node);

    return s && s->node.unschedulable;
}

/* Returns since when `is` has been true of the node, by this operator's
 * clock; 0 if it is false. Lock held. */
static uint64_t since_when(kube_operator *op, map *nodes, const char *node, bool is)
{
    uint64_t *at = node ? map_get_str(nodes, node) : NULL;

    if (!is || !node) {
        if (at)
            free(map_take_str(nodes, node));
        return 0;
    }
    if (!at) {
        at = xcalloc(1, sizeof *at);
        *at = op_now(op);
        map_put_str(nodes, node, at);
    }
    return *at;
}

/* Returns since when the node does not answer; 0 if it does or is unknown. */
static uint64_t node_silent(kube_operator *op, const char *node)
{
    LOCK_SCOPE(&op->lock);
    const seen *s = op_find_name_locked(op, OPERATOR_NODE, node);

    return since_when(op, &op->nodes_silent, node, s && !s->node.ready);
}

static uint64_t node_draining(kube_operator *op, const char *node)
{
    LOCK_SCOPE(&op->lock);
    const seen *s = op_find_name_locked(op, OPERATOR_NODE, node);

    return since_when(op, &op->nodes_draining, node, s && s->node.unschedulable);
}

/* Returns the drainAfter of the pod's pool; 0: never. */
static uint64_t drain_after_ns(kube_operator *op, const pod_view *p)
{
    LOCK_SCOPE(&op->lock);
    const seen_list *l = index_find(&op->index, POOLS_BY_LABEL, pod_label(p, LABEL_POOL));

    return l->n && !l->v[0]->error ? l->v[0]->pool.spec.drain_after_ms * NS_PER_MS : 0;
}

static bool is_hibernatable(kube_operator *op, const pod_view *p, const char *id)
{
    LOCK_SCOPE(&op->lock);
    return p->volume && id && map_get_str(&op->by_id, id);
}

static claim_world world_of(kube_operator *op, const seen *s, const operator_look *l, bool known,
                            const char *id)
{
    claim_world w = {.pod = &s->pod,
                     .init = op->o.host->init(op->o.host_arg, s->uid),
                     .claim = id,
                     .known = !known || l->life != LIFE_ENDED,
                     .told = true,
                     .node_silent_ns = node_silent(op, s->pod.node),
                     .draining_ns = node_draining(op, s->pod.node),
                     .drain_after_ns = drain_after_ns(op, &s->pod),
                     .hibernatable = is_hibernatable(op, &s->pod, id),
                     .now = op_now(op)};

    if (known && l->life == LIFE_ENDED)
        w.ended_ns = op_mono_of(op, l->ends_ns ? l->ends_ns : op_real(op));
    w.active_ns = w.recorded_ns = op_mono_of(op, l->active_ns);
    LOCK_SCOPE(&op->lock);
    pod_track *t = op_pod_track(op, s->uid);
    if (!t->claimed_ns && (w.init == INIT_CLAIMED || pod_is_claimed(&s->pod)))
        t->claimed_ns = w.now;
    w.claimed_ns = t->claimed_ns;
    return w;
}

static err *delete_pod(kube_operator *op, const seen *s)
{
    CLEANUP(freep) char *path = op_path(op, API_CORE, "pods", s->name, NULL);

    TRY(op_remove(op, path, s->uid));
    LOCK_SCOPE(&op->lock);
    op_pod_track(op, s->uid)->going_ns = op_now(op);
    return NULL;
}

static err *write_record(kube_operator *op, const seen *s, const char *id)
{
    CLEANUP(freep) char *path = op_path(op, API_CORE, "pods", s->name, NULL);
    CLEANUP(json_decrefp)
    json_t *patch = json_pack("{s:{s:s, s:{s:s, s:s}, s:{s:s}}}", "metadata", "uid", s->uid,
                              "labels", LABEL_STATE, STATE_CLAIMED, LABEL_SANDBOX, id,
                              "annotations", NOTE_SAFE_TO_EVICT, "false");

    return op_merge(op, path, patch);
}

/* Ends the sandbox if it is still in this pod: a reset or a resume gives it another one. */
static err *reconcile_pod_finish(kube_operator *op, const seen *s, const char *id, bool current,
                                 const pod_orders *o)
{
    const event_about about = {"Pod", s->name, s->uid};

    if (current)
        op_event(op, &about, true, "SandboxEnded", "Reconcile", "%s: %s", o->cause,
                 str_or(o->message, ""));
    /* The backend reports the end of a container to the engine, with more detail. */
    bool over = s->pod.phase == POD_FAILED || s->pod.phase == POD_SUCCEEDED;
    if (current && !over)
        err_drop(op->o.host->end(op->o.host_arg, id, o->cause, o->message), "a sandbox's end");
    return s->pod.meta.deleting_ns ? NULL : delete_pod(op, s);
}

/* current: the engine has the pod's sandbox under this id, in this pod. */
static err *reconcile_pod_execute(kube_operator *op, const seen *s, const char *id, bool current,
                                  const claim_world *w, const pod_orders *o, uint64_t *again)
{
    const event_about about = {"Pod", s->name, s->uid};

    *again = o->again_ns ? o->again_ns : 0;
    switch (o->act) {
    case POD_ACT_RECORD:
        if (!id || w->now < w->claimed_ns + RECORD_LATE_NS) {
            *again = w->claimed_ns + RECORD_LATE_NS;
            return NULL;
        }
        return write_record(op, s, id);
    case POD_ACT_CORRECT:
        op_event(op, &about, true, "ClaimCorrected", "Reconcile",
                 "its label named another sandbox than its init");
        return write_record(op, s, id);
    case POD_ACT_STOP:
        if (w->known)
            return op->o.host->end(op->o.host_arg, id, "internal", "nobody has heard of its claim");
        return delete_pod(op, s);
    case POD_ACT_FINISH:
        return reconcile_pod_finish(op, s, id, current, o);
    case POD_ACT_DELETE:
        return delete_pod(op, s);
    default:
        return NULL;
    }
}

err *reconcile_pod(kube_operator *op, const char *uid, uint64_t *again)
{
    CLEANUP(operator_look_done) operator_look l = {0};
    seen *s = op_find(op, OPERATOR_POD, uid);

    if (!s)
        return NULL;
    const char *id = s->error ? NULL : pod_label(&s->pod, LABEL_SANDBOX);
    bool claimed = !s->error && pod_is_claimed(&s->pod);
    bool known = id && op->o.host->look(op->o.host_arg, id, &l);
    /* Leaves a sandbox that is hibernated, or being created or resumed, to plan_sandbox(), which
     * also deletes the old pod of a hibernated one. */
    bool left = known && (l.life == LIFE_ASLEEP || l.life == LIFE_BEING_MADE);
    err *e = NULL;
    /* A box that was reset has a name the engine does not find. The
     * backend sweeps orphaned boxes. */
    if (!left &&
        (claimed || (!s->error && op->o.host->init(op->o.host_arg, uid) == INIT_CLAIMED))) {
        claim_world w = world_of(op, s, &l, known, id);
        pod_orders o = plan_pod(&w);
        e = reconcile_pod_execute(op, s, id, known && !l.box, &w, &o, again);
        if (!*again)
            *again = op_now(op) + POD_LOOK_NS;
    }
    seen_unref(op, s);
    return e;
}

/* Hibernates the sandbox of a deleted pod if it has a disk. The backend
 * reports other ends to the engine. */
void pod_gone(kube_operator *op, const seen *s)
{
    CLEANUP(operator_look_done) operator_look l = {0};
    const char *id = s->error ? NULL : pod_label(&s->pod, LABEL_SANDBOX);

    if (!id || !pod_is_claimed(&s->pod))
        return;
    bool known = op->o.host->look(op->o.host_arg, id, &l);
    claim_world w = world_of(op, s, &l, known, id);
    w.gone = true;
    w.init = INIT_CLAIMED;
    pod_orders o = plan_pod(&w);
    if (o.act == POD_ACT_HIBERNATED && known && l.life == LIFE_LIVE)
        err_drop(op->o.host->hibernate(op->o.host_arg, id), "a sandbox whose pod is gone");
    operator_sandbox_changed(op, id);
}

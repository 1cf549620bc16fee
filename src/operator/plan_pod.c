/* Plans one claimed pod (plan_pod.h). */
#include "operator/plan_pod.h"

#include <string.h>

#include "base/str.h"
#include "operator/names.h"
#include "operator/plan_pool_internal.h"

const char *const POD_ACT_NAMES[POD_ACTS] = {
    [POD_ACT_NONE] = "none",
    [POD_ACT_OFFER] = "offer",
    [POD_ACT_RECORD] = "record",
    [POD_ACT_CORRECT] = "correct",
    [POD_ACT_REFRESH] = "refresh",
    [POD_ACT_STOP] = "stop",
    [POD_ACT_ASK] = "ask",
    [POD_ACT_FINISH] = "finish",
    [POD_ACT_HIBERNATED] = "hibernated",
    [POD_ACT_DELETE] = "delete",
};

static uint64_t plan_pod_since(uint64_t then, uint64_t now)
{
    return now > then ? now - then : 0;
}

static pod_orders plan_pod_order(enum pod_act act)
{
    return (pod_orders){.act = act};
}

static pod_orders wait_until(uint64_t at)
{
    return (pod_orders){.again_ns = at};
}

const char *pod_end_cause(const pod_view *p)
{
    if (str_eq(p->end_reason, "OOMKilled"))
        return "oom";
    if (str_eq(p->reason, "Evicted") || str_eq(p->reason, "Preempting"))
        return "evicted";
    if (p->phase == POD_LOST || str_eq(p->reason, "NodeLost") || str_eq(p->reason, "NodeShutdown"))
        return "node_lost";
    if (pod_trouble(p) == TROUBLE_IMAGE)
        return "image_pull";
    if (!p->has_end)
        return "unknown";
    return p->exit_code > 128 ? "killed" : "exited";
}

static pod_orders plan_pod_finish(const claim_world *w, const char *cause, const char *message)
{
    return (pod_orders){
        .act = POD_ACT_FINISH, .cause = cause, .message = message, .keep_volume = w->hibernatable};
}

/* Plans for a deleted pod. A sandbox with a disk hibernates, unless it ended by itself. */
static pod_orders plan_pod_gone(const claim_world *w)
{
    const pod_view *p = w->pod;
    bool by_itself = p->phase == POD_FAILED || p->phase == POD_SUCCEEDED;
    const char *cause = by_itself ? pod_end_cause(p) : "deleted";

    if (w->init != INIT_CLAIMED && !pod_is_claimed(p))
        return plan_pod_order(POD_ACT_NONE); /* the pool's plan replaces it */
    if (w->ended_ns)
        return plan_pod_order(POD_ACT_NONE);
    if (w->hibernatable && (!by_itself || !strcmp(cause, "evicted") || !strcmp(cause, "node_lost")))
        return (pod_orders){.act = POD_ACT_HIBERNATED, .cause = cause, .message = p->message};
    return plan_pod_finish(w, cause, p->message);
}

/* Plans for a pod whose node is silent. No other node may mount its volume before the pod is known
 * to be gone, so a sandbox with a disk waits for that without a limit. */
static pod_orders node_lost(const claim_world *w)
{
    if (plan_pod_since(w->node_silent_ns, w->now) <= POD_NODE_NS)
        return wait_until(w->node_silent_ns + POD_NODE_NS + 1);
    if (w->hibernatable)
        return (pod_orders){.act = w->pod->meta.deleting_ns ? POD_ACT_NONE : POD_ACT_DELETE,
                            .keep_volume = true};
    return plan_pod_finish(w, "node_lost", "its node does not answer");
}

/* Returns whether drainAfter applies. A sandbox with a disk hibernates
 * instead, by its Sandbox's plan. */
static bool is_drained(const claim_world *w)
{
    return w->draining_ns && w->drain_after_ns && !w->hibernatable;
}

/* Returns when drainAfter is over. It counts from the claim if the node was cordoned before. */
static uint64_t drain_due(const claim_world *w)
{
    uint64_t since = w->draining_ns > w->claimed_ns ? w->draining_ns : w->claimed_ns;

    return since + w->drain_after_ns;
}

static pod_orders plan_pod_drain(const claim_world *w)
{
    return plan_pod_finish(w, "evicted", "its node is drained, and drainAfter of its pool is over");
}

static pod_orders plan_pod_suspect(const claim_world *w)
{
    uint64_t silent = w->silent_ns ? plan_pod_since(w->silent_ns, w->now) : 0;

    if (w->failed_dials < POD_SUSPECT)
        return plan_pod_order(POD_ACT_NONE);
    if (!w->asked_another_way)
        return plan_pod_order(POD_ACT_ASK);
    if (w->answered) /* it is alive; the stream will come back */
        return wait_until(w->now + POD_SUSPECT_NS);
    if (silent <= POD_SUSPECT_NS)
        return wait_until(w->silent_ns + POD_SUSPECT_NS + 1);
    return plan_pod_finish(w, "unknown", "nothing reaches its init any more");
}

static bool another_image(const claim_world *w)
{
    return w->wanted_digest && w->pod->image_id && *w->pod->image_id &&
           !strstr(w->pod->image_id, w->wanted_digest);
}

static pod_orders plan_pod_claimed(const claim_world *w)
{
    const char *record = pod_label(w->pod, LABEL_SANDBOX);
    uint64_t quiet = w->active_ns > w->claimed_ns ? w->active_ns : w->claimed_ns;

    /* The process that claimed it died before any caller got the sandbox. */
    if (!w->known || (!w->told && !w->active_ns)) {
        if (plan_pod_since(quiet, w->now) > POD_ORPHAN_NS)
            return plan_pod_order(POD_ACT_STOP);
        if (!w->known)
            return wait_until(quiet + POD_ORPHAN_NS + 1);
    }
    if (another_image(w))
        return plan_pod_finish(w, "image_mismatch",
                               "it runs another image than it was claimed for");
    if (!w->claim)
        return plan_pod_order(POD_ACT_NONE);
    if (!record || !pod_is_claimed(w->pod))
        return plan_pod_order(POD_ACT_RECORD);
    if (strcmp(record, w->claim) != 0)
        return plan_pod_order(POD_ACT_CORRECT);
    if (w->active_ns && plan_pod_since(w->recorded_ns, w->active_ns) > POD_REFRESH_NS)
        return plan_pod_order(POD_ACT_REFRESH);
    return plan_pod_order(POD_ACT_NONE);
}

/* Plans for a warm pod. If its label says claimed, the process that wrote it died before the claim,
 * and init is unused. The pod is deleted all the same, and not offered again. */
static pod_orders plan_pod_warm(const claim_world *w)
{
    if (!pod_is_claimed(w->pod))
        return plan_pod_order(POD_ACT_OFFER);
    return plan_pod_order(w->known ? POD_ACT_NONE : POD_ACT_DELETE);
}

static pod_orders plan_pod_decide(const claim_world *w)
{
    const pod_view *p = w->pod;
    bool ours = w->init == INIT_CLAIMED || pod_is_claimed(p);

    if (w->gone)
        return plan_pod_gone(w);
    if (ours && w->ended_ns) {
        if (plan_pod_since(w->ended_ns, w->now) <= POD_GRACE_NS)
            return wait_until(w->ended_ns + POD_GRACE_NS + 1);
        return (pod_orders){.act = p->meta.deleting_ns ? POD_ACT_NONE : POD_ACT_DELETE,
                            .keep_volume = false};
    }
    if (w->init == INIT_TAINTED)
        return ours ? plan_pod_finish(w, p->has_end ? pod_end_cause(p) : "killed",
                                      "its init is not the one that was claimed")
                    : plan_pod_order(POD_ACT_DELETE);
    if (ours && (p->phase == POD_FAILED || p->phase == POD_SUCCEEDED))
        return plan_pod_finish(w, pod_end_cause(p), p->message);
    if (ours && w->node_silent_ns)
        return node_lost(w);
    if (ours && is_drained(w) && w->now > drain_due(w))
        return plan_pod_drain(w);
    if (ours && (w->init == INIT_UNREACHABLE || w->init == INIT_UNKNOWN))
        return plan_pod_suspect(w);
    if (w->init == INIT_CLAIMED)
        return plan_pod_claimed(w);
    return w->init == INIT_WARM ? plan_pod_warm(w) : plan_pod_order(POD_ACT_NONE);
}

/* Plans one pod. It is reconciled again at the latest when drainAfter is over. */
pod_orders plan_pod(const claim_world *w)
{
    pod_orders o = plan_pod_decide(w);
    uint64_t then = drain_due(w) + 1;

    if (!o.act && is_drained(w) && then > w->now && (!o.again_ns || then < o.again_ns))
        o.again_ns = then;
    return o;
}

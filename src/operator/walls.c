/* Keeps the NetworkPolicy of pods without a network that no pool made, and decides whether a create
 * may rely on a policy. Neither needs the operator's own objects, so both work where the
 * definitions are not installed: the API makes such sandboxes there, too. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/thread.h"
#include "operator/operator_internal.h"

#define API_NETWORK   "apis/networking.k8s.io/v1"
#define WALL_RETRY_NS UINT64_C(2000000000)
#define WALL_LOOK_NS  UINT64_C(15000000000)
#define RETRY_AFTER_S 5

static void set_built(kube_operator *op, bool is)
{
    LOCK_SCOPE(&op->lock);
    op->none_built = is;
}

static char *policy_path(kube_operator *op, const json_t *policy)
{
    const char *name = json_str(json_object_get(policy, "metadata"), "name");

    return op_path(op, API_NETWORK, "networkpolicies", name, NULL);
}

/* Sets whether the policy exists as wanted: a user may have deleted or changed it. */
static err *policy_check(kube_operator *op, const json_t *policy, bool *ret_is)
{
    CLEANUP(freep) char *path = policy_path(op, policy);
    CLEANUP(json_decrefp) json_t *is = NULL;
    err *e = op->o.api->get(op->o.api_arg, path, &is);

    if (e && e->code != ERR_NOT_FOUND)
        return e;
    *ret_is = !e && network_is(is, policy);
    err_free(e);
    return NULL;
}

static err *policy_write(kube_operator *op, const json_t *policy)
{
    CLEANUP(freep) char *path = policy_path(op, policy);

    return op_apply(op, path, policy);
}

/* Checks first, because every apply changes a policy: it has empty lists, which close holes and
 * which the API server does not keep. Network plugins put each change into effect on every node. */
err *op_build_policy(kube_operator *op, const json_t *policy)
{
    bool is = false;

    TRY(policy_check(op, policy, &is));
    return is ? NULL : policy_write(op, policy);
}

static err *build_none(kube_operator *op)
{
    CLEANUP(json_decrefp) json_t *policy = manifest_no_network(&op->manifest, op->namespace);
    bool is = false;

    TRY(policy_check(op, policy, &is));
    if (!is) {
        set_built(op, false);
        TRY(policy_write(op, policy));
    }
    set_built(op, true);
    return NULL;
}

/* Checks the policy, and returns when to check again. While the API server is away, a policy
 * that was built counts as built. */
static uint64_t look_at_none(kube_operator *op)
{
    err *e = build_none(op);
    bool failed = e != NULL;

    if (e && e->code != ERR_UNAVAILABLE)
        log_warn("operator", "the wall of sandboxes without a network: %s", e->message);
    err_free(e);
    return op_now(op) + (failed ? WALL_RETRY_NS : WALL_LOOK_NS);
}

static uint64_t look_at_probe(kube_operator *op)
{
    uint64_t again = 0;
    err *e = reconcile_probe(op, &again);

    if (e && e->code != ERR_UNAVAILABLE)
        log_warn("operator", "the self-test of NetworkPolicies: %s", e->message);
    again = e ? op_now(op) + WALL_RETRY_NS : again;
    err_free(e);
    return again;
}

uint64_t step_walls(kube_operator *op)
{
    uint64_t now = op_now(op);
    bool tried = operator_policy(op) != POLICY_VOUCHED;

    if (!op_held(op))
        return now + UNHELD_NS;
    if (now >= op->none_next_ns)
        op->none_next_ns = look_at_none(op);
    if (tried && now >= op->probe_next_ns)
        op->probe_next_ns = look_at_probe(op);
    return tried && op->probe_next_ns < op->none_next_ns ? op->probe_next_ns : op->none_next_ns;
}

void operator_build_walls(kube_operator *op)
{
    if (op_held(op))
        op->none_next_ns = look_at_none(op);
}

/* ---- may a create rely on it? ---- */

/* again: a retry may succeed without any change by a user. */
static err *walls_fails(const char *why, bool again)
{
    err *e = err_new(ERR_WALL_FAILED, "the sandbox would reach what it must not");

    e->retryable = again;
    return err_remedy(
        err_because(e, "%s", why),
        "Let the cluster have a network plugin that enforces NetworkPolicies. Or ask for network "
        "'open', from a pool whose template has egress 'All'. Where something else holds sandboxes "
        "back, the administrator says so: kubernetes.policies: vouched.");
}

static err *not_yet(const char *what)
{
    return err_retry_after(err_new(ERR_UNAVAILABLE, "%s", what), RETRY_AFTER_S);
}

err *operator_wall(kube_operator *op, const operator_source *s)
{
    LOCK_SCOPE(&op->lock);

    if (s && !s->walled)
        return NULL;
    if (op->policy == POLICY_NOT_ENFORCED)
        return walls_fails("this cluster does not enforce NetworkPolicies: it was tried", false);
    if (op->policy == POLICY_UNKNOWN && op->probed)
        return walls_fails(
            "whether this cluster enforces NetworkPolicies could not be found out; the "
            "log has why, and it is tried again",
            true);
    if (op->policy == POLICY_UNKNOWN)
        return not_yet("whether this cluster enforces NetworkPolicies is being tried");
    if (s ? !s->built : !op->none_built)
        return not_yet("the NetworkPolicy of this sandbox is not there yet");
    return NULL;
}

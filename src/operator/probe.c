/* The self-test: finds out whether this cluster enforces NetworkPolicies. It runs three
 * small pods of bothy's image: a target, a pod that dials it under a policy that forbids
 * this, and a pod that dials it without a policy. A dial that gets any answer, even a
 * refusal, got through (`bothy-init reach`).
 *
 * Level-triggered like the rest of the operator: the next step depends on which of the
 * three pods exist, so a bothyd that starts in the middle continues. The pods carry
 * none of a sandbox pod's labels. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "operator/operator_internal.h"

#define PROBE_LABEL    "bothy.dev/probe"
#define PROBE_PORT     "9"  /* closed: a refusal is an answer */
#define PROBE_TIMES    "15" /* policies take effect a moment after a pod starts */
#define PROBE_LOOK_NS  UINT64_C(1000000000)
#define PROBE_LIMIT_NS UINT64_C(180000000000)  /* then the test ends without a result */
#define PROBE_AGAIN_NS UINT64_C(600000000000)  /* after "not enforced" */
#define PROBE_RETRY_NS UINT64_C(120000000000)  /* after no result */
#define PROBE_HOLDS_NS UINT64_C(3600000000000) /* after "enforced" */

enum probe_role {
    PROBE_TARGET,
    PROBE_FREE,
    PROBE_FORBIDDEN,
    PROBE_ROLES
};
static const char *const ROLES[PROBE_ROLES] = {"target", "free", "forbidden"};

static char *name_of(const kube_operator *op, enum probe_role r)
{
    return str_printf("bothy-probe-%s-%s", op->cell, ROLES[r]);
}

/* ---- the pods and the policy ---- */

static json_t *argv_of(enum probe_role r, const char *address)
{
    if (r == PROBE_TARGET)
        return json_pack("[s, s]", "/bothy-init", "serve");
    return json_pack("[s, s, s, s, s]", "/bothy-init", "reach", address, PROBE_PORT,
                     r == PROBE_FREE ? "1" : PROBE_TIMES);
}

/* Makes a pod that Pod Security's `restricted` allows, in case the namespace enforces it. */
static json_t *pod_of(const kube_operator *op, enum probe_role r, const char *address)
{
    CLEANUP(freep) char *name = name_of(op, r);
    json_t *container =
        json_pack("{s:s, s:s, s:s, s:o, s:{s:b, s:{s:[s]}}, s:{s:{s:s, s:s}, s:{s:s, s:s}}}",
                  "name", "probe", "image", op->bothy_image, "imagePullPolicy", "IfNotPresent",
                  "command", argv_of(r, address), "securityContext", "allowPrivilegeEscalation", 0,
                  "capabilities", "drop", "ALL", "resources", "requests", "cpu", "10m", "memory",
                  "8Mi", "limits", "cpu", "100m", "memory", "16Mi");

    return json_pack("{s:s, s:s, s:{s:s, s:s, s:{s:s}}, s:{s:s, s:i, s:b, s:b, s:s, s:{s:b, s:i, "
                     "s:{s:s}}, s:[o]}}",
                     "apiVersion", "v1", "kind", "Pod", "metadata", "name", name, "namespace",
                     op->namespace, "labels", PROBE_LABEL, ROLES[r], "spec", "restartPolicy",
                     "Never", "terminationGracePeriodSeconds", 1, "automountServiceAccountToken", 0,
                     "enableServiceLinks", 0, "dnsPolicy", "Default", "securityContext",
                     "runAsNonRoot", 1, "runAsUser", 1000, "seccompProfile", "type",
                     "RuntimeDefault", "containers", container);
}

static json_t *policy_of(const kube_operator *op)
{
    return json_pack("{s:s, s:s, s:{s:s, s:s}, s:{s:{s:{s:s}}, s:[s], s:[]}}", "apiVersion",
                     "networking.k8s.io/v1", "kind", "NetworkPolicy", "metadata", "name",
                     "bothy-probe", "namespace", op->namespace, "spec", "podSelector",
                     "matchLabels", PROBE_LABEL, ROLES[PROBE_FORBIDDEN], "policyTypes", "Egress",
                     "egress");
}

static err *probe_make(kube_operator *op, enum probe_role r, const char *address)
{
    CLEANUP(freep) char *path = op_path(op, API_CORE, "pods", NULL, NULL);
    CLEANUP(json_decrefp) json_t *pod = pod_of(op, r, address);
    err *e = op_create(op, path, pod);

    if (e && e->code == ERR_CONFLICT) { /* it exists already */
        err_free(e);
        return NULL;
    }
    return e;
}

static err *probe_clear(kube_operator *op)
{
    for (int i = 0; i < PROBE_ROLES; i++) {
        CLEANUP(freep) char *name = name_of(op, (enum probe_role)i);
        CLEANUP(freep) char *path = op_path(op, API_CORE, "pods", name, NULL);
        TRY(op_remove(op, path, NULL));
    }
    return NULL;
}

/* ---- reading the pods ---- */

typedef struct probe_pod {
    bool there, runs, ended;
    int exit_code;
    char *address;
} probe_pod;

static void read_pod(const json_t *pod, probe_pod *p)
{
    const json_t *status = json_object_get(pod, "status");
    const json_t *c = json_array_get(json_object_get(status, "containerStatuses"), 0);
    const json_t *state = json_object_get(c, "state");
    const json_t *end = json_object_get(state, "terminated");
    const char *address = json_str(status, "podIP");

    p->there = true;
    p->runs = json_object_get(state, "running") != NULL;
    p->ended = end != NULL;
    p->exit_code = (int)json_int(end, "exitCode", -1);
    if (address && strlen(address) < 64)
        p->address = xstrdup(address);
}

static err *look_at(kube_operator *op, enum probe_role r, probe_pod *p)
{
    CLEANUP(freep) char *name = name_of(op, r);
    CLEANUP(freep) char *path = op_path(op, API_CORE, "pods", name, NULL);
    CLEANUP(json_decrefp) json_t *pod = NULL;
    err *e = op->o.api->get(op->o.api_arg, path, &pod);

    if (e && e->code == ERR_NOT_FOUND) {
        err_free(e);
        return NULL;
    }
    TRY(e);
    read_pod(pod, p);
    return NULL;
}

static enum dial_outcome probe_outcome(const probe_pod *p)
{
    if (!p->ended)
        return DIAL_NOT_TRIED;
    return p->exit_code == 0 ? DIAL_REACHED : p->exit_code == 3 ? DIAL_SILENT : DIAL_NOT_TRIED;
}

static void probe_tell(kube_operator *op, enum policy_state s)
{
    static const char *const TEXTS[] = {
        [POLICY_UNKNOWN] = "whether NetworkPolicies hold could not be found out",
        [POLICY_HOLDS] = "NetworkPolicies hold",
        [POLICY_NOT_ENFORCED] = "NetworkPolicies do not hold: sandboxes that need them are refused",
    };

    if (s == POLICY_HOLDS)
        log_info("operator", "%s", TEXTS[s]);
    else
        log_warn("operator", "%s", TEXTS[s]);
    /* A test without a result does not revoke an earlier result. */
    if (s != POLICY_UNKNOWN)
        operator_policy_found(op, s);
    LOCK_SCOPE(&op->lock);
    op->probed = true;
}

/* ---- the steps ---- */

/* Does the next step of the test. Sets *ret_over and *ret_state when the test has ended. */
static err *probe_step(kube_operator *op, const probe_pod pod[PROBE_ROLES], bool *ret_over,
                       enum policy_state *ret_state)
{
    const probe_pod *target = &pod[PROBE_TARGET];

    *ret_over = false;
    if (!target->there) {
        CLEANUP(json_decrefp) json_t *policy = policy_of(op);
        CLEANUP(freep)
        char *path =
            op_path(op, "apis/networking.k8s.io/v1", "networkpolicies", "bothy-probe", NULL);
        TRY(op_apply(op, path, policy));
        return probe_make(op, PROBE_TARGET, NULL);
    }
    if (target->ended) { /* unexpected: it should run until it is deleted */
        *ret_over = true;
        *ret_state = POLICY_UNKNOWN;
        return NULL;
    }
    if (!target->runs || !target->address)
        return NULL;
    if (!pod[PROBE_FREE].there)
        TRY(probe_make(op, PROBE_FREE, target->address));
    if (!pod[PROBE_FORBIDDEN].there)
        TRY(probe_make(op, PROBE_FORBIDDEN, target->address));
    if (!pod[PROBE_FREE].ended || !pod[PROBE_FORBIDDEN].ended)
        return NULL;
    *ret_over = true;
    *ret_state =
        policy_of_dials(probe_outcome(&pod[PROBE_FORBIDDEN]), probe_outcome(&pod[PROBE_FREE]));
    return NULL;
}

static err *probe_look(kube_operator *op, bool *ret_over, enum policy_state *ret_state)
{
    probe_pod pod[PROBE_ROLES] = {0};
    err *e = NULL;

    for (int i = 0; i < PROBE_ROLES && !e; i++)
        e = look_at(op, (enum probe_role)i, &pod[i]);
    if (!e)
        e = probe_step(op, pod, ret_over, ret_state);
    for (int i = 0; i < PROBE_ROLES; i++)
        free(pod[i].address);
    return e;
}

err *reconcile_probe(kube_operator *op, uint64_t *again)
{
    static const uint64_t NEXT[] = {[POLICY_UNKNOWN] = PROBE_RETRY_NS,
                                    [POLICY_HOLDS] = PROBE_HOLDS_NS,
                                    [POLICY_NOT_ENFORCED] = PROBE_AGAIN_NS};
    uint64_t now = op_now(op);
    bool over = false;
    enum policy_state found = POLICY_UNKNOWN;

    if (!op->probe_ns)
        op->probe_ns = now;
    TRY(probe_look(op, &over, &found));
    if (!over && now - op->probe_ns < PROBE_LIMIT_NS) {
        *again = now + PROBE_LOOK_NS;
        return NULL;
    }
    TRY(probe_clear(op));
    op->probe_ns = 0;
    probe_tell(op, found);
    *again = now + NEXT[found];
    return NULL;
}

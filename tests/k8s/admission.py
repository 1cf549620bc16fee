"""What a cluster refuses to bothyd: quotas, ranges, Pod Security. A refusal must be one that can be told from others."""
import copy

import definitions
from harness import check, equal, eventually
from kube import path_of, pod, thing

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
# What nobody may smuggle into a sandbox's pod: (where, value).
WIDER = [
    (("spec", "hostNetwork"), True), (("spec", "hostPID"), True), (("spec", "hostIPC"), True),
    (("spec", "securityContext", "runAsUser"), 0), (("spec", "securityContext", "seccompProfile", "type"), "Unconfined"),
    (("spec", "volumes"), [{"name": "host", "hostPath": {"path": "/"}}]),
    (("spec", "containers", 0, "securityContext"), {"privileged": True}), (("spec", "containers", 0, "securityContext", "allowPrivilegeEscalation"), True),
    (("spec", "containers", 0, "securityContext", "capabilities"), {"drop": ["ALL"], "add": ["SYS_ADMIN"]}),
    (("spec", "containers", 0, "securityContext", "capabilities"), {}), (("spec", "containers", 0, "ports"), [{"containerPort": 80, "hostPort": 80}]),
]


def with_value(made, where, value):
    changed = copy.deepcopy(made)
    at = changed
    for step in where[:-1]:
        at = at[step]
    at[where[-1]] = value
    return changed


def limited(made, **limits):
    return with_value(made, ("spec", "containers", 0, "resources"), {"limits": limits, "requests": limits})


def quota_counts(k, ns):
    """Whether it has counted: before, it refuses everything."""
    return k.get(f"/api/v1/namespaces/{ns}/resourcequotas/q").get("status", {}).get("used")


def cases(suite, k):
    definitions.install(k)

    @suite.case("admission: a quota that is used up answers 403 and names itself")
    def _():
        with k.namespace() as ns:
            k.apply(thing("ResourceQuota", "q", ns, {"hard": {"pods": "1"}}, "v1"))
            eventually("the quota counts", lambda: quota_counts(k, ns), 30, 0.1)
            k.ok("POST", f"/api/v1/namespaces/{ns}/pods", pod("one", ns))
            status, text = k.refused("POST", f"/api/v1/namespaces/{ns}/pods", pod("two", ns))
            check(status == 403 and "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1" in text, text)

    @suite.case("admission: a LimitRange gives limits to those without, and refuses what is beyond")
    def _():
        with k.namespace() as ns:
            k.apply(thing("LimitRange", "r", ns, {"limits": [{"type": "Container", "default": {"memory": "64Mi"}, "max": {"memory": "128Mi"}}]}, "v1"))
            path = f"/api/v1/namespaces/{ns}/pods?dryRun=All"
            made = eventually("the range counts", lambda: ranged(k, path, ns), 20, 0.1)
            equal(made["spec"]["containers"][0]["resources"]["limits"], {"memory": "64Mi"}, "limits")
            status, text = k.refused("POST", path, limited(pod("large", ns), memory="256Mi"))
            check(status == 403 and "maximum memory usage per Container is 128Mi" in text, text)

    @suite.case(f"admission: `restricted` takes a sandbox's pod and refuses {len(WIDER)} that want more")
    def _():
        with k.namespace(RESTRICTED) as ns:
            made = pod("p", ns, restricted=True)
            path = path_of(made, named=False) + "?dryRun=All"
            k.ok("POST", path, made)
            for where, value in WIDER:
                status, text = k.refused("POST", path, with_value(made, where, value))
                check(status == 403 and 'violates PodSecurity "restricted' in text, f"{where}: {text}")

    @suite.case("admission: a template has no way to say what would widen a pod")
    def _():
        for member in ("hostNetwork", "hostPID", "securityContext", "volumes", "serviceAccountName", "containers", "initContainers", "hostUsers"):
            made = thing("SandboxTemplate", "wide", spec={"image": "localhost/busybox:a", "podOverrides": {member: {}}})
            path = path_of(made, named=False) + "?dryRun=All"
            check(member not in k.ok("POST", path, made)["spec"]["podOverrides"], f"{member} was kept")
            status, text = k.refused("POST", path + "&fieldValidation=Strict", made)
            check(status == 400 and f'unknown field "spec.podOverrides.{member}"' in text, text)


def ranged(k, path, ns):
    made = k.ok("POST", path, pod("p", ns))
    return made if made["spec"]["containers"][0].get("resources", {}).get("limits") else None

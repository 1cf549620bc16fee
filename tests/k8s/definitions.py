"""SandboxTemplate, SandboxPool and Sandbox: what the API server itself takes, refuses, fills in and shows."""
import contextlib
import json
import secrets

from harness import TOP, check, equal, eventually
from kube import GROUP, MERGE, KubeError, path_of, thing

DEPLOY = TOP / "deploy" / "kubernetes"
IMAGE = "localhost/busybox:a"
LONG = "x" * 513

# (member, value, what the refusal says)
BAD_TEMPLATES = [
    ("image", "", "spec.image"), ("image", LONG, "spec.image"), ("image", "bad image name!!", "spec.image"), ("idleImage", "bad!", "spec.idleImage"),
    ("profile", "Root", "spec.profile"), ("runtimeClassName", "Not A Name", "spec.runtimeClassName"),
    ("resources", {"limits": {"cpu": "1x"}}, "is not a quantity"), ("resources", {"limits": {"memory": 0}}, "is not a quantity"),
    ("resources", {"limits": {"memory": "1Gi"}, "requests": {"memory": "2Gi"}}, "requests.memory is above its limit"),
    ("resources", {"limits": {"cpu": "500m"}, "requests": {"cpu": 1}}, "requests.cpu is above its limit"),
    ("resources", {"limits": {"ephemeral-storage": "1Gi"}, "requests": {"ephemeral-storage": "1025Mi"}}, "requests.ephemeral-storage is above"),
    ("env", [{"name": "A-B", "value": "1"}], "spec.env[0].name"), ("env", [{"name": "A"}, {"name": "A"}], "Duplicate value"),
    ("workspace", {"mountPath": "work", "size": "1Gi"}, "mountPath"), ("workspace", {"mountPath": "/a/../b", "size": "1Gi"}, "without '..'"),
    ("workspace", {"mountPath": "/", "size": "1Gi"}, "mountPath"), ("workspace", {"mountPath": "/.bothy", "size": "1Gi"}, "something of its own"),
    ("workspace", {"mountPath": "/proc/x", "size": "1Gi"}, "something of its own"), ("workspace", {"mountPath": "/work", "size": "big"}, "is not a quantity"),
    ("workspace", {"mountPath": "/work"}, "size"), ("workspace", {"mountPath": "/w", "size": "1Gi", "reclaim": "Keep"}, "reclaim"),
    ("network", {"egress": "Some"}, "egress"), ("network", {"egress": "Public", "allowCIDRs": ["10.0.0.0/8"]}, "egress List only"),
    ("network", {"egress": "List", "allowCIDRs": ["10.0.0.0/33"]}, "not address/bits"),
    ("timeouts", {"max": "0s"}, "nothing lives for ever"), ("timeouts", {"max": "31d"}, "above 30d"), ("timeouts", {"max": "721h"}, "above 30d"),
    ("timeouts", {"max": "1w"}, "timeouts.max"), ("timeouts", {"startup": "0m"}, "above 0"), ("timeouts", {"idle": "-1s"}, "timeouts.idle"),
    ("timeouts", {"startup": "2h"}, "above 1h"), ("timeouts", {"idle": "99999999d"}, "above 30d"),
    ("podOverrides", {"tolerations": [{"operator": "Nope"}]}, "operator"), ("podOverrides", {"tolerations": [{"key": "k", "effect": "Never"}]}, "effect"),
    ("podOverrides", {"priorityClassName": "bothy warm"}, "priorityClassName"),
    ("podOverrides", {"labels": {"bothy.dev/pool": "p"}}, "bothy's own"), ("podOverrides", {"labels": {"x.bothy.dev/y": "p"}}, "bothy's own"),
    ("podOverrides", {"annotations": {"bothy.dev/nonce": "00"}}, "bothy's own"),
    ("podOverrides", {"nodeSelector": {f"k{i}": "v" for i in range(33)}}, "nodeSelector"), ("allowedNamespaces", ["a", "a"], "Duplicate value"),
]
GOOD_TEMPLATES = [
    ("timeouts", {"max": "30d", "idle": "0s"}), ("resources", {"limits": {"cpu": 2, "memory": "512Mi"}, "requests": {"cpu": "2", "memory": "512Mi"}}),
    ("network", {"egress": "List", "allowCIDRs": ["10.0.0.0/8", "fd00::/8"]}), ("workspace", {"mountPath": "/workspace", "size": "5Gi"}),
    ("podOverrides", {"labels": {"notbothy.dev/x": "1", "team": "a"}, "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9}]}),
    ("image", "registry.example:5000/Team/x_y.z:1-a@sha256:" + "0" * 64), ("image", "[fd00::1]:5000/a"), ("idleImage", "a"), ("runtimeClassName", "kata.v2"),
    ("runtimeClassName", ""),
]
BAD_POOLS = [
    ("templateRef", "", "templateRef"), ("replicas", -1, "replicas"), ("replicas", 5001, "replicas"), ("maxSandboxes", 100001, "maxSandboxes"),
    ("autoscale", {}, "autoscale.max"), ("autoscale", {"min": 3, "max": 2}, "min is above max"), ("autoscale", {"max": 2, "idleAfter": "soon"}, "idleAfter"),
    ("update", {"strategy": "Sudden"}, "strategy"), ("update", {"maxUnavailable": 0}, "1 to 5000, or a percentage"),
    ("update", {"maxUnavailable": "101%"}, "1 to 5000, or a percentage"), ("update", {"maxUnavailable": "3"}, "1 to 5000, or a percentage"),
    ("prePull", {"images": ["a", "a"]}, "Duplicate value"), ("prePull", {"images": ["a b"]}, "prePull.images"), ("recordAfter", "now", "recordAfter"),
    ("recordAfter", "31d", "above 30d"), ("autoscale", {"max": 2, "idleAfter": "721h"}, "above 30d"), ("disruption", {"drainAfter": "31d"}, "above 30d"),
    ("tenant", "x" * 129, "tenant"),
]
BAD_SANDBOXES = [
    ({}, "must have poolRef, templateRef or image"), ({"poolRef": "p", "templateRef": "t"}, "one of poolRef and templateRef"),
    ({"poolRef": ""}, "poolRef"), ({"poolRef": "p", "desiredState": "Paused"}, "desiredState"), ({"poolRef": "p", "expiresAt": "tomorrow"}, "expiresAt"),
    ({"poolRef": "p", "idleSeconds": -1}, "idleSeconds"), ({"poolRef": "p", "network": {"egress": "All"}}, "egress"),
    ({"poolRef": "p", "labels": {"bothy.dev/sandbox": "x"}}, "bothy's own"), ({"poolRef": "p", "envFrom": [{"secretRef": {}}]}, "name"),
]
COLUMNS = {"sbt": ["NAME", "IMAGE", "PROFILE", "POOLS", "ACCEPTED", "AGE"],
           "sbp": ["NAME", "READY", "WARM", "CLAIMED", "PENDING", "FAILED", "TEMPLATE", "AGE"],
           "sbx": ["NAME", "PHASE", "POOL", "TENANT", "POD", "EXPIRES", "CAUSE", "AGE"]}


def install(k):
    """The definitions, served."""
    k.kubectl("apply", "-f", DEPLOY / "crds")
    eventually("the definitions are served", lambda: served(k), 30, 0.1)


def served(k):
    with contextlib.suppress(KubeError):
        return {r["name"] for r in k.get(GROUP)["resources"]} >= {"sandboxpools/scale", "sandboxpools/status", "sandboxes/status", "sandboxtemplates/status"}
    return False


def refusal(k, made):
    """What is said to it; nothing is made."""
    status, text = k.refused("POST", path_of(made, named=False) + "?dryRun=All", made)
    equal(status, 422, f"status ({text})")
    return text


def refused_all(k, base, rows):
    for member, value, said in rows:
        text = refusal(k, {**base, "spec": {**base["spec"], member: value}})
        check(said in text, f"{member}: {value!r} was refused by: {text}")


def unchangeable(k, made, member, value):
    status, text = k.refused("PATCH", path_of(made), {"spec": {member: value}}, MERGE)
    equal(status, 422, f"status of {member}")
    check("cannot be changed" in text, text)


def cases(suite, k):
    install(k)
    name = f"t-{secrets.token_hex(4)}"
    with k.namespace() as ns:
        template = thing("SandboxTemplate", name, spec={"image": IMAGE})
        pool = thing("SandboxPool", "p", ns, {"templateRef": name})
        sandbox = thing("Sandbox", "s", ns, {"poolRef": "p"})
        try:
            schema_cases(suite, k, template, pool, sandbox)
            people_cases(suite, k, ns, template, pool, sandbox)
        finally:
            k.call("DELETE", path_of(template))


def schema_cases(suite, k, template, pool, sandbox):
    @suite.case(f"definitions: {len(BAD_TEMPLATES)} templates that cannot be are refused, each by its own rule")
    def _():
        refused_all(k, template, BAD_TEMPLATES)
        for member, value in GOOD_TEMPLATES:
            k.ok("POST", path_of(template, named=False) + "?dryRun=All", {**template, "spec": {"image": IMAGE, member: value}})

    @suite.case(f"definitions: {len(BAD_POOLS)} pools that cannot be are refused")
    def _():
        refused_all(k, pool, BAD_POOLS)
        k.ok("POST", path_of(pool, named=False) + "?dryRun=All", {**pool, "spec": {"templateRef": "t", "update": {"maxUnavailable": 5000}}})

    @suite.case(f"definitions: {len(BAD_SANDBOXES)} sandboxes that cannot be are refused")
    def _():
        for spec, said in BAD_SANDBOXES:
            text = refusal(k, {**sandbox, "spec": spec})
            check(said in text, f"{spec} was refused by: {text}")

    @suite.case("definitions: what is not said gets its default")
    def _():
        spec = k.apply(template)["spec"]
        equal(spec, {"image": IMAGE, "profile": "Restricted", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}, "network": {"egress": "None", "allowDNS": True},
                     "timeouts": {"startup": "120s", "idle": "0s", "max": "24h"}}, "template")
        spec = k.apply(pool)["spec"]
        equal(spec, {"templateRef": template["metadata"]["name"], "replicas": 1, "maxSandboxes": 0, "anyImage": False, "tenant": "", "recordAfter": "0s",
                     "update": {"strategy": "Rolling", "maxUnavailable": "20%"}, "disruption": {"protectClaimed": True, "drainAfter": "0s"}}, "pool")
        equal(k.apply(sandbox)["spec"], {"poolRef": "p", "tenant": "", "desiredState": "Running"}, "sandbox")
        made = k.ok("POST", path_of(pool, named=False) + "?dryRun=All", thing("SandboxPool", "q", pool["metadata"]["namespace"], {"templateRef": "t", "autoscale": {"max": 9}}))
        equal(made["spec"]["autoscale"], {"min": 0, "max": 9, "headroomSeconds": 20, "idleAfter": "10m"}, "autoscale")

    @suite.case("definitions: what a sandbox and a pool are of cannot be changed")
    def _():
        for made in (template, pool, sandbox):
            k.apply(made)
        for member, value in (("anyImage", True), ("tenant", "x")):
            unchangeable(k, pool, member, value)
        for member, value in (("poolRef", "q"), ("poolRef", None), ("templateRef", "t"), ("image", "i"), ("tenant", "x")):
            unchangeable(k, sandbox, member, value)
        k.ok("PATCH", path_of(sandbox), {"spec": {"desiredState": "Hibernated", "expiresAt": "2030-01-01T00:00:00Z"}}, MERGE)

    @suite.case("definitions: spec and status are written apart, and a status is checked")
    def _():
        generation = k.apply(sandbox)["metadata"]["generation"]
        k.ok("PATCH", path_of(sandbox), {"status": {"phase": "Running"}}, MERGE)
        check("status" not in k.get(path_of(sandbox)), "a status came through the spec")
        now = k.ok("PATCH", path_of(sandbox) + "/status", {"status": {"phase": "Running"}, "spec": {"idleSeconds": 1}}, MERGE)
        equal((now["status"]["phase"], now["spec"].get("idleSeconds"), now["metadata"]["generation"]), ("Running", None, generation), "through the status")
        for bad in ({"phase": "Asleep"}, {"id": "short"}, {"cause": {"code": "boredom"}}, {"claimClass": "slow"}, {"conditions": [{"type": "Ready"}]}):
            equal(k.refused("PATCH", path_of(sandbox) + "/status", {"status": bad}, MERGE)[0], 422, f"status of {bad}")


def undescribed(schema, at):
    """Members at any depth that have no text for kubectl explain."""
    for name, member in schema.get("properties", {}).items():
        if not member.get("description"):
            yield f"{at}.{name}"
        for inner in (member, member.get("items"), member.get("additionalProperties")):
            if isinstance(inner, dict):
                yield from undescribed(inner, f"{at}.{name}")


def explains(k, path, text):
    """The server tells of the members a moment after it has the definition."""
    with contextlib.suppress(AssertionError):
        return text in k.kubectl("explain", path)
    return False


def people_cases(suite, k, ns, template, pool, sandbox):
    @suite.case("definitions: kubectl knows the short names and shows the columns")
    def _():
        for made in (template, pool, sandbox):
            k.apply(made)
        k.ok("PATCH", path_of(pool) + "/status", {"status": {"readyReplicas": 2, "claimedReplicas": 1, "conditions": [
            {"type": "Available", "status": "True", "reason": "PodsReady", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}, MERGE)
        for short, columns in COLUMNS.items():
            equal(k.kubectl("-n", ns, "get", short).splitlines()[0].split(), columns, short)
        equal(k.kubectl("-n", ns, "get", "sbp", "--no-headers").split()[:4], ["p", "True", "2", "1"], "row of the pool")
        eventually("explain has the description", lambda: explains(k, "sbp.spec.replicas", "Unclaimed pods wanted"), 30, 0.5)

    @suite.case("definitions: every field of a spec has a description")
    def _():
        found = []
        for plural in ("sandboxtemplates", "sandboxpools", "sandboxes"):
            schema = k.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.bothy.dev")["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            found += undescribed({"properties": {"spec": schema["properties"]["spec"]}}, plural)
        equal(found, [], "fields without a description")

    @suite.case("definitions: the column TROUBLE is empty while nothing is wrong")
    def _():
        k.apply(pool)
        healthy = {"type": "Degraded", "status": "False", "reason": "Healthy", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for reason in (None, "ImagePull", None):
            k.ok("PATCH", path_of(pool) + "/status", {"status": {"trouble": reason, "conditions": [healthy]}}, MERGE)
            words = k.kubectl("-n", ns, "get", "sbp", "-o", "wide").split()
            check("TROUBLE" in words and "Healthy" not in words and ("ImagePull" in words) == bool(reason), f"{reason}: {words}")

    @suite.case("definitions: kubectl scale works, and a controller's apply without replicas keeps it")
    def _():
        k.apply(pool)
        k.kubectl("-n", ns, "scale", "sbp/p", "--replicas=7")
        equal(k.get(path_of(pool))["spec"]["replicas"], 7, "replicas")
        k.apply(pool)
        equal(k.get(path_of(pool))["spec"]["replicas"], 7, "replicas after an apply")
        k.ok("PATCH", path_of(pool) + "/status", {"status": {"replicas": 5, "selector": "bothy.dev/pool=p,bothy.dev/state=warm"}}, MERGE)
        scale = k.get(path_of(pool) + "/scale")
        equal((scale["kind"], scale["spec"]["replicas"], scale["status"]), ("Scale", 7, {"replicas": 5, "selector": "bothy.dev/pool=p,bothy.dev/state=warm"}), "scale")
        check("5001" in k.kubectl("-n", ns, "scale", "sbp/p", "--replicas=5001", fails=True), "a scale beyond the ceiling")

    @suite.case("definitions: an HPA on a pool passes the server's dry run")
    def _():
        text = (DEPLOY / "example" / "hpa.yaml").read_text().replace("bothy-sandboxes", ns)
        made = json.loads(k.kubectl("apply", "--dry-run=server", "-o", "json", "-f", "-", input=text))
        equal(made["spec"]["scaleTargetRef"]["kind"], "SandboxPool", "target")

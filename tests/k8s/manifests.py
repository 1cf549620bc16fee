"""deploy/kubernetes as it is: it applies, twice, and gives bothyd the rights it needs and no more."""
import json
import subprocess

from harness import TOP, check, equal, eventually
from kube import GROUP, JSON_PATCH, MERGE, path_of, pod, thing

DEPLOY = TOP / "deploy" / "kubernetes"
SYSTEM, SANDBOXES = "bothy-system", "bothy-sandboxes"
BOTHYD = f"system:serviceaccount:{SYSTEM}:bothyd"

EVERYTHING = ["get", "list", "watch", "create", "patch", "delete"]
# (group/resource, verbs) in the namespace of the sandboxes, and everywhere. More than these is a failure, as fewer are.
INSIDE = {
    "/pods": EVERYTHING, "/pods/exec": ["get", "create"], "/persistentvolumeclaims": EVERYTHING, "/secrets": ["get"],
    "/events": ["create", "patch"], "events.k8s.io/events": ["create", "patch"], "coordination.k8s.io/leases": ["get", "create", "update"],
    "networking.k8s.io/networkpolicies": EVERYTHING, "policy/poddisruptionbudgets": EVERYTHING, "apps/daemonsets": EVERYTHING,
    "bothy.dev/sandboxpools": ["get", "list", "watch", "patch"], "bothy.dev/sandboxes": EVERYTHING,
    **{f"bothy.dev/{r}": ["patch", "update"] for r in ("sandboxpools/status", "sandboxes/status", "sandboxpools/finalizers", "sandboxes/finalizers")},
}
EVERYWHERE = {"bothy.dev/sandboxtemplates": ["get", "list", "watch"], "bothy.dev/sandboxtemplates/status": ["patch", "update"], "/nodes": ["get", "list", "watch"]}
# What every account may ask about itself.
ALWAYS = ("authorization.k8s.io/", "authentication.k8s.io/")
# As kubectl auth can-i has it: words, and the answer.
CAN = [
    (["create", "pods", "-n", SANDBOXES], True), (["get", "pods", "--subresource=exec", "-n", SANDBOXES], True), (["create", "pods", "--subresource=exec", "-n", SANDBOXES], True),
    (["get", "secrets", "-n", SANDBOXES], True), (["patch", "sandboxpools.bothy.dev", "--subresource=status", "-n", SANDBOXES], True), (["watch", "sandboxtemplates.bothy.dev"], True),
    (["create", "pods"], False), (["create", "pods", "-n", SYSTEM], False), (["list", "secrets", "-n", SANDBOXES], False), (["watch", "secrets", "-n", SANDBOXES], False),
    (["get", "secrets", "-n", SYSTEM], False), (["get", "pods", "--subresource=log", "-n", SANDBOXES], False), (["get", "nodes", "--subresource=proxy"], False),
    (["create", "sandboxtemplates.bothy.dev"], False), (["create", "rolebindings.rbac.authorization.k8s.io", "-n", SANDBOXES], False), (["delete", "namespaces"], False),
    (["create", "serviceaccounts", "--subresource=token", "-n", SANDBOXES], False), (["impersonate", "users"], False), (["escalate", "clusterroles.rbac.authorization.k8s.io"], False),
]


def install(k):
    """Everything but bothyd itself, which needs a volume and an image."""
    k.kubectl("apply", "-k", DEPLOY)
    k.kubectl("-n", SYSTEM, "scale", "deployment/bothyd", "--replicas=0")


def rights(server, namespace):
    """{group/resource: verbs} that an account has there, as the server itself says."""
    made = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace}}
    found = {}
    for rule in server.ok("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", made)["status"]["resourceRules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                found.setdefault(f"{group}/{resource}", set()).update(rule["verbs"])
    return {name: verbs for name, verbs in found.items() if not name.startswith(ALWAYS)}


def sets(table):
    return {name: set(verbs) for name, verbs in table.items()}


def cases(suite, k):
    if k.borrowed:
        return
    install(k)

    @suite.case("manifests: applied again they change nothing")
    def _():
        k.kubectl("-n", SYSTEM, "scale", "deployment/bothyd", "--replicas=1")
        again = k.kubectl("apply", "-k", DEPLOY).splitlines()
        k.kubectl("-n", SYSTEM, "scale", "deployment/bothyd", "--replicas=0")
        equal([line for line in again if not line.endswith(" unchanged")], [], "changes")

    @suite.case("manifests: the example applies, and has no warning")
    def _():
        r = k.kubectl("apply", "-k", DEPLOY / "example", "--dry-run=server", "--warnings-as-errors")
        equal(len(r.splitlines()), 3, f"things made ({r})")

    @suite.case("manifests: bothyd has exactly the rights that are listed")
    def _():
        me = k.by_token(SYSTEM, "bothyd")
        equal(rights(me, SANDBOXES), sets({**INSIDE, **EVERYWHERE}), "rights where the sandboxes are")
        for namespace in ("default", "kube-system", SYSTEM):
            equal(rights(me, namespace), sets(EVERYWHERE), f"rights in {namespace}")

    @suite.case(f"manifests: {len(CAN)} answers of kubectl auth can-i")
    def _():
        for words, wanted in CAN:
            equal(can(k, words), wanted, f"can-i {' '.join(words)}")

    @suite.case("manifests: exec needs both get and create, and bothyd's account has them")
    def _():
        me, made = k.by_token(SYSTEM, "bothyd"), pod("rights", SANDBOXES, restricted=True)
        path = path_of(made) + "/exec?command=true&container=c&stdout=true"
        me.ok("POST", path_of(made, named=False), made)
        try:
            # Whoever may is told that this is no WebSocket, or that there is nothing to run in yet; who may not gets 403.
            for method in ("GET", "POST"):
                check(me.call(method, path).status != 403, f"{method} was forbidden")
            equal(k.by_token(SANDBOXES, "default").call("GET", path).status, 403, "somebody else's GET")
        finally:
            k.call("DELETE", path_of(made))

    @suite.case("manifests: nobody but bothyd makes or changes a pod that looks like bothyd's")
    def _():
        editor, bothyd, made = account(k, "editor", "edit"), k.by_token(SYSTEM, "bothyd"), pod("forged", SANDBOXES, restricted=True)
        made["metadata"]["labels"] = {"bothy.dev/managed": "1", "bothy.dev/cell": "b000", "bothy.dev/pool": "p", "bothy.dev/state": "warm"}
        made["metadata"]["annotations"] = {"bothy.dev/nonce": "00" * 16}
        made["spec"]["initContainers"] = [{**made["spec"]["containers"][0], "name": "first"}]
        path = path_of(made, named=False)
        plain = pod("plain", SANDBOXES, restricted=True)
        eventually("the policy holds", lambda: editor.call("POST", path + "?dryRun=All", made).status == 422, 30, 0.2)
        status, text = editor.refused("POST", path, made)
        check("made by bothyd alone" in text, text)
        bothyd.ok("POST", path, made)
        editor.ok("POST", path, plain)
        try:
            for change in ({"metadata": {"labels": {"bothy.dev/sandbox": "b0000000000000000000"}}}, {"metadata": {"labels": {"bothy.dev/cell": None}}},
                           {"metadata": {"annotations": {"bothy.dev/nonce": "11" * 16}}}):
                editor.refused("PATCH", path_of(made), change, MERGE)
            for containers in ("containers", "initContainers"):
                editor.refused("PATCH", path_of(made), [{"op": "replace", "path": f"/spec/{containers}/0/image", "value": "x"}], JSON_PATCH)
            editor.refused("PATCH", path_of(plain), {"metadata": {"labels": made["metadata"]["labels"]}}, MERGE)
            editor.ok("PATCH", path_of(made), {"metadata": {"labels": {"mine": "x"}}}, MERGE)
            bothyd.ok("PATCH", path_of(made), {"metadata": {"labels": {"bothy.dev/state": "claimed"}}}, MERGE)
        finally:
            for one in (made, plain):
                k.call("DELETE", path_of(one))

    @suite.case("manifests: a Sandbox names another tenant only with the right to use it")
    def _():
        author, path = account(k, "author", "edit"), f"{GROUP}/namespaces/{SANDBOXES}/sandboxes?dryRun=All"

        def made(tenant):
            return thing("Sandbox", "tenanted", SANDBOXES, {"poolRef": "p", "tenant": tenant})
        eventually("the policy holds", lambda: author.call("POST", path, made("alice")).status == 422, 30, 0.2)
        check("tenants.bothy.dev" in author.refused("POST", path, made("alice"))[1], "the refusal does not name the right")
        for tenant in ("", SANDBOXES):
            author.ok("POST", path, made(tenant))
        k.by_token(SYSTEM, "bothyd").ok("POST", path, made("alice"))
        k.ok("POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SANDBOXES}/roles", {
            "metadata": {"name": "alice"}, "rules": [{"apiGroups": ["bothy.dev"], "resources": ["tenants"], "resourceNames": ["alice"], "verbs": ["use"]}]})
        k.kubectl("-n", SANDBOXES, "create", "rolebinding", "alice", "--role=alice", f"--serviceaccount={SANDBOXES}:author")
        eventually("the right counts", lambda: author.call("POST", path, made("alice")).status < 300, 30, 0.2)
        author.refused("POST", path, made("bob"))

    @suite.case("manifests: templates are shown to the users to whom an administrator binds bothy-templates")
    def _():
        reader, path = account(k, "reader", "view"), f"{GROUP}/sandboxtemplates"
        equal(reader.call("GET", path).status, 403, "by a RoleBinding of view")
        k.kubectl("create", "clusterrolebinding", "reader-of-templates", "--clusterrole=bothy-templates", f"--serviceaccount={SANDBOXES}:reader")
        try:
            eventually("templates are listed", lambda: reader.call("GET", path).status == 200, 30, 0.2)
        finally:
            k.kubectl("delete", "clusterrolebinding", "reader-of-templates")

    @suite.case("manifests: bothyd's port is closed to every namespace of sandboxes")
    def _():
        policy = k.get(f"/apis/networking.k8s.io/v1/namespaces/{SYSTEM}/networkpolicies/bothyd")["spec"]
        namespaces = [{"key": "bothy.dev/sandboxes", "operator": "DoesNotExist"}, {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [SANDBOXES]}]
        equal((policy["podSelector"], policy["policyTypes"]), ({"matchLabels": {"app.kubernetes.io/name": "bothyd"}}, ["Ingress"]), "whose policy it is")
        equal(policy["ingress"], [{"from": [{"namespaceSelector": {"matchExpressions": namespaces}}], "ports": [{"port": "http", "protocol": "TCP"}]}], "who gets in")
        equal(k.get(f"/api/v1/namespaces/{SANDBOXES}")["metadata"]["labels"].get("bothy.dev/sandboxes"), "true", "the label of the namespace of sandboxes")

    @suite.case("manifests: bothyd leaves a node that is lost after half a minute")
    def _():
        spec = json.loads(k.kubectl("-n", SYSTEM, "get", "deployment/bothyd", "-o", "json"))["spec"]["template"]["spec"]
        found = {t["key"]: (t["operator"], t["effect"], t["tolerationSeconds"]) for t in spec.get("tolerations", [])}
        equal(found, {f"node.kubernetes.io/{why}": ("Exists", "NoExecute", 30) for why in ("not-ready", "unreachable")}, "tolerations")

    @suite.case("manifests: people who may edit a namespace have pools and sandboxes, but not templates")
    def _():
        may = {name: verbs for name, verbs in role_rules(k, "edit").items() if name.startswith("bothy.dev/")}
        check({"create", "delete", "patch"} <= may["bothy.dev/sandboxes"] and "patch" in may["bothy.dev/sandboxpools/scale"], f"edit has {may}")
        equal(may["bothy.dev/sandboxtemplates"], {"get", "list", "watch"}, "edit of templates")
        equal({v for n, verbs in role_rules(k, "view").items() if n.startswith("bothy.dev/") for v in verbs}, {"get", "list", "watch"}, "view")

    @suite.case("manifests: bothyd's pod passes `restricted`, and one that wants a little more does not, there and among the sandboxes")
    def _():
        template = json.loads(k.kubectl("-n", SYSTEM, "get", "deployment/bothyd", "-o", "json"))["spec"]["template"]
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "as-deployed", "namespace": SYSTEM}, "spec": template["spec"]}
        k.ok("POST", path_of(made, named=False) + "?dryRun=All", made)
        # What `baseline` would take.
        made["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
        for namespace in (SYSTEM, SANDBOXES):
            made["metadata"]["namespace"] = namespace
            made["spec"]["serviceAccountName"] = "default"
            status, text = k.refused("POST", path_of(made, named=False) + "?dryRun=All", made)
            check(status == 403 and 'violates PodSecurity "restricted' in text, text)


def account(k, name, role):
    """The API server as a new service account with one of Kubernetes' own roles in the namespace of the sandboxes."""
    k.kubectl("-n", SANDBOXES, "create", "serviceaccount", name)
    k.kubectl("-n", SANDBOXES, "create", "rolebinding", name, f"--clusterrole={role}", f"--serviceaccount={SANDBOXES}:{name}")
    return k.by_token(SANDBOXES, name)


def can(k, words):
    """kubectl's answer; no is a status, too."""
    r = subprocess.run([k.dir / "bin" / "kubectl", "auth", "can-i", *words, f"--as={BOTHYD}"], env=k.environment, capture_output=True, text=True, check=False)
    answer = r.stdout.split(" ")[0].strip()
    check(answer in ("yes", "no"), r.stderr)
    return answer == "yes"


def role_rules(k, name):
    found = {}
    for rule in k.get(f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}")["rules"]:
        for group in rule.get("apiGroups", []):
            for resource in rule.get("resources", []):
                found.setdefault(f"{group}/{resource}", set()).update(rule["verbs"])
    return found

"""bothyd in the cluster, as deploy/kubernetes has it: with its image, its account and its volume; the template, the pool and the sandbox of
docs/guide/kubernetes.md as they stand there."""
import contextlib
import json
import subprocess
import tempfile

import definitions
import manifests
import oci
import yaml
from blocks import read_blocks
from harness import SLOW, TOP, Skip, check, equal, eventually
from kube import MERGE, path_of, thing

SYSTEM, SANDBOXES = manifests.SYSTEM, manifests.SANDBOXES
LACKING = "built without the backend"
GUIDE = TOP / "docs" / "guide" / "kubernetes.md"
# The objects of the guide: a template, a pool with two ready pods, and a sandbox of the pool. A new one there must be used here.
# This cluster enforces no NetworkPolicy: the template's network is open, because pods of a closed one would not come up (see below).
TEMPLATE, POOL, SANDBOX = (thing for block in read_blocks(GUIDE.read_text()) if block.kind == "yaml" for thing in yaml.safe_load_all(block.text))
NAMES = ("deployment: bothyd comes up with its own account, and holds its lease", "deployment: a pool has as many pods as it wants, and kubectl scale changes that",
         "deployment: a Sandbox made with kubectl is one of bothyd's", "deployment: one made through bothyd has a Sandbox object",
         "deployment: a sandbox and what runs in it outlive bothyd's pod", "deployment: a deleted Sandbox's pod goes, and the pool is filled up",
         "deployment: no sandbox without a network is handed out where no policy holds, and its policy is kept",
         "deployment: a template whose policy nobody enforces gets no pods, and is told so", "deployment: bothyd was refused nothing",
         "deployment: uninstall leaves nothing of sandboxes that live and that have ended, and stops before a disk that is kept")


def command(k, *words):
    """The command line in bothyd's pod."""
    return subprocess.run([k.dir / "bin" / "kubectl", "-n", SYSTEM, "exec", "deployment/bothyd", "--", "bothy", *words], env=k.environment, capture_output=True,
                          text=True, timeout=60 * SLOW, check=False)


def bothy(k, *words):
    r = command(k, *words)
    check(r.returncode == 0, f"bothy {' '.join(words)}: {r.stderr}")
    return r.stdout


def available(k):
    status = json.loads(k.kubectl("-n", SYSTEM, "get", "deployment/bothyd", "-o", "json"))["status"]
    return status.get("availableReplicas") == 1 and status.get("unavailableReplicas", 0) == 0


def why_not(k):
    """What bothyd says that does not come up."""
    with contextlib.suppress(AssertionError):
        return k.kubectl("-n", SYSTEM, "logs", "deployment/bothyd", "--tail=5")
    return ""


def explained(k):
    """A case that needs bothyd; when it fails it shows what bothyd and the cluster had to say."""
    def wrap(body):
        def run():
            if not k.bothyd_is_up:
                raise Skip("bothyd did not come up")
            try:
                body()
            except AssertionError:
                for words in (("-n", SYSTEM, "logs", "deployment/bothyd", "--tail=60", "--timestamps"), ("get", "pods,sbp,sbx", "-A", "-o", "wide"),
                              ("get", "events", "-A", "--sort-by=.lastTimestamp")):
                    with contextlib.suppress(AssertionError):
                        print("\n".join("      | " + line for line in k.kubectl(*words).splitlines()[-60:]), flush=True)
                raise
        return run
    return wrap


def install(k):
    with tempfile.TemporaryDirectory() as out:
        for archive in oci.make(out).values():
            k.load(archive)
    k.kubectl("apply", "-k", manifests.DEPLOY)
    k.kubectl("-n", SYSTEM, "scale", "deployment/bothyd", "--replicas=1")


def has(k, made, **wanted):
    status = k.get(path_of(made)).get("status", {})
    return status if all(status.get(name) == value for name, value in wanted.items()) else None


def condition(k, made, kind):
    return next((c for c in k.get(path_of(made)).get("status", {}).get("conditions", []) if c["type"] == kind), {})


def cases(suite, k):
    if k.borrowed or not suite.wants_any(cases):
        return
    since = k.audit_mark()  # what was before is much, and not its
    with k.volume("bothyd", storage_class="", size="20Gi"):
        install(k)
        with suite.steps() as steps:
            up_case(steps, k)
            pool_cases(steps, k)
            sandbox_cases(steps, k)
            end_cases(steps, k, since)
            uninstall_case(steps, k)
        k.kubectl("-n", SYSTEM, "delete", "deployment/bothyd", "pvc/bothyd", "--ignore-not-found")


def up_case(steps, k):
    k.bothyd_is_up = False

    @steps.case(NAMES[0])
    def _():
        eventually("bothyd is available, or says why not", lambda: available(k) or LACKING in why_not(k), 120, 1)
        if not available(k):
            raise Skip(f"this bothyd was {LACKING} 'kubernetes'")
        k.bothyd_is_up = True
        lease = k.get(f"/apis/coordination.k8s.io/v1/namespaces/{SANDBOXES}/leases/bothy-b000")
        check(lease["spec"]["holderIdentity"], "nobody holds the lease")


def pool_cases(steps, k):
    @steps.case(NAMES[1])
    @explained(k)
    def _():
        k.apply(TEMPLATE)
        k.apply(POOL)
        eventually("two are ready", lambda: has(k, POOL, readyReplicas=2, replicas=2), 60, 0.2)
        k.kubectl("-n", SANDBOXES, "scale", "sbp/busybox", "--replicas=3")
        eventually("three are ready", lambda: has(k, POOL, readyReplicas=3, replicas=3), 60, 0.2)
        k.kubectl("-n", SANDBOXES, "scale", "sbp/busybox", "--replicas=2")
        eventually("two are left", lambda: has(k, POOL, readyReplicas=2, replicas=2), 60, 0.2)
        equal(condition(k, POOL, "Available")["status"], "True", "Available")


def sandbox_cases(steps, k):
    made = SANDBOX

    @steps.case(NAMES[2])
    @explained(k)
    def _():
        k.apply(made)
        status = eventually("it runs", lambda: has(k, made, phase="Running"), 30, 0.1)
        equal(status["claimClass"], "exact", "class")
        equal(bothy(k, "exec", status["id"], "--", "cat", "/version"), "a\n", "what is in it")
        check(status["id"] in bothy(k, "ls"), "bothyd does not list it")

    @steps.case(NAMES[3])
    @explained(k)
    def _():
        mine = bothy(k, "create", "--network", "open", "localhost/busybox:a").split()[-1]
        record = thing("Sandbox", f"sbx-{mine}", SANDBOXES)
        eventually("its object", lambda: not k.gone(path_of(record)) and has(k, record, phase="Running", id=mine), 30, 0.1)
        bothy(k, "rm", mine)
        equal(eventually("its end", lambda: has(k, record, phase="Terminated"), 30, 0.1)["cause"]["code"], "requested", "cause")

    @steps.case(NAMES[4])
    @explained(k)
    def _():
        mine = k.get(path_of(made))["status"]["id"]
        bothy(k, "exec", mine, "--", "sh", "-c", "echo kept >/tmp/kept; sleep 600 & echo $! >/tmp/pid")
        k.kubectl("-n", SYSTEM, "delete", "pod", "-l", "app.kubernetes.io/name=bothyd", "--wait=true")
        eventually("bothyd is available again", lambda: available(k) and command(k, "ls").returncode == 0, 90, 0.5)
        equal(bothy(k, "exec", mine, "--", "sh", "-c", "cat /tmp/kept; kill -0 $(cat /tmp/pid) && echo alive"), "kept\nalive\n", "what is left")

    @steps.case(NAMES[5])
    @explained(k)
    def _():
        pod = thing("Pod", k.get(path_of(made))["status"]["podName"], SANDBOXES)
        k.ok("DELETE", path_of(made))
        eventually("object and pod are gone", lambda: k.gone(path_of(made)) and k.gone(path_of(pod)), 60, 0.2)
        eventually("the pool is full", lambda: has(k, POOL, readyReplicas=2, claimedReplicas=0), 60, 0.2)


def refused_wall(k):
    """What a create without a network is told, once the walls have been tried."""
    r = command(k, "create", "localhost/busybox:a")
    check(r.returncode != 0, f"it was made: {r.stdout}")
    return None if "is being tried" in r.stderr else r.stderr


def wall_case(steps, k):
    @steps.case(NAMES[6])
    @explained(k)
    def _():
        path = f"/apis/networking.k8s.io/v1/namespaces/{SANDBOXES}/networkpolicies/bothy-none-b000"
        wall = {"podSelector": {"matchLabels": {"bothy.dev/cell": "b000", "bothy.dev/network": "none"}}, "policyTypes": ["Ingress", "Egress"]}
        said = eventually("the walls were tried", lambda: refused_wall(k), 90, 1)
        check("does not enforce NetworkPolicies" in said and "kubernetes.policies: vouched" in said, said)
        equal(k.get(path)["spec"], wall, "the policy")
        k.ok("PATCH", path, {"spec": {"egress": [{}]}}, MERGE)
        eventually("the hole is closed", lambda: k.get(path)["spec"] == wall, 40, 0.5)


def end_cases(steps, k, since):
    wall_case(steps, k)

    @steps.case(NAMES[7])
    @explained(k)
    def _():
        walled = thing("SandboxTemplate", "walled", spec={"image": "localhost/busybox:a", "network": {"egress": "None"}})
        pool = thing("SandboxPool", "walled", SANDBOXES, {"templateRef": "walled"})
        k.apply(walled)
        k.apply(pool)
        eventually("it is degraded", lambda: condition(k, pool, "Degraded").get("reason") == "PolicyNotEnforced", 120, 0.5)
        k.ok("DELETE", path_of(pool))
        k.ok("DELETE", path_of(walled))
        eventually("the pool is gone", lambda: k.gone(path_of(pool)), 60, 0.2)

    @steps.case(NAMES[8])
    @explained(k)
    def _():
        refused = {f"{e['verb']} {e['objectRef'].get('resource')}/{e['objectRef'].get('subresource', '')}" for e in k.audited(since)
                   if e["user"].get("username") == manifests.BOTHYD and e["responseStatus"]["code"] == 403 and "quota" not in e["responseStatus"].get("message", "")}
        equal(refused, set(), "requests of bothyd that were forbidden")
        k.ok("PATCH", path_of(POOL), {"spec": {"replicas": 0}}, MERGE)
        k.ok("DELETE", path_of(POOL))
        eventually("the pool is gone, and its pods", lambda: k.gone(path_of(POOL)), 60, 0.2)


def uninstall(k, *words):
    return subprocess.run([manifests.DEPLOY / "uninstall", *words], env=k.environment, capture_output=True, text=True, timeout=300 * SLOW, check=False)


def installed(k):
    """Names of the objects beside the namespaced ones that apply -k makes."""
    kinds = "ns,crd,clusterrole,clusterrolebinding,priorityclass,validatingadmissionpolicy,validatingadmissionpolicybinding"
    return [name for name in k.kubectl("get", kinds, "-o", "name").split() if "bothy" in name]


def uninstall_case(steps, k):
    @steps.case(NAMES[9])
    @explained(k)
    def _():
        made = thing("Sandbox", "last", SANDBOXES, {"poolRef": "busybox"})
        ended = bothy(k, "create", "--network", "open", "localhost/busybox:a").split()[-1]
        k.apply(POOL)
        k.apply(made)
        eventually("it runs", lambda: has(k, made, phase="Running"), 60, 0.2)
        bothy(k, "rm", ended)
        record = thing("Sandbox", f"sbx-{ended}", SANDBOXES)
        eventually("an ended one has no finalizer", lambda: has(k, record, phase="Terminated") and not k.get(path_of(record))["metadata"].get("finalizers"), 30, 0.2)
        disk = thing("PersistentVolumeClaim", "kept", SANDBOXES, {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}, "v1")
        k.ok("POST", path_of(disk, named=False), disk)
        r = uninstall(k)
        check(r.returncode == 1 and "persistentvolumeclaim/kept" in r.stderr, f"with a disk: {r.stdout}{r.stderr}")
        equal(k.kubectl("-n", SANDBOXES, "get", "sbx,sbp", "-o", "name"), "", "objects that are left")
        check(not k.gone(path_of(disk)) and available(k), "it did not stop before the disk")
        r = uninstall(k, "--disks")
        equal(r.returncode, 0, f"uninstall: {r.stdout}{r.stderr}")
        equal(installed(k), [], "objects that are left")
        manifests.install(k)  # other parts need the definitions
        eventually("the definitions are served", lambda: definitions.served(k), 30, 0.1)

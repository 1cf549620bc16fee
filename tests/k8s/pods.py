"""Pods as sandboxes: how they end and what is told of it, what tenants try, claims that race a scale-down, disks that are kept, and what it all costs the API server."""
import concurrent.futures
import contextlib
import random
import socket
import subprocess
import threading
import time

from harness import SLOW, Watch, bytes_of, check, equal, eventually
from kube import MERGE, path_of, pod, thing
from pools import A, B, any_image, bothyd, ended, pod_of, pool, record, runs

SMALL = {"cpu": 0.5, "memory": 64 << 20}
CAUSES = ("pods: memory used up ends the command, and the sandbox lives", "pods: a fork bomb meets the node's limit, and the sandbox lives",
          "pods: a tmpfs that is full says so, and the sandbox lives", "pods: more on the disk than it may have: evicted, and the cause says so",
          "pods: a container that is stopped: its cause is told, and its pool is full again", "pods: one that was claimed is never used again by a restart")
TIME = "pods: a time that the API or kubectl gives it counts, and its end reads ttl in both"
TENANT = ("pods: {}: a tenant gets neither at pid 1 nor at its programs", "pods: nobody gets a label of bothy's through a field that users fill")
RACE = "pods: scale-downs race claims: each pod is claimed or deleted, never both"
CAP = "pods: a pool has no more than maxSandboxes: who comes then waits, and is refused when its time is over"
HOLDS = "pods: a pool's pod has the disk limit and the /dev/shm that are told of it; who asks for others gets a pod of its own"
DISKS = "pods: asleep there is a disk and no pod, awake one pod has it; Delete and Retain do what they say; whoever deletes the pod takes no files"
POLICIES = "pods: the NetworkPolicy of a pool that somebody has deleted is written again, and the others stay as they are"
WRITES = ("pods: a claim of a waiting pod waits for no write", "pods: what a sandbox costs the API server in writes")


def cases(suite, k):
    if suite.wants(*CAUSES, TIME, TENANT[0].format("root"), TENANT[1], *WRITES):
        with bothyd(k) as (node, ns):
            causes(suite, k, node, ns)
            times(suite, k, node, ns)
            tenant(suite, node, "root")
            labels(suite, k, node, ns)
            writes(suite, k, node, ns)
    if suite.wants(TENANT[0].format("restricted"), RACE, CAP, HOLDS, DISKS, POLICIES):
        with bothyd(k, "BOTHY_KUBERNETES_SECURITY=restricted") as (node, ns):
            tenant(suite, node, "restricted")
            race(suite, k, node, ns)
            cap(suite, k, node, ns)
            holds(suite, k, node, ns)
            disks(suite, k, node, ns)
            policies(suite, k, node, ns)


# ---- ends ----
def causes(suite, k, node, ns):
    @suite.case(CAUSES[0])
    def _():
        with node.sandbox(A, limits=SMALL) as sb:
            r = node.exec(sb, "x=1234567890123456; while :; do x=$x$x; done")
            equal((r["end"]["how"], r["end"]["signal"], r["end"]["oom"]), ("signalled", 9, True), "its end")
            equal(node.shell(sb, "echo here"), "here\n", "its word")

    @suite.case(CAUSES[1])
    def _():
        with node.sandbox(A, limits={**SMALL, "memory": 512 << 20}) as sb:
            x = node.start(sb, "f() { f | f & }; f; sleep 60")
            eventually("nobody can fork any more", lambda: b"fork" in node.output(sb, x, "err"), 30, 0.2)
            equal(node.show(sb)["state"], "running", "its state")
            node.ok("POST", node.at(sb, x, "/signal"), {"signal": "KILL", "scope": "tree"})
            eventually("commands run again", lambda: here(node, sb), 60, 0.2)

    @suite.case(CAUSES[2])
    def _():
        with node.sandbox(A, limits=SMALL, tmpfs=[{"path": "/scratch", "size": 1 << 20}]) as sb:
            r = node.exec(sb, "dd if=/dev/zero of=/scratch/full bs=1M count=4")
            check(r["end"]["exit_code"] != 0 and b"No space left" in bytes_of(r["err"]), f"{r}")
            equal(node.shell(sb, "rm /scratch/full; echo here"), "here\n", "its word")

    @suite.case(CAUSES[3])
    def _():
        sb, said = node.create(A, limits={**SMALL, "disk": 16 << 20}), set()
        node.exec(sb, "head -c 67108864 /dev/zero >/tmp/full; sync")

        def gone():
            found, now = pod_of(k, ns, sb), node.show(sb)
            said.update(reasons(found) if found else ())
            return now["cause"] if now["state"] == "gone" else None
        cause = eventually("it has ended", gone, 150, 0.1)
        said |= reasons(pod_of(k, ns, sb) or {})
        equal((cause["kind"], cause.get("by")), ("killed", "the cluster (eviction)"), f"cause {cause}")
        equal(record(k, ns, sb, phase="Terminated")["cause"]["code"], "evicted", "cause of its object")

    for name, make in ((CAUSES[4], lambda: pool(k, ns, "exact", {"network": {"egress": "None"}})), (CAUSES[5], lambda: any_image(k, ns, 1, "again"))):
        @suite.case(name)
        def _(make=make, name=name):
            with make() as p:
                made = node.ok("POST", "/v1/sandboxes", {"image": B if name == CAUSES[5] else A}, timeout=90)
                equal(made["class"], "kubelet" if name == CAUSES[5] else "exact", "class")
                before = pod_of(k, ns, made["id"])
                stop_container(k, before)
                cause = ended(node, made["id"])
                # Whichever is noticed first: that it was killed, or that another has begun in its place.
                check((cause["kind"], cause.get("by")) in (("killed", "host"), ("killed", "bothyd" if name == CAUSES[5] else "host")), f"cause {cause}")
                eventually("its pod is gone", lambda: k.gone(path_of(before | {"kind": "Pod"})), 60, 0.2)
                p.full()
                check(before["metadata"]["name"] not in p.pods(), "it is there again")


def times(suite, k, node, ns):
    @suite.case(TIME)
    def _():
        began, ttl = time.time(), int(6 * SLOW)
        kept, left = (node.create(A, limits=SMALL, ttl=ttl) for _ in range(2))
        first = record(k, ns, kept, phase="Running")["expiresAt"]
        node.ok("PATCH", f"/v1/sandboxes/{kept}", {"ttl": 600})
        time.sleep(max(0, began + ttl + 4 - time.time()))  # its first time, and another look of the operator at it
        check(here(node, kept), "it does not run any more")
        check(record(k, ns, kept, phase="Running")["expiresAt"] > first, "its object has its first time")
        over(k, node, ns, left)
        made = thing("Sandbox", f"sbx-{kept}", ns)
        k.ok("PATCH", path_of(made), {"spec": {"expiresAt": time.strftime("%FT%TZ", time.gmtime(time.time() + 2))}}, MERGE)
        over(k, node, ns, kept)


def over(k, node, ns, sb):
    """Its time has ended it: in the API and in its object."""
    equal(ended(node, sb)["kind"], "ttl", "its cause")
    equal(record(k, ns, sb, phase="Terminated")["cause"]["code"], "ttl", "cause of its object")


def reasons(found):
    """Why it was taken away, in the cluster's words."""
    status = found.get("status", {})
    return {status.get("reason")} - {None} | {c["reason"] for c in status.get("conditions", []) if c["type"] == "DisruptionTarget"}


def here(node, sb):
    a = node.call("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["echo", "here"]})
    return a.status == 200 and bytes_of(a.json["out"]) == b"here\n"


def stop_container(k, found):
    """As an operator's crictl would: the runtime kills pid 1."""
    name = next(s["containerID"] for s in found["status"]["containerStatuses"] if s["name"] == "sandbox").removeprefix("containerd://")
    subprocess.run([k.dir / "bin" / "ctr", "tasks", "kill", "--signal", "KILL", name], check=True, capture_output=True)


# ---- tenants ----
TRIES = """
kill -9 1; kill -TERM 1; kill -INT 1; kill -STOP 1
cat /proc/1/mem >/dev/null 2>&1 && echo read its memory
cat /proc/1/environ >/dev/null 2>&1 && [ -s /proc/1/environ ] && echo read its environment
ls -l /proc/1/fd/ 2>/dev/null | grep -q socket && echo saw its descriptors
cp /bin/busybox /.bothy/bothy-init 2>/dev/null && echo replaced init
echo x 2>/dev/null >>/.bothy/bothy-kit && echo wrote to the kit
rm -f /.bothy/bothy-kit 2>/dev/null; [ -e /.bothy/bothy-kit ] || echo removed the kit
mv /.bothy /.other 2>/dev/null && echo moved them
mount -o remount,rw /.bothy 2>/dev/null && echo mounted them anew
umount /.bothy 2>/dev/null && echo unmounted them
mount -t tmpfs none /.bothy 2>/dev/null && echo covered them
[ -e /var/run/secrets/kubernetes.io ] && echo has a token
timeout 2 /.bothy/bothy-init serve </dev/null >/dev/null 2>&1 && echo served
/.bothy/bothy-init install /tmp </dev/null >/dev/null 2>&1
timeout 2 /.bothy/bothy-init attach </dev/null >/dev/null 2>&1
echo tried
"""


def tenant(suite, node, who):
    @suite.case(TENANT[0].format(who))
    def _():
        with node.sandbox(A, limits=SMALL) as sb:
            began = node.shell(sb, "cat /proc/1/stat").split()[21]
            r = node.exec(sb, TRIES, timeout_ms=30000)
            equal(bytes_of(r["out"]).decode(), "tried\n", "what went through")
            for _ in range(3):
                equal(node.shell(sb, "cat /proc/1/stat").split()[21], began, "when its pid 1 began")
            equal(node.show(sb)["state"], "running", "its state")
            a = node.call("PUT", f"/v1/sandboxes/{sb}/files?path=/tmp/by-the-kit", b"whole")
            check(a.status < 300, repr(a))
            equal(node.shell(sb, "cat /tmp/by-the-kit"), "whole", "what the kit wrote")


OURS = ("managed", "cell", "pool", "state", "template-hash", "sandbox", "tenant-hash", "network", "object", "nonce", "claim")


def labels(suite, k, node, ns):
    """REST's labels (create, change), an object's; names that look like another's. Template and pool have their schema (definitions)."""
    @suite.case(TENANT[1])
    def _():
        with node.sandbox(A, limits=SMALL, labels={"team": "a"}) as sb:
            is_now = pod_of(k, ns, sb)["metadata"]["labels"]
            for name in OURS:
                spoof = {f"bothy.dev/{name}": "warm"}
                for a in (node.call("POST", "/v1/sandboxes", {"image": A, "labels": spoof}), node.call("PATCH", f"/v1/sandboxes/{sb}", {"labels": spoof})):
                    equal((a.status, a.error["code"]), (400, "invalid_request"), f"{name}: {a!r}")
                made = thing("Sandbox", "spoof", ns, {"image": A, "labels": spoof})
                equal(k.refused("POST", path_of(made, named=False), made)[0], 422, f"an object with {name}")
            for spec in ({"image": f"{A}\nbothy.dev/state: warm"}, {"image": A, "user": "0\nbothy.dev/state: warm"}, {"image": A, "labels": {"a": "b\nbothy.dev/state: warm"}}):
                a = node.call("POST", "/v1/sandboxes", spec, timeout=60)
                if a.status < 300:
                    found = pod_of(k, ns, a.json["id"])["metadata"]["labels"]
                    equal(found["bothy.dev/state"], "claimed", f"state of {spec}")
                    node.delete(a.json["id"])
            equal(pod_of(k, ns, sb)["metadata"]["labels"], is_now, "labels of its pod")


# ---- scale-downs ----
def race(suite, k, node, ns):
    """In each turn as many claims as there are pods, at about the time when the pool is told to have none."""
    turns, pods = (250, 4) if suite.args.long else (4, 3)

    @suite.case(RACE)
    def _():
        results = []
        with pool(k, ns, "race", replicas=pods) as p:
            for _ in range(turns):
                p.scale(pods)
                p.full()
                down = threading.Thread(target=p.scale, args=(0,))
                claims = [threading.Thread(target=claim_late, args=(node, random.uniform(0, 0.25), results)) for _ in range(pods)]
                for t in [down, *claims]:
                    t.start()
                for t in [down, *claims]:
                    t.join()
                eventually("the pool is empty", lambda: not p.pods(), 60, 0.05)
        counts = {how: results.count(how) for how in sorted(set(results))}
        print(f"      {turns * pods} claims: {counts}", flush=True)
        check(counts.get("exact"), "no claim of a waiting pod won")
        check(not set(counts) - {"exact", "cold", "refused"}, f"{counts}")


def cap(suite, k, node, ns):
    @suite.case(CAP)
    def _():
        with pool(k, ns, "cap", replicas=1, maxSandboxes=2) as p, concurrent.futures.ThreadPoolExecutor(4) as many:
            answers = list(many.map(lambda wait: node.call("POST", "/v1/sandboxes", {"image": A, "queue_wait": wait}, timeout=90), [3] * 4))
            made, refused = [a.json["id"] for a in answers if a.status < 300], [a for a in answers if a.status >= 300]
            for id in made[2:]:
                node.delete(id)
            there = len(p.pods(state="claimed"))
            late = many.submit(node.ok, "POST", "/v1/sandboxes", {"image": A, "queue_wait": 60}, timeout=90)
            for id in made[:2]:
                node.delete(id)
            node.delete(late.result()["id"])
            equal((len(made), there), (2, 2), "how many were made, and pods of them")
            equal([a.error["code"] for a in refused], ["pool_exhausted"] * 2, "the rest")


def holds(suite, k, node, ns):
    @suite.case(HOLDS)
    def _():
        for limits, klass in (({}, "exact"), ({"disk": 32 << 20}, "cold"), ({"shm": 16 << 20}, "cold")):
            with pool(k, ns, "holds"), node.sandbox(A, limits=limits) as sb:
                told, has = node.show(sb), pod_of(k, ns, sb)["spec"]["containers"][0]["resources"]["limits"]
                equal(told["class"], klass, f"{limits}: class")
                equal(int(has["ephemeral-storage"]), told["limits"]["disk"], f"{limits}: its disk")
                equal(int(node.shell(sb, "df -k /dev/shm | awk 'NR == 2 {print $2}'")) << 10, told["limits"]["shm"], f"{limits}: its /dev/shm")
                node.shell(sb, "echo x >/dev/shm/x")


def claim_late(node, delay, results):
    """Whoever has a sandbox keeps it: it runs, and is still there a moment later."""
    try:
        time.sleep(delay)
        a = node.call("POST", "/v1/sandboxes", {"image": A, "queue_wait": 2}, timeout=90)
        if a.status >= 300:
            check(a.status in (429, 503) and a.error["retryable"], repr(a))
            results.append("refused")
            return
        runs(node, a.json["id"], ["cat", "/version"], "a\n")
        time.sleep(0.3)
        equal(node.show(a.json["id"])["state"], "running", "its state")
        node.delete(a.json["id"])
        results.append(a.json["class"])
    except Exception as e:  # noqa: BLE001: any is a failure of the case
        results.append(f"{type(e).__name__}: {e}")


# ---- disks ----
def has(k, made, **wanted):
    status = k.get(path_of(made)).get("status", {})
    return status if all(status.get(name) == value for name, value in wanted.items()) else None


def users_of(k, ns, volume):
    """Pods that have it, and may write."""
    return [p["metadata"]["name"] for p in k.get(f"/api/v1/namespaces/{ns}/pods")["items"] if p["status"].get("phase") in ("Pending", "Running")
            and any(v.get("persistentVolumeClaim", {}).get("claimName") == volume for v in p["spec"].get("volumes", []))]


class Watcher(threading.Thread):
    """How many pods had a volume at once, at most."""

    def __init__(self, k, ns, volume):
        super().__init__(daemon=True)
        self.k, self.ns, self.volume, self.most, self.over = k, ns, volume, 0, threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(0.05):
            self.most = max(self.most, len(users_of(self.k, self.ns, self.volume)))

    def end(self):
        self.over.set()
        self.join()
        return self.most


def disks(suite, k, node, ns):
    @suite.case(DISKS)
    def _():
        for reclaim in ("Delete", "Retain"):
            with contextlib.ExitStack() as stack:
                name = f"disk-{reclaim.lower()}"
                for i in range(2):  # the pool is filled up behind the claim
                    stack.enter_context(k.volume(f"{name}-{ns}-{i}", storage_class=name))
                workspace = {"mountPath": "/work", "size": "1Gi", "storageClassName": name, "reclaim": reclaim}
                stack.enter_context(pool(k, ns, name, {"workspace": workspace}))
                one_disk(k, node, ns, name, reclaim)


def served(node, sb):
    """The answer; None: it is to come again, because the sandbox is being woken."""
    a = node.call("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["sh", "-c", "cat /work/kept; ls /tmp"]}, timeout=120)
    check(a.status == 200 or (a.status == 503 and a.error["retryable"]), repr(a))
    return a if a.status == 200 else None


def e2b_state(e2b, sb):
    """In the list and alone; neither wakes it."""
    listed = {found["sandboxID"]: found["state"] for found in e2b("GET", "/v2/sandboxes").json}
    return [listed.get(sb), e2b("GET", f"/sandboxes/{sb}").json["state"]]


def e2b_wakes(node, ns, sb):
    """E2B's clients see one that is paused, and connect."""
    key = node.ok("POST", "/v1/keys", {"owner": ns, "role": "user"})["key"]

    def e2b(method, path, body=None):
        return node.call(method, path, body, {"X-API-Key": key}, timeout=120)

    def connected():
        a = e2b("POST", f"/sandboxes/{sb}/connect", {"timeout": 600})
        check(a.status in (200, 201) or (a.status == 503 and a.headers.get("Retry-After")), repr(a))
        return a.status < 300

    equal(e2b_state(e2b, sb), ["paused"] * 2, "its state for E2B")
    eventually("connect brings it back", connected, 90, 0.5)
    equal(e2b_state(e2b, sb), ["running"] * 2, "its state for E2B when it is back")


def deleted_outside(k, node, ns, made, sb, volume):
    """Its pod goes by kubectl: it comes back on its disk, in another."""
    before = eventually("it runs again", lambda: has(k, made, phase="Running"), 60, 0.1)["podName"]
    k.ok("DELETE", path_of(thing("Pod", before, ns)))
    eventually("that pod is gone", lambda: before not in users_of(k, ns, volume), 60, 0.1)
    check(not k.gone(path_of(thing("PersistentVolumeClaim", volume, ns))), "its disk went with its pod")
    eventually("it runs in another", lambda: (has(k, made, phase="Running") or {}).get("podName") not in (None, before), 90, 0.1)
    a = eventually("it answers", lambda: served(node, sb), 90, 0.5)
    equal(bytes_of(a.json["out"]), b"kept\n", "its files")


def one_disk(k, node, ns, name, reclaim):
    made = thing("Sandbox", f"on-{name}", ns, {"poolRef": name})
    k.apply(made)
    status = eventually("it runs", lambda: has(k, made, phase="Running"), 60, 0.1)
    sb, volume = status["id"], status["workspaceClaim"]
    claim = thing("PersistentVolumeClaim", volume, ns)
    watcher = Watcher(k, ns, volume)
    node.shell(sb, "echo kept >/work/kept; echo lost >/tmp/lost")
    for turn in range(2):
        k.ok("PATCH", path_of(made), {"spec": {"desiredState": "Hibernated"}}, MERGE)
        eventually("it sleeps", lambda: has(k, made, phase="Hibernated"), 60, 0.1)
        eventually("no pod has its disk", lambda: not users_of(k, ns, volume), 30, 0.1)
        check(not k.gone(path_of(claim)), "its disk is gone")
        if turn:
            e2b_wakes(node, ns, sb)
        a = eventually(f"turn {turn}: a request wakes it, and is served when it comes again", lambda: served(node, sb), 90, 0.5)
        equal(bytes_of(a.json["out"]), b"kept\n", "its files")
    deleted_outside(k, node, ns, made, sb, volume)
    equal(watcher.end(), 1, "pods that had the disk at once")
    k.ok("DELETE", path_of(made))
    eventually("it is gone", lambda: k.gone(path_of(made)), 60, 0.1)
    eventually("no pod has its disk", lambda: not users_of(k, ns, volume), 30, 0.1)
    if reclaim == "Delete":
        eventually("its disk is gone", lambda: k.gone(path_of(claim)), 60, 0.2)
    else:
        time.sleep(3)
        check(not k.gone(path_of(claim)), "its disk was to be retained")
        k.ok("DELETE", path_of(claim))


# ---- walls ----
def policies(suite, k, node, ns):
    @suite.case(POLICIES)
    def _():
        path = f"/apis/networking.k8s.io/v1/namespaces/{ns}/networkpolicies"

        def walls(but=()):
            return {p["metadata"]["name"]: p["metadata"]["uid"] for p in k.get(path)["items"]
                    if "bothy.dev/template-hash" in p["metadata"]["labels"] and p["metadata"]["name"] not in but}

        others = set(walls())  # of pools before, until they are swept
        with contextlib.ExitStack() as stack:
            for egress in ("None", "Public", "List", "All"):
                network = {"egress": egress, **({"allowCIDRs": ["192.0.2.0/24"]} if egress == "List" else {})}
                stack.enter_context(pool(k, ns, f"wall-{egress.lower()}", {"network": network, "env": [{"name": "OF", "value": "walls"}]}, 0))
            before = eventually("each has its policy", lambda: len(walls(others)) == 4 and walls(others), 30, 0.2)
            taken = sorted(before)[0]
            k.ok("DELETE", f"{path}/{taken}")
            eventually("it is there again", lambda: walls().get(taken) not in (None, before[taken]), 90, 0.5)
            equal({name: uid for name, uid in walls(others).items() if name != taken}, {n: u for n, u in before.items() if n != taken}, "the others")
            equal(node.log().count("its NetworkPolicy was changed by somebody else"), 1, "policies that were taken for changed")


# ---- what it costs ----
def is_write(entry, ns):
    ref = entry.get("objectRef", {})
    return entry["verb"] in ("create", "update", "patch", "delete", "deletecollection") and ref.get("namespace") == ns and ref["resource"] != "leases" \
        and ref.get("subresource") != "exec" and entry.get("userAgent", "").split("/")[0] not in ("kubectl", "Python-urllib", "")


def told(entries):
    found = {}
    for e in entries:
        name = f"{e['verb']} {e['objectRef']['resource']}" + (f"/{e['objectRef']['subresource']}" if e["objectRef"].get("subresource") else "")
        found[name] = found.get(name, 0) + 1
    return found


@contextlib.contextmanager
def slow_writes(k, ns, seconds=3):
    """Every write to pods and Sandboxes of the namespace takes so long: a webhook is asked about it that never answers."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hook = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": ns}, "webhooks": [{
            "name": "slow.bothy.test", "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore", "timeoutSeconds": seconds,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ns}},
            "clientConfig": {"url": f"https://127.0.0.1:{silent.getsockname()[1]}/"},
            "rules": [{"apiGroups": ["", "bothy.dev"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE", "DELETE"], "resources": ["pods", "sandboxes"]}]}]}
        k.ok("POST", path, hook)
        try:
            eventually("writes are slow", lambda: took(k, ns) > seconds - 1, 30, 0.1)
            yield
        finally:
            k.ok("DELETE", f"{path}/{ns}")


def took(k, ns):
    began = time.monotonic()
    k.ok("POST", f"/api/v1/namespaces/{ns}/pods?dryRun=All", pod("slow", ns))
    return time.monotonic() - began


def unasked(node):
    watch = Watch()
    made = node.ok("POST", "/v1/sandboxes", {"image": A})
    runs(node, made["id"], ["cat", "/version"], "a\n")
    check(watch.within(2 * SLOW), f"a claim and its first result took {watch}")
    equal(made["class"], "exact", "class")
    return made["id"]


def writes(suite, k, node, ns):
    @suite.case(WRITES[0])
    def _():
        with pool(k, ns, "unasked", replicas=2):
            with slow_writes(k, ns):
                made = [unasked(node) for _ in range(2)]
            for sb in made:
                node.delete(sb)

    @suite.case(WRITES[1])
    def _():
        k.own()
        n = 40 if suite.args.long else 6
        with pool(k, ns, "counted", replicas=n) as p:
            time.sleep(3)  # what was written about the pool until now
            mark, made = k.audit_mark(), []
            for _ in range(n):
                answer = node.ok("POST", "/v1/sandboxes", {"image": A})
                equal(answer["class"], "exact", "class")
                made.append(answer["id"])
            for sb in made:
                record(k, ns, sb, phase="Running")
            for sb in made:
                node.delete(sb)
            p.full()
            for sb in made:
                record(k, ns, sb, phase="Terminated")
            entries = k.audited(mark, 2)
            ours, theirs = [[e for e in entries if is_write(e, ns) and (e.get("userAgent") == "bothyd") == mine] for mine in (True, False)]
            each, total = {name: round(count / n, 2) for name, count in told(ours).items()}, round(len(ours) / n, 2)
            print(f"      {total} writes of bothyd a sandbox and the pod that follows it: {each}; the cluster's own: {round(len(theirs) / n, 2)}", flush=True)
            equal(each.get("patch pods"), 1.0, "patches of pods by claims")
            equal((each.get("create pods"), each.get("delete pods"), each.get("create sandboxes")), (1.0, 1.0, 1.0), "pods made, deleted, and records")
            check(total <= 11, f"{total} writes a sandbox")

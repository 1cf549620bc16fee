"""The client's list and watch against a server that is treated badly: many pods, streams that are cut, versions that etcd has thrown away, long silence."""
import base64
import contextlib
import json
import pathlib
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request

from harness import BUILD, SLOW, Skip, check, equal, eventually
from kube import MERGE

FOLLOW = BUILD / "tests" / "k8s" / "client" / "kube-follow"
LABEL = "bothy.test/crowd"
NAMES = ("protocol: pods in pages, a watch cut in the middle of an object, versions thrown away: what is known is what kubectl has",
         "protocol: ten minutes of bookmarks alone make no second list")


class Cutter:
    """A way to the API server that can be cut: after so many bytes of an answer, or for a while altogether."""

    def __init__(self, address):
        self.address, self.after, self.shut, self.cuts = address, 0, False, 0
        self.lines, self.lock = [], threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                here, _ = self.listener.accept()
            except OSError:
                return
            if self.shut:
                here.close()
                continue
            there = socket.create_connection((self.address, 443))
            with self.lock:
                self.lines.append((here, there))
            threading.Thread(target=self.carry, args=(here, there, False), daemon=True).start()
            threading.Thread(target=self.carry, args=(there, here, True), daemon=True).start()

    def carry(self, source, sink, answers):
        carried = 0
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                carried += len(data)
                if answers and self.after and carried > self.after:
                    sink.sendall(data[:max(1, len(data) - (carried - self.after))])
                    self.cuts += 1
                    break
                sink.sendall(data)
        for s in (source, sink):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def cut(self, shut=False):
        """Everything that is open; shut: and nothing new is let through."""
        self.shut = shut
        with self.lock:
            lines, self.lines = self.lines, []
        for pair in lines:
            for s in pair:
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.close()
        self.cut()


class Follower:
    """kube-follow, through a Cutter."""

    def __init__(self, k, ns, page):
        self.k, self.ns, self.cutter = k, ns, Cutter(k.address)
        self.work = tempfile.TemporaryDirectory()
        self.program = subprocess.Popen([FOLLOW, self.kubeconfig(), f"/api/v1/namespaces/{ns}/pods", f"{LABEL}=yes", str(page)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def kubeconfig(self):
        pki, path = self.k.dir / "pki", pathlib.Path(self.work.name, "kubeconfig")
        ca = base64.b64encode((pki / "ca.crt").read_bytes()).decode()
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"https://127.0.0.1:{self.cutter.port}", "tls-server-name": self.k.address,
                                                   "certificate-authority-data": ca}}],
            "users": [{"name": "u", "user": {"token": (pki / "admin.token").read_text().strip()}}]}))
        return path

    def tell(self):
        print("tell", file=self.program.stdin, flush=True)
        return json.loads(self.program.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.program.stdin.close()
        self.program.wait(30)
        self.cutter.close()
        self.work.cleanup()


def idle_pod(ns, i):
    """One that no scheduler takes: it costs the API server an object, and the node nothing."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{i}", "namespace": ns, "labels": {LABEL: "yes"}},
            "spec": {"schedulerName": "nobody", "automountServiceAccountToken": False, "containers": [{"name": "c", "image": "localhost/busybox:a"}]}}


def make_pods(k, ns, wanted):
    """By several connections at once."""
    path, wanted, workers, failures = f"/api/v1/namespaces/{ns}/pods", list(wanted), 8, []

    def some(which):
        try:
            for i in which:
                k.ok("POST", path, idle_pod(ns, i))
        except Exception as e:  # noqa: BLE001: told below
            failures.append(e)
    threads = [threading.Thread(target=some, args=(wanted[n::workers],)) for n in range(workers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0]


def churn(k, ns, n, step):
    """Changes, deletes and makes again: names are used twice."""
    for i in range(0, n, step):
        path = f"/api/v1/namespaces/{ns}/pods/p{i}"
        if i // step % 3:
            k.ok("PATCH", path, {"metadata": {"annotations": {"turn": str(time.monotonic_ns())}}}, MERGE)
        else:
            k.ok("DELETE", path + "?gracePeriodSeconds=0")
            k.ok("POST", f"/api/v1/namespaces/{ns}/pods", idle_pod(ns, i))


def kubectl_has(k, ns):
    """{uid: version}, as kubectl lists it."""
    text = k.kubectl("-n", ns, "get", "pods", "-l", f"{LABEL}=yes", "-o", "jsonpath={range .items[*]}{.metadata.uid} {.metadata.resourceVersion}{'\\n'}{end}")
    return dict(line.split() for line in text.splitlines())


def same(k, ns, follower):
    return follower.tell()["objects"] == kubectl_has(k, ns)


def compact(k):
    """Etcd forgets everything but what is now."""
    version = k.get("/api/v1/namespaces/default/configmaps?limit=1")["metadata"]["resourceVersion"]
    body = json.dumps({"revision": version, "physical": True}).encode()
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{k.etcd}/v3/kv/compaction", body, timeout=30) as answer:
        equal(answer.status, 200, "etcd's answer")


def crowd_case(suite, k):
    @suite.case(NAMES[0])
    def _():
        n, page = (5000, 500) if suite.args.long else (200, 50)
        k.own()
        with k.namespace() as ns, Follower(k, ns, page) as f:
            f.cutter.cut(shut=True)
            make_pods(k, ns, range(n))
            f.cutter.shut = False
            eventually("the list is told", lambda: f.tell()["synced"], 90, 0.1)
            check(f.tell()["pages"] >= n / page, f"{f.tell()['pages']} pages")
            f.cutter.after = 7001
            f.cutter.cut()
            churn(k, ns, n, 7)
            eventually("streams were cut in the middle", lambda: f.cutter.cuts >= 3, 30, 0.1)
            f.cutter.after = 0
            f.cutter.cut()
            eventually("it is what kubectl has", lambda: same(k, ns, f), 60, 0.5)
            lists = f.tell()["expired"]
            f.cutter.cut(shut=True)
            churn(k, ns, n, 5)
            compact(k)
            k.restart("kube-apiserver", "KILL")  # whose memory of old versions is not etcd's
            churn(k, ns, n, 11)
            f.cutter.shut = False
            eventually("410 was told", lambda: f.tell()["expired"] > lists, 60, 0.2)
            eventually("it is what kubectl has, again", lambda: same(k, ns, f), 60, 0.5)
            print(f"      {n} pods, {f.cutter.cuts} streams cut, " + ", ".join(f"{name} {value}" for name, value in f.tell().items() if name != "objects"), flush=True)


def writers(k, ns):
    """Who has written to the pods, and when last."""
    fields = [f for p in k.get(f"/api/v1/namespaces/{ns}/pods")["items"] for f in p["metadata"].get("managedFields", [])]
    return sorted({(f["manager"], f.get("subresource", ""), f["time"]) for f in fields})


def silence_case(suite, k):
    @suite.case(NAMES[1])
    def _():
        if not suite.args.long:
            raise Skip("ten minutes: --long")
        with k.namespace() as ns, Follower(k, ns, 50) as f:
            make_pods(k, ns, range(20))
            eventually("all are known", lambda: same(k, ns, f), 30, 0.2)
            before = f.tell()
            time.sleep(600 * SLOW)
            after = f.tell()
            equal((after["lists"], after["expired"], after["events"]), (before["lists"], before["expired"], before["events"]),
                  f"lists, expirations, events (changed by {writers(k, ns)})")
            check(after["bookmarks"] - before["bookmarks"] >= 8, f"{after['bookmarks'] - before['bookmarks']} bookmarks")
            k.ok("POST", f"/api/v1/namespaces/{ns}/pods", idle_pod(ns, 20))
            eventually("the stream is alive", lambda: same(k, ns, f), 10, 0.1)


def cases(suite, k):
    if not suite.wants(*NAMES):
        return
    if not FOLLOW.exists():
        @suite.case(NAMES[0])
        def _():
            raise Skip(f"there is no {FOLLOW.name} in this build")
        return
    crowd_case(suite, k)
    silence_case(suite, k)

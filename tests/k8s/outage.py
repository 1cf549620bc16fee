"""Parts of the cluster that go away under load: the API server, the kubelet, containerd, the node itself (drained); and readers that are slow."""
import contextlib
import hashlib
import http.client
import json
import queue
import socket
import subprocess
import threading
import time

import definitions
import nodes
from harness import SLOW, Node, bytes_of, check, collect, equal, eventually, read_events
from kube import path_of, thing
from nodes import FIGURES, attempt, claimed, insist, pods, space

PLAIN = {"image": "busybox", "limits": {"memory": 64 << 20}}
AWAY = "outage: the API server killed under load: nothing is lost, repeated or wrong, and creates are told to come again"
PARTS = "outage: {} killed under load: what runs goes on, and nothing has ended"
ENDED = "outage: a container that ends while the kubelet is away: its cause is right"
DRAIN = "outage: the node is drained: sandboxes with a workspace come back with their files"
SLEEPS = "outage: one that sleeps is woken by a request, which is served"
SLOW_READER = "outage: slow readers get every byte, or are told what is missing"


def cases(suite, k):
    away(suite, k)
    parts(suite, k)
    drain(suite, k)
    slow(suite, k)


# ---- load whose every byte is known ----
class Counter:
    """A command that counts; its output is followed from the first byte to the last."""

    def __init__(self, node, sb, lines):
        self.node, self.sb, self.lines, self.got, self.error = node, sb, lines, None, None
        text = f"i=0; while [ $i -lt {lines} ]; do i=$((i+1)); echo line $i; echo other $i >&2; sleep 0.05; done; exit 7"
        self.x = node.start(sb, text)
        self.thread = threading.Thread(target=self.follow)
        self.thread.start()

    def follow(self):
        try:
            self.got = collect(self.node.events("GET", self.node.at(self.sb, self.x, "/output?follow=end"), timeout=300))
        except Exception as e:  # noqa: BLE001: told by judge()
            self.error = e

    def judge(self):
        self.thread.join(300 * SLOW)
        check(self.got, f"its follower did not come to the end: {self.error!r}")
        out, err, end, kinds = self.got
        equal((end["how"], end["exit_code"]), ("exited", 7), "its end")
        for name, got, word in (("out", out, b"line"), ("err", err, b"other")):
            equal(got, b"".join(b"%s %d\n" % (word, i) for i in range(1, self.lines + 1)), f"its {name}")
        check("gap" not in kinds, "it has gaps")


class Writer:
    """Input by offsets into a cat, a piece at a time."""

    def __init__(self, node, sb, pieces):
        self.node, self.sb, self.pieces = node, sb, pieces
        self.x = node.start(sb, ["cat"], stdin_open=True)
        self.thread = threading.Thread(target=self.write)
        self.thread.start()

    def piece(self, i):
        return b"piece %d of input\n" % i

    def write(self):
        at = 0
        for i in range(self.pieces):
            while True:
                a = attempt(self.node, "POST", self.node.at(self.sb, self.x, f"/stdin?offset={at}"), self.piece(i))
                if a is not None and a.status in (200, 409):
                    break
                time.sleep(0.2)
            at += len(self.piece(i))
            time.sleep(0.2)

    def judge(self):
        self.thread.join(300 * SLOW)
        self.node.ok("POST", self.node.at(self.sb, self.x, "/stdin?eof=true"))
        equal(self.node.wait(self.sb, self.x)["exit_code"], 0, "the end of cat")
        equal(self.node.output(self.sb, self.x), b"".join(self.piece(i) for i in range(self.pieces)), "what cat has written")


class Callers:
    """Who ask for commands and sandboxes all the time: (seconds, what, status, body)."""

    def __init__(self, node, boxes):
        self.node, self.boxes, self.answers, self.stop = node, boxes, [], threading.Event()
        self.threads = [threading.Thread(target=f) for f in (self.create, self.run)]
        for t in self.threads:
            t.start()

    def note(self, what, a, right=True):
        self.answers.append((time.monotonic(), what, a.status if a is not None else 0, right, a.body[:300] if a is not None else b""))

    def create(self):
        while not self.stop.is_set():
            a = attempt(self.node, "POST", "/v1/sandboxes", {**PLAIN, "queue_wait": 5}, timeout=200)
            self.note("create", a)
            if a is not None and a.status < 300:
                attempt(self.node, "DELETE", f"/v1/sandboxes/{a.json['id']}")
            time.sleep(0.3)

    def run(self):
        n = 0
        while not self.stop.is_set():
            n += 1
            a = attempt(self.node, "POST", f"/v1/sandboxes/{self.boxes[n % len(self.boxes)]}/exec", {"argv": ["echo", f"word {n}"]}, timeout=200)
            self.note("exec", a, a is None or a.status != 200 or bytes_of(a.json["out"]) == b"word %d\n" % n)
            time.sleep(0.1)

    def fresh(self):
        """Somebody new asks for each, now; whoever asked before may still wait for an answer."""
        def create():
            a = attempt(self.node, "POST", "/v1/sandboxes", {**PLAIN, "queue_wait": 1}, timeout=200)
            self.note("new create", a)
            if a is not None and a.status < 300:
                attempt(self.node, "DELETE", f"/v1/sandboxes/{a.json['id']}")

        def run():
            self.note("new exec", attempt(self.node, "POST", f"/v1/sandboxes/{self.boxes[0]}/exec", {"argv": ["true"]}, timeout=200))
        for call in (create, run):
            self.threads.append(threading.Thread(target=call))
            self.threads[-1].start()

    def end(self):
        self.stop.set()
        for t in self.threads:
            t.join(300 * SLOW)

    def judge(self):
        for _, what, status, right, body in self.answers:
            check(right, f"{what}: a wrong result: {body}")
            check(status in (200, 201, 503), f"{what}: {status} {body}")
            check(status != 503 or b'"retryable":true' in body, f"{what}: {body}")

    def count(self, what, status, since=0.0, until=float("inf")):
        return sum(a[1] == what and a[2] == status and since <= a[0] < until for a in self.answers)


# ---- the API server ----
def away(suite, k):
    if not suite.wants(AWAY):
        return
    seconds, boxes = (40, 8) if suite.args.long else (10, 3)

    @suite.case(AWAY)
    def _():
        k.own()
        with space(k) as ns, Node("kubernetes") as node:
            made = [node.create(**PLAIN) for _ in range(boxes)]
            counters = [Counter(node, sb, (seconds + 15) * 12) for sb in made]
            writers = [Writer(node, sb, 3 * seconds) for sb in made[:2]]
            callers = Callers(node, made[:-1] if boxes > 3 else made)  # the last is deleted meanwhile
            time.sleep(2)
            late = node.create(**PLAIN)  # whose record may not be written yet
            k.stop("kube-apiserver", "KILL")
            gone = time.monotonic()
            if boxes > 3:
                node.delete(made[-1])
            time.sleep(6)  # a command that comes before waits for the stream to come back
            while time.monotonic() < gone + seconds:
                callers.fresh()
                time.sleep(1)
            back = time.monotonic()
            k.start("kube-apiserver")
            eventually("creates succeed again", lambda: callers.count("create", 201, back) + callers.count("create", 200, back), 60, 0.1)
            again = time.monotonic() - back
            callers.end()
            callers.judge()
            for job in (counters[:-1] if boxes > 3 else counters) + writers:
                job.judge()
            refused = callers.count("new create", 503, gone, back + 1), callers.count("new exec", 503, gone, back + 1)
            FIGURES["api_server_away"] = {"seconds": round(back - gone, 1), "creates_refused": refused[0], "execs_refused": refused[1],
                                          "create_again_after_seconds": round(again, 1), "answers": len(callers.answers)}
            print(f"      {FIGURES['api_server_away']}", flush=True)
            asked = sum(a[1] == "new create" for a in callers.answers)
            check(asked > 2 and min(refused) >= asked - 1, f"of {asked} each that came meanwhile were told to come again: {refused}")
            records = eventually("the records have caught up", lambda: (lambda c: c if late in c.values() else None)(claimed(k, ns)), 60, 0.2)
            lives = set(made[:-1] if boxes > 3 else made) | {late}
            check(lives <= set(records.values()), f"{lives - set(records.values())} have no record")
            eventually("what was deleted meanwhile is gone", lambda: set(claimed(k, ns).values()) == lives, 60, 0.2)
            for sb in lives:
                equal(node.shell(sb, "echo here"), "here\n", "its word")


# ---- the kubelet and containerd ----
def parts(suite, k):
    if not suite.wants(ENDED, *[PARTS.format(p) for p in ("kubelet", "containerd")]):
        return
    seconds, boxes = (20, 6) if suite.args.long else (6, 2)
    with space(k) as ns, Node("kubernetes") as node:
        made = [node.create(**PLAIN) for _ in range(boxes)]
        for part in ("kubelet", "containerd"):
            @suite.case(PARTS.format(part))
            def _(part=part):
                k.own()
                counters = [Counter(node, sb, (seconds + 10) * 12) for sb in made]
                time.sleep(1)
                k.stop(part, "KILL")
                time.sleep(seconds)
                k.start(part)
                for c in counters:
                    c.judge()
                for sb in made:
                    equal(eventually("it serves again", lambda sb=sb: serves(node, sb), 60, 0.3), "here\n", "its word")
                    equal(node.show(sb)["state"], "running", "its state")
                fresh = insist(node, PLAIN, nodes.key())
                equal(eventually("a new one", lambda: serves(node, fresh), 60, 0.3), "here\n", "its word")
                node.delete(fresh)

        @suite.case(ENDED)
        def _():
            k.own()
            sb = made[0]
            pod = next(name for name, of in claimed(k, ns).items() if of == sb)
            status = pods(k, ns)[pod]["status"]["containerStatuses"]
            container = next(s for s in status if s["name"] == "sandbox")["containerID"].removeprefix("containerd://")
            x = node.start(sb, ["sleep", "1000"])
            k.stop("kubelet", "KILL")
            subprocess.run([k.dir / "bin" / "ctr", "tasks", "kill", "-s", "KILL", container], check=True, stdout=subprocess.DEVNULL)
            time.sleep(2)
            k.start("kubelet")
            cause = eventually("it is gone", lambda: (lambda s: s if s["state"] == "gone" else None)(node.show(sb)), 60, 0.2)["cause"]
            equal(cause["kind"], "killed", f"the cause ({cause})")
            equal(node.process(sb, x)["end"]["how"], "unknown", "the end of what ran in it")
            eventually("its pod is gone", lambda: pod not in pods(k, ns), 60, 0.2)


def serves(node, sb):
    a = attempt(node, "POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["echo", "here"]})
    return bytes_of(a.json["out"]).decode() if a is not None and a.status == 200 else None


# ---- the node is drained ----
def has(k, made, **wanted):
    status = k.get(path_of(made)).get("status", {})
    return status if all(status.get(name) == value for name, value in wanted.items()) else None


@contextlib.contextmanager
def kept(k, ns, count):
    """A pool whose sandboxes have a workspace, and volumes for it."""
    template = thing("SandboxTemplate", f"kept-{ns}", spec={"image": "docker.io/library/busybox:latest", "network": {"egress": "All"},
                     "resources": {"limits": {"memory": "64Mi"}}, "workspace": {"mountPath": "/work", "size": "1Mi", "storageClassName": f"local-{ns}"}})
    pool = thing("SandboxPool", "kept", ns, {"templateRef": f"kept-{ns}", "replicas": 1})
    definitions.install(k)
    with contextlib.ExitStack() as stack:
        for i in range(count):
            stack.enter_context(k.volume(f"{ns}-{i}", storage_class=f"local-{ns}", size="1Mi"))
        k.apply(template)
        k.apply(pool)
        try:
            yield pool
        finally:
            k.call("DELETE", path_of(pool))
            k.call("DELETE", path_of(template))


def drain(suite, k):
    if not suite.wants(DRAIN, SLEEPS):
        return
    boxes = 4 if suite.args.long else 2
    with space(k) as ns, Node("kubernetes") as node, kept(k, ns, 3 * boxes + 4):
        made = [thing("Sandbox", f"s{i}", ns, {"poolRef": "kept"}) for i in range(boxes)]
        for sandbox in made:
            k.apply(sandbox)
        ids = [eventually("it runs", lambda s=s: has(k, s, phase="Running"), 120, 0.2)["id"] for s in made]
        for sb in ids:
            node.shell(sb, f"echo {sb} >/work/kept; echo lost >/tmp/lost")

        @suite.case(DRAIN)
        def _():
            k.own()
            before = [eventually("its pod is known", lambda s=s: has(k, s, phase="Running").get("podUID"), 30, 0.2) for s in made]
            began = time.monotonic()
            try:
                k.kubectl("drain", k.node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=100s")
                drained = time.monotonic() - began
                check(not running_there(k, ns), "pods are left on the node")
            finally:
                k.kubectl("uncordon", k.node)
            for s, sb, uid in zip(made, ids, before):
                status = eventually("it runs again", lambda s=s, uid=uid: (lambda t: t if t and t.get("podUID") not in (uid, None) else None)(has(k, s, phase="Running")), 180, 0.5)
                equal(status["id"], sb, "its id")
                equal(node.shell(sb, "cat /work/kept; ls /tmp"), f"{sb}\n", "its files")
            FIGURES["drain"] = {"sandboxes": boxes, "drained_after_seconds": round(drained, 1), "all_back_after_seconds": round(time.monotonic() - began, 1)}
            print(f"      {FIGURES['drain']}", flush=True)

        @suite.case(SLEEPS)
        def _():
            k.ok("PATCH", path_of(made[0]), {"spec": {"desiredState": "Hibernated"}}, "application/merge-patch+json")
            eventually("it sleeps", lambda: has(k, made[0], phase="Hibernated"), 60, 0.2)
            began = time.monotonic()
            a = node.call("POST", f"/v1/sandboxes/{ids[0]}/exec", {"argv": ["cat", "/work/kept"]}, timeout=120)
            equal(a.status, 200, f"the answer ({a!r})")
            equal(bytes_of(a.json["out"]).decode(), f"{ids[0]}\n", "its file")
            FIGURES["woken_by_a_request_seconds"] = round(time.monotonic() - began, 2)
            eventually("it runs", lambda: has(k, made[0], phase="Running"), 30, 0.2)

        for sandbox in made:
            k.call("DELETE", path_of(sandbox))
        eventually("they are gone", lambda: all(k.gone(path_of(s)) for s in made), 90, 0.2)


def running_there(k, ns):
    return [name for name, p in pods(k, ns).items() if p["spec"].get("nodeName") and p["status"]["phase"] == "Running"]


# ---- slow readers ----
LINES = 100_000  # of one command: 589 kB, more than what streams may have under way
SAID = b"".join(b"%d\n" % i for i in range(1, LINES + 1))


class Slow(http.client.HTTPConnection):
    """Over bothyd's socket, with small buffers; nothing is read for a while."""

    def __init__(self, path, wait):
        super().__init__("bothy", timeout=120 * SLOW)
        self.path, self.wait = path, wait

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def read_slowly(node, sb, wait):
    """'whole', or 'told' what is missing; anything else is a failure."""
    c = Slow(node.path, wait)
    try:
        body = json.dumps({"argv": ["sh", "-c", f"seq 1 {LINES}; echo last >&2; exit 3"]})
        c.request("POST", f"/v1/sandboxes/{sb}/exec", body, {"Content-Type": "application/json", "Accept": "text/event-stream"})
        time.sleep(wait)
        out, err, end, kinds = collect(events_of(c.getresponse()))
    finally:
        c.close()
    equal((end["how"], end["exit_code"]), ("exited", 3), "its end")
    if out == SAID and err == b"last\n" and "gap" not in kinds:
        return "whole"
    check("gap" in kinds or end.get("truncated"), f"{len(out)} of {len(SAID)} bytes, {len(err)} of stderr, and nothing says so: {end}")
    return "told"


def events_of(response):
    equal(response.status, 200, "status")
    yield from read_events(response)


def work_through(items, threads, run):
    """Results of run(item), some at a time."""
    todo, done = queue.Queue(), []
    for item in items:
        todo.put(item)

    def work():
        with contextlib.suppress(queue.Empty):
            while True:
                item = todo.get_nowait()
                try:
                    done.append(run(item))
                except Exception as e:  # noqa: BLE001: counted by the caller
                    done.append(e)
    running = [threading.Thread(target=work) for _ in range(threads)]
    for t in running:
        t.start()
    for t in running:
        t.join()
    return done


def plain(k, ns, name, lines, wait):
    """The same by kubectl exec, which says that all went well: whether all is there."""
    with subprocess.Popen([k.dir / "bin" / "kubectl", "-n", ns, "exec", name, "-c", "sandbox", "--", "seq", "1", str(lines)], env=k.environment,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
        time.sleep(wait)
        got = run.stdout.read()
    return run.returncode, len(got), hashlib.sha256(got).digest()


def slow(suite, k):
    if not suite.wants(SLOW_READER):
        return
    execs, others, wait, lines = (2000, 32, 12, 2_000_000) if suite.args.long else (100, 4, 6, 2_000_000)

    @suite.case(SLOW_READER)
    def _():
        with space(k) as ns, Node("kubernetes") as node:
            boxes = [node.create(**PLAIN) for _ in range(4)]
            began = time.monotonic()
            got = work_through(range(execs), 16, lambda i: read_slowly(node, boxes[i % 4], 0.5))
            took = time.monotonic() - began
            errors = [e for e in got if isinstance(e, Exception)]
            names = sorted(claimed(k, ns))
            whole = b"".join(b"%d\n" % i for i in range(1, lines + 1))
            # Two at a time: where many wait for a processor, what is lost has time to arrive.
            theirs = work_through(range(others), 2, lambda i: plain(k, ns, names[i % len(names)], lines, wait))
            lost = [t for t in theirs if not isinstance(t, Exception) and t[0] == 0 and t[2] != hashlib.sha256(whole).digest()]
            FIGURES["slow_readers"] = {"execs": execs, "bytes_each": len(SAID), "seconds": round(took, 1), "whole": got.count("whole"), "told": got.count("told"),
                                       "wrong": len(errors), "kubectl_execs": others, "kubectl_success_with_loss": len(lost),
                                       "kubectl_bytes_lost": max((len(whole) - t[1] for t in lost), default=0)}
            print(f"      {FIGURES['slow_readers']}", flush=True)
            check(not errors, f"{len(errors)} of {execs}: {errors[:3]}")
            equal(got.count("whole") + got.count("told"), execs, "answers")
            check(lost or not suite.args.long, "kubectl exec lost nothing this time: the comparison shows nothing")

"""What the two programs run beside them, killed: skopeo and each process of bothy-unpack in the middle of a layer, crun in
the middle of a slot. And a second bothyd and a second warden, which are refused while the first go on."""
import contextlib
import os
import pathlib
import random
import signal
import subprocess
import tempfile
import threading
import time

from audit import Audit
from harness import Node, alive, check, equal, eventually, read_bytes
from load import Load
from pulls import helpers, image_of, nothing_under_way, pull, pulled
from registry import Registry, Slow

LAYER = 3_000_000
UNPACK = 3  # processes of one bothy-unpack: outer, writer, decompressor
# How a pull may answer whose helper was killed: it was tried again, or says so.
DEFINED = {"image_pull_failed", "unavailable", "internal"}


class World:
    def __enter__(self):
        with contextlib.ExitStack() as stack:
            scratch = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bothy-beside-")))
            self.registry = stack.enter_context(Registry(scratch / "plain"))
            self.slow = stack.enter_context(Slow(self.registry, rate=20_000_000))
            self.node = stack.enter_context(Node(images="busybox", pool="3:3", config=f"""
images:
  from: any
registries:
  {self.registry.host}: {{insecure: true}}
  {self.slow.host}: {{insecure: true}}
"""))
            self.audit = Audit(self.node)
            equal(self.audit.settle(), {}, "before the first kill")
            self.load = Load(self.node, 1, 2, creates=False)
            self.load.start()
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def afterwards(self):
        """Nothing is left, and a pull, a slot and a command work."""
        nothing_under_way(self.node)
        self.load.come_and_go(two=False)
        self.node.ok("POST", "/v1/images/prune", {}, timeout=60)
        equal(self.audit.settle(pruned=True), {}, "what is left")
        check(not self.load.failure, str(self.load.failure))


class Pulling:
    """A pull in a thread of its own, held in the middle of its last layer."""

    def __init__(self, w, name, at):
        image = image_of(LAYER)
        self.slow, self.answer = w.slow, None
        self.ref = w.registry.push(image, name).replace(w.registry.host, w.slow.host)
        w.slow.after(at)
        self.thread = threading.Thread(target=self.run, args=(w.node,), daemon=True)
        self.thread.start()

    def run(self, node):
        self.answer = pull(node, self.ref, timeout=120)

    def stall(self):
        self.slow.wait_reached()
        self.slow.held.clear()

    def end(self):
        self.slow.held.set()
        self.thread.join(90)
        check(not self.thread.is_alive(), "the pull did not end")
        return self.answer


def kill_one(node, name, nth, of):
    """The nth of that many processes of that name, of the youngest if there are more."""
    there = sorted(eventually(f"{name} runs", lambda: len(found := helpers(node, name)) >= of and found, 10))
    os.kill(there[-of:][nth], signal.SIGKILL)


def pulls(suite, w, times, figures):
    node = w.node
    for name, nth, of in [("skopeo", 0, 1), *(("bothy-unpack", n, UNPACK) for n in range(UNPACK))]:
        @suite.case(f"beside: {name} killed in the middle of a layer, process {nth + 1}, {times} times")
        def _(name=name, nth=nth, of=of):
            for n in range(times):
                under = Pulling(w, f"beside/{name}{nth}:{n}", at=random.randint(LAYER // 3, LAYER))
                under.stall()
                kill_one(node, name, nth, of)
                time.sleep(random.uniform(0, 0.2))
                a = under.end()
                if a.status != 200:
                    check(a.error["code"] in DEFINED and a.error["retryable"], f"{a!r}")
                pulled(node, under.ref)
                node.ok("DELETE", "/v1/images/" + under.ref)
                figures[name] = figures.get(name, 0) + 1
            w.afterwards()

    @suite.case(f"beside: skopeo and bothy-unpack killed at random moments of pulls, {4 * times} times")
    def _():
        for n in range(4 * times):
            name = random.choice(("skopeo", "bothy-unpack"))
            under = Pulling(w, f"beside/random:{n}", at=10 ** 9)
            until = time.monotonic() + random.uniform(0, 0.4)
            while time.monotonic() < until or not helpers(node, name):
                if not under.thread.is_alive():
                    break
                time.sleep(0.005)
            with contextlib.suppress(IndexError, ProcessLookupError):
                os.kill(random.choice(helpers(node, name)), signal.SIGKILL)
                figures[name] = figures.get(name, 0) + 1
            a = under.end()
            if a.status != 200:
                check(a.error["code"] in DEFINED and a.error["retryable"], f"{a!r}")
            pulled(node, under.ref)
            node.ok("DELETE", "/v1/images/" + under.ref)
        w.afterwards()


def children(pid):
    """Of any thread; read directly, because crun lives for a few milliseconds."""
    found = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            found += [int(p) for p in read_bytes(f"/proc/{pid}/task/{task}/children").split()]
    return found


def crun(suite, w, kills, figures):
    node = w.node

    @suite.case(f"beside: crun killed in {kills} refills: the pool fills up, nothing is left")
    def _():
        killed = 0
        until = time.monotonic() + 60 + 3 * kills
        while killed < kills and time.monotonic() < until:
            sandbox = node.create()
            node.delete(sandbox)
            end = time.monotonic() + 0.5
            while time.monotonic() < end and killed < kills:
                for pid in children(node.pid("warden"))[:kills - killed]:
                    time.sleep(random.uniform(0, 0.03))
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        killed += 1
        check(killed >= kills, f"{killed} kills, not {kills}")
        figures["crun"] = figures.get("crun", 0) + killed
        eventually("the pool is full again", lambda: node.ok("GET", "/v1/pools")["pools"][0]["ready"] >= 3, 60, 0.1)
        w.afterwards()


def second(suite, w):
    node = w.node
    warden = [word.decode() for word in read_bytes(f"/proc/{node.pid('warden')}/cmdline").split(b"\0")[:-1]]
    again = {"bothyd": ["unshare", "--mount", f"{node.dir}/ctl/enter"], "warden": warden,
             "warden --destroy-all": [warden[0], "--destroy-all", *warden[1:warden.index("--pool")]]}

    @suite.case("beside: a second bothyd, a second warden and its --destroy-all are refused, the first go on")
    def _():
        pids = {program: node.pid(program) for program in ("bothyd", "warden")}
        tries = {name: subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                        env=node.environment(), start_new_session=True) for name, argv in again.items()}
        while any(p.poll() is None for p in tries.values()):
            w.load.come_and_go(two=False)
        for name, p in tries.items():
            said = p.stdout.read().decode()
            equal(p.returncode, 1, f"status of the second {name} ({said})")
            check("another instance" in said and "Stop the other instance" in said, f"the second {name} says {said!r}")
            check("/warden" in said or "/bothyd" in said, f"the second {name} does not say where: {said!r}")
        check(all(alive(pid) for pid in pids.values()), "a first one has gone")
        w.afterwards()


def run(suite, times, results):
    if not suite.wants_any(run):
        return
    figures = results["beside"] = {}
    with World() as w:
        pulls(suite, w, times, figures)
        crun(suite, w, 10 * times, figures)
        second(suite, w)

        @suite.case("beside: the commands beside it all ended right")
        def _():
            w.load.finish()
            check(not w.load.failure, str(w.load.failure))

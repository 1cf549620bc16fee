"""What the groups share: the four ways an attempt is made inside, the intruder, and what must be as it was afterwards."""
import collections
import concurrent.futures
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import re
import threading
import time

import census
import leftovers
from harness import BUILD, ApiError, Watch, alive, bytes_of, check, equal, eventually, read_bytes

INTRUDER = BUILD / "tests" / "attack" / "intruder"
USER = "1000"
# As root and as an ordinary user; with and without the grant for set-uid programs. The intruder has its set-uid bit, so that
# a user who has the grant attacks as root of the sandbox.
WAYS = {"root": ((), "0"), "user": ((), USER), "root+setuid": (("setuid",), "0"), "user+setuid": (("setuid",), USER)}
AS_ROOT = ("root", "root+setuid", "user+setuid")
# Programs of the host that a sandbox could try to change through a process that runs them.
PROGRAMS = ("init/bothy-init", "warden/bothy-warden", "daemon/bothyd", "unpack/bothy-unpack")
SETTLE_S = 20
# A connection of our own, a journal that is open for a moment.
SLACK = {"descriptors of bothyd": 8}
SMALL = {"memory": 64 << 20, "pids": 64}
# A neighbour: so many turns without an attack and under it, and so many of each verb in a turn.
TURNS, EXECS, CREATES = 2, 100, 10
TIMES = 3       # a p99 under an attack may be so many times the one without it
# A p99 below this is good in any case. A command and its answer pass six threads (client, http, init, command, pump, relay), and on two
# busy processors each of them may wait for two ticks of 4 ms until it has its turn.
FLOOR_S = 0.05


class Attack:
    """Counts attempts, and what was measured on the way."""

    def __init__(self, suite):
        self.suite, self.attempts, self.runs = suite, 0, 0
        self.figures = {}

    def attempt(self, name, ways=()):
        """A case that is an attempt; ways are named behind it."""
        def run(body):
            if self.suite.wants(name):
                self.attempts += 1
                self.runs += max(1, len(ways))
            return self.suite.case(name + (f" [{' '.join(ways)}]" if ways else ""))(body)
        return run

    def say(self, text):
        print(f"      {text}", flush=True)


def put_intruder(node, sandbox):
    """Into a sandbox that has a shell; owned by root, with the set-uid bit."""
    x = node.start(sandbox, "cat >/intruder && chmod 4755 /intruder", stdin_open=True)
    equal(node.call("POST", node.at(sandbox, x, "/stdin?eof=true"), INTRUDER.read_bytes()).status, 200, "stdin")
    equal(node.wait(sandbox, x)["exit_code"], 0, "the intruder's way in")


@contextlib.contextmanager
def armed(node, **spec):
    """A sandbox with the intruder in it."""
    with node.sandbox(**spec) as sandbox:
        put_intruder(node, sandbox)
        yield sandbox


def intrude(node, sandbox, *words, **spec):
    """What it printed; it must not have been stopped."""
    r = node.exec(sandbox, ["/intruder", *words], **{"timeout_ms": 90000, **spec})
    check(r["end"]["how"] == "exited" and not bytes_of(r["err"]), f"the intruder: {r['end']} {bytes_of(r['err'])!r}")
    return bytes_of(r["out"]).decode()


def answers(node, sandbox, text="alive"):
    """It takes commands and remembers what is written."""
    equal(node.shell(sandbox, f"echo {text} >/tmp/answers; cat /tmp/answers; rm /tmp/answers"), text + "\n", "a command after it")


def pid1_of(node, sandbox):
    """The host's pid of the sandbox's pid 1, as the warden knows it."""
    for slot in pathlib.Path(node.dir, "warden", "slots").iterdir():
        if read_bytes(slot / "claim").decode().split("\n")[0] == sandbox:
            return int(read_bytes(slot / "state").split()[1])
    raise AssertionError(f"no slot is claimed for {sandbox}")


def identity(pid):
    """A process that another one of the same number is not."""
    return pid, read_bytes(f"/proc/{pid}/stat").rsplit(b")", 1)[-1].split()[19:20]


def warm(node, slots):
    """Slots that are ready have the image of the last claim ahead: until all have, what they hold changes. The warden keeps its own
    network namespace open from the first port on."""
    for i in range(slots):
        with node.sandbox() as sandbox:
            if not i:
                node.call("GET", f"/v1/sandboxes/{sandbox}/ports/1/")
    eventually("the pool is full", lambda: census.slots(node) == (slots, slots), SETTLE_S)
    time.sleep(0.5)


def host_state(node):
    """What nobody inside may change. Mounts: ours; others may work beside us."""
    return {"host name": os.uname().nodename, "core_pattern": read_bytes("/proc/sys/kernel/core_pattern"),
            "mounts": leftovers.mounts(node), "sysctls": read_bytes("/proc/sys/kernel/modprobe"),
            "devices": [(p, oct(os.stat(p).st_mode)) for p in ("/dev/null", "/dev/zero", "/dev/tty", "/dev/ptmx")],
            "programs": [hashlib.sha256((BUILD / "src" / p).read_bytes()).hexdigest() for p in PROGRAMS]}


def descriptors(pid):
    """How many of each kind a process has: its targets without their numbers. Not those of the store: SQLite keeps
    what closed readers had while others hold a lock, as many as once read at the same time."""
    kinds = collections.Counter()
    for fd in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            kinds[re.sub(r"[0-9]+", "N", os.readlink(fd.path))] += 1
    return {k: n for k, n in kinds.items() if "/store.db" not in k}


def counts(node):
    return {**census.exact(node), "descriptors of bothyd": sum(descriptors(node.pid("bothyd")).values())}


class Guard:
    """After each group: the same two processes, nothing in their logs that was not asked for, nothing left behind."""

    def __init__(self, attack, node, slots):
        self.attack, self.node = attack, node
        warm(node, slots)
        self.processes = {name: identity(node.pid(name)) for name in ("bothyd", "warden")}
        self.read = {name: len(node.log(name)) for name in self.processes}
        self.host = host_state(node)
        self.before = counts(node)

    def complaints(self, allowed):
        """Warnings and errors that are new in the logs and match none of these."""
        found = []
        for name in self.processes:
            text = self.node.log(name)[self.read[name]:]
            self.read[name] += len(text)
            for line in text.splitlines():
                level = json.loads(line)["level"] if line.startswith("{") else "error"
                if level in ("warn", "error") and not any(re.search(a, line) for a in allowed):
                    found.append(line)
        return found

    def left(self):
        """{count: (before, now)} of what is more than it was."""
        now = counts(self.node)
        return {k: (self.before[k], v) for k, v in now.items() if v > self.before[k] + SLACK.get(k, 0)}

    def after(self, group, allowed=()):
        @self.attack.suite.case(f"after {group}: same bothyd and warden, no complaint of theirs, nothing left, host as before")
        def _():
            for name, was in self.processes.items():
                equal(identity(self.node.pid(name)), was, name)
                check(alive(was[0]), f"{name} is dead")
            eventually("readyz is 200", lambda: self.node.call("GET", "/readyz").status == 200, SETTLE_S)  # what was deleted goes behind
            limit = Watch(SETTLE_S)
            while (found := self.left()) and not limit.over():
                time.sleep(0.1)
            check(not found, f"left: {found}; bothyd has {descriptors(self.node.pid('bothyd'))}")
            equal(host_state(self.node), self.host, "the host")
            complaints = self.complaints(allowed)
            check(not complaints, "complaints:\n" + "\n".join(complaints[:5]))
            with self.node.sandbox() as sandbox:
                answers(self.node, sandbox)


def p99(times):
    return sorted(times)[min(len(times) - 1, len(times) * 99 // 100)]


class Neighbour:
    """Verbs that another owner needs: they are timed without an attack and under it."""

    def __init__(self, api, sandbox, **more):
        """more: {verb: (body, times in a turn)}. A body returns the function that undoes it, which is not timed, or None. A verb of the
        same name is replaced; None leaves it out."""
        def run():
            equal(bytes_of(api.exec(sandbox, ["echo", "here"])["out"]), b"here\n", "the neighbour's output")

        def create():
            made = api.create(limits=SMALL)
            return lambda: api.delete(made)
        bodies = {"exec": (run, EXECS), "create": (create, CREATES), **more}
        self.bodies = {verb: body for verb, body in bodies.items() if body}

    def turn(self, took):
        """Adds the seconds of one turn of each verb, all of them mixed; the host's part of them is left out."""
        for _, verb in sorted(((i + 0.5) / n, verb) for verb, (_, n) in self.bodies.items() for i in range(n)):
            watch = Watch()
            undo = self.bodies[verb][0]()
            took[verb].append(max(0, watch.seconds() - watch.taken()))
            if undo:
                undo()

    def compare(self, under, once):
        """{verb: (p99 without the attack, p99 under it)}. In turns, so that other work of the machine meets both: without, under, and
        again; for an attack that can be made only once: without, under, under, without."""
        without, during = collections.defaultdict(list), collections.defaultdict(list)
        for _ in range(1 if once else TURNS):
            self.turn(without)
            with under():
                for _ in range(TURNS if once else 1):
                    self.turn(during)
        for _ in range(TURNS - 1 if once else 0):
            self.turn(without)
        return {verb: (p99(without[verb]), p99(during[verb])) for verb in self.bodies}


def undisturbed(attack, name, neighbour, under, once=False):
    """Fails if the p99 of one of the neighbour's verbs under an attack (a function that gives a context) is both later than FLOOR_S and
    more than TIMES what it is without the attack. A measurement that fails is repeated once, and said."""
    for last in (False, True):
        found = neighbour.compare(under, once)
        attack.figures.setdefault("neighbour_p99_ms", {})[name] = {
            verb: [round(s * 1000, 1) for s in pair] for verb, pair in found.items()}
        told = ", ".join(f"{verb} {own * 1000:.1f} ms without, {then * 1000:.1f} ms under it" for verb, (own, then) in found.items())
        late = [verb for verb, (own, then) in found.items() if then > max(TIMES * own, FLOOR_S)]
        attack.say(f"p99, {name}: {told}" + (f"; late: {', '.join(late)}" if late else ""))
        if not late:
            return
        check(not last, f"twice in a row a neighbour's {' and '.join(late)} took too long: {told}")


@contextlib.contextmanager
def loops(*bodies, pause=0.02):
    """Runs each body again and again on a thread of its own until the block ends. A request that is refused is part of an attack."""
    over = threading.Event()

    def run(body):
        while not over.wait(pause):
            with contextlib.suppress(ApiError, OSError, http.client.HTTPException):
                body()
    threads = [threading.Thread(target=run, args=(body,), daemon=True) for body in bodies]
    for t in threads:
        t.start()
    try:
        yield
    finally:
        over.set()
        for t in threads:
            t.join(60)


def each_way(node, body, **spec):
    """body(sandbox, user, way) in all four ways, each in a sandbox of its own, at the same time."""
    def one(way):
        grants, user = WAYS[way]
        with armed(node, grants=list(grants), **spec) as sandbox:
            body(sandbox, user, way)
    with concurrent.futures.ThreadPoolExecutor(len(WAYS)) as pool:
        list(pool.map(one, WAYS))


def gone(attack, node):
    """Once the node is down."""
    @attack.suite.case("at the end nothing of the node is left: processes, mounts, cgroups, loop devices, files")
    def _():
        # Numbers of namespaces are used again by whoever works beside us; what holds one is a process or a mount.
        found = leftovers.left(node, frozenset())
        check(not found, "\n".join(found[:10]))

"""bothyd and the warden killed under sessions: between commands, during them and inside a frame.

Every session runs one command after the other. Each command writes its number down in a file, counts in a variable of the
session, and gives bytes and a status that are known; so a result that is lost or wrong, a command that ran twice or never,
and state that is gone are all seen."""
import hashlib
import json
import random
import secrets
import threading
import time

from client import LOST, Session, lacking, patient, retryable
from harness import ApiError, Node, Watch, bytes_of, check, equal, eventually, read_bytes

COMM = {"bothyd": b"bothyd", "warden": b"bothy-warden"}
SESSIONS = (("bash", "attached"), ("dash", "attached"), ("ash", "attached"), ("bash", "attached"), ("dash", "attached"),
            ("bash", "detached"))
ZERO = ("lost", "wrong_status", "wrong_bytes", "wrong_state", "ran_twice", "never_ran", "wrong_list")
MOMENTS = ("between", "during", "frame")
ASH_MAX = 100  # commands of a session in ash, which after an exit keeps a shell for each; 128 are its limit


class Trouble(AssertionError):
    """kind: one of ZERO."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


# ---- commands whose every byte is known ----
# Each gives (text, out, err, exit code, kind, limit in s, whether it counts). @ is what every command begins with.

def small(draw, shell):
    code = draw.randint(0, 120)
    return f"echo small; echo err >&2; (exit {code})", "small\n", "err\n", code, "ended", 0, True


def slow(draw, shell):
    lines, code = draw.randint(3, 12), draw.randint(0, 120)
    text = f"i=0; while [ $i -lt {lines} ]; do echo line $i; echo err $i >&2; i=$((i+1)); sleep 0.05; done; (exit {code})"
    return (text, "".join(f"line {i}\n" for i in range(lines)), "".join(f"err {i}\n" for i in range(lines)), code, "ended", 0, True)


def much(draw, shell):
    """More than a pipe holds, on both streams."""
    n = draw.randint(20000, 120000)
    return f"seq 1 {n}; seq 1 {n // 2} >&2", numbers(n), numbers(n // 2), 0, "ended", 0, True


def frame(draw, shell):
    """A frame that takes a while to get in."""
    line = f"{draw.getrandbits(64):016x} some text that a shell would like to read: $x `y` 'z' \"\n"
    body = line * draw.randint(2000, 9000 if shell == "bash" else 3000)
    return (f"sha256sum <<'END OF FILE'\n{body}END OF FILE", hashlib.sha256(body.encode()).hexdigest() + "  -\n", "", 0, "ended", 0,
            True)


def leave(draw, shell):
    """The shell exits. ash keeps the state from before, and says resumed from the second time on."""
    code, ash = draw.randint(1, 120), shell == "ash"
    return f"echo leaving; exit {code}", "leaving\n", "", code, None if ash else "shell_exited", 0, not ash


def limited(draw, shell):
    """Ended by its time limit, whoever is alive then. A shell whose child had to be killed says so."""
    return "echo begun; sleep 60; echo no", "begun\n", None, 130, None, 1.5, shell != "ash"


def replaced(draw, shell):
    """The shell is gone; the state from before the command goes on."""
    return "exec echo replaced", "replaced\n", "", 0, "resumed", 0, False


def broken(draw, shell):
    return "if (", "", None, 2, "ended", 0, False


KINDS = (small, small, small, slow, slow, much, frame, frame, leave, limited, replaced, broken)


def numbers(n):
    return "".join(f"{i}\n" for i in range(1, n + 1))


class Client:
    """One session and who uses it."""

    def __init__(self, load, number, shell, mode):
        self.load, self.number, self.shell, self.mode = load, number, shell, mode
        self.sandbox = load.sandboxes[number % len(load.sandboxes)]
        self.session = Session(load.node, self.sandbox, shell, mode)
        self.file = f"/tmp/ran-{load.tag}-{number}"
        self.draw = random.Random(f"{load.seed} {number}")
        self.ran, self.total = [], 0
        self.begin()

    def begin(self):
        self.count = 0  # what N of the session must be
        self.sent = []  # in this session
        self.run_one(b"N=0; cd /usr", (b"", b"", 0, "ended"), 0)

    def reopen(self):
        self.look()
        patient(lambda: self.load.node.ok("DELETE", self.session.at))
        self.session = Session(self.load.node, self.sandbox, self.shell, self.mode)
        self.begin()

    def look(self):
        """What the list of the session says."""
        listed = patient(lambda: self.load.node.ok("GET", self.session.at + "/commands"))["commands"]
        self.load.not_run += sum(x["kind"] == "not_run" for x in listed)
        if not fits(listed, self.sent):
            raise Trouble("wrong_list", f"{listed} instead of {self.sent}")

    def work(self):
        try:
            while self.load.goes_on():
                self.command()
        except Exception as e:  # noqa: BLE001: whatever it is, it is the result
            self.load.fail(e, f"{self.shell} {self.mode} {self.number} after {self.total} commands, in {self.text[:120]!r}")

    def command(self):
        if self.shell == "ash" and len(self.sent) >= ASH_MAX:
            self.reopen()
        kind = self.draw.choice(KINDS)
        text, out, err, code, how, limit, counts = kind(self.draw, self.shell)
        ident = f"{self.number}.{self.total}"
        head = f"echo {ident} >>{self.file}\n" if kind is not broken else ""
        if counts:
            self.count += 1
            head += "N=$((N+1)); echo $N\n"
            out = f"{self.count}\n" + out
        if kind is not broken:
            self.ran.append(ident)
        if kind is frame:
            self.load.framing.set()
        wanted = (out.encode(), None if err is None else err.encode(), code, how)
        if not self.run_one((head + text).encode(), wanted, limit, kind):
            self.ran.remove(ident)
            self.count -= counts

    def run_one(self, text, wanted, limit, kind=None):
        """False: its time was over before it began, since nobody was there to feed it to its shell."""
        self.text = text
        way = self.draw.choice((self.plainly, self.plainly, self.later, self.streamed))
        got, out, err = way(text, limit)
        self.sent.append((got["seq"], got["exit_code"], got["kind"]))
        self.total += 1
        if got["kind"] == "unknown" or got["exit_code"] is None:
            raise Trouble("lost", f"{text[:80]!r} ended as {got}")
        told = (got["exit_code"], got["kind"] if wanted[3] else None)
        if told != wanted[2:]:
            raise Trouble("wrong_status", f"{text[:80]!r} ended with {told}, not {wanted[2:]}; err {err[:200]!r}")
        if kind is limited and not out and not err:
            return False
        for name, is_, should in (("out", out, wanted[0]), ("err", err, wanted[1])):
            if should is not None and is_ != should:
                kind = "wrong_state" if name == "out" and is_.partition(b"\n")[2] == should.partition(b"\n")[2] else "wrong_bytes"
                raise Trouble(kind, f"{name} of {text[:80]!r}: {difference(is_, should)}")
        if got["cwd"] != "/usr":
            raise Trouble("wrong_state", f"cwd is {got['cwd']}")
        return True

    # ---- three ways to a result ----
    def plainly(self, text, limit):
        got = self.session.run(text, limit)
        return got.raw, got.out, got.err

    def later(self, text, limit):
        got = self.session.result(self.session.start(text, limit))
        return got.raw, got.out, got.err

    def streamed(self, text, limit):
        """As events, resumed at the last one however often they break."""
        seq = self.session.start(text, limit)[0]
        streams, at, last = {"out": b"", "err": b""}, {}, None
        watch = Watch(90)
        while not watch.over():
            try:
                where = f"{self.session.at}/commands/{seq}/output?follow=end"
                for event, ident, data in self.load.node.events("GET", where, headers={"Last-Event-ID": last} if last else {}):
                    last = ident or last
                    if event in streams:
                        equal(data["offset"], at.get(event, 0), f"offset of {event}")
                        streams[event] += bytes_of(data)
                        at[event] = len(streams[event])
                    if event == "end":
                        return data, streams["out"], streams["err"]
            except ApiError as e:
                if not retryable(e.answer):
                    raise
            except LOST:
                pass
            time.sleep(0.03)
        raise Trouble("lost", f"the stream of command {seq} does not end")


def difference(got, wanted):
    at = next((i for i, (a, b) in enumerate(zip(got, wanted)) if a != b), min(len(got), len(wanted)))
    return f"{len(got)} bytes, wanted {len(wanted)}, first difference at {at}: {got[at:at + 40]!r}, wanted {wanted[at:at + 40]!r}"


def fits(listed, sent):
    """The list is of the last 1,000. One that a kill kept from the shell has a number too; its client has sent it again."""
    told = [(x["seq"], x["exit_code"], x["kind"]) for x in listed if x["kind"] != "not_run"]
    numbers = [x["seq"] for x in listed]
    return told == sent[-len(told):] and numbers == list(range(numbers[0], numbers[-1] + 1)) and \
        (numbers[0] > 1 or len(told) == len(sent))


class Load:
    def __init__(self, node, sessions):
        self.node, self.seed, self.tag = node, random.random(), secrets.token_hex(4)
        self.sandboxes = [node.create("busybox" if node.backend == "fake" else "agent", ttl=86400) for _ in range(2)]
        self.counts, self.failure = dict.fromkeys(ZERO, 0), None
        self.lock, self.framing = threading.Lock(), threading.Event()
        self.stopping, self.not_run = False, 0
        self.gate = threading.Condition()  # between commands: all wait here while it is shut
        self.shut, self.waiting = False, 0
        detached = "attached" if lacking(node, self.sandboxes[0], "detached") else "detached"
        modes = {"attached": "attached", "detached": detached}
        self.clients = [Client(self, n, shell, modes[mode]) for n, (shell, mode) in enumerate(sessions)]
        self.threads = [threading.Thread(target=c.work, daemon=True) for c in self.clients]

    def goes_on(self):
        with self.gate:
            self.waiting += 1
            self.gate.notify_all()
            self.gate.wait_for(lambda: not self.shut or self.stopping or self.failure)
            self.waiting -= 1
        return not self.stopping and not self.failure

    def hold(self):
        """Waits until no command runs; those who wait are let go by release()."""
        with self.gate:
            self.shut = True
            self.gate.wait_for(lambda: self.waiting == len(self.clients) or self.failure, 60)

    def release(self):
        with self.gate:
            self.shut = False
            self.gate.notify_all()

    def start(self):
        for t in self.threads:
            t.start()

    def finish(self):
        self.stopping = True
        self.release()
        for t in self.threads:
            t.join(150)
            if t.is_alive():
                self.fail(Trouble("lost", "a client hangs"), "end")

    def fail(self, e, what):
        with self.lock:
            self.counts[getattr(e, "kind", "lost")] += 1
            self.failure = self.failure or f"{what}: {type(e).__name__}: {e}"
        with self.gate:
            self.gate.notify_all()

    def audit(self):
        """What the files inside and the lists of the API say about it all."""
        for c in self.clients:
            raw = patient(lambda c=c: self.node.exec(c.sandbox, f"cat {c.file} 2>/dev/null"))
            lines = bytes_of(raw["out"]).decode().split()
            self.counts["ran_twice"] += len(lines) - len(set(lines))
            self.counts["never_ran"] += len(set(c.ran) - set(lines))
            try:
                c.look()
            except Trouble:
                self.counts["wrong_list"] += 1


# ---- kills ----

def strike(node, who):
    for program in who:
        node.kill(program)
    for program in who:
        node.restart(program, wait=False)
        eventually(f"{program} starts", lambda p=program: read_bytes(f"/proc/{node.pid(p)}/comm").strip() == COMM[p], 10, 0.002)


def kill_once(load, moment, who):
    """At a moment of this kind."""
    if moment == "between":
        load.hold()
    elif moment == "frame":
        load.framing.clear()
        load.framing.wait(10)
        time.sleep(random.uniform(0, 0.06))
    else:
        time.sleep(random.uniform(0, 0.6))
    strike(load.node, who)
    load.release()


def kill_loop(load, kills, result):
    for n in range(kills):
        who = ("bothyd",)
        if load.node.backend == "oci" and n % 8 == 7:
            who = random.choice((("warden",), ("warden", "bothyd")))
        moment = MOMENTS[n % len(MOMENTS)]
        kill_once(load, moment, who)
        result["kills"] += 1
        result["warden_kills"] += "warden" in who
        result[moment] += 1
        if load.failure:
            return


def run(suite, backend, results):
    args = suite.args
    kills = args.kills or ({"oci": 500} if args.long else {"oci": 25}).get(backend, 50 if args.long else 10)
    name = f"{backend}: {kills} kills under {len(SESSIONS)} sessions"
    if not suite.wants(name) or args.shell or args.mode:
        return
    result = {"backend": backend, "kills": 0, "warden_kills": 0, **dict.fromkeys(MOMENTS, 0), "sessions": len(SESSIONS), "commands": 0,
              **dict.fromkeys(ZERO, 0)}
    results.append(result)
    with Node(backend, images="agent", pool="2:3") as node:
        load = Load(node, SESSIONS)

        @suite.case(name)
        def _():
            load.start()
            kill_loop(load, kills, result)
            load.finish()
            result["commands"] = sum(c.total for c in load.clients)
            check(not load.failure, str(load.failure))
            equal(result["kills"], kills, "kills")
            check(result["commands"] >= kills // 2, "the commands made no progress")

        @suite.case(f"{name}: nothing lost, wrong, doubled or forgotten")
        def _():
            load.audit()
            result.update(load.counts, not_run=load.not_run)
            equal({k: result[k] for k in ZERO if result[k]}, {}, "what must be 0")

        @suite.case(f"{name}: every session goes on")
        def _():
            for c in load.clients:
                got = c.session.run(b"echo $N; pwd")
                equal(got.out, f"{c.count}\n/usr\n".encode(), f"state of {c.shell} {c.mode}")

        for c in load.clients:  # a detached shell is nobody's child: on fake it would stay behind
            node.call("DELETE", c.session.at)
    print("      " + json.dumps(result), flush=True)

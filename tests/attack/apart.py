"""Apart: attacks that need a node of their own, with a small disk, with very many sandboxes, or with a warden that is stopped."""
import collections
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import threading
import time

from common import EXECS, SMALL, Neighbour, undisturbed
from disk import on_a_disk
from harness import Node, Watch, bytes_of, check, equal, eventually, free_port, read_bytes, status_of
from owners import api_for

MEMORY = int(re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]) * 1024
OVERCOMMIT = 50     # the memory limits of all sandboxes are at most so many times the machine's
VICTIMS = 600       # more than bothyd has threads for requests
FLOODS = 8          # commands, each with two streams
STREAM = 32 << 20   # bytes of a stream: together more than the disk has
FULL = 400 << 20
FLOOD_S = 8         # at most, until they have been written
DISK = "400M"
SQUEEZE_S = 8
CLIENTS = 6

HEAD = "queue: a create of fifty times the memory at its head holds up no neighbour's create and no command"
SILENT = f"silent warden: {VICTIMS} deletes at once are answered, and hold up no neighbour's command and no look at a sandbox"
FLOOD = "live output: commands that flood and go on living take their owner's share, and hold up no neighbour, who keeps their own output"
SQUEEZE = "descriptors: bothyd that has too few ends commands right or refuses them with an error that passes; each runs once"


def cases(attack):
    if attack.suite.wants(FLOOD):
        with on_tcp(images="busybox", pool="6:6") as node, on_a_disk(node, DISK):
            live_output(attack, node)
    if attack.suite.wants(HEAD, SILENT, SQUEEZE):
        # Administrators alone may ask for more than there is, unless the node's owner says otherwise.
        with on_tcp(images="busybox", pool="8:16", warden=f"--max {VICTIMS + 200} --memory-reserve 0 --overcommit {OVERCOMMIT}",
                    config=f"limits: {{max_memory: {MEMORY * OVERCOMMIT}}}") as node:
            head_of_the_queue(attack, node)
            silent_warden(attack, node)
            few_descriptors(attack, node)


@contextlib.contextmanager
def on_tcp(**options):
    port = free_port()
    with Node(env=f"BOTHY_LISTEN_TCP=127.0.0.1:{port}", **options) as node:
        node.port = port
        yield node


def made(api, number, **spec):
    """So many sandboxes."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda _: api.create(queue_wait=120, **spec), range(number)))


def ended(api, boxes):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(api.delete, boxes))


def live_output(attack, node):
    mallory, other = api_for(node, "mallory"), api_for(node, "other")

    @attack.attempt(FLOOD)
    def _():
        with mallory.sandbox(limits={"memory": 256 << 20}) as box, other.sandbox() as neighbour:
            kept = other.exec(neighbour, ["seq", "20000"])["exec"]
            text = f"dd if=/dev/zero bs=64k count={STREAM >> 16} 2>/dev/null; dd if=/dev/zero bs=64k count={STREAM >> 16} >&2 2>/dev/null; sleep 3600"

            @contextlib.contextmanager
            def under():
                execs = [mallory.start(box, text) for _ in range(FLOODS)]

                def written():
                    return sum(x[f"{name}_bytes"] for x in (mallory.process(box, x) for x in execs) for name in ("out", "err"))
                limit = Watch(FLOOD_S)
                while written() < FULL and not limit.over():
                    time.sleep(0.2)
                yield
                check(written() >= FULL, f"no flood: {written()} bytes")
                check(all(mallory.process(box, x)["end"] is None for x in execs), "a command has ended")
                for x in execs:
                    mallory.ok("DELETE", mallory.at(box, x))
            undisturbed(attack, "live output beyond its share", Neighbour(other, neighbour), under)
            equal(other.output(neighbour, kept), b"".join(b"%d\n" % i for i in range(1, 20001)), "the neighbour's output")


def pool_of(node):
    return node.ok("GET", "/v1/pools")["pools"][0]


def head_of_the_queue(attack, node):
    mallory, other = api_for(node, "mallory"), api_for(node, "other")

    @attack.attempt(HEAD)
    def _():
        # With one more of them, and the neighbour's, the limits are above their sum.
        boxes = made(mallory, OVERCOMMIT - 1, limits={**SMALL, "memory": MEMORY})
        try:
            with other.sandbox(limits=SMALL) as neighbour:
                @contextlib.contextmanager
                def under():
                    c = mallory.connection()
                    c.request("POST", "/v1/sandboxes", json.dumps({
                        "image": "busybox", "limits": {**SMALL, "memory": MEMORY * OVERCOMMIT - (1 << 20)}, "queue_wait": 600}),
                        {"Content-Type": "application/json", "Authorization": f"Bearer {mallory.key}"})
                    eventually("it waits", lambda: pool_of(node)["waiting"] == 1, 20)
                    yield
                    equal(pool_of(node)["waiting"], 1, "creates that wait")
                    c.close()
                    eventually("it waits no more", lambda: not pool_of(node)["waiting"], 20)
                undisturbed(attack, "a create at the head of the queue", Neighbour(other, neighbour), under)
        finally:
            ended(mallory, boxes)


def send_all(node, method, ids):
    """Sends all requests before any answer is read; the connections."""
    lines = []
    for i in ids:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        s.settimeout(60)
        s.connect(node.path)
        s.sendall(f"{method} /v1/sandboxes/{i} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode())
        lines.append(s)
    return lines


def statuses(lines):
    found = collections.Counter()
    for s in lines:
        r = http.client.HTTPResponse(s)
        with contextlib.closing(s):
            r.begin()
            r.read()
            found[r.status] += 1
    return found


def silent_warden(attack, node):
    other = api_for(node, "other")

    @attack.attempt(SILENT)
    def _():
        with other.sandbox(limits=SMALL) as neighbour:
            def look():
                other.show(neighbour)

            @contextlib.contextmanager
            def under():
                boxes, pid = made(node, VICTIMS, limits=SMALL), node.pid("warden")
                node.pool_full()
                os.kill(pid, signal.SIGSTOP)
                try:
                    lines = send_all(node, "DELETE", boxes)
                    yield
                    equal(statuses(lines), {200: VICTIMS}, "answers to the deletes")
                finally:
                    os.kill(pid, signal.SIGCONT)
                eventually("their slots are gone", lambda: pool_of(node)["claimed"] == 1, 120)
            # The warden makes nothing while it is stopped.
            verbs = Neighbour(other, neighbour, create=None, look=(look, EXECS))
            undisturbed(attack, f"{VICTIMS} deletes beside a silent warden", verbs, under, once=True)


class Client(threading.Thread):
    """Commands with keys, each repeated until it is answered; what came of them."""

    def __init__(self, node, box, number, over):
        super().__init__(daemon=True)
        self.node, self.box, self.number, self.over = node, box, number, over
        self.ran, self.refused, self.wrong, self.killed = [], collections.Counter(), [], 0
        self.start()

    def run(self):
        draw, n = random.Random(f"{random.random()} {self.number}"), 0
        while not self.over.is_set() and not self.wrong:
            n += 1
            self.one(f"{self.number}.{n}", draw.choice((1, 100, 20000)))

    def one(self, key, lines):
        body = {"argv": ["sh", "-c", f"echo {key} >>/ran; cat >/dev/null; seq {lines}; exit 5"], "stdin": {"text": "z" * 1000}}
        limit, refused = time.monotonic() + 60, False
        while time.monotonic() < limit:
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                answer = self.node.call("POST", f"/v1/sandboxes/{self.box}/exec", body, {"Idempotency-Key": key})
                if answer.status == 200:
                    self.judge(key, lines, answer.json, refused)
                    return
                refused = True
                self.refused[answer.status, answer.error["code"]] += 1
                if not answer.error["retryable"]:
                    self.wrong.append(f"{key}: {answer!r}")
                    return
            time.sleep(0.02)
        self.wrong.append(f"{key}: no answer in a minute")

    def judge(self, key, lines, said, refused):
        end, want = said["end"], b"".join(b"%d\n" % i for i in range(1, lines + 1))
        if refused and (end["how"], end["signal"]) == ("killed", 9):  # there was no descriptor for its stdin: it was refused, and ended
            self.killed += 1
            return
        self.ran.append(key)
        if (end["how"], end["exit_code"]) != ("exited", 5) or bytes_of(said["out"]) != want:
            self.wrong.append(f"{key}: {end}, {len(bytes_of(said['out']))} of {len(want)} bytes")


def squeeze(pid, seconds):
    """Lets a process have a few more descriptors than it has open, or a few less, and now and then as many as before."""
    state, before = status_of(pid), re.search(r"Max open files +(\d+)", read_bytes(f"/proc/{pid}/limits").decode())[1]
    user, group = (int(state[name].split()[0]) for name in ("Uid", "Gid"))

    def allow(files):  # as the daemon's user: root may need a capability for another's limits
        subprocess.run(["prlimit", f"--pid={pid}", f"--nofile={files}:"], user=user, group=group, extra_groups=[], check=True)
    rounds, end = 0, time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            allow(max(40, len(os.listdir(f"/proc/{pid}/fd")) + random.randrange(-5, 10)))
            time.sleep(random.uniform(0.05, 0.4))
            allow(before)
            time.sleep(random.uniform(0.02, 0.2))
            rounds += 1
    finally:
        allow(before)
    return rounds


def few_descriptors(attack, node):
    @attack.attempt(SQUEEZE)
    def _():
        over, boxes = threading.Event(), made(node, 2)
        clients = [Client(node, boxes[n % 2], n, over) for n in range(CLIENTS)]
        try:
            rounds = squeeze(node.pid("bothyd"), SQUEEZE_S)
        finally:
            over.set()
            for c in clients:
                c.join(90)
        wrong, refused = sum((c.wrong for c in clients), []), sum((c.refused for c in clients), collections.Counter())
        attack.say(f"{rounds} times too few descriptors: {sum(len(c.ran) for c in clients)} commands, {sum(c.killed for c in clients)} ended for want of "
                   f"a stdin, refused: {dict(refused)}")
        equal(wrong, [], "answers")
        check(refused, "there were always enough")
        for n, box in enumerate(boxes):
            lines = collections.Counter(node.shell(box, "cat /ran").split())
            equal([k for k, times in lines.items() if times > 1], [], "commands that ran twice")
            equal([k for c in clients[n::2] for k in c.ran if k not in lines], [], "commands that were answered and never ran")
            running = [p["exec"] for p in node.ok("GET", f"/v1/sandboxes/{box}/processes")["processes"] if p["running"]]
            equal(running, [], "commands that run on")
            node.delete(box)

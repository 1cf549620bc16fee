"""Kills of processes in sandboxes, at random and under load, pid 1 of each among them. An end of a command says what happened, and a
command whose end cannot be known belongs to a sandbox that is gone."""
import collections
import http.client
import os
import pathlib
import random
import signal
import threading
import time

import census
from audit import Audit
from harness import ApiError, Node, bytes_of, check, equal, eventually, read_bytes

CLIENTS = 8
EVERY_S = 0.1
LINES = (5, 5000, 50000)


class Client(threading.Thread):
    """Commands in a sandbox of its own, and in another one when that is gone."""

    def __init__(self, node, over):
        super().__init__(daemon=True)
        self.node, self.over, self.box = node, over, None
        self.seen, self.wrong = collections.Counter(), []
        self.start()

    def run(self):
        while not self.over.is_set():
            try:
                self.box = self.box or self.node.create(queue_wait=60)
                self.command(random.choice(LINES))
            except ApiError as e:
                self.refused(e)
            except (OSError, http.client.HTTPException) as e:
                self.wrong.append(f"a connection: {e!r}")

    def command(self, lines):
        """A process of it that is killed shows: then it ends with 8."""
        r = self.node.exec(self.box, f"seq {lines} && sleep 0.02 && exit 7; exit 8")
        end, out, want = r["end"], bytes_of(r["out"]), b"".join(b"%d\n" % i for i in range(1, lines + 1))
        self.seen[end["how"]] += 1
        if end["how"] == "exited" and end["exit_code"] not in (7, 8) or end["how"] not in ("exited", "signalled", "killed", "unknown"):
            self.wrong.append(f"{self.box} {end}")
        elif out != want and (end["exit_code"] == 7 or not want.startswith(out)):
            self.wrong.append(f"{self.box} {end}: {len(out)} of {len(want)} bytes")
        if end["how"] == "unknown":
            self.gone()

    def refused(self, e):
        if e.answer.error["code"] in ("sandbox_gone", "not_found") and self.box:
            self.gone()
        elif not e.answer.error["retryable"] and self.box:
            self.wrong.append(f"{self.box} {e}")

    def gone(self):
        """Its sandbox is gone, and says why."""
        shown = eventually(f"the end of {self.box}", lambda: (lambda s: s if s["state"] == "gone" else None)(self.node.show(self.box)), 20)
        self.seen["gone: " + shown["cause"]["kind"]] += 1
        if shown["cause"]["kind"] != "killed":
            self.wrong.append(f"{self.box} is gone: {shown['cause']}")
        self.box = None


def victims(node):
    """All processes in the slots of the node."""
    root = next(h for h in census.hierarchies() if h.endswith("/pids") or read_bytes(h + "/cgroup.controllers"))
    for directory in pathlib.Path(root, node.cgroup).glob("[0-9]*"):
        yield from map(int, read_bytes(directory / "cgroup.procs").split())


def kill_some(node, seconds):
    """How many of which name."""
    killed, end = collections.Counter(), time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(EVERY_S)
        if not (pids := list(victims(node))):
            continue
        pid = random.choice(pids)
        name = read_bytes(f"/proc/{pid}/comm").decode().strip()
        try:
            os.kill(pid, signal.SIGKILL)
            killed[name] += 1
        except ProcessLookupError:
            pass
    return killed


def run(suite, long, figures):
    seconds = 60 if long else 8
    name = f"inside: processes of sandboxes and their pid 1 killed for {seconds} s under commands: each end is right, or its sandbox is gone and says so"
    if not suite.wants(name):
        return
    with Node(pool="6:8") as node:
        @suite.case(name)
        def _():
            audit, over = Audit(node), threading.Event()
            clients = [Client(node, over) for _ in range(CLIENTS)]
            killed = kill_some(node, seconds)
            over.set()
            for c in clients:
                c.join(60)
            seen = sum((c.seen for c in clients), collections.Counter())
            print(f"      killed {dict(killed)}; seen {dict(seen)}", flush=True)
            equal(sum((c.wrong for c in clients), []), [], "ends that are not right")
            check(seen["gone: killed"] and seen["exited"] > CLIENTS, "there was nothing to see")
            for box in [s["id"] for s in node.ok("GET", "/v1/sandboxes?limit=1000")["sandboxes"]]:
                node.delete(box)
            with node.sandbox() as box:
                equal(node.exec(box, "exit 5")["end"]["exit_code"], 5, "exit code")
            equal(audit.settle(), {}, "what is left")
            figures["inside"] = {"killed": dict(killed), "seen": dict(seen)}

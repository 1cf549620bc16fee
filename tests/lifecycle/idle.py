"""Idleness: what is busy is never ended for it, what is parked is, and when.

The bound: never before its idle time, and at most IDLE / 8 + 4 s after it (two periods of a sixteenth, at least a second each, and
two looks of a second)."""
import concurrent.futures
import contextlib
import http.client
import threading
import time

from harness import ApiError, Skip, Watch, check, equal, eventually
import websocket

IDLE = 4
WAKES = {"argv": ["sh", "-c", "while sleep 1; do :; done"]}


def late(idle):
    return 2 * max(idle / 16, 1) + 2


def ended_at(node, sandbox, seconds):
    """Monotonic time of its end; the cause must be idle."""
    s = eventually(f"{sandbox} is ended", lambda: (x := node.show(sandbox))["state"] == "gone" and x, seconds, 0.1)
    equal(s["cause"], {"kind": "idle"}, "cause")
    return time.monotonic()


def stays(node, sandbox, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        s = node.show(sandbox)
        check(s["state"] == "running", f"it was ended: {s['cause']}")
        time.sleep(0.2)


def parked(node, sandbox):
    """An idle session, a start command, and what stays behind of a command: both wake every second. Since when at the earliest."""
    s = node.ok("POST", f"/v1/sandboxes/{sandbox}/sessions", {})["id"]
    node.ok("POST", f"/v1/sandboxes/{sandbox}/sessions/{s}/commands", {"command": "cd /tmp; X=1"})
    began = time.monotonic()
    node.exec(sandbox, "(while sleep 1; do :; done) >/dev/null 2>&1 &")
    return began


def unstalled(idle, part):
    """part(mark), again when it failed and more than idle lay between two marks: then it was ended by right."""
    for left in (2, 1, 0):
        marks = [time.monotonic()]
        try:
            return part(lambda marks=marks: marks.append(time.monotonic()))
        except (ApiError, AssertionError):
            marks.append(time.monotonic())
            if not left or max(b - a for a, b in zip(marks, marks[1:])) <= idle:
                raise


@contextlib.contextmanager
def follower(node, sandbox):
    """Follows what a command left behind: END is there, the stream is attached."""
    x = node.exec(sandbox, "sleep 600 &")["exec"]
    c, r = node.open("GET", node.at(sandbox, x, "/output?follow=eof"), headers={"Accept": "text/event-stream"})

    def read():
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):  # it ends with bothyd
            r.read()
    threading.Thread(target=read, daemon=True).start()
    try:
        yield
    finally:
        c.close()


@contextlib.contextmanager
def watcher(node, sandbox):
    c, _ = node.open("GET", f"/v1/sandboxes/{sandbox}/files/watch?path=/tmp", headers={"Accept": "text/event-stream"})
    try:
        yield
    finally:
        c.close()


@contextlib.contextmanager
def nothing(_node, _sandbox):
    yield


def by_cpu(node, sandbox):
    node.exec(sandbox, "(while :; do :; done) >/dev/null 2>&1 &")


def by_io(node, sandbox):
    node.exec(sandbox, "(while sleep 0.5; do head -c 262144 /dev/zero > /work; done) >/dev/null 2>&1 &")


def by_sleeping_child(node, sandbox):
    node.start(sandbox, "sleep 600; true")


def by_session_command(node, sandbox):
    s = node.ok("POST", f"/v1/sandboxes/{sandbox}/sessions", {})["id"]
    node.ok("POST", f"/v1/sandboxes/{sandbox}/sessions/{s}/commands", {"command": "sleep 600", "wait": False})


BUSY = {
    "by CPU, of what a command left behind": (by_cpu, nothing),
    "by I/O, of what a command left behind": (by_io, nothing),
    "by a sleeping child of a running command": (by_sleeping_child, nothing),
    "by a command in a session": (by_session_command, nothing),
    "by a stream that is followed": (lambda *_: None, follower),
    "by a watch of files": (lambda *_: None, watcher),
}


def cases(suite, node):
    if node.caps["stats"] == "absent":
        @suite.case("idle: a backend that does not measure refuses it")
        def _():
            a = node.call("POST", "/v1/sandboxes", {"image": "busybox", "idle": 5})
            equal((a.status, a.error["code"]), (501, "unsupported"), "answer")
        return

    found = {}

    @suite.case("idle: busy sandboxes are not ended, parked ones beside them are, on time; over a kill of bothyd")
    def _():
        with contextlib.ExitStack() as all_of_them:
            busy = {}
            for name, (work, attach) in BUSY.items():
                sb = all_of_them.enter_context(node.sandbox(idle=IDLE, limits={"cpu": 0.2}))
                work(node, sb)
                all_of_them.enter_context(attach(node, sb))
                busy[name] = sb
            sb = all_of_them.enter_context(node.sandbox(idle=IDLE, start=WAKES))
            began = parked(node, sb)
            check(node.process(sb, node.show(sb)["start"]["exec"])["running"], "its start command does not run")
            watch = Watch()
            found["parked"], in_time = ended_at(node, sb, IDLE + late(IDLE) + 10) - began, watch.within(IDLE + late(IDLE) + 2)
            check(found["parked"] >= IDLE - 0.5, f"not before its time: {found}")
            check(in_time, f"not later than promised: {watch}")
            time.sleep(IDLE)
            lost = {name: node.show(sb)["cause"] for name, sb in busy.items() if node.show(sb)["state"] != "running"}
            equal(lost, {}, "busy ones that were ended")
            node.kill("bothyd")
            node.restart("bothyd")
            kept = {name: sb for name, sb in busy.items() if name not in ("by a stream that is followed", "by a watch of files")}
            time.sleep(IDLE + late(IDLE) + 1)
            lost = {name: node.show(sb)["cause"] for name, sb in kept.items() if node.show(sb)["state"] != "running"}
            equal(lost, {}, "busy ones that were ended after the kill")
            for name in ("by a stream that is followed", "by a watch of files"):
                ended_at(node, busy[name], 10)  # their streams went with bothyd

    suite.idle = found
    with concurrent.futures.ThreadPoolExecutor(4) as beside:  # they only wait
        list(beside.map(lambda part: part(suite, node), (terminal, anew, looking, changed)))


def terminal(suite, node):
    @suite.case("idle: a terminal that is attached is not idle; when it is left, its shell still runs and is a command")
    def _():
        with node.sandbox(idle=2) as sb:
            ws = websocket.WebSocket.open(node, f"/v1/sandboxes/{sb}/terminal")
            stays(node, sb, 2 + late(2) + 1)
            ws.abandon()
            stays(node, sb, 2 + late(2))


def anew(suite, node):
    @suite.case("idle: each command begins its time anew")
    def _():
        def short(mark):
            sb = node.create(idle=4)
            for _ in range(5):
                mark()
                node.exec(sb, "true")
                time.sleep(2)
            equal(node.show(sb)["state"], "running", "after ten seconds of short commands")
            return sb
        ended_at(node, unstalled(4, short), 4 + late(4) + 3)


def looking(suite, node):
    @suite.case("idle: looking at it does not keep it")
    def _():
        with node.sandbox(idle=2) as sb:
            watch = Watch()
            while node.show(sb)["state"] == "running":
                node.ok("GET", f"/v1/sandboxes/{sb}/processes")
                node.ok("GET", "/v1/sandboxes")
                check(watch.within(2 + late(2) + 3), f"it lives on: {watch}")
                time.sleep(0.1)
            equal(node.show(sb)["cause"], {"kind": "idle"}, "cause")


def changed(suite, node):
    @suite.case("idle: set by a change it counts from then; a paused one is not idle")
    def _():
        with node.sandbox() as sb:
            time.sleep(2)
            began = time.monotonic()
            node.ok("PATCH", f"/v1/sandboxes/{sb}", {"idle": 2})
            check(ended_at(node, sb, 2 + late(2) + 3) - began > 1.5, "not before its time")
        with node.sandbox(idle=1) as sb:
            if node.call("POST", f"/v1/sandboxes/{sb}/pause").status != 200:
                raise Skip("this node does not pause")
            time.sleep(1 + late(1) + 1)
            equal(node.show(sb)["state"], "paused", "state")
            node.ok("POST", f"/v1/sandboxes/{sb}/resume")
            ended_at(node, sb, 1 + late(1) + 3)

        def seen(_mark):
            sb = node.create(idle=3)
            time.sleep(2)  # it has been looked at
            node.ok("POST", f"/v1/sandboxes/{sb}/pause")
            return sb
        sb = unstalled(3, seen)
        time.sleep(3)
        began = time.monotonic()
        node.ok("POST", f"/v1/sandboxes/{sb}/resume")
        check(ended_at(node, sb, 3 + late(3) + 3) - began > 2.5, "its pause counted as idle")

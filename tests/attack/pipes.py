"""Pipes: a sandbox that holds the mutexes of its commands' pipes, and with them each call on one of those pipes.

Times of a neighbour are held to a multiple of what they were just before, and never to less than FLOOR_S, as the machine may be
busy: a pump that waits for such a pipe waits for seconds."""
import contextlib
import os
import pathlib
import time

from common import pid1_of
from harness import BUILD, check, equal, eventually

PROGRAM = BUILD / "tests" / "attack" / "pipelock"
PIPES = 12      # commands whose stdout is held: more than there are lanes
COPIES = 3      # of the program, on the one processor they have
GIB = 10        # of page tables' reach, each
HELD_S = 60     # at most
LOOK_S = 8      # for so long the neighbour is measured
TIMES = 3
FLOOR_S = {"exec": 0.25, "create": 0.6}


def put(node, sandbox):
    r = node.call("PUT", f"/v1/sandboxes/{sandbox}/files?path=/pipelock&mode=0755", PROGRAM.read_bytes())
    equal(r.status // 100, 2, "the program's way in")


def writers(pipes_of):
    """Programs in that pid namespace which have begun: each pipe has a thread."""
    n = 0
    for p in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (p / "comm").read_text() == "pipelock\n" and os.readlink(p / "ns/pid") == pipes_of:
                n += len(list((p / "task").iterdir())) > 1
    return n


def hold(node, sandbox, comm, fd):
    """From here on the pipes at fd of all processes named comm are held, most of the time, until the sandbox ends."""
    inside = os.readlink(f"/proc/{pid1_of(node, sandbox)}/ns/pid")
    for _ in range(COPIES):
        node.start(sandbox, ["/pipelock", str(GIB), str(HELD_S), comm, str(fd)])
    eventually("the pipes are held", lambda: writers(inside) == COPIES, 60, 0.2)


def p99(times):
    return sorted(times)[min(len(times) - 1, len(times) * 99 // 100)]


def timed(body):
    began = time.monotonic()
    body()
    return time.monotonic() - began


def for_a_while(seconds, body, least):
    """Times of body, for so many seconds and so many times."""
    times, end = [], time.monotonic() + seconds
    while time.monotonic() < end or len(times) < least:
        times.append(timed(body))
    return times


def cases(attack, node):
    figures = attack.figures.setdefault("pipes", {})

    def create():
        with node.sandbox():
            pass

    @attack.attempt("pipes: commands that hold their pipes hold up no neighbour's command and no create")
    def _():
        with node.sandbox("debian", limits={"memory": 2 << 30}) as sandbox, node.sandbox() as neighbour:
            put(node, sandbox)
            for _ in range(PIPES):
                node.start(sandbox, ["sleep", "900"])
            bodies = {"exec": (lambda: node.exec(neighbour, ["true"]), 50), "create": (create, 4)}
            before = {k: p99(for_a_while(3, body, least)) for k, (body, least) in bodies.items()}
            hold(node, sandbox, "sleep", 1)
            during = {k: p99(for_a_while(LOOK_S / 2, body, least)) for k, (body, least) in bodies.items()}
        for k in bodies:
            figures[k] = [round(before[k] * 1000, 1), round(during[k] * 1000, 1)]
            attack.say(f"p99 of {k}: {before[k] * 1000:.1f} ms without, {during[k] * 1000:.1f} ms under it")
        for k in bodies:
            check(during[k] <= max(TIMES * before[k], FLOOR_S[k]), f"a neighbour's {k} took {during[k]:.2f} s, {before[k]:.3f} s without")

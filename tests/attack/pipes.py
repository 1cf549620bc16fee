"""Pipes: a sandbox that holds the mutexes of its commands' pipes, and with them each call on one of those pipes."""
import contextlib
import os
import pathlib

from common import Neighbour, loops, pid1_of, undisturbed
from harness import BUILD, equal, eventually

PROGRAM = BUILD / "tests" / "attack" / "pipelock"
PIPES = 12      # commands whose stdout is held: more than there are lanes
SHELLS = 4      # sessions whose stdin is held
COPIES = 3      # of the program, on the one processor they have
GIB = 10        # of page tables' reach, each
HELD_S = 600    # at most
ROOM = {"memory": 2 << 30}


class Holder:
    """Programs in a sandbox that hold the pipes at one descriptor of all its processes of one name while a block of this runs, and are
    stopped before and after it."""

    def __init__(self, node, sandbox, comm, fd):
        self.node, self.sandbox = node, sandbox
        self.space = os.readlink(f"/proc/{pid1_of(node, sandbox)}/ns/pid")
        self.execs = [node.start(sandbox, ["/pipelock", str(GIB), str(HELD_S), comm, str(fd)]) for _ in range(COPIES)]
        # Each pipe has a thread; before them the page tables are made.
        eventually("the pipes are held", lambda: sum(len(states) > 1 for states in self.states()) == COPIES, 60, 0.2)
        self.stop()

    def states(self):
        """The states of the threads of each program."""
        for p in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (p / "comm").read_text() == "pipelock\n" and os.readlink(p / "ns/pid") == self.space:
                    yield [(t / "stat").read_text().rsplit(")", 1)[1].split()[0] for t in (p / "task").iterdir()]

    def signal(self, name):
        for x in self.execs:
            self.node.ok("POST", self.node.at(self.sandbox, x, "/signal"), {"signal": name})

    def stop(self):
        self.signal("STOP")
        eventually("the programs stand", lambda: [set(s) for s in self.states()] == [{"T"}] * COPIES, 60, 0.05)

    @contextlib.contextmanager
    def __call__(self):
        self.signal("CONT")
        try:
            yield
        finally:
            self.stop()


@contextlib.contextmanager
def attacker(node):
    """A sandbox with the program in it."""
    with node.sandbox("debian", limits=ROOM) as sandbox:
        r = node.call("PUT", f"/v1/sandboxes/{sandbox}/files?path=/pipelock&mode=0755", PROGRAM.read_bytes())
        equal(r.status // 100, 2, "the program's way in")
        yield sandbox


def cases(attack, node):
    @attack.attempt("pipes: commands that hold their pipes hold up no neighbour's command and no create")
    def _():
        with attacker(node) as sandbox, node.sandbox() as neighbour:
            for _ in range(PIPES):
                node.start(sandbox, ["sleep", "900"])
            undisturbed(attack, "held stdout", Neighbour(node, neighbour), Holder(node, sandbox, "sleep", 1))

    @attack.attempt("pipes: sessions whose shells' stdin is held, under commands for them, hold up no neighbour's command and no create")
    def _():
        with attacker(node) as sandbox, node.sandbox() as neighbour:
            at = f"/v1/sandboxes/{sandbox}"
            shells = [node.ok("POST", f"{at}/sessions", {"shell": "bash"})["id"] for _ in range(SHELLS)]
            for shell in shells:
                node.ok("POST", f"{at}/sessions/{shell}/commands", {"command": "true"})
            held = Holder(node, sandbox, "bash", 0)

            @contextlib.contextmanager
            def under():
                def feed(shell):
                    return lambda: node.call("POST", f"{at}/sessions/{shell}/commands", {"command": "true", "timeout_ms": 1000})

                def run():
                    node.call("POST", f"{at}/exec", {"argv": ["true"], "timeout_ms": 5000})
                with loops(*map(feed, shells), run, run), held():
                    yield
            undisturbed(attack, "held stdin of sessions", Neighbour(node, neighbour), under)

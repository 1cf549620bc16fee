"""Drivers of the points of sessions: commands by clients who do not give up, each of which must run once."""
import contextlib
import secrets
import threading

from harness import alive, bytes_of, check, eventually
from load import ends, same

BOTHYD = "bothyd"


class Session:
    """In a sandbox of its own; both go with the block."""

    def __init__(self, w, **spec):
        self.w, self.spec = w, spec

    def ask(self, where, body):
        return self.w.load.ask("POST", where, body, {"Idempotency-Key": secrets.token_hex(8)})

    def __enter__(self):
        self.sandbox = "/v1/sandboxes/" + self.ask("/v1/sandboxes", {"image": "busybox", "queue_wait": 20})["id"]
        self.at = f"{self.sandbox}/sessions/{self.ask(self.sandbox + '/sessions', self.spec)['id']}"
        self.run("N=0; export E=1; cd /tmp")
        return self

    def run(self, text, out="", code=0, kind="ended"):
        got = self.ask(self.at + "/commands", {"command": text, "timeout_ms": 20000})
        if kind:
            ends((got["kind"], got["exit_code"]), (kind, code))
        same(bytes_of(got["out"]), out.encode(), f"out of {text!r}")

    def close(self):
        self.w.load.ask("DELETE", self.at)

    def __exit__(self, *_):
        self.close()
        self.w.load.ask("DELETE", self.sandbox)


def in_session(w):
    """Every command counts: in the shell, and in a file."""
    with Session(w) as s:
        for n in range(1, 4):
            s.run(f"N=$((N+1)); echo {n} >>ran; echo $N $E; (exit {n})", f"{n} 1\n", n)
        s.run("cat ran; pwd", "1\n2\n3\n/tmp\n")


def closed_detached(w):
    """A shell that hangs on no pipe is told to go by a command of its own."""
    with Session(w, mode="detached") as s:
        s.run("N=$((N+1)); echo $N $E; pwd", "1 1\n/tmp\n")


def new_shell(w):
    """The shell is killed: another one goes on in its directory with what was exported."""
    with Session(w) as s:
        s.run("kill -9 $$", code=None, kind=None)
        s.run("echo $E; pwd", "1\n/tmp\n")


def without_a_frame(w):
    """bothyd dies when a command is in the journal and not yet in the shell's stdin, and again when it finds that out."""
    with contextlib.ExitStack() as stack:
        s, trouble = stack.enter_context(Session(w)), []

        def client():
            try:
                s.run("echo x >>ran; cat ran", "x\n")
            except Exception as e:  # noqa: BLE001: told afterwards
                trouble.append(e)
        w.node.arm(BOTHYD, "session.command_recorded")
        pid, thread = w.node.pid(BOTHYD), threading.Thread(target=client, daemon=True)
        thread.start()
        eventually("bothyd dies", lambda: not alive(pid), 10, 0.002)
        w.node.restart(BOTHYD, wait=False)
        w.later = stack.pop_all(), thread, trouble


def it_ran_once(w):
    stack, thread, trouble = w.later
    with stack:
        thread.join(60)
        check(not thread.is_alive(), "its client hangs")
        if trouble:
            raise trouble[0]


without_a_frame.starts = True
without_a_frame.after = it_ran_once

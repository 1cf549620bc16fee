"""The drivers of the points of a reset: whoever dies, the sandbox is the old one or the new one, whole, and never both."""
import contextlib
import secrets

import load as kinds
from harness import check, equal, eventually
from load import ends, patient, same

OLD = "echo old >/mark; echo said; exec sleep 1000"


class Life:
    """A sandbox with a start command, a mark in its files, and a command that runs."""

    def __init__(self, w):
        self.w = w
        start = {"argv": ["sh", "-c", "echo begun $A; exec sleep 1000"]}
        self.id = self.ask("/v1/sandboxes", {"image": "busybox", "queue_wait": 20, "env": {"A": "old"}, "start": start})["id"]
        self.at = "/v1/sandboxes/" + self.id
        eventually("the start command is begun", self.started, 30)
        self.first = self.started()
        self.runs = self.ask(self.at + "/processes", {"argv": ["sh", "-c", OLD]})["exec"]
        eventually("it speaks", lambda: patient(lambda: w.node.output(self.id, self.runs)) == b"said\n", 30)

    def ask(self, where, body=None):
        return self.w.load.ask("POST", where, body, {"Idempotency-Key": secrets.token_hex(8)})

    def started(self):
        return self.w.load.ask("GET", self.at)["start"]["exec"]

    def inside(self):
        got = self.ask(self.at + "/exec", {"argv": ["sh", "-c", "cat /mark 2>/dev/null; echo $A; hostname"]})
        return kinds.bytes_of(got["out"]).decode().split("\n")[:-1]

    def is_new(self):
        """Begun again, and nothing of the old one is left or lost."""
        equal(self.inside(), ["new", self.id], "inside")
        for x in (self.first, self.runs):
            end = self.w.wait_end(self.id, x)
            ends((end["how"], end["signal"]), ("killed", 9))
        same(patient(lambda: self.w.node.output(self.id, self.runs)), b"said\n", "the output of what was killed")
        eventually("the start command is begun again", lambda: self.started() not in (None, self.first), 30)
        x = self.started()
        eventually("it speaks", lambda: patient(lambda: self.w.node.output(self.id, x)) == b"begun new\n", 30)
        found = self.w.load.ask("GET", self.at + "/processes")["processes"]
        ran = [p["exec"] for p in found if p["start"] and (p["end"] or {}).get("how") != "not_started"]
        equal(ran, [self.first, x], "start commands that ran")

    def is_old(self):
        equal(self.inside(), ["old", "old", self.id], "inside")
        for x in (self.first, self.runs):
            check(self.w.load.ask("GET", f"{self.at}/processes/{x}")["running"], f"exec {x} has ended")
        equal(self.started(), self.first, "the start command")

    def over(self):
        ends(self.w.load.ask("DELETE", self.at)["cause"]["kind"], "requested")


def was_reset(w):
    """By somebody who asks again with the same key: it is done, once."""
    life = Life(w)
    life.ask(life.at + "/reset", {"env": {"A": "new"}})
    life.is_new()
    life.over()


def reset_once(w):
    """By somebody who gives up: it is as it was, or it has begun again."""
    life = Life(w)
    with contextlib.suppress(*kinds.LOST):
        w.node.call("POST", life.at + "/reset", {"env": {"A": "new"}})
    eventually("the node is back", lambda: w.patient("GET", "/v1/info"))
    if "old" in life.inside():
        life.is_old()
    else:
        life.is_new()
    life.over()

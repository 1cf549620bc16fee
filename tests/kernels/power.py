"""Power loss: QEMU is killed under load and the guest started again from the same disk, over and over. Whatever was answered
before must be known after (inside/power says both on the serial line)."""
import hashlib
import pathlib
import random
import sys
import time

from guest import Guest, Lost

sys.path.append(str(pathlib.Path(__file__).resolve().parent / "inside"))

import written  # noqa: E402

COUNTS = ("execs", "execs_unknown", "lost", "alive", "wrong_cause", "wrong_end", "wrong_output", "forgotten")  # of a Verdict
SAFE = 10  # s before a cut: the last second of exec records may be lost, ten times that in a guest that is ten times slower
STEP = 1800  # s for a start, the audit and the load until the cut


class Ledger:
    """What callers were told, over all lives of one node."""

    def __init__(self):
        self.created, self.deleting, self.deleted, self.execs = {}, set(), set(), {}
        self.boot, self.cut_at = 0, 0.0

    def note(self, kind, data):
        if kind == "created":
            self.created[data["id"]] = self.boot
        elif kind == "deleting":
            self.deleting.add(data["id"])
        elif kind == "deleted":
            self.deleted.add(data["id"])
        elif kind == "ran":
            self.execs[data["id"], data["exec"]] = data["exit_code"], data["large"], time.monotonic()

    def causes(self, sandbox):
        """How it may read now."""
        if sandbox in self.deleted:
            return {"requested"}
        return {"requested", "node_lost"} if sandbox in self.deleting else {"node_lost"}


class Verdict:
    """Counts of one start after a cut; every one but the first three must be 0."""

    def __init__(self):
        self.known, self.execs, self.execs_unknown = 0, 0, 0
        self.lost, self.alive, self.wrong_cause, self.wrong_end, self.wrong_output, self.forgotten, self.notes = 0, 0, 0, 0, 0, 0, []

    def bad(self):
        return self.lost + self.alive + self.wrong_cause + self.wrong_end + self.wrong_output + self.forgotten + len(self.notes)

    def judge(self, ledger, known):
        self.known = len(known)
        for sandbox in ledger.created:
            if sandbox not in known:
                self.lost += 1
                self.notes.append(f"{sandbox} was acknowledged and is not known")
                continue
            seen = known[sandbox]
            if seen["state"] != "gone":
                self.alive += 1
                self.notes.append(f"{sandbox} is {seen['state']}")
            elif seen["cause"]["kind"] not in ledger.causes(sandbox):
                self.wrong_cause += 1
                self.notes.append(f"{sandbox} reads {seen['cause']}, not {ledger.causes(sandbox)}")
        for seen in known.values():
            if seen["state"] != "gone":
                self.alive += 1

    def judge_execs(self, ledger, known, boot):
        for (sandbox, number), (code, large, told) in ledger.execs.items():
            if ledger.created.get(sandbox) != boot or sandbox not in known:
                continue
            self.execs += 1
            end = next((x["end"] for x in known[sandbox]["execs"] if x["exec"] == number), None)
            if not end or end["how"] == "unknown":
                self.execs_unknown += 1
                if told < ledger.cut_at - SAFE:
                    self.forgotten += 1
                    self.notes.append(f"exec {number} of {sandbox} was told {ledger.cut_at - told:.0f} s before the cut and is not known")
            elif (end["how"], end["exit_code"]) != ("exited", code):
                self.wrong_end += 1
                self.notes.append(f"exec {number} of {sandbox} ended with {code} and reads {end}")
            else:
                for stream in ("out", "err"):
                    self.judge_output(f"{stream} of exec {number} of {sandbox}", written.output(code, large, stream), stream, end,
                                      told < ledger.cut_at - SAFE)

    def judge_output(self, name, want, stream, end, safe):
        """Counts bytes that are missing and not reported as dropped, or missing long after their end was answered."""
        found, reach = end[stream], end.get("events", {}).get(stream, len(want))
        digest = hashlib.sha256(want[:found["kept"]]).hexdigest()
        if found["sha256"] != digest or found["kept"] + found["dropped"] != len(want) or reach != len(want):
            self.wrong_output += 1
            self.notes.append(f"{name} had {len(want)} bytes and reads {found}, and {reach} bytes by events")
        elif safe and found["dropped"]:
            self.forgotten += 1
            self.notes.append(f"{name} was told long before the cut and lacks {found['dropped']} bytes")


def audit(guest, ledger, verdict):
    """Up to the beginning of the next load."""
    known = {}
    for kind, data in guest.events(STEP):
        if kind == "known":
            known[data["id"]] = data
        elif kind == "health":
            if data["integrity"] != "ok" or data["orphans"] or data["ready"] != 200:
                verdict.notes.append(f"health: {data}")
        elif kind == "audited":
            verdict.judge(ledger, known)
            verdict.judge_execs(ledger, known, ledger.boot - 1)
            return
    raise Lost("the guest ended before its audit")


def load(guest, ledger, verdict, creates):
    """Until so many more creates were answered, and a moment longer."""
    end, until = None, len(ledger.created) + creates
    for kind, data in guest.events(STEP):
        ledger.note(kind, data)
        if kind == "ran" and not data["right"]:
            verdict.wrong_output += 1
        if end is None and len(ledger.created) >= until:
            end = time.monotonic() + random.uniform(0, 3)
        if end is not None and time.monotonic() >= end:
            return
    raise Lost("the guest ended under load")


def drain(guest, ledger):
    """What was said before the cut and not read yet."""
    for kind, data in guest.events(30):
        ledger.note(kind, data)


def chain(kernel, disk, cuts, tell):
    """So many cuts of one node's power; gives a Verdict for each start after one."""
    ledger, verdicts = Ledger(), []
    for boot in range(cuts + 1):
        ledger.boot, verdict, began = boot, Verdict(), time.monotonic()
        with Guest(kernel, disk, memory=1536, cpus=1) as guest:
            audit(guest, ledger, verdict)
            if boot:
                verdicts.append(verdict)
                tell(boot, verdict, ledger, time.monotonic() - began)
            if boot < cuts:
                load(guest, ledger, verdict, random.randint(4, 8))
                guest.cut()
                ledger.cut_at = time.monotonic()
                drain(guest, ledger)
    return verdicts

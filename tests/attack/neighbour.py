"""The neighbour: what B's commands take while A floods as much as its limits allow, against what they take without.

A ratio of times says something about us only while nobody else works on the machine. Where it is beyond the bound, the blocks
that began while nobody else ran decide, if they are at least half; if they are not, the case is skipped, with its figures told."""
import contextlib
import json
import pathlib
import re
import time

from common import armed
from harness import Skip, check, equal, eventually

BLOCK = 15      # commands in a row, then the other kind
BLOCKS = 20     # of each: 300 against 300
TIMES = 3       # what B's p50 may become
QUIET_S = 0.2   # to wait for a moment in which nobody else runs
# What A does, for floods that are held to the bound and for those that are only told.
HELD = {"cpu": "/intruder misuse spin", "memory": "while :; do /intruder misuse memory-bomb; done",
        "processes": "/intruder misuse fork-bomb"}
TOLD = {"output": "/intruder misuse endless", "inodes": "/intruder misuse inode-flood"}


class Line:
    """One connection that stays open, as a client's would."""

    def __init__(self, node):
        self.c = node.connection()

    def exec_ms(self, sandbox):
        began = time.monotonic()
        self.c.request("POST", f"/v1/sandboxes/{sandbox}/exec", json.dumps({"argv": ["true"]}), {"Content-Type": "application/json"})
        r = self.c.getresponse()
        r.read()
        equal(r.status, 200, "the neighbour's exec")
        return (time.monotonic() - began) * 1000


@contextlib.contextmanager
def flood(node, sandbox, text):
    x = node.start(sandbox, ["sh", "-c", text])
    time.sleep(0.05)
    try:
        yield
    finally:
        node.ok("DELETE", node.at(sandbox, x))
        eventually("the flood ends", lambda: node.process(sandbox, x)["end"], 20)


def quiet():
    """Nobody but us wants a processor, five times in a row."""
    end, still = time.monotonic() + QUIET_S, 0
    while still < 5:
        running = int(re.search(r"procs_running (\d+)", pathlib.Path("/proc/stat").read_text())[1])
        still = still + 1 if running <= 1 else 0
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def p50(values):
    return sorted(values)[len(values) // 2]


def interleaved(node, text, blocks):
    """[(nobody else ran, without, with)] in ms, taken by turns, so that what else the machine does meets both."""
    line, pairs = Line(node), []
    with armed(node) as a, armed(node) as b:
        for _ in range(10):
            line.exec_ms(b)
        for _ in range(blocks):
            alone = quiet()
            without = [line.exec_ms(b) for _ in range(BLOCK)]
            with flood(node, a, text):
                pairs.append((alone, without, [line.exec_ms(b) for _ in range(BLOCK)]))
    line.c.close()
    return pairs


def ratio_of(pairs):
    """(p50 without, p50 with, ratio)"""
    without, under = (p50(sum((p[i] for p in pairs), [])) for i in (1, 2))
    return without, under, under / without


def cases(attack, node):
    figures = attack.figures.setdefault("neighbour", {})

    def measure(name, text, blocks):
        pairs = interleaved(node, text, blocks)
        alone = [p for p in pairs if p[0]]
        without, under, ratio = ratio_of(pairs)
        figures[name] = {"commands": blocks * BLOCK, "p50_ms": round(without, 2), "p50_ms_under": round(under, 2), "ratio": round(ratio, 2),
                         "blocks": blocks, "quiet_blocks": len(alone), "quiet_ratio": round(ratio_of(alone)[2], 2) if alone else None}
        attack.say(f"{name}: p50 {without:.2f} ms without, {under:.2f} ms under it: {ratio:.2f} times, {blocks * BLOCK} against {blocks * BLOCK}; "
                   f"{figures[name]['quiet_ratio']} times in the {len(alone)} of {blocks} blocks in which nobody else ran")
        return ratio, alone

    for name, text in HELD.items():
        @attack.attempt(f"neighbour: under a flood of {name} B's exec takes at most {TIMES} times as long")
        def _(name=name, text=text):
            ratio, alone = measure(name, text, BLOCKS)
            if ratio > TIMES and 2 * len(alone) < BLOCKS:
                raise Skip(f"others were running in {BLOCKS - len(alone)} of {BLOCKS} blocks: {ratio:.2f} times")
            check(ratio <= TIMES or ratio_of(alone)[2] <= TIMES, f"{ratio:.2f} times")

    for name, text in TOLD.items():
        @attack.attempt(f"neighbour: under a flood of {name} every exec of B is answered")
        def _(name=name, text=text):
            measure(name, text, BLOCKS if attack.suite.args.long else 7)

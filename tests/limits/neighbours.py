"""How much of its throughput a sandbox keeps beside one that does its worst.

The worker says a dot for each piece of work; how many it says in a window is its throughput. Three windows make a round, in
an order that changes: alone, beside a neighbour that only computes, and beside the offender, who has the same limits. A
busy neighbour is what everybody must expect: on a machine that is full a worker gets its share, not all. So what the offender
takes is measured against that (`kept`); against the window alone it is told as well (`of_alone`), which on a machine with
nothing else to do comes to the same."""
import time
import typing

from harness import SLOW

PACE = min(SLOW, 3)  # a guest without KVM has longer windows
WINDOW = 0.4 * PACE
BUSY = "while :; do :; done"
MIB = 1 << 20


class Offender(typing.NamedTuple):
    name: str
    worker: str     # one piece of work
    script: str     # what the offender runs
    limits: dict
    asserted: bool  # whether 80 % must be left


# The worker has half a core. The offender may have one: as much as anybody.
OFFENDERS = [
    Offender("cpu", "i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done",
             "for i in $(seq 32); do while :; do :; done & done; wait", {"cpu": 1, "pids": 64}, True),
    Offender("memory", "dd if=/dev/zero of=/dev/null bs=1M count=1 2>/dev/null",
             "while :; do dd if=/dev/zero of=/dev/null bs=200M count=1; done 2>/dev/null", {"cpu": 1, "memory": 64 * MIB}, True),
    Offender("pids", "/bin/true",
             "for i in $(seq 20); do awk 'BEGIN { while (1) system(\"true & true & true & true\") }' & done 2>/dev/null; wait",
             {"cpu": 1, "pids": 64}, True),
    Offender("open files", "cat /etc/passwd /etc/group /etc/hosts >/dev/null",
             "mkdir -p /m; cd /m; for i in $(seq 900); do : > $i; done; while :; do timeout 1 tail -f $(ls) >/dev/null 2>&1; done",
             {"cpu": 1, "nofile": 1024}, True),
    Offender("disk", "echo x > /x; rm /x",
             "while :; do dd if=/dev/zero of=/big bs=1M count=64 conv=fsync; rm /big; done 2>/dev/null", {"cpu": 1}, False),
    # A sandbox's fsync waits for no disk (its upper is volatile): only what goes around the cache does.
    Offender("disk that is waited for", "dd if=/dev/zero of=/x bs=4k count=4 oflag=direct conv=notrunc 2>/dev/null",
             "while :; do dd if=/dev/zero of=/big bs=1M count=64 oflag=direct conv=notrunc; done 2>/dev/null", {"cpu": 1}, False),
    Offender("output", "i=0; while [ $i -lt 300 ]; do i=$((i+1)); done", "yes", {"cpu": 1}, False),
]


def dots(node, sandbox, exec_id):
    return node.process(sandbox, exec_id)["out_bytes"], time.monotonic()


def rate(node, sandbox, exec_id):
    """Pieces of work a second, over a window."""
    n0, t0 = dots(node, sandbox, exec_id)
    time.sleep(WINDOW)
    n1, t1 = dots(node, sandbox, exec_id)
    return (n1 - n0) / (t1 - t0)


def stop(node, sandbox, exec_id):
    a = node.call("POST", node.at(sandbox, exec_id, "/signal"), {"signal": "KILL", "scope": "tree"})
    if a.status not in (200, 204, 409):  # 409: it has ended by itself
        raise AssertionError(repr(a))
    node.wait(sandbox, exec_id)


def beside(node, other, script, worker, exec_id):
    x = node.start(other, script)
    try:
        time.sleep(0.15 * PACE)
        return rate(node, worker, exec_id)
    finally:
        stop(node, other, x)
        time.sleep(0.05 * PACE)


def measure(node, offender, rounds):
    """(kept, of_alone): ratios, one a round."""
    with node.sandbox(limits={"cpu": 0.5, "memory": 128 * MIB}) as worker, \
            node.sandbox(limits={"memory": 256 * MIB, **offender.limits}) as other:
        x = node.start(worker, f"while :; do {offender.worker}; printf .; done")
        time.sleep(0.3 * PACE)
        windows = {"alone": lambda: rate(node, worker, x), "busy": lambda: beside(node, other, BUSY, worker, x),
                   "worst": lambda: beside(node, other, offender.script, worker, x)}
        kept, of_alone = [], []
        for i in range(rounds):
            names = list(windows)[i % 3:] + list(windows)[:i % 3]
            got = {name: windows[name]() for name in (reversed(names) if i % 2 else names)}
            if got["busy"] and got["alone"]:
                kept.append(got["worst"] / got["busy"])
                of_alone.append(got["worst"] / got["alone"])
        if len(kept) < max(3, rounds // 2):
            raise AssertionError(f"the worker stood still without an offender, {rounds - len(kept)} times of {rounds}")
        return kept, of_alone

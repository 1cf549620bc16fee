"""A power loss as the disk sees it: bothyd goes on with a copy that was taken of its disk while it worked."""
import os
import random
import time

from disk import on_a_disk, run
from harness import Node, check, collect, equal, reach

SIZES = (10, 1000, 20_000, 10, 1000, 20_000)  # numbers that a command writes to each stream
LARGE = 4_000_000  # 31 MB: more than is written to the disk before the end of a command
NAMES = ("out", "err")


def numbers(most):
    return "".join(f"{i}\n" for i in range(1, most + 1)).encode()


def numbers_of(node, sandbox, most):
    """The id of a command that writes them to both streams and has ended."""
    x = node.start(sandbox, f"seq {most}; seq {most} >&2")
    equal(node.wait(sandbox, x)["exit_code"], 0, "exit code")
    return x


def judge(node, sandbox, x, most):
    """Whether anything of what it wrote is gone. Each way to read it must say so."""
    end, want = node.process(sandbox, x)["end"], numbers(most)
    check(end, f"command {x} runs")
    if end["how"] == "unknown":
        return True  # its end was not on the disk
    events = list(node.events("GET", node.at(sandbox, x, "/output?follow=end"), timeout=60))
    told, by_events = reach(events), dict(zip(NAMES, collect(iter(events))[:2]))
    for name in NAMES:
        kept = node.output(sandbox, x, name)
        check(want.startswith(kept), f"{name} of command {x}: other bytes than it wrote")
        equal((end[f"{name}_bytes"], len(kept) + end[f"{name}_dropped"]), (len(want), len(want)), f"{name} of command {x}: {len(kept)} kept, {end}; bytes told")
        equal((told[name], by_events[name] == kept), (len(want), True), f"{name} of command {x} by events: its length, and the same bytes")
    return bool(end["out_dropped"] or end["err_dropped"])


def alone(suite):
    name = "crash image: bothyd on what the disk had in the middle of its work: an end says what is missing of its output, in each way to read it"
    if not suite.wants(name):
        return
    with Node(pool="2:3") as node, on_a_disk(node, "400M") as disk:
        @suite.case(name)
        def _():
            sandbox, copy, lost = node.create(), disk.image + ".copy", 0
            execs = {numbers_of(node, sandbox, most): most for most in (*SIZES, LARGE)}
            time.sleep(random.uniform(1.5, 3))  # ends are on the disk within a second
            late = {numbers_of(node, sandbox, most): most for most in SIZES[:3]}
            run("cp", "--sparse=always", disk.image, copy)
            node.kill("bothyd")
            disk.umount()
            os.replace(copy, disk.image)
            disk.mount()
            node.restart("bothyd")
            for x, most in execs.items():
                equal(node.process(sandbox, x)["end"]["how"], "exited", f"the end of command {x}, which was on the disk")
            for x, most in {**execs, **late}.items():
                lost += judge(node, sandbox, x, most)
            print(f"      of {len(execs) + len(late)} commands {lost} have lost something", flush=True)
            node.delete(sandbox)

"""A power loss as the disk sees it: bothyd goes on with a copy that was taken of its disk while it worked."""
import os
import random
import time

from disk import on_a_disk, run
from harness import ApiError, Node, check, collect, equal, reach

SIZES = (10, 1000, 20_000, 10, 1000, 20_000)  # numbers that a command writes to each stream
LARGE = 1_300_000  # 9 MB: the output of one such command is all that is written to the disk in a second before the ends
NAMES = ("out", "err")


def numbers(most):
    return "".join(f"{i}\n" for i in range(1, most + 1)).encode()


def numbers_of(node, sandbox, sizes):
    """{id: size} of commands that write them to both streams, all at once, when they have ended."""
    execs = {node.start(sandbox, f"seq {most}; seq {most} >&2"): most for most in sizes}
    for x in execs:
        equal(node.wait(sandbox, x)["exit_code"], 0, "exit code")
    return execs


def end_of(node, sandbox, x):
    """None: it was not on the disk. The box has not had a power loss, and may know of the command."""
    try:
        end = node.process(sandbox, x)["end"]
    except ApiError as e:
        equal(e.answer.error["kind"], "exec", "an error")
        return None
    return end if end and end["how"] != "unknown" else None


def judge(node, sandbox, x, most):
    """Whether anything of what it wrote is gone. Each way to read it must say so."""
    end, want = end_of(node, sandbox, x), numbers(most)
    if not end:
        return True
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
            sandbox, copy, lost = node.create(), disk.image + ".copy", []
            execs = {**numbers_of(node, sandbox, SIZES), **numbers_of(node, sandbox, [LARGE] * 3)}
            time.sleep(random.uniform(1.5, 3))  # ends are on the disk within a second
            late = numbers_of(node, sandbox, SIZES[:3])
            run("cp", "--sparse=always", disk.image, copy)
            node.kill("bothyd")
            disk.umount()
            os.replace(copy, disk.image)
            disk.mount()
            node.restart("bothyd")
            for x, most in execs.items():
                check(end_of(node, sandbox, x), f"the end of command {x} was on the disk, and is gone")
            for x, most in {**execs, **late}.items():
                lost += [x] if judge(node, sandbox, x, most) else []
            print(f"      of {len(execs)} commands {len(set(lost) & set(execs))} have lost output, of {len(late)} of the last second {len(set(lost) & set(late))}",
                  flush=True)
            node.delete(sandbox)

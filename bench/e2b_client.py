"""E2B's Python SDK as a subject of bench e2b: does what the lines on stdin say, and tells of each in one line of JSON."""
import asyncio
import json
import sys
import time

from e2b import AsyncSandbox, Sandbox


def one():
    began = time.perf_counter_ns()
    sandbox = Sandbox.create()
    said = sandbox.commands.run("echo here").stdout
    took = time.perf_counter_ns() - began
    sandbox.kill()
    return {"ns": [took] if said == "here\n" else [], "failed": [] if said == "here\n" else [f"it said {said!r}"]}


async def one_of_many(began, made, taken):
    sandbox = await AsyncSandbox.create()
    made.append(sandbox)
    said = (await sandbox.commands.run("echo here")).stdout
    if said != "here\n":
        raise ValueError(f"it said {said!r}")
    taken.append(time.perf_counter_ns() - began)


async def burst(count):
    began, made, taken = time.perf_counter_ns(), [], []
    ends = await asyncio.gather(*(one_of_many(began, made, taken) for _ in range(count)), return_exceptions=True)
    await asyncio.gather(*(sandbox.kill() for sandbox in made), return_exceptions=True)
    return {"ns": taken, "failed": [repr(e) for e in ends if e is not None]}


for line in sys.stdin:
    word, *count = line.split()
    try:
        told = one() if word == "one" else asyncio.run(burst(int(count[0])))
    except Exception as e:  # noqa: BLE001: whatever it is, it is counted
        told = {"ns": [], "failed": [repr(e)]}
    print(json.dumps(told), flush=True)

"""Kills at random: one node, one load, one kind of kill, and everything counted that must not happen."""
import pathlib
import random
import struct
import time

import leftovers
import load as kinds
from audit import Audit
from harness import Node, check, equal, eventually, pids, read_bytes
from load import Load, patient

COMM = {"bothyd": b"bothyd", "warden": b"bothy-warden"}
COMMANDS = 20
SANDBOXES = 4
TIMED = 4  # clients whose sandboxes end by their time
# What a round must not have; each is counted by itself.
ZERO = ("lost", "wrong_ends", "missing_ends", "duplicate_ends", "wrong_bytes", "ran_twice", "never_ran", "doubles",
        "orphan_slots", "orphan_layers", "orphan_mounts", "orphan_cgroups", "orphan_processes", "orphan_files")


def journal(node, sandbox):
    """({exec: BEGIN records}, {exec: END records}) of a sandbox."""
    raw = pathlib.Path(node.dir, "bothyd", "spool", sandbox, "journal").read_bytes()
    begins, ends = {}, {}
    for at in range(0, len(raw) - 255, 256):
        _, kind = struct.unpack_from("<IH", raw, at)
        exec_id, = struct.unpack_from("<Q", raw, at + 16)
        if kind in (1, 2):
            count = begins if kind == 1 else ends
            count[exec_id] = count.get(exec_id, 0) + 1
    return begins, ends


def records(node, load):
    """End records that are missing, in the journals or as the API tells them, and those that are there twice."""
    missing = duplicate = 0
    for sandbox in load.sandboxes:
        begins, ends = journal(node, sandbox)
        missing += sum(exec_id not in ends for exec_id in begins) + (not begins)
        duplicate += sum(n > 1 for n in [*begins.values(), *ends.values()])
        listed = patient(lambda s=sandbox: node.ok("GET", f"/v1/sandboxes/{s}/processes"))["processes"]
        missing += sum(not p["end"] or p["end"]["how"] == "unknown" for p in listed)
    return {"missing": missing, "duplicate": duplicate}


def ran(node, load):
    """Each command wrote its id down when it began."""
    lines = []
    for sandbox in load.sandboxes:
        lines += patient(lambda s=sandbox: node.shell(s, f"cat {load.ran_file(s)} 2>/dev/null || true")).split()
    return {"twice": len(lines) - len(set(lines)), "never": len(set(load.done) - set(lines)),
            "unknown": len(set(lines) - set(load.done))}


def programs_of(who):
    return ("warden", "bothyd") if who == "both" else (who,)


def is_up(node, program):
    """It is itself, and not yet the script that starts it."""
    return read_bytes(f"/proc/{node.pid(program)}/comm").strip() == COMM[program]


def strike(node, who, wait):
    """Kills and starts again; gives for how long nobody was there, in ms, if it waited for that."""
    began = time.monotonic()
    for program in programs_of(who):
        node.kill(program)
    for program in programs_of(who):
        node.restart(program, wait=wait)
        eventually(f"{program} starts", lambda p=program: is_up(node, p), 10, 0.002)
    return (time.monotonic() - began) * 1000


def kill_loop(node, load, audit, who, kills):
    """Kills while the load runs: most fall into the start or the moments after it, some into the first look for sandboxes whose time is
    over, a second after it. Gives (kills, [ms away])."""
    away = []
    for n in range(kills):
        time.sleep(random.uniform(*random.choices(((0, 0.3), (0.3, 0.9), (1, 1.1)), (6, 2, 2))[0]))
        if load.failure:
            return n, away
        wait = n % 10 == 9 or n == kills - 1
        took = strike(node, who, wait)
        if wait:
            away.append(took)
        audit.note()
    return kills, away


def count(node, load, audit, result):
    """After the load has ended: what is wrong with its commands."""
    once, ends = ran(node, load), records(node, load)
    result.update(load.counts, missing_ends=ends["missing"], duplicate_ends=ends["duplicate"], ran_twice=once["twice"],
                  never_ran=once["never"])
    result["lost"] += once["unknown"]


def count_orphans(node, load, audit, result):
    """After the sandboxes have been deleted: what is left of them and of everything beside them."""
    oci = node.backend == "oci"
    if oci:
        node.ok("POST", "/v1/images/prune", {}, timeout=60)
    mark = f"BOTHY_LOAD={load.tag}".encode()

    def processes():
        return [p for p in pids() if mark in read_bytes(f"/proc/{p}/environ")]
    try:
        eventually("the commands' processes are gone", lambda: not processes(), 10)
    except AssertionError:
        pass  # counted
    left = audit.settle(pruned=oci)
    for kind, what in left.items():
        print(f"      {kind}: {what}", flush=True)
    for kind in ("slots", "layers", "mounts", "cgroups", "processes", "files"):
        result["orphan_" + kind] = len(left.get(kind, []))
    result["orphan_processes"] += len(processes())
    result["doubles"] += len(left.get("doubles", []))


def run(suite, backend, program, kills, results, nth=""):
    """One round; adds its counts to results."""
    name = f"{program} killed {kills} times under {COMMANDS} commands{nth}"
    if not suite.wants(suite.prefix + name):
        return
    result = {"backend": backend, "program": program, "kills": 0, "commands": 0, **dict.fromkeys(ZERO, 0)}
    results.append(result)
    node = Node(backend, pool="4:6")
    with node:
        audit = Audit(node)
        audit.settle()
        more = (kinds.tty,) if program == "warden" else ()
        load = Load(node, SANDBOXES, COMMANDS, kinds=(*kinds.KINDS, *more), pulls=backend == "oci", timed=TIMED)

        @suite.case(name)
        def _():
            load.start()
            done, away = kill_loop(node, load, audit, program, kills)
            load.finish()
            away.sort()
            result.update(kills=done, commands=len(load.done), creates=load.created, pulls=load.pulled, timed=load.timed,
                          retries=load.retries, resumed_streams=load.resumed,
                          away_ms_p50=round(away[len(away) // 2]) if away else 0, away_ms_max=round(away[-1]) if away else 0)
            check(not load.failure, str(load.failure))
            equal(done, kills, "kills")
            check(len(load.done) >= COMMANDS, "the commands made no progress")
            if program == "warden":
                equal(load.reasons, {}, "why streams of a daemon that lives were cut")
        print(f"      {len(load.done)} commands ended right, {load.created} sandboxes and {load.pulled} images came and went "
              f"beside them, {load.timed} sandboxes ended by their time, {load.retries} requests sent again, {load.resumed} streams resumed", flush=True)

        @suite.case(f"{name}: creates and commands go on")
        def _():
            sb = patient(lambda: node.create())
            equal(node.exec(sb, "echo x; exit 5")["end"]["exit_code"], 5, "exit code")
            node.delete(sb)

        @suite.case(f"{name}: nothing lost, wrong, double or orphaned")
        def _():
            count(node, load, audit, result)
            for sandbox in load.sandboxes:
                node.delete(sandbox)
            count_orphans(node, load, audit, result)
            equal({k: result[k] for k in ZERO if result[k]}, {}, "what must be 0")
        spaces = leftovers.note(node)

    @suite.case(f"{name}: nothing is left")
    def _():
        equal(leftovers.left(node, spaces), [], "what is left")


def table(results):
    """For people: one line a round, what must be 0 behind."""
    if not results:
        return
    print("\n" + " " * 14 + "kills commands  " + " ".join(k.replace("orphan_", "o.") for k in ZERO))
    for r in results:
        counts = " ".join(f"{r[k]:>{len(k.replace('orphan_', 'o.'))}}" for k in ZERO)
        print(f"{r['backend']:>5} {r['program']:<8}{r['kills']:>5} {r['commands']:>8}  {counts}")
    print(flush=True)


def totals(results):
    """The rounds of one kind together."""
    sums = {}
    for r in results:
        to = sums.setdefault((r["backend"], r["program"]), {"backend": r["backend"], "program": r["program"], "rounds": 0})
        to["rounds"] += 1
        for key, value in r.items():
            if isinstance(value, int):
                to[key] = max(to.get(key, 0), value) if key.startswith("away_") else to.get(key, 0) + value
    return list(sums.values())

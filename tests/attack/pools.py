"""Pools of the kernel: A takes all it can get and holds it, as root and as a user; B still gets what it needs."""
from common import armed, intrude
from harness import check, equal, eventually

# pool of pools.c: what A may get at most, both users together
POOLS = {"inotify": 2048, "watches": 131072, "ptys": 64, "pids": 512, "pipes": None, "in-flight": None, "locks": None,
         "mqueues": 1024, "semaphores": 32768, "segments": 4096, "epoll": None, "timers": 40000, "signals": 40000, "locked": 256,
         "keys": 0, "namespaces": 0, "nested-ptys": 0}
NEEDED = {"inotify": "64", "ptys": "8", "processes": "100", "pipe": "1", "file": "written"}
# Without CAP_SYS_RESOURCE the warden cannot raise its own, and says so; then these are one pool for all.
SHARED = {"mqueues": "message queues"}


def held(node, sandbox, x):
    text = node.output(sandbox, x).decode()
    return text.split() if text.endswith("\n") else None


def take(node, sandbox, pool):
    """How much A got, as root and as a user; both hold it."""
    got = 0
    for user in ("0", "1000"):
        if node.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"argv": ["true"]}).status != 200:
            continue  # the first has it all: not even a command can be started
        x = node.start(sandbox, ["/intruder", "hold", pool], user=user)
        words = eventually(f"{pool} is held", lambda x=x: held(node, sandbox, x), 20)
        equal(words[:2], ["held", pool], "what it says")
        got += int(words[2])
    return got


def needs(node, neighbour, but=()):
    for user in ("0", "1000"):
        said = dict(line.split(" ", 1) for line in intrude(node, neighbour, "need", user=user).splitlines())
        wanted = {k: v for k, v in {**NEEDED, "mqueue": "1"}.items() if k not in but}
        equal({k: said.get(k) for k in wanted}, wanted, f"what the neighbour gets as {user}")


def cases(attack, node):
    with armed(node) as neighbour:
        for pool, most in POOLS.items():
            @attack.attempt(f"pool of {pool}: A holds all it can get, B gets 64 inotify instances, 8 ptys, 100 processes, an exec, a file",
                            ("root", "user"))
            def _(pool=pool, most=most):
                with armed(node) as sandbox:
                    got = take(node, sandbox, pool)
                    attack.figures.setdefault("pools_held", {})[pool] = got
                    check(most is None or got <= most, f"A got {got}")
                    alone = pool in SHARED and SHARED[pool] in node.log("warden")
                    needs(node, neighbour, but=("mqueue",) if alone else ())
                    with armed(node) as fresh:  # and somebody who comes now
                        needs(node, fresh, but=("mqueue",) if alone else ())

        @attack.attempt("pools, all at once: A holds every one of them, B gets what it needs", ("root", "user"))
        def _():
            with armed(node) as sandbox:
                for pool in POOLS:
                    if pool not in ("pids", "mqueues", "watches"):  # the last takes long, and has had its turn
                        take(node, sandbox, pool)
                take(node, sandbox, "pids")
                needs(node, neighbour)

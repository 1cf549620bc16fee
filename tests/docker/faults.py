"""bothyd killed at each named step of a claim (src/base/fault.h): no orphan, no double, the same answer to the same key."""
import http.client
import secrets
import time

from backend import create, full, named
from harness import Node, Watch, alive, eventually

POINTS = ("docker.made", "docker.noted", "docker.claimed", "docker.renamed")


def cases(suite, name, engine):
    with Node(name, images="busybox", faults=True) as node:
        for point in POINTS:
            @suite.case(f"bothyd killed at {point}: one sandbox, found again, nothing left")
            def _(point=point):
                node.delete(create(node)["id"])
                if point != "docker.made":
                    full(node)
                before, key, pid = named(engine), secrets.token_hex(8), node.pid("bothyd")
                node.arm("bothyd", point)
                if point == "docker.made":  # a shape that is not kept warm
                    spec = {"image": "busybox", "read_only": True}
                else:
                    spec = {"image": "busybox"}
                try:
                    node.call("POST", "/v1/sandboxes", spec, {"Idempotency-Key": key}, timeout=60)
                except (OSError, http.client.HTTPException):
                    pass
                eventually(f"{point} was hit", lambda: not node.is_armed("bothyd", point) and not alive(pid), 20)
                node.restart("bothyd")
                made = again(node, spec, key)
                assert node.shell(made, "echo here") == "here\n"
                assert again(node, spec, key) == made, "the same answer"
                node.delete(made)
                eventually("nothing is left", lambda: named(engine) <= before, 60)


def again(node, spec, key):
    limit = Watch(90)
    while True:
        a = node.call("POST", "/v1/sandboxes", spec, {"Idempotency-Key": key}, timeout=60)
        if a.status < 300:
            return a.json["id"]
        if limit.over():
            raise AssertionError(repr(a))
        time.sleep(0.2)

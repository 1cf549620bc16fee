"""Nodes of the harness on this suite's cluster: what the parts that drive bothyd from outside share."""
import contextlib
import http.client
import json
import secrets
import time

import harness
import providers
from harness import SLOW, TOP, Skip, Watch, eventually

STATE, SANDBOX, CELL = "bothy.dev/state", "bothy.dev/sandbox", "bothy.dev/cell"
FIGURES = {}  # of a long run, for docs/measured
FAULTS = TOP / "build-faults" / "bin" / "bothyd"


def provider(k):
    """The provider of nodes, on this cluster."""
    if "kubernetes" not in harness.PROVIDERS:
        harness.PROVIDERS["kubernetes"] = providers.Pods(k)
    return harness.PROVIDERS["kubernetes"]


@contextlib.contextmanager
def space(k):
    """A namespace for nodes that come up in the block."""
    with k.namespace() as ns, provider(k).within(ns):
        yield ns


def need_faults():
    if not FAULTS.exists():
        raise Skip("tools/dev build --faults makes the programs that can be killed at named steps")


def pods(k, ns, **labels):
    """Those that nobody is deleting, by name."""
    select = ",".join(f"{name}={value}" for name, value in {"bothy.dev/managed": "1", **labels}.items())
    return {p["metadata"]["name"]: p for p in k.get(f"/api/v1/namespaces/{ns}/pods?labelSelector={select}")["items"]
            if "deletionTimestamp" not in p["metadata"]}


def labelled(found, value):
    return {name for name, p in found.items() if p["metadata"]["labels"].get(STATE) == value}


def claimed(k, ns):
    """{pod: sandbox} as the labels have it."""
    found = pods(k, ns)
    return {name: found[name]["metadata"]["labels"].get(SANDBOX) for name in labelled(found, "claimed")}


def running(found):
    return {name for name, p in found.items() if any("running" in s["state"] for s in p["status"].get("containerStatuses", []))}


def marked(k, ns, name, path="/tmp/mark"):
    """What the pod itself has in a file, by kubectl."""
    return k.kubectl("-n", ns, "exec", name, "-c", "sandbox", "--", "cat", path).split()


def attempt(node, method, path, body=None, headers=None, timeout=60):
    """The answer; None if there was none, as of one who is killed."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        return node.call(method, path, body, headers, timeout)
    return None


def insist(node, spec, key, seconds=90):
    """The id of a create that is repeated until it succeeds. What it is refused with meanwhile must be worth a repetition."""
    limit = Watch(seconds * SLOW)
    while True:
        a = attempt(node, "POST", "/v1/sandboxes", spec, {"Idempotency-Key": key})
        if a is not None and a.status < 300:
            return a.json["id"]
        if limit.over():
            raise AssertionError(f"no sandbox for the key in {seconds} s: {a!r}")
        time.sleep(0.2)


def key():
    return secrets.token_hex(8)


def pool(node):
    return node.ok("GET", "/v1/pools")["pools"][0]


def full(node, seconds=90):
    eventually("the pool is full", lambda: (lambda p: p["ready"] >= p["low"] and not p["making"] and not p["dying"])(pool(node)), seconds, 0.1)


def settled(k, ns, node, seconds=60):
    """No orphan: every pod is one that can be claimed now, by the word of its init; none is anybody's."""
    def clean():
        found, p = pods(k, ns), pool(node)
        return not claimed(k, ns) and len(found) == p["ready"] and not p["making"] and not p["dying"] and not p["claimed"]
    try:
        eventually("every pod is warm and nobody's", clean, seconds, 0.2)
    except AssertionError as e:
        found = {name: p["metadata"]["labels"] for name, p in pods(k, ns).items()}
        raise AssertionError(f"{e}: {json.dumps(pool(node))} {json.dumps(found)}") from None

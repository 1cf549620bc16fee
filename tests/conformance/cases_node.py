"""The node itself: operations, closed directories, coming up anywhere, leaving nothing."""
import os
import re
import sqlite3
import stat

import leftovers
import metrics_text
from common import beside
from harness import Api, Node, Skip, alive, check, equal, eventually, expect_error, free_port


def cases(suite, node):
    operations(suite, node)
    classes(suite, node)
    closed(suite, node)


def operations(suite, node):
    @suite.case("/metrics keeps the text format and counts what happens")
    def _():
        _, before = metrics_text.parse(node.call("GET", "/metrics").body.decode())
        with node.sandbox() as sb:
            node.exec(sb, ["true"])
        a = node.call("GET", "/metrics")
        check(a.headers["Content-Type"].startswith("text/plain; version=0.0.4"), "content type")
        kinds, after = metrics_text.parse(a.body.decode())
        for name in ("bothy_creates_total", "bothy_execs_total"):
            equal(after[(name, "")], before[(name, "")] + 1, name)
            equal(kinds[name], "counter", f"type of {name}")

    @suite.case("/openapi.json is the description of every route")
    def _():
        d = node.ok("GET", "/openapi.json")
        check(d["openapi"].startswith("3.") and "/v1/sandboxes/{id}/exec" in d["paths"], "paths")

    @suite.case("/v1/info tells version, cell, backend, caps, formats, counts")
    def _():
        with node.sandbox():
            info = node.ok("GET", "/v1/info")
        equal(info["backend"], node.backend.replace("podman", "docker"), "backend")
        check(len(info["cell"]) == 4, "cell")
        check(set(info["versions"]) >= {"api", "warden", "spine", "journal", "store"}, "versions")
        check(all(v in ("native", "emulated", "absent") for v in info["caps"].values()), "caps")
        check(info["counts"]["sandboxes"] >= 1, "counts")

    @suite.case("/healthz and /readyz say that it can take work")
    def _():
        equal(node.call("GET", "/healthz").status, 200, "healthz")
        ready = node.ok("GET", "/readyz")
        check(ready["ready"] and ready["checks"] and all(c["ok"] for c in ready["checks"]), f"{ready}")

    @suite.case("a method that a route does not have is method_not_allowed with Allow")
    def _():
        a = node.call("PUT", "/v1/sandboxes")
        expect_error(a, 405, "method_not_allowed")
        equal({m.strip() for m in a.headers["Allow"].split(",")} >= {"GET", "POST"}, True, "Allow")

    @suite.case("every answer has a request id, also in the log of a failure")
    def _():
        a = node.call("GET", "/v1/sandboxes")
        check(a.headers.get("X-Request-Id"), "no X-Request-Id")
        e = node.call("GET", "/v1/sandboxes/nobody")
        equal(e.headers["X-Request-Id"], e.error["request_id"], "request id")

    @suite.case("bothyd stops at TERM within five seconds, sandboxes live on")
    def _():
        with node.sandbox() as sb:
            x = node.start(sb, "sleep 0.5; echo lived")
            node.kill("bothyd", 15)
            node.restart("bothyd")
            equal(node.wait(sb, x)["exit_code"], 0, "exit code")
            equal(node.output(sb, x), b"lived\n", "output")

    @suite.case("a second bothyd on the same state is refused")
    def _():
        before = node.pid("bothyd")
        try:
            node.restart("bothyd", wait=False)
            second = node.pid("bothyd")
            eventually("the second gives up", lambda: not alive(second), 60)  # it is patient for ten
        finally:
            with open(f"{node.dir}/ctl/bothyd.pid", "w", encoding="ascii") as f:
                f.write(f"{before}\n")
        equal(node.call("GET", "/healthz").status, 200, "the first one")


def closed(suite, node):
    @suite.case("state directories are closed to others")
    def _():
        for name in ("bothyd",) + (("warden",) if node.backend == "oci" else ()):
            equal(stat.S_IMODE(os.stat(f"{node.dir}/{name}").st_mode), 0o700, f"mode of {name}")
        equal(stat.S_IMODE(os.stat(f"{node.dir}/run/bothyd.sock").st_mode), 0o660, "mode of the socket")


def receipt(node, sandbox):
    """What the store has of how it was made."""
    db = sqlite3.connect(f"file:{node.dir}/bothyd/store.db?mode=ro", uri=True, timeout=5)
    try:
        return db.execute("SELECT walls FROM sandboxes WHERE id = ?", (sandbox,)).fetchone()[0] or ""
    finally:
        db.close()


def classes(suite, node):
    @suite.case("answers, lists and metrics say what a sandbox was made of, after a restart too")
    def _():
        beside(node)
        made = node.ok("POST", "/v1/sandboxes", {"image": "busybox"})
        try:
            known = {"oci": ("slot",), "fake": ("cold",), "docker": ("exact", "cold"), "podman": ("exact", "cold")}
            check(made["class"] in known.get(node.backend, ("exact", "cold", "kubelet")), f"class {made['class']}")
            listed = {s["id"]: s["class"] for s in node.ok("GET", "/v1/sandboxes")["sandboxes"]}
            equal(listed[made["id"]], made["class"], "class in the list")
            text = node.call("GET", "/metrics").body.decode()
            counted = re.search(rf'^bothy_claims_total{{class="{made["class"]}"}} (\d+)$', text, re.M)
            check(counted and int(counted[1]) > 0, "it is not counted")
            # It is written behind the answer; of one that a kill was faster than, the class is not known.
            eventually("its class is written", lambda: f'"class":"{made["class"]}"' in receipt(node, made["id"]))
            node.kill("bothyd")
            node.restart("bothyd")
            equal(node.show(made["id"])["class"], made["class"], "class after a restart")
        finally:
            node.delete(made["id"])


def alone(suite, backend):
    """Cases that need a node of their own."""
    names = ("create and exec work with no network interface up",
             "a node in a directory of mode 0700 works, keeps the mode, prints two lines, and leaves nothing",
             "one owner's live commands leave descriptors to others, and nobody's sandbox is lost")
    if not suite.wants(*(suite.prefix + n for n in names)):
        return

    @suite.case(names[0])
    def _():
        if backend == "kubernetes":
            raise Skip("an API server is reached over a network")
        with Node(backend, wrap=["unshare", "-n"]) as node:
            with open(f"/proc/{node.pid('bothyd')}/net/dev", encoding="ascii") as f:
                equal(len(f.read().splitlines()), 3, "lines of its net/dev: lo alone, down")
            with node.sandbox() as sb:
                equal(node.exec(sb, "echo out; exit 3")["end"]["exit_code"], 3, "exit code")

    @suite.case(names[2])
    def _():
        if backend == "fake":
            raise Skip("its commands have no descriptors in bothyd")
        port = free_port()
        with Node(backend, pool="2:4", warden="--max 8", env=f"BOTHY_LISTEN_TCP=127.0.0.1:{port}",
                  wrap=["sh", "-c", 'ulimit -n 1200; exec "$@"', "sh"]) as node:
            def caller(owner):
                return Api(tcp=f"127.0.0.1:{port}", key=node.ok("POST", "/v1/keys", {"owner": owner})["key"])
            eve, ann = caller("eve"), caller("ann")
            hers = ann.create()
            taken = [eve.create() for _ in range(3)]
            last, n = None, 0
            while n < 700 and (not last or last.status == 201):
                n += 1
                last = eve.call("POST", f"/v1/sandboxes/{taken[n % 3]}/processes", {"argv": ["sleep", "1000"]})
            expect_error(last, 429, "quota_exceeded")
            equal(ann.exec(hers, ["echo", "still"])["out"]["text"], "still\n", "another's command")
            equal([node.show(sb)["state"] for sb in (hers, *taken)], ["running"] * 4, "states")
            # An administrator is not limited so; where descriptors run out, commands are refused, nothing is lost.
            while n < 1400 and last.status in (201, 429):
                n += 1
                last = node.call("POST", f"/v1/sandboxes/{taken[n % 3]}/processes", {"argv": ["sleep", "1000"]})
            check(last.status in (409, 503), f"{last}")
            equal([node.show(sb)["state"] for sb in (hers, *taken)], ["running"] * 4, "states at the end")

    @suite.case(names[1])
    def _():
        node = Node(backend, mode=0o700)
        with node:
            equal(stat.S_IMODE(os.stat(node.dir).st_mode), 0o700, "mode of the directory")
            lines = node.exports.splitlines()
            check(len(lines) == 2 and lines[0].startswith("export BOTHY_SOCKET=") and lines[1].startswith("export PATH="),
                  f"stdout is {node.exports!r}")
            sb = node.create()
            node.start(sb, ["sleep", "1000"])
            equal(node.exec(sb, ["echo", "x"])["out"]["text"], "x\n", "out")
            spaces = leftovers.note(node)
            check(spaces, "no namespaces were noted")
        equal(leftovers.left(node, spaces), [], "what is left")

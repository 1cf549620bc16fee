"""Reset: a fresh slot under the same id. Relative paths: not every backend has a root of its own."""
import statistics
import threading
import time

from cases_owners import key_for
from common import beside
from harness import Skip, check, equal, eventually, expect_error


def reset(api, sb, headers=None, **body):
    return api.ok("POST", f"/v1/sandboxes/{sb}/reset", body, headers)


def ms(samples):
    return round(1000 * statistics.median(samples), 2)


def cases(suite, node):
    def able():
        if node.caps.get("reset", "absent") == "absent":
            raise Skip("this server cannot reset a sandbox (caps.reset)")

    @suite.case("a reset sandbox is the same one with the image's files: id, owner, name, labels, limits and time stay, ids go on")
    def _():
        able()
        with node.sandbox(name="again", labels={"a": "1"}, env={"A": "old", "B": "old"}, limits=node.held_limits({"pids": 99}), ttl=600) as sb:
            before = node.show(sb)
            equal(node.exec(sb, "echo $A >mark; cat mark")["exec"], "1", "the first exec")
            after = reset(node, sb, env={"A": "new"})
            same = ("id", "owner", "name", "labels", "limits", "created", "ends", "image", "network", "state", "cause")
            equal({k: after[k] for k in same}, {k: before[k] for k in same}, "what stays")
            said = node.exec(sb, "ls mark 2>/dev/null; echo $A-$B-$HOSTNAME; pwd")
            equal((said["exec"], said["out"]["text"].splitlines()[0]), ("2", f"new--{sb}"), "the next exec")
            equal(node.output(sb, "1"), b"old\n", "output from before")
            equal([p["exec"] for p in node.ok("GET", f"/v1/sandboxes/{sb}/processes")["processes"]], ["1", "2"], "processes")
            reset(node, "again")
            equal(node.shell(sb, "echo $A."), ".\n", "variables after a reset without any")
            types = [e["type"] for e in node.ok("GET", f"/v1/events?sandbox={sb}&limit=100")["events"]]
            equal((types.count("reset"), types.count("updated")), (2, 0), f"events {types}")

    @suite.case("what runs is killed by a reset, keeps its output, and who follows it is told")
    def _():
        able()
        with node.sandbox() as sb:
            x = node.start(sb, "echo said; exec sleep 600")
            y = node.start(sb, ["cat"], stdin_open=True)
            eventually("it speaks", lambda: node.output(sb, x) == b"said\n")
            reset(node, sb)
            for one in (x, y):
                end = node.wait(sb, one, 10)
                equal((end["how"], end["signal"], end["oom"]), ("killed", 9, False), f"the end of {one}")
            equal((node.output(sb, x), node.process(sb, x)["end"]["out_bytes"]), (b"said\n", 5), "its output")
            expect_error(node.call("POST", node.at(sb, x, "/signal"), {"signal": "TERM"}), 409, "conflict")
            equal(node.show(sb)["running_execs"], 0, "running")
            if node.backend != "fake":  # whose processes are the machine's
                equal(node.shell(sb, "ps | grep -c '[s]leep 600' || true"), "0\n", "inside")

    @suite.case("sessions end with a reset, and their names are free")
    def _():
        able()
        with node.sandbox() as sb:
            at = f"/v1/sandboxes/{sb}/sessions"
            s = node.ok("POST", at, {"name": "main"})["id"]
            node.ok("POST", f"{at}/{s}/commands", {"command": "X=1; cd /"})
            reset(node, sb)
            eventually("its end", lambda: node.ok("GET", f"{at}/{s}")["state"] == "ended")
            a = node.call("POST", f"{at}/{s}/commands", {"command": "echo $X"})
            check(a.status in (409, 410), f"a command of an ended session: {a!r}")
            t = node.ok("POST", at, {"name": "main"})["id"]
            said = node.ok("POST", f"{at}/{t}/commands", {"command": "echo .$X"})
            equal((t != s, said["out"]["text"]), (True, ".\n"), "a new one of that name")

    for mode in ("attached", "detached"):
        @suite.case(f"a command of a session that runs when its sandbox is reset has an end, {mode}")
        def _(mode=mode):
            able()
            with node.sandbox() as sb:
                at = f"/v1/sandboxes/{sb}/sessions"
                s = node.ok("POST", at, {"mode": mode})["id"]
                done = []
                runs = threading.Thread(target=lambda: done.append(node.call("POST", f"{at}/{s}/commands", {"command": "echo said; sleep 600"})))
                runs.start()
                eventually("it runs", lambda: [c for c in node.ok("GET", f"{at}/{s}/commands")["commands"] if c["out_bytes"]])
                reset(node, sb)
                runs.join(20)
                check(done and done[0].status == 200, f"who waited for it: {done}")
                equal((done[0].json["kind"], done[0].json["out"]["text"]), ("unknown", "said\n"), "its end")
                eventually("the session's end", lambda: node.ok("GET", f"{at}/{s}")["state"] == "ended")
                equal(node.shell(sb, "echo lives"), "lives\n", "the sandbox")

    @suite.case("the start command runs again after a reset, with the template's variables")
    def _():
        able()
        node.ok("POST", "/v1/templates", {"name": "restarted", "image": "busybox", "env": {"WHO": "template", "B": "t"},
                                          "start": {"argv": ["sh", "-c", "echo begun $WHO $B; exec sleep 600"]}})
        try:
            sb = node.ok("POST", "/v1/sandboxes", {"template": "restarted"})["id"]
            try:
                again = reset(node, sb, env={"B": "own"})["start"]["exec"]
                equal(again, "2", "exec of the start command")
                eventually("it speaks", lambda: node.output(sb, again) == b"begun template own\n")
                equal(node.wait(sb, "1", 10)["how"], "killed", "the first one's end")
                node.ok("DELETE", "/v1/templates/restarted")
                e = expect_error(node.call("POST", f"/v1/sandboxes/{sb}/reset"), 404, "not_found")
                check("template" in e["message"], e["message"])
                check(node.process(sb, again)["running"], "a reset that failed has changed something")
            finally:
                node.delete(sb)
        finally:
            node.call("DELETE", "/v1/templates/restarted")

    @suite.case("a reset that is repeated with its key is done once; with another body it is refused")
    def _():
        able()
        key = {"Idempotency-Key": "reset-once"}
        with node.sandbox() as sb:
            reset(node, sb, key, env={"A": "1"})
            node.shell(sb, "touch mark")
            a = node.call("POST", f"/v1/sandboxes/{sb}/reset", {"env": {"A": "1"}}, key)
            equal((a.status, a.json["id"], a.headers.get("Idempotent-Replay")), (200, sb, "true"), "the same again")
            equal(node.shell(sb, "ls mark; echo $A"), "mark\n1\n", "nothing was reset")
            expect_error(node.call("POST", f"/v1/sandboxes/{sb}/reset", {"env": {"A": "2"}}, key), 422, "idempotency_mismatch")
            reset(node, sb, {"Idempotency-Key": "reset-twice"})
            equal(node.shell(sb, "ls mark 2>/dev/null; echo $A."), ".\n", "another key resets")

    @suite.case("who may not reset is refused, and so is what makes no sense; nothing is changed by that")
    def _():
        able()
        _, ann = key_for(node, "ann")
        _, ben = key_for(node, "ben")
        _, reader = key_for(node, "ann", "read")
        sb = ann.create()
        at = f"/v1/sandboxes/{sb}/reset"
        try:
            ann.shell(sb, "touch mark")
            expect_error(ben.call("POST", at), 404, "not_found")
            expect_error(reader.call("POST", at), 403, "forbidden")
            for bad in ({"env": {"A=B": "1"}}, {"env": {"A": 1}}, {"image": "busybox"}, {"queue_wait": 0}):
                expect_error(ann.call("POST", at, bad), 400, "invalid_request")
            expect_error(ann.call("POST", at, b"[]"), 400, "invalid_request")
            equal(ann.shell(sb, "ls mark"), "mark\n", "its files")
            reset(ann, sb)
            equal(ann.shell(sb, "ls mark 2>/dev/null || echo none"), "none\n", "its files after a reset")
        finally:
            ann.delete(sb)
        expect_error(ann.call("POST", at), 410, "sandbox_gone")

    @suite.case("what can be done with a sandbox can be done after a reset: limits, pause, ports, use; it can be ended")
    def _():
        able()
        sb = node.create(ttl=600)
        try:
            reset(node, sb)
            if node.caps.get("limits", "absent") != "absent":
                node.ok("PATCH", f"/v1/sandboxes/{sb}", {"limits": {"memory": 96 << 20}})
                equal(node.show(sb)["limits"]["memory"], 96 << 20, "memory")
            if node.caps.get("freeze", "absent") != "absent":
                node.ok("POST", f"/v1/sandboxes/{sb}/pause")
                expect_error(node.call("POST", f"/v1/sandboxes/{sb}/reset"), 409, "sandbox_paused")
                node.ok("POST", f"/v1/sandboxes/{sb}/resume")
            if node.caps.get("stats", "absent") != "absent":
                used = node.ok("GET", f"/v1/sandboxes/{sb}?usage=true")["usage"]
                measured = node.caps["memory_limit"] != "absent"  # one controller does both
                check(used and (used["memory"] > 0) == measured, f"usage {used}")
            equal(node.shell(sb, "echo lives"), "lives\n", "a command")
            for i in range(5):
                reset(node, sb, env={"I": str(i)})
                equal(node.shell(sb, "echo $I"), f"{i}\n", f"after reset {i}")
        finally:
            node.delete(sb)
        equal(node.show(sb)["cause"]["kind"], "requested", "cause")

    @suite.case("a reset sandbox that was made of a snapshot has the snapshot's files, also after a restart")
    def _():
        beside(node)
        able()
        if node.caps.get("snapshot", "absent") == "absent":
            raise Skip(f"the backend {node.backend} takes no snapshots")
        with node.sandbox() as origin:
            node.shell(origin, "echo kept >/file")
            snapshot = node.ok("POST", f"/v1/sandboxes/{origin}/snapshots", {})["id"]
        sb = node.ok("POST", "/v1/sandboxes", {"snapshot": snapshot})["id"]
        try:
            reset(node, sb, secrets={"TOKEN": "x"})
            expect_error(node.call("POST", f"/v1/sandboxes/{sb}/fork", {}), 409, "conflict")
            for again in range(2):
                node.shell(sb, "echo changed >/file")
                reset(node, sb)
                equal(node.shell(sb, "cat /file"), "kept\n", "its file")
                again or (node.kill("bothyd"), node.restart("bothyd"))
        finally:
            node.delete(sb)
            node.call("DELETE", f"/v1/snapshots/{snapshot}")

    @suite.case("a reset is there after a restart: the new box, the old ends, ids that go on")
    def _():
        beside(node)
        able()
        with node.sandbox() as sb:
            x = node.start(sb, ["sleep", "600"])
            node.shell(sb, "touch mark")
            reset(node, sb, {"Idempotency-Key": "over-a-restart"}, env={"A": "kept"})
            y = node.start(sb, ["sleep", "600"])
            node.kill("bothyd")
            node.restart("bothyd")
            equal(node.show(sb)["state"], "running", "state")
            equal((node.wait(sb, x, 10)["how"], node.process(sb, y)["running"]), ("killed", True), "before and behind the reset")
            equal(node.shell(sb, "ls mark 2>/dev/null; echo $A"), "kept\n", "inside")
            a = node.call("POST", f"/v1/sandboxes/{sb}/reset", {"env": {"A": "kept"}}, {"Idempotency-Key": "over-a-restart"})
            equal((a.status, a.headers.get("Idempotent-Replay")), (200, "true"), "the key")
            check(node.process(sb, y)["running"], "the replay has reset it")
            reset(node, sb)
            equal(node.wait(sb, y, 10)["how"], "killed", "after another one")

    @suite.case("a reset and its first result take at most twice a create's, measured in turns")
    def _():
        able()
        if node.backend == "fake":
            raise Skip("the backend fake is no measure: it waits for the end of the old box")
        created, again = [], []
        with node.sandbox() as sb:
            # Where it is only measured: each turn is two containers that are made and taken away.
            for _ in range(5 if getattr(node, "engine", None) else 200 if suite.args.long else 30):
                node.pool_full()  # or the one that comes second waits for a slot to be made
                begun = time.monotonic()
                other = node.create()
                node.exec(other, ["true"])
                created.append(time.monotonic() - begun)
                node.delete(other)
                node.pool_full()
                begun = time.monotonic()
                reset(node, sb)
                node.exec(sb, ["true"])
                again.append(time.monotonic() - begun)
        print(f"      create to first result p50 {ms(created)} ms, reset to first result p50 {ms(again)} ms", flush=True)
        if getattr(node, "engine", None):
            raise Skip(f"measured, and held on slots only: create {ms(created)} ms, reset {ms(again)} ms")
        check(statistics.median(again) <= 2 * statistics.median(created), "more than twice")

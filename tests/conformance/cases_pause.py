"""Pause and resume, where the backend can."""
import time

from harness import Skip, bytes_of, check, equal, eventually, expect_error


def cases(suite, node):
    def able():
        if node.caps.get("freeze", "absent") == "absent":
            raise Skip("the backend cannot freeze a sandbox (caps.freeze)")

    @suite.case("a pause says what is kept, what is lost, how long a resume takes and until when")
    def _():
        able()
        with node.sandbox(ttl=600) as sb:
            said = node.ok("POST", f"/v1/sandboxes/{sb}/pause")
            equal((said["state"], said["cause"]), ("paused", None), "sandbox")
            p = said["pause"]
            for facts in (p["kept"], p["lost"]):
                check(facts and all(f["what"] and f["detail"] for f in facts), f"{facts}")
            check({"memory", "processes", "files"} <= {f["what"] for f in p["kept"]}, f"{p['kept']}")
            check(p["until"] > p["since"] == said["paused_at"], f"{p}")
            check(p["resume"]["measured"] > 0 and 0 < p["resume"]["expect_ms"] <= p["resume"]["worst_ms"], f"{p['resume']}")
            check(590 < said["ttl_left"] <= 600, f"ttl_left {said['ttl_left']}")
            equal(node.show(sb)["ttl_left"], said["ttl_left"], "ttl_left, a moment later")
            back = node.ok("POST", f"/v1/sandboxes/{sb}/resume")
            equal((back["state"], back["paused_at"], back["pause"]), ("running", None, None), "after the resume")
            check(back["ends"] > said["pause"]["since"] and back["resumed"]["took_ms"] > 0, f"{back['resumed']}")

    @suite.case("a paused sandbox stands still, can be read, refuses the rest, and goes on with every byte")
    def _():
        able()
        with node.sandbox() as sb:
            x = node.start(sb, "i=0; while [ ! -e /tmp/stop ]; do i=$((i+1)); echo $i; sleep 0.01; done")
            eventually("it counts", lambda: node.output(sb, x))
            equal(node.ok("POST", f"/v1/sandboxes/{sb}/pause")["running_execs"], 1, "running_execs")

            def settled():
                """What was written before may be read a moment later."""
                was = node.output(sb, x)
                time.sleep(0.2)
                return was if node.output(sb, x) == was else None
            still = eventually("it stands still", settled)
            time.sleep(0.5)
            equal(node.output(sb, x), still, "output while paused")
            e = expect_error(node.call("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["true"]}), 409, "sandbox_paused")
            check("esume" in e["remedy"], e["remedy"])
            expect_error(node.call("GET", f"/v1/sandboxes/{sb}/files?path=/etc"), 409, "sandbox_paused")
            expect_error(node.call("POST", node.at(sb, x, "/signal"), {"signal": "TERM"}), 409, "sandbox_paused")
            equal(node.ok("POST", f"/v1/sandboxes/{sb}/pause")["state"], "paused", "paused twice")
            node.ok("POST", f"/v1/sandboxes/{sb}/resume")
            equal(node.ok("POST", f"/v1/sandboxes/{sb}/resume")["resumed"], None, "resumed twice")
            eventually("it goes on", lambda: len(node.output(sb, x)) > len(still))
            node.shell(sb, "touch /tmp/stop")
            equal(node.wait(sb, x)["exit_code"], 0, "exit code")
            out = node.output(sb, x)
            equal(out, b"".join(b"%d\n" % (i + 1) for i in range(out.count(b"\n"))), "output")
            check(out.startswith(still), "it began anew")

    @suite.case("a session keeps its state over a pause; a paused sandbox can be ended")
    def _():
        able()
        sb = node.create()
        s = node.ok("POST", f"/v1/sandboxes/{sb}/sessions", {})["id"]
        run = f"/v1/sandboxes/{sb}/sessions/{s}/commands"
        node.ok("POST", run, {"command": "cd /tmp; V=1"})
        node.ok("POST", f"/v1/sandboxes/{sb}/pause")
        expect_error(node.call("POST", run, {"command": "true"}), 409, "sandbox_paused")
        node.ok("POST", f"/v1/sandboxes/{sb}/resume")
        equal(bytes_of(node.ok("POST", run, {"command": "pwd; echo $V"})["out"]), b"/tmp\n1\n", "state")
        node.ok("POST", f"/v1/sandboxes/{sb}/pause")
        equal(node.delete(sb)["cause"]["kind"], "requested", "cause")
        expect_error(node.call("POST", f"/v1/sandboxes/{sb}/resume"), 410, "sandbox_gone")

    @suite.case("pause and resume are there, or say unsupported")
    def _():
        absent = node.caps.get("freeze", "absent") == "absent"
        with node.sandbox() as sb:
            for verb, state in (("pause", "paused"), ("resume", "running")):
                answer = node.call("POST", f"/v1/sandboxes/{sb}/{verb}")
                if absent:
                    expect_error(answer, 501, "unsupported")
                equal((answer.status, node.show(sb)["state"]), (501, "running") if absent else (200, state), verb)

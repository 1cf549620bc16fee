"""Sessions through REST: what every server owes a client. All cases of shells are in tests/sessions."""
import threading

from harness import bytes_of, check, equal


def cases(suite, node):
    def opened(**spec):
        sb = node.create("busybox")
        at = f"/v1/sandboxes/{sb}/sessions"
        return f"{at}/{node.ok('POST', at, spec)['id']}"

    def run(at, text, **more):
        return node.ok("POST", at + "/commands", {"command": text, **more})

    @suite.case("a session keeps its state, and streams are apart")
    def _():
        at = opened(cwd="/tmp")
        run(at, "V=1; cd /")
        got = run(at, "echo $V; echo e >&2; pwd; (exit 7)")
        equal((got["kind"], got["exit_code"], got["cwd"], got["seq"]), ("ended", 7, "/", 2))
        equal((bytes_of(got["out"]), bytes_of(got["err"])), (b"1\n/\n", b"e\n"))
        equal(bytes_of(run(at, "echo o; echo e >&2", merge=True)["out"]), b"o\ne\n")

    @suite.case("an exit ends the command, not the session")
    def _():
        at = opened()
        got = run(at, "V=2; exit 5")
        equal((got["kind"], got["exit_code"]), ("shell_exited", 5))
        equal(bytes_of(run(at, "echo $V")["out"]), b"2\n")

    @suite.case("a time limit interrupts a command of a session")
    def _():
        at = opened()
        got = run(at, "echo begun; sleep 100", timeout_ms=3000)
        check(got["timed_out"] and got["rung"], f"{got}")
        equal(bytes_of(got["out"]), b"begun\n")
        equal(run(at, "true")["exit_code"], 0)

    @suite.case("a session has one command at a time; a key runs it once")
    def _():
        at = opened()
        key, sb = {"Idempotency-Key": "once"}, at.split("/")[3]
        body = {"command": f"N=$((N+1)); until rm /tmp/go-{sb} 2>/dev/null; do sleep 0.1; done; echo $N", "wait": False}
        first = node.ok("POST", at + "/commands", body, key)
        equal(first["kind"], "running")
        equal(node.call("POST", at + "/commands", {"command": "true"}).status, 409)
        again = node.ok("POST", at + "/commands", body, key)
        equal(again["seq"], first["seq"])
        threading.Timer(1, lambda: node.exec(sb, ["touch", f"/tmp/go-{sb}"])).start()
        equal(bytes_of(run(at, "echo $N", queue=True)["out"]), b"1\n")
        got = node.ok("GET", f"{at}/commands/{first['seq']}?wait_ms=5000")
        equal((got["kind"], bytes_of(got["out"])), ("ended", b"1\n"))
        equal([c["seq"] for c in node.ok("GET", at + "/commands")["commands"]], [1, 2])

    @suite.case("a session that was deleted takes no command")
    def _():
        at = opened()
        node.ok("DELETE", at)
        equal(node.call("POST", at + "/commands", {"command": "true"}).status, 409)

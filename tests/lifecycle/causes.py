"""Why a sandbox ended: each cause is made to happen, read back, and read back again after bothyd was killed."""
import contextlib
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import time

from harness import Api, Node, Skip, check, equal, eventually, expect_error, pids, read_bytes
import inject

MIB = 1 << 20
NO_BOOT = "00000000-0000-0000-0000-000000000000"


def gone(node, sandbox, seconds=20):
    """Its record once it has ended."""
    return eventually(f"{sandbox} is gone", lambda: (s := node.show(sandbox))["state"] == "gone" and s, seconds)


def cause(node, sandbox, seconds=20):
    return gone(node, sandbox, seconds)["cause"]


def refused(node, sandbox):
    """Every verb on it is a 410 with the cause."""
    told = node.show(sandbox)["cause"]
    for method, rest, body in (("POST", "/exec", {"argv": ["true"]}), ("POST", "/processes", {"argv": ["true"]}),
                               ("POST", "/sessions", {}), ("GET", "/files?path=/", None), ("PATCH", "", {"ttl": 60}),
                               ("GET", "/ports/80/", None)):
        e = expect_error(node.call(method, f"/v1/sandboxes/{sandbox}{rest}", body), 410, "sandbox_gone")
        equal(json.loads(e["cause"]), told, f"the cause of {method} {rest}")


def init_of(node, sandbox):
    """The host's pid of its pid 1: the process in its cgroup that is pid 1 in its own namespace."""
    for pid in pids():
        status = read_bytes(f"/proc/{pid}/status").decode()
        inside = [line.split() for line in status.splitlines() if line.startswith("NSpid:")]
        if not inside or len(inside[0]) != 3 or inside[0][2] != "1" or node.cgroup not in read_bytes(f"/proc/{pid}/cgroup").decode():
            continue
        name = subprocess.run(["nsenter", "-t", str(pid), "-u", "hostname"], stdout=subprocess.PIPE, text=True, check=False)
        if name.stdout.strip() == sandbox:
            return pid
    raise AssertionError(f"no pid 1 of {sandbox}")


def requested(node):
    sb = node.create()
    node.delete(sb)
    return sb, {"kind": "requested", "by": "admin"}


def ttl(node):
    return node.create(ttl=1), {"kind": "ttl"}


def idle(node):
    return node.create(idle=1), {"kind": "idle"}


def oom(node):
    """Memory that no end of a command gives back: files on a tmpfs. Pid 1 is the last that can be killed."""
    sb = node.create(limits={"memory": 32 * MIB}, tmpfs=[{"path": "/fill", "size": 256 * MIB}])
    node.start(sb, "i=0; while :; do head -c 1048576 /dev/zero > /fill/$((i += 1)); done")
    end = time.monotonic() + 60
    while node.show(sb)["state"] != "gone" and time.monotonic() < end:  # each command makes pid 1 ask for memory
        node.call("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["true"], "timeout_ms": 1000})
    found = cause(node, sb, 1)
    equal(found.get("limit"), 32 * MIB, f"the limit of the cause {found}")
    check(found["peak"] > 24 * MIB, f"its peak: {found}")
    return sb, {"kind": "oom", "limit": 32 * MIB, "peak": found["peak"]}


def exited(node):
    sb = node.create()
    if not inject.can():
        raise Skip("no way to let pid 1 make a system call here")
    with contextlib.suppress(ProcessLookupError), inject.Inside(init_of(node, sb)) as pid1:
        pid1.call("exit_group", 7)
    return sb, {"kind": "exited", "detail": "pid 1 exited with status 7"}


def killed(node):
    sb = node.create()
    os.kill(init_of(node, sb), signal.SIGKILL)
    return sb, {"kind": "killed", "by": "host", "detail": "signal 9 from outside the sandbox"}


def budget(node):
    sb = node.create()
    node.ok("DELETE", f"/v1/sandboxes/{sb}?cause=budget&detail=July%20is%20used%20up")
    return sb, {"kind": "budget", "detail": "July is used up"}


def policy(node):
    sb = node.create()
    node.ok("DELETE", f"/v1/sandboxes/{sb}?cause=policy")
    return sb, {"kind": "policy"}


def create_failed(node):
    """Its limit is more than the machine may ever give: the claim is refused."""
    a = node.call("POST", "/v1/sandboxes", {"image": "busybox", "labels": {"never": "claimed"}, "limits": {"memory": 1 << 46}})
    check(a.status >= 400, f"a create of 64 TiB: {a!r}")
    listed = node.ok("GET", "/v1/sandboxes?state=gone&label=never=claimed")["sandboxes"]
    equal(len(listed), 1, "records of it")
    return listed[0]["id"], {"kind": "create_failed", "stage": "claim", "detail": listed[0]["cause"].get("detail")}


MAKERS = (requested, ttl, idle, oom, exited, killed, budget, policy, create_failed)


def need(node, maker):
    if node.backend != "oci" and maker in (idle, oom, exited, killed, create_failed):
        raise Skip(f"the backend '{node.backend}' has no limits, no usage and no pid 1")


def cases(suite, node):
    made = {}
    for maker in MAKERS:
        @suite.case(f"cause {maker.__name__}: made to happen and read back, and every verb says it")
        def _(maker=maker):
            need(node, maker)
            sb, wanted = maker(node)
            found = gone(node, sb, 30)
            equal(found["cause"], wanted, "cause")
            check(found["ended"] >= found["created"] and found["ends"] is None, f"its times: {found}")
            refused(node, sb)
            made[sb] = found

    @suite.case("causes: all of them are the same after a kill of bothyd, and after one of the warden")
    def _():
        check(made, "nothing was made")
        node.kill("bothyd")
        if node.backend == "oci":
            node.kill("warden")
            node.restart("warden")
        node.restart("bothyd")
        for sb, before in made.items():
            now = node.show(sb)
            for member in ("state", "cause", "ended", "created", "labels", "limits"):
                equal(now[member], before[member], f"{member} of {sb}")
            refused(node, sb)

    @suite.case("causes: budget and policy are an administrator's to give")
    def _():
        key = node.ok("POST", "/v1/keys", {"owner": "tenant"})["key"]
        tenant = Api(path=node.path, key=key)
        with tenant.sandbox() as sb:
            for kind in ("budget", "policy"):
                expect_error(tenant.call("DELETE", f"/v1/sandboxes/{sb}?cause={kind}"), 403, "forbidden")
            expect_error(tenant.call("DELETE", f"/v1/sandboxes/{sb}?cause=ttl"), 400, "invalid_request")
            equal(tenant.show(sb)["state"], "running", "state")
        equal(tenant.show(sb)["cause"], {"kind": "requested", "by": "tenant"}, "cause")

    @suite.case("a command out of memory says so in its end record, and its sandbox lives")
    def _():
        need(node, oom)
        with node.sandbox(limits={"memory": 64 * MIB}) as sb:
            eat = ["tail", "/dev/zero"]
            end = node.exec(sb, eat, timeout_ms=60000)["end"]
            equal((end["how"], end["signal"], end["oom"]), ("signalled", 9, True), "its end")
            end = node.exec(sb, "tail /dev/zero; exit $?", timeout_ms=60000)["end"]
            equal((end["how"], end["exit_code"], end["oom"]), ("exited", 137, True), "the end of a shell around it")
            node.kill("bothyd")
            node.restart("bothyd")
            end = node.exec(sb, "kill -9 $$")["end"]
            equal((end["how"], end["signal"], end["oom"]), ("signalled", 9, False), "one that killed itself, after a restart")
            equal(node.show(sb)["state"], "running", "state")
            os.kill(init_of(node, sb), signal.SIGKILL)
            equal(cause(node, sb)["kind"], "killed", "the cause, though commands were out of memory before")

    @suite.case("a session's command out of memory says so in its record; so does one that takes the shell with it")
    def _():
        need(node, oom)
        for mode in ("attached", "detached"):
            with node.sandbox(limits={"memory": 48 * MIB}) as sb:
                s = f"/v1/sandboxes/{sb}/sessions/" + node.ok("POST", f"/v1/sandboxes/{sb}/sessions", {"shell": "sh", "mode": mode})["id"]

                def run(text, s=s):
                    return node.ok("POST", s + "/commands", {"command": text})
                told = [run(text) for text in ("true", "dd if=/dev/zero of=/dev/null bs=200M count=1", "sh -c 'kill -9 $$'", "exit 137",
                                               "dd if=/dev/zero of=/dev/null bs=200M count=1", "x=xxxxxxxx; while :; do x=$x$x; done", "true")]
                equal([(c["exit_code"], c["oom"]) for c in told],
                      [(0, False), (137, True), (137, False), (137, False), (137, True), (137, True), (0, False)],
                      f"commands of a session that is {mode}")
                node.kill("bothyd")
                node.restart("bothyd")
                equal([c["oom"] for c in node.ok("GET", s + "/commands")["commands"]], [c["oom"] for c in told], "after a restart")
                end = node.exec(sb, "kill -9 $$")["end"]
                equal((end["signal"], end["oom"]), (9, False), "a command that killed itself, after a restart")

    @suite.case("a time to live is kept though the warden is away, and nobody's waits for another's")
    def _():
        need(node, oom)
        made = [node.create(ttl=3) for _ in range(3)]
        node.kill("warden")
        try:
            gone = [eventually(f"{sb} is gone", lambda sb=sb: (lambda s: s["state"] == "gone" and s)(node.show(sb)), 12) for sb in made]
        finally:
            node.restart("warden")
        equal({s["cause"]["kind"] for s in gone}, {"ttl"}, "causes")
        eventually("their slots are destroyed", lambda: not node.ok("GET", "/v1/pools/slots")["claimed"], 30)

    @suite.case("a command that runs when its sandbox dies ends unknown with the cause, whoever waits for it")
    def _():
        need(node, killed)
        sb = node.create()
        c, r = node.open("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["sleep", "600"]}, {"Accept": "text/event-stream"})
        os.kill(init_of(node, sb), signal.SIGKILL)
        text = r.read().decode()
        c.close()
        end = json.loads(text[text.rindex("data:") + 5:].strip())
        equal((end["how"], end["cause"]["kind"]), ("unknown", "killed"), "its end")


def alone(suite, backend):
    @suite.case("cause node_lost: the slots are gone when the warden comes back, and after bothyd was killed")
    def _():
        if backend != "oci":
            raise Skip("the fake node has no slots")
        with Node(backend) as node:
            sandboxes = [node.create() for _ in range(3)]
            inits = [init_of(node, sb) for sb in sandboxes]
            node.kill("bothyd")
            node.kill("warden")
            for pid in inits:
                os.kill(pid, signal.SIGKILL)
            slots = next(pathlib.Path(node.dir).glob("**/warden/slots"))
            for state in slots.glob("*/state"):  # as after a start of the machine
                words = state.read_text().split()
                state.write_text(" ".join([*words[:3], NO_BOOT, *words[4:]]) + "\n")
            next(pathlib.Path(node.dir).glob("bothyd/boot")).write_text(NO_BOOT + "\n")
            node.restart("warden")
            node.restart("bothyd")
            for sb in sandboxes:
                equal(cause(node, sb)["kind"], "node_lost", "cause")
            node.kill("bothyd")
            node.restart("bothyd")
            for sb in sandboxes:
                equal(cause(node, sb)["kind"], "node_lost", "cause after a kill")
                refused(node, sb)

    @suite.case("cause internal: a sandbox whose row nobody understands is ended, and says so; the others are not")
    def _():
        with Node(backend) as node:
            sb, other = node.create(), node.create()
            node.kill("bothyd")
            with contextlib.closing(sqlite3.connect(pathlib.Path(node.dir, "bothyd", "store.db"))) as store, store:
                store.execute("UPDATE sandboxes SET state = 'dreaming' WHERE id = ?", (sb,))
            node.restart("bothyd")
            found = gone(node, sb)["cause"]
            equal(found["kind"], "internal", "cause")
            check("dreaming" in found["detail"], f"its detail: {found}")
            equal(node.show(other)["state"], "running", "the other one")
            node.kill("bothyd")
            node.restart("bothyd")
            equal(node.show(sb)["cause"], found, "after a kill")

    @suite.case("cause create_failed{interrupted}: bothyd killed in the middle of a create")
    def _():
        if backend != "oci" or not pathlib.Path(os.environ.get("BOTHY_TOP") or pathlib.Path(__file__).parents[2],
                                                "build-faults", "bin", "bothyd").exists():
            raise Skip("needs build-faults (tools/dev build --faults) and the oci backend; the crash suite has it")
        with Node(backend, faults=True) as node:
            node.arm("bothyd", "create.committed")
            try:
                node.call("POST", "/v1/sandboxes", {"image": "busybox"})
            except OSError:
                pass
            except Exception:  # noqa: BLE001: the daemon died in the middle of the answer
                pass
            node.restart("bothyd")
            found = eventually("a record", lambda: [s for s in node.ok("GET", "/v1/sandboxes?state=gone&state=running&state=creating")
                                                    ["sandboxes"] if s["state"] != "creating"], 90)
            check(found[0]["state"] == "running" or found[0]["cause"] == {"kind": "create_failed", "stage": "interrupted"}, f"{found}")

    @suite.case("retention: records, causes and events are forgotten in time, output before")
    def _():
        with Node(backend, env="BOTHY_RETENTION_RECORD=10s BOTHY_RETENTION_SPOOL=4s") as node:
            sb = node.create()
            x = node.exec(sb, "echo kept")["exec"]
            node.delete(sb)
            ended = time.monotonic()
            equal(node.output(sb, x), b"kept\n", "output right after the end")
            eventually("its output is gone", lambda: node.call("GET", node.at(sb, x, "/output")).body == b"", 10)
            check(time.monotonic() - ended > 3.5, "output was kept for its time")
            equal(node.process(sb, x)["end"]["exit_code"], 0, "the end record, after its output")
            equal(node.show(sb)["cause"]["kind"], "requested", "cause, after its output")
            eventually("its record is gone", lambda: node.call("GET", f"/v1/sandboxes/{sb}").status == 404, 20)
            check(time.monotonic() - ended > 9.5, "the record was kept for its time")
            page = node.ok("GET", "/v1/events")
            check(not [e for e in page["events"] if e["sandbox"] == sb and e["type"] == "gone"] or
                  time.monotonic() - ended < 18, "its events are gone")

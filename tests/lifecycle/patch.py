"""Changes of live sandboxes: time, idleness, labels, limits; committed, in force, and there after kills."""
import pathlib
import time

from harness import Api, Skip, check, equal, eventually, expect_error

MIB = 1 << 20


def patch(node, sandbox, **body):
    return node.call("PATCH", f"/v1/sandboxes/{sandbox}", body)


def changed(node, sandbox, **body):
    return node.ok("PATCH", f"/v1/sandboxes/{sandbox}", body)


def limits_inside(node, sandbox):
    """By what a command finds: the slot's cgroup is looked up by a process of the sandbox."""
    marker = f"{time.monotonic_ns()}"
    x = node.start(sandbox, ["sleep", marker[-9:]])
    try:
        pid = eventually("the process", lambda: find(marker[-9:]), 5)
        lines = pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        paths = {c: line.split(":", 2)[2] for line in lines for c in line.split(":")[1].split(",")}
        if "memory" in paths:
            at = pathlib.Path("/sys/fs/cgroup")
            cpu = at / "cpu" if (at / "cpu").exists() else at / "cpu,cpuacct"
            return (int((at / f"memory{paths['memory']}" / "memory.limit_in_bytes").read_text()),
                    int(pathlib.Path(f"{cpu}{paths['cpu']}", "cpu.cfs_quota_us").read_text()) // 100,
                    int((at / f"pids{paths['pids']}" / "pids.max").read_text()))
        at = pathlib.Path(f"/sys/fs/cgroup{paths['']}")
        return (int((at / "memory.max").read_text()), int((at / "cpu.max").read_text().split()[0]) // 100,
                int((at / "pids.max").read_text()))
    finally:
        node.call("DELETE", node.at(sandbox, x))


def find(word):
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == b"sleep\0" + word.encode() + b"\0":
                return path.parent.name
        except OSError:
            pass
    return None


def cases(suite, node):
    @suite.case("patch: labels are merged, null removes, the list finds them")
    def _():
        with node.sandbox(labels={"a": "1", "b": "2"}) as sb:
            equal(changed(node, sb, labels={"b": None, "c": "3"})["labels"], {"a": "1", "c": "3"}, "labels")
            equal([s["id"] for s in node.ok("GET", "/v1/sandboxes?label=c=3")["sandboxes"]], [sb], "found by the new one")
            equal([s["id"] for s in node.ok("GET", "/v1/sandboxes?label=b")["sandboxes"] if s["id"] == sb], [], "not by the old one")
            node.kill("bothyd")
            node.restart("bothyd")
            equal(node.show(sb)["labels"], {"a": "1", "c": "3"}, "after a kill")

    @suite.case("patch: ttl counts from now, and ends it then; idle is set and taken back")
    def _():
        with node.sandbox(ttl=600) as sb:
            before = node.show(sb)["ends"]
            after = changed(node, sb, ttl=1200)["ends"]
            check(after > before, f"{before} to {after}")
            changed(node, sb, ttl=1)
            eventually("it has ended", lambda: node.show(sb)["state"] == "gone", 10)
            equal(node.show(sb)["cause"], {"kind": "ttl"}, "cause")
        if node.caps["stats"] != "absent":
            with node.sandbox() as sb:
                equal(node.show(sb)["idle"], None, "idle of one that has none")
                equal(changed(node, sb, idle=3600)["idle"], 3600, "idle")
                node.kill("bothyd")
                node.restart("bothyd")
                equal(node.show(sb)["idle"], 3600, "idle after a kill")
                equal(changed(node, sb, idle=0)["idle"], None, "idle taken back")

    @suite.case("patch: what is wrong changes nothing, and says what")
    def _():
        with node.sandbox(labels={"a": "1"}, limits={"nofile_hard": 2048}) as sb:
            whole = node.show(sb)
            for body, status, code in (({"ttl": 0}, 400, "invalid_request"), ({"name": "x"}, 400, "invalid_request"),
                                       ({"labels": {"-": "x"}}, 400, "invalid_request"), ({"labels": {"x": 1}}, 400, "invalid_request"),
                                       ({"limits": {"memory": 1}}, 400, "invalid_request"), ({"limits": {"nofile": 4096}}, 400, "invalid_request"),
                                       ({"limits": {"shm": MIB}}, 501, "unsupported"),
                                       ({"limits": {"disk": 64 * MIB}, "labels": {"a": "2"}}, 501, "unsupported"),
                                       ({"labels": {f"k{i}": "v" for i in range(65)}}, 400, "invalid_request")):
                expect_error(patch(node, sb, **body), status, code)
            now = node.show(sb)
            equal((now["labels"], now["limits"], now["ends"]), (whole["labels"], whole["limits"], whole["ends"]), "what it is")
            expect_error(patch(node, "b000aaaaaaaaaaaaaaaa", ttl=5), 404, "not_found")
            other = Api(path=node.path, key=node.ok("POST", "/v1/keys", {"owner": "other"})["key"])
            expect_error(patch(other, sb, ttl=5), 404, "not_found")
            reader = Api(path=node.path, key=node.ok("POST", "/v1/keys", {"owner": "admin", "role": "read"})["key"])
            expect_error(patch(reader, sb, ttl=5), 403, "forbidden")
        expect_error(patch(node, sb, ttl=5), 410, "sandbox_gone")

    @suite.case("patch: limits are in force at once, read back from the kernel, and there after kills")
    def _():
        if node.backend != "oci":
            raise Skip("this backend has no limits")
        with node.sandbox(limits={"memory": 256 * MIB, "cpu": 1, "pids": 100}) as sb:
            equal(limits_inside(node, sb), (256 * MIB, 1000, 100), "before")
            got = changed(node, sb, limits={"memory": 128 * MIB, "cpu": 0.5, "pids": 50, "execs": 3})["limits"]
            equal((got["memory"], got["cpu"], got["pids"], got["execs"]), (128 * MIB, 0.5, 50, 3), "as told")
            equal(limits_inside(node, sb), (128 * MIB, 500, 50), "as the kernel has it")
            running = [node.start(sb, ["sleep", "60"]) for _ in range(3)]
            expect_error(node.call("POST", f"/v1/sandboxes/{sb}/processes", {"argv": ["true"]}), 409, "sandbox_exhausted")
            for x in running:
                node.call("DELETE", node.at(sb, x))
                node.wait(sb, x)
            node.kill("bothyd")
            node.kill("warden")
            node.restart("warden")
            node.restart("bothyd")
            got = node.show(sb)["limits"]
            equal((got["memory"], got["cpu"], got["pids"], got["execs"]), (128 * MIB, 0.5, 50, 3), "after kills")
            equal(limits_inside(node, sb), (128 * MIB, 500, 50), "the kernel's, after kills")
            changed(node, sb, limits={"memory": 512 * MIB})
            equal(limits_inside(node, sb)[0], 512 * MIB, "raised")

    @suite.case("patch: memory below what is in use is a conflict, nothing is killed and nothing changes")
    def _():
        if node.backend != "oci":
            raise Skip("this backend has no limits")
        with node.sandbox(limits={"memory": 256 * MIB}, tmpfs=[{"path": "/fill", "size": 128 * MIB}]) as sb:
            node.shell(sb, "head -c 67108864 /dev/zero > /fill/x")
            x = node.start(sb, ["sleep", "600"])
            e = expect_error(patch(node, sb, limits={"memory": 32 * MIB}, labels={"a": "b"}), 409, "conflict")
            equal(e["kind"], "memory", "kind")
            now = node.show(sb)
            equal((now["limits"]["memory"], now["labels"], now["state"]), (256 * MIB, {}, "running"), "what it is")
            equal(limits_inside(node, sb)[0], 256 * MIB, "the kernel's")
            equal(node.process(sb, x)["end"], None, "its command")
            changed(node, sb, limits={"memory": 128 * MIB})

    @suite.case("patch: the command line changes what it names")
    def _():
        with node.sandbox() as sb:
            r = node.cli("update", "--ttl", "2h", "--label", "a=1", sb)
            equal((r.returncode, r.stdout.decode().strip()), (0, sb), f"bothy update: {r.stderr}")
            equal(node.show(sb)["labels"], {"a": "1"}, "labels")
            r = node.cli("update", "--label", "a-", "--json", sb)
            equal(r.returncode, 0, f"removing a label: {r.stderr}")
            equal(node.show(sb)["labels"], {}, "labels after")
            r = node.cli("update", sb)
            check(r.returncode == 125 and b"nothing" in r.stderr, f"without a change: {r.stderr}")
            r = node.cli("update", "--disk", "1g", sb)
            check(r.returncode == 125, "a disk limit")

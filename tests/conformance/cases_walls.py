"""Limits and walls of a sandbox: cgroup, read-only root, tmpfs, network, ids."""
import errno
import os
import pathlib
import random
import signal

import image
from common import OWN_IDS, OWN_WALLS, beside, native, needs, walls
from harness import SLOW, Skip, bytes_of, check, equal, eventually, expect_error, find_process, read_bytes, status_of


def cases(suite, node):
    receipt(suite, node)
    limits(suite, node)
    root(suite, node)
    separation(suite, node)


def outside(node, sb, **spec):
    """The host's pid of a sleep in the sandbox, and its exec."""
    beside(node)
    n = str(random.randint(10_000_000, 99_999_999))
    x = node.start(sb, ["sleep", n], **spec)
    return eventually("it sleeps", lambda: find_process(["sleep", n])), x


def cgroup_file(pid, controller, name):
    """A file of the process's cgroup, v1 or v2."""
    for line in read_bytes(f"/proc/{pid}/cgroup").decode().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(",") or controllers == "":
            for mount in (f"/sys/fs/cgroup/{controllers}", f"/sys/fs/cgroup/{controller}", "/sys/fs/cgroup"):
                file = pathlib.Path(mount + path, name)
                if file.exists():
                    return file.read_text().strip()
    return None


def receipt(suite, node):
    @suite.case("a sandbox has a receipt of its walls; what is not enforced is told")
    def _():
        native(node, "walls", OWN_WALLS)
        with node.sandbox() as sb, node.sandbox(grants=["setuid"]) as granted:
            got = node.show(sb)["walls"]
            names = [w["name"] for w in got["held"]]
            assert {"userns", "seccomp", "capabilities", "cgroup", "procsys", "network"} <= set(names), names
            equal([w["name"] for w in got["held"] if not w["refill"]], [], "not tried when it was made")
            assert {"root", "cgroup", "procsys", "seccomp"} <= {w["name"] for w in got["held"] if w["claim"]}, got
            assert got["refill"] <= got["claim"], got
            open_ = {o["name"]: o["why"] for o in got["not_enforced"]}
            equal("disk" in open_, node.caps["disk_limit"] == "absent", "the disk limit is told")
            assert "nnp" not in open_, open_
            equal({o["name"]: o["why"].split(":")[0] for o in node.show(granted)["walls"]["not_enforced"]}["nnp"], "granted")
            listed = node.ok("GET", "/v1/sandboxes")["sandboxes"]
            check(all("walls" not in s for s in listed), "lists have no receipts")
        equal(node.show(sb)["walls"], got, "the receipt of one that has ended")


    @suite.case("limits that nobody holds are absent in caps, and each sandbox's receipt says so")
    def _():
        absent = {name for name in ("disk", "swap", "memory", "cpu", "pids") if node.caps.get(f"{name}_limit", "absent") == "absent"}
        with node.sandbox() as sb:
            receipt_ = node.show(sb)["walls"]
            equal({o["name"] for o in receipt_["not_enforced"]} if receipt_ else set(), absent, "not enforced")


def limits(suite, node):
    @suite.case("a limit that the backend does not hold is unsupported when it is named, and the receipt tells of it when it is not")
    def _():
        walls(node)
        some = {"memory": 64 << 20, "cpu": 0.5, "pids": 50, "disk": 1 << 30}
        absent = {name for name in some if node.caps[f"{name}_limit"] == "absent"}
        with node.sandbox() as sb:
            told = {o["name"]: o["why"] for o in node.show(sb)["walls"]["not_enforced"]}
            equal({name for name in told if name in some}, absent, "not enforced")
            check(all(why.startswith("unsupported: ") for why in told.values()), told)
            equal(node.show(sb)["limits"]["memory"], 2**30, "the default")
        for name in some:
            a = node.call("POST", "/v1/sandboxes", {"image": "busybox", "limits": {name: some[name]}}, timeout=90)
            if name in absent:
                check("limit" in expect_error(a, 501, "unsupported")["message"], a)
            else:
                equal((a.status, a.json["limits"][name]), (201, some[name]), name)
                node.delete(a.json["id"])

    @suite.case("limits are those of the cgroup: memory with swap, pids, cpu")
    def _():
        walls(node)
        needs(node, "memory_limit", "cpu_limit")
        with node.sandbox(limits=node.held_limits({"memory": 64 << 20, "pids": 50, "cpu": 0.5})) as sb:
            equal(node.show(sb)["limits"]["memory"], 64 << 20, "limits shown")
            pid, _ = outside(node, sb)
            memory = cgroup_file(pid, "memory", "memory.limit_in_bytes") or cgroup_file(pid, "memory", "memory.max")
            equal(int(memory), 64 << 20, "memory")
            swap = cgroup_file(pid, "memory", "memory.memsw.limit_in_bytes")
            check(swap is None or int(swap) == 64 << 20 or node.caps["swap_limit"] == "absent", f"memory with swap is {swap}")
            if node.caps["pids_limit"] != "absent":
                equal(cgroup_file(pid, "pids", "pids.max"), "50", "pids")
            quota = cgroup_file(pid, "cpu", "cpu.cfs_quota_us")
            if quota:
                equal(int(quota) / int(cgroup_file(pid, "cpu", "cpu.cfs_period_us")), 0.5, "cpu")

    @suite.case("over the memory limit a command dies of it and its end says oom")
    def _():
        walls(node)
        needs(node, "memory_limit")
        with node.sandbox(limits={"memory": 32 << 20}) as sb:
            end = node.exec(sb, "dd if=/dev/zero of=/dev/null bs=100M count=1")["end"]
            equal((end["how"], end["signal"], end["oom"]), ("signalled", 9, True), "end")
            equal(node.exec(sb, "echo alive")["out"]["text"], "alive\n", "the sandbox after it")

    @suite.case("over the limit of processes fork fails inside, and only there")
    def _():
        walls(node)
        needs(node, "pids_limit")
        with node.sandbox(limits={"pids": 20}) as sb, node.sandbox() as other:
            r = node.exec(sb, f"for i in $(seq 40); do sleep {5 * SLOW} & done; wait", timeout_ms=1500 * SLOW)
            check(b"fork" in bytes_of(r["err"]) or r["end"]["exit_code"] not in (0, None), f"forty processes: {r}")
            equal(node.exec(other, ["echo", "x"])["out"]["text"], "x\n", "another sandbox")
            eventually("it can be used again", lambda: node.call("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["true"]}).status == 200)

    @suite.case("open files, shared memory and core size are limited as asked")
    def _():
        walls(node)
        with node.sandbox(limits={"nofile": 333, "shm": 2 << 20}) as sb:
            equal(node.shell(sb, "ulimit -n; ulimit -c; df -k /dev/shm | tail -n 1 | awk '{print $2}'").split(),
                  ["333", "0", "2048"], "nofile, core, shm")

    @suite.case("more commands than the limit are sandbox_exhausted")
    def _():
        with node.sandbox(limits={"execs": 2}) as sb:
            a, b = node.start(sb, ["sleep", "60"]), node.start(sb, ["sleep", "60"])
            e = expect_error(node.call("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["true"]}), 409, "sandbox_exhausted")
            check(e["retryable"], "not retryable")
            node.ok("DELETE", node.at(sb, a))
            node.wait(sb, a)
            eventually("room again", lambda: node.call("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["true"]}).status == 200)
            node.ok("DELETE", node.at(sb, b))


def root(suite, node):
    @suite.case("the root can be written, and is nobody else's")
    def _():
        walls(node)
        with node.sandbox() as a, node.sandbox() as b:
            node.shell(a, "echo a >/etc/mark; rm /bin/vi")
            equal(node.shell(b, "test -e /etc/mark || echo none; test -e /bin/vi && echo vi"), "none\nvi\n", "the other one")

    @suite.case("a read-only root with tmpfs: size and exec as asked")
    def _():
        needs(node, "read_only", "tmpfs")
        mounts = [{"path": "/scratch", "size": 1 << 20, "exec": True, "mode": "0755"}, {"path": "/tmp", "size": 1 << 20}]
        with node.sandbox(read_only=True, tmpfs=mounts) as sb:
            check(b"ead-only" in bytes_of(node.exec(sb, "echo x >/etc/x")["err"]), "the root was written")
            r = node.exec(sb, "dd if=/dev/zero of=/scratch/big bs=1k count=2048; stat -c %s /scratch/big; rm /scratch/big")
            check(b"space" in bytes_of(r["err"]), "2 MiB fit into 1 MiB")
            equal(bytes_of(r["out"]), b"1048576\n", "what fit")
            plant = "printf '#!/bin/sh\\necho ran\\n' >{0}/s; chmod 755 {0}/s; {0}/s"
            equal(bytes_of(node.exec(sb, plant.format("/scratch"))["out"]), b"ran\n", "with exec")
            if node.caps["tmpfs"] == "native":  # a volume of a pod's has no word for them
                r = node.exec(sb, plant.format("/tmp"))
                check(r["end"]["exit_code"] == 126 and not bytes_of(r["out"]), f"without exec: {r}")
                equal(node.shell(sb, "stat -c %a /scratch /tmp").split(), ["755", "1777"], "modes")
            shown = node.show(sb)
            equal((shown["read_only"], len(shown.get("tmpfs", []))), (True, 2), "shown")


def separation(suite, node):
    @suite.case("no network interface but a loopback of its own that is up")
    def _():
        walls(node)
        if node.backend == "kubernetes":
            raise Skip("caps.network is emulated: a pod has an interface, and what it reaches is a NetworkPolicy's (tests/k8s)")
        with node.sandbox() as sb:
            names = [line.split(":")[0].strip() for line in node.shell(sb, "cat /proc/net/dev").splitlines()[2:]]
            equal(names, ["lo"], "interfaces")
            equal(node.shell(sb, "cat /proc/net/route | wc -l").strip(), "1", "lines of the routing table")
            r = node.exec(sb, "(echo hi | nc -l -p 7777 -w 60 >/dev/null &) ; until nc 127.0.0.1 7777 </dev/null 2>/dev/null; do sleep 0.1; done",
                          timeout_ms=5000 * SLOW)
            equal(bytes_of(r["out"]), b"hi\n", "over its own loopback")

    @suite.case("no socket of a family that network namespaces do not separate")
    def _():
        walls(node)
        native(node, "walls", OWN_WALLS)
        probe = """
import socket
for family in 40, 1, 10, 16:  # AF_VSOCK; AF_UNIX, AF_INET6, AF_NETLINK
    try:
        socket.socket(family, socket.SOCK_DGRAM).close()
        print("made")
    except OSError as e:
        print(e.errno)
"""
        with node.sandbox("debian") as sb:
            r = node.exec(sb, ["python3", "-c", probe])
            got = bytes_of(r["out"]).split()
            check(got[:1] in ([b"38"], [b"1"]) and got[1:] == [b"made"] * 3, f"families, in {r}")  # an engine refuses with another errno

    @suite.case("a command cannot lock its output against the pumps, which others need too")
    def _():
        walls(node)
        native(node, "walls", OWN_WALLS)
        image.load(node, "clamp")
        with node.sandbox("clamp") as sb, node.sandbox() as neighbour:
            tries = [node.start(sb, ["/clamp", way]) for way in ("splice", "sendfile") for _ in range(4)]
            for _ in range(8):  # as many as there are lanes, at least
                equal(node.wait(neighbour, node.start(neighbour, ["true"]), 5)["exit_code"], 0, "a neighbour's command")
            equal([node.wait(sb, x)["exit_code"] for x in tries], [errno.EINVAL] * len(tries), "what it gets")
            copy = node.start(sb, ["/clamp", "copy"])
            equal(node.wait(sb, copy)["exit_code"], 0, "sendfile of a file")
            equal(node.output(sb, copy), image.program("clamp").read_bytes(), "what it sent")

    @suite.case("processes of a sandbox see only their own")
    def _():
        walls(node)
        with node.sandbox() as a, node.sandbox() as b:
            node.start(a, ["sleep", "4242"])
            seen = node.shell(b, "ps -o args")
            check("4242" not in seen and "bothyd" not in seen, seen)

    @suite.case("a file written by uid 1000 inside belongs to the right id of the range outside")
    def _():
        native(node, "ids", OWN_IDS)
        with node.sandbox(user="1000:1001") as sb, node.sandbox() as other:
            pid, _ = outside(node, sb)
            node.shell(sb, "echo x >/tmp/mine")
            uid_map = [[int(n) for n in line.split()] for line in read_bytes(f"/proc/{pid}/uid_map").decode().splitlines()]
            check(len(uid_map) == 1 and uid_map[0][0] == 0 and uid_map[0][2] == 65536, f"uid_map {uid_map}")
            base = uid_map[0][1]
            check(base >= 0x10000000 and base % 65536 == 0, f"range begins at {base:#x}")
            equal(int(status_of(pid)["Uid"].split()[0]), base + 1000, "uid of the process outside")
            s = os.stat(f"/proc/{pid}/root/tmp/mine")
            equal((s.st_uid, s.st_gid), (base + 1000, base + 1001), "owner through the sandbox's root")
            owners = {(p.stat().st_uid, p.stat().st_gid) for p in pathlib.Path(node.dir, "warden").glob("uppers/**/tmp/mine")}
            # Layers and uppers are id-mapped: on the disk ids count from 0, whichever slot it was.
            equal(owners, {(1000, 1001)}, "owner in the upper")
            second, _ = outside(node, other)
            check(read_bytes(f"/proc/{second}/uid_map").split()[1] != str(base).encode(), "two sandboxes share a range")

    @suite.case("pid 1 cannot be signalled, traced or replaced from inside")
    def _():
        walls(node)
        with node.sandbox() as sb:
            node.exec(sb, "kill -9 1; kill -15 1; kill -11 1")
            equal(node.exec(sb, ["echo", "alive"])["out"]["text"], "alive\n", "after kill")
            r = node.exec(sb, "cat /proc/1/environ | wc -c; ls /proc/1/fd; echo x >/proc/1/mem")
            check(r["end"]["exit_code"] != 0, f"pid 1 is open: {r}")

    @suite.case("a 32-bit program is ended at its first call, or the deny list holds for them")
    def _():
        walls(node)
        image.load(node, "foreign")
        with node.sandbox("foreign") as sb:
            r = node.exec(sb, ["/foreign"])
            if node.caps.get("walls") == "native" and os.uname().machine == "x86_64":
                equal((r["end"]["how"], r["end"]["signal"], r["out"]["text"]), ("signalled", int(signal.SIGSYS), ""), "its end")
                return
            equal(r["end"]["exit_code"], 0, f"exit code ({r})")
            pid, key = map(int, r["out"]["text"].split())
            check(pid > 1, f"getpid answered {pid}")
            if key > 0:  # Podman's own list lets it through
                native(node, "walls", OWN_WALLS)
            check(key in (-1, -38), f"keyctl answered {key}")

    @suite.case("no capability beyond docker's default, seccomp on, no device nodes, keyrings or mounts")
    def _():
        walls(node)
        with node.sandbox() as sb:
            pid, _ = outside(node, sb)
            status = status_of(pid)
            docker = 0xA80425FB
            check(int(status["CapEff"], 16) & ~docker == 0, f"CapEff {status['CapEff']}")
            check(int(status["CapBnd"], 16) & ~docker == 0, f"CapBnd {status['CapBnd']}")
            equal(status["Seccomp"], "2", "Seccomp")
            r = node.exec(sb, "mount -t tmpfs x /tmp; mknod /tmp/sda b 8 0; echo b >/proc/sysrq-trigger")
            check(r["end"]["exit_code"] != 0, "sysrq-trigger can be written")
            equal(node.shell(sb, "grep -c ' /tmp ' /proc/mounts || true").strip(), "0", "mounts on /tmp")
            pid1000, _ = outside(node, sb, user="1000")
            equal(int(status_of(pid1000)["CapEff"], 16), 0, "CapEff of uid 1000")

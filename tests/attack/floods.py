"""Floods: processes, memory, output, files, bytes. Each is held by its own sandbox's limits or file system."""
import os
import re
import time

import census
from common import SMALL, WAYS, Guard, answers, armed, each_way, intrude, put_intruder
from harness import Node, Watch, bytes_of, check, equal, eventually

# A sandbox whose memory is all in files of its own loses pid 1 in the end.
ALLOWED = ("pid 1 has ended",)
DISK = "400M"


def cases(attack, node):
    bombs(attack, node)
    memory_floods(attack, node)
    output(attack, node)


def bombs(attack, node):
    @attack.attempt("fork bomb: held at its limit of processes, a neighbour forks, the sandbox is deleted within 5 s", tuple(WAYS))
    def _():
        with node.sandbox() as neighbour:
            for grants, user in WAYS.values():
                sandbox = node.create(grants=list(grants))
                put_intruder(node, sandbox)
                node.start(sandbox, ["/intruder", "misuse", "fork-bomb"], user=user)
                eventually("it is full", lambda: node.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"argv": ["true"]}).status == 409, 10)
                equal(node.shell(neighbour, "for i in 1 2 3 4 5 6 7 8 9; do echo $i & done; wait").count("\n"), 9, "the neighbour's processes")
                watch = Watch()
                equal(node.delete(sandbox)["state"], "gone", "state")
                check(watch.within(5), f"deleting took {watch}")

    @attack.attempt("fork bomb: killing its command ends it within 5 s, and the sandbox serves on", tuple(WAYS))
    def _():
        def body(sandbox, user, way):
            for _ in range(3):  # four of them at once can hold each other up
                x = node.start(sandbox, ["/intruder", "misuse", "fork-bomb"], user=user)
                time.sleep(0.5)
                watch = Watch()
                node.ok("DELETE", node.at(sandbox, x))
                end = node.wait(sandbox, x, 20)
                eventually("processes can be started", lambda: over(node.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"argv": ["true"]})), 20)
                if quick := watch.within(5):
                    break
            check(quick, f"{way}: {watch}, {end}")
        each_way(node, body)

    @attack.attempt("memory bomb: it dies of its own limit, the end says so, pid 1 and the host do not", tuple(WAYS))
    def _():
        def body(sandbox, user, way):
            end = node.exec(sandbox, ["/intruder", "misuse", "memory-bomb"], user=user)["end"]
            equal((end["how"], end["signal"], end["oom"]), ("signalled", 9, True), f"end, {way}")
            answers(node, sandbox)
        each_way(node, body, limits=SMALL)

    @attack.attempt("memory bomb in twelve processes at once: the same", ("root", "user"))
    def _():
        with armed(node, limits=SMALL) as sandbox:
            for user in ("0", "1000"):
                r = node.exec(sandbox, "for i in $(seq 12); do /intruder misuse memory-bomb & done; wait; echo over", user=user, timeout_ms=120000)
                check(r["end"]["how"] in ("exited", "signalled"), f"{r['end']}")
            eventually("it serves again", lambda: node.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"argv": ["true"]}).status == 200)


def memory_floods(attack, node):
    for name, way, most in (("/dev/shm", "shm-flood", 8), ("/dev", "dev-flood", 1)):
        @attack.attempt(f"flood of {name}: ends at its size, and counts as the sandbox's memory", tuple(WAYS))
        def _(way=way, most=most):
            def body(sandbox, user, how):
                got = intrude(node, sandbox, "misuse", way, user=user)
                if got.startswith("EBADF"):  # a user may not make a file there at all
                    return
                errno, mib = got.split()
                check(errno == "ENOSPC" and int(mib) <= most, f"{how}: {got}")
                answers(node, sandbox)
            each_way(node, body, limits={"shm": 8 << 20})


def nested(attack, node):
    @attack.attempt("flood of a tmpfs in a namespace of its own: dies of the sandbox's memory limit, with the sandbox if need be", ("root", "user"))
    def _():
        for user in ("0", "1000"):
            with node.sandbox(limits=SMALL) as sandbox:
                a = node.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"user": user, "argv": [
                    "sh", "-c", "unshare -Urm sh -c 'mount -t tmpfs none /tmp && cat /dev/zero >/tmp/x'; echo $?"]})
                if a.status == 410:  # nothing but the file was left to give back
                    continue
                check(a.json["end"]["oom"] or re.search(rb"137|1\n", bytes_of(a.json["out"])), f"{a!r}")
                # The namespace goes a moment after its last process, and the memory with it.
                eventually("it serves again, or is gone", lambda: over(node.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"argv": ["true"]})))


def over(answer):
    return answer.status == 410 or answer.status == 200 and answer.json["end"]["exit_code"] == 0


def output(attack, node):
    @attack.attempt("output flood: 400 MB to each stream: kept to the ceiling, what is dropped is told, bothyd does not grow", ("root", "user"))
    def _():
        before = census.pss(node.pid("bothyd"))
        with node.sandbox() as sandbox:
            for user in ("0", "1000"):
                r = node.exec(sandbox, "dd if=/dev/zero bs=1M count=400 2>/dev/null; dd if=/dev/zero bs=1M count=400 >&2 2>/dev/null",
                              user=user, timeout_ms=60000)
                equal((r["end"]["out_bytes"], r["end"]["how"]), (400 << 20, "exited"), "end")
                check(r["end"]["out_dropped"] >= (400 - 65) << 20, f"{r['end']}")
        grown = census.pss(node.pid("bothyd")) - before
        check(grown < 64 << 10, f"bothyd grew by {grown} kB")


def full(node):
    """A create on a full file system fails with a reason, or works; both answer."""
    a = node.call("POST", "/v1/sandboxes", {"image": "busybox", "queue_wait": 3})
    if a.status == 201:
        node.delete(a.json["id"])
    else:
        check(a.error["code"] in ("disk_full", "create_failed", "pool_exhausted"), f"{a!r}")


def on_the_disk(attack):
    """On a node whose file system is small; the host's is another."""
    with Node(images="busybox", pool="3:3", disk=DISK) as node:
        guard = Guard(attack, node, 3)
        host_free = os.statvfs("/").f_bavail * os.statvfs("/").f_frsize

        @attack.attempt("disk flood: the loop file system is full, the host's is not; the neighbour runs, reads, and is told ENOSPC", ("root", "user"))
        def _():
            with armed(node) as neighbour, armed(node) as sandbox:
                for user in ("0", "1000"):
                    x = node.start(sandbox, "cat /dev/zero >/tmp/flood-$(id -u)", user=user)
                    end = node.wait(sandbox, x, 30)
                    check(end["exit_code"] != 0 and b"space" in node.output(sandbox, x, "err"), f"{end}")
                equal(node.exec(neighbour, ["cat", "/etc/hostname"])["end"]["how"], "exited", "a neighbour's command")
                err = bytes_of(node.exec(neighbour, "dd if=/dev/zero of=/tmp/x bs=1M count=8")["err"])
                check(b"space" in err, f"a neighbour's write: {err!r}")
                check(host_free - os.statvfs("/").f_bavail * os.statvfs("/").f_frsize < 2 << 30, "the host's disk filled up")
                full(node)
                node.delete(sandbox)
                eventually("room again", lambda: b"space" not in bytes_of(node.exec(neighbour, "dd if=/dev/zero of=/tmp/x bs=1M count=8")["err"]))

        @attack.attempt("inode flood: the loop file system has no inode left, bothyd and the host are unharmed, deleting frees them", ("root", "user"))
        def _():
            with armed(node) as sandbox:
                # The smaller what is free, the sooner it is full of inodes.
                node.shell(sandbox, "fallocate -l 250M /tmp/most || dd if=/dev/zero of=/tmp/most bs=1M count=250 2>/dev/null")
                made = census.inodes(node)
                for user in ("0", "1000"):
                    x = node.start(sandbox, ["/intruder", "misuse", "inode-flood"], user=user, timeout_ms=20000)
                    end = node.wait(sandbox, x, 40)
                    check(end["how"] in ("exited", "timed_out"), f"{end}")
                made = census.inodes(node) - made
                attack.figures["inode_flood_inodes"] = made
                check(made > 10000, f"{made} inodes")
                full(node)
            check(os.statvfs("/").f_favail > 10000, "the host has no inodes")

        guard.after("the floods of the disk", allowed=(r"No space left|ENOSPC|errno 28|disk_full|not be made|cannot",))

"""Attacks planted in a sandbox, each against every verb: nothing of the host is read or changed, nothing hangs, bothyd stays well.

The canary is a directory of the host that everybody may read and write; its path is what links and names aim at."""
import contextlib
import http.client
import pathlib
import subprocess
import tempfile
import time

from common import Files, member, names_of, noise, tar, well
from harness import Answer, Node, check, equal, eventually

def every_verb(f, path, deadline=25):
    """Every verb on a path; what each answered. None may take longer than the deadline."""
    answers = {}
    calls = {
        "stat": lambda: f.call("GET", "/stat", path, timeout=deadline),
        "follow": lambda: f.call("GET", "/stat", path, timeout=deadline, follow=True),
        "read": lambda: head_of(f, path, deadline),
        "list": lambda: f.call("GET", "/list", path, timeout=deadline, depth=3),
        "search": lambda: f.call("GET", "/search", path, timeout=deadline, text="root", depth=3),
        "archive": lambda: head_of(f, path, deadline, "/archive"),
        "write": lambda: f.call("PUT", "", path, b"overwritten", timeout=deadline),
        "mkdir": lambda: f.call("POST", "/mkdir", path + "/made", timeout=deadline),
        "unpack": lambda: f.unpack(path, tar(member("unpacked", b"x")), timeout=deadline),
        "move": lambda: f.call("POST", "/move", path, timeout=deadline, to=path + ".moved"),
        "remove": lambda: f.remove(path + ".moved", timeout=deadline, recursive=True),
    }
    for name, call in calls.items():
        began = time.monotonic()
        answers[name] = call()
        check(time.monotonic() - began < deadline, f"{name} took {time.monotonic() - began:.0f} s")
        check(answers[name].status < 500 or answers[name].status in (502, 503, 504, 507), f"{name}: {answers[name]!r}")
    return answers


def head_of(f, path, timeout, what=""):
    """At most 1 MiB of what may be endless."""
    c, r = f.node.open("GET", f.url(what, path), timeout=timeout)
    try:
        return Answer(r.status, r.headers, r.read(1 << 20))
    finally:
        c.close()


def links(suite, node, f, canary):
    @suite.case("attack: a symbolic link as every part of a path, to the host's canary")
    def _():
        f.shell(f"mkdir -p /tmp/l/a/b; ln -s {canary.dir} /tmp/l/dir; ln -s {canary.path} /tmp/l/file;"
                f" ln -s ../../../../../../..{canary.dir} /tmp/l/a/up; ln -s /tmp/l/a/up /tmp/l/a/b/twice")
        for path in ("/tmp/l/dir", "/tmp/l/dir/secret", "/tmp/l/dir/new", "/tmp/l/a/up/secret", "/tmp/l/a/b/twice/secret"):
            canary.check(*every_verb(f, path).values())
        well(node, f)

    @suite.case("attack: a link as the last part: reads and writes stay inside")
    def _():
        f.shell(f"mkdir -p /tmp/last; ln -s {canary.path} /tmp/last/s; ln -s /tmp/last/loop /tmp/last/loop")
        a = f.call("PUT", "", "/tmp/last/s", b"mine", mkdir=True)
        canary.check(a, f.call("GET", "", "/tmp/last/s"))
        if a.status == 200:
            equal(f.shell(f"cat {canary.path}"), "mine", "the file inside")
        for answer in every_verb(f, "/tmp/last/loop").values():
            canary.check(answer)
        f.shell(f"rm -rf {canary.dir}")

    @suite.case("attack: '..' and absolute paths end at the sandbox's root")
    def _():
        for path in ("/.." * 20 + canary.path, "/tmp/../../../.." + canary.path, "/./.././" + canary.path, "//" + canary.path,
                     "/proc/../.." + canary.path, "../../../../../.." + canary.path):
            for what in ("", "/stat", "/archive"):
                a = f.call("GET", what, path)
                check(a.status in (404, 403), f"{path}: {a!r}")
                canary.check(a)
        a = f.call("PUT", "", "/.." * 20 + canary.path, b"x")
        canary.check(a)

    @suite.case("attack: magic links of /proc: root, cwd, exe and descriptors of every process")
    def _():
        pids = f.shell("cd /proc; ls -d [0-9]*").split() + ["self", "thread-self"]
        for pid in pids:
            for link in ("root" + canary.path, "cwd/.." + canary.path, "root/proc/1/root" + canary.path, "exe", "fd/0", "fd/3", "fd/5", "mem",
                         "environ", "map_files"):
                a = head_of(f, f"/proc/{pid}/{link}", 20)
                canary.check(a)
                if pid == "1":
                    check(a.status != 200 or not a.body or link == "environ", f"/proc/1/{link}: {a!r}")
        canary.check(f.call("PUT", "", f"/proc/1/root{canary.path}", b"x"), f.call("PUT", "", f"/proc/self/root{canary.path}", b"x"))
        well(node, f)

    @suite.case("attack: hard links to what is not theirs")
    def _():
        a = f.unpack("/tmp", tar(("hl", {"type": b"1", "linkname": "etc/passwd"}, b"")), user="1000")
        check(a.status >= 400, f"{a!r}")
        f.shell("echo root-only > /root-only; chmod 600 /root-only; mkdir -p -m 777 /tmp/hl2; cp /bin/busybox /tmp/suid; chmod 4755 /tmp/suid")
        for target in ("root-only", "../root-only", "../../root-only", "/root-only"):
            a = f.unpack("/tmp/hl2", tar(("x", {"type": b"1", "linkname": target}, b"")), user="1000")
            check(a.status in (400, 403, 404), f"{target}: {a!r}")
        a = f.unpack("/", tar(("tmp/hl2/x", {"type": b"1", "linkname": "root-only"}, b""), member("tmp/hl2/x", b"changed")), user="1000")
        equal(f.shell("cat /root-only"), "root-only\n", "the other's file")
        check(f.call("PUT", "", "/root-only", b"x", user="1000").status == 403, "it was written")
        check(f.call("GET", "", "/root-only", user="1000").status == 403, "it was read")


def places(suite, node, f, canary):
    @suite.case("attack: mount points are neither removed nor left by a walk")
    def _():
        for path in ("/proc", "/sys", "/dev", "/dev/pts", "/dev/shm", "/"):
            a = f.remove(path, recursive=True, timeout=60) if path not in ("/", "/dev/shm", "/dev") else f.remove(path)
            check(a.status >= 400, f"{path}: {a!r}")
        check(f.exists("/proc/self/status"), "/proc is gone")
        well(node, f)

    @suite.case("attack: files of /proc and /sys that lie about their size")
    def _():
        for path in ("/proc/self/status", "/proc/cpuinfo", "/proc/self/mountinfo"):
            check(len(f.read(path)) > 10, path)
        for path in ("/proc/kmsg", "/proc/kcore", "/proc/self/mem", "/proc/self/pagemap", "/dev/mem", "/proc/sysrq-trigger"):
            head_of(f, path, 20)
        well(node, f)

    @suite.case("attack: FIFOs hang nobody")
    def _():
        f.shell("mkdir -p /tmp/p; mkfifo /tmp/p/fifo; ln -s fifo /tmp/p/link")
        for path in ("/tmp/p/link", "/tmp/p/fifo"):
            every_verb(f, path, 20)
        f.shell("mkfifo /tmp/p/again")
        began = time.monotonic()
        check("again" in names_of(f.pack("/tmp/p")), "the FIFO is not in the archive")
        f.call("GET", "/search", "/tmp/p", text="x")
        check(time.monotonic() - began < 15, "a walk waited for a FIFO")
        well(node, f)

    @suite.case("attack: device nodes and terminals")
    def _():
        for name in ("zero", "null", "full", "random", "urandom", "tty", "ptmx"):
            for answer in (head_of(f, "/dev/" + name, 20), f.call("PUT", "", "/dev/" + name, b"x", timeout=20)):
                check(answer.status >= 400, f"/dev/{name}: {answer!r}")
        names_of(f.pack("/dev"))
        well(node, f)

    @suite.case("attack: sockets, a directory without rights, names that are none")
    def _():
        f.shell("mkdir -p /tmp/odd/closed; chmod 0 /tmp/odd/closed; (timeout 20 nc -lU /tmp/odd/sock &) 2>/dev/null; sleep 0.2; true")
        f.pack("/tmp/odd")
        f.call("GET", "", "/tmp/odd/sock")
        for path in ("", "\0", "a" * 5000, "/" + "a" * 256, "/tmp/\udcff".encode("utf-8", "surrogateescape")):
            if path == "\0":
                a = node.call("GET", f"/v1/sandboxes/{f.sandbox}/files?path=%00")
            else:
                a = f.call("GET", "", path)
            check(a.status in (400, 404), f"{path[:20]!r}: {a!r}")
        well(node, f)


def swapping(f, a, b, run):
    """Calls run() again and again while two names change places inside."""
    x = f.node.start(f.sandbox, f"while :; do mv {a} {a}.x; mv {b} {a}; mv {a} {b}; mv {a}.x {a}; done 2>/dev/null")
    try:
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            run()
    finally:
        f.node.call("DELETE", f.node.at(f.sandbox, x))


def races(suite, node, f, canary):
    @suite.case("attack: a directory and a link change places during writes")
    def _():
        f.shell(f"rm -rf /tmp/r; mkdir -p /tmp/r/real /tmp/r-victim; echo own > /tmp/r-victim/f; ln -s {canary.dir} /tmp/r/link")
        answers = []

        def turn():
            answers.append(f.call("PUT", "", "/tmp/r/real/secret", b"x" * 1000))
            answers.append(f.unpack("/tmp/r/real", tar(member("secret", b"y"), member("sub/new", b"z"))))
        swapping(f, "/tmp/r/real", "/tmp/r/link", turn)
        check(all(a.status < 500 for a in answers), f"{[a for a in answers if a.status >= 500][:3]}")
        canary.check(*answers)
        well(node, f)

    @suite.case("attack: a directory and a link change places during walks; a removal stays below")
    def _():
        f.shell("rm -rf /tmp/w /tmp/w-victim; mkdir -p /tmp/w/t/real /tmp/w-victim; cd /tmp/w-victim; i=0;"
                " while [ $i -lt 50 ]; do echo v > v$i; i=$((i+1)); done; ln -s /tmp/w-victim /tmp/w/t/link")

        def turn():
            node.exec(f.sandbox, "mkdir -p /tmp/w/t/real; touch /tmp/w/t/real/a /tmp/w/t/real/b")  # below the victim, too
            head_of(f, "/tmp/w/t", 20, "/archive")
            f.call("GET", "/list", "/tmp/w/t", depth=5)
            f.remove("/tmp/w/t/real", recursive=True)
            node.exec(f.sandbox, "[ -L /tmp/w/t/link ] || ln -sfn /tmp/w-victim /tmp/w/t/link")
        swapping(f, "/tmp/w/t/real", "/tmp/w/t/link", turn)
        equal(f.shell("ls /tmp/w-victim/v* | wc -l").strip(), "50", "files of the victim")
        well(node, f)

    @suite.case("attack: a file is exchanged while it is read and written")
    def _():
        f.shell(f"mkdir -p /tmp/x; head -c 3000000 /dev/urandom > /tmp/x/f; ln -s {canary.path} /tmp/x/l")
        swapping(f, "/tmp/x/f", "/tmp/x/l", lambda: (canary.check(head_of(f, "/tmp/x/f", 20)), f.call("PUT", "", "/tmp/x/f", b"q" * 100_000)))
        canary.check()
        well(node, f)


TRACER = pathlib.Path(__file__).resolve().parent / "tracer.c"


def make_tracer():
    with tempfile.TemporaryDirectory() as top:
        subprocess.run(["cc", "-O1", "-static", "-D_GNU_SOURCE", "-o", top + "/tracer", str(TRACER)], check=True)
        return pathlib.Path(top, "tracer").read_bytes()


def kits(suite, node, f, canary):
    first = b"".join(noise(2_000_000, 9))

    def kit_pid():
        """Of the only one there is: that of the verb before may be about to end."""
        def kits_inside():
            pids = f.node.exec(f.sandbox, "pidof bothy-kit")["out"]["text"].split()
            return pids if len(pids) == 1 else None
        return eventually("one kit inside", kits_inside, 10)[0]

    @suite.case("attack: a kit cannot be traced, read or steered by its own user, nor by the sandbox's root")
    def _():
        f.write("/tmp/tracer", make_tracer(), mode="0755")
        for user in ("0", "1000"):
            f.shell("rm -f /tmp/traced; chmod 1777 /tmp")
            with f.half_sent("", "/tmp/traced", first, user=user) as upload:
                got = f.shell(f"/tmp/tracer {kit_pid()}", user=user)
                equal(upload.finish().status, 200, "the upload")
            print("      " + got.replace("\n", "; "), flush=True)
            equal([line for line in got.splitlines() if line.endswith(" possible")], [], f"what user {user} can do to the kit")
            equal(f.read("/tmp/traced"), first, "what was written")

    @suite.case("attack: a killed kit is a clean error and leaves the old file")
    def _():
        f.write("/tmp/k/file", b"old", mkdir=True)
        for what, path in (("", "/tmp/k/file"), ("/archive", "/tmp/k")):
            body = first if not what else tar(member("file", b"".join(noise(4_000_000, 2))))
            with f.half_sent(what, path, body[:1_500_000]) as upload:
                f.shell(f"kill -9 {kit_pid()}")
                a = upload.finish()
            check(a.status in (502, 503, 400) and a.error["message"], f"{a!r}")
            equal(f.read("/tmp/k/file"), b"old", "the file")
        f.shell("head -c 30000000 /dev/urandom > /tmp/k/large")
        for what in ("", "/archive"):
            c, r = node.open("GET", f.url(what, "/tmp/k/large"), timeout=30)
            r.read(1000)
            f.node.exec(f.sandbox, "kill -9 $(pidof bothy-kit)")
            with contextlib.suppress(http.client.HTTPException, OSError):  # cut, unless all of it was there already
                r.read()
            c.close()
        well(node, f)

    @suite.case("attack: a kit whose place another program takes: its lies stay the sandbox's")
    def _():
        # Whoever writes to the standard output of a kit would have to get at its descriptors: see above. What is left is
        # to make its answers wrong, by files that change under it.
        f.shell("mkdir -p /tmp/lies; i=0; while [ $i -lt 200 ]; do echo $i > /tmp/lies/f$i; i=$((i+1)); done")
        x = f.node.start(f.sandbox, "cd /tmp/lies; while :; do for f in *; do mv $f .$f; mv .$f $f; : > $f; done; done 2>/dev/null")
        for _ in range(8):
            f.call("GET", "/list", "/tmp/lies", depth=2)
            head_of(f, "/tmp/lies", 20, "/archive")
        f.node.call("DELETE", f.node.at(f.sandbox, x))
        well(node, f)

    @suite.case("attack: sixty uploads that stop in the middle, and a caller beside them")
    def _():
        with contextlib.ExitStack() as stack:
            for i in range(60):
                stack.enter_context(f.half_sent("/archive" if i % 2 else "", f"/tmp/stall{i}", first[:1000], mkdir=True))
            well(node, f)
        eventually("no kit is left", lambda: not f.node.exec(f.sandbox, "pidof bothy-kit")["out"]["text"].strip(), 20)
        well(node, f)


def stopped_kit(f):
    """Takes as long as silence is borne: beside the other cases. What the answer was, and how long it took."""
    first = b"".join(noise(1_000_000, 9))
    began = time.monotonic()
    with f.half_sent("", "/tmp/stopped", first) as up:
        pid = eventually("a kit inside", lambda: f.node.exec(f.sandbox, "pidof bothy-kit")["out"]["text"].split(), 10)[0]
        f.shell(f"kill -STOP {pid}")
        answer = up.finish()
    return answer, time.monotonic() - began


def run(suite, node, f, canary):
    links(suite, node, f, canary)
    places(suite, node, f, canary)
    races(suite, node, f, canary)
    kits(suite, node, f, canary)


def flood(suite):
    """Where there is no kit the image's sh answers, and the tenant may be that."""
    name = "attack: an answer that goes on for ever keeps nobody else waiting"
    if not suite.wants(name):
        return
    with Node(suite.args.backend, images="busybox", pool="2:2", env="BOTHY_FILES_KIT= BOTHY_HTTP_RELAY_THREADS=1") as node:
        evil, other = Files(node, node.create()), node.create()
        evil.shell(r"printf 'S81a4 0 0 1 0 0 1 1\n\0\0' > /e; i=0; while [ $i -lt 16 ]; do cat /e /e > /f; mv /f /e; i=$((i+1)); done;"
                   r" printf '#!/bin/busybox ash\nwhile :; do /bin/busybox cat /e /e /e /e; done\n' > /sh; chmod 755 /sh; mv /sh /bin/sh")

        @suite.case(name)
        def _():
            c = node.connection(60)
            c.request("GET", f"/v1/sandboxes/{evil.sandbox}/files/stat?path=/")
            time.sleep(1)
            for _ in range(5):
                equal(node.exec(other, ["true"])["end"]["exit_code"], 0, "a command of somebody else")
            c.close()

"""Tricks with paths: what a sandbox or an image puts where we look, run or go on its behalf."""
import os
import pathlib
import subprocess

import image
from common import USER, WAYS, answers, armed, intrude, pid1_of
from harness import bytes_of, check, equal, eventually, expect_error, read_bytes

# What is named here is in an image that the group made; it goes with the group.
MADE = []
NOBODY = 65534
BUSYBOX = pathlib.Path("/bin/busybox")
WITHOUT_GRANT = ("root", "user")


def cases(attack, node):
    directories(attack, node)
    programs(attack, node)
    images(attack, node)
    files_outside(attack, node)
    for name in MADE:
        node.ok("DELETE", f"/v1/images/{name}")
    node.ok("POST", "/v1/images/prune", {})


def as_other(uid, *argv, **more):
    """Runs a program of the host as this user; a shell in between, as setpriv itself keeps capabilities until it executes."""
    return subprocess.run(["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", "sh", "-c", 'exec "$@"', "sh",
                           *argv], capture_output=True, check=False, **more)


def post(node, sandbox, **spec):
    return node.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"argv": ["/bin/pwd"], "timeout_ms": 5000, **spec})


def each_user(body):
    for user in ("0", USER):
        body(user)


def directories(attack, node):
    @attack.attempt("cwd: /proc/self/fd/N, the way of CVE-2024-21626, is no directory for any N", WITHOUT_GRANT)
    def _():
        with node.sandbox() as sandbox:
            for n in range(64):
                expect_error(post(node, sandbox, cwd=f"/proc/self/fd/{n}", user="0" if n % 2 else USER), 400, "cwd_not_found")

    @attack.attempt("cwd: a link to /proc/self/fd/N or /proc/1/fd/N is none either", WITHOUT_GRANT)
    def _():
        with node.sandbox() as sandbox:
            node.shell(sandbox, "for n in 3 4 5 6 7 8 9; do ln -s /proc/self/fd/$n /s$n; ln -s /proc/1/fd/$n /o$n; done")
            for n in range(3, 10):
                each_user(lambda user, n=n: expect_error(post(node, sandbox, cwd=f"/s{n}", user=user), 400, "cwd_not_found"))
                each_user(lambda user, n=n: expect_error(post(node, sandbox, cwd=f"/o{n}", user=user), 400, "cwd_not_found"))

    @attack.attempt("cwd: /proc/1/root and /proc/1/cwd are closed, also through a link", WITHOUT_GRANT)
    def _():
        with node.sandbox() as sandbox:
            node.shell(sandbox, "ln -s /proc/1/root /root1; ln -s /proc/1/cwd /cwd1")
            for cwd in ("/proc/1/root", "/proc/1/cwd", "/root1", "/cwd1", "/proc/1/root/etc"):
                each_user(lambda user, cwd=cwd: expect_error(post(node, sandbox, cwd=cwd, user=user), 400, "cwd_not_found"))

    @attack.attempt("cwd: .. a hundred times and /proc/self/root/.. end in the own root", WITHOUT_GRANT)
    def _():
        with node.sandbox() as sandbox:
            node.shell(sandbox, "echo mine >/mark")
            for cwd in ("/" + "../" * 100, "/proc/self/root/..", "/proc/self/root/../../.."):
                def own(user, cwd=cwd):
                    r = node.exec(sandbox, ["cat", "mark"], cwd=cwd, user=user)
                    equal(bytes_of(r["out"]), b"mine\n", f"mark in {cwd}")
                each_user(own)

    @attack.attempt("cwd: a directory the image asks for is made inside, though a link leads out of it")
    def _():
        with node.sandbox(cwd="/link/made/here") as sandbox:
            # The first command makes it; the link is in its way then.
            node.exec(sandbox, ["true"], cwd="/")
            node.shell(sandbox, "ln -s /../../../../../../tmp/attack-escaped /link", cwd="/")
            node.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"argv": ["true"]})
            check(not os.path.exists("/tmp/attack-escaped"), "a directory was made on the host")


def programs(attack, node):
    @attack.attempt("exec: /proc/self/exe is our init, which does not start a second time", WITHOUT_GRANT)
    def _():
        with node.sandbox() as sandbox:
            node.shell(sandbox, "ln -s /proc/self/exe /self; printf '#!/proc/self/exe\\n' >/script; chmod 755 /script")
            for argv in (["/proc/self/exe"], ["/self"], ["/script"], ["/proc/self/exe", "--help"]):
                def refused(user, argv=argv):
                    a = post(node, sandbox, argv=argv, user=user)
                    check(a.status == 400 or a.json["end"]["exit_code"] != 0 and not bytes_of(a.json["out"]), f"{argv}: {a!r}")
                each_user(refused)
            answers(node, sandbox)

    @attack.attempt("exec: a process that runs our init cannot be opened, written or traced (CVE-2019-5736)", WITHOUT_GRANT)
    def _():
        before = [read_bytes(p) for p in own_programs(node)]
        with armed(node) as sandbox:
            # Started again and again, while others try to open what it runs.
            thief = node.start(sandbox, "while :; do for p in /proc/[0-9]*; do (: >>$p/exe) 2>/dev/null && readlink $p/exe; done; done")
            for _ in range(20):
                post(node, sandbox, argv=["/proc/self/exe"])
            node.call("DELETE", node.at(sandbox, thief))
            got = {line for line in node.output(sandbox, thief).decode().split()}
            check(not any("init" in line for line in got), f"opened for writing: {got}")
        equal([read_bytes(p) for p in own_programs(node)], before, "our programs")

    @attack.attempt("exec: /init, a link to it, a fifo, a directory and a device do not run", WITHOUT_GRANT)
    def _():
        with node.sandbox() as sandbox:
            node.shell(sandbox, "mkfifo /fifo; chmod 777 /fifo; mkdir /dir; ln -s /init /alias; ln -s /loop /loop")
            for argv0 in ("/init", "/alias", "/fifo", "/dir", "/dev/null", "/loop", "/proc/1/exe", "/proc/1/root/bin/sh"):
                each_user(lambda user, a=argv0: expect_error(post(node, sandbox, argv=[a], user=user), 400, "exec_failed"))

    @attack.attempt("exec: PATH through /proc/1 and /proc/self/fd finds nothing", WITHOUT_GRANT)
    def _():
        with node.sandbox() as sandbox:
            for path in ("/proc/1/root/bin", "/proc/1/cwd", "/proc/self/fd/3", "/proc/self/fd"):
                each_user(lambda user, p=path: expect_error(post(node, sandbox, argv=["sh"], env={"PATH": p}, user=user), 400, "exec_failed"))

    @attack.attempt("exec: LD_PRELOAD, LD_LIBRARY_PATH, GCONV_PATH and the like do nothing to pid 1", WITHOUT_GRANT)
    def _():
        env = {n: "/tmp/evil.so" for n in ("LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "GCONV_PATH", "BASH_ENV", "ENV")}
        with node.sandbox(env=env) as sandbox:
            each_user(lambda user: equal(post(node, sandbox, argv=["/bin/true"], user=user).json["end"]["exit_code"], 0, "exit code"))


def own_programs(node):
    """Files of ours that run inside or beside, as the host has them."""
    return sorted(pathlib.Path(node.dir, "warden").glob("idle*/*")) + [pathlib.Path(os.readlink(f"/proc/{node.pid('warden')}/exe"))]


def odd_image(node, name, *entries, **settings):
    """Busybox with what is odd about it put in."""
    tree = [image.directory("bin"), image.file("bin/busybox", BUSYBOX.read_bytes(), 0o755), image.link("bin/sh", "busybox"),
            image.link("bin/cat", "busybox"), image.link("bin/id", "busybox"), image.link("bin/ls", "busybox"),
            image.directory("tmp", 0o1777), *entries]
    r = image.load_tree(node, name, tree, **settings)
    equal(r.returncode, 0, f"pull of {name}: {r.stderr!r}")
    MADE.append(name)
    return name


def user_of(node, sandbox, user):
    """As whom a command ran, by its end record: the image's own programs may choke on what is odd about it."""
    a = node.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"argv": ["/bin/busybox", "true"], "user": user, "timeout_ms": 5000})
    return a.json["error"]["code"] if a.status != 200 else a.json["end"]["user"].split(":")[0]


def images(attack, node):
    odd = {"a fifo": image.fifo("etc/passwd"), "a directory": image.directory("etc/passwd"),
           "a link to /dev/zero": image.link("etc/passwd", "/dev/zero"),
           "a link to /proc/1/environ": image.link("etc/passwd", "/proc/1/environ"),
           "a link to /proc/kmsg": image.link("etc/passwd", "/proc/kmsg"),
           "two megabytes": image.file("etc/passwd", b"alice:x:0:0::/:\n" * 140000)}

    for number, (what, entry) in enumerate(odd.items()):
        @attack.attempt(f"image: /etc/passwd is {what}: no name is found, numbers work, nobody waits")
        def _(number=number, entry=entry):
            with node.sandbox(odd_image(node, f"passwd{number}", image.directory("etc"), entry)) as sandbox:
                equal((user_of(node, sandbox, "alice"), user_of(node, sandbox, "7")), ("user_not_found", "7"), "alice, 7")

    @attack.attempt("image: ids in passwd and group that overflow, are negative or not mapped give nobody root")
    def _():
        lines = ("a:x:4294967296:0", "b:x:-1:0", "c:x:4294967295:0", "d:x: 0:0", "e:x:0x0:0", "f:x::0", "g:x:99999:0",
                 "h:x:18446744073709551616:0")
        passwd = "".join(line + "::/:/bin/sh\n" for line in lines).encode()
        tree = (image.directory("etc"), image.file("etc/passwd", passwd), image.file("etc/group", b"w:x:4294967296:\nv:x:-1:\n"))
        with node.sandbox(odd_image(node, "ids", *tree)) as sandbox:
            for name in "abcdefgh":
                got = user_of(node, sandbox, name)
                check(got in ("user_not_found", "user_not_mapped"), f"{name} is {got}")
            check(user_of(node, sandbox, "1:w") in ("user_not_found", "user_not_mapped"), "a group that overflows")

    @attack.attempt("image: /etc is a link to / and to /proc/1/root: what we write stays inside")
    def _():
        for number, target in enumerate(("/", "/proc/1/root/etc", "../../../../../../etc", "/proc/self/cwd")):
            before = {n: read_bytes(f"/etc/{n}") for n in ("hosts", "resolv.conf", "hostname")}
            with node.sandbox(odd_image(node, f"etc{number}", image.link("etc", target))) as sandbox:
                equal(bytes_of(node.exec(sandbox, ["id", "-u"])["out"]), b"0\n", "a command in it")
            equal({n: read_bytes(f"/etc/{n}") for n in before}, before, "the host's own")

    @attack.attempt("image: /etc/hosts, hostname and resolv.conf are links to the host's: its files stay as they are")
    def _():
        targets = {n: f"/../../../../../../etc/{n}" for n in ("hosts", "resolv.conf", "hostname")}
        before = {n: read_bytes(f"/etc/{n}") for n in targets}
        tree = [image.directory("etc"), *(image.link(f"etc/{n}", t) for n, t in targets.items())]
        with node.sandbox(odd_image(node, "links", *tree)) as sandbox:
            equal(bytes_of(node.exec(sandbox, ["id", "-u"])["out"]), b"0\n", "a command in it")
        equal({n: read_bytes(f"/etc/{n}") for n in before}, before, "the host's own")

    @attack.attempt("image: /dev, /proc and /sys are links (CVE-2026-41579): ours are in their place, the link's target is untouched")
    def _():
        tree = (image.directory("etc"), image.link("dev", "/etc"), image.link("proc", "/etc"), image.link("sys", "/proc/1/root"))
        with node.sandbox(odd_image(node, "devlink", *tree)) as sandbox:
            got = bytes_of(node.exec(sandbox, "cat /proc/self/mountinfo; ls /etc")["out"]).decode()
            mounts = {line.split()[4]: line.split(" - ")[1].split()[0] for line in got.splitlines() if " - " in line}
            equal([mounts.get(p) for p in ("/dev", "/proc", "/sys")], ["tmpfs", "proc", "sysfs"], "file systems")
            check("null" not in got.split(), "devices are in the link's target")

    @attack.attempt("image: WorkingDir /proc/self/fd/N and /proc/1/root is refused or inside", WITHOUT_GRANT)
    def _():
        for number, cwd in enumerate(("/proc/self/fd/7", "/proc/self/fd/3", "/proc/1/root", "/proc/1/cwd")):
            name = odd_image(node, f"cwd{number}", image.directory("etc"), WorkingDir=cwd)
            with node.sandbox(name) as sandbox:
                each_user(lambda user: expect_error(post(node, sandbox, argv=["id"], user=user), 400, "cwd_not_found"))

    @attack.attempt("image: User with a colon, a newline, a path or nothing is refused and runs nothing")
    def _():
        for number, user in enumerate(("root\nx", "../../etc/passwd", ":", "0:", ":0", "4294967295", "-1", "0x0", "\x7f")):
            name = odd_image(node, f"user{number}", image.directory("etc"), User=user)
            a = node.call("POST", "/v1/sandboxes", {"image": name})
            if a.status != 201:
                check(400 <= a.status < 500, f"{user!r}: {a!r}")
                continue
            r = post(node, a.json["id"], argv=["id"])
            check(r.status == 400, f"{user!r} ran something: {r!r}")
            node.delete(a.json["id"])


def files_outside(attack, node):
    def planted(name):
        return eventually("it is on the disk", lambda: next(iter(pathlib.Path(node.dir, "warden", "uppers").glob(f"**/{name}")), None))

    @attack.attempt("outside: a set-uid root file of a sandbox is out of reach for users of the host", tuple(WAYS))
    def _():
        for grants in ((), ("setuid",)):
            with armed(node, grants=list(grants)) as sandbox:
                node.shell(sandbox, "cp /intruder /planted; chmod 6777 /planted")
                path = planted("planted")
                equal(path.stat().st_mode & 0o7777, 0o6777, "its mode")
                for uid in (NOBODY, int(subprocess.run(["id", "-u", "bothy"], stdout=subprocess.PIPE, check=True).stdout)):
                    r = as_other(uid, path, "own-exe")
                    check(b"ermission denied" in r.stderr, f"as {uid}: {r}")

    @attack.attempt("outside: and without effect for one who was handed a descriptor of it: the file system is nosuid, nodev")
    def _():
        with armed(node) as sandbox:
            node.shell(sandbox, "cp /bin/busybox /planted; chmod 6777 /planted")
            fd = os.open(planted("planted"), os.O_PATH)
            os.set_inheritable(fd, True)
            r = subprocess.run(["id", "-u"], executable=f"/proc/self/fd/{fd}", user=NOBODY, group=NOBODY, extra_groups=[],
                               pass_fds=[fd], capture_output=True, check=False)
            os.close(fd)
            equal((r.returncode, r.stdout), (0, b"65534\n"), "it ran, as")
            options = next(line for line in read_bytes("/proc/self/mountinfo").decode().splitlines() if f" {node.dir}/warden " in line)
            check({"nosuid", "nodev"} <= set(options.split()[5].split(",")), options)

    @attack.attempt("outside: uppers and layers are closed to everybody but root")
    def _():
        for below in ("", "uppers", "layers", "slots", "trash"):
            r = as_other(NOBODY, "ls", f"{node.dir}/warden/{below}")
            check(r.returncode != 0 and b"ermission denied" in r.stderr, f"warden/{below}: {r}")

    @attack.attempt("outside: a crash leaves no core on the host or inside", tuple(WAYS))
    def _():
        before = {d: set(os.listdir(d)) for d in ("/", "/tmp", node.dir, f"{node.dir}/bothyd")}
        for grants, user in WAYS.values():
            with armed(node, grants=list(grants)) as sandbox:
                end = node.exec(sandbox, "ulimit -c unlimited; cd /tmp; /intruder misuse crash; echo $?; ls /tmp", user=user)
                check(b"139" in bytes_of(end["out"]) and b"core" not in bytes_of(end["out"]), f"{end}")
        new = {d: [n for n in set(os.listdir(d)) - was if "core" in n] for d, was in before.items()}
        check(not any(new.values()), f"new files: {new}")

    @attack.attempt("outside: pid 1's process is closed to other users of the host")
    def _():
        with node.sandbox() as sandbox:
            pid = pid1_of(node, sandbox)
            for name in ("root/", "cwd/", "fd/", "environ", "mem"):
                r = as_other(NOBODY, "ls" if name.endswith("/") else "cat", f"/proc/{pid}/{name}")
                check(r.returncode != 0 and b"ermission denied" in r.stderr, f"{name}: {r}")

    @attack.attempt("outside: a sandbox's files, names and processes are not in another", tuple(WAYS))
    def _():
        for grants, user in WAYS.values():
            with armed(node, grants=list(grants)) as a, armed(node, grants=list(grants)) as b:
                node.shell(a, "echo secret >/tmp/of-a; echo secret >/dev/shm/of-a; (nc -lp 7788 -e cat &) ; mkfifo /tmp/fifo-a", user=user)
                node.start(a, ["sleep", "987654"], user=user)
                r = node.exec(b, "ls /tmp /dev/shm; ps; nc -w 1 127.0.0.1 7788 </dev/null; cat /proc/net/tcp; hostname", user=user)
                seen = bytes_of(r["out"]).decode()
                check("of-a" not in seen and "fifo-a" not in seen and "987654" not in seen and a not in seen and b in seen, seen)
                intrude(node, b, "other-pids", user=user)

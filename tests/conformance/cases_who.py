"""Who a command is and what it finds: users, environment, directory, umask, secrets."""
import os
import pathlib
import secrets

from common import told, walls
from harness import bytes_of, check, equal, expect_error, pids, read_bytes

USER = {"image": "user"}


def cases(suite, node):
    environment(suite, node)
    users(suite, node)
    places(suite, node)
    hidden(suite, node)


def env_of(node, sb, **spec):
    lines = bytes_of(node.exec(sb, ["env"], **spec)["out"]).decode().splitlines()
    return dict(line.split("=", 1) for line in lines)


def as_alice(node):
    """The user of the image `user`; named where images are names only: then commands are pid 1's user's (caps.images)."""
    return {} if told(node) else {"user": "alice"}


def environment(suite, node):
    @suite.case("the exec's environment wins over the sandbox's, that over the image's")
    def _():
        walls(node)
        with node.sandbox("user", env={"GREETING": "sandbox", "A": "sandbox", "B": "sandbox"}) as sb:
            env = env_of(node, sb, env={"B": "exec", "C": "exec"})
            equal((env["GREETING"], env["A"], env["B"], env["C"], env["EMPTY"]), ("sandbox", "sandbox", "exec", "exec", ""), "env")
        with node.sandbox("user") as sb:
            equal(env_of(node, sb)["GREETING"], "hello from the image", "GREETING")

    @suite.case("the exec's environment wins over the sandbox's")
    def _():
        with node.sandbox(env={"A": "sandbox", "B": "sandbox"}) as sb:
            env = env_of(node, sb, env={"B": "exec"})
            equal((env["A"], env["B"]), ("sandbox", "exec"), "env")
            check("B" not in env_of(node, sb) or env_of(node, sb)["B"] == "sandbox", "an exec's variable stayed")

    @suite.case("HOME, USER, LOGNAME and SHELL come from the image's passwd, HOSTNAME is the id, PATH has a default")
    def _():
        walls(node)
        with node.sandbox("user") as sb:
            env = env_of(node, sb, **as_alice(node))
            equal([env.get(k) for k in ("HOME", "USER", "LOGNAME", "SHELL", "HOSTNAME")],
                  ["/home/alice", "alice", "alice", "/bin/sh", sb], "env")
            env = env_of(node, sb, user="root")
            equal((env["HOME"], env["USER"]), ("/root", "root"), "env of root")
            if node.caps.get("hostname", "native") == "native":
                equal(node.shell(sb, "hostname").strip(), sb, "hostname")
        with node.sandbox("static") as sb:
            lines = bytes_of(node.exec(sb, ["/probe"])["out"]).decode().splitlines()
            path = [line for line in lines if line.startswith("env=PATH=")]
            check(path and "/bin" in path[0], f"no PATH in {lines}")


def users(suite, node):
    @suite.case("users by name, uid, uid:gid; groups of the image")
    def _():
        walls(node)
        with node.sandbox("user") as sb:
            def ids(user):
                return node.shell(sb, "echo $(id -u):$(id -g):$(id -G)", **({"user": user} if user else {})).strip()
            equal(ids(None), "1000:1000:1000 2000" if told(node) else "0:0:0", "the image's user, where it is known")
            equal(ids("alice"), "1000:1000:1000 2000", "alice")
            equal(ids("root"), "0:0:0", "root")
            equal(ids("1234").split(":")[0], "1234", "a uid of nobody")
            equal(ids("1234:4321")[:9], "1234:4321", "uid:gid")
            equal(ids("alice:root").split(":")[:2], ["1000", "0"], "name:name")
            equal(node.exec(sb, ["true"], user="alice")["end"]["user"], "1000:1000", "user of the end record")

    @suite.case("the sandbox's user is the default, the exec's wins")
    def _():
        walls(node)
        with node.sandbox(user="1000") as sb:
            equal(node.shell(sb, "id -u").strip(), "1000", "default")
            equal(node.shell(sb, "id -u", user="0").strip(), "0", "exec's")

    @suite.case("an unknown user is user_not_found")
    def _():
        walls(node)
        with node.sandbox() as sb:
            for user in ("nobody-here", "root:nogroup-here"):
                a = node.call("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["true"], "user": user})
                expect_error(a, 400, "user_not_found")

    @suite.case("an id that is not mapped is user_not_mapped")
    def _():
        walls(node)
        with node.sandbox() as sb:
            for user in ("65536", "70000", "0:70000", "4294967294"):
                a = node.call("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["true"], "user": user})
                expect_error(a, 400, "user_not_mapped")
            equal(node.shell(sb, "id -u", user="65535").strip(), "65535", "the last one mapped")

    @suite.case("a command gains no privileges without the grant setuid, and does with it")
    def _():
        walls(node)
        for grants, effective in (([], "1000"), (["setuid"], "0")):
            with node.sandbox("debian", grants=grants) as sb:
                node.shell(sb, "cp /usr/bin/id /tmp/id; chmod 4755 /tmp/id")
                nnp = node.shell(sb, "grep NoNewPrivs /proc/self/status", user="1000").split()[1]
                equal(nnp, "0" if grants else "1", f"NoNewPrivs with {grants}")
                equal(node.shell(sb, "/tmp/id -u", user="1000").strip(), effective, f"effective uid with {grants}")


def places(suite, node):
    @suite.case("cwd: the exec's, else the sandbox's, else the image's, else home")
    def _():
        walls(node)
        with node.sandbox("user") as sb:
            equal(node.shell(sb, "pwd"), "/work/space\n", "the image's, which no layer has")
            equal(node.shell(sb, "pwd", cwd="/tmp"), "/tmp\n", "the exec's")
        with node.sandbox("user", cwd="/etc") as sb:
            equal(node.shell(sb, "pwd"), "/etc\n", "the sandbox's")
        with node.sandbox("busybox") as sb:
            equal(node.shell(sb, "pwd"), "/root\n", "home")
            equal(node.exec(sb, ["pwd"], user="4321")["out"]["text"], "/\n", "a user without home")

    @suite.case("a cwd that is missing, or a file, is cwd_not_found")
    def _():
        with node.sandbox() as sb:
            for cwd in ("/no/such/place", "/etc/passwd"):
                a = node.call("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["true"], "cwd": cwd})
                expect_error(a, 400, "cwd_not_found")

    @suite.case("umask: 022 unless the sandbox says otherwise")
    def _():
        for umask, modes in ((None, ["644", "755"]), ("077", ["600", "700"]), ("0", ["666", "777"])):
            with node.sandbox(**({"umask": umask} if umask else {})) as sb:
                at = f"/tmp/umask-{sb}"
                got = node.shell(sb, f"mkdir {at}; cd {at}; : >f; mkdir d; stat -c %a f d; rm -r {at}")
                equal(got.split(), modes, f"modes with {umask}")


def state_files(node):
    """Every file below the node's directory but the image of its file system, whose files are read
    through its mount, and what is inside the sandboxes."""
    for root, dirs, names in os.walk(node.dir):
        if root == f"{node.dir}/warden":
            dirs[:] = [d for d in dirs if d != "layers"]
        for name in names:
            path = pathlib.Path(root, name)
            if name != "warden.img" and path.is_file() and not path.is_symlink():
                yield path


def hidden(suite, node):
    @suite.case("a secret is seen inside, and in no answer, state file, log, argv or environment of ours")
    def _():
        value = "s3cr3t-" + secrets.token_hex(16)
        with node.sandbox(secrets={"TOKEN": value}, env={"PLAIN": "p-" + value[7:]}) as sb:
            equal(node.shell(sb, 'test -n "$TOKEN" && printf %s "$TOKEN" | cut -c1-7'), "s3cr3t-\n", "inside")
            x = node.start(sb, ["sleep", "30"])
            answers = b"".join(node.call("GET", path).body for path in (
                f"/v1/sandboxes/{sb}", "/v1/sandboxes", f"/v1/sandboxes/{sb}/processes", node.at(sb, x), "/v1/info",
                "/metrics"))
            needle = value[7:].encode()
            check(needle not in answers, "it is in an answer")
            for path in state_files(node):
                check(needle not in read_bytes(path), f"it is in {path}")
            for pid in pids():
                check(needle not in read_bytes(f"/proc/{pid}/cmdline"), f"it is in the argv of {pid}")
            for name in ("bothyd",) + (("warden",) if node.backend == "oci" else ()):
                check(needle not in read_bytes(f"/proc/{node.pid(name)}/environ"), f"it is in the environment of {name}")
            node.ok("DELETE", node.at(sb, x))

    @suite.case("a refused create does not repeat its secrets")
    def _():
        value = "s3cr3t-" + secrets.token_hex(16)
        a = node.call("POST", "/v1/sandboxes", {"image": "busybox", "secrets": {"A": value, "B=": value}, "nope": value})
        equal(a.status, 400, "status")
        check(value.encode() not in a.body, "it is in the answer")
        check(value not in node.log(), "it is in the log")

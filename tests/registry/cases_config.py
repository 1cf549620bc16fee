"""Who may be asked and how: TLS, mirrors, logins, which hosts."""
import os
import pathlib
import socket
import subprocess
import sys
import threading

from cases_pull import on_terminal
from common import image_of, nothing_under_way, pull, pulled
from harness import BOTHY, Node, Skip, check, equal, eventually, expect_error, pids, read_bytes
from registry import Registry, make_ca

HOARD = """  # as this user, pipes until a new one is small, then until stdin ends
import fcntl, os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
uid, soft = map(int, sys.argv[1:])
os.setresuid(uid, uid, uid)
pipes = []
for _ in range(soft // 16 + 16):
    pipes.append(os.pipe())
    if fcntl.fcntl(pipes[-1][0], 1032) <= 8192:
        break
print("small" if fcntl.fcntl(pipes[-1][0], 1032) <= 8192 else "large", flush=True)
sys.stdin.read()
"""


def cases(suite, world):
    reach(suite, world)
    names(suite, world)
    logins(suite, world)
    secrets(suite, world)


def reach(suite, world):
    node = world.node

    @suite.case("TLS with an authority of its own")
    def _():
        ref = world.tls.push(image_of(10), "reach/tls:1")
        with node.sandbox(pulled(node, ref)["name"]) as sb:
            equal(node.shell(sb, "wc -c </data/0").strip(), "10", "content")

    @suite.case("mirrors are asked in their order, in the place of a host that need not exist")
    def _():
        image = image_of(20)
        world.spare.push(image, "mirrored/team/tool:1")
        before = len(world.spare.requests())
        with node.sandbox(pulled(node, "registry.invalid/team/tool:1")["name"]) as sb:
            equal(node.shell(sb, "wc -c </data/0").strip(), "20", "content")
        check(any("/mirrored/team/tool/" in r for r in world.spare.requests()[before:]), "the mirror was not asked")
        equal(pull(node, "registry.invalid/team/none:1").status in (404, 502), True, "an image the mirror has not")

    @suite.case("addresses of the node and its site are forbidden unless they are named")
    def _():
        for host in ("127.0.0.1:1", "localhost", "localhost:5000", "169.254.169.254", "10.1.2.3", "192.168.0.1:5000", "172.16.9.9",
                     "0.0.0.0:80", "100.64.0.1", "ip6-localhost:80"):
            a = pull(node, host + "/x:1")
            if host.startswith("ip6-") and a.status == 502:
                continue  # not in this machine's hosts
            e = expect_error(a, 403, "forbidden")
            check("registries" in e["remedy"], f"{e}")

    @suite.case("a host that is not there, and one where nobody listens")
    def _():
        e = expect_error(pull(node, "no-such-host.invalid/x:1"), 502, "image_pull_failed")
        check("not found" in e["message"] and "image 'no-such-host.invalid/x:1'" in e["message"], f"{e}")
        with Registry(world.scratch / "dead") as dead:
            host = dead.host
        expect_error(pull(node, host + "/x:1"), 403, "forbidden")


    @suite.case("a misspelt word on a machine without a network: the image is named, and where the names are listed")
    def _():
        try:
            socket.getaddrinfo("registry-1.docker.io", 443)
            raise Skip("this machine finds docker.io")
        except OSError:
            pass
        e = expect_error(pull(node, "dbian"), 502, "image_pull_failed")
        check("image 'docker.io/library/dbian:latest'" in e["message"] and "bothy image ls" in e["remedy"], f"{e}")


def names(suite, world):
    node, reg = world.node, world.plain

    @suite.case("nobody but an administrator puts an image under another name, and nobody under a digest")
    def _():
        good, evil = image_of(100), image_of(200)
        ref, other = reg.push(good, "names/tool:1"), reg.push(evil, "names/evil:1")
        repo = ref.rsplit(":", 1)[0]
        ann, ben = world.caller("ann"), world.caller("ben")
        pin = f"{repo}@{good.digest}"
        pulled(ann, ref)
        config = pulled(ann, pin)["digest"]
        for name in (ref, "docker.io/library/python:3.12", "python", repo + ":new", "oci:/x"):
            e = expect_error(pull(ben, other, name=name), 403, "forbidden")
            check("'name'" in e["remedy"], f"{e}")
        for caller in (ben, node):
            for name in (pin, f"python@{good.digest}", config, config[7:19], f"docker.io/library/{config[7:19]}"):
                for policy in ("always", "missing"):
                    expect_error(pull(caller, other, name=name, pull=policy), 400, "invalid_request")
        for name in (ref, pin, config, config[7:19]):
            with ann.sandbox(name) as sb:
                equal(ann.shell(sb, "wc -c </data/0").strip(), "100", f"content of {name}")
        pulled(ben, ref, name=ref)
        equal(pulled(node, other, name="renamed")["name"], "docker.io/library/renamed:latest", "an administrator's name")
        reg.push(evil, "names/tool:1")
        pulled(ben, ref)  # the tag has moved, for all
        for name, size in ((ref, "200"), (pin, "100"), (config, "100")):
            with ann.sandbox(name) as sb:
                equal(ann.shell(sb, "wc -c </data/0").strip(), size, f"content of {name}")


def logins(suite, world):
    node, reg = world.node, world.locked
    ref = reg.push(image_of(100), "private/tool:1")

    @suite.case("without a login it is unauthenticated, and the remedy is a command")
    def _():
        e = expect_error(pull(node, ref), 401, "unauthenticated")
        check(f"bothy login {reg.host}" in e["remedy"], f"{e}")

    @suite.case("login proves the password before it keeps it; logout forgets it")
    def _():
        r = node.cli("login", "-u", "alice", "--password-stdin", reg.host, input=b"wrong\n")
        equal(r.returncode, 125, "status")
        check(b"invalid username/password" in r.stderr, f"{r.stderr}")
        expect_error(pull(node, ref), 401, "unauthenticated")
        r = node.cli("login", "-u", "alice", "--password-stdin", reg.host, input=b"correct horse\n")
        equal((r.returncode, r.stdout), (0, f"logged in to {reg.host} as alice\n".encode()), "login")
        pulled(node, ref)
        listed = node.ok("GET", "/v1/registries")["logins"]
        equal([(x["host"], x["username"], x["shared"]) for x in listed], [(reg.host, "alice", False)], "logins")
        equal(node.cli("logout", reg.host).returncode, 0, "logout")
        e = expect_error(node.call("DELETE", f"/v1/registries/{reg.host}/login"), 404, "not_found")
        equal(e["kind"], "login", "kind")
        expect_error(pull(node, ref), 401, "unauthenticated")

    @suite.case("a long password passes while bothyd's user has more pipes than the kernel likes")
    def _():
        uid = os.stat(f"/proc/{node.pid('bothyd')}").st_uid
        soft = int(pathlib.Path("/proc/sys/fs/pipe-user-pages-soft").read_text())
        hoard = subprocess.Popen([sys.executable, "-c", HOARD, str(uid), str(soft)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            equal(hoard.stdout.readline(), b"small\n", "pipes of this user")
            login = {"username": "alice", "password": "x" * 16000}
            e = expect_error(node.call("PUT", f"/v1/registries/{reg.host}/login", login, timeout=20), 401, "unauthenticated")
            check("user name and the password" in e["remedy"], f"{e}")
        finally:
            hoard.communicate()

    @suite.case("a password typed on a terminal is not shown, and Ctrl-C gives the terminal back")
    def _():
        env = {**os.environ, "BOTHY_SOCKET": node.path}
        argv = [BOTHY, "login", "-u", "alice", reg.host]
        status, out = on_terminal(argv, env, (b"Password: ", b"correct horse\n"))
        equal(status, 0, f"status ({out!r})")
        check("correct" not in out, f"{out!r}")
        status, out = on_terminal(["sh", "-c", 'trap : INT; "$@"; stty -a; true', "sh", *argv], env, (b"Password: ", b"half\x03"))
        check(" -echo " not in out and " echo " in out, f"{out!r}")
        node.cli("logout", reg.host)

    @suite.case("a login is its owner's; an administrator's can be everybody's")
    def _():
        ann, ben = world.caller("ann"), world.caller("ben")
        ann.ok("PUT", f"/v1/registries/{reg.host}/login", {"username": "alice", "password": "correct horse"})
        pulled(ann, ref, pull="always")
        expect_error(pull(ben, ref, pull="always"), 401, "unauthenticated")
        equal(ben.ok("GET", "/v1/registries")["logins"], [], "ben's logins")
        body = {"username": "bob", "password": "battery staple", "shared": True}
        expect_error(ben.call("PUT", f"/v1/registries/{reg.host}/login", body), 403, "forbidden")
        node.ok("PUT", f"/v1/registries/{reg.host}/login", body)
        pulled(ben, ref, pull="always")
        equal([(x["username"], x["shared"]) for x in ann.ok("GET", "/v1/registries")["logins"]], [("alice", False), ("bob", True)], "ann's")
        expect_error(ben.call("DELETE", f"/v1/registries/{reg.host}/login?shared=true"), 403, "forbidden")
        node.kill("bothyd")
        node.restart("bothyd")
        pulled(ben, ref, pull="always")
        equal(node.call("DELETE", f"/v1/registries/{reg.host}/login?shared=true").status, 204, "logout")
        expect_error(pull(ben, ref, pull="always"), 401, "unauthenticated")
        pulled(ann, ref, pull="always")

    @suite.case("a pull under way with a login is not joined by who has none")
    def _():
        cat, dog = world.caller("cat"), world.caller("dog")
        slow = world.slow_locked
        reg.push(image_of(2_000_000), "private/joined:1")
        name = f"{slow.host}/private/joined:1"
        cat.ok("PUT", f"/v1/registries/{slow.host}/login", {"username": "alice", "password": "correct horse"})
        got = []
        t = threading.Thread(target=lambda: got.append(pull(cat, name)))
        slow.after(200_000)
        t.start()
        slow.wait_reached()
        usual, slow.rate = slow.rate, 200_000  # it goes on for longer than the other one takes
        try:
            expect_error(pull(dog, name), 401, "unauthenticated")
            check(t.is_alive(), "the pull was over too early")
        finally:
            slow.rate = usual
        t.join()
        equal(got[0].status, 200, f"{got[0]!r}")

    @suite.case("words that are no login are invalid_request; hosts of the site are forbidden")
    def _():
        for host, body in ((reg.host, {"username": "a:b", "password": "x"}), (reg.host, {"username": "a", "password": "x\ny"}),
                           (reg.host, {"username": "-x", "password": "y"}), ("Not-A-Host", {"username": "a", "password": "x"}),
                           (reg.host, {"username": "a"}), ("host:port", {"username": "a", "password": "x"})):
            expect_error(node.call("PUT", f"/v1/registries/{host}/login", body), 400, "invalid_request")
        expect_error(node.call("PUT", "/v1/registries/127.0.0.1:1/login", {"username": "a", "password": "x"}), 403, "forbidden")


def secrets(suite, world):
    node, reg = world.node, world.locked

    @suite.case("a password is in no argument, log, answer or store; its file is bothyd's alone")
    def _():
        slow, seen = world.slow_locked, set()

        def watched(word, call):
            """Holds the line until skopeo has been seen with this word among its arguments."""
            failure = []

            def run():
                try:
                    call()
                except Exception as e:  # noqa: BLE001: raised below
                    failure.append(e)

            def look():
                lines = {read_bytes(f"/proc/{pid}/cmdline") for pid in pids()}
                seen.update(line for line in lines if b"skopeo" in line)
                return any(word in line for line in seen)
            slow.held.clear()
            t = threading.Thread(target=run)
            t.start()
            try:
                eventually(f"skopeo is seen with {word}", look)
            finally:
                slow.held.set()
                t.join()
            if failure:
                raise failure[0]
        login = {"username": "bob", "password": "battery staple"}
        watched(b"login", lambda: node.ok("PUT", f"/v1/registries/{slow.host}/login", login))
        reg.push(image_of(300_000), "private/watched:1")
        watched(b"proxy", lambda: pulled(node, f"{slow.host}/private/watched:1"))
        check(not any(b"battery" in line or b"Ym9iOm" in line for line in seen), f"{seen}")
        answer = node.call("GET", "/v1/registries").body
        check(b"battery" not in answer and b"Ym9iOm" not in answer, f"{answer}")
        for top, _, files in os.walk(node.dir):
            for path in (pathlib.Path(top, f) for f in files):
                if path.suffix == ".img" or "warden/" in str(path):
                    continue
                data = read_bytes(path)
                check(b"battery staple" not in data, f"it is in {path}")
                if b"Ym9iOmJhdHRlcnk" in data:
                    equal((path.parent.name, path.stat().st_mode & 0o777), ("registries", 0o600), f"where it is ({path})")
        nothing_under_way(node)


def other_nodes(suite, scratch):
    """Configurations of their own."""
    scratch = pathlib.Path(scratch)
    if not suite.wants_any(other_nodes):
        return
    tls_dir = scratch / "tls2"
    tls_dir.mkdir()
    _, cert, key = make_ca(tls_dir)
    with Registry(scratch / "listed") as listed, Registry(scratch / "strange") as strange, \
            Registry(scratch / "private-tls", tls=(cert, key)) as tls, \
            Node("oci", images="", pool="1:1", config=f"""
images:
  from: listed
registries:
  {listed.host}: {{insecure: true}}
  {tls.host}:
""") as node:
        @suite.case("only listed registries may be used")
        def _():
            pulled(node, listed.push(image_of(10), "a/b:1"))
            for name in (strange.push(image_of(10), "a/b:1"), "debian:12", "ghcr.io/x/y:1"):
                expect_error(pull(node, name), 403, "forbidden")
            expect_error(node.call("POST", "/v1/sandboxes", {"image": "debian:12"}), 403, "forbidden")
            equal(node.ok("GET", "/v1/registries")["from"], "listed", "from")

        @suite.case("without its authority a registry is not believed")
        def _():
            e = expect_error(pull(node, tls.push(image_of(10), "a/b:1")), 502, "image_pull_failed")
            check("x509" in e["cause"] and "'ca'" in e["remedy"], f"{e}")

        @suite.case("plain http where TLS is expected says so")
        def _():
            node.kill("bothyd")
            node.config = f"registries:\n  {strange.host}:\n"
            node.restart("bothyd")
            e = expect_error(pull(node, strange.push(image_of(10), "a/b:2")), 502, "image_pull_failed")
            check("insecure" in e["remedy"], f"{e}")

"""bothy cp: docker's rules for names, what survives, Ctrl-C, and a daemon or sandbox that sends hostile archives."""
import contextlib
import http.server
import io
import json
import os
import pathlib
import pty
import re
import select
import signal
import socket
import socketserver
import stat
import subprocess
import tarfile
import threading
import time

from cases_archive import make_tree, raw_head, tree_of
from common import directory, hardlink, member, noise, scratch, symlink, tar
from harness import BOTHY, check, equal, eventually


def cp(node, *args, ok=True, **kw):
    r = node.cli("cp", *map(str, args), **kw)
    if ok and r.returncode:
        raise AssertionError(f"cp {args}: {r.returncode} {r.stderr!r}")
    return r


def rules(suite, node, f):
    sb = f.sandbox

    @suite.case("cp: docker's rules for what a copy is called, both ways")
    def _():
        with scratch() as top:
            (top / "dir" / "sub").mkdir(parents=True)
            (top / "dir" / "f").write_text("f")
            (top / "dir" / "sub" / "g").write_text("g")
            (top / "one").write_text("one")
            f.shell("mkdir -p /tmp/cp/there")
            for source, target, want in [
                    ("one", "/tmp/cp/new", "new"), ("one", "/tmp/cp/new", "new"), ("one", "/tmp/cp/there", "there/one"),
                    ("one", "/tmp/cp/there/", "there/one"), ("dir", "/tmp/cp/d1", "d1/sub/g"), ("dir", "/tmp/cp/there", "there/dir/sub/g"),
                    ("dir/.", "/tmp/cp/there", "there/sub/g"), ("dir/", "/tmp/cp/d2", "d2/sub/g"), ("dir/.", "/tmp/cp/d3", "d3/sub/g")]:
                cp(node, str(top) + "/" + source, f"{sb}:{target}")
                f.stat("/tmp/cp/" + want)
            os.chdir(top / "dir")
            cp(node, ".", f"{sb}:/tmp/cp/d4")
            f.stat("/tmp/cp/d4/sub/g")
            for source, target, want in [
                    ("/tmp/cp/new", "out1", "out1"), ("/tmp/cp/new", "", "new"), ("/tmp/cp/d1", "o1", "o1/sub/g"), ("/tmp/cp/d1", "", "d1/sub/g"),
                    ("/tmp/cp/d1/.", "o2", "o2/sub/g"), ("/tmp/cp/d1/", "o3", "o3/sub/g"), ("/tmp/cp/d1/.", "", "sub/g")]:
                cp(node, f"{sb}:{source}", f"{top}/{target}")
                check((top / want).read_text() in ("one", "g"), want)
            for args in [(top / "dir", f"{sb}:/tmp/cp/new"), (f"{sb}:/tmp/cp/d1", top / "one"), (top / "one", f"{sb}:/tmp/cp/none/"),
                         (top / "nothing", f"{sb}:/tmp"), (f"{sb}:/nothing", top), (f"{sb}:/tmp/cp/new", f"{top}/no/such/x"),
                         (top / "one", top / "two"), (f"{sb}:/a", f"{sb}:/b"), (top / "one", "nobody-knows:/tmp")]:
                r = cp(node, *args, ok=False)
                equal(r.returncode, 125, f"{args}: {r!r}")
                check(b"remedy:" in r.stderr, f"{r.stderr!r}")
            os.chdir("/")

    @suite.case("cp: a tar on stdin and on stdout")
    def _():
        f.shell("mkdir -p /tmp/pipe")
        cp(node, "-", f"{sb}:/tmp/pipe", input=tar(member("x/y", b"piped")))
        equal(f.read("/tmp/pipe/x/y"), b"piped", "from stdin")
        with tarfile.open(fileobj=io.BytesIO(cp(node, f"{sb}:/tmp/pipe", "-").stdout)) as t:
            equal(t.extractfile("x/y").read(), b"piped", "on stdout")

    @suite.case("cp: what cannot be read there is no success")
    def _():
        f.shell("mkdir -p /tmp/part; echo a >/tmp/part/a; echo b >/tmp/part/b; chmod 600 /tmp/part/b")
        with scratch() as top:
            for to in (top / "part", "-"):
                r = node.cli("cp", "-u", "1000", f"{sb}:/tmp/part", to)
                check(r.returncode == 125 and b"1 of the entries cannot be read and is not in the copy" in r.stderr and b"--user root" in r.stderr, repr(r))
            equal(sorted(os.listdir(top / "part")), ["a"], "what came")
            with tarfile.open(fileobj=io.BytesIO(r.stdout)) as t:
                equal(t.getnames()[1:], ["a"], "what is in the tar")
            cp(node, "-u", "root", f"{sb}:/tmp/part", top / "all")
            equal(sorted(os.listdir(top / "all")), ["a", "b"], "what root has")

    @suite.case("cp: a full disk on this side is named as such, not as the node's or a fault of bothy")
    def _():
        f.write("/tmp/larger", b"".join(noise(1 << 20)))
        options = {"env": {**os.environ, "BOTHY_SOCKET": node.path}, "stderr": subprocess.PIPE, "timeout": 60, "check": False}
        with scratch() as top, open("/dev/full", "wb") as full:
            small = 'mount -t tmpfs -o size=64k none "$1"; shift; exec "$@"'  # in a mount namespace of its own
            r = subprocess.run(["unshare", "--mount", "sh", "-ec", small, "sh", top, BOTHY, "cp", f"{sb}:/tmp/larger", f"{top}/copy"], **options)
            check(r.returncode == 125 and b"Free space on this machine" in r.stderr, repr(r))
            r = subprocess.run([BOTHY, "cp", f"{sb}:/tmp/larger", "-"], stdout=full, **options)
            check(r.returncode == 125 and b"cannot write the archive" in r.stderr and b"fault of bothy" not in r.stderr, repr(r))

    @suite.case("cp -a: everything survives there and back; without it owners are the user's")
    def _():
        with scratch() as top:
            (top / "a").mkdir()
            make_tree(top / "a")
            cp(node, "-a", top / "a", f"{sb}:/tmp/cpa")
            r = cp(node, "-a", f"{sb}:/tmp/cpa", top / "b")
            check(b"1 left out" in r.stderr, f"{r.stderr!r}")  # the FIFO
            before, after = tree_of(top / "a"), tree_of(top / "b")
            del before[b"fifo"]
            for name in sorted(before.keys() | after.keys()):
                want = before.get(name)
                if want:  # set-id bits never come out
                    want = (oct(int(want[0], 8) & ~0o7000), *want[1:])
                equal(after.get(name), want, f"{name!r}")
            check(os.stat(top / "b" / "sparse").st_blocks < 2048, "the holes came back filled")
            cp(node, top / "a" / "empty", f"{sb}:/tmp/cpo")
            equal(f.shell("stat -c '%u %g' /tmp/cpo").strip(), "0 0", "owner inside")

    @suite.case("cp: a link that an earlier copy brought leads nowhere")
    def _():
        f.shell("rm -rf /tmp/two; mkdir -p /tmp/two/work; echo evil > /tmp/two/work/keys")
        with scratch() as top:
            (top / "secret").mkdir()
            (top / "out").mkdir()
            f.shell(f"mkdir -p /tmp/first; ln -sfn {top}/secret /tmp/first/work")
            cp(node, f"{sb}:/tmp/first/.", top / "out")
            check((top / "out" / "work").is_symlink(), "the link came")
            r = cp(node, f"{sb}:/tmp/two/work", top / "out", ok=False)
            equal((r.returncode != 0, os.listdir(top / "secret")), (True, []), "what lies behind the link")
            for source in ("/tmp/two/work/..", "/tmp/two/.."):
                r = cp(node, f"{sb}:{source}", top / "out", ok=False)
                equal((r.returncode != 0, sorted(os.listdir(top))), (True, ["out", "secret"]), source)

    @suite.case("cp: no bytes of a sandbox on a terminal")
    def _():
        status, out = on_terminal([BOTHY, "cp", f"{sb}:/tmp/two", "-"], {"BOTHY_SOCKET": node.path})
        check(status != 0 and "evil" not in out and "remedy" in out, f"{status} {out[-300:]!r}")

    @suite.case("cp: --json, --quiet, and a summary on stderr alone")
    def _():
        with scratch() as top:
            (top / "f").write_bytes(b"x" * 1000)
            r = cp(node, "--json", top / "f", f"{sb}:/tmp/j")
            j = json.loads(r.stdout)
            equal((j["files"], j["bytes"], j["left_out"], r.stderr), (1, 1000, 0, b""), "json")
            r = cp(node, "-q", f"{sb}:/tmp/j", top / "g")
            equal((r.stdout, r.stderr), (b"", b""), "quiet")
            r = cp(node, f"{sb}:/tmp/j", top / "h")
            equal(r.stdout, b"", "stdout")
            check(b"copied 1000 B in 1 file" in r.stderr, f"{r.stderr!r}")


def on_terminal(argv, env, until=60):
    """(status, everything it wrote) of a program whose stderr is a terminal."""
    master, slave = pty.openpty()
    p = subprocess.Popen(argv, stdout=slave, stderr=slave, env={**os.environ, **env, "TERM": "xterm"})
    os.close(slave)
    out, end = b"", time.monotonic() + until
    while time.monotonic() < end:
        if select.select([master], [], [], 0.1)[0]:
            try:
                piece = os.read(master, 65536)
            except OSError:
                break
            if not piece:
                break
            out += piece
    os.close(master)
    return p.wait(10), out.decode()


def interrupted(suite, node, f):
    sb, env = f.sandbox, {"BOTHY_SOCKET": node.path}

    @suite.case("cp: a bar on a terminal, gone at the end")
    def _():
        with scratch() as top:
            with open(top / "f", "wb") as out:
                for piece in noise(150 << 20):
                    out.write(piece)
            status, out = on_terminal([BOTHY, "cp", str(top / "f"), f"{sb}:/tmp/bar"], env)
            equal(status, 0, f"status ({out[-300:]!r})")
            shown = [int(p) for p in re.findall(r"\] +(\d+) %", out)]
            check(shown and shown == sorted(shown) and shown[-1] <= 100, f"{shown}")
            equal(out.split("\x1b[K")[-1].strip(), "copied 150.0 MiB in 1 file", "what stays")
            status, out = on_terminal([BOTHY, "cp", f"{sb}:/tmp/bar", str(top / "g")], env)
            check(status == 0 and "%" in out, f"{status} {out[-300:]!r}")
            equal((top / "f").read_bytes() == (top / "g").read_bytes(), True, "content")

    def interrupt(argv, ready, before):
        """One that was over when the signal came tells nothing: again."""
        for _ in range(5):
            before()
            p = subprocess.Popen([BOTHY, "cp", *argv], env={**os.environ, **env}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
            eventually("the copy is under way", lambda p=p: ready() or p.poll() is not None, 20, 0.002)
            p.send_signal(signal.SIGINT)
            err = p.communicate(timeout=20)[1]
            if p.returncode:
                break
        return p.returncode, err

    @suite.case("cp: Ctrl-C ends it at once while the daemon does not answer")
    def _():
        with scratch() as top, socket.socket(socket.AF_UNIX) as silent:
            silent.bind(str(top / "s"))
            silent.listen()
            (top / "f").write_text("one file")
            p = subprocess.Popen([BOTHY, "cp", str(top / "f"), "some:/tmp/"], env={**os.environ, "BOTHY_SOCKET": str(top / "s")}, stderr=subprocess.PIPE)
            connection = silent.accept()[0]
            with connection:
                connection.recv(1)
                p.send_signal(signal.SIGINT)
                err = p.communicate(timeout=10)[1]
            equal((p.returncode, b"interrupted" in err), (130, True), f"status, and what it says ({err!r})")

    @suite.case("cp: Ctrl-C leaves a message and no half file, on either side")
    def _():
        f.shell("rm -rf /tmp/int; mkdir /tmp/int; mkdir /tmp/int/d;"
                " head -c 400000000 /dev/zero > /tmp/int/d/z")
        with scratch() as top:
            out = top / "out"
            out.mkdir()
            status, err = interrupt([f"{sb}:/tmp/int/d/z", str(out)], lambda: len(os.listdir(out)) > 1, lambda: (out / "z").write_text("old"))
            equal(status, 130, f"status ({err!r})")
            check(b"interrupted" in err and b"remedy:" in err, f"{err!r}")
            equal(([*os.listdir(out)], (out / "z").read_text()), (["z"], "old"), "what is left here")
            with open(top / "big", "wb") as big:
                for piece in noise(400 << 20):
                    big.write(piece)

            def inside():
                # ls looks at each name again, and says so if one is gone by then.
                return sorted(f.shell("ls -A /tmp/int || :").split())
            status, err = interrupt([str(top / "big"), f"{sb}:/tmp/int/f"], lambda: len(inside()) > 2, lambda: f.shell("echo old > /tmp/int/f"))
            equal(status, 130, f"status ({err!r})")
            eventually("nothing of it inside", lambda: inside() == ["d", "f"], 15)
            equal(f.read("/tmp/int/f"), b"old\n", "the file inside")
        f.shell("rm -rf /tmp/int")


@contextlib.contextmanager
def fake_daemon(answer):
    """A daemon that says every sandbox and path exists, and sends `answer` as the archive of everything."""
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_GET(self):
            if "/archive" in self.path:
                body, kind = answer["tar"], "application/x-tar"
            elif "/stat" in self.path:
                body, kind = json.dumps({"name": "x", "type": answer["type"], "size": 1}).encode(), "application/json"
            else:
                body, kind = json.dumps({"id": "b000aaaaaaaaaaaaaaaa"}).encode(), "application/json"
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(body)

    class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=lambda: server.serve_forever(0.02), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def hostile(suite):
    """What a sandbox sends lands below the target, as plain files, or not at all."""
    def receive(name, data, kind="directory", statuses=(0, 125), inside=None):
        @suite.case("cp from a hostile sandbox: " + name)
        def _():
            with scratch() as top, fake_daemon({"tar": data(top) if callable(data) else data, "type": kind}) as url:
                (top / "victim").mkdir()
                (top / "victim" / "own").write_text("own")
                (top / "target").mkdir()
                r = subprocess.run([BOTHY, "cp", "--url", url, "box:/x", str(top / "target" / "x")], capture_output=True, timeout=60, check=False,
                                   env={**os.environ, "BOTHY_KEY": "k"})
                check(r.returncode in statuses, f"{r!r}")
                equal(sorted(os.listdir(top)), ["target", "victim"], "beside the target")
                equal((os.listdir(top / "victim"), (top / "victim" / "own").read_text(), os.stat(top / "victim" / "own").st_nlink),
                      (["own"], "own", 1), "the victim")
                check(not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]", r.stderr + r.stdout), f"control characters: {r.stderr!r}")
                for where, dirs, files in os.walk(top / "target"):
                    for n in dirs + files:
                        st = os.lstat(os.path.join(where, n))
                        check(stat.S_ISREG(st.st_mode) or stat.S_ISDIR(st.st_mode) or stat.S_ISLNK(st.st_mode), f"{n} is special")
                        check(stat.S_ISLNK(st.st_mode) or not st.st_mode & 0o7000, f"{n} has mode {oct(st.st_mode)}")
                        check(not n.startswith(".bothy-cp-"), f"{n} is left")
                if inside:
                    inside(top / "target")

    receive("'../' in names", tar(member("../victim/own", b"no"), member("a/../../../victim/own", b"no")), statuses=(125,))
    receive("absolute names", lambda top: tar(member(f"{top}/victim/own", b"no")))
    receive("a link, then a file through it", lambda top: tar(symlink("l", f"{top}/victim"), member("l/own", b"no")), statuses=(125,))
    receive("a relative link, then a directory through it", tar(symlink("l", "../../victim"), directory("l/d"), member("l/d/f", b"no")), statuses=(125,))
    receive("a link, then a file of its name", lambda top: tar(symlink("l", f"{top}/victim/own"), member("l", b"new")), statuses=(0,),
            inside=lambda t: equal((t / "x/l").read_bytes(), b"new", "the file"))
    receive("a hard link to outside", lambda top: tar(hardlink("h", f"{top}/victim/own"), member("h", b"no")), statuses=(125,))
    receive("a hard link over a link", lambda top: tar(symlink("s", f"{top}/victim"), hardlink("h", "s/own"), member("h", b"no")), statuses=(125,))
    receive("set-uid files, devices, FIFOs", tar(member("suid", b"#!", mode=0o6755), ("dev", {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 5}, b""),
                                                 ("fifo", {"type": tarfile.FIFOTYPE}, b""), directory("sticky", 0o7777)), statuses=(0,))
    receive("more than the one file asked for", tar(member("x", b"1"), member("y", b"2")), kind="file", statuses=(125,))
    receive("a directory instead of a file", tar(directory("x"), member("x/y", b"2")), kind="file", statuses=(125,))
    receive("terminal escapes in names", tar(member("\x1b]0;owned\x07", b"1"), member("a/../\x1b[2J\u009b31m", b"2")), statuses=(125,))
    receive("a size that does not come", raw_head(b"x", 1 << 40) + b"y" * 10_000, kind="file", statuses=(125,))
    receive("no archive at all", b"<html>" * 500, statuses=(125,))
    receive("an archive cut short", tar(member("big", b"z" * 100_000))[:50_000], statuses=(125,))
    receive("a file over a directory that has something in it", tar(directory("d"), member("d/f", b"1"), member("d", b"2")), statuses=(125,))


def run(suite, node, f):
    rules(suite, node, f)
    interrupted(suite, node, f)
    hostile(suite)

"""Versions that do not meet: frames of the warden, records of the spine, formats on the disk."""
import contextlib
import os
import pathlib
import pwd
import socket
import struct
import subprocess
import tempfile
import threading
import time

from harness import SLOW, TOP, Node, alive, check, equal, eventually

HERE = pathlib.Path(__file__).resolve().parent

HELLO, ANSWER = 1, 0x80000000
EPROTONOSUPPORT = 93


def greet(path, low, high):
    """(errno, low, high, caps) or (errno, text) that the warden answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.settimeout(10)
        s.connect(path)
        s.send(struct.pack("<IiQ", HELLO, 0, 7) + struct.pack("<IIII", low, high, 0, 0))
        raw = s.recv(65536)
    kind, errnum, request = struct.unpack_from("<IiQ", raw)
    equal((kind, request), (HELLO | ANSWER, 7), "type and number of the answer")
    if errnum:
        return errnum, raw[24:].decode()
    return (0, *struct.unpack_from("<III", raw, 16))


def as_bothyd(body):
    """The warden's socket is bothyd's: run by a child of that uid."""
    user = pwd.getpwnam("bothy")
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.setgroups([])
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)
            os.write(write, repr(body()).encode())
        except BaseException as e:  # noqa: BLE001: told by the parent
            os.write(write, repr(e).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as f:
        text = f.read()
    os.waitpid(pid, 0)
    return eval(text, {"__builtins__": {}})  # noqa: S307: our own child's repr


def warden_frames(suite, node):
    path = f"{node.dir}/run/warden.sock"

    @suite.case("a bothyd that speaks more versions than the warden gets the newest that both know")
    def _():
        version = node.ok("GET", "/v1/info")["versions"]["warden"]
        got = as_bothyd(lambda: greet(path, 1, version + 7))
        equal(got[:3], (0, version, version), "error and version")

    @suite.case("versions that do not meet are refused with what to do")
    def _():
        errnum, text = as_bothyd(lambda: greet(path, 100, 101))
        equal(errnum, EPROTONOSUPPORT, "errno")
        check("upgrade bothyd first" in text and "100 to 101" in text, text)
        node.ok("GET", "/v1/info")

    @suite.case("a frame of a type that is not known yet is refused, and the connection is good for the next")
    def _():
        def talk():
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                s.settimeout(10)
                s.connect(path)
                s.send(struct.pack("<IiQ", HELLO, 0, 1) + struct.pack("<IIII", 1, 1, 0, 0))
                s.recv(65536)
                s.send(struct.pack("<IiQ", 9999, 0, 2))
                first = struct.unpack_from("<IiQ", s.recv(65536))
                s.send(struct.pack("<IiQ", HELLO, 0, 3) + struct.pack("<IIII", 1, 1, 0, 0))
                return first, struct.unpack_from("<IiQ", s.recv(65536))
        first, second = as_bothyd(talk)
        check(first[1] > 0 and first[2] == 2, f"answer {first}")
        equal(second[1:], (0, 3), "the next answer")


class Pretender:
    """A warden that is newer than bothyd knows: it refuses every greeting, or answers with its own version."""

    def __init__(self, path, answer):
        self.path, self.answer = path, answer

    def __enter__(self):
        with contextlib.suppress(OSError):
            os.unlink(self.path)
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.bind(self.path)
        os.chmod(self.path, 0o666)
        self.sock.listen(8)
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self.sock.accept()
                raw = peer.recv(65536)
                peer.send(self.answer(struct.unpack_from("<IiQ", raw)[2]))
                time.sleep(0.1)
                peer.close()

    def __exit__(self, *_):
        self.sock.close()


def refusal(request):
    return struct.pack("<IiQ", HELLO | ANSWER, EPROTONOSUPPORT, request) + struct.pack("<II", 0, 0) + b"this warden speaks version 7 only"


def another(request):
    return struct.pack("<IiQ", HELLO | ANSWER, 0, request) + struct.pack("<IIII", 7, 7, 0, 0)


def newer_warden(suite, node):
    for name, answer in (("refuses", refusal), ("answers with its own version", another)):
        @suite.case(f"bothyd beside a newer warden that {name} does not start, and says why")
        def _(answer=answer):
            node.kill("bothyd", 15)
            with Pretender(f"{node.dir}/run/warden.sock", answer):
                node.restart("bothyd", wait=False)
                pid = node.pid("bothyd")
                eventually("it ends", lambda p=pid: not alive(p), 20)
            text = node.log("bothyd")[-600:]
            check("another version of its frames" in text and "remedy" in text and "of one release" in text, text)


def slot_formats(suite, node):
    @suite.case("slots of a newer format: the warden does not start, touches nothing and says why; with its own it goes on")
    def _():
        sb = node.create()
        node.kill("warden")
        claimed = [p for p in pathlib.Path(node.dir, "warden", "slots").glob("*/claim") if sb in p.read_text()]
        state = claimed[0].with_name("state")
        old = state.read_text()
        state.write_text("2" + old[1:] + "and what only a newer one knows\n")
        node.restart("warden", wait=False)
        pid = node.pid("warden")
        eventually("it ends", lambda p=pid: not alive(p), 20)
        text = node.log("warden")[-600:]
        check("has format 2, this warden knows up to 1" in text and "newer one" in text, text)
        state.write_text(old)
        node.restart("warden")
        equal(node.shell(sb, "echo here"), "here\n", "a command in it")

    @suite.case("a damaged state file of a claimed slot is found out and written again; the sandbox lives")
    def _():
        for damage in ("", "garbage", "1 0 0 x\n"):
            sb = node.create()
            ident = node.start(sb, "sleep 1; echo lived")
            node.kill("warden")
            claimed = [p for p in pathlib.Path(node.dir, "warden", "slots").glob("*/claim") if sb in p.read_text()]
            state = claimed[0].with_name("state")
            state.write_text(damage)
            node.restart("warden")
            eventually("it is written again", lambda: len(state.read_text().split()) == 5, 5)
            equal(node.wait(sb, ident)["exit_code"], 0, "exit code")
            check(f"slots/{state.parent.name}/state was missing or damaged" in node.log("warden"), "it is not in the log")
            node.delete(sb)
            eventually("it is gone", lambda: not state.exists(), 10)


def newer_init(suite):
    name = "a bothy-init that speaks a newer version of the spine: no slot is made of it, and everybody is told which versions"
    if not suite.wants(name):
        return
    with tempfile.TemporaryDirectory(prefix="bothy-init-") as there:
        program = f"{there}/newer-init"
        subprocess.run(["cc", "-static", f"-I{TOP}/src", HERE / "newer_init.c", "-o", program], check=True)
        os.chmod(there, 0o755)
        with Node(pool="1:2", warden=f"--init {program}") as node:
            @suite.case(name)
            def _():
                pool = eventually("a refill fails", lambda: next((p for p in node.ok("GET", "/v1/pools")["pools"] if p["failures"]), None))
                check("speaks version 2 of the spine, this warden 1 to 1" in pool["last_error"], pool["last_error"])
                a = node.call("POST", "/v1/sandboxes", {"image": "busybox", "queue_wait": SLOW}, timeout=20)
                equal((a.status, a.error["code"]), (503, "pool_exhausted"), "the answer")
                check(pool["last_error"] in a.error["cause"], a.error)


def run(suite):
    newer_init(suite)
    if not suite.wants_any(warden_frames, slot_formats, newer_warden):
        return
    with Node(pool="1:2") as node:
        warden_frames(suite, node)
        slot_formats(suite, node)
        newer_warden(suite, node)

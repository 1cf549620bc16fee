"""…/attach, …/resize and …/terminal as a program would use them, and as one would misuse them."""
import datetime
import hashlib
import json
import os
import re
import socket
import struct
import threading
import time

from attached import Attached
from common import equal, until
from websocket import BINARY, CLOSE, PING, TEXT, Closed, Refused, WebSocket, frame

MESSAGE_MAX = 64 * 1024


def attach_path(sandbox, exec_id, query=""):
    return f"/v1/sandboxes/{sandbox}/processes/{exec_id}/attach{query}"


def refused(status, *args, **options):
    try:
        WebSocket.open(*args, **options).abandon()
    except Refused as e:
        equal(e.status, status, f"status ({e})")
        return e
    raise AssertionError(f"it was let in, not refused with {status}")


def cases(suite, node):
    box = node.create()

    def start(argv, **spec):
        return node.start(box, argv, **spec)

    def attach(exec_id, query="", **options):
        return Attached(node, attach_path(box, exec_id, query), **options)

    # ---- what it is for ----

    @suite.case("pipes: input, both streams, end of input, end record, close 1000")
    def _():
        a = attach(start("cat; echo done >&2; exit 3", stdin_open=True))
        equal((a.hello["stdio"], a.hello["stdin"], a.hello["offset"]), ("pipes", True, "0.0"), "hello")
        a.type("one\n")
        a.until(b"one\n")
        a.type("two\n")
        a.control(stdin="eof")
        end = a.finish()
        equal((a.out, a.err), (b"one\ntwo\n", b"done\n"), "streams")
        equal((end["how"], end["exit_code"], end["out_bytes"]), ("exited", 3, 8), "end")
        equal(a.code, 1000, "code")

    @suite.case("a terminal: size, resize over the socket and over REST, Ctrl-C, colours")
    def _():
        script = r"""trap 'echo size $(stty size)' WINCH; trap 'echo interrupted; exit 7' INT
                     echo first $(stty size); while :; do sleep 0.1; done"""
        a = attach(start(script, stdio="pty", stdin_open=True, rows=31, cols=97))
        equal(a.hello["stdio"], "pty", "stdio")
        a.until(b"first 31 97")
        a.control(resize={"rows": 50, "cols": 132})
        a.until(b"size 50 132")
        node.ok("POST", node.at(box, a.exec, "/resize"), {"rows": 22, "cols": 44})
        a.until(b"size 22 44")
        a.type("\x03")
        end = a.finish()
        equal((end["how"], end["exit_code"]), ("exited", 7), "end")
        assert b"interrupted" in a.out, a.out

    @suite.case("signals come through the socket, with their scope")
    def _():
        a = attach(start("echo up; sleep 100"))
        a.until(b"up")
        a.control(signal="TERM", scope="tree")
        equal(a.finish()["how"], "killed", "how")

    @suite.case("coming back goes on at the offset; scrollback begins at a line")
    def _():
        x = start("i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; cat", stdin_open=True)
        first = attach(x, "?offset=0")
        first.until(b"line 999\n")
        first.ws.abandon()
        first.out = first.out[:first.out.index(b"line 999\n") + 9]  # as if it had got no further
        at = len(first.out)
        again = attach(x, f"?offset={at}")
        equal(again.hello["offset"], f"{at}.0", "offset")
        whole = first.out + again.until(b"line 1999\n")
        equal(whole, b"".join(b"line %d\n" % i for i in range(2000)), "bytes")
        third = attach(x, "?scrollback=100")
        third.until(b"line 1999\n")
        assert third.out.startswith(b"line 19") and 60 < len(third.out) <= 100, third.out
        equal(int(third.hello["offset"].split(".")[0]), len(whole) - len(third.out), "offset")
        live = attach(x, "?scrollback=0")
        live.type("now\n")
        equal(live.until(b"now\n"), b"now\n", "nothing before it")
        a = refused(416, node, attach_path(box, x, "?offset=99999999"))
        assert b"beyond the stream" in a.body, a.body
        live.control(stdin="eof")
        assert live.finish() and again.finish()["exit_code"] == 0
        late = attach(x, "?offset=0")  # one that has ended is read to its end
        equal(late.finish()["exit_code"], 0, "end")
        equal(late.out, whole + b"now\n", "bytes of an ended one")

    @suite.case("several attached see the same, and any of them types")
    def _():
        x = start("cat", stdin_open=True)
        all_of = [attach(x) for _ in range(5)]
        for i, a in enumerate(all_of):
            a.type(f"from {i}\n")
            for other in all_of:
                other.until(b"from %d\n" % i)
        all_of[0].control(stdin="eof")
        for a in all_of:
            equal(a.finish()["how"], "exited", "how")
            equal(a.out, all_of[0].out, "bytes")

    @suite.case("a shell by …/terminal: named in the first message, survives its connection")
    def _():
        a = Attached(node, f"/v1/sandboxes/{box}/terminal?rows=40&cols=100&env=TERM%3Dxterm-256color&env=WHO%3Da%20b&cwd=/tmp")
        a.type("echo $TERM/$WHO/$(pwd)/$(stty size)/$((6*7)); V=kept\n")
        a.until(b"xterm-256color/a b//tmp/40 100/42")
        a.ws.abandon()
        b = attach(a.exec)
        b.type("echo state=$V; exit 9\n")
        b.until(b"state=kept")
        equal(b.finish()["exit_code"], 9, "exit code")

    @suite.case("a key is echoed: 500 times, one after the other")
    def _():
        a = attach(start("stty raw -echo; echo ready; cat", stdio="pty", stdin_open=True), "?offset=0")
        a.until(b"ready")
        times = []
        for i in range(500):
            n, began = len(a.out), time.monotonic()
            a.type("abcdefghij"[i % 10])
            while len(a.out) == n:
                a.turn()
            times.append((time.monotonic() - began) * 1000)
        assert a.out.endswith(b"abcdefghij" * 50), a.out[-100:]
        times.sort()
        node.echo_ms = {"p50": round(times[250], 2), "p99": round(times[494], 2)}
        print(f"      echo of a key: {node.echo_ms['p50']} ms, p99 {node.echo_ms['p99']}", flush=True)
        a.ws.abandon()
        node.ok("DELETE", node.at(box, a.exec))

    @suite.case("a shell that cannot start is an error, not a socket")
    def _():
        e = refused(400, node, f"/v1/sandboxes/{box}/terminal?cwd=/nowhere")
        equal(json.loads(e.body)["error"]["code"], "cwd_not_found", "code")
        e = refused(400, node, f"/v1/sandboxes/{box}/terminal?user=nobody-like-this")
        equal(json.loads(e.body)["error"]["code"], "user_not_found", "code")
        refused(400, node, f"/v1/sandboxes/{box}/terminal?env=novalue")
        refused(400, node, f"/v1/sandboxes/{box}/terminal?rows=0")
        refused(404, node, f"/v1/sandboxes/{'x' * 20}/terminal")
        refused(404, node, attach_path(box, 999999))

    @suite.case("the terminal belongs to its user, who can open it by name")
    def _():
        with node.sandbox("user", user="alice") as other:  # named: where images are names only their USER is not known
            a = Attached(node, f"/v1/sandboxes/{other}/terminal")
            a.type("id -un; echo hello > $(tty) && echo opened; exit\n")
            a.until(b"opened\r\n")
            assert b"alice" in a.out, a.out

    # ---- limits ----

    @suite.case("input a command does not read pushes back, then all of it arrives")
    def _():
        a = attach(start("read go; sleep 2; cat | md5sum", stdin_open=True))
        data = os.urandom(1 << 16) * 96  # 6 MiB; the daemon takes about one
        sent = []

        def pour():
            a.type("go\n")
            for i in range(0, len(data), 60000):
                a.type(data[i:i + 60000])
                sent.append(time.monotonic())
            a.control(stdin="eof")
        began = time.monotonic()
        t = threading.Thread(target=pour)
        t.start()
        end = a.finish(120)
        t.join()
        equal(end["exit_code"], 0, "exit code")
        equal(a.out.split()[0].decode(), hashlib.md5(data).hexdigest(), "sum")
        assert sent[-1] - began > 1.5, f"6 MiB were taken in {sent[-1] - began:.2f} s while nobody read"

    @suite.case("an interrupt comes through a flood that is not read")
    def _():
        for _ in range(10):  # a busy machine is late at times, but not always
            a = attach(start("trap 'exit 4' INT; echo go; while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done", stdio="pty",
                             stdin_open=True), "?offset=0")
            a.until(b"go")
            time.sleep(1)  # everything between us is full now
            sent = time.time()
            a.type("\x03")
            time.sleep(1)
            end = a.finish()
            equal(end["exit_code"], 4, "exit code")
            took = datetime.datetime.fromisoformat(end["ended"].replace("Z", "+00:00")).timestamp() - sent
            if took < 1:
                break
        else:
            raise AssertionError(f"it ended {took:.1f} s after the interrupt, when the flood was read")

    @suite.case("beyond the ceiling a gap is told")
    def _():
        x = start(f"head -c {node.stream_max * 3} /dev/zero; echo tail")
        node.wait(box, x)
        a = attach(x, "?offset=0")
        end = a.finish()
        gaps = a.said("gap")
        assert gaps and gaps[0]["stream"] == "out", a.controls
        equal(len(a.out) + sum(g["to"] - g["from"] for g in gaps), end["out_bytes"], "bytes and gaps")
        assert a.out.endswith(b"tail\n")

    @suite.case("many at once: 300 attached to one command hold no thread")
    def _():
        x = start("echo ready; cat", stdin_open=True)
        threads = lambda: int(re.search(r"^bothy_http_threads (\S+)$", node.call("GET", "/metrics").body.decode(), re.M)[1])  # noqa: E731
        before = threads()
        everyone = [attach(x) for _ in range(300)]
        grown = threads() - before
        assert grown < 20, f"{grown} threads more"
        everyone[7].type("ping\n")
        for a in everyone:
            a.until(b"ping\n")
        everyone[0].control(stdin="eof")
        for a in everyone:
            equal(a.finish()["how"], "exited", "how")

    # ---- what has no effect is told ----

    @suite.case("control messages that make no sense are answered, and it goes on")
    def _():
        a = attach(start("cat", stdin_open=True))
        for bad in (b"{", b"[]", b'{"resize":{"rows":0,"cols":5}}', b'{"resize":{"rows":5}}', b'{"jump":1}', b'{"signal":"NOPE"}',
                    b'{"stdin":"now"}', b"\xff\xfe", b""):
            a.ws.send(b"\3" + bad)
            equal(a.error()["code"], "invalid_request", f"code of {bad}")
        a.control(resize={"rows": 5, "cols": 5})
        equal(a.error()["code"], "conflict", "no terminal")
        a.type("still\n")
        a.until(b"still\n")
        a.ws.close()
        b = attach(start("sleep 3; echo over"))
        b.type("x")
        b.type("y")
        equal(b.error()["code"], "conflict", "no stdin")
        end = b.finish()
        equal((end["exit_code"], len(b.said("error"))), (0, 1), "told once")

    @suite.case("resize over REST: bounds, no terminal, ended")
    def _():
        x = start("sleep 100", stdio="pty", stdin_open=True)
        for body in ({"rows": 0, "cols": 1}, {"rows": 1}, {"rows": 1, "cols": 1001}, {"rows": 1, "cols": 1, "x": 1}):
            equal(node.call("POST", node.at(box, x, "/resize"), body).status, 400, f"status of {body}")
        node.ok("DELETE", node.at(box, x))
        node.wait(box, x)
        until("it is over", lambda: node.call("POST", node.at(box, x, "/resize"), {"rows": 5, "cols": 5}).status == 409)
        y = start("sleep 1")
        equal(node.call("POST", node.at(box, y, "/resize"), {"rows": 5, "cols": 5}).error["code"], "conflict", "code")

    # ---- frames ----

    @suite.case("fragments, pings in between, one byte a packet, empty messages")
    def _():
        a = attach(start("cat", stdin_open=True))
        a.ws.raw(frame(BINARY, b"\0fra", fin=False))
        a.ws.raw(frame(PING, b"between"))
        a.ws.raw(frame(0, b"gmen", fin=False) + frame(0, b"", fin=False))
        a.ws.raw(frame(0, b"ted\n"))
        a.until(b"fragmented\n")
        until("the pong", lambda: a.pongs or a.turn() or a.pongs)
        for byte in frame(BINARY, b"\0slow\n"):
            a.ws.raw(bytes([byte]))
        a.until(b"slow\n")
        a.type("")
        a.type(b"x" * (MESSAGE_MAX - 1) + b"\n")
        a.until(b"x\n")
        a.control(stdin="eof")
        equal(a.finish()["exit_code"], 0, "exit code")

    @suite.case("what a client must not send is closed with its code; the command goes on")
    def _():
        x = start("cat", stdin_open=True)
        for what, data, codes in (
                ("no mask", frame(BINARY, b"\0x", mask=None), {1002}),
                ("a reserved bit", frame(BINARY, b"\0x", rsv=4), {1002}),
                ("an unknown opcode", frame(3, b"x"), {1002}),
                ("a continuation of nothing", frame(0, b"x"), {1002}),
                ("a new message inside of one", frame(BINARY, b"\0x", fin=False) + frame(BINARY, b"\0y"), {1002}),
                ("a long ping", frame(PING, b"x" * 126), {1002, 1005}),
                ("a ping in pieces", frame(PING, b"x", fin=False), {1002, 1005}),
                ("a text message", frame(TEXT, b"\0x"), {1003}),
                ("text that is not UTF-8", frame(TEXT, b"\xff"), {1003, 1007}),
                ("an unknown kind", frame(BINARY, b"\x09x"), {1003}),
                ("output from us", frame(BINARY, b"\1x"), {1003}),
                ("an empty message", frame(BINARY, b""), {1003}),
                ("too long", frame(BINARY, b"\0" + b"x" * (MESSAGE_MAX + 1)), {1009}),
                ("too long in pieces", frame(BINARY, b"\0" + b"x" * 60000, fin=False) + frame(0, b"x" * 60000), {1009}),
                ("2^62 bytes announced", frame(BINARY, b"\0x", length=1 << 62), {1009, 1002, 1005}),
                ("a bad close", frame(CLOSE, struct.pack(">H", 1005)), {1002}),
        ):
            a = attach(x)
            a.ws.raw(data)
            a.finish(10)
            if a.code not in codes:
                raise AssertionError(f"{what}: closed with {a.code}, not {codes}")
        p = node.process(box, x)
        equal((p["running"], p["stdin_open"]), (True, True), "the command")
        a = attach(x, "?offset=0")
        a.type("alive\n")
        equal(a.until(b"alive\n"), b"alive\n", "nothing of all that arrived")
        a.ws.close(4000)

    @suite.case("pings without reading: bounded, then answered")
    def _():
        a = attach(start("cat", stdin_open=True))
        a.ws.sock.settimeout(5)
        sent = 0
        try:
            while sent < 200000:  # far more than fits between us
                a.ws.raw(frame(PING, b"p" * 120) * 100)
                sent += 100
        except TimeoutError:
            pass  # pushed back
        assert sent < 200000, "25 MB of pings were taken though nobody read the answers"
        a.ws.sock.settimeout(60)
        while a.pongs < min(sent - 100, 1000):
            a.turn()
        a.ws.abandon()
        equal(node.process(box, a.exec)["running"], True, "the command")

    @suite.case("a handshake must be whole: version, key, upgrade, method")
    def _():
        x = start("cat", stdin_open=True)
        path = attach_path(box, x)
        for options in ({"version": "8"}, {"version": None}, {"key": "short"}, {"headers": {"Upgrade": "h2c"}},
                        {"headers": {"Connection": "close"}}, {"headers": {"Sec-WebSocket-Key": None}}):
            e = refused(400, node, path, **options)
            assert "Sec-WebSocket-Version: 13" in e.head, e.head
        equal(node.call("GET", path).status, 400, "a plain GET")
        equal(node.call("POST", path).status, 405, "a POST")
        ws = WebSocket.open(node, path, protocol="chat, bothy.v1")
        assert "Sec-WebSocket-Protocol: bothy.v1\r\n" in ws.head, ws.head
        ws.abandon()
        ws = WebSocket.open(node, path, headers={"Sec-WebSocket-Extensions": "permessage-deflate"})
        assert "Extensions" not in ws.head, ws.head
        ws.abandon()

    @suite.case("a page needs a key: Origin on the unix socket, and over TCP")
    def _():
        x = start("cat", stdin_open=True)
        path = attach_path(box, x)
        refused(401, node, path, headers={"Origin": "http://evil.example"})
        refused(401, node, path, headers={"Origin": "http://bothy"})
        refused(401, node, path, headers={"Origin": "null"})
        key = node.ok("POST", "/v1/keys", {"owner": "ann", "role": "user"})["key"]
        other = node.by_key(key)
        refused(404, other, path)
        mine = other.create()
        try:
            y = other.start(mine, ["cat"], stdin_open=True)
            a = Attached(other, attach_path(mine, y), headers={"Origin": "http://anywhere.example"})
            a.type("hello\n")
            a.until(b"hello\n")
            a.ws.close()
            other.key = None
            refused(401, other, attach_path(mine, y))
            refused(401, other, attach_path(mine, y) + "?key=" + key)
            reader = node.by_key(node.ok("POST", "/v1/keys", {"owner": "ann", "role": "read"})["key"])
            refused(403, reader, attach_path(mine, y))
        finally:
            node.delete(mine)

    @suite.case("leaving in any way leaves the command and no relay")
    def _():
        x = start("cat", stdin_open=True)
        relays = lambda: int(re.search(r"^bothy_http_relays (\S+)$", node.call("GET", "/metrics").body.decode(), re.M)[1])  # noqa: E731
        before = relays()
        for way in ("close", "abandon", "half", "reset", "mid-frame"):
            a = attach(x)
            if way == "close":
                a.ws.close()
            elif way == "half":
                a.ws.sock.shutdown(socket.SHUT_WR)
                a.ws.sock.settimeout(10)
                equal(a.ws.sock.recv(100), b"", "it hangs up")
                a.ws.abandon()
            elif way == "reset":
                a.ws.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                a.ws.abandon()
            else:
                a.ws.raw(frame(BINARY, b"\0abc", length=1000) if way == "mid-frame" else b"")
                a.ws.abandon()
        until("no relay is left", lambda: relays() <= before)
        equal(node.process(box, x)["running"], True, "the command")

    @suite.case("the sandbox ends: who is attached is told why")
    def _():
        other = node.create()
        x = node.start(other, ["cat"], stdin_open=True)
        a = Attached(node, attach_path(other, x))
        node.delete(other)
        end = a.finish()
        assert end["how"] in ("signalled", "unknown"), end  # which of the two was seen first
        if end["how"] == "unknown":
            equal(end["cause"]["kind"], "requested", "cause")
        equal(a.code, 1000, "code")

    if not suite.args.long:
        node.delete(box)
        return

    @suite.case("a peer that takes nothing for 60 s is cut, and comes back where it was")
    def _():
        x = start("yes | head -c 3000000; echo last")
        a = attach(x, "?offset=0")
        began = time.monotonic()
        until("it is cut", lambda: node.ok("GET", node.at(box, x))["end"] and gone(a.ws.sock), 150)
        assert time.monotonic() - began > 50
        a.finish()
        b = attach(x, f"?offset={len(a.out)}")
        b.finish()
        equal(len(a.out + b.out), 3000005, "bytes")

    @suite.case("a peer that answers no ping is given up after 90 s, one that does stays")
    def _():
        x = start("cat", stdin_open=True)
        dead, alive = attach(x), attach(x)
        dead.ws.pongs = False
        stop = time.monotonic() + 140

        def listen(a):
            a.ws.sock.settimeout(150)
            try:
                while time.monotonic() < stop:
                    a.turn()
            except Closed as e:
                a.code = ("closed", e.code, time.monotonic())
            except TimeoutError:
                pass
        began = time.monotonic()
        both = [threading.Thread(target=listen, args=(a,)) for a in (dead, alive)]
        for t in both:
            t.start()
        both[0].join()
        assert dead.code and 80 < dead.code[2] - began < 135, dead.code
        alive.type("here\n")
        time.sleep(1)
        alive.control(stdin="eof")
        both[1].join()
        assert b"here\n" in alive.out

    node.delete(box)


def gone(sock):
    """Whether the other side has closed, without reading."""
    from select import POLLERR, POLLHUP, POLLRDHUP, poll
    p = poll()
    p.register(sock, POLLRDHUP)
    return any(e & (POLLRDHUP | POLLHUP | POLLERR) for _, e in p.poll(0))

"""Commands with somebody in front of them: attach, resize, a terminal, a shell on one."""
from attached import Attached
from harness import check, equal, expect_error
from websocket import Closed, Refused, WebSocket, frame


def refused(status, *args, **options):
    try:
        WebSocket.open(*args, **options).abandon()
    except Refused as e:
        equal(e.status, status, "status")
        return e
    raise AssertionError(f"let in, not refused with {status}")


def cases(suite, node):
    with node.sandbox() as sb:
        pipes(suite, node, sb)
        terminals(suite, node, sb)
        mistakes(suite, node, sb)


def pipes(suite, node, sb):
    @suite.case("attach: input, both streams, the end of input, the end record, close 1000")
    def _():
        x = node.start(sb, "cat; echo done >&2; exit 3", stdin_open=True)
        a = Attached(node, node.at(sb, x, "/attach"))
        equal((a.hello["exec"], a.hello["stdio"], a.hello["stdin"], a.hello["offset"]), (x, "pipes", True, "0.0"), "hello")
        a.type("one\n")
        a.until(b"one\n")
        a.type("two\n")
        a.control(stdin="eof")
        end = a.finish()
        equal((bytes(a.out), bytes(a.err), a.code), (b"one\ntwo\n", b"done\n", 1000), "streams and code")
        equal((end["how"], end["exit_code"], end["out_bytes"], end["err_bytes"]), ("exited", 3, 8, 5), "end")

    @suite.case("attach: coming back at an offset misses nothing and repeats nothing")
    def _():
        x = node.start(sb, "echo one; read -r l; echo two; read -r l; echo three", stdin_open=True)
        first = Attached(node, node.at(sb, x, "/attach?offset=0"))
        first.until(b"one\n")
        first.ws.abandon()
        second = Attached(node, node.at(sb, x, f"/attach?offset={len(first.out)}.0"))
        second.type("\n")
        equal(bytes(second.until(b"two\n")), b"two\n", "only what is new")
        second.type("\n")
        equal(second.finish()["exit_code"], 0, "exit code")
        whole = Attached(node, node.at(sb, x, "/attach?offset=0"))  # after the end, too
        equal(whole.finish()["exit_code"], 0, "exit code")
        equal(bytes(whole.out), b"one\ntwo\nthree\n", "all of it")
        tail = Attached(node, node.at(sb, x, "/attach?scrollback=8"))
        tail.finish()
        equal(bytes(tail.out), b"three\n", "from the beginning of a line")

    @suite.case("attach: signals by control message")
    def _():
        x = node.start(sb, "trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done")
        a = Attached(node, node.at(sb, x, "/attach?offset=0"))
        a.until(b"up")
        a.control(signal="TERM")
        equal(a.finish()["exit_code"], 9, "exit code")


def terminals(suite, node, sb):
    @suite.case("a terminal has the size it was given, and is told of a new one")
    def _():
        x = node.start(sb, "trap 'echo now $(stty size)' WINCH; echo size $(stty size); while :; do sleep 0.05; done", stdio="pty",
                       stdin_open=True, rows=31, cols=97)
        a = Attached(node, node.at(sb, x, "/attach?offset=0"))
        a.until(b"size 31 97")
        a.control(resize={"rows": 50, "cols": 132})
        a.until(b"now 50 132")
        node.ok("POST", node.at(sb, x, "/resize"), {"rows": 10, "cols": 20})
        a.until(b"now 10 20")
        a.type("\x03")
        a.finish()

    @suite.case("resize of a command without a terminal is a conflict")
    def _():
        x = node.start(sb, "cat", stdin_open=True)
        expect_error(node.call("POST", node.at(sb, x, "/resize"), {"rows": 10, "cols": 20}), 409, "conflict")
        expect_error(node.call("POST", node.at(sb, x, "/resize"), {"rows": 0, "cols": 20}), 400, "invalid_request")
        a = Attached(node, node.at(sb, x, "/attach"))
        a.control(resize={"rows": 10, "cols": 20})
        equal(a.error()["code"], "conflict", "code")
        a.control(stdin="eof")
        equal(a.finish()["exit_code"], 0, "it goes on")

    @suite.case("a shell by …/terminal goes on without its connection")
    def _():
        a = Attached(node, f"/v1/sandboxes/{sb}/terminal?rows=40&cols=100&env=MARK%3Dset")
        a.type("echo $MARK-$((40+2)); V=kept\n")
        a.until(b"set-42")
        a.ws.abandon()
        b = Attached(node, node.at(sb, a.exec, "/attach"))
        b.type("echo state=$V; exit 9\n")
        b.until(b"state=kept")
        equal(b.finish()["exit_code"], 9, "exit code")


def mistakes(suite, node, sb):
    @suite.case("attach: only a whole handshake of a WebSocket is let in")
    def _():
        x = node.start(sb, "cat", stdin_open=True)
        path = node.at(sb, x, "/attach")
        expect_error(node.call("GET", path), 400, "invalid_request")
        for options in ({"version": "8"}, {"key": "short"}, {"headers": {"Upgrade": "other"}}):
            e = refused(400, node, path, **options)
            check("Sec-WebSocket-Version: 13" in e.head, "no version named")
        refused(416, node, node.at(sb, x, "/attach?offset=99999"))
        refused(404, node, node.at(sb, 999999, "/attach"))

    @suite.case("attach: a frame that is wrong closes the connection, not the command")
    def _():
        x = node.start(sb, "cat", stdin_open=True)
        for data, code in ((frame(2, b"\0x", mask=None), 1002), (frame(1, b"text"), 1003), (frame(2, b"\0" + b"x" * 100000), 1009)):
            a = Attached(node, node.at(sb, x, "/attach"))
            a.ws.raw(data)
            try:
                while True:
                    a.turn()
            except Closed as e:
                equal(e.code, code, "close code")
        check(node.process(sb, x)["running"], "the command has ended")

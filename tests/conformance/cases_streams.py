"""Output by offset: large, endless, left in the background, over the ceiling."""
import time

from harness import Skip, Watch, bytes_of, check, collect, equal, eventually, expect_error

MB3 = "yes 0123456789abcde | head -c 3000000"
LINES = 786432  # of 16 bytes: 12 MiB, three times the ceiling of this node
NUMBERED = f'awk "BEGIN {{ for (i = 0; i < {LINES}; i++) printf \\"%015d\\\\n\\", i }}"'


def numbered(offset, n):
    first = offset // 16
    text = b"".join(b"%015d\n" % i for i in range(first, (offset + n + 15) // 16 + 1))
    return text[offset - first * 16:][:n]


def cases(suite, node):
    with node.sandbox() as sb:
        by_offset(suite, node, sb)
        background(suite, node, sb)
        large(suite, node, sb)
        ceiling(suite, node, sb)


def by_offset(suite, node, sb):
    @suite.case("output is read by offset while the command runs and after it")
    def _():
        x = node.start(sb, "printf abcdef; printf 12 >&2; read -r line; printf ghi", stdin_open=True)
        eventually("the first bytes", lambda: node.output(sb, x) == b"abcdef")
        a = node.call("GET", node.at(sb, x, "/output?stream=out&offset=2"))
        equal((a.body, a.headers["Bothy-Offset"], a.headers["Bothy-Length"], a.headers["Bothy-Ended"]),
              (b"cdef", "2", "6", "false"), "answer")
        equal(node.call("GET", node.at(sb, x, "/output?stream=out&offset=6")).body, b"", "bytes at the end")
        eventually("the other stream's", lambda: node.output(sb, x, "err") == b"12")
        equal(node.call("GET", node.at(sb, x, "/output?offset=1&max=2")).body, b"bc", "at most two bytes")
        node.ok("POST", node.at(sb, x, "/stdin?eof=true"), b"\n")
        node.wait(sb, x)
        a = node.call("GET", node.at(sb, x, "/output?stream=out&offset=6"))
        equal((a.body, a.headers["Bothy-Ended"]), (b"ghi", "true"), "after the end")

    @suite.case("an offset beyond the stream is range and names the length")
    def _():
        x = node.exec(sb, ["echo", "abc"])["exec"]
        e = expect_error(node.call("GET", node.at(sb, x, "/output?offset=5")), 416, "range")
        check("4" in e["message"] + (e["cause"] or ""), f"no length in {e}")

    @suite.case("follow=end gives raw bytes until the command ends")
    def _():
        x = node.start(sb, "for i in 1 2 3; do echo $i; sleep 0.1; done")
        equal(node.call("GET", node.at(sb, x, "/output?follow=end")).body, b"1\n2\n3\n", "bytes")

    @suite.case("follow=no as events gives what is there now, and end only if it ended")
    def _():
        x = node.start(sb, "echo first; read -r l", stdin_open=True)
        eventually("the first line", lambda: node.output(sb, x) == b"first\n")
        out, _, end, _ = collect(node.events("GET", node.at(sb, x, "/output")))
        equal((out, end), (b"first\n", None), "while it runs")
        node.ok("POST", node.at(sb, x, "/stdin?eof=true"), b"\n")
        node.wait(sb, x)
        _, _, end, _ = collect(node.events("GET", node.at(sb, x, "/output")))
        equal(end["how"], "exited", "after it")

    @suite.case("one stream of events leaves the other out")
    def _():
        x = node.exec(sb, "echo o; echo e >&2")["exec"]
        out, err, end, _ = collect(node.events("GET", node.at(sb, x, "/output?stream=err&follow=end")))
        equal((out, err, end["exit_code"]), (b"", b"e\n", 0), "events")

    @suite.case("an unknown exec is not_found of kind exec")
    def _():
        for bad in ("999999", "x", "0", "-1", "18446744073709551616"):
            e = expect_error(node.call("GET", node.at(sb, bad)), 404, "not_found")
            equal(e["kind"], "exec", f"kind for {bad}")


def background(suite, node, sb):
    @suite.case("exit does not wait for what was left in the background; follow=eof does")
    def _():
        for _ in range(10):  # a busy machine is late at times, but not always
            watch = Watch()
            r = node.exec(sb, "(sleep 3; echo late) & echo early")
            if watch.within(0.9):
                break
        else:
            raise AssertionError(f"the answer waited for the background: {watch}")
        equal((r["out"]["text"], r["end"]["out_bytes"]), ("early\n", 6), "answer")
        x = r["exec"]
        check(node.process(sb, x)["lingering"], "it does not linger")
        equal(node.call("GET", node.at(sb, x, "/output?follow=end")).body, b"early\n", "follow=end")
        equal(node.call("GET", node.at(sb, x, "/output?follow=eof")).body, b"early\nlate\n", "follow=eof")
        p = eventually("it lingers no more", lambda: (lambda q: None if q["lingering"] else q)(node.process(sb, x)))
        equal((p["end"], p["out_bytes"]), (r["end"], 11), "its end, and the bytes there are")

    @suite.case("follow=eof as events ends with the end record, once")
    def _():
        x = node.start(sb, "(sleep 2; echo late >&2) & echo early; exit 5")
        out, err, end, kinds = collect(node.events("GET", node.at(sb, x, "/output?follow=eof")))
        equal((out, err, end["exit_code"], end["err_bytes"]), (b"early\n", b"late\n", 5, 0), "events")
        equal(kinds.count("end"), 1, "ends")


def large(suite, node, sb):
    @suite.case("3 MB of output are exact by offset and as events")
    def _():
        wanted = (b"0123456789abcde\n" * 187501)[:3_000_000]
        x = node.start(sb, MB3)
        out, _, end, kinds = collect(node.events("GET", node.at(sb, x, "/output?follow=end")))
        equal((len(out), out == wanted, end["out_bytes"]), (3_000_000, True, 3_000_000), "events")
        check("gap" not in kinds, "a gap below the ceiling")
        check(node.output(sb, x) == wanted, "bytes by offset differ")
        check(node.call("GET", node.at(sb, x, "/output?follow=end")).body == wanted, "followed raw bytes differ")

    @suite.case("a run-to-end answer over 1 MiB has head and tail and where the rest begins")
    def _():
        wanted = (b"0123456789abcde\n" * 187501)[:3_000_000]
        out = node.exec(sb, MB3)["out"]
        equal((out["truncated"], out["length"], out["offset"]), (True, 3_000_000, 0), "out")
        head, tail = bytes_of(out), bytes_of(out["tail"])
        equal((len(head), len(tail)), (524288, 524288), "lengths of head and tail")
        check(head == wanted[:524288] and tail == wanted[-524288:], "bytes differ")
        equal((out["next"], out["tail"]["offset"]), (524288, 3_000_000 - 524288), "offsets")

    @suite.case("a run-to-end answer of exactly 1 MiB is whole")
    def _():
        out = node.exec(sb, "yes 0123456789abcde | head -c 1048576")["out"]
        equal((out["truncated"], len(bytes_of(out)), "tail" in out), (False, 1048576, False), "out")

    @suite.case("a reader who is slow does not stop the command")
    def _():
        c, r = node.open("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["sh", "-c", MB3]}, {"Accept": "text/event-stream"})
        x = r.headers["Bothy-Exec"]
        equal(node.wait(sb, x)["out_bytes"], 3_000_000, "bytes though nobody read")
        c.close()


def ceiling(suite, node, sb):
    made = {}

    def needs_ceiling():
        if node.stream_max != 4 << 20:
            raise Skip("its ceiling of a stream is not known to be 4 MiB (--stream-max)")

    def flood():
        needs_ceiling()
        if "x" not in made:
            made["x"] = node.start(sb, NUMBERED)
            made["end"] = node.wait(sb, made["x"], 120)
        return made["x"], made["end"]

    @suite.case("output over the ceiling keeps head and tail and says how much is dropped")
    def _():
        x, end = flood()
        equal((end["how"], end["out_bytes"]), ("exited", LINES * 16), "end")
        check(LINES * 16 - 7 * 2**20 <= end["out_dropped"] < LINES * 16 - 2**20, f"dropped {end['out_dropped']}")
        head = node.call("GET", node.at(sb, x, "/output?offset=0&max=1048576"))
        check(head.body == numbered(0, 2**20), "the head is not the first MiB")

    @suite.case("events over the ceiling tell the gap; bytes and gaps make the whole")
    def _():
        x, end = flood()
        at, kept, gaps = 0, 0, 0
        for kind, _, data in node.events("GET", node.at(sb, x, "/output?stream=out&follow=end")):
            if kind == "out":
                part = bytes_of(data)
                equal(data["offset"], at, "offset")
                check(part == numbered(at, len(part)), f"wrong bytes at {at}")
                at += len(part)
                kept += len(part)
            elif kind == "gap":
                equal((data["stream"], data["from"]), ("out", at), "gap")
                check(data["from"] >= 2**20 and data["to"] > at, f"gap {data}")
                gaps += data["to"] - at
                at = data["to"]
        equal((at, kept + gaps, gaps), (LINES * 16, LINES * 16, end["out_dropped"]), "sums")

    @suite.case("a follower that pauses gets every byte: the command waits for it at the ceiling")
    def _():
        needs_ceiling()
        x = node.start(sb, f"read -r l; {NUMBERED}", stdin_open=True)  # nothing is dropped before the follower is there
        c, r = node.open("GET", node.at(sb, x, "/output?stream=out&follow=end"))
        try:
            node.ok("POST", node.at(sb, x, "/stdin?eof=true"), b"\n")
            got = r.read(65536)
            time.sleep(1.5)
            equal(node.process(sb, x)["end"], None, "end while nobody reads")
            got += r.read()
        finally:
            c.close()
        equal(len(got), LINES * 16, "bytes")
        check(got == numbered(0, LINES * 16), "wrong bytes")
        equal(node.wait(sb, x)["how"], "exited", "end")

    @suite.case("raw bytes asked for inside the gap begin behind it")
    def _():
        x, _ = flood()
        a = node.call("GET", node.at(sb, x, f"/output?offset={2**20 + 5}&max=64"))
        begins = int(a.headers["Bothy-Offset"])
        check(begins > 2**20 + 5, f"Bothy-Offset is {begins}")
        equal(a.body, numbered(begins, 64), "bytes")

    @suite.case("a run-to-end answer over the ceiling counts what is dropped")
    def _():
        needs_ceiling()
        r = node.exec(sb, NUMBERED)
        out = r["out"]
        equal((out["length"], out["truncated"], out["dropped"]), (LINES * 16, True, r["end"]["out_dropped"]), "out")
        check(out["dropped"] > 0, "nothing is dropped")
        check(bytes_of(out) == numbered(0, 524288), "head")
        check(bytes_of(out["tail"]) == numbered(LINES * 16 - 524288, 524288), "tail")

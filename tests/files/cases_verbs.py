"""Single files, directories, ranges, watch."""
import base64
import concurrent.futures
import hashlib
import threading
import time

from common import digest, noise
from harness import check, equal, eventually, expect_error, read_events

MIB = 1 << 20
NAMES = [b"plain", "Grüße-日本".encode(), b"new\nline", b"\xff\xfe not utf-8", b"tab\tand\x1b[31mescape", b"quote\"'\\", b"%41+&=#?",
         b"-rf", b" space ", b"a" * 255]


def sizes(long):
    return [0, 1, 4095, 4096, 65535, 65536, 65537, MIB, 8 * MIB + 3, 64 * MIB] + ([256 * MIB, 2048 * MIB] if long else [])


def round_trips(suite, f, figures):
    for size in sizes(suite.args.long):
        @suite.case(f"{size} bytes there and back, byte for byte")
        def _(size=size):
            want = digest(noise(size, size))
            began = time.monotonic()
            a = f.stream_up("", "/tmp/round", noise(size, size), length=size if size % 2 else None)
            up = time.monotonic() - began
            equal(a.status, 200, f"status ({a!r})")
            equal(a.json["size"], size, "size")
            began = time.monotonic()
            h = hashlib.sha256()
            got = f.stream_down("", "/tmp/round", h.update)
            down = time.monotonic() - began
            equal((h.hexdigest(), got), want, "what came back")
            if size <= 64 * MIB:
                equal(f.shell("sha256sum < /tmp/round").split()[0], want[0], "what is inside")
            if size >= 64 * MIB:
                figures.setdefault("bytes_per_s", {})[str(size)] = {"up": int(size / up), "down": int(size / down)}
    f.remove("/tmp/round")


def ranges(suite, f):
    body = b"".join(noise(300_000, 5))
    f.write("/tmp/ranged", body)
    n = len(body)

    @suite.case("ranges: from, from-to, the last ones, across pieces")
    def _():
        for text, want in [("0-0", body[:1]), ("0-99", body[:100]), ("65530-65545", body[65530:65546]), ("299999-", body[-1:]),
                           ("-5", body[-5:]), ("100-999999999", body[100:]), ("-999999999", body), ("0-", body)]:
            a = f.call("GET", "", "/tmp/ranged", headers={"Range": "bytes=" + text})
            equal(a.status, 206, f"status of {text}")
            equal(a.body, want, f"bytes of {text}")
            check(a.headers["Content-Range"].endswith(f"/{n}"), f"Content-Range {a.headers['Content-Range']}")

    @suite.case("ranges: outside the file is 416, nonsense is the whole file or an error")
    def _():
        expect_error(f.call("GET", "", "/tmp/ranged", headers={"Range": f"bytes={n}-"}), 416, "range")
        for text in ("bytes=5-1", "bytes=x-y", "lines=1-2", "bytes=0-1,5-6", "bytes=-0", "bytes=99999999999999999999-"):
            a = f.call("GET", "", "/tmp/ranged", headers={"Range": text})
            check(a.status in (200, 400, 416), f"{text}: {a.status}")
            if a.status == 200:
                equal(a.body, body, f"the whole file for {text}")

    @suite.case("HEAD says what GET would; an ETag changes with the file")
    def _():
        a = f.call("HEAD", "", "/tmp/ranged")
        equal((a.status, int(a.headers["Content-Length"]), a.body), (200, n, b""), "HEAD")
        tag = a.headers["ETag"]
        equal(f.call("GET", "", "/tmp/ranged", headers={"If-None-Match": tag}).status, 304, "unchanged")
        f.write("/tmp/ranged", body[1:])
        check(f.call("HEAD", "", "/tmp/ranged").headers["ETag"] != tag, "the ETag stayed")


def names(suite, f):
    @suite.case("names with newlines, escapes and bytes that are not UTF-8: every verb")
    def _():
        f.ok("POST", "/mkdir", "/tmp/names")
        for name in NAMES:
            path = b"/tmp/names/" + name
            f.write(path, name)
            equal(f.read(path), name, f"content of {name!r}")
            equal(f.stat(path)["size"], len(name), f"size of {name!r}")
        listed = [e["name"] for e in f.list("/tmp/names")]
        as_bytes = [base64.b64decode(x["b64"]) if isinstance(x, dict) else x.encode() for x in listed]
        equal(as_bytes, sorted(NAMES), "list")
        inside = f.node.exec(f.sandbox, "ls -1 /tmp/names | wc -c")["out"]["text"]
        equal(int(inside), sum(len(n) + 1 for n in NAMES), "bytes of ls inside")
        for name in NAMES:
            f.ok("POST", "/move", b"/tmp/names/" + name, to=b"/tmp/names/x")
            equal(f.read("/tmp/names/x"), name, "moved")
            equal(f.remove("/tmp/names/x").status, 200, "removed")
        equal(f.list("/tmp/names"), [], "what is left")


def tree(suite, f):
    @suite.case("a tree: made, listed to every depth and by pages, moved, removed")
    def _():
        for i in range(30):
            f.write(f"/tmp/tree/d{i % 3}/e{i % 5}/f{i:02}", b"x" * i, mkdir=True)
        all_of = f.list("/tmp/tree", depth=10)
        equal(len([e for e in all_of if e["type"] == "file"]), 30, "files")
        equal(f.list("/tmp/tree", depth=10, limit=7), all_of, "by pages")
        equal([e["name"] for e in f.list("/tmp/tree")], ["d0", "d1", "d2"], "one level")
        f.ok("POST", "/move", "/tmp/tree", to="/tmp/tree2")
        expect_error(f.call("GET", "/stat", "/tmp/tree"), 404, "not_found")
        expect_error(f.remove("/tmp/tree2"), 409, "conflict")
        equal(f.remove("/tmp/tree2", recursive=True).status, 200, "removed")
        check(not f.exists("/tmp/tree2"), "it is still there")

    @suite.case("a write replaces at once: a reader sees the old or the new")
    def _():
        a, b = b"a" * 200_000, b"b" * 200_000
        f.write("/tmp/flip", a)
        stop = threading.Event()

        def write():
            while not stop.is_set():
                f.write("/tmp/flip", b)
                f.write("/tmp/flip", a)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            job = pool.submit(write)
            try:
                for _ in range(40):
                    check(f.read("/tmp/flip") in (a, b), "a mixture was read")
            finally:
                stop.set()
            job.result()

    @suite.case("an upload that breaks off changes nothing and leaves nothing")
    def _():
        f.write("/tmp/cut/file", b"old", mkdir=True)
        for _ in range(3):
            with f.half_sent("", "/tmp/cut/file", b"n" * 500_000):
                pass
        eventually("only the old file", lambda: f.shell("ls -A /tmp/cut 2>/dev/null || true") == "file\n", 15)
        equal(f.read("/tmp/cut/file"), b"old", "content")


def watch(suite, f, figures):
    @suite.case("watch sees 1,000 changes")
    def _():
        f.ok("POST", "/mkdir", "/tmp/seen")
        c, r = f.node.open("GET", f.url("/watch", "/tmp/seen", recursive=True), headers={"Accept": "text/event-stream"}, timeout=60)
        try:
            equal(r.status, 200, "status")
            events = read_events(r)
            equal(next(e for e in events if e[0] != "ping")[0], "ready", "first event")
            # What comes and goes in a directory before it is watched is nobody's to see: it is watched when its own event is told.
            f.shell("mkdir /tmp/seen/d")
            equal(next(e for e in events if e[0] == "create")[2]["name"], "d", "the directory")
            began = time.monotonic()
            f.shell("i=0; while [ $i -lt 500 ]; do echo $i > /tmp/seen/d/f$i; mv /tmp/seen/d/f$i /tmp/seen/g$i;"
                    " i=$((i+1)); done")
            want = {("create", f"d/f{i}") for i in range(500)} | {("move", f"g{i}") for i in range(500)}
            for kind, _, data in events:
                check(kind != "overflow", "changes were lost")
                check(time.monotonic() < began + 60, f"{len(want)} changes were not seen")
                if kind == "create":
                    want.discard((kind, data["name"]))
                elif kind == "move":
                    want.discard((kind, data.get("to")))
                if not want:
                    break
            equal(want, set(), "changes not seen")
            figures["watch_1000_ms"] = int((time.monotonic() - began) * 1000)
        finally:
            c.close()


def run(suite, f, figures):
    round_trips(suite, f, figures)
    ranges(suite, f)
    names(suite, f)
    tree(suite, f)
    watch(suite, f, figures)

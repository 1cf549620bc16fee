"""Files over REST: one file at a time, lists, searches, watches. Paths are relative, so that backends without a root of their
own can be held to it, too."""
import base64
import hashlib
import json
import pathlib
import random
import threading
import time
import urllib.parse

from common import beside, needs, walls
from harness import Node, Skip, check, equal, eventually, expect_error


def cases(suite, node):
    with node.sandbox() as sb:
        f = Files(node, sb)
        single(suite, node, f)
        ranges(suite, node, f)
        names(suite, node, f)
        changes(suite, node, f)
        lists(suite, node, f)
        searches(suite, node, f)
        watches(suite, node, f)
        limits(suite, node, f)
    users(suite, node)


class BySh:
    """The same cases where no kit can go."""

    def __init__(self, suite):
        self.suite, self.args = suite, suite.args

    def case(self, name):
        return self.suite.case(f"by sh: {name}")


def alone(suite, backend):
    if not suite.wants_any(BySh, alone):
        return
    with Node(backend, images="busybox", env="BOTHY_FILES_KIT=") as node:
        node.caps = node.ok("GET", "/v1/info")["caps"]
        cases(BySh(suite), node)

        @suite.case("by sh: caps say so, and what it cannot do is unsupported")
        def _():
            equal(node.caps["files"], "emulated", "caps.files")
            with node.sandbox() as sb:
                f = Files(node, sb)
                expect_error(node.call("GET", f.url(".", "/search", name="*")), 501, "unsupported")
                expect_error(node.call("GET", f.url(".", "/watch")), 501, "unsupported")


def native(node):
    if node.caps.get("files") != "native":
        raise Skip(f"files are {node.caps.get('files')}: no kit")


def name_of(value):
    return value.encode() if isinstance(value, str) else base64.b64decode(value["b64"])


class Files:
    def __init__(self, node, sb):
        self.node, self.sb = node, sb

    def url(self, path, verb="", **more):
        q = {k: v for k, v in more.items() if v is not None}
        path = path.encode() if isinstance(path, str) else path
        text = "&".join([f"path={urllib.parse.quote(path, safe='')}"] +
                        [f"{k}={urllib.parse.quote(v if isinstance(v, bytes) else str(v), safe='')}" for k, v in q.items()])
        return f"/v1/sandboxes/{self.sb}/files{verb}?{text}"

    def get(self, path, headers=None, **more):
        return self.node.call("GET", self.url(path, **more), headers=headers, timeout=120)

    def read(self, path, **more):
        a = self.get(path, **more)
        check(a.status == 200, f"GET {path}: {a}")
        return a.body

    def put(self, path, body, headers=None, **more):
        return self.node.call("PUT", self.url(path, **more), body, headers=headers, timeout=120)

    def write(self, path, body, **more):
        a = self.put(path, body, **more)
        check(a.status == 200, f"PUT {path}: {a}")
        return a.json

    def stat(self, path, **more):
        return self.node.call("GET", self.url(path, "/stat", **more))

    def delete(self, path, **more):
        return self.node.call("DELETE", self.url(path, **more))

    def mkdir(self, path, **more):
        return self.node.call("POST", self.url(path, "/mkdir", **more))

    def move(self, path, to, **more):
        return self.node.call("POST", self.url(path, "/move", to=to, **more))

    def page(self, path, **more):
        return self.node.ok("GET", self.url(path, "/list", **more))

    def lines(self, path, verb="/list", **more):
        a = self.node.call("GET", self.url(path, verb, **more), headers={"Accept": "application/x-ndjson"}, timeout=60)
        check(a.status == 200, f"lines of {path}: {a}")
        return [json.loads(line) for line in a.body.splitlines()]

    def sh(self, text):
        return self.node.shell(self.sb, text)


def single(suite, node, f):
    @suite.case("what is written is read back, and stat, HEAD and list agree about it")
    def _():
        body = bytes(range(256)) * 300
        made = f.write("one/two/file", body, mkdir="true", mode="0640")
        equal((made["type"], made["size"], made["mode"]), ("file", len(body), "0640"), "answer")
        a = f.get("one/two/file")
        equal((a.status, a.body == body), (200, True), "content")
        check(a.headers["ETag"] == made["etag"], f"{a.headers['ETag']} and {made}")
        st = f.stat("one/two/file").json
        equal({k: st[k] for k in ("type", "size", "mode", "etag", "mtime")},
              {k: made[k] for k in ("type", "size", "mode", "etag", "mtime")}, "stat")
        h = node.call("HEAD", f.url("one/two/file"))
        equal((h.status, h.headers["Content-Length"], h.headers["ETag"], h.body), (200, str(len(body)), made["etag"], b""), "HEAD")
        equal([e["name"] for e in f.page("one", depth=3)["entries"]], ["two", "two/file"], "list")

    @suite.case("an empty file and a file of one byte")
    def _():
        for body in (b"", b"x"):
            f.write("small", body)
            a = f.get("small")
            equal((a.status, a.body, a.headers["Content-Length"]), (200, body, str(len(body))), "file")

    @suite.case("a body without a length, of many pieces, becomes the file")
    def _():
        rng = random.Random(suite.args.seed)
        pieces = [rng.randbytes(rng.randint(1, 200000)) for _ in range(40)]
        c = node.connection(120)
        c.request("PUT", f.url("pieces"), iter(pieces), encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
        equal(c.getresponse().status, 200, "status")
        c.close()
        equal(hashlib.sha256(f.read("pieces")).hexdigest(), hashlib.sha256(b"".join(pieces)).hexdigest(), "content")

    @suite.case("20 MiB, more than is kept of a stream, go in and out")
    def _():
        body = random.Random(7).randbytes(1 << 20) * 20
        f.write("large", body)
        got = f.read("large")
        check(got == body, f"{len(got)} bytes came back, or others")
        equal(f.delete("large").status, 200, "removed")

    @suite.case("a file is replaced in one step and keeps its permissions")
    def _():
        f.write("kept", b"old", mode="0604")
        first = f.stat("kept").json
        f.write("kept", b"newer")
        second = f.stat("kept").json
        equal((second["mode"], f.read("kept")), ("0604", b"newer"), "file")
        check(first["etag"] != second["etag"], "the etag is the same")
        expect_error(f.put("kept", b"x", new="true"), 409, "conflict")
        equal(f.read("kept"), b"newer", "content")

    @suite.case("an upload that breaks off changes nothing and leaves nothing")
    def _():
        f.write("broken/file", b"before", mkdir="true")
        c = node.connection()
        c.connect()
        c.sock.sendall(f"PUT {f.url('broken/file')} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n".encode() + b"x" * 300000)
        time.sleep(0.3)
        c.sock.close()
        eventually("no file beside it", lambda: [e["name"] for e in f.page("broken")["entries"]] == ["file"])
        equal(f.read("broken/file"), b"before", "content")

    @suite.case("what is missing, a directory, a FIFO and a device are told apart")
    def _():
        e = expect_error(f.get("missing"), 404, "not_found")
        equal(e.get("kind"), "path", "kind")
        expect_error(f.stat("missing/below"), 404, "not_found")
        f.mkdir("adir")
        expect_error(f.get("adir"), 409, "conflict")
        expect_error(f.put("adir", b"x"), 409, "conflict")
        f.sh("mkfifo pipe; ln -s nowhere dangling")
        expect_error(f.get("pipe"), 409, "conflict")
        expect_error(f.put("pipe", b"x"), 409, "conflict")
        equal(f.stat("pipe").json["type"], "fifo", "type")
        expect_error(f.get("dangling"), 404, "not_found")
        st = f.stat("dangling").json
        equal((st["type"], st["target"]), ("symlink", "nowhere"), "link")
        expect_error(f.stat("dangling", follow="true"), 404, "not_found")

    @suite.case("a write through a link changes what it points to")
    def _():
        f.sh("mkdir -p real; echo old >real/f; ln -sfn real/f alink; ln -sfn real/none new")
        f.write("alink", b"through")
        equal((f.read("real/f"), f.stat("alink").json["type"]), (b"through", "symlink"), "target")
        f.write("new", b"made")
        equal(f.read("real/none"), b"made", "what was not there")

    @suite.case("a file of /proc has no size and is read whole")
    def _():
        native(node)
        a = f.get("/proc/version")
        check(a.status == 200 and a.body.startswith(b"Linux"), f"{a}")


def ranges(suite, node, f):
    @suite.case("ranges: from, to, the last bytes, beyond the end")
    def _():
        f.write("digits", b"0123456789")
        for text, body, told in (("bytes=2-4", b"234", "bytes 2-4/10"), ("bytes=7-", b"789", "bytes 7-9/10"),
                                 ("bytes=-3", b"789", "bytes 7-9/10"), ("bytes=0-0", b"0", "bytes 0-0/10"),
                                 ("bytes=5-99", b"56789", "bytes 5-9/10"), ("bytes=-99", b"0123456789", "bytes 0-9/10")):
            a = f.get("digits", headers={"Range": text})
            equal((a.status, a.body, a.headers.get("Content-Range")), (206, body, told), text)
        for text in ("bytes=10-", "bytes=50-60", "bytes=-0"):
            expect_error(f.get("digits", headers={"Range": text}), 416, "range")
        for text in ("bytes=4-2", "bytes=a-b", "lines=1-2", "bytes=0-1,3-4"):
            a = f.get("digits", headers={"Range": text})
            equal((a.status, a.body), (200, b"0123456789"), text)

    @suite.case("an etag answers 304, and guards a range")
    def _():
        f.write("digits", b"0123456789")
        etag = f.get("digits").headers["ETag"]
        a = f.get("digits", headers={"If-None-Match": etag})
        equal((a.status, a.body), (304, b""), "unchanged")
        a = f.get("digits", headers={"Range": "bytes=2-4", "If-Range": etag})
        equal((a.status, a.body), (206, b"234"), "unchanged range")
        f.write("digits", b"abcdefghijklm")
        a = f.get("digits", headers={"Range": "bytes=2-4", "If-Range": etag})
        equal((a.status, a.body), (200, b"abcdefghijklm"), "another file")
        equal(f.get("digits", headers={"If-None-Match": etag}).status, 200, "changed")

    @suite.case("holes are read as zeros, also a range of them")
    def _():
        f.sh("dd if=/dev/zero of=sparse bs=1 count=0 seek=300000000 2>/dev/null; printf end >>sparse; printf a | dd of=sparse conv=notrunc 2>/dev/null")
        a = f.get("sparse", headers={"Range": "bytes=299999990-"})
        equal((a.status, a.body), (206, b"\0" * 10 + b"end"), "tail")
        a = f.get("sparse", headers={"Range": "bytes=0-200000"})
        equal((a.status, a.body == b"a" + b"\0" * 200000), (206, True), "head")
        f.delete("sparse")


def names(suite, node, f):
    @suite.case("names are bytes: newlines, quotes, what is not UTF-8")
    def _():
        for raw in (b"new\nline", b"\xff\xfe", b"quote'\"\\", b" ", b"%41", "gr\u00fc\u00df".encode(), b"a" * 255, b"-rf", b"*"):
            path = b"names/" + raw
            f.write(path, b"<" + raw + b">", mkdir="true")
            equal(f.read(path), b"<" + raw + b">", f"content of {raw}")
            equal([name_of(e["name"]) for e in f.page("names")["entries"]], [raw], "name in a list")
            equal(f.delete(path).status, 200, "removed")
        expect_error(f.put(b"names/" + b"a" * 256, b""), 400, "invalid_request")
        expect_error(node.call("GET", f.url("x").replace("path=x", "path=a%00b")), 400, "invalid_request")
        expect_error(node.call("GET", f.url("x").replace("path=x", "path=")), 400, "invalid_request")
        expect_error(f.get("a" * 4096), 400, "invalid_request")


def changes(suite, node, f):
    @suite.case("directories are made, with those above them, once or new")
    def _():
        a = f.mkdir("m/a/b", mode="0711")
        equal((a.status, a.json["type"], a.json["mode"]), (200, "directory", "0711"), "made")
        equal(f.mkdir("m/a/b").status, 200, "again")
        expect_error(f.mkdir("m/a/b", new="true"), 409, "conflict")
        expect_error(f.mkdir("m/x/y", parents="false"), 404, "not_found")
        f.write("m/file", b"")
        expect_error(f.mkdir("m/file"), 409, "conflict")

    @suite.case("move renames, replaces, or refuses to")
    def _():
        f.write("mv/a", b"a", mkdir="true")
        f.write("mv/b", b"b")
        expect_error(f.move("mv/a", "mv/b", new="true"), 409, "conflict")
        equal(f.move("mv/a", "mv/b").status, 200, "replaced")
        equal(f.read("mv/b"), b"a", "content")
        expect_error(f.stat("mv/a"), 404, "not_found")
        expect_error(f.move("mv/b", "mv/deep/c"), 404, "not_found")
        equal(f.move("mv/b", "mv/deep/c", mkdir="true").json["name"], "mv/deep/c", "name")
        expect_error(f.move("mv/none", "mv/x"), 404, "not_found")

    @suite.case("remove takes files and empty directories, trees only when told, links never further")
    def _():
        f.write("rm/d/e/f", b"", mkdir="true")
        f.write("rm/keep/f", b"kept", mkdir="true")
        f.sh("ln -s ../keep rm/d/link; chmod 0 rm/d/e/f")
        expect_error(f.delete("rm/d"), 409, "conflict")
        equal(f.delete("rm/d", recursive="true").status, 200, "tree")
        equal([e["name"] for e in f.page("rm", depth=5)["entries"]], ["keep", "keep/f"], "what is left")
        expect_error(f.delete("rm/d"), 404, "not_found")
        if node.backend != "fake":  # whose root is the node's
            expect_error(f.delete("/", recursive="true"), 409, "conflict")


def lists(suite, node, f):
    @suite.case("a list is sorted, goes down as told, and comes in pages")
    def _():
        f.sh("mkdir -p ls/b/y ls/c; for i in 3 1 2; do echo >ls/b/y/$i; echo >ls/$i; done; ln -s b ls/link")
        equal([e["name"] for e in f.page("ls")["entries"]], ["1", "2", "3", "b", "c", "link"], "one level")
        want = ["1", "2", "3", "b", "b/y", "b/y/1", "b/y/2", "b/y/3", "c", "link"]
        equal([e["name"] for e in f.page("ls", depth=9)["entries"]], want, "all")
        for limit in (1, 3, 7):
            got, cursor = [], None
            while True:
                p = f.page("ls", depth=9, limit=limit, cursor=cursor)
                got += [e["name"] for e in p["entries"]]
                check(len(p["entries"]) <= limit, "a page beyond its limit")
                cursor = p["next"]
                if not cursor:
                    break
            equal(got, want, f"pages of {limit}")
        lines = f.lines("ls", depth=9)
        equal([x["name"] for x in lines[:-1]], want, "lines")
        equal(lines[-1], {"end": {"entries": len(want), "more": False}}, "last line")

    @suite.case("a list of what is no directory, and a cursor of somebody else")
    def _():
        f.write("afile", b"")
        expect_error(node.call("GET", f.url("afile", "/list")), 404, "not_found")
        expect_error(node.call("GET", f.url("none", "/list")), 404, "not_found")
        for cursor in ("Li4=", "%%%", "L2V0Yw=="):
            expect_error(node.call("GET", f.url(".", "/list", cursor=cursor)), 400, "invalid_request")

    @suite.case("5,000 files are listed in one stream")
    def _():
        f.sh("mkdir many; cd many; i=0; while [ $i -lt 5000 ]; do : >f$i; i=$((i+1)); done")
        got = [x["name"] for x in f.lines("many")[:-1]]
        equal(got, sorted(f"f{i}" for i in range(5000)), "names")
        removed = f.delete("many", recursive="true").json["removed"]
        native(node)
        equal(removed, 5001, "removed")


def searches(suite, node, f):
    @suite.case("search by name, by content, by both")
    def _():
        native(node)
        f.sh("mkdir -p se/src/deep se/doc; printf 'one\\nTwo needle\\nthree\\n' >se/src/a.c; printf 'needle needle\\n' >se/src/deep/b.h;"
             "printf 'x\\n' >se/doc/c.c; ln -s /etc/passwd se/doc/link.c")
        find = lambda **q: node.ok("GET", f.url("se", "/search", **q))  # noqa: E731
        equal([m["name"] for m in find(name="*.c")["matches"]], ["doc/c.c", "doc/link.c", "src/a.c"], "by name")
        equal([m["name"] for m in find(name="src/**/b.?")["matches"]], ["src/deep/b.h"], "by path")
        hits = find(text="needle")["matches"]
        equal([(m["name"], m["line"], m["offset"], m["text"]) for m in hits],
              [("src/a.c", 2, 8, "Two needle"), ("src/deep/b.h", 1, 0, "needle needle")], "by content")
        equal([m["name"] for m in find(text="two", caseless="true")["matches"]], ["src/a.c"], "either case")
        equal([m["name"] for m in find(text="needle", name="*.h")["matches"]], ["src/deep/b.h"], "both")
        equal(find(text="nothing of this"), {"matches": [], "more": False}, "nothing")
        first = find(text="needle", limit=1)
        equal((len(first["matches"]), first["more"]), (1, True), "limit")
        both = find(text="needle", limit=2)
        equal((len(both["matches"]), both["more"]), (2, True), "a limit of lines, in two files")
        equal(len(find(text="needle", limit=3)["matches"]), 2, "fewer than the limit")
        expect_error(node.call("GET", f.url("se", "/search")), 400, "invalid_request")
        lines = f.lines("se", "/search", text="needle")
        equal((len(lines), lines[-1]["end"]["more"]), (3, False), "lines")


def watches(suite, node, f):
    def watch(path, headers=None, **more):
        return node.events("GET", f.url(path, "/watch", **more), headers=headers, timeout=60)

    def told(e):
        return (e[0],) + tuple(name_of(e[2][k]).decode("latin-1") for k in ("name", "to") if k in e[2])

    @suite.case("a watch tells what is made, changed, moved and removed below a directory")
    def _():
        native(node)
        f.sh("mkdir -p w/sub")
        events = watch("w", recursive="true")
        equal(next(events)[0], "ready", "first event")
        f.sh("echo a >w/sub/f; chmod 600 w/sub/f; mv w/sub/f w/g; rm w/g; mkdir w/new; sleep 0.2; echo >w/new/x; mv w/sub w/s2; sleep 0.2; echo >w/s2/z")
        got = []
        for e in events:
            if e[0] != "ping":
                got.append(told(e))
            if got and got[-1] == ("create", "s2/z"):
                break
        for want in (("create", "sub/f"), ("modify", "sub/f"), ("attrib", "sub/f"), ("move", "sub/f", "g"), ("delete", "g"),
                     ("create", "new"), ("create", "new/x"), ("move", "sub", "s2"), ("create", "s2/z")):
            check(want in got, f"no {want} in {got}")

    @suite.case("a watch that comes back is told that changes may be lost; one of what is removed ends")
    def _():
        native(node)
        f.sh("mkdir -p wr")
        events = watch("wr", headers={"Last-Event-ID": "7"})
        equal([next(events)[0] for _ in range(2)], ["overflow", "ready"], "first events")
        f.sh("rmdir wr")
        last = [e[0] for e in events if e[0] != "ping"]
        equal(last[-2:], ["delete", "end"], "last events")
        expect_error(node.call("GET", f.url("wr", "/watch")), 404, "not_found")

    @suite.case("a watch of one file tells of it")
    def _():
        native(node)
        f.write("watched", b"1")
        events = watch("watched")
        equal(next(events)[0], "ready", "first event")
        f.sh("echo more >>watched")
        equal(told(next(events)), ("modify", ""), "event")


def limits(suite, node, f):
    @suite.case("file verbs are not among the processes and leave no streams")
    def _():
        before = [p["exec"] for p in node.ok("GET", f"/v1/sandboxes/{f.sb}/processes")["processes"]]
        for i in range(5):
            f.write("seen", b"x" * 100000)
            f.read("seen")
        after = [p["exec"] for p in node.ok("GET", f"/v1/sandboxes/{f.sb}/processes")["processes"]]
        equal(after, before, "processes")
        equal(node.show(f.sb)["live_execs"] if "live_execs" in node.show(f.sb) else 0, 0, "live commands")
        x = node.exec(f.sb, ["true"])["exec"]
        expect_error(node.call("GET", node.at(f.sb, str(int(x) - 1))), 404, "not_found")

    @suite.case("300 verbs, four at a time, leave nothing in the spool")
    def _():
        beside(node)

        def some(n):
            for i in range(n):
                f.write(f"left{n}", b"x" * 1000)
                f.read(f"left{n}")
                f.stat(f"left{n}")

        crowd = [threading.Thread(target=some, args=(25,)) for _ in range(4)]
        for t in crowd:
            t.start()
        for t in crowd:
            t.join()
        x = int(node.exec(f.sb, ["true"])["exec"])
        known = {p["exec"] for p in node.ok("GET", f"/v1/sandboxes/{f.sb}/processes")["processes"]}
        spool = pathlib.Path(node.dir) / "bothyd" / "spool" / f.sb
        rest = lambda: [p.name for p in spool.iterdir() if p.name != "journal" and p.name.split(".")[0] not in known]  # noqa: E731
        check(x > 300, "no verbs were run")
        eventually(f"no streams of verbs in {spool}", lambda: not rest())

    @suite.case("a kit that is killed in the sandbox is an error, not an answer")
    def _():
        native(node)
        walls(node)
        f.sh("mkdir -p kk")
        events = node.events("GET", f.url("kk", "/watch"), timeout=60)
        equal(next(events)[0], "ready", "first event")
        f.sh('for d in /proc/[0-9]*; do case "$(tr "\\0" " " <$d/cmdline 2>/dev/null)" in *bothy-[k]it*watch*kk*) kill -9 ${d#/proc/};; esac; done')
        last = [e for e in events if e[0] != "ping"][-1]
        equal((last[0], last[2]["error"]["code"]), ("error", "unavailable"), "last event")


def users(suite, node):
    @suite.case("verbs have the rights of the sandbox's user, or of the one that is named")
    def _():
        needs(node, "user")
        with node.sandbox(user="1000:1000") as sb:
            f = Files(node, sb)
            expect_error(f.put("/root-only", b"x"), 403, "forbidden")
            made = f.write("/tmp/mine", b"x")
            equal((made["uid"], made["gid"]), (1000, 1000), "owner")
            made = f.write("/tmp/roots", b"x", user="0", mode="0600")
            equal(made["uid"], 0, "owner")
            expect_error(f.get("/tmp/roots"), 403, "forbidden")
            equal(f.read("/tmp/roots", user="root"), b"x", "as root")
            f.write("/tmp/mine", b"y", user="0")
            equal(f.stat("/tmp/mine").json["uid"], 1000, "the owner of what root replaced")
            expect_error(f.get("/tmp/mine", user="nobody-of-that-name"), 400, "user_not_found")

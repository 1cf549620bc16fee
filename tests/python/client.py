"""The client against a node. A case that takes `client` is run with both forms of it, the synchronous one lifted (lift.py)."""
import asyncio
import contextlib
import hashlib
import os
import pathlib
import tempfile
import threading
import time
from unittest import mock

import bothy
import lost
import recovery
from bothy._context import Owner
from bothy.build import build_template
from harness import Node, Suite, check, equal, free_port
from lift import Lift

BOTH = []


def both(name):
    """A case of an asynchronous function, for each form of the client."""
    def note(body):
        BOTH.append((name, body))
        return body
    return note


async def raised(kind, awaitable):
    try:
        got = await awaitable
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__}, but {got!r}")


@both("a command's streams, its end and its status")
async def _(client, node):
    async with await client.create("busybox", env={"A": "1"}) as sandbox:
        r = await sandbox.exec("echo out$A$B; echo err >&2; exit 3", env={"B": "2"})
        equal((r.out, r.err, r.exit_code, r.status, r.ok, r.said), (b"out12\n", b"err\n", 3, 3, False, "exited 3"), "result")
        check("out=b'out12\\n'" in repr(r), repr(r))
        check("... (1000 bytes)" in repr(await sandbox.exec("head -c 1000 /dev/zero")), "the repr has all of a long output, or does not say how long it is")
        equal((await sandbox.exec("echo a; echo b >&2; echo c", merged=True)).out, b"a\nb\nc\n", "merged")
        r = await sandbox.exec("kill -TERM $$")
        equal((r.end.how, r.exit_code, r.status, r.ok), ("signalled", None, 143, False), "a signal")
        r = await sandbox.exec("echo begun; sleep 60 & sleep 60", timeout=2)
        equal((r.out, r.timed_out, r.status, r.ok), (b"begun\n", True, 124, False), "a time limit")
        e = await raised(bothy.CommandFailed, failing(sandbox))
        check(e.result.exit_code == 9 and "exited 9" in str(e) and "why" in str(e), str(e))
        e = await raised(bothy.CommandFailed, failing(sandbox, "exit 3"))
        equal(str(e), "the command did not succeed (exited 3)", "the text of one that wrote nothing")


async def failing(sandbox, command="echo why >&2; exit 9"):
    return (await sandbox.exec(command)).check()


@both("a command that cannot be started is an error with a remedy")
async def _(client, node):
    async with await client.create("busybox") as sandbox:
        e = await raised(bothy.ExecFailed, sandbox.exec(["nowhere"]))
        check(e.code == "exec_failed" and e.remedy and e.remedy in str(e) and e.request_id and e.retryable is False and "ENOENT" in e.cause, str(e))
        await raised(bothy.UserNotFound, sandbox.exec("true", user="nobody-here"))
        await raised(bothy.CwdNotFound, sandbox.exec("true", cwd="/nowhere"))
        await raised(ValueError, sandbox.exec("true", timeout=0))


@both("standard input, small, binary and of 5 MB; a command that does not read it")
async def _(client, node):
    async with await client.create("busybox") as sandbox:
        equal((await sandbox.exec(["cat"], stdin="some\n")).out, b"some\n", "text")
        equal((await sandbox.exec(["cat"], stdin=b"\0\xff\n")).out, b"\0\xff\n", "bytes")
        data = os.urandom(5_000_000)
        r = await sandbox.exec(["sha256sum"], stdin=data)
        equal(r.text.split()[0], hashlib.sha256(data).hexdigest(), "5 MB")
        equal((await sandbox.exec(["true"], stdin=data)).exit_code, 0, "unread")


@both("4 MB of output byte for byte; keep cuts and says so")
async def _(client, node):
    async with await client.create("busybox") as sandbox:
        r = await sandbox.exec("seq 1 600000; seq 1 1000 >&2")
        equal(r.out, "".join(f"{n}\n" for n in range(1, 600001)).encode(), "out")
        equal((len(r.err), r.gaps, r.cut), (3893, (), False), "err")
        r = await sandbox.exec("seq 1 600000", keep=10)
        equal((r.out, r.cut, r.end.out_bytes), (b"1\n2\n3\n4\n5\n", True, 4088895), "kept")


@both("a started command: its output as it comes, signals, kill, what is there now")
async def _(client, node):
    async with await client.create("busybox") as sandbox:
        process = await sandbox.start("echo one; read line; echo $line >&2; sleep 100", stdin_open=True)
        await process.write(b"two\n")
        seen, at = [], await sandbox.process(process.exec)
        async for got in at.follow():
            seen.append((got.stream, got.offset, got.data))
            if got.stream == "err":
                await process.signal("TERM", "tree")
        equal((sorted(seen), at.info.end.how), ([("err", 0, b"two\n"), ("out", 0, b"one\n")], "killed"), "followed")
        equal((await process.read("out", 2)).data, b"e\n", "read")
        other = await sandbox.start(["sleep", "100"])
        await other.kill()
        equal((await other.wait()).ok, False, "killed")
        equal(len(await sandbox.processes()), 2, "processes")


@both("a session keeps its state; time limits, interrupts, exits")
async def _(client, node):
    async with await client.create("debian") as sandbox, await sandbox.session(cwd="/tmp") as session:
        equal((await session.run("X=7; f() { echo f$1; }; cd /; exit 4")).exit_code, 4, "exit code")
        r = await session.run("f $X; pwd; echo oh >&2")
        equal((r.out, r.err, r.cwd, r.kind, r.ok, r.seq), (b"f7\n/\n", b"oh\n", "/", "ended", True, 2), "state")
        r = await session.run("echo begun; sleep 100", timeout=2)
        equal((r.out, r.timed_out, r.ok), (b"begun\n", True, False), "a time limit")
        equal(r.kept, "the session goes on", "what is kept after it")
        r = await session.run("f() { echo lost; }; exec true")
        equal((r.kind, r.kept), ("resumed", "the session goes on as it was before this command"), "a shell that was replaced")
        equal((await session.run("echo a; echo b >&2", merge=True)).out, b"a\nb\n", "merged")
        equal((await session.run(b"printf '\xff'")).out, b"\xff", "bytes")
        equal((await session.refresh()).state, "idle", "state")
        same = await sandbox.get_session(session.id)
        equal((await same.run("echo $X")).text, "7\n", "by its id")
        r = await session.run("kill -9 $$")
        check(r.restarted and "only the directory and exported variables" in r.kept, f"a shell that was lost: {r}")


@both("files: content, modes, listing in pages, trees both ways, odd names")
async def _(client, node):
    async with await client.create("debian") as sandbox:
        files = sandbox.files
        made = await files.write("/srv/a/b c", "text", mkdir=True, mode=0o640)
        equal((made.type, made.mode, made.size), ("file", 0o640, 4), "written")
        equal(await files.read_text("/srv/a/b c"), "text", "read")
        equal(await files.read("/srv/a/b c", first=2), b"te", "the first bytes")
        e = await raised(bothy.Conflict, files.write("/srv/a/b c", "", new=True))
        equal((e.kind, e.retryable), ("path", False), "conflict")
        equal((await files.exists("/srv/a"), await files.exists("/srv/no")), (True, False), "exists")
        e = await raised(bothy.NotFound, files.read("/srv/no"))
        check(f". {e.remedy}" in str(e), str(e))  # sentences of their own
        odd = os.fsdecode(b"/srv/\xff\n%2F+&?#")
        await files.write(odd, b"\0")
        equal(await files.read(odd), b"\0", "an odd name")
        await sandbox.exec("mkdir /many && cd /many && for i in $(seq 1500); do : >$i; done")
        equal(len({f.name async for f in files.list("/many")}), 1500, "entries of two pages")
        await files.move("/srv/a", "/srv/moved")
        await files.remove("/srv/moved", recursive=True)
        equal([os.fsencode(f.name) async for f in files.list("/srv", depth=9)], [b"\xff\n%2F+&?#"], "what is left")
        with tempfile.TemporaryDirectory() as here:
            tree = pathlib.Path(here, "tree")
            (tree / "deep" / "er").mkdir(parents=True)
            (tree / "deep" / "er" / "x").write_text("x")
            (tree / "deep" / "er" / "x").chmod(0o755)
            (tree / "link").symlink_to("deep/er/x")
            await files.upload(tree, "/opt/new/tree")
            equal((await sandbox.exec("stat -c %a /opt/new/tree/deep/er/x; cat /opt/new/tree/link")).text, "755\nx", "uploaded")
            await files.download("/opt/new/tree", pathlib.Path(here, "back"))
            equal((pathlib.Path(here, "back/link").read_text(), os.readlink(pathlib.Path(here, "back/link"))), ("x", "deep/er/x"), "downloaded")
            await files.download("/opt/new/tree/link", pathlib.Path(here, "one", "x"))
            equal(pathlib.Path(here, "one", "x").read_text(), "x", "one file")


@both("a tree of which something cannot be read is no result")
async def _(client, node):
    async with await client.create("busybox") as sandbox:
        await sandbox.exec("mkdir -p /tmp/t/closed; echo a >/tmp/t/a; echo b >/tmp/t/b; chmod 600 /tmp/t/b; chmod 700 /tmp/t/closed")
        with tempfile.TemporaryDirectory() as here:
            for get in (sandbox.files.get_archive("/tmp/t", user="1000"), sandbox.files.download("/tmp/t", here, user="1000")):
                e = await raised(bothy.BothyError, get)
                check(str(e).startswith("2 entries below /tmp/t cannot be read"), str(e))
            equal(os.listdir(here), [], "what was downloaded")
            await sandbox.files.download("/tmp/t", here)
            equal(sorted(os.listdir(here)), ["a", "b", "closed"], "what root has")


@both("pause, reset, snapshot, fork, template, update, list, and the cause of an end")
async def _(client, node):
    async with await client.create("busybox", labels={"of": "life"}, ttl=600) as sandbox:
        equal((await sandbox.pause()).state, "paused", "state")
        e = await raised(bothy.SandboxPaused, sandbox.exec("true"))
        check(isinstance(e, bothy.Conflict) and "resume" in e.remedy.lower(), str(e))
        equal((await sandbox.resume()).state, "running", "state")
        await sandbox.files.write("/kept", "1")
        children = await sandbox.fork(2)
        equal([await child.files.read_text("/kept") for child in children], ["1", "1"], "forks")
        for child in children:
            await child.delete()
        snapshot = await sandbox.snapshot()
        template = await client.create_template("of-a-test", snapshot=snapshot.id, env={"T": "t"})
        async with await client.create(template=template.name) as other:
            equal((await other.exec("cat /kept; echo $T")).text, "1t\n", "of a template")
        equal([t.name for t in await client.templates()], ["of-a-test"], "templates")
        await client.delete_template("of-a-test")
        await client.delete_snapshot(snapshot.id)
        await sandbox.reset()
        equal(await sandbox.files.exists("/kept"), False, "after a reset")
        equal((await sandbox.update(labels={"more": "1"}, ttl=60)).labels, {"of": "life", "more": "1"}, "labels")
        equal([s.id async for s in client.list(label=["of=life"])], [sandbox.id], "listed")
        equal((await client.get(sandbox.id)).info.state, "running", "by its id")
    equal((sandbox.info.state, sandbox.info.cause.kind), ("gone", "requested"), "ended")
    await raised(bothy.SandboxGone, sandbox.exec("true"))
    equal((await sandbox.delete()).state, "gone", "ended once more")


@both("images, and what the node is")
async def _(client, node):
    check({"busybox", "debian"} <= {i.name.split("/")[-1].split(":")[0] for i in await client.images()}, "images")
    check("PATH" in (await client.image("busybox")).env, "its variables")
    equal((await client.info()).backend, "oci", "backend")
    equal((await client.call("GET", "/v1/pools"))["pools"][0]["name"], "slots", "any verb")
    await raised(bothy.NotFound, client.create("no-such-image", pull="never"))
    e = await raised(bothy.NotFound, client.get("no-such-sandbox"))
    check(". Check the id" in str(e), str(e))


@both("a sandbox that ends under a command: never a success")
async def _(client, node):
    sandbox = await client.create("busybox")
    process = await sandbox.start("echo begun; sleep 100")
    await sandbox.delete()
    r = await process.wait()
    check(r.out in (b"", b"begun\n") and r.end.how in ("killed", "unknown") and not r.ok and r.exit_code is None, repr(r))


@both("who has no room is waited for as long as patience allows, and then told with the remedy")
async def _(client, node):
    key = node.ok("POST", "/v1/keys", {"owner": "small", "role": "user", "max_sandboxes": 1})["key"]
    for lifted in (True, False):
        plain = (bothy.Client if lifted else bothy.AsyncClient)(f"http://127.0.0.1:{node.port}", key=key, patience=0.3)
        small = Lift(plain) if lifted else plain
        async with small, await small.create("busybox", ttl=4):
            e = await raised(bothy.QuotaExceeded, small.create("busybox"))
            check(e.retryable and e.remedy and e.status == 429 and 0 < e.retry_after <= 5, f"{e} {e.retry_after}")
            small.transport.patience = 30
            await (await small.create("busybox")).delete()  # the first one's time is over then


async def build_and_read(node, context):
    async with bothy.AsyncClient(socket=node.path) as client:
        template = await build_template(client, "packed", context)
        try:
            async with await client.create(template=template.name) as sandbox:
                return (await sandbox.exec("cat both")).check().text
        finally:
            await client.delete_template(template.name)


async def refused_builds(client, context):
    """A template that is refused, when there is none of its name and when there is one; then one that is taken."""
    async def build(lines, **options):
        (context / "Dockerfile").write_text(f"FROM busybox\n{lines}")
        return await build_template(client, "again", context, **options)

    async def kept():
        return [one.id for one in await client.snapshots()]
    too_long = "".join(f"ENV V{n}={'x' * 50_000}\n" for n in range(3))  # together more than a template may have
    await raised(bothy.ApiError, build(too_long))
    equal(await kept(), [], "snapshots after a template that was refused")
    first = await build("RUN echo first >/said\nENV A=1\nUSER 1000\n")
    await raised(bothy.ApiError, build(too_long, replace=True))
    equal(((await client.template("again")).snapshot, await kept()), (first.snapshot, [first.snapshot]), "the one that was to be replaced")
    second = await build("RUN echo second >/said\n", replace=True)
    equal((await client.template("again"), await kept()), (second, [second.snapshot]), "the one in its place")
    equal((second.raw["env"], second.raw["user"]), ({}, None), "nothing of the first")
    async with await client.create(template="again") as sandbox:
        equal((await sandbox.exec("cat /said")).text, "second\n", "its files")
    await client.delete_template("again")
    await client.delete_snapshot(second.snapshot)


def plain_cases(suite, node):
    @suite.case("every member that is read of an answer is one that the API describes")
    def _():
        schemas, wrong = node.ok("GET", "/openapi.json")["components"]["schemas"], []
        names = {"SandboxInfo": "Sandbox", "ProcessInfo": "Process", "SessionInfo": "Session", "CommandResult": "Command", "NodeInfo": "Info"}
        ours = {"raw", "out", "err", "gaps", "cut"}
        for name in ("Cause", "SandboxInfo", "End", "ProcessInfo", "SessionInfo", "CommandResult", "File", "Image", "Snapshot", "Template", "NodeInfo"):
            told = schemas[names.get(name, name)]["properties"]
            wrong += [f"{name}.{field}" for field in getattr(bothy, name).__dataclass_fields__ if field not in told and field not in ours]
        check(not wrong, f"not in the API: {wrong}")

    @suite.case("every error code of the API has its status; those with a class of their own raise it")
    def _():
        api = bothy._errors
        codes = set(node.ok("GET", "/openapi.json")["components"]["schemas"]["Error"]["properties"]["code"].get("enum") or ())
        check(not codes or not set(api._BY_CODE) - codes, f"the API does not know {set(api._BY_CODE) - codes}")
        e = api.api_error(418, "<html>teapot</html>")
        check(e.code == "unknown" and not e.retryable and "418" in str(e), "a stranger's answer")

    @suite.case("a result tells its reader where bytes are missing")
    def _():
        gaps = tuple(bothy.Gap(*words) for words in (("out", 2, 4), ("err", 0, 9), ("out", 6, 10)))
        end = bothy.End("e", "exited", 0, None, False, None, None, 11, 9, 6, 9, {})

        def left(n):
            return f"\n[... {n} bytes are not kept any more and left out here ...]\n"
        result = bothy.ExecResult("e", end, b"abcde", b"", gaps)
        equal((result.told, result.told_err, result.text), (f"ab{left(2)}cd{left(4)}e", left(9), "abcde"), "told")
        equal(bothy.ExecResult("e", end, b"abc", b"", gaps, cut=True).told, f"ab{left(2)}c", "what is behind `keep`")

    @suite.case("a template of a Dockerfile; its files are packed beside the event loop")
    def _():
        seen, add = set(), Owner.add_file

        def noted(*words):
            seen.add(threading.current_thread() is threading.main_thread())
            add(*words)
        with tempfile.TemporaryDirectory() as here, mock.patch.object(Owner, "add_file", noted):
            pathlib.Path(here, "Dockerfile").write_text("FROM busybox\nENV A=1\nWORKDIR /srv/app\nCOPY a <<END there/\n$A\nEND\nRUN cat there/* >both\n")
            pathlib.Path(here, "a").write_text("file\n")
            equal(asyncio.run(build_and_read(node, pathlib.Path(here))), "1\nfile\n", "its files")
        equal(seen, {False}, "in the main thread")

    @suite.case("a build whose template is refused leaves no snapshot, and the template that it was to replace")
    def _():
        async def builds(context):
            key = node.ok("POST", "/v1/keys", {"owner": "builder", "role": "user"})["key"]
            async with bothy.AsyncClient(f"http://127.0.0.1:{node.port}", key=key, patience=0) as client:
                await refused_builds(client, context)
        with tempfile.TemporaryDirectory() as here:
            asyncio.run(builds(pathlib.Path(here)))

    @suite.case("no daemon: told at once, with what to do")
    def _():
        began = time.monotonic()
        with bothy.Client(socket="/nonexistent/bothyd.sock") as client, contextlib.suppress(bothy.Unreachable):
            client.info()
            check(False, "somebody answered")
        with bothy.Client(f"http://127.0.0.1:{free_port()}", key="k") as client:
            try:
                client.create("busybox")
                check(False, "somebody answered")
            except bothy.Unreachable as e:
                check("BOTHY_SOCKET" in str(e), str(e))
        check(time.monotonic() - began < 20, "it was waited for")  # patience is 60

    @suite.case("an address or a key that can be none is told at once, by both clients; a key may end with a newline")
    def _():
        key, url = node.ok("POST", "/v1/keys", {"owner": "me", "role": "user"})["key"], f"http://127.0.0.1:{node.port}"
        for kind in (bothy.Client, bothy.AsyncClient):
            for where, its, said in ((f"127.0.0.1:{node.port}", key, "http://HOST:PORT"), ("localhost:7070", key, "http://HOST:PORT"),
                                     (url, "e2b_\u00e9", "bothy key create"), (url, "e2b_1\ne2b_2", "bothy key create")):
                check(said in str(lost.raised(ValueError, kind, where, key=its)), f"{where} {its!r}")
        with bothy.Client(url, key=key + "\n", patience=1) as client:
            check(client.info(), "who is there")

    @suite.case("over TCP by its key; a wrong one is told")
    def _():
        key = node.ok("POST", "/v1/keys", {"owner": "me", "role": "user"})["key"]
        with bothy.Client(f"http://127.0.0.1:{node.port}", key=key) as client, client.create("busybox") as sandbox:
            equal((sandbox.exec("echo hi").text, sandbox.info.owner), ("hi\n", "me"), "result")
        with bothy.Client(f"http://127.0.0.1:{node.port}", key="e2b_00") as client:
            try:
                client.create("busybox")
                check(False, "it was taken")
            except bothy.Unauthenticated as e:
                check(e.remedy and not e.retryable, str(e))

    @suite.case("a socket whose path is longer than the kernel takes")
    def _():
        with tempfile.TemporaryDirectory() as here:
            long = pathlib.Path(here, "x" * 100, "y" * 100)
            long.mkdir(parents=True)
            (long / "bothyd.sock").symlink_to(node.path)
            with bothy.Client(socket=str(long / "bothyd.sock")) as client:
                equal(client.info().backend, "oci", "backend")

    @suite.case("a hundred commands at once, each with its own output")
    def _():
        async def many():
            async with bothy.AsyncClient(socket=node.path) as client, await client.create("busybox") as sandbox:
                return await asyncio.gather(*(sandbox.exec(f"sleep 0.2; echo {n}") for n in range(100)))
        equal([r.text for r in asyncio.run(many())], [f"{n}\n" for n in range(100)], "outputs")


def cases(suite: Suite):
    port = free_port()
    with Node(images="busybox debian", env=f"BOTHY_LISTEN_TCP=127.0.0.1:{port}", pool="4:8") as node:
        node.port = port
        plain_cases(suite, node)
        for form in ("sync", "async"):
            for name, body in BOTH:
                @suite.case(f"{form}: {name}")
                def _(form=form, body=body):
                    asyncio.run(run_with(form, body, node))
        lost.cases(suite, node)
        recovery.cases(suite, node)


async def run_with(form, body, node):
    client = Lift(bothy.Client(socket=node.path)) if form == "sync" else bothy.AsyncClient(socket=node.path)
    async with client:
        await body(client, node)



"""Answers lost at a place that the test picks, and callers that are cancelled: nothing is left behind, nothing done is called an error."""
import asyncio

import anyio
import bothy
import httpx
from harness import Node, Watch, check, equal, eventually


class Losing(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Sends every request. Of one that `picks` it calls `lose` instead of giving its answer, `times` times; when it is there, or not `whole`: begins."""

    def __init__(self, inner, picks, times=1, lose=None, whole=True):
        self.inner, self.picks, self.times, self.lose, self.whole = inner, picks, times, lose or self.cut, whole

    @staticmethod
    def cut():
        raise httpx.ReadError("the answer was lost")

    def taken(self, request):
        found = self.times > 0 and self.picks(request.method, str(request.url))
        self.times -= bool(found)
        return found

    def handle_request(self, request):
        answer = self.inner.handle_request(request)
        if self.taken(request):
            if self.whole:
                answer.read()
            else:
                answer.close()
            self.lose()
        return answer

    async def handle_async_request(self, request):
        answer = await self.inner.handle_async_request(request)
        if self.taken(request):
            await (answer.aread() if self.whole else answer.aclose())
            await self.lose()
        return answer

    def close(self):
        self.inner.close()

    async def aclose(self):
        await self.inner.aclose()


class Halving(httpx.BaseTransport):
    """Of the first pieces of standard input it sends half, without an end, and gives no answer: a daemon that is killed in its pwrite."""

    def __init__(self, inner, times=2):
        self.inner, self.times = inner, times

    def handle_request(self, request):
        if not (self.times and "/stdin" in str(request.url) and request.content):
            return self.inner.handle_request(request)
        self.times -= 1
        half = request.content[:len(request.content) // 2]
        headers = {k: v for k, v in request.headers.items() if k != "content-length"}
        self.inner.handle_request(httpx.Request(request.method, request.url.copy_remove_param("eof"), headers=headers, content=half)).read()
        raise httpx.ReadError("the answer was lost")

    def close(self):
        self.inner.close()


def losing(client, method, part, **options):
    http = client.transport._http
    http._transport = Losing(http._transport, lambda how, url: how == method and part in url, **options)
    return client


def interrupted():
    raise KeyboardInterrupt


async def cancelled(cancel):
    """The caller is, when the answer was to come."""
    cancel()
    await anyio.sleep_forever()


def raised(kind, function, *words, **options):
    try:
        got = function(*words, **options)
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__}, but {got!r}")


def cases(suite, node):
    def connected(**options):
        return bothy.Client(socket=node.path, **options)

    def none_left(label):
        with connected() as client:
            eventually("it is gone", lambda: not list(client.list(label=[f"lost={label}"])))
            equal(len(list(client.list(label=[f"lost={label}"], state=["gone"]))), 1, "made once")

    @suite.case("a create whose caller loses patience or is interrupted leaves no sandbox, unless the key is its own")
    def _():
        with losing(connected(patience=0), "POST", "/v1/sandboxes") as client:
            raised(bothy.ConnectionLost, client.create, "busybox", labels={"lost": "patience"})
        none_left("patience")
        with losing(connected(), "POST", "/v1/sandboxes", lose=interrupted) as client:
            raised(KeyboardInterrupt, client.create, "busybox", labels={"lost": "interrupt"})
        none_left("interrupt")
        with losing(connected(patience=0), "POST", "/v1/sandboxes") as client:
            raised(bothy.ConnectionLost, client.create, "busybox", key="of-the-caller")
            with client.create("busybox", key="of-the-caller") as sandbox:
                equal(sandbox.info.state, "running", "found again")

    @suite.case("a create that is cancelled leaves no sandbox; nor does a block whose scope is")
    def _():
        async def create_cancelled():
            async with bothy.AsyncClient(socket=node.path) as client:
                with anyio.CancelScope() as outer:
                    losing(client, "POST", "/v1/sandboxes", lose=lambda: cancelled(outer.cancel))
                    await client.create("busybox", labels={"lost": "scope"})
                losing(client, "POST", "/v1/sandboxes", lose=lambda: cancelled(task.cancel))
                task = asyncio.create_task(client.create("busybox", labels={"lost": "task"}))
                await asyncio.gather(task, return_exceptions=True)
                with anyio.CancelScope() as scope:
                    async with await client.create("busybox", labels={"lost": "block"}):
                        scope.cancel()
                        await anyio.sleep_forever()
        asyncio.run(create_cancelled())
        for label in ("scope", "task", "block"):
            none_left(label)

    @suite.case("a create that is cancelled while it waits for a slot leaves the queue at once")
    def _():
        async def cancel_waiting(full):
            async with bothy.AsyncClient(socket=full.path) as client, await client.create("busybox"):
                task = asyncio.create_task(client.create("busybox", labels={"lost": "queue"}, queue_wait=300))
                await anyio.to_thread.run_sync(lambda: eventually("it waits", lambda: full.ok("GET", "/v1/info")["counts"]["creating"] == 1))
                task.cancel()
                began = Watch()
                await asyncio.gather(task, return_exceptions=True)
                check(began.within(5), f"it took {began.seconds():.1f} s")
        with Node(images="busybox", pool="0:1", warden="--max 1") as full:
            asyncio.run(cancel_waiting(full))
            eventually("nothing waits", lambda: full.ok("GET", "/v1/info")["counts"]["creating"] == 0)
            equal(list(bothy.Client(socket=full.path).list()), [], "what is left when there is room")

    @suite.case("a command whose caller is cancelled or interrupted ends, also one that was not heard of yet; with a key of the caller's it goes on")
    def _():
        async def cancel_all():
            async with bothy.AsyncClient(socket=node.path) as client, await client.create("busybox") as sandbox:
                for options in ({}, {"stdin": b"x" * 1_500_000}):
                    with anyio.move_on_after(1):
                        await sandbox.exec("cat >/dev/null; sleep 1000", **options)
                    await until_none_runs(sandbox)
                losing(client, "POST", "/exec", lose=lambda: cancelled(task.cancel), whole=False)
                task = asyncio.create_task(sandbox.exec("sleep 1000"))
                await asyncio.gather(task, return_exceptions=True)
                await until_none_runs(sandbox)
                with anyio.move_on_after(1):
                    await sandbox.exec("sleep 1000", key="of-the-caller")
                equal(len([p for p in await sandbox.processes() if p.running]), 1, "that run with a key of the caller's")

        async def until_none_runs(sandbox):
            with anyio.fail_after(20):
                while any(p.running for p in await sandbox.processes()):
                    await anyio.sleep(0.05)
        asyncio.run(cancel_all())
        with losing(connected(), "POST", "/exec", lose=interrupted, whole=False) as client, client.create("busybox") as sandbox:
            raised(KeyboardInterrupt, sandbox.exec, "sleep 1000")
            eventually("none runs", lambda: not [p for p in sandbox.processes() if p.running])

    @suite.case("a lost answer to the end of standard input is no error, and the command goes on to its end")
    def _():
        data = b"x" * 1_500_000
        with losing(connected(), "POST", "/stdin", times=100) as client, client.create("busybox") as sandbox:
            client.transport._http._transport.picks = twice(lambda how, url: how == "POST" and "/stdin" in url)
            r = sandbox.exec("wc -c; sleep 1; echo end", stdin=data)
            equal((r.out, r.exit_code), (b"1500000\nend\n", 0), "result")

    @suite.case("of standard input that a killed daemon kept in part the rest is sent")
    def _():
        with connected() as client, client.create("busybox") as sandbox:
            client.transport._http._transport = Halving(client.transport._http._transport)
            process = sandbox.start(["cat"], stdin_open=True)
            process.write(b"0123456789")
            process.write(b"abcdefghij", eof=True)
            equal(client.transport._http._transport.times, 0, "halves")
            equal(process.wait().out, b"0123456789abcdefghij", "output")

    @suite.case("who gives up while standard input is sent leaves no command behind")
    def _():
        with losing(connected(patience=0.2), "POST", "/stdin", times=1000) as client, client.create("busybox") as sandbox:
            raised(bothy.ConnectionLost, sandbox.exec, "cat >/dev/null; sleep 100", stdin=b"x" * 1_500_000)
            eventually("none runs", lambda: not [p for p in sandbox.processes() if p.running])

    @suite.case("standard input is measured in bytes")
    def _():
        with connected() as client, client.create("busybox") as sandbox:
            equal(sandbox.exec(["wc", "-c"], stdin="é" * 1_000_000).text.strip(), "2000000", "bytes")

    @suite.case("two handles of one command: one that joins goes on where its input is; one that is behind is told, not believed")
    def _():
        with connected() as client, client.create("busybox") as sandbox:
            process = sandbox.start(["cat"], stdin_open=True)
            process.write(b"a\n")
            joined = sandbox.process(process.exec)
            joined.write(b"b\n")
            raised(bothy.Conflict, process.write, b"c\n")
            joined.write(b"", eof=True)
            equal(process.wait().out, b"a\nb\n", "output")

    @suite.case("what a lost answer has removed is removed; what was never there is told")
    def _():
        with losing(connected(), "DELETE", "/files") as client, client.create("busybox") as sandbox:
            sandbox.files.write("/x", "1")
            sandbox.files.remove("/x")
            equal(client.transport._http._transport.times, 0, "an answer was lost")
            check(raised(bothy.NotFound, sandbox.files.remove, "/x").kind == "path", "the second")


def twice(picks):
    """Every other one that `picks` picks, so that each request is sent twice."""
    seen = []

    def pick(*words):
        if not picks(*words):
            return False
        seen.append(words)
        return len(seen) % 2 == 1
    return pick

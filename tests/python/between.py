"""What something between the client and its node answers in the node's place; the node is a few lines of this file."""
import asyncio
import types
from unittest import mock

import bothy
import httpx
from bothy import _request
from harness import check, equal
from lift import Lift

PAGE = "<html><h1>503 Service Temporarily Unavailable</h1></html>"
SANDBOX = {"id": "b1", "state": "running", "owner": "me", "created": "2026-01-01T00:00:00Z", "limits": {}}
STREAM = {"Content-Type": "text/event-stream", "bothy-exec": "e1"}
OUT = b'event: out\ndata: {"offset": 0, "text": "begun\\n"}\n\n'
END = (b'event: end\ndata: {"exec": "e1", "how": "exited", "exit_code": 0, "signal": null, "oom": false, "user": null, "cwd": null, '
       b'"out_bytes": 6, "err_bytes": 0, "out_dropped": 0, "err_dropped": 0}\n\n')


def page(status=503):
    return httpx.Response(status, text=PAGE)


def error(status, code, **members):
    return httpx.Response(status, json={"error": {"code": code, "message": "no", "retryable": False, **members}})


def made():
    return httpx.Response(201, json=SANDBOX)


def events(*parts):
    return httpx.Response(200, headers=STREAM, content=b"".join(parts))


class Script:
    """The answers in turn to what is sent; what was sent, by method and path, and the Idempotency-Keys of POSTs."""

    def __init__(self, *answers):
        self.answers, self.sent, self.keys = list(answers), [], set()

    def __call__(self, request):
        self.sent.append(f"{request.method} {request.url.path}")
        if request.method == "POST":
            self.keys.add(request.headers.get("Idempotency-Key"))
        check(self.answers, f"more was sent than expected: {self.sent}")
        return self.answers.pop(0)


def with_both(body):
    """Runs body(play) for each form of the client; `play` makes one of answers, and their script."""
    for form in (bothy.Client, bothy.AsyncClient):
        def play(*answers, form=form, **options):
            script, client = Script(*answers), form("http://node", **options)
            client.transport._http._transport = httpx.MockTransport(script)
            return Lift(client) if form is bothy.Client else client, script
        asyncio.run(body(play))


async def raised(kind, awaitable):
    try:
        got = await awaitable
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__}, but {got!r}")


def cases(suite):
    @suite.case("a proxy's 502, 503 and 504 while the daemon restarts are waited out: a command's output goes on where it was")
    def _():
        async def body(play):
            client, script = play(made(), events(OUT), page(503), httpx.Response(502, json={"error": {"code": 502}}), page(504), events(END))
            sandbox = await client.create("busybox")
            result = await sandbox.exec("echo begun")
            equal((result.out, result.exit_code), (b"begun\n", 0), "result")
            equal((script.sent[1:], script.answers), (["POST /v1/sandboxes/b1/exec"] + ["GET /v1/sandboxes/b1/processes/e1/output"] * 4, []), "sent")
            client, script = play(made(), page(503), events(OUT, END))
            sandbox = await client.create("busybox")
            equal((await sandbox.exec("echo begun")).out, b"begun\n", "a command that may not have begun")
            equal((script.sent[1:], len(script.keys)), (["POST /v1/sandboxes/b1/exec"] * 2, 2), "sent, and keys")
        with_both(body)

    @suite.case("what may not be repeated is sent once, whatever a proxy answers: nobody knows whether it was done")
    def _():
        async def body(play):
            for status in (502, 503, 504):
                client, script = play(made(), page(status))
                sandbox = await client.create("busybox")
                e = await raised(bothy.ConnectionLost, sandbox.snapshot())
                check(str(status) in str(e) and "Temporarily" in str(e), str(e))
                equal(len(script.sent), 2, "sent")
            client, script = play(page(413))
            e = await raised(bothy.ApiError, client.create("busybox"))
            equal((e.code, e.status, len(script.sent)), ("unknown", 413, 1), "a refusal of the proxy's own")
        with_both(body)

    @suite.case("a note behind an archive counts if it is one")
    def _():
        async def body(play):
            for end, wrong in ((b"Bothy-Unread: 3\n", True), (b"Bothy-Unread: many\n", False), (b"Bothy-Unread: " + b"9" * 400, False)):
                archive = b"tar" + end.ljust(512, b"\0")
                client, script = play(made(), httpx.Response(200, content=archive))
                sandbox = await client.create("busybox")
                if wrong:
                    check("3 entries" in str(await raised(bothy.BothyError, sandbox.files.get_archive("/"))), "its number")
                else:
                    equal(await sandbox.files.get_archive("/"), archive, "archive")
        with_both(body)

    @suite.case("a create that a proxy gives up leaves no sandbox, unless the key is the caller's")
    def _():
        async def body(play):
            undone = ["POST /v1/sandboxes", "DELETE /v1/sandboxes"]
            client, script = play(page(504), httpx.Response(200, json=SANDBOX), patience=0)
            await raised(bothy.ConnectionLost, client.create("busybox"))
            equal((script.sent, len(script.keys)), (undone, 1), "sent after a 504")
            client, script = play(page(502), error(401, "unauthenticated"), httpx.Response(200, json=SANDBOX))
            await raised(bothy.Unauthenticated, client.create("busybox"))
            equal((script.sent, len(script.keys)), (undone[:1] + undone, 1), "sent after an error behind a 502")
            client, script = play(page(504), error(404, "not_found"), httpx.Response(200, json=SANDBOX), patience=0)
            await raised(bothy.ConnectionLost, client.create("busybox"))
            equal((script.sent, len(script.keys)), ([*undone, undone[1]], 1), "sent when the node had not read it yet")
            client, script = play(error(400, "invalid_request"))
            await raised(bothy.InvalidRequest, client.create("busybox"))
            equal(len(script.sent), 1, "sent after an error alone")
            client, script = play(page(504), patience=0)
            await raised(bothy.ConnectionLost, client.create("busybox", key="of-the-caller"))
            equal((len(script.sent), script.keys), (1, {"of-the-caller"}), "sent with the caller's key")
        with_both(body)

    @suite.case("a create is waited for as long behind a proxy that gives up each minute as without it")
    def _():
        async def body(play):
            clock = types.SimpleNamespace(now=0.0)

            def slow(seconds, script):
                def answer(request):
                    clock.now += seconds
                    return script(request)
                return answer
            client, script = play(*[page(504)] * 4, made())
            client.transport._http._transport.handler = slow(60, script)
            with mock.patch.object(_request, "time", types.SimpleNamespace(monotonic=lambda: clock.now)):
                equal((await client.create("busybox")).id, "b1", "made")
                client, script = play(*[page(504)] * 3)
                client.transport._http._transport.handler = slow(2000, script)
                await raised(bothy.ConnectionLost, client.create("busybox", key="of-the-caller"))
                equal(len(script.sent), 2, "sent when the create's own time is over")
        with_both(body)

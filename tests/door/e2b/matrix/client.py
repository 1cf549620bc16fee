#!/usr/bin/env python3
"""The behaviours of behaviours.txt, by the Python SDK `e2b` of the interpreter that runs this.

    client.py sync|async [TEXT]

Settings come from the environment (run sets them): BOTHY_URL where the server listens, E2B_API_KEY, BOTHY_OTHER_KEY another
owner's, BOTHY_BAD_KEY nobody's, BOTHY_OCI an image's name, BOTHY_BIG the size of the big file. Each behaviour is a line of JSON on
stdout: {"name", "result": passed|failed|skipped, "why", "ms"}.

Versions before 2.7 know no E2B_SANDBOX_URL: they talk TLS to hosts below sbx.test (front.py)."""
import asyncio
import contextlib
import http.client
import importlib.metadata
import inspect
import json
import os
import re
import signal
import sys
import time
import traceback
import urllib.parse
import uuid
import warnings

warnings.simplefilter("ignore")
URL = urllib.parse.urlsplit(os.environ["BOTHY_URL"])
DOMAIN = "sbx.test"
VERSION = tuple(int(x) for x in re.findall(r"\d+", importlib.metadata.version("e2b"))[:3])
UNCLAIMED = os.environ.get("BOTHY_UNCLAIMED", "").split()
LIMIT = 90  # seconds a behaviour may take

if VERSION >= (2, 7, 0):
    os.environ.update(E2B_API_URL=os.environ["BOTHY_URL"], E2B_SANDBOX_URL=os.environ["BOTHY_URL"])
else:
    os.environ["E2B_DOMAIN"] = DOMAIN

import e2b  # noqa: E402
from e2b import AsyncSandbox, Sandbox  # noqa: E402


class Skip(Exception):
    """This version does not have it."""


def have(condition, what):
    if not condition:
        raise Skip(f"this version does not have it: {what}")


def takes(function, name):
    """Whether it has this parameter, by itself or among a TypedDict's."""
    return name in inspect.signature(function).parameters


def exceptions(*names):
    """Those of them that the version has."""
    return tuple(getattr(e2b, n) for n in names if hasattr(e2b, n)) or (Exception,)


CommandExit = getattr(e2b, "CommandExitException", None)
if CommandExit is None:
    from e2b.sandbox.commands.command_handle import CommandExitException as CommandExit
NotFound, Invalid, Timeout = (exceptions(n) for n in ("NotFoundException", "InvalidArgumentException", "TimeoutException"))
Authentication = exceptions("AuthenticationException")


async def A(value):
    """What a call of either flavour gives."""
    return await value if inspect.isawaitable(value) else value


def check(condition, what="does not hold"):
    if not condition:
        raise AssertionError(str(what)[:400])


def equal(got, wanted, what="value"):
    if got != wanted:
        raise AssertionError(f"{what} is {str(got)[:200]!r}, not {str(wanted)[:200]!r}")


async def raises(kinds, call):
    """Calls it, and gives what it raised, which must be of these kinds."""
    try:
        got = await A(call())
    except kinds as e:
        return e
    except Exception as e:
        raise AssertionError(f"raised {type(e).__name__} ({str(e)[:200]}), not one of {kinds}") from e
    raise AssertionError(f"raised nothing (it gave {str(got)[:80]}), not one of {kinds}")


def plain(sandbox_id):
    """Without the -client of old versions."""
    return sandbox_id.split("-")[0]


class Client:
    """What a behaviour is given: the flavour, a sandbox to use, and ways to make others."""

    def __init__(self, is_async):
        self.is_async = is_async
        self.Sandbox = AsyncSandbox if is_async else Sandbox
        self.tag = uuid.uuid4().hex[:10]
        self.sb = None
        self.dir = None
        self.other, self.bad = os.environ["BOTHY_OTHER_KEY"], os.environ["BOTHY_BAD_KEY"]
        self.oci, self.big = os.environ["BOTHY_OCI"], int(os.environ["BOTHY_BIG"])

    @property
    def maker(self):
        return self.Sandbox.create if hasattr(self.Sandbox, "create") else self.Sandbox

    @property
    def secure(self):
        """Async terminals before 2.0 do not show the token: there, as by its default, sandboxes have none."""
        return takes(self.maker, "secure") and not (self.is_async and VERSION < (2, 0, 0))

    async def make(self, template="base", timeout=120, **options):
        if takes(self.maker, "secure"):
            options.setdefault("secure", self.secure)
        return await A(self.maker(template=template, timeout=timeout, **options))

    @contextlib.asynccontextmanager
    async def sandbox(self, *args, **options):
        """One that is ended with the block."""
        made = await self.make(*args, **options)
        try:
            yield made
        finally:
            with contextlib.suppress(Exception):
                await A(made.kill())

    async def connect(self, sandbox_id, **options):
        return await A(self.Sandbox.connect(sandbox_id, **options))

    async def items(self, **options):
        """All pages of a list."""
        listed = self.Sandbox.list(**options)
        if not hasattr(listed, "next_items"):
            return await A(listed)
        got = []
        while listed.has_next:
            got += await A(listed.next_items())
        return got

    async def ids(self, **options):
        return {plain(one.sandbox_id) for one in await self.items(**options)}

    def query(self, **members):
        if hasattr(e2b, "SandboxQuery"):
            return {"query": e2b.SandboxQuery(**members)}
        from e2b.sandbox.sandbox_api import SandboxQuery
        return {"query": SandboxQuery(**members)}

    def spawn(self, call):
        """Runs it beside this: a task, or a thread."""
        if self.is_async:
            return asyncio.ensure_future(call())
        return asyncio.ensure_future(asyncio.to_thread(call))

    async def run(self, command, sb=None, **options):
        return await A((sb or self.sb).commands.run(command, **options))

    async def out(self, command, sb=None, **options):
        """What it writes; it must end with 0."""
        return (await self.run(command, sb, **options)).stdout

    async def start(self, command, sb=None, stdin=False, **options):
        """In the background; before 2.2 stdin is always there."""
        sb = sb or self.sb
        if stdin and takes(sb.commands.run, "stdin"):
            options["stdin"] = True
        return await A(sb.commands.run(command, background=True, **options))

    async def end(self, handle):
        """Kills it and reads its end: a stream that is left to the garbage collector may block old versions' pool for ever."""
        await A(handle.kill())
        with contextlib.suppress(CommandExit):
            await A(handle.wait())

    async def eventually(self, what, holds, seconds=10):
        end = time.monotonic() + seconds
        while True:
            got = await A(holds())
            if got:
                return got
            check(time.monotonic() < end, f"{what}: not within {seconds} s")
            await asyncio.sleep(0.05)

    def fetch(self, url, method="GET", body=None, headers=None):
        """A URL or host that an SDK gave, on the server that is tested: (status, body)."""
        parts = urllib.parse.urlsplit(url if "://" in url else "http://" + url)
        c = http.client.HTTPConnection(URL.hostname, URL.port, timeout=30)
        try:
            target = parts.path + ("?" + parts.query if parts.query else "")
            c.request(method, target or "/", body=body, headers={"Host": parts.netloc, **(headers or {})})
            r = c.getresponse()
            return r.status, r.read()
        finally:
            c.close()


BEHAVIOURS = {}


def behaviour(function):
    BEHAVIOURS[function.__name__] = function
    return function


async def one(client, function):
    """Runs a behaviour; gives (result, why)."""
    client.dir = f"/tmp/m-{client.tag}/{function.__name__}"
    if function.__name__ in UNCLAIMED:
        return "skipped", "not claimed"
    try:
        await asyncio.wait_for(function(client), LIMIT)
    except Skip as e:
        return "skipped", str(e)
    except Exception as e:
        if os.environ.get("BOTHY_TRACE"):
            traceback.print_exc()
        return "failed", f"{type(e).__name__}: {str(e)[:400]}"
    return "passed", None


def too_long(*_):
    raise TimeoutError(f"not within {LIMIT} s")


async def fresh(client):
    """The sandbox that behaviours share, again if one of them ended it."""
    with contextlib.suppress(Exception):
        if client.sb and await A(client.sb.is_running()):
            return
    client.sb = await client.make(timeout=600, metadata={"tag": client.tag, "odd": "u 1&=%ž"}, envs={"GIVEN": "by create"})
    # A server that runs commands beside itself would have its files changed.
    if (await client.out("hostname")).strip() != plain(client.sb.sandbox_id):
        sys.exit("commands do not run in a sandbox of this server: nothing is tried")


async def main(flavour, only):
    client = Client(flavour == "async")
    failed = True
    for name, function in BEHAVIOURS.items():
        if only not in name:
            continue
        began = time.monotonic()
        print(json.dumps({"name": name, "result": "begun"}), flush=True)
        signal.alarm(LIMIT)
        try:
            if failed:
                await fresh(client)
            result, why = await one(client, function)
        except Exception as e:  # noqa: BLE001
            result, why = "failed", f"no sandbox to try it in: {type(e).__name__}: {str(e)[:300]}"
        signal.alarm(0)
        failed = result == "failed"
        print(json.dumps({"name": name, "result": result, "why": why, "ms": round((time.monotonic() - began) * 1000)}), flush=True)
    with contextlib.suppress(Exception):
        await A(client.sb.kill())


if __name__ == "__main__":
    sys.modules["client"] = sys.modules["__main__"]
    signal.signal(signal.SIGALRM, too_long)
    for part in ("control", "ports", "process", "terminal", "files", "watch", "templates"):
        __import__("py_" + part)
    print(json.dumps({"version": importlib.metadata.version("e2b"), "flavour": sys.argv[1]}), flush=True)
    asyncio.run(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""))
    sys.stdout.flush()
    os._exit(0)  # connections of old versions hold the interpreter

"""Commands: run to their end, or started and looked after."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import httpx

from .._errors import BothyError, Conflict
from .._events import Collector, Progress
from .._models import Chunk, End, ExecResult, Gap, ProcessInfo
from .._request import ENDING, SILENCE, Request, given, keyed, milliseconds, path
from .._wait import async_shielded
from .follow import EVENTS, AsyncFollow
from .transport import AsyncTransport

STDIN_AT_ONCE = 1 << 20  # bytes in the body of an exec
STDIN_PART = 1 << 20


def exec_body(argv: str | Sequence[str], env: Mapping[str, str] | None, user: str | None, cwd: str | None, timeout: float | None,
              stdio: str | None, stdin: str | bytes | None) -> dict[str, Any]:
    words = ["sh", "-c", argv] if isinstance(argv, str) else list(argv)
    given_in = {"b64": base64.b64encode(stdin).decode()} if isinstance(stdin, bytes) else stdin
    return {"argv": words, **given(env=env, user=user, cwd=cwd, timeout_ms=milliseconds(timeout), stdio=stdio, stdin=given_in)}


async def collect(follow: AsyncFollow, keep: int | None) -> ExecResult:
    kept = Collector(keep)
    async for got in follow.events():
        kept.add(got)
    assert follow.finished is not None
    end = End.of(follow.finished.raw)
    return ExecResult(end.exec, end, kept.out, kept.err, tuple(kept.gaps), kept.cut)


async def run_to_end(transport: AsyncTransport, sandbox: str, body: Mapping[str, Any], key: str | None, keep: int | None) -> ExecResult:
    def learn(headers: httpx.Headers) -> str | None:
        found = headers.get("bothy-exec")
        return path("sandboxes", sandbox, "processes", found, "output") if found else None

    begin = Request("POST", path("sandboxes", sandbox, "exec"), json=body, headers={**keyed(key), **EVENTS}, silence=SILENCE)
    follow = AsyncFollow(transport, begin, learn)
    try:
        return await collect(follow, keep)
    except Exception:
        raise
    except BaseException:  # who waited does not any more
        if key is None:
            with async_shielded(ENDING), contextlib.suppress(BothyError, httpx.TransportError):
                await follow.abandon()
        raise


class AsyncProcess:
    def __init__(self, transport: AsyncTransport, sandbox: str, info: ProcessInfo, written: int | None = None) -> None:
        """`written`: bytes of its standard input so far; None: ask first."""
        self.transport, self.sandbox = transport, sandbox
        self.info = info
        self.exec = info.exec
        self._written = written

    def _path(self, *parts: str) -> str:
        return path("sandboxes", self.sandbox, "processes", self.exec, *parts)

    def _follow(self, out: int = 0, err: int = 0) -> AsyncFollow:
        return AsyncFollow(self.transport, None, lambda _: None, self._path("output"), Progress(out, err))

    async def refresh(self) -> ProcessInfo:
        self.info = ProcessInfo.of(await self.transport.json(Request("GET", self._path())))
        return self.info

    async def follow(self, *, out: int = 0, err: int = 0) -> AsyncIterator[Chunk | Gap]:
        """Output as it comes, from these offsets, until the command ends; then `info.end` says how."""
        follow = self._follow(out, err)
        async for got in follow.events():
            yield got
        await self.refresh()

    async def wait(self, *, keep: int | None = None) -> ExecResult:
        """All of its output and its end."""
        return await collect(self._follow(), keep)

    async def read(self, stream: str = "out", offset: int = 0, limit: int = 1 << 20) -> Chunk:
        """What is there now, at most `limit` bytes; the chunk's offset is more than was asked for if bytes are not kept any more."""
        query = {"stream": stream, "offset": str(offset), "max": str(limit)}
        response = await self.transport.call(Request("GET", self._path("output"), query=query))
        return Chunk(stream, int(response.headers["bothy-offset"]), response.content)

    async def write(self, data: bytes, *, eof: bool = False) -> None:
        """To its standard input. An answer that was lost is asked for again by offset: no byte is written twice."""
        if self._written is None:
            self._written = await self._length() or 0
        begin, after = self._written, self._written + len(data)
        while not await self._append(data[self._written - begin:], after, eof):
            pass

    async def _append(self, data: bytes, after: int, eof: bool) -> bool:
        """Sends it once, and whether all of it is there now. A daemon that was killed while it appended has kept the first bytes of it."""
        try:
            await self.transport.json(self._stdin(data, {"offset": str(self._written), **({"eof": "true"} if eof else {})}))
        except Conflict as e:
            length = await self._length() if e.repeated else -1
            if length is not None and (self._written or 0) < length <= after and (eof or length < after):
                self._written = length
                return False
            if length != (None if eof else after):  # else the first sending has appended them
                raise
        self._written = after
        return True

    def _stdin(self, data: bytes, query: Mapping[str, str]) -> Request:
        octets = {"Content-Type": "application/octet-stream"}
        return Request("POST", self._path("stdin"), query=query, content=data, headers=octets, silence=3600)

    async def _length(self) -> int | None:
        """Of standard input so far; None if it is closed."""
        try:
            return int((await self.transport.json(self._stdin(b"", {})))["length"])
        except Conflict:
            return None

    async def write_all(self, data: bytes) -> None:
        """And its end. A command that ends before it has read everything is no error."""
        try:
            for at in range(0, len(data), STDIN_PART):
                await self.write(data[at:at + STDIN_PART])
            await self.write(b"", eof=True)
        except BothyError:
            if (await self.refresh()).end is None:
                raise

    async def signal(self, signal: str | int, scope: str = "process") -> None:
        """To the command's process, its group, its session or its tree. Sent once: a lost answer is an error."""
        await self.transport.call(Request("POST", self._path("signal"), json={"signal": signal, "scope": scope}, again=False))

    async def kill(self) -> ProcessInfo:
        """SIGKILL to it and everything it started."""
        self.info = ProcessInfo.of(await self.transport.json(Request("DELETE", self._path())))
        return self.info

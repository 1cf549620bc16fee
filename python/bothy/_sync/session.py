"""Sessions: shells that keep their state."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import httpx

from .._errors import NotFound, SandboxGone
from .._events import Collector
from .._models import CommandResult, SessionInfo
from .._request import SILENCE, Request, given, keyed, milliseconds, path
from .follow import EVENTS, Follow
from .transport import Transport

NOT_RUN_TRIES = 3


class Session:
    """As a context manager it is ended with the block."""

    def __init__(self, transport: Transport, sandbox: str, info: SessionInfo) -> None:
        self.transport, self.sandbox = transport, sandbox
        self.info = info
        self.id = info.id

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.delete()
        except (NotFound, SandboxGone):
            return

    def _path(self, *parts: str) -> str:
        return path("sandboxes", self.sandbox, "sessions", self.id, *parts)

    def _change(self, method: str, *parts: str) -> SessionInfo:
        self.info = SessionInfo.of(self.transport.json(Request(method, self._path(*parts))))
        return self.info

    def refresh(self) -> SessionInfo:
        return self._change("GET")

    def delete(self) -> SessionInfo:
        return self._change("DELETE")

    def interrupt(self) -> SessionInfo:
        """What Ctrl-C would do, and more if that is not enough; the command's own result tells how it ended."""
        return self._change("POST", "interrupt")

    def run(self, command: str | bytes, *, timeout: float | None = None, merge: bool | None = None, queue: bool | None = None,
                  keep: int | None = None, key: str | None = None) -> CommandResult:
        """Runs any text that the shell takes to its end. A lost connection is taken up again where it was, and no command is run twice:
        one that the node knows not to have been run (`not_run`) is sent again."""
        text = {"b64": base64.b64encode(command).decode()} if isinstance(command, bytes) else command
        body = {"command": text, **given(timeout_ms=milliseconds(timeout), merge=merge, queue=queue)}
        for _ in range(NOT_RUN_TRIES):
            result = self._run(body, keyed(key), keep)
            if result.kind != "not_run" or key is not None:
                break
        return result

    def _run(self, body: Mapping[str, Any], key: Mapping[str, str], keep: int | None) -> CommandResult:
        def learn(headers: httpx.Headers) -> str | None:
            found = headers.get("bothy-seq")
            return self._path("commands", found, "output") if found else None

        begin = Request("POST", self._path("commands"), json=body, headers={**key, **EVENTS}, silence=SILENCE)
        follow, kept = Follow(self.transport, begin, learn), Collector(keep)
        for got in follow.events():
            kept.add(got)
        assert follow.finished is not None
        return dataclasses.replace(CommandResult.of(follow.finished.raw), out=kept.out, err=kept.err, gaps=tuple(kept.gaps), cut=kept.cut)

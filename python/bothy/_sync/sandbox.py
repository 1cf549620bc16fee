"""A sandbox: commands, sessions, files, and its life."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from .._errors import BothyError, NotFound
from .._models import ExecResult, ProcessInfo, SandboxInfo, SessionInfo, Snapshot
from .._request import ANSWER, ENDING, SLOW, Request, given, keyed, path
from .._wait import shielded
from .files import Files
from .process import STDIN_AT_ONCE, Process, exec_body, run_to_end
from .session import Session
from .transport import Transport


class Sandbox:
    """As a context manager it is ended with the block."""

    def __init__(self, transport: Transport, info: SandboxInfo) -> None:
        self.transport = transport
        self.info = info
        """As it was when it was last asked for; `refresh()` asks."""
        self.id = info.id
        self.files = Files(transport, info.id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.info.image}>"

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        cancelled = kind is not None and not issubclass(kind, Exception)
        with shielded(ENDING if cancelled else self.transport.patience + ANSWER + ENDING):
            self.delete()

    def _ask(self, method: str, *parts: str, silence: float = ANSWER, again: bool = True, **members: Any) -> Any:
        request = Request(method, path("sandboxes", self.id, *parts), silence=silence, again=again, **members)
        return self.transport.json(request)

    def _change(self, method: str, *parts: str, **members: Any) -> SandboxInfo:
        self.info = SandboxInfo.of(self._ask(method, *parts, **members))
        return self.info

    # ---- its life ----
    def refresh(self) -> SandboxInfo:
        return self._change("GET")

    def delete(self) -> SandboxInfo | None:
        """Ends it; one that has ended already stays as it was. None: even its record is gone."""
        try:
            return self._change("DELETE")
        except NotFound:
            return None

    def update(self, *, ttl: int | None = None, idle: int | None = None, labels: Mapping[str, str | None] | None = None,
                     limits: Mapping[str, float] | None = None) -> SandboxInfo:
        return self._change("PATCH", json=given(ttl=ttl, idle=idle, labels=labels, limits=limits))

    def pause(self) -> SandboxInfo:
        return self._change("POST", "pause")

    def resume(self) -> SandboxInfo:
        return self._change("POST", "resume")

    def reset(self, *, env: Mapping[str, str] | None = None, secrets: Mapping[str, str] | None = None, queue_wait: int | None = None,
                    key: str | None = None) -> SandboxInfo:
        """Begins again with a fresh root under the same id. Variables and secrets are not kept: give them again."""
        return self._change("POST", "reset", json=given(env=env, secrets=secrets, queue_wait=queue_wait), headers=keyed(key), silence=SLOW)

    def snapshot(self) -> Snapshot:
        """Of its files. A lost answer is not asked for again: look whether it is there."""
        return Snapshot.of(self._ask("POST", "snapshots", silence=SLOW, again=False))

    def fork(self, count: int = 1, **members: Any) -> Sequence[Sandbox]:
        """Sandboxes that begin with its files. If the answer is lost the children end by themselves."""
        made = self._ask("POST", "fork", json={"count": count, **given(**members)}, silence=SLOW, again=False)
        return [Sandbox(self.transport, SandboxInfo.of(one)) for one in made["sandboxes"]]

    # ---- commands ----
    def exec(self, argv: str | Sequence[str], *, env: Mapping[str, str] | None = None, user: str | None = None, cwd: str | None = None,
                   stdin: str | bytes | None = None, timeout: float | None = None, merged: bool = False, keep: int | None = None,
                   key: str | None = None) -> ExecResult:
        """Runs a command to its end; a string is given to `sh -c`. `timeout`: seconds, then it and all it started are ended by the node.
        `merged`: stderr goes to `out`, in the order written. `keep`: at most so many bytes of each stream.

        A lost connection is taken up again where it was. A command that could not be started is an error, one that failed is a result. Who is
        cancelled or interrupted ends the command, unless the key is the caller's: it finds the command again."""
        if stdin is not None and len(stdin if isinstance(stdin, bytes) else stdin.encode()) > STDIN_AT_ONCE:
            process = self.start(argv, env=env, user=user, cwd=cwd, timeout=timeout, merged=merged, stdin_open=True, key=key)
            return self._through(process, stdin if isinstance(stdin, bytes) else stdin.encode(), keep, key is None)
        body = exec_body(argv, env, user, cwd, timeout, "merged" if merged else None, stdin)
        return run_to_end(self.transport, self.id, body, key, keep)

    def _through(self, process: Process, data: bytes, keep: int | None, ours: bool) -> ExecResult:
        """Who gives up leaves no command that waits for the rest; who is cancelled leaves none."""
        fed = False
        try:
            process.write_all(data)
            fed = True
            return process.wait(keep=keep)
        except BaseException as e:
            if not fed or (ours and not isinstance(e, Exception)):
                with shielded(ENDING), contextlib.suppress(BothyError):
                    process.kill()
            raise

    def start(self, argv: str | Sequence[str], *, env: Mapping[str, str] | None = None, user: str | None = None, cwd: str | None = None,
                    timeout: float | None = None, merged: bool = False, stdin_open: bool = False, key: str | None = None) -> Process:
        """Starts a command and does not wait for it."""
        body = {**exec_body(argv, env, user, cwd, timeout, "merged" if merged else None, None), "stdin_open": stdin_open}
        return Process(self.transport, self.id, ProcessInfo.of(self._ask("POST", "processes", json=body, headers=keyed(key))), 0)

    def process(self, exec: str) -> Process:
        """A command that was started, also one of another client's."""
        return Process(self.transport, self.id, ProcessInfo.of(self._ask("GET", "processes", exec)))

    def processes(self) -> Sequence[ProcessInfo]:
        return [ProcessInfo.of(one) for one in (self._ask("GET", "processes"))["processes"]]

    # ---- sessions ----
    def session(self, *, name: str | None = None, shell: str | None = None, env: Mapping[str, str] | None = None,
                      user: str | None = None, cwd: str | None = None, merge: bool | None = None, mode: str | None = None,
                      key: str | None = None) -> Session:
        """A shell that keeps its state from command to command."""
        spec = given(name=name, shell=shell, env=env, user=user, cwd=cwd, merge=merge, mode=mode)
        return Session(self.transport, self.id, SessionInfo.of(self._ask("POST", "sessions", json=spec, headers=keyed(key))))

    def get_session(self, session: str) -> Session:
        """One that is there, by id or name."""
        return Session(self.transport, self.id, SessionInfo.of(self._ask("GET", "sessions", session)))

    def sessions(self) -> Sequence[SessionInfo]:
        return [SessionInfo.of(one) for one in (self._ask("GET", "sessions"))["sessions"]]

    def port_url(self, port: int) -> str:
        """Where a server inside answers, for clients that send the node's key."""
        return f"{self.transport.address.url}{path('sandboxes', self.id, 'ports', str(port))}/"

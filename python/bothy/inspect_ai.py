"""inspect_ai's sandbox `bothy`, found by its entry point.

    Task(…, sandbox=SandboxEnvironmentSpec("bothy", BothySandboxConfig(image="python:3.12", network="open")))

A string beside the name is a file of the task's to inspect_ai, which makes a path of it: an image cannot be named by one.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Literal, overload

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    sandboxenv,
)
from pydantic import BaseModel, ConfigDict

from . import (
    ApiError,
    AsyncClient,
    AsyncSandbox,
    BothyError,
    Conflict,
    CwdNotFound,
    ExecFailed,
    Forbidden,
    NotFound,
    SandboxGone,
    Unreachable,
    UserNotFound,
)
from . import ExecResult as Ended
from ._request import ENDING
from ._wait import async_shielded

RETRY_SECONDS = (60, 30)  # of a command that took too long, as inspect_ai asks


class BothySandboxConfig(BaseModel):
    model_config = ConfigDict(frozen=True)

    image: str | None = None
    template: str | None = None
    user: str | None = None
    cwd: str = "/tmp/inspect"
    """The sample's own directory; made if it is not there."""
    env: dict[str, str] = {}
    limits: dict[str, float] | None = None
    network: str | None = None
    ttl: int = 86400
    url: str | None = None
    socket: str | None = None

    def __hash__(self) -> int:
        """inspect_ai keeps configurations as keys; a dict has no hash."""
        return hash(self.model_dump_json())


@sandboxenv(name="bothy")
class BothySandboxEnvironment(SandboxEnvironment):
    def __init__(self, client: AsyncClient, sandbox: AsyncSandbox, cwd: str) -> None:
        super().__init__()
        self.client, self.bothy, self.cwd = client, sandbox, cwd

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return BothySandboxConfig(**config)

    @classmethod
    async def sample_init(cls, task_name: str, config: BaseModel | str | None, metadata: dict[str, str]) -> dict[str, SandboxEnvironment]:
        spec = config if isinstance(config, BothySandboxConfig) else BothySandboxConfig()
        if not spec.image and not spec.template:
            raise ValueError('bothy needs an image or a template: SandboxEnvironmentSpec("bothy", BothySandboxConfig(image="python:3.12"))')
        client, sandbox = AsyncClient(spec.url, socket=spec.socket), None
        try:
            sandbox = await client.create(spec.image, template=spec.template, user=spec.user, env=spec.env, limits=spec.limits, ttl=spec.ttl,
                                          network=spec.network, labels={"harness": "inspect_ai", "task": task_name[:256]})
            await sandbox.files.mkdir(spec.cwd)
        except BaseException:
            with async_shielded(ENDING):
                await _end(client, sandbox)
            raise
        return {"default": cls(client, sandbox, spec.cwd)}

    @classmethod
    async def sample_cleanup(cls, task_name: str, config: BaseModel | str | None, environments: dict[str, SandboxEnvironment],
                             interrupted: bool) -> None:
        for environment in environments.values():
            if isinstance(environment, BothySandboxEnvironment):
                await _end(environment.client, environment.bothy)

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        """`inspect sandbox cleanup bothy [ID]`: those that an interrupted run has left."""
        async with AsyncClient() as client:
            async for one in client.list(label=["harness=inspect_ai"]):
                if id in (None, one.id):
                    await (await client.get(one.id)).delete()

    def _path(self, file: str) -> str:
        return os.path.join(self.cwd, file)

    async def exec(self, cmd: list[str], input: str | bytes | None = None, cwd: str | None = None, env: dict[str, str] | None = None,
                   user: str | None = None, timeout: int | None = None, timeout_retry: bool = True, concurrency: bool = True) -> ExecResult[str]:
        limits = [timeout, *(min(timeout, most) for most in RETRY_SECONDS)] if timeout and timeout_retry else [timeout]
        for seconds in limits:
            result = await self._exec(cmd, input, self._path(cwd or ""), env, user, seconds)
            if isinstance(result, ExecResult):
                return result
        error = TimeoutError(f"the command was ended after {timeout} seconds: {cmd[0]}")
        setattr(error, "truncated_output", result)  # where inspect_ai looks for it
        raise error

    async def _exec(self, cmd: list[str], input: str | bytes | None, cwd: str, env: dict[str, str] | None, user: str | None,
                    timeout: float | None) -> ExecResult[str] | str:
        """Of one that took too long, what it had written."""
        keep = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        try:
            ended = await self.bothy.exec(cmd, stdin=input, cwd=cwd.rstrip("/") or "/", env=env, user=user, timeout=timeout, keep=keep)
        except ExecFailed as e:
            if "EACCES" in (e.cause or ""):
                raise PermissionError(str(e)) from e
            return ExecResult(False, 127 if "ENOENT" in (e.cause or "") else 126, "", str(e))
        except (UserNotFound, CwdNotFound) as e:
            return ExecResult(False, 126, "", f"{user if isinstance(e, UserNotFound) else cwd}: {e}")
        except BothyError as e:
            if _is_gone(e):
                raise SandboxUnavailableError(str(e)) from e
            raise
        if ended.timed_out:
            return ended.told + ended.told_err
        if ended.cut:
            raise OutputLimitExceededError(limit_str=SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, truncated_output=ended.told)
        return _told(ended)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        path = self._path(file)
        try:
            if await self.bothy.files.exists(path) and not (await self.bothy.exec(["test", "-w", path])).ok:
                raise PermissionError(f"{file}: the file is write-protected")  # a replacement would not ask: it needs the directory only
            await self.bothy.files.write(path, contents, mkdir=True)
        except ApiError as e:
            raise _as_os_error(e, file) from e

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        most = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        try:
            stat = await self.bothy.files.stat(self._path(file), follow=True)
            if stat.type == "file" and stat.size > most:
                raise OutputLimitExceededError(limit_str=SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, truncated_output=None)
            content = await self.bothy.files.read(self._path(file))
        except ApiError as e:
            raise _as_os_error(e, file) from e
        return content.decode("utf-8") if text else content

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        return SandboxConnection(type="bothy", command=f"bothy shell {'-u ' + user + ' ' if user else ''}{self.bothy.id}")


async def _end(client: AsyncClient, sandbox: AsyncSandbox | None) -> None:
    """The sandbox, if there is one, and the connections; one that cannot be ended now ends with its time."""
    try:
        if sandbox is not None:
            with contextlib.suppress(BothyError):
                await sandbox.delete()
    finally:
        await client.aclose()


def _told(ended: Ended) -> ExecResult[str]:
    if ended.status is None:
        raise SandboxUnavailableError(f"nobody saw how the command ended ({ended.said})")
    return ExecResult(ended.ok, ended.status, ended.told, ended.told_err)


def _as_os_error(error: ApiError, file: str) -> Exception:
    """What inspect_ai's callers expect of files; whatever else it is stays what it was."""
    if isinstance(error, NotFound) and error.kind == "path":
        return FileNotFoundError(f"{file}: {error.message}")
    if isinstance(error, Forbidden):
        return PermissionError(f"{file}: {error.message}")
    if isinstance(error, Conflict) and "EISDIR" in (error.cause or ""):
        return IsADirectoryError(f"{file}: {error.message}")
    return SandboxUnavailableError(str(error)) if _is_gone(error) else error


def _is_gone(error: BothyError) -> bool:
    return isinstance(error, (SandboxGone, Unreachable)) or isinstance(error, NotFound) and error.kind == "sandbox"

"""SWE-ReX's deployment: sandboxes by image, nothing installed in them.

    deployment = BothyDeployment(image="python:3.12")
    await deployment.start()
    await deployment.runtime.create_session(CreateBashSessionRequest())

SWE-ReX's own sessions are terminals; these are bothy's, which keep both streams in order and outlive `exit` and time limits. Interactive
programs (`is_interactive_command`, `expect`) need a terminal and are refused."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from swerex.deployment.abstract import AbstractDeployment
from swerex.deployment.hooks.abstract import CombinedDeploymentHook, DeploymentHook
from swerex.exceptions import (
    BashIncorrectSyntaxError,
    CommandTimeoutError,
    DeploymentNotStartedError,
    NoExitCodeError,
    NonZeroExitCodeError,
    SessionDoesNotExistError,
    SessionExistsError,
    SwerexException,
)
from swerex.runtime.abstract import (
    AbstractRuntime,
    BashAction,
    BashInterruptAction,
    BashObservation,
    CloseBashSessionRequest,
    CloseBashSessionResponse,
    CloseResponse,
    Command,
    CommandResponse,
    CreateBashSessionRequest,
    CreateBashSessionResponse,
    IsAliveResponse,
    ReadFileRequest,
    ReadFileResponse,
    UploadRequest,
    UploadResponse,
    WriteFileRequest,
    WriteFileResponse,
)

from . import AsyncClient, AsyncSandbox, AsyncSession, BothyError, CommandResult, Conflict, Forbidden, NotFound
from ._request import ENDING
from ._wait import async_shielded

SYNTAX_ERROR = 2  # what bash makes of text that it cannot parse; a program may give it, too


class BothyDeploymentConfig(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["bothy"] = "bothy"
    image: str | None = None
    template: str | None = None
    user: str | None = None
    cwd: str | None = None
    env: dict[str, str] = {}
    limits: dict[str, float] | None = None
    network: str | None = None
    ttl: int = 7200
    url: str | None = None
    socket: str | None = None

    def get_deployment(self) -> BothyDeployment:
        return BothyDeployment.from_config(self)


class BothyRuntime(AbstractRuntime):
    """Of one sandbox."""

    def __init__(self, sandbox: AsyncSandbox, logger: logging.Logger) -> None:
        self.sandbox, self.logger = sandbox, logger
        self._sessions: dict[str, AsyncSession] = {}

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:
        try:
            info = await asyncio.wait_for(self.sandbox.refresh(), timeout)
        except asyncio.TimeoutError:
            return IsAliveResponse(is_alive=False, message=f"no answer in {timeout} seconds")
        except BothyError as e:
            return IsAliveResponse(is_alive=False, message=str(e))
        alive = info.state == "running"
        return IsAliveResponse(is_alive=alive, message="" if alive else f"the sandbox is {info.state}: {info.cause}")

    # ---- sessions ----
    async def create_session(self, request: CreateBashSessionRequest) -> CreateBashSessionResponse:
        if request.session in self._sessions:
            raise SessionExistsError(f"session {request.session} already exists")
        session = await self.sandbox.session(shell="bash", merge=True)
        try:
            output = "".join([await _sourced(session, file, max(request.startup_timeout, 1.0)) for file in request.startup_source])
        except BaseException:
            with async_shielded(ENDING), contextlib.suppress(BothyError):
                await session.delete()
            raise
        self._sessions[request.session] = session
        return CreateBashSessionResponse(output=output)

    def _session(self, name: str) -> AsyncSession:
        if name not in self._sessions:
            raise SessionDoesNotExistError(f"session {name!r} does not exist")
        return self._sessions[name]

    async def run_in_session(self, action: BashAction | BashInterruptAction) -> BashObservation:
        session = self._session(action.session)
        if isinstance(action, BashInterruptAction):  # a command's time limit has interrupted it already
            await session.interrupt()
            return BashObservation(output="", exit_code=0)
        if action.is_interactive_command or action.is_interactive_quit or action.expect:
            raise SwerexException("interactive commands need a terminal, which this session is not; use `bothy shell`, or run the program "
                                  "with its input from a file")
        if "\n" in action.command.strip():  # a shell runs what it has read of several lines before it sees that the rest is wrong
            await self._check_syntax(action.command)
        ended = await session.run(action.command, timeout=action.timeout)
        if ended.timed_out:
            raise CommandTimeoutError(f"timeout after {action.timeout} seconds while running command {action.command!r}; it was interrupted, "
                                      f"{ended.kept}. Its output until then:\n{ended.told}")
        if ended.exit_code == SYNTAX_ERROR:
            await self._check_syntax(action.command)
        return _observed(action, ended)

    async def _check_syntax(self, text: str) -> None:
        """As SWE-ReX does it before every command."""
        done = await self.sandbox.exec(["bash", "-n"], stdin=f"{text}\n")
        if done.exit_code == SYNTAX_ERROR:
            raise BashIncorrectSyntaxError(f"Error (exit code {done.exit_code}) while checking bash command \n{text!r}\n"
                                           f"---- Stderr ----\n{done.told_err}\n---- Stdout ----\n{done.told}",
                                           extra_info={"bash_stdout": done.told, "bash_stderr": done.told_err})

    async def close_session(self, request: CloseBashSessionRequest) -> CloseBashSessionResponse:
        await self._session(request.session).delete()
        del self._sessions[request.session]
        return CloseBashSessionResponse()

    # ---- commands and files ----
    async def execute(self, command: Command) -> CommandResponse:
        """As subprocess.run() has it: of a list behind a shell the first is the script, the rest its arguments; a signal that ended it is -n."""
        words = [command.command] if isinstance(command.command, str) else list(command.command)
        if command.shell:
            words = ["/bin/sh", "-c", *words]
        ended = await self.sandbox.exec(words, timeout=command.timeout, env=command.env, cwd=command.cwd, merged=command.merge_output_streams)
        if ended.timed_out:
            raise CommandTimeoutError(f"Timeout ({command.timeout}s) exceeded while running command")
        code = -ended.end.signal if ended.end.how in ("signalled", "killed") and ended.end.signal else ended.exit_code
        if code is None:
            raise NoExitCodeError(f"nobody saw how the command ended ({ended.said})")
        out, err = ended.told, ended.told_err
        if command.check and code != 0:
            told = f"{command.error_msg}: " if command.error_msg else ""
            raise NonZeroExitCodeError(f"{told}Command {command.command!r} failed with exit code {code}. Stdout:\n{out!r}\nStderr:\n{err!r}")
        return CommandResponse(stdout=out, stderr=err, exit_code=code)

    async def read_file(self, request: ReadFileRequest) -> ReadFileResponse:
        with _as_os_errors(request.path):
            content = await self.sandbox.files.read(request.path)
        return ReadFileResponse(content=content.decode(request.encoding or "utf-8", request.errors or "strict"))

    async def write_file(self, request: WriteFileRequest) -> WriteFileResponse:
        with _as_os_errors(request.path):
            await self.sandbox.files.write(request.path, request.content, mkdir=True)
        return WriteFileResponse()

    async def upload(self, request: UploadRequest) -> UploadResponse:
        if not Path(request.source_path).exists():
            raise FileNotFoundError(request.source_path)
        with _as_os_errors(request.target_path):
            await self.sandbox.files.upload(request.source_path, request.target_path)
        return UploadResponse()

    async def close(self) -> CloseResponse:
        for session in self._sessions.values():
            with contextlib.suppress(BothyError):
                await session.delete()
        self._sessions.clear()
        return CloseResponse()


async def _sourced(session: AsyncSession, file: str, seconds: float) -> str:
    """What it wrote. A session whose file was not read to its end is none: whoever asked for it would miss half of its variables."""
    ended = await session.run(f"source {file}", timeout=seconds)
    if ended.timed_out:
        raise CommandTimeoutError(f"timeout after {seconds} seconds while sourcing {file!r}; give a larger startup_timeout. Its output until then:\n"
                                  f"{ended.told}")
    if ended.exit_code is None or ended.kind == "unknown":
        raise NoExitCodeError(f"nobody saw how {file!r} was sourced ({ended.said})")
    return ended.told


def _observed(action: BashAction, ended: CommandResult) -> BashObservation:
    if action.check == "ignore":
        return BashObservation(output=ended.told, exit_code=None)
    if action.check == "raise" and (ended.exit_code is None or ended.kind == "unknown"):
        raise NoExitCodeError(f"nobody saw how the command ended ({ended.said})")
    if action.check == "raise" and ended.exit_code != 0:
        told = f"{action.error_msg}: " if action.error_msg else ""
        raise NonZeroExitCodeError(f"{told}Command {action.command!r} failed with exit code {ended.exit_code}. Here is the output:\n{ended.told!r}")
    return BashObservation(output=ended.told, exit_code=None if ended.kind == "unknown" else ended.exit_code)


@contextlib.contextmanager
def _as_os_errors(path: str) -> Any:
    """What a program in the sandbox would be told."""
    try:
        yield
    except NotFound as e:
        if e.kind != "path":
            raise
        raise FileNotFoundError(2, "No such file or directory", path) from e
    except Forbidden as e:
        raise PermissionError(13, "Permission denied", path) from e
    except Conflict as e:
        if "EISDIR" in (e.cause or ""):
            raise IsADirectoryError(21, "Is a directory", path) from e
        raise


class BothyDeployment(AbstractDeployment):
    """A sandbox from `start()` to `stop()`."""

    def __init__(self, *, logger: logging.Logger | None = None, **kwargs: Any) -> None:
        self._config = BothyDeploymentConfig(**kwargs)
        self.logger = logger or logging.getLogger("rex-deploy")
        self._hooks = CombinedDeploymentHook()
        self._client: AsyncClient | None = None
        self._runtime: BothyRuntime | None = None

    @classmethod
    def from_config(cls, config: BothyDeploymentConfig) -> BothyDeployment:
        return cls(**config.model_dump())

    def add_hook(self, hook: DeploymentHook) -> None:
        self._hooks.add_hook(hook)

    @property
    def runtime(self) -> BothyRuntime:
        if self._runtime is None:
            raise DeploymentNotStartedError()
        return self._runtime

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:
        return await self.runtime.is_alive(timeout=timeout)

    async def start(self, *args: Any, **kwargs: Any) -> None:
        config = self._config
        self._hooks.on_custom_step("Creating the sandbox")
        self._client = AsyncClient(config.url, socket=config.socket)
        sandbox = await self._client.create(config.image, template=config.template, user=config.user, cwd=config.cwd, env=config.env,
                                            limits=config.limits, network=config.network, ttl=config.ttl, labels={"harness": "swe-rex"})
        self._runtime = BothyRuntime(sandbox, self.logger)

    async def stop(self, *args: Any, **kwargs: Any) -> None:
        """A sandbox that cannot be ended now ends with its time, or with the next call."""
        try:
            if self._runtime:
                await self._runtime.sandbox.delete()
        except BothyError as e:
            self.logger.error(f"the sandbox was not ended: {e}")
            return
        client, self._runtime, self._client = self._client, None, None
        if client:
            await client.aclose()

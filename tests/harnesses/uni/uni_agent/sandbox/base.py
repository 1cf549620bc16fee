"""What a provider builds on: names, parameters and the policy of errors are uni-agent's (uni_interface.py holds them against a checkout), the
rest is as little as they need."""
import abc
import asyncio
import contextlib
import dataclasses
import pathlib
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


@dataclasses.dataclass
class ExecResult:
    exit_code: int
    stdout: str
    stderr: str


class SandboxConfig(BaseModel):
    provider: str
    runtime_timeout: float = 3600.0
    image: str = "python:3.12"
    sandbox_kwargs: dict[str, Any] = {}

    model_config = ConfigDict(extra="forbid")


class Sandbox(abc.ABC):
    provider: ClassVar[str] = ""
    supports_shell: ClassVar[bool] = False

    @classmethod
    def from_config(cls, config):
        return cls()

    @abc.abstractmethod
    async def start(self): ...

    @abc.abstractmethod
    async def stop(self): ...

    async def open_shell(self, *, cwd=None, env=None):
        raise NotImplementedError

    async def __aenter__(self, retry=3):
        """One that failed is stopped before it is started again."""
        for left in reversed(range(retry)):
            try:
                await self.start()
                return self
            except Exception:
                with contextlib.suppress(Exception):
                    await self.stop()
                if not left:
                    raise

    async def __aexit__(self, *exc):
        await self.stop()

    @abc.abstractmethod
    async def _exec(self, argv, *, timeout=None, workdir=None, env=None): ...

    async def exec(self, argv, *, timeout=None, workdir=None, env=None):
        """A time limit is -1, another failure 127 while the sandbox lives, else it is raised."""
        try:
            return await self._exec(argv, timeout=timeout, workdir=workdir, env=env)
        except Exception as e:  # noqa: BLE001: as it does
            if self._is_timeout_error(e):
                return ExecResult(-1, "", f"exec timed out after {timeout}s: {e}")
            if not await self.is_alive():
                raise
            return ExecResult(127, "", str(e))

    def _is_timeout_error(self, exc):
        return isinstance(exc, (asyncio.TimeoutError, TimeoutError))

    async def is_alive(self):
        return True

    async def exec_shell(self, script, *, timeout=None, workdir=None, env=None):
        return await self.exec(["bash", "-c", script], timeout=timeout, workdir=workdir, env=env)

    async def expose_port(self, port):
        raise NotImplementedError

    @abc.abstractmethod  # there they have a way over exec, which no provider of files needs
    async def read_file(self, path): ...

    @abc.abstractmethod
    async def write_file(self, path, content): ...

    @abc.abstractmethod
    async def upload(self, local_path, remote_path): ...

    @abc.abstractmethod
    async def download(self, remote_path, local_path): ...

    async def upload_file(self, local_file, remote_file):
        await self.write_file(remote_file, pathlib.Path(local_file).read_bytes())

    async def download_file(self, remote_file, local_file):
        pathlib.Path(local_file).write_bytes(await self.read_file(remote_file))

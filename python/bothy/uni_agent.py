"""uni-agent's sandbox provider `bothy`, with native shells. Import this module, then name it:

    SandboxConfig(provider="bothy", image="python:3.12")

uni-agent is not on PyPI (its name there is another project's); this follows its repository, verl-project/uni-agent at 6f4a7c9."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, ClassVar

from uni_agent.sandbox.base import ExecResult, Sandbox, SandboxConfig
from uni_agent.sandbox.registry import register_sandbox

from . import AsyncClient, AsyncSandbox, AsyncSession, BothyError


class BothyShell:
    """A session of bothy's: directory, variables and functions stay, also after `exit`, `set -e` and a time limit; what does not is told."""

    def __init__(self, session: AsyncSession) -> None:
        self.session = session

    async def run(self, command: str, *, timeout: float | None = None) -> ExecResult:
        ended = await self.session.run(command, timeout=timeout)
        if ended.timed_out:
            raise asyncio.TimeoutError(f"the command was interrupted after {timeout} seconds; {ended.kept}. Output until then: {ended.told}")
        if ended.exit_code is None or ended.kind == "unknown":
            raise BothyError(f"nobody saw how the command ended ({ended.said})")
        return ExecResult(exit_code=ended.exit_code, stdout=ended.told, stderr=ended.told_err)

    async def close(self) -> None:
        await self.session.delete()


@register_sandbox("bothy")
class BothySandbox(Sandbox):
    supports_shell: ClassVar[bool] = True

    def __init__(self, *, image: str | None = None, template: str | None = None, ttl: int = 3600, url: str | None = None,
                 socket: str | None = None, **spec: Any) -> None:
        """`spec`: further members of a create (`env`, `limits`, `network`, `user`, `labels`, …)."""
        self.spec = {"image": image, "template": template, "ttl": ttl, **spec}
        self._address = (url, socket)
        self._client: AsyncClient | None = None
        self._sandbox: AsyncSandbox | None = None

    @classmethod
    def from_config(cls, config: SandboxConfig) -> BothySandbox:
        kwargs = dict(config.sandbox_kwargs)
        image = None if "template" in kwargs else config.image
        return cls(**{"image": image, "ttl": int(config.runtime_timeout), **kwargs})

    @property
    def bothy(self) -> AsyncSandbox:
        if self._sandbox is None:
            raise RuntimeError("the sandbox has not been started")
        return self._sandbox

    async def start(self) -> None:
        if self._sandbox is None:
            url, socket = self._address
            self._client = AsyncClient(url, socket=socket)
            self._sandbox = await self._client.create(**{"labels": {"harness": "uni-agent"}, **self.spec})

    async def stop(self) -> None:
        """One that failed may be called again."""
        if self._sandbox:
            await self._sandbox.delete()
        client, self._sandbox, self._client = self._client, None, None
        if client:
            await client.aclose()

    async def is_alive(self) -> bool:
        try:
            return (await self.bothy.refresh()).state == "running"
        except (BothyError, RuntimeError):
            return False

    async def open_shell(self, *, cwd: str | None = None, env: dict[str, str] | None = None) -> BothyShell:
        return BothyShell(await self.bothy.session(cwd=cwd, env=env))

    async def _exec(self, argv: list[str], *, timeout: float | None = None, workdir: str | None = None,
                    env: dict[str, str] | None = None) -> ExecResult:
        ended = await self.bothy.exec(argv, timeout=timeout, cwd=workdir, env=env)
        if ended.timed_out:
            raise asyncio.TimeoutError(f"{argv[0]}: ended by its time limit")
        if ended.status is None:
            raise BothyError(f"nobody saw how the command ended ({ended.said})")
        return ExecResult(exit_code=ended.status, stdout=ended.told, stderr=ended.told_err)

    async def expose_port(self, port: int) -> str:
        """An URL of the node; whoever asks it needs the node's key."""
        return self.bothy.port_url(port)

    # ---- files by the API, not by base64 over commands ----
    async def read_file(self, path: str) -> bytes:
        return await self.bothy.files.read(path)

    async def write_file(self, path: str, content: bytes | str) -> None:
        await self.bothy.files.write(path, content, mkdir=True)

    async def upload(self, local_path: Path | str, remote_path: str) -> None:
        await self.bothy.files.upload(local_path, remote_path)

    async def download(self, remote_path: str, local_path: Path | str) -> None:
        await self.bothy.files.download(remote_path, local_path)

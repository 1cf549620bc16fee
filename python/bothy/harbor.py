"""Harbor's environment: `harbor run -e bothy.harbor:BothyEnvironment`.

A task's `docker_image` is the sandbox's image; its Dockerfile is built once into a template of the node (build.py)."""

from __future__ import annotations

import asyncio
import io
import os
import re
import tarfile
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult, SandboxBuildFailedError, transfer_tar_filter
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.environments.definition import SNAPSHOT_HASH_LEN, require_agent_environment_definition
from harbor.models.task.config import NetworkMode

from . import AsyncClient, AsyncSandbox, BothyError, NotFound
from ._find import find_socket
from ._wait import async_in_thread
from .build import build_template
from .dockerfile import DockerfileError

TTL = 86400


class BothyEnvironment(BaseEnvironment):
    """Keywords (`--ek NAME=VALUE`): `network` (`open` or `none`, in place of what the task's policy means), `url`, `socket`."""

    _building: dict[str, asyncio.Lock] = {}  # of this process: trials of one task build it once

    def __init__(self, *args: Any, network: str | None = None, url: str | None = None, socket: str | None = None, **kwargs: Any) -> None:
        self._network_said, self._url, self._socket = network, url, socket
        self._client: AsyncClient | None = None
        self._sandbox: AsyncSandbox | None = None
        super().__init__(*args, **kwargs)

    @staticmethod
    def type() -> str:
        return "bothy"

    @classmethod
    def preflight(cls) -> None:
        if not (os.environ.get("BOTHY_URL") or os.environ.get("BOTHY_SOCKET") or os.path.exists(find_socket())):
            raise SystemExit("No node of bothy is named: set BOTHY_SOCKET, or BOTHY_URL and BOTHY_KEY.")

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True)

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(disable_internet=True)

    def _validate_definition(self) -> None:
        require_agent_environment_definition(self.environment_dir, docker_image=self.task_env_config.docker_image)
        if not self.task_env_config.docker_image and not (self.environment_dir / "Dockerfile").exists():
            raise ValueError("bothy runs tasks with a Dockerfile or a docker_image, not with docker-compose.yaml")

    @property
    def bothy(self) -> AsyncSandbox:
        if self._sandbox is None:
            raise RuntimeError("the environment has not been started")
        return self._sandbox

    def _network(self) -> str:
        """What the task's policy means. A node that does not give it fails the trial, unless the caller says otherwise by a keyword."""
        return self._network_said or ("open" if self.network_policy.network_mode == NetworkMode.PUBLIC else "none")

    def _limits(self) -> dict[str, float]:
        cpus, memory = self._resource_value("cpu"), self._resource_value("memory")
        return {**({"cpu": cpus} if cpus else {}), **({"memory": memory << 20} if memory else {})}

    async def _template(self, client: AsyncClient, force_build: bool) -> str:
        name = re.sub(r"[^A-Za-z0-9_.-]", "-", f"harbor-{self.environment_id[:SNAPSHOT_HASH_LEN]}-{self.environment_name}")[:64]
        async with self._building.setdefault(name, asyncio.Lock()):
            try:
                made = await build_template(client, name, self.environment_dir, network=self._network(), replace=force_build,
                                            timeout=self.task_env_config.build_timeout_sec)
            except DockerfileError as e:
                raise SandboxBuildFailedError(str(e)) from e
        return made.name

    async def start(self, force_build: bool) -> None:
        self._client = client = AsyncClient(self._url, socket=self._socket)
        image = self.task_env_config.docker_image
        has_file = (self.environment_dir / "Dockerfile").exists()
        template = None if image and not (force_build and has_file) else await self._template(client, force_build)
        self._sandbox = await client.create(None if template else image, template=template, env=self._startup_env(), limits=self._limits(),
                                            network=self._network(), ttl=TTL, labels={"harness": "harbor", "session": self.session_id[:256]})
        await self.ensure_dirs(self._mount_targets(writable_only=True))
        await self._upload_environment_dir_after_start()

    async def stop(self, delete: bool) -> None:
        """A sandbox ends with its trial, also without `delete`; one that cannot be ended now ends with its time, or with the next call."""
        try:
            if self._sandbox:
                await self._sandbox.delete()
        except BothyError as e:
            self.logger.error(f"the sandbox was not ended: {e}")
            return
        client, self._sandbox, self._client = self._client, None, None
        if client:
            await client.aclose()

    # ---- commands ----
    async def exec(self, command: str, cwd: str | None = None, env: dict[str, str] | None = None, timeout_sec: int | None = None,
                   user: str | int | None = None) -> ExecResult:
        who = self._resolve_user(user)
        ended = await self.bothy.exec(["bash", "-c", command], cwd=cwd or self.task_env_config.workdir, env=self._merge_env(env),
                                      timeout=timeout_sec, user=None if who is None else str(who))
        if ended.timed_out:
            # As Harbor's Docker environment has it: a TimeoutError is the agent's own limit to Harbor.
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds: {command[:200]}")
        if ended.status is None:
            raise RuntimeError(f"nobody saw how the command ended ({ended.said}): {command[:200]}")
        return ExecResult(stdout=ended.told, stderr=ended.told_err, return_code=ended.status)

    # ---- files, as root: whoever the image's user is ----
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        await self.bothy.files.upload(source_path, target_path, user="0")

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await self.bothy.files.upload(source_dir, target_dir, user="0")

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        await self.bothy.files.download(source_path, target_path, user="0")

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        archive = await self.bothy.files.get_archive(source_dir, user="0")
        await async_in_thread(lambda: _unpack(archive, Path(target_dir)))

    async def is_dir(self, path: str, user: str | int | None = None) -> bool:
        return await self._type(path) == "directory"

    async def is_file(self, path: str, user: str | int | None = None) -> bool:
        return await self._type(path) == "file"

    async def _type(self, path: str) -> str | None:
        try:
            return (await self.bothy.files.stat(path, follow=True, user="0")).type
        except NotFound:
            return None


def _unpack(archive: bytes, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(target, filter=transfer_tar_filter)

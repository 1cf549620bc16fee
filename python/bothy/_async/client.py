"""The node: its sandboxes, images, snapshots and templates."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from .._errors import ApiError, BothyError, NotFound, Unreachable
from .._models import Image, NodeInfo, SandboxInfo, Snapshot, Template
from .._request import ENDING, PATIENCE, SLOW, Address, Request, given, keyed, path
from .._wait import async_shielded, async_sleep
from .sandbox import AsyncSandbox
from .transport import AsyncTransport

UNREAD = 0.5  # seconds that a node has to read what was sent to it


class AsyncClient:
    """A node of bothy. Without an address it is found as the command line finds it: `$BOTHY_URL` (with `$BOTHY_KEY`), `$BOTHY_SOCKET`, else the
    node's `/run/bothy/bothyd.sock`, else the user's own daemon, which is started if `bothy` is installed. `patience`: for so many seconds a node that does not answer any more, or has no room, is asked again."""

    def __init__(self, url: str | None = None, *, socket: str | None = None, key: str | None = None, patience: float | None = None) -> None:
        if url is not None and socket is not None:
            raise ValueError("url and socket contradict each other: give one of them")
        self.address = Address.of(url, socket, key)
        self.transport = AsyncTransport(self.address, float(os.environ.get("BOTHY_PATIENCE") or PATIENCE) if patience is None else patience)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self.transport.aclose()

    async def call(self, method: str, target: str, json: Mapping[str, Any] | None = None, *, query: Mapping[str, str] | None = None) -> Any:
        """Any verb of the API by its path (`/v1/…`); what it answers. GET, PUT, HEAD and DELETE are repeated when an answer is lost."""
        return await self.transport.json(Request(method, target, query=query or {}, json=json, silence=SLOW,
                                                 again=method in ("GET", "HEAD", "PUT", "DELETE")))

    async def info(self) -> NodeInfo:
        return NodeInfo.of(await self.transport.json(Request("GET", "/v1/info")))

    # ---- sandboxes ----
    async def create(self, image: str | None = None, *, template: str | None = None, snapshot: str | None = None, name: str | None = None,
                     env: Mapping[str, str] | None = None, secrets: Mapping[str, str] | None = None, user: str | None = None,
                     cwd: str | None = None, labels: Mapping[str, str] | None = None, limits: Mapping[str, float] | None = None,
                     tmpfs: Sequence[Mapping[str, Any]] | None = None, ttl: int | None = None, idle: int | None = None,
                     queue_wait: int | None = None, read_only: bool | None = None, grants: Sequence[str] | None = None,
                     umask: str | None = None, network: str | None = None, start: Mapping[str, Any] | None = None, pull: str | None = None,
                     key: str | None = None) -> AsyncSandbox:
        """A sandbox in which commands can be run. Members are those of `POST /v1/sandboxes`; `key` is the Idempotency-Key. Who is cancelled,
        interrupted or runs out of patience leaves none behind, unless the key is the caller's: it finds the sandbox again."""
        spec = given(image=image, template=template, snapshot=snapshot, name=name, env=env, secrets=secrets, user=user, cwd=cwd, labels=labels,
                     limits=limits, tmpfs=tmpfs, ttl=ttl, idle=idle, queue_wait=queue_wait, read_only=read_only, grants=grants, umask=umask,
                     network=network, start=start, pull=pull)
        request = Request("POST", "/v1/sandboxes", json=spec, headers=keyed(key), silence=SLOW + (queue_wait or 0))
        try:
            return AsyncSandbox(self.transport, SandboxInfo.of(await self.transport.json(request)))
        except BaseException as e:
            none_made = isinstance(e, Unreachable) or (isinstance(e, ApiError) and not e.repeated)
            if key is None and not none_made:
                await self._undo(request)
            raise

    async def _undo(self, create: Request) -> None:
        """Ends the sandbox that nobody was told of, by its key, also while it waits for an image or a slot; asked twice, for the node may not have
        read the create yet."""
        end = Request("DELETE", "/v1/sandboxes", headers=create.headers, silence=ENDING)
        with async_shielded(ENDING), contextlib.suppress(BothyError):
            try:
                await self.transport.call(end, ENDING)
            except NotFound:
                await async_sleep(UNREAD)
                await self.transport.call(end, ENDING)

    async def get(self, sandbox: str) -> AsyncSandbox:
        """One that is there, by id or name; also one that has ended, whose `info.cause` says why."""
        return AsyncSandbox(self.transport, SandboxInfo.of(await self.transport.json(Request("GET", path("sandboxes", sandbox)))))

    async def list(self, *, state: Sequence[str] = (), label: Sequence[str] = (), name: str | None = None) -> AsyncIterator[SandboxInfo]:
        """Yours, oldest first; all but `gone` unless `state` says otherwise."""
        query: dict[str, str | Sequence[str]] = {"limit": "1000", "state": list(state), "label": list(label), **given(name=name)}
        while True:
            page = await self.transport.json(Request("GET", "/v1/sandboxes", query=query))
            for one in page["sandboxes"]:
                yield SandboxInfo.of(one)
            if not page["next"]:
                return
            query["cursor"] = page["next"]

    # ---- images ----
    async def images(self) -> Sequence[Image]:
        return [Image.of(one) for one in (await self.transport.json(Request("GET", "/v1/images")))["images"]]

    async def image(self, name: str) -> Image:
        return Image.of(await self.transport.json(Request("GET", path("images", name))))

    async def pull(self, source: str, *, name: str | None = None, pull: str | None = None) -> Image:
        """Brings an image onto the node. One that is there is fetched again unless `pull` is "missing"."""
        asked = given(source=source, name=name, pull=pull)
        return Image.of(await self.transport.json(Request("POST", "/v1/images", json=asked, silence=SLOW)))

    # ---- snapshots and templates ----
    async def snapshots(self) -> Sequence[Snapshot]:
        return [Snapshot.of(one) for one in (await self.transport.json(Request("GET", "/v1/snapshots")))["snapshots"]]

    async def delete_snapshot(self, snapshot: str) -> None:
        await self.transport.remove(Request("DELETE", path("snapshots", snapshot)))

    async def templates(self) -> Sequence[Template]:
        return [Template.of(one) for one in (await self.transport.json(Request("GET", "/v1/templates")))["templates"]]

    async def template(self, name: str) -> Template:
        return Template.of(await self.transport.json(Request("GET", path("templates", name))))

    async def create_template(self, name: str, **members: Any) -> Template:
        """Members are those of `POST /v1/templates`. A lost answer is not asked for again: look whether it is there."""
        spec = {"name": name, **given(**members)}
        return Template.of(await self.transport.json(Request("POST", "/v1/templates", json=spec, again=False)))

    async def delete_template(self, name: str) -> None:
        await self.transport.remove(Request("DELETE", path("templates", name)))

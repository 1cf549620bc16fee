"""Files of a sandbox, with the rights of its user or of another one that is named."""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from .._errors import BothyError, NotFound
from .._models import File
from .._request import Request, flags, given, path
from .._wait import async_in_thread
from .transport import AsyncTransport

OCTETS = {"Content-Type": "application/octet-stream"}


class AsyncFiles:
    """Relative paths begin at the sandbox's working directory. Strings with surrogate escapes name files that are no UTF-8."""

    def __init__(self, transport: AsyncTransport, sandbox: str) -> None:
        self.transport, self.sandbox = transport, sandbox

    def _request(self, method: str, where: str, user: str | None, *parts: str, query: Mapping[str, str] | None = None,
                 content: bytes | None = None, silence: float = 60.0) -> Request:
        return Request(method, path("sandboxes", self.sandbox, "files", *parts), query={"path": where, **given(user=user), **(query or {})},
                       content=content, headers=OCTETS if content is not None else {}, silence=silence)

    async def read(self, where: str, *, user: str | None = None, first: int | None = None) -> bytes:
        """All of a regular file, or its first bytes."""
        request = self._request("GET", where, user)
        if first is not None:
            request = Request(request.method, request.path, request.query, headers={"Range": f"bytes=0-{first - 1}"})
        response = await self.transport.call(request)
        return response.content

    async def read_text(self, where: str, *, user: str | None = None) -> str:
        return (await self.read(where, user=user)).decode()

    async def write(self, where: str, data: str | bytes, *, mode: int | None = None, mkdir: bool = False, new: bool = False,
                    user: str | None = None) -> File:
        """In one step: a reader sees the old content or the new one. With `new` a lost answer may read as a conflict."""
        query = {**flags(mkdir=mkdir, new=new), **({} if mode is None else {"mode": f"{mode:o}"})}
        content = data.encode() if isinstance(data, str) else data
        return File.of(await self.transport.json(self._request("PUT", where, user, query=query, content=content, silence=600)))

    async def stat(self, where: str, *, follow: bool = False, user: str | None = None) -> File:
        return File.of(await self.transport.json(self._request("GET", where, user, "stat", query=flags(follow=follow))))

    async def exists(self, where: str, *, user: str | None = None) -> bool:
        try:
            await self.stat(where, follow=True, user=user)
        except NotFound as e:
            if e.kind == "sandbox":
                raise
            return False
        return True

    async def list(self, where: str, *, depth: int = 1, user: str | None = None) -> AsyncIterator[File]:
        """What lies below a directory, parents first; what could not be looked at has the type `unreadable`."""
        cursor: str | None = None
        while True:
            page = await self.transport.json(self._request("GET", where, user, "list", query={"depth": str(depth), **given(cursor=cursor)}))
            for one in page["entries"]:
                yield File.of({"type": "unreadable", **one})
            cursor = page["next"]
            if not cursor:
                return

    async def mkdir(self, where: str, *, mode: int | None = None, parents: bool = True, user: str | None = None) -> File:
        query = {"parents": "true" if parents else "false", **({} if mode is None else {"mode": f"{mode:o}"})}
        return File.of(await self.transport.json(self._request("POST", where, user, "mkdir", query=query)))

    async def move(self, where: str, to: str, *, mkdir: bool = False, user: str | None = None) -> File:
        """In one step. Sent once: after a lost answer look where the file is."""
        request = self._request("POST", where, user, "move", query={"to": to, **flags(mkdir=mkdir)})
        return File.of(await self.transport.json(Request(request.method, request.path, request.query, again=False)))

    async def remove(self, where: str, *, recursive: bool = False, user: str | None = None) -> None:
        await self.transport.remove(self._request("DELETE", where, user, query=flags(recursive=recursive), silence=600))

    # ---- trees ----
    async def upload(self, source: str | os.PathLike[str], where: str, *, user: str | None = None) -> None:
        """A local file becomes `where`; of a directory, its content goes into the directory `where`."""
        local = Path(source)
        if not local.is_dir():
            content = await async_in_thread(local.read_bytes)
            await self.write(where, content, mkdir=True, mode=local.stat().st_mode & 0o777, user=user)
            return
        await self.put_archive(where, await async_in_thread(lambda: packed(local)), user=user)

    async def put_archive(self, where: str, archive: bytes, *, user: str | None = None, owners: bool = False) -> None:
        """Unpacks a tar or zip into a directory, which is made if need be."""
        request = self._request("PUT", where, user, "archive", content=archive, silence=600,
                                query=flags(mkdir=True, owners=owners))
        done = await self.transport.json(request)
        if done["left_out"]:
            raise BothyError(f"{done['left_out']} entries of the archive are not in {where}: {done['left_out_entries'][:3]}")

    async def get_archive(self, where: str, *, user: str | None = None) -> bytes:
        """A tree as tar. One of which entries cannot be read is an error, not a part."""
        request = self._request("GET", where, user, "archive", query=flags(follow=True, notes=True), silence=600)
        return whole((await self.transport.call(request)).content, where)

    async def download(self, where: str, target: str | os.PathLike[str], *, user: str | None = None) -> None:
        """A file becomes `target`; of a directory, its content goes into the directory `target`. Devices, links that lead out of it and
        whatever else could do harm here are refused."""
        local = Path(target)
        if (await self.stat(where, follow=True, user=user)).type != "directory":
            content = await self.read(where, user=user)
            local.parent.mkdir(parents=True, exist_ok=True)
            await async_in_thread(lambda: local.write_bytes(content))
            return
        archive = await self.get_archive(where, user=user)
        await async_in_thread(lambda: unpack(archive, local))


NOTE, NOTE_SIZE = re.compile(rb"Bothy-Unread: ([0-9]{1,20})\n"), 512  # behind the end of a tar


def whole(archive: bytes, where: str) -> bytes:
    note = NOTE.match(archive[-NOTE_SIZE:])
    if note:
        raise BothyError(f"{int(note[1])} entries below {where} cannot be read and are not in the archive: read them as root (user=\"0\")")
    return archive


def packed(local: Path) -> bytes:
    tree = io.BytesIO()
    with tarfile.open(fileobj=tree, mode="w") as tar:
        tar.add(local, arcname=".")
    return tree.getvalue()


def unpack(archive: bytes, local: Path) -> None:
    local.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(local, filter="data")

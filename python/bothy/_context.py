"""What COPY takes from the directory of a Dockerfile, as a tar for the root of a sandbox."""

from __future__ import annotations

import fnmatch
import io
import os
import posixpath
import re
import tarfile
from collections.abc import Sequence
from pathlib import Path


def ignored(context: Path) -> list[tuple[bool, re.Pattern[str]]]:
    """Of .dockerignore: (is taken back, pattern), in order."""
    path = context / ".dockerignore"
    lines = [line.strip() for line in path.read_text().splitlines()] if path.exists() else []
    rules = []
    for line in lines:
        if line and not line.startswith("#"):
            back, pattern = line.startswith("!"), line.lstrip("!").strip("/")
            text = "".join({"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(part, re.escape(part))
                           for part in re.split(r"(\*\*/|\*\*|\*|\?)", pattern))
            rules.append((back, re.compile(rf"{text}(?:/.*)?\Z")))
    return rules


class Context:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.rules = ignored(directory)

    def is_ignored(self, name: str) -> bool:
        out = False
        for back, pattern in self.rules:
            if pattern.match(name):
                out = not back
        return out

    def names(self) -> list[str]:
        """Everything below it, sorted, directories too."""
        found = []
        for top, directories, files in os.walk(self.directory):
            for one in [*directories, *files]:
                name = Path(top, one).relative_to(self.directory).as_posix()
                if not self.is_ignored(name):
                    found.append(name)
        return sorted(found)

    def sources(self, pattern: str) -> list[str]:
        """Names that a source of COPY means; "" is the context itself."""
        wanted = posixpath.normpath(pattern.lstrip("/")) if pattern.strip("/") else "."
        if wanted == ".":
            return [""]
        if wanted.startswith(".."):
            return []
        parts = wanted.split("/")
        return [name for name in self.names() if len(name.split("/")) == len(parts)
                and all(fnmatch.fnmatchcase(a, b) for a, b in zip(name.split("/"), parts))]

    def copy(self, tar: tarfile.TarFile, source: str, target: str, change: Owner) -> None:
        """A file becomes `target`; a directory's content goes into it. Names in the tar are relative to the root."""
        local = self.directory / source
        if not local.is_dir() or local.is_symlink():
            change.add_file(tar, local, target)
            return
        prefix = f"{source}/" if source else ""
        for name in self.names():
            if name.startswith(prefix):
                change.add_file(tar, self.directory / name, posixpath.join(target, name[len(prefix):]))


class Owner:
    """Of what is copied, and its permissions."""

    def __init__(self, uid: int, gid: int, mode: int | None) -> None:
        self.uid, self.gid, self.mode = uid, gid, mode

    def _told(self, info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid, info.gid, info.uname, info.gname = self.uid, self.gid, "", ""
        if self.mode is not None and not info.issym():
            info.mode = self.mode
        return info

    def add_file(self, tar: tarfile.TarFile, local: Path, target: str) -> None:
        tar.add(local, arcname=target.lstrip("/"), recursive=False, filter=self._told)

    def add_text(self, tar: tarfile.TarFile, text: str, target: str) -> None:
        info = tarfile.TarInfo(target.lstrip("/"))
        data = text.encode()
        info.size, info.mode = len(data), 0o644
        tar.addfile(self._told(info), io.BytesIO(data))


def is_directory_target(target: str, sources: Sequence[str]) -> bool:
    return target.endswith("/") or target in (".", "..") or len(sources) > 1


"""Server-sent events, and the order of a command's output: pure, fed with bytes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from ._errors import BothyError
from ._models import Chunk, Gap, Json, bytes_of


class EventParser:
    """Bytes in, (event, data) out. Lines end with a newline, as the daemon writes them."""

    def __init__(self) -> None:
        self._rest = b""
        self._event, self._data = "message", b""

    def feed(self, data: bytes) -> Iterator[tuple[str, Any]]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data += (b"\n" if self._data else b"") + line[5:].removeprefix(b" ")
            elif line.startswith(b"event:"):
                self._event = line[6:].strip().decode()
            elif not line:
                event, found, self._event, self._data = self._event, self._data, "message", b""
                if found:
                    yield event, json.loads(found)


@dataclasses.dataclass(frozen=True)
class Finished:
    """The last event of a command: its end record, or the command of a session."""

    raw: Json


class Progress:
    """How far both streams have come. What was seen already is dropped, a hole that no gap told is an error."""

    def __init__(self, out: int = 0, err: int = 0) -> None:
        self.at = {"out": out, "err": err}

    @property
    def offset(self) -> str:
        return f"{self.at['out']}.{self.at['err']}"

    def take(self, event: str, data: Any) -> Chunk | Gap | Finished | None:
        if event in ("out", "err"):
            return self._chunk(event, data["offset"], bytes_of(data))
        if event == "gap":
            gap = Gap(data["stream"], max(data["from"], self.at[data["stream"]]), data["to"])
            self.at[gap.stream] = max(gap.end, self.at[gap.stream])
            return gap if gap.end > gap.start else None
        return Finished(data) if event == "end" else None

    def _chunk(self, stream: str, offset: int, data: bytes) -> Chunk | None:
        seen = self.at[stream]
        if offset > seen:
            raise BothyError(f"bytes {seen} to {offset} of {stream} are missing, and no gap was told: this is a fault of bothy, report it")
        data = data[seen - offset:]
        self.at[stream] = seen + len(data)
        return Chunk(stream, seen, data) if data else None


class Collector:
    """Both streams of a command, up to `keep` bytes each."""

    def __init__(self, keep: int | None) -> None:
        self.keep, self.cut = keep, False
        self.parts: dict[str, list[bytes]] = {"out": [], "err": []}
        self.size = {"out": 0, "err": 0}
        self.gaps: list[Gap] = []

    def add(self, got: Chunk | Gap) -> None:
        if isinstance(got, Gap):
            self.gaps.append(got)
            return
        data = got.data if self.keep is None else got.data[:max(0, self.keep - self.size[got.stream])]
        self.cut = self.cut or len(data) < len(got.data)
        self.size[got.stream] += len(data)
        self.parts[got.stream].append(data)

    @property
    def out(self) -> bytes:
        return b"".join(self.parts["out"])

    @property
    def err(self) -> bytes:
        return b"".join(self.parts["err"])

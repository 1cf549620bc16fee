"""What the API answers with, as far as programs use it; `raw` is all of it."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ._errors import CommandFailed, UnknownEnd

Json = Mapping[str, Any]


def bytes_of(value: Json) -> bytes:
    """Of {"text"} or {"b64"}."""
    if "b64" in value:
        return base64.b64decode(value["b64"])
    return str(value.get("text", "")).encode()


def name_of(value: str | Json) -> str:
    """Of a file; bytes that are no UTF-8 come as they do from os.fsdecode."""
    return value if isinstance(value, str) else base64.b64decode(value["b64"]).decode(errors="surrogateescape")


@dataclasses.dataclass(frozen=True)
class Cause:
    """Why a sandbox ended."""

    kind: str
    by: str | None = None
    detail: str | None = None

    @classmethod
    def of(cls, raw: Json | None) -> Cause | None:
        return cls(raw["kind"], raw.get("by"), raw.get("detail")) if raw else None


@dataclasses.dataclass(frozen=True)
class SandboxInfo:
    id: str
    name: str | None
    state: str
    cause: Cause | None
    image: str | None
    owner: str
    created: str
    ends: str | None
    labels: Mapping[str, str]
    limits: Mapping[str, Any]
    raw: Json = dataclasses.field(repr=False)

    @classmethod
    def of(cls, raw: Json) -> SandboxInfo:
        return cls(raw["id"], raw.get("name"), raw["state"], Cause.of(raw.get("cause")), (raw.get("image") or {}).get("name"), raw["owner"],
                   raw["created"], raw.get("ends"), raw.get("labels") or {}, raw["limits"], raw)


@dataclasses.dataclass(frozen=True)
class End:
    """How a command ended: `exited`, `signalled`, `timed_out`, `killed`, `not_started` or `unknown`."""

    exec: str
    how: str
    exit_code: int | None
    signal: int | None
    oom: bool
    user: str | None
    cwd: str | None
    out_bytes: int
    err_bytes: int
    out_dropped: int
    err_dropped: int
    raw: Json = dataclasses.field(repr=False)

    @classmethod
    def of(cls, raw: Json) -> End:
        return cls(raw["exec"], raw["how"], raw["exit_code"], raw["signal"], raw["oom"], raw["user"], raw["cwd"], raw["out_bytes"], raw["err_bytes"],
                   raw["out_dropped"], raw["err_dropped"], raw)


@dataclasses.dataclass(frozen=True)
class ProcessInfo:
    exec: str
    command: str
    stdio: str
    running: bool
    pid: int | None
    out_bytes: int
    err_bytes: int
    end: End | None
    raw: Json = dataclasses.field(repr=False)

    @classmethod
    def of(cls, raw: Json) -> ProcessInfo:
        return cls(raw["exec"], raw["command"], raw["stdio"], raw["running"], raw["pid"], raw["out_bytes"], raw["err_bytes"],
                   End.of(raw["end"]) if raw["end"] else None, raw)


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Bytes of a stream (`out` or `err`), and where in it they begin."""

    stream: str
    offset: int
    data: bytes


@dataclasses.dataclass(frozen=True)
class Gap:
    """Bytes of a stream that are not kept any more."""

    stream: str
    start: int
    end: int


class Output:
    """Of a command that has ended."""

    out: bytes
    err: bytes
    gaps: tuple[Gap, ...]

    @property
    def text(self) -> str:
        return self.out.decode(errors="replace")

    @property
    def told(self) -> str:
        """`out` for a reader: where bytes are missing, a line says so."""
        return _with_gaps(self.out, [gap for gap in self.gaps if gap.stream == "out"])

    @property
    def told_err(self) -> str:
        return _with_gaps(self.err, [gap for gap in self.gaps if gap.stream == "err"])


SHOWN = 60  # bytes of a stream in a result's repr


def _repr(result: ExecResult | CommandResult) -> str:
    """Returns the result's members, of a long stream the beginning."""
    members = []
    for field in dataclasses.fields(result):
        value = getattr(result, field.name)
        long = isinstance(value, bytes) and len(value) > SHOWN
        members += [f"{field.name}={value[:SHOWN]!r}... ({len(value)} bytes)" if long else f"{field.name}={value!r}"] if field.repr else []
    return f"{type(result).__name__}({', '.join(members)})"


def _with_gaps(data: bytes, gaps: Sequence[Gap]) -> str:
    parts, at, missing = [], 0, 0
    for gap in gaps:
        end, size = gap.start - missing, gap.end - gap.start
        if end > len(data):  # behind what the caller keeps
            break
        parts += [data[at:end].decode(errors="replace"), f"\n[... {size} bytes are not kept any more and left out here ...]\n"]
        at, missing = end, missing + size
    return "".join([*parts, data[at:].decode(errors="replace")])


@dataclasses.dataclass(frozen=True, repr=False)
class ExecResult(Output):
    """A command that has ended. `out` and `err` hold what was kept; `out_bytes` and `err_bytes` of `end` say how much there was."""

    exec: str
    end: End
    out: bytes
    err: bytes
    gaps: tuple[Gap, ...] = ()
    cut: bool = False
    """The caller's `keep` left bytes out."""

    def __repr__(self) -> str:
        return _repr(self)

    @property
    def ok(self) -> bool:
        return self.end.how == "exited" and self.end.exit_code == 0

    @property
    def exit_code(self) -> int | None:
        """None unless it exited by itself."""
        return self.end.exit_code if self.end.how == "exited" else None

    @property
    def status(self) -> int | None:
        """As a shell would tell it: 128 + n for a signal, 124 for a time limit; None if nobody knows."""
        if self.end.how == "exited":
            return self.end.exit_code
        if self.end.how == "timed_out":
            return 124
        if self.end.how in ("signalled", "killed") and self.end.signal:
            return 128 + self.end.signal
        return None

    @property
    def timed_out(self) -> bool:
        return self.end.how == "timed_out"

    @property
    def said(self) -> str:
        number = self.end.exit_code if self.end.how == "exited" else self.end.signal
        return f"{self.end.how}{'' if number is None else f' {number}'}"

    def check(self) -> ExecResult:
        """Itself, if it ended with 0."""
        if self.ok:
            return self
        raise (UnknownEnd if self.end.how == "unknown" else CommandFailed)(self)


@dataclasses.dataclass(frozen=True)
class SessionInfo:
    id: str
    name: str | None
    shell: str
    dialect: str | None
    state: str
    cwd: str | None
    running: int | None
    restarts: int
    raw: Json = dataclasses.field(repr=False)

    @classmethod
    def of(cls, raw: Json) -> SessionInfo:
        return cls(raw["id"], raw["name"], raw["shell"], raw.get("dialect"), raw["state"], raw["cwd"], raw["running"], raw["restarts"], raw)


@dataclasses.dataclass(frozen=True, repr=False)
class CommandResult(Output):
    """A session's command that has ended. `kind`: `ended`, `shell_exited`, `resumed`, or `unknown`, which is never success."""

    session: str
    seq: int
    kind: str
    exit_code: int | None
    oom: bool
    timed_out: bool
    interrupted: bool
    rung: str | None
    restarted: bool
    cwd: str | None
    out_bytes: int
    err_bytes: int
    raw: Json = dataclasses.field(repr=False)
    out: bytes = b""
    err: bytes = b""
    gaps: tuple[Gap, ...] = ()
    cut: bool = False

    @classmethod
    def of(cls, raw: Json) -> CommandResult:
        return cls(raw["session"], raw["seq"], raw["kind"], raw["exit_code"], raw["oom"], raw["timed_out"], raw["interrupted"], raw["rung"],
                   raw["restarted"], raw["cwd"], raw["out_bytes"], raw["err_bytes"], raw)

    def __repr__(self) -> str:
        return _repr(self)

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and self.kind != "unknown" and not self.timed_out

    @property
    def said(self) -> str:
        return f"{self.kind} {self.exit_code}"

    @property
    def kept(self) -> str:
        """What the session's next command finds, in words."""
        if self.kind == "unknown":
            return "it is not known whether the session goes on"
        if self.restarted:
            return ("the shell was lost and started again: only the directory and exported variables from before this command are kept; functions, "
                    "other variables and background jobs are gone")
        return "the session goes on" + (" as it was before this command" if self.kind == "resumed" else "")

    def check(self) -> CommandResult:
        """Itself, if it ended with 0."""
        if self.ok:
            return self
        raise (UnknownEnd if self.kind == "unknown" else CommandFailed)(self)


@dataclasses.dataclass(frozen=True)
class File:
    name: str
    type: str
    mode: int
    uid: int
    gid: int
    size: int
    mtime: str
    target: str | None
    raw: Json = dataclasses.field(repr=False)

    @classmethod
    def of(cls, raw: Json) -> File:
        return cls(name_of(raw["name"]), raw["type"], int(raw.get("mode", "0"), 8), raw.get("uid", 0), raw.get("gid", 0), raw.get("size", 0),
                   raw.get("mtime", ""), name_of(raw["target"]) if "target" in raw else None, raw)


@dataclasses.dataclass(frozen=True)
class Image:
    name: str
    digest: str
    env: Mapping[str, str]
    entrypoint: tuple[str, ...]
    cmd: tuple[str, ...]
    user: str
    cwd: str
    raw: Json = dataclasses.field(repr=False)

    @classmethod
    def of(cls, raw: Json) -> Image:
        env = dict(word.partition("=")[::2] for word in raw.get("env") or [])
        return cls(raw["name"], raw["digest"], env, tuple(raw.get("entrypoint") or ()), tuple(raw.get("cmd") or ()), raw.get("user") or "",
                   raw.get("cwd") or "", raw)


@dataclasses.dataclass(frozen=True)
class Snapshot:
    id: str
    owner: str
    sandbox: str
    image: str
    bytes: int
    created: str
    raw: Json = dataclasses.field(repr=False)

    @classmethod
    def of(cls, raw: Json) -> Snapshot:
        return cls(raw["id"], raw["owner"], raw["sandbox"], raw["image"], raw["bytes"], raw["created"], raw)


@dataclasses.dataclass(frozen=True)
class Template:
    id: str
    name: str
    owner: str
    public: bool
    image: str | None
    snapshot: str | None
    created: str
    raw: Json = dataclasses.field(repr=False)

    @classmethod
    def of(cls, raw: Json) -> Template:
        return cls(raw["id"], raw["name"], raw["owner"], raw["public"], raw.get("image"), raw.get("snapshot"), raw["created"], raw)


@dataclasses.dataclass(frozen=True)
class NodeInfo:
    version: str
    cell: str
    backend: str
    caps: Mapping[str, str]
    raw: Json = dataclasses.field(repr=False)

    @classmethod
    def of(cls, raw: Json) -> NodeInfo:
        return cls(raw["version"], raw["cell"], raw["backend"], raw["caps"], raw)

"""bothy: sandboxes for agents.

    from bothy import Client

    with Client() as client, client.create("debian:12") as sandbox:
        print(sandbox.exec("echo hello from $(hostname)").check().text)

`AsyncClient` is the same with `await`. Adapters for harnesses are modules of their own: `bothy.mini_swe_agent`, `bothy.harbor`,
`bothy.inspect_ai`, `bothy.swerex`, `bothy.uni_agent`."""

from ._async.client import AsyncClient
from ._async.files import AsyncFiles
from ._async.process import AsyncProcess
from ._async.sandbox import AsyncSandbox
from ._async.session import AsyncSession
from ._errors import (
    ApiError,
    BothyError,
    CommandFailed,
    Conflict,
    ConnectionLost,
    CwdNotFound,
    ExecFailed,
    Forbidden,
    InvalidRequest,
    NotFound,
    Overloaded,
    QuotaExceeded,
    SandboxExhausted,
    SandboxGone,
    SandboxPaused,
    Unauthenticated,
    UnknownEnd,
    Unreachable,
    Unsupported,
    UserNotFound,
)
from ._models import (
    Cause,
    Chunk,
    CommandResult,
    End,
    ExecResult,
    File,
    Gap,
    Image,
    NodeInfo,
    ProcessInfo,
    SandboxInfo,
    SessionInfo,
    Snapshot,
    Template,
)
from ._sync.client import Client
from ._sync.files import Files
from ._sync.process import Process
from ._sync.sandbox import Sandbox
from ._sync.session import Session
from ._version import __version__

__all__ = [
    "ApiError", "AsyncClient", "AsyncFiles", "AsyncProcess", "AsyncSandbox", "AsyncSession", "BothyError", "Cause", "Chunk", "Client",
    "CommandFailed", "CommandResult", "Conflict", "ConnectionLost", "CwdNotFound", "End", "ExecFailed", "ExecResult", "File", "Files",
    "Forbidden", "Gap", "Image", "InvalidRequest", "NodeInfo", "NotFound", "Overloaded", "Process", "ProcessInfo", "QuotaExceeded", "Sandbox",
    "SandboxExhausted", "SandboxGone", "SandboxInfo", "SandboxPaused", "Session", "SessionInfo", "Snapshot", "Template", "Unauthenticated",
    "UnknownEnd", "Unreachable", "Unsupported", "UserNotFound", "__version__",
]

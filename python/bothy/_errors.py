"""What can go wrong, as the API tells it: a code for programs, a cause, a remedy, and whether a retry may help."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._models import CommandResult, ExecResult


class BothyError(Exception):
    """Everything that this package raises by itself."""


class ApiError(BothyError):
    """An error answer. Nothing that was asked for has been done, unless `message` says otherwise."""

    def __init__(self, status: int, error: Mapping[str, Any]) -> None:
        self.status = status
        self.code = str(error.get("code") or "unknown")
        self.message = str(error.get("message") or f"HTTP status {status}")
        self.cause: str | None = error.get("cause")
        self.remedy = str(error.get("remedy") or "")
        self.retryable = bool(error.get("retryable"))
        self.kind: str | None = error.get("kind")
        self.retry_after: int | None = error.get("retry_after")
        self.request_id: str | None = error.get("request_id")
        self.repeated = False
        """It answers a second sending: the answer to an earlier one was lost, and that may have done what this one found done."""
        super().__init__(status, dict(error))

    def __str__(self) -> str:
        cause = f" ({self.cause})" if self.cause else ""
        return f"{self.code}: {self.message}{cause}" + (f". {self.remedy}" if self.remedy else "")


class InvalidRequest(ApiError):
    """A member is wrong; the message names it."""


class Unauthenticated(ApiError):
    """No key, or one that is not known."""


class Forbidden(ApiError):
    """The key, or the sandbox's user, may not do this."""


class NotFound(ApiError):
    """`kind` says what there is not, or what is not yours."""


class Conflict(ApiError):
    """Not in this state; `kind` says what is in the way."""


class SandboxPaused(Conflict):
    """Resume it first."""


class SandboxExhausted(Conflict):
    """It runs as many commands as it may."""


class SandboxGone(ApiError):
    """It has ended; its record tells the cause."""


class ExecFailed(ApiError):
    """The program could not be started: it is not there, not executable, or its arguments do not fit."""


class UserNotFound(ApiError):
    """The image has no such user."""


class CwdNotFound(ApiError):
    """There is no such directory, or the user may not enter it."""


class QuotaExceeded(ApiError):
    """The owner or the key has as much as it may."""


class Unsupported(ApiError):
    """This node cannot do that."""


class Overloaded(ApiError):
    """The node takes no work now: no slot is free, it is draining, or a part of it is missing."""


class NotAnswered(ApiError):
    """Something between us and the node could not reach it, or did not wait for it. Nobody is told so: it is a lost answer (Attempts)."""


GATEWAY = frozenset({502, 503, 504})
_BY_CODE: dict[str, type[ApiError]] = {
    "invalid_request": InvalidRequest,
    "unauthenticated": Unauthenticated,
    "forbidden": Forbidden,
    "not_found": NotFound,
    "conflict": Conflict,
    "sandbox_paused": SandboxPaused,
    "sandbox_exhausted": SandboxExhausted,
    "sandbox_gone": SandboxGone,
    "exec_failed": ExecFailed,
    "user_not_found": UserNotFound,
    "user_not_mapped": UserNotFound,
    "cwd_not_found": CwdNotFound,
    "quota_exceeded": QuotaExceeded,
    "unsupported": Unsupported,
    "pool_exhausted": Overloaded,
    "draining": Overloaded,
    "unavailable": Overloaded,
}


def api_error(status: int, body: object) -> ApiError:
    """Of an answer's body; one that is no error of the API's comes from something between us and it."""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("code"), str):
        error = {"code": "unknown", "message": f"the answer is no error of bothy: status {status}, {str(body)[:200]!r}"}
        return (NotAnswered if status in GATEWAY else ApiError)(status, error)
    return _BY_CODE.get(str(error.get("code")), ApiError)(status, error)


class Unreachable(BothyError):
    """No daemon answered. Nothing was sent, so nothing was done."""


class ConnectionLost(BothyError):
    """The answer was lost and the request could not be repeated: whether it was done is not known."""


class CommandFailed(BothyError):
    """Of `check()`: the command ended, and not with 0."""

    def __init__(self, result: ExecResult | CommandResult) -> None:
        self.result = result
        tail = (result.err or result.out)[-500:].decode(errors="replace")
        super().__init__(f"the command did not succeed ({result.said})" + (f": {tail}" if tail else ""))


class UnknownEnd(CommandFailed):
    """Nobody saw how the command ended. It may have done its work, or a part of it."""

"""One request, and where it goes: what both clients share, without any I/O."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import time
import urllib.parse
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from ._errors import ApiError, BothyError, ConnectionLost, NotAnswered, Unreachable

PATIENCE = 60.0  # seconds for which a node that has answered before is asked again, unless $BOTHY_PATIENCE says another number
SILENCE = 45.0  # seconds without a byte: the daemon pings an event stream every 15
ANSWER = 60.0  # seconds for any other answer
ENDING = 10.0  # seconds in which somebody who was cancelled takes away what is left behind otherwise
SLOW = 1900.0  # seconds for answers that wait for a slot or an image
# An error with one of these says that the node could not, not that the request was wrong.
WORTH_WAITING = frozenset({"pool_exhausted", "unavailable", "draining", "quota_exceeded", "create_failed", "wall_failed"})
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclasses.dataclass(frozen=True)
class Address:
    """Of a daemon: a unix socket, or an URL and a key. `found`: the caller named none, so a request searches for the socket."""

    url: str
    socket: str | None
    key: str | None
    found: bool = False

    @classmethod
    def of(cls, url: str | None, socket: str | None, key: str | None) -> Address:
        """Finds the daemon as the command line does: the named one, else $BOTHY_URL with $BOTHY_KEY, else $BOTHY_SOCKET, else `find_socket`, later."""
        if url is None and socket is None:
            url, socket = os.environ.get("BOTHY_URL"), os.environ.get("BOTHY_SOCKET")
        if url:
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"{url!r} is no address: give http://HOST:PORT, or the path of a socket as `socket` or $BOTHY_SOCKET")
            return cls(url.rstrip("/"), None, _header_of(key or os.environ.get("BOTHY_KEY")))
        return cls("http://bothy", socket or None, _header_of(key), found=not socket)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def reach(self) -> tuple[str | None, int | None]:
        """The socket's path, and a descriptor that it needs: one longer than sun_path is reached through its directory."""
        if self.socket is None or len(os.fsencode(self.socket)) < 108:
            return self.socket, None
        directory, name = os.path.split(self.socket)
        try:
            descriptor = os.open(directory, os.O_PATH | os.O_CLOEXEC)
        except OSError as e:
            raise Unreachable(f"{directory}: {e.strerror}") from e
        return f"/proc/self/fd/{descriptor}/{name}", descriptor


def _header_of(key: str | None) -> str | None:
    """A key as a header takes it: one that was read from a file ends with a newline."""
    key = key.strip() if key else None
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise ValueError("the key has characters that no key has: give what `bothy key create` printed")
    return key


@dataclasses.dataclass(frozen=True)
class Request:
    """`again`: it may be sent a second time when its answer was lost, because it has a key or changes nothing the second time."""

    method: str
    path: str
    query: Mapping[str, str | Sequence[str]] = dataclasses.field(default_factory=dict)
    json: Mapping[str, Any] | None = None
    content: bytes | None = None
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    again: bool = True
    silence: float = ANSWER

    @property
    def target(self) -> str:
        pairs = [(name, one) for name, value in self.query.items() for one in ([value] if isinstance(value, str) else value)]
        text = urllib.parse.urlencode(pairs, quote_via=urllib.parse.quote, errors="surrogateescape")
        return self.path + ("?" + text if text else "")

    @property
    def body(self) -> bytes | None:
        return self.content if self.json is None else json.dumps(self.json).encode()

    @property
    def all_headers(self) -> dict[str, str]:
        kind = {"Content-Type": "application/json"} if self.json is not None else {}
        return {**kind, **self.headers}


def path(*parts: str) -> str:
    """/v1 and these, whatever characters they have."""
    return "/".join(["/v1", *(urllib.parse.quote(part, safe="") for part in parts)])


def keyed(key: str | None) -> dict[str, str]:
    """An Idempotency-Key: the caller's, or one of ours."""
    return {"Idempotency-Key": key or uuid.uuid4().hex}


def given(**members: Any) -> dict[str, Any]:
    """Those that the caller gave."""
    return {name: value for name, value in members.items() if value is not None}


def flags(**members: bool) -> dict[str, str]:
    """Of a query: those that are set."""
    return {name: "true" for name, value in members.items() if value}


def milliseconds(seconds: float | None) -> int | None:
    """Of a time limit; what is less than one is one, because 0 is no limit."""
    if seconds is None:
        return None
    if seconds <= 0:
        raise ValueError("a time limit is more than 0 seconds")
    return max(1, round(seconds * 1000))


class Attempts:
    """When a request is sent again, and when its caller is told. Each method gives the seconds to wait first, or raises."""

    def __init__(self, request: Request, patience: float, met: bool) -> None:
        self.request, self.patience, self.met = request, patience, met
        self.count = 0
        self.unanswered = False  # one was sent, and its answer was lost
        self.since = 0.0  # of the first failure in a row
        self.begun = time.monotonic()

    def progress(self) -> None:
        """Something came: patience begins anew."""
        self.met, self.count = True, 0

    def _pause(self, at_least: float, why: BothyError) -> float:
        if self.count == 0:
            self.since = time.monotonic()
        pause: float = max(at_least, min(2.0, 0.05 * 2.0**self.count) * random.uniform(0.5, 1.0))
        self.count += 1
        if time.monotonic() + pause - self.since > self.patience:
            raise why
        return pause

    def lost(self, error: httpx.TransportError | None) -> float:
        """The connection failed; None: an answer ended before it should."""
        what = f"{self.request.method} {self.request.path}: {str(error) or type(error).__name__}"
        if isinstance(error, NOT_SENT):
            how = f"{what}. Start the daemon, or name it with $BOTHY_SOCKET or $BOTHY_URL; 'bothy doctor' says more."
            why: BothyError = ConnectionLost(how) if self.unanswered else Unreachable(how)
            if not self.met:
                raise why from error
            return self._pause(0, why)
        self.unanswered = True
        why = ConnectionLost(what if error else f"{self.request.method} {self.request.path}: the answer is not whole")
        if not self.request.again:
            raise why from error
        return self._pause(0, why)

    def refused(self, error: ApiError) -> float:
        """An error answer. Nothing was done, so that it may be asked for again if time can help; unless it is none of the node's."""
        if isinstance(error, NotAnswered):
            return self._not_answered(error)
        error.repeated = self.unanswered
        if not error.retryable or error.code not in WORTH_WAITING:
            raise error
        return self._pause(error.retry_after or 0, error)

    def _not_answered(self, error: NotAnswered) -> float:
        """The node may have the request, or have done it already."""
        self.unanswered = True
        why = ConnectionLost(f"{self.request.method} {self.request.path}: {error.message}")
        if not self.request.again:
            raise why
        if error.status == 504 and time.monotonic() - self.begun < self.request.silence:  # it was waited for, as we would have waited
            self.since = time.monotonic()
        return self._pause(0, why)

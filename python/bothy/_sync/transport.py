"""Requests over one connection pool: sent again where that is safe, given up where it is not."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
from collections.abc import Iterator
from typing import Any

import httpx

from .._errors import NotFound, api_error
from .._find import find_daemon, find_socket
from .._request import NOT_SENT, Address, Attempts, Request
from .._version import __version__
from .._wait import in_thread, sleep

KEEPALIVE = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
if hasattr(socket, "TCP_KEEPIDLE"):
    KEEPALIVE += [(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30), (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)]


class Transport:
    """If the caller named no daemon, the first request finds it, and starts it if necessary, in a thread because that takes time. A later request
    that cannot connect does the same: a user's daemon exits when it is idle."""

    def __init__(self, address: Address, patience: float) -> None:
        self.address, self.patience, self.met = address, patience, False
        self._http: httpx.Client | None = None
        self._made: list[httpx.Client] = []
        self._directories: list[int] = []
        if not address.found:
            self._connect(address)

    def _connect(self, address: Address) -> None:
        uds, directory = address.reach()
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=256, keepalive_expiry=600)
        # Certificates are read only where they are needed: it takes longer than a request.
        transport = httpx.HTTPTransport(uds=uds, limits=limits, verify=address.url.startswith("https:"),
                                             socket_options=None if uds else KEEPALIVE)
        self._http = httpx.Client(base_url=address.url, transport=transport, trust_env=False,
                                       headers={**address.headers, "User-Agent": f"bothy-python/{__version__}"})
        self.address = address
        self._made.append(self._http)  # streams of an earlier one may still be open
        self._directories += [] if directory is None else [directory]

    def close(self) -> None:
        for http in self._made:
            http.close()
        while self._directories:
            os.close(self._directories.pop())

    def _move(self, path: str) -> None:
        if self._http is None or path != self.address.socket:
            self._connect(dataclasses.replace(self.address, socket=path))

    def _connections(self) -> httpx.Client:
        if self._http is None:
            self._move(in_thread(find_socket))
        assert self._http is not None
        return self._http

    def _found_again(self) -> bool:
        """Finds the daemon again, if the caller named none, and starts it if necessary. Returns whether it answers."""
        path = in_thread(find_daemon) if self.address.found else None
        if path is not None:
            self._move(path)
        return path is not None

    def attempts(self, request: Request, patience: float | None = None) -> Attempts:
        return Attempts(request, self.patience if patience is None else patience, self.met)

    @contextlib.contextmanager
    def open(self, request: Request) -> Iterator[httpx.Response]:
        """The answer to one sending of it; an error answer is raised."""
        with contextlib.ExitStack() as stack:
            try:
                response = stack.enter_context(self._stream(request))
            except NOT_SENT:
                if not self._found_again():
                    raise
                response = stack.enter_context(self._stream(request))
            self.met = True
            if response.status_code >= 400:
                response.read()
                raise api_error(response.status_code, body_of(response))
            yield response

    def _stream(self, request: Request) -> contextlib.AbstractContextManager[httpx.Response]:
        http = self._connections()
        return http.stream(request.method, request.target, content=request.body, headers=request.all_headers,
                           timeout=httpx.Timeout(10.0, read=request.silence, write=60.0))

    def call(self, request: Request, patience: float | None = None) -> httpx.Response:
        """The whole answer, however many sendings that takes."""
        attempts, sought = self.attempts(request, patience), False
        while True:
            try:
                http = self._connections()
                response = http.request(request.method, request.target, content=request.body, headers=request.all_headers,
                                              timeout=httpx.Timeout(10.0, read=request.silence, write=60.0))
            except httpx.TransportError as e:
                if isinstance(e, NOT_SENT) and not sought and self._found_again():
                    sought = True
                    continue
                pause = attempts.lost(e)
                attempts.met = attempts.met or not isinstance(e, NOT_SENT)
            else:
                self.met = attempts.met = True
                if response.status_code < 400:
                    return response
                pause = attempts.refused(api_error(response.status_code, body_of(response)))
            sleep(pause)

    def json(self, request: Request, patience: float | None = None) -> Any:
        response = self.call(request, patience)
        return response.json() if response.content else None

    def remove(self, request: Request) -> None:
        """What the first sending removed is not there at the second."""
        try:
            self.call(request)
        except NotFound as e:
            if not e.repeated or e.kind == "sandbox":
                raise


def body_of(response: httpx.Response) -> object:
    try:
        return response.json()
    except ValueError:
        return response.text

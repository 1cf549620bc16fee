"""Requests over one connection pool: sent again where that is safe, given up where it is not."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any

import httpx

from .._errors import NotFound, api_error
from .._request import NOT_SENT, Address, Attempts, Request
from .._version import __version__
from .._wait import sleep

KEEPALIVE = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
if hasattr(socket, "TCP_KEEPIDLE"):
    KEEPALIVE += [(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30), (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)]


class Transport:
    def __init__(self, address: Address, patience: float) -> None:
        self.address, self.patience, self.met = address, patience, False
        uds, self._directory = address.reach()
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=256, keepalive_expiry=600)
        # Certificates are read only where they are needed: it takes longer than a request.
        transport = httpx.HTTPTransport(uds=uds, limits=limits, verify=address.url.startswith("https:"),
                                             socket_options=None if uds else KEEPALIVE)
        self._http = httpx.Client(base_url=address.url, transport=transport, trust_env=False,
                                       headers={**address.headers, "User-Agent": f"bothy-python/{__version__}"})

    def close(self) -> None:
        self._http.close()
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None

    def attempts(self, request: Request, patience: float | None = None) -> Attempts:
        return Attempts(request, self.patience if patience is None else patience, self.met)

    @contextlib.contextmanager
    def open(self, request: Request) -> Iterator[httpx.Response]:
        """The answer to one sending of it; an error answer is raised."""
        timeout = httpx.Timeout(10.0, read=request.silence, write=60.0)
        with self._http.stream(request.method, request.target, content=request.body, headers=request.all_headers,
                                     timeout=timeout) as response:
            self.met = True
            if response.status_code >= 400:
                response.read()
                raise api_error(response.status_code, body_of(response))
            yield response

    def call(self, request: Request, patience: float | None = None) -> httpx.Response:
        """The whole answer, however many sendings that takes."""
        attempts = self.attempts(request, patience)
        while True:
            try:
                response = self._http.request(request.method, request.target, content=request.body, headers=request.all_headers,
                                                    timeout=httpx.Timeout(10.0, read=request.silence, write=60.0))
            except httpx.TransportError as e:
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

"""A command's output as it comes, across lost connections: every byte once, then the end."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Callable

import httpx

from .._errors import ApiError
from .._events import EventParser, Finished, Progress
from .._models import Chunk, Gap
from .._request import ENDING, SILENCE, Request
from .._wait import sleep
from .transport import Transport

EVENTS = {"Accept": "text/event-stream"}


class Follow:
    """`begin` runs the command and has a key, so that it may be sent again until its answer begins; from then on `output`, a path that
    `learn` finds in the answer's headers, is asked from where we were."""

    def __init__(self, transport: Transport, begin: Request | None, learn: Callable[[httpx.Headers], str | None],
                 output: str | None = None, progress: Progress | None = None) -> None:
        self._transport, self._begin, self._learn = transport, begin, learn
        self.output = output
        self.progress = progress or Progress()
        self.finished: Finished | None = None

    def _request(self) -> Request:
        if self.output is None:
            assert self._begin is not None
            return self._begin
        return Request("GET", self.output, query={"follow": "end", "offset": self.progress.offset}, headers=EVENTS, silence=SILENCE)

    def abandon(self) -> None:
        """Kills the command; one of which nothing was heard yet is asked for by its key."""
        if self.output is None:
            with self._transport.open(dataclasses.replace(self._request(), silence=ENDING)) as response:
                self.output = self._learn(response.headers)
        if self.output is not None:
            self._transport.call(Request("DELETE", self.output.removesuffix("/output"), silence=ENDING), ENDING)

    def events(self) -> Iterator[Chunk | Gap]:
        attempts = self._transport.attempts(self._request())
        while self.finished is None:
            attempts.request = self._request()
            try:
                with self._transport.open(attempts.request) as response:
                    self.output = self._learn(response.headers) or self.output
                    attempts.progress()
                    parser = EventParser()
                    for data in response.iter_bytes():
                        for event in parser.feed(data):
                            got = self.progress.take(*event)
                            if isinstance(got, Finished):
                                self.finished = got
                                return
                            if got is not None:
                                yield got
                        attempts.progress()
                pause = attempts.lost(None)
            except httpx.TransportError as e:
                pause = attempts.lost(e)
            except ApiError as e:
                pause = attempts.refused(e)
            sleep(pause)

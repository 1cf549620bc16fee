"""A command's output as it comes, across lost connections: every byte once, then the end."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable

import httpx

from .._errors import ApiError
from .._events import EventParser, Finished, Progress
from .._models import Chunk, Gap
from .._request import ENDING, SILENCE, Request
from .._wait import async_sleep
from .transport import AsyncTransport

EVENTS = {"Accept": "text/event-stream"}


class AsyncFollow:
    """`begin` runs the command and has a key, so that it may be sent again until its answer begins; from then on `output`, a path that
    `learn` finds in the answer's headers, is asked from where we were."""

    def __init__(self, transport: AsyncTransport, begin: Request | None, learn: Callable[[httpx.Headers], str | None],
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

    async def abandon(self) -> None:
        """Kills the command; one of which nothing was heard yet is asked for by its key."""
        if self.output is None:
            async with self._transport.open(dataclasses.replace(self._request(), silence=ENDING)) as response:
                self.output = self._learn(response.headers)
        if self.output is not None:
            await self._transport.call(Request("DELETE", self.output.removesuffix("/output"), silence=ENDING), ENDING)

    async def events(self) -> AsyncIterator[Chunk | Gap]:
        attempts = self._transport.attempts(self._request())
        while self.finished is None:
            attempts.request = self._request()
            try:
                async with self._transport.open(attempts.request) as response:
                    self.output = self._learn(response.headers) or self.output
                    attempts.progress()
                    parser = EventParser()
                    async for data in response.aiter_bytes():
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
            await async_sleep(pause)

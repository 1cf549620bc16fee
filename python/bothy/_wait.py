"""Waiting, in both worlds; of the asynchronous ones asyncio and trio."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import anyio
import anyio.to_thread

T = TypeVar("T")

async_sleep = anyio.sleep
sleep = time.sleep


def async_shielded(seconds: float) -> contextlib.AbstractContextManager[object]:
    """A block that a cancellation from outside does not end: what is left behind otherwise is taken away in it. After these seconds it is given up."""
    return anyio.move_on_after(seconds, shield=True)


@contextlib.contextmanager
def shielded(seconds: float) -> Iterator[None]:
    """Nobody cancels a synchronous caller; whoever interrupts it a second time means it."""
    yield


async def async_in_thread(function: Callable[[], T]) -> T:
    """Work of the disk's or the processor's: others go on meanwhile."""
    return await anyio.to_thread.run_sync(function)


def in_thread(function: Callable[[], T]) -> T:
    return function()

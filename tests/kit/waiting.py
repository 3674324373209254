"""Waiting for what sends no signal: the state of another process, and tasks of this event loop that have yet to run.

Where there is a signal (an event, a future, a line of output), a test awaits that instead.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

T = TypeVar("T")


async def until(
    look: Callable[[], Awaitable[T] | T],
    is_so: Callable[[T], object] = bool,
    *,
    within_s: float = 30.0,
    every_s: float = 0.02,
) -> T:
    """Look again and again until `is_so` accepts what was found, and return that. Raises TimeoutError."""
    async with asyncio.timeout(within_s):
        while True:
            found = look()
            value = await cast(Awaitable[T], found) if inspect.isawaitable(found) else cast(T, found)
            if is_so(value):
                return value
            await asyncio.sleep(every_s)


def wait_until(
    look: Callable[[], T], is_so: Callable[[T], object] = bool, *, within_s: float = 30.0, every_s: float = 0.02
) -> T:
    """As `until`, in a thread without an event loop."""
    end_s = time.monotonic() + within_s
    while not is_so(value := look()):
        if time.monotonic() > end_s:
            raise TimeoutError
        time.sleep(every_s)
    return value


async def turns(count: int = 1) -> None:
    """Let the other tasks of this event loop run, this many times."""
    for _ in range(count):
        await asyncio.sleep(0)

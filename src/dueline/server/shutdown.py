"""The signals of a server: the first SIGTERM or SIGINT starts the drain, the second one cuts it short."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Signals:
    """SIGTERM and SIGINT as events. Create it inside the loop, call `install` on the main thread."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.hasten = asyncio.Event()

    def install(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.received)

    def on_hangup(self, reload: Callable[[], None]) -> None:
        """Call this on SIGHUP, which otherwise ends the process."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)

    def received(self) -> None:
        """Handle one signal."""
        (self.hasten if self.stop.is_set() else self.stop).set()


async def unless(event: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`. If the event comes first, `work` is cancelled and the result is None."""
    task = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        return None
    finally:
        waiting.cancel()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

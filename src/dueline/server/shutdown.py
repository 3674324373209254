"""The signals of a server, and the phases in which it stops.

    SIGTERM or SIGINT     lame duck: /readyz is red, calls are still served, each answer closes its connection
    after lame_duck_ms    drain: no new connections and calls, parked polls are answered empty, running calls finish
    after drain_ms        connections that are left are cut, the process ends

Each further signal ends the current phase.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ..config.settings import Settings

T = TypeVar("T")

LAME_DUCK_MS = 3_000  # with the drain and the last calls, the whole stop takes at most 10 s


class Signals:
    """SIGTERM and SIGINT as events. Create it inside the loop, call `install` on the main thread."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.hasten = asyncio.Event()  # cut the drain short
        self.again = asyncio.Event()  # a signal after the first; whoever handles it clears it
        self._skip: asyncio.Event | None = None

    def install(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.received)

    def on_hangup(self, reload: Callable[[], None]) -> None:
        """Call this on SIGHUP, which otherwise ends the process."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)

    def received(self) -> None:
        """Handle one signal."""
        if not self.stop.is_set():
            self.stop.set()
            return
        self.again.set()
        (self._skip or self.hasten).set()

    async def lame_duck(self, wait_s: float) -> None:
        """Wait this long, or until the next signal."""
        self._skip = asyncio.Event()
        try:
            async with asyncio.timeout(wait_s):
                await self._skip.wait()
        except TimeoutError:
            pass
        finally:
            self._skip = None


def lame_duck_s(settings: Settings) -> float:
    """How long a server stays a lame duck. Nobody else can serve the jobs of an embedded store, so its server stops at
    once."""
    if settings.server.lame_duck_ms is not None:
        return settings.server.lame_duck_ms / 1000
    return 0.0 if settings.store.url is None else LAME_DUCK_MS / 1000


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

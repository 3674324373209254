"""Timers on a virtual clock: time passes only when a test advances it, and timers fire in order.

clock = VirtualClock()
timer = VirtualTimer(clock)
engine = Engine(MemoryStore(clock), timer=timer)
await timer.advance(120_000)
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable

from .clock import VirtualClock

STEPS = 60  # turns of a loop whose queue cannot be inspected; enough, because nothing waits for real I/O
MOST_STEPS = 100_000  # turns of one that can be inspected; more than this is an endless loop


class VirtualHandle:
    """A scheduled call that can be cancelled."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class VirtualTimer:
    """Timers on the store's virtual clock. `sleeping` lists the pending timers' times, in ms since the start."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.start_ms = clock.now_ms
        self._now_s = 0.0
        self._numbers = itertools.count()
        self._heap: list[tuple[float, int, VirtualHandle]] = []

    def time(self) -> float:
        return self._now_s

    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> VirtualHandle:
        handle = VirtualHandle(callback)
        heapq.heappush(self._heap, (self.time() + delay_s, next(self._numbers), handle))
        return handle

    @property
    def sleeping(self) -> list[int]:
        return sorted(round(at * 1000) for at, _, handle in self._heap if handle.callback is not None)

    async def advance(self, by_ms: int) -> None:
        """Let time pass, stopping at every timer on the way, and run everything that follows from it."""
        await settled()
        end_s = self.time() + by_ms / 1000
        while self._heap and self._heap[0][0] <= end_s + 1e-9:
            at_s, _, handle = heapq.heappop(self._heap)
            if handle.callback is None:
                continue
            self._move(at_s)
            handle.callback()
            await settled()
        self._move(end_s)
        await settled()

    def _move(self, now_s: float) -> None:
        self._now_s = max(self._now_s, now_s)
        self.clock.advance_to(self.start_ms + int(self._now_s * 1000 + 1e-6))


async def settled() -> None:
    """Run the event loop until all started work is done. The reference store never waits for real I/O.

    With asyncio's own loop we can see when nothing is left to run, and stop at once. That matters, because a day of
    virtual time has thousands of moments at which almost nothing happens."""
    ready = getattr(asyncio.get_running_loop(), "_ready", None)
    for _ in range(STEPS if ready is None else MOST_STEPS):
        await asyncio.sleep(0)
        if ready is not None and not ready:
            return
    if ready is not None:
        raise RuntimeError("endless loop: there is always more work, so time cannot advance")

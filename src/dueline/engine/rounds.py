"""Work in the background, round after round: how whatever runs by itself begins, rests, fails and ends.

    start --> round --the seconds it said, or wake()--> round --> ... --> end() | stop()
                |                                         ^
                +--failed: back off, woken or not --------+

A round says how long it may sleep. A wake-up during a round is not lost: the next one begins at once. A failure that is
no DuelineError is a bug, and the event loop's exception handler hears of it; the work goes on either way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from .errors import DuelineError
from .timer import Timer

MOST_DOUBLINGS = 10


class Rounds:
    """start, wake, stop; safe to stop twice or before the start, and never started again.

    `work`: one round; the seconds until the next one, unless woken. `failed`: what is said of a bug in it. `back_off`:
    the first rest after a failure and the longest, in seconds; it doubles until a round succeeds. `calm`: after a round
    no wake-up counts for this many times as long as it took.
    """

    def __init__(
        self,
        work: Callable[[], Awaitable[float]],
        timer: Timer,
        failed: str,
        back_off: tuple[float, float] = (1.0, 1.0),
        calm: float = 0.0,
    ) -> None:
        self._work = work
        self._timer = timer
        self._failed = failed
        self._back_off = back_off
        self._calm = calm
        self._failures = 0
        self._woken = asyncio.Event()
        self._rested = asyncio.Event()  # set by time and by the end, not by a wake-up
        self._task: asyncio.Task[None] | None = None
        self.stopping = False

    def wake(self) -> None:
        """There may be something to do: let the next round begin."""
        self._woken.set()

    def start(self) -> None:
        if self._task is None and not self.stopping:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def end(self) -> None:
        """The round that is under way is the last one; `stop` waits for it."""
        self.stopping = True
        self._woken.set()
        self._rested.set()

    async def stop(self) -> None:
        """End, after the round that is under way."""
        self.end()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while not self.stopping:
            self._woken.clear()
            begun_s = self._timer.time()
            try:
                rest_s = await self._work()
            except Exception as error:
                if not isinstance(error, DuelineError):
                    context = {"message": self._failed, "exception": error}
                    asyncio.get_running_loop().call_exception_handler(context)
                await self._rest(self._rested, self._backed_off_s())
            else:
                self._failures = 0
                calm_s = min(rest_s, self._calm * (self._timer.time() - begun_s))
                if calm_s > 0:
                    await self._rest(self._rested, calm_s)
                await self._rest(self._woken, rest_s - calm_s)

    def _backed_off_s(self) -> float:
        first_s, longest_s = self._back_off
        rest_s = min(first_s * 2**self._failures, longest_s)
        self._failures = min(self._failures + 1, MOST_DOUBLINGS)
        return rest_s

    async def _rest(self, over: asyncio.Event, rest_s: float) -> None:
        if self.stopping:
            return
        if rest_s <= 0:
            await asyncio.sleep(0)  # others have their turn, even if nothing in a round really waits
            return
        self._rested.clear()
        handle = self._timer.call_later(rest_s, over.set)
        await over.wait()
        handle.cancel()

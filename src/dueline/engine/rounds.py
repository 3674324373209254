"""The background loop that every periodic task uses: it starts, sleeps, backs off after failures and stops.

    start --> round --the returned seconds, or wake()--> round --> ... --> end() | stop()
                |                                          ^
                +--failed: back off, even if woken --------+

A round returns how long the loop may sleep. A wake-up during a round is not lost: the next round begins at once. An
exception that is not a DuelineError is a bug and goes to the event loop's exception handler. The loop continues either
way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from .errors import DuelineError
from .timer import Timer

MOST_DOUBLINGS = 10


class Rounds:
    """A background loop. `stop` is safe to call twice or before `start`. It cannot be restarted.

    `work` does one round and returns the seconds until the next one. `failed`: the message for a bug in it. `back_off`:
    the first and the longest pause after a failure, in seconds; it doubles until a round succeeds. `calm`: after a
    round, wake-ups are ignored for `calm` times its duration.
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
        self._rested = asyncio.Event()  # set by the timer and by `end`, not by a wake-up
        self._task: asyncio.Task[None] | None = None
        self.stopping = False

    def wake(self) -> None:
        """There may be work; begin the next round."""
        self._woken.set()

    def start(self) -> None:
        if self._task is None and not self.stopping:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def end(self) -> None:
        """Make the current round the last one. `stop` waits for it."""
        self.stopping = True
        self._woken.set()
        self._rested.set()

    async def stop(self) -> None:
        """End after the current round."""
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
            await asyncio.sleep(0)  # let other tasks run, even if nothing in a round awaits I/O
            return
        self._rested.clear()
        handle = self._timer.call_later(rest_s, over.set)
        await over.wait()
        handle.cancel()

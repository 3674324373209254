"""Writes a target's push log to the store and keeps the breaker's state.

Calls that end while a report is being written go into the next one. A report that fails is retried with the next one,
or a second later. While the store stays down, the number of kept reports is bounded; the oldest are dropped first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from ..engine.errors import DuelineError
from ..engine.push_log import Attempt, PushLog, TargetState
from ..engine.push_target import Breaker
from ..engine.timer import Handle, Timer

BATCH = 200
MOST_KEPT = 1000
AGAIN_S = 1.0
OLD_S = 5.0


class Reports:
    """`state` is the breaker's state over all processes as of the last report. `on_report` is called after reports."""

    def __init__(self, log: PushLog, namespace: str, topic: str, timer: Timer, on_report: Callable[[], None]) -> None:
        self.state = TargetState()
        self._log = log
        self._name = (namespace, topic)
        self._timer = timer
        self._on_report = on_report
        self._waiting: deque[tuple[Attempt, Breaker | None]] = deque(maxlen=MOST_KEPT)
        self._task: asyncio.Task[None] | None = None
        self._again: Handle | None = None
        self._known_at_s = float("-inf")

    @property
    def pending(self) -> bool:
        """Whether some calls are not in the log yet."""
        return bool(self._waiting) or self._task is not None

    @property
    def is_old(self) -> bool:
        """Whether the state is so old that other processes may have opened or closed the breaker since."""
        return self._timer.time() - self._known_at_s > OLD_S

    async def load(self) -> None:
        """Read the breaker's state: at start, for a new target, and when it is old."""
        self.state = await self._log.state(*self._name)
        self._known_at_s = self._timer.time()

    def add(self, attempt: Attempt, breaker: Breaker | None) -> None:
        """Queue one call for the next report. `breaker` is None if the target has none."""
        self._waiting.append((attempt, breaker))
        self._begin()

    def _begin(self) -> None:
        if self._task is None and self._waiting:
            if self._again is not None:
                self._again.cancel()
                self._again = None
            self._task = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        try:
            while self._waiting:
                some = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
                try:
                    await self._report(some)
                except DuelineError:
                    kept = some[max(0, len(some) + len(self._waiting) - MOST_KEPT) :]
                    self._waiting.extendleft(reversed(kept))
                    self._again = self._timer.call_later(AGAIN_S, self._begin)
                    return
        finally:
            self._task = None
            self._on_report()

    async def _report(self, some: list[tuple[Attempt, Breaker | None]]) -> None:
        breaker = some[-1][1]
        limits = (0, 0) if breaker is None else (breaker.failures, breaker.open_ms)
        self.state = await self._log.report(*self._name, [attempt for attempt, _ in some], *limits)
        self._known_at_s = self._timer.time()

    async def stop(self) -> None:
        """Wait for the report in progress; reports that are not written by then are dropped."""
        if self._task is not None:
            await asyncio.wait([self._task])
        if self._again is not None:
            self._again.cancel()
            self._again = None

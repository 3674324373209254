"""The store's clock as this process knows it, and the guard against a clock that jumps.

Every call carries the store time this process expects (last seen time + monotonic time since). A script that finds
its clock further away changes nothing and says so. The wait for the answer is part of the difference, so the answer
is judged again here: a slow store is no step. A real step is adopted after a grace if this machine's wall clock
agrees with the new time (a witness, it decides nothing alone); otherwise changing calls are refused until the old
time comes back.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class StoreClock:
    """`monotonic` and `wall` are seams for tests."""

    def __init__(
        self,
        tolerance_ms: int = 1_000,
        grace_ms: int = 5_000,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.tolerance_ms = tolerance_ms
        self.grace_ms = grace_ms
        self.steps = 0
        self._monotonic = monotonic
        self._wall = wall
        self._offset_ms: float | None = None
        self._stepped_at_ms: float | None = None

    def _mono_ms(self) -> float:
        return self._monotonic() * 1000

    def now_ms(self) -> int:
        return int(
            (self._offset_ms if self._offset_ms is not None else self._wall() * 1000 - self._mono_ms())
            + self._mono_ms()
        )

    @property
    def stepped(self) -> bool:
        return self._stepped_at_ms is not None

    @property
    def offset_ms(self) -> float:
        """Store clock less this machine's wall clock."""
        return self.now_ms() - self._wall() * 1000

    def expectation(self) -> str:
        """What a call carries: "expected:tolerance", empty before the first answer."""
        return "" if self._offset_ms is None else f"{self.now_ms()}:{self.tolerance_ms}"

    def observe(self, store_now_ms: int) -> bool:
        """Takes a time the store just told. False: it is a step that is not adopted (yet)."""
        mono = self._mono_ms()
        if self._offset_ms is None or abs(store_now_ms - (self._offset_ms + mono)) <= self.tolerance_ms:
            self._offset_ms = store_now_ms - mono
            self._stepped_at_ms = None
            return True
        if self._stepped_at_ms is None:
            self._stepped_at_ms = mono
            self.steps += 1
        agrees = abs(self._wall() * 1000 - store_now_ms) <= self.tolerance_ms
        if agrees and mono - self._stepped_at_ms >= self.grace_ms:
            self._offset_ms = store_now_ms - mono
            self._stepped_at_ms = None
            return True
        return False

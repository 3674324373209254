"""The store's clock as this process knows it, and the guard against a clock that jumps.

Every call carries the store time this process expects (last seen time + monotonic time since). A script that finds
its clock further away changes nothing and says so. The way there and back is part of the difference, so the answer is
judged again here, by when it was asked for and when it came: a slow store is no step, nor is a slow process. A real
step is adopted after a grace if this machine's wall clock agrees with the new time (a witness, it decides
nothing alone); otherwise changing calls are refused until the old time comes back.
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

    def asked(self) -> float:
        """To be given back to `observe`: when the store was asked for its time."""
        return self._mono_ms()

    def observe(self, store_now_ms: int, asked_ms: float) -> bool:
        """Takes a time that the store told some moment between `asked_ms` and now. False: a step, not adopted (yet)."""
        mono = self._mono_ms()
        least, most = store_now_ms - mono, store_now_ms - asked_ms  # where the offset must lie, however slow the answer
        if self._offset_ms is None:
            self._offset_ms = least
        if least - self.tolerance_ms <= self._offset_ms <= most + self.tolerance_ms:
            self._offset_ms = min(max(self._offset_ms, least), most)
            self._stepped_at_ms = None
            return True
        if self._stepped_at_ms is None:
            self._stepped_at_ms = mono
            self.steps += 1
        agrees = abs(self._wall() * 1000 - store_now_ms) <= self.tolerance_ms
        if agrees and mono - self._stepped_at_ms >= self.grace_ms:
            self._offset_ms = least
            self._stepped_at_ms = None
            return True
        return False

"""This process's estimate of the store's clock, and the guard against a clock that jumps.

Every call carries the store time that this process expects (last observed time + monotonic time since). If the store's
clock differs too much, the script changes nothing and reports it. The difference includes the time of the round trip,
so it is checked again here against the times of request and reply. A slow store or process is not a clock step. A real
step is accepted after a grace period if this machine's wall clock agrees with the new time; the wall clock alone never
decides. Otherwise changing calls are refused until the old time is back.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class StoreClock:
    """`monotonic` and `wall` can be replaced in tests."""

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
        """The store's clock minus this machine's wall clock."""
        return self.now_ms() - self._wall() * 1000

    def expectation(self) -> tuple[int, int]:
        """The time that a script call expects, and the tolerance; (0, 0) before the first reply."""
        return (0, 0) if self._offset_ms is None else (self.now_ms(), self.tolerance_ms)

    def asked(self) -> float:
        """The time of a request, to pass to `observe`."""
        return self._mono_ms()

    def observe(self, store_now_ms: int, asked_ms: float) -> bool:
        """Record a store time that was read between `asked_ms` and now. False: a step that is not (yet) accepted."""
        mono = self._mono_ms()
        least, most = store_now_ms - mono, store_now_ms - asked_ms  # bounds of the offset, however slow the reply
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

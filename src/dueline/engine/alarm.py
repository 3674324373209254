"""When to ask a partition for jobs again."""

from __future__ import annotations

from collections.abc import Callable

from .store import Store
from .timer import Handle, Timer

LONGEST_SLEEP_S = 3600.0


class Alarm:
    """Calls `ring` at a time that the store named. The store's clock decides; `timer` only sleeps.

    `next_ms` 0: unknown, so the time is now or a pause of our own; None: only a wake-up can bring jobs. `wake_s` is the
    same moment on the timer's clock."""

    def __init__(self, timer: Timer, store: Store, ring: Callable[[], None]) -> None:
        self.next_ms: int | None = 0
        self.wake_s: float | None = 0.0
        self._timer = timer
        self._store = store
        self._ring = ring
        self._handle: Handle | None = None
        self._set_s = 0.0

    def expect(self, next_ms: int | None, wake_s: float | None) -> None:
        self.next_ms = next_ms
        self.wake_s = wake_s

    def is_due(self) -> bool:
        return self.wake_s is not None and self.wake_s <= self._timer.time()

    def set(self) -> None:
        """Sleep until the expected time, unless an earlier alarm is set already."""
        if self.wake_s is None:
            return
        if self._handle is not None:
            if self._set_s <= self.wake_s:
                return
            self._handle.cancel()
        delay_s = min(max(self.wake_s - self._timer.time(), 0.0), LONGEST_SLEEP_S)
        self._set_s = self.wake_s
        self._handle = self._timer.call_later(delay_s, self._rang)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _rang(self) -> None:
        """The timer has ended. If it is too early by the store's clock, sleep for the rest."""
        self._handle = None
        rest_ms = 0 if self.next_ms is None else self.next_ms - self._store.now_ms()
        if self.wake_s is not None and rest_ms > 0:
            self.wake_s = max(self.wake_s, self._timer.time() + rest_ms / 1000)
        self._ring()

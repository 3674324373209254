"""A clock that stands still until it is told to move, for stores that take their time from a callable."""

from __future__ import annotations


class VirtualClock:
    """Whole milliseconds. Calling it reads it; `advance` moves it; `step` may also move it back."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def __call__(self) -> int:
        return self._now_ms

    @property
    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, by_ms: int) -> int:
        """Let time pass; the new time. Time never passes backwards: see `step`."""
        if by_ms < 0:
            raise ValueError(f"time does not pass by {by_ms} ms; use step() for a clock that jumps back")
        self._now_ms += by_ms
        return self._now_ms

    def advance_to(self, now_ms: int) -> int:
        """Let time pass until `now_ms`, or not at all when that is past."""
        self._now_ms = max(self._now_ms, now_ms)
        return self._now_ms

    def step(self, by_ms: int) -> int:
        """A jump of the clock itself, in any direction."""
        self._now_ms += by_ms
        return self._now_ms

"""A clock that moves only when a test moves it, for stores that take their time from a callable."""

from __future__ import annotations


class VirtualClock:
    """A clock in whole milliseconds. Call it to read it. `advance` moves it forward; `step` can also move it back."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def __call__(self) -> int:
        return self._now_ms

    @property
    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, by_ms: int) -> int:
        """Let time pass and return the new time. Raises ValueError for a negative duration; use `step` for that."""
        if by_ms < 0:
            raise ValueError(f"cannot advance by {by_ms} ms; use step() for a clock that jumps back")
        self._now_ms += by_ms
        return self._now_ms

    def advance_to(self, now_ms: int) -> int:
        """Let time pass until `now_ms`; do nothing if that is in the past."""
        self._now_ms = max(self._now_ms, now_ms)
        return self._now_ms

    def step(self, by_ms: int) -> int:
        """Make the clock jump, in either direction."""
        self._now_ms += by_ms
        return self._now_ms

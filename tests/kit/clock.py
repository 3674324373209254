"""A clock that only the test moves."""

from __future__ import annotations

START_MS = 1_700_000_000_000


class Clock:
    """Whole milliseconds; stands still until it is told to move."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, ms: int) -> None:
        assert ms >= 0, "the clock of these tests never steps back"
        self.now_ms += ms

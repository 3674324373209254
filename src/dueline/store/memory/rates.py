"""Limits deliveries per second with a token bucket, one token per delivery. Bit-exact match of lua/lib/rate.lua.

The bucket holds one token plus 100 ms worth of tokens. This is the largest burst after an idle time, and a pull that
comes up to 100 ms late loses nothing. Tokens are not refunded: a released job costs another one when pulled again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...engine.limits import LAST_MS

SPARE = 1e-9  # tolerance for rounding, without which a token could come a millisecond late


@dataclass(slots=True)
class Rate:
    """`per_s` 0: no limit. `tokens` is the number of tokens at `at_ms`."""

    per_s: float = 0.0
    tokens: float = 0.0
    at_ms: int = 0

    def set(self, per_s: float, now_ms: int) -> None:
        """Set the rate. A new limit begins with one token; a changed one keeps its tokens."""
        if per_s == self.per_s:
            return
        self.tokens, self.at_ms = min(self._refilled(now_ms), _most(per_s)) if self.per_s else 1.0, now_ms
        self.per_s = per_s

    def room(self, now_ms: int) -> int:
        """How many jobs may be delivered now."""
        return _whole(self._refilled(now_ms)) if self.per_s else LAST_MS

    def took(self, jobs: int, now_ms: int) -> None:
        """Count a pull that delivered this many jobs. 0 only follows a clock that went back."""
        if self.per_s and (jobs or self.at_ms > now_ms):
            self.tokens, self.at_ms = self._refilled(now_ms) - jobs, now_ms

    def allowed_ms(self, now_ms: int) -> int:
        """The earliest time at which a job may be delivered."""
        tokens = self._refilled(now_ms)
        if not self.per_s or _whole(tokens) >= 1:
            return now_ms
        return min(now_ms + max(1, math.ceil((1 - SPARE - tokens) * 1000 / self.per_s)), LAST_MS)

    def _refilled(self, now_ms: int) -> float:
        return min(_most(self.per_s), self.tokens + max(0, now_ms - self.at_ms) * self.per_s / 1000)


def _most(per_s: float) -> float:
    return 1 + per_s / 10


def _whole(tokens: float) -> int:
    return math.floor(tokens + SPARE)

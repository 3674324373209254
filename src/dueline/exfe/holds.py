"""What this client's own gets took: the random that locked a queue, and how many tasks came with it.

Complete's arguments say neither, and both matter: a late worker must not complete another worker's lease, and what was
pushed after the read must not be removed with it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

KEPT_AT_MOST = 10_000  # leases that run out are never given back: the oldest are forgotten


@dataclass(frozen=True)
class Hold:
    """`count` tasks were read under `random`; `whole`: they were all there were."""

    random: str
    count: int
    whole: bool

    def removes(self, number: int) -> int:
        """How many tasks "complete `number`" means. Beyond a read that saw the whole queue there is only newer work."""
        if number < 0:
            return self.count
        return min(number, self.count) if self.whole else number


class Holds:
    """Safe to share between threads."""

    def __init__(self) -> None:
        self._held: dict[str, Hold] = {}
        self._lock = threading.Lock()

    def take(self, key: str, hold: Hold) -> None:
        with self._lock:
            self._held.pop(key, None)
            self._held[key] = hold
            if len(self._held) > KEPT_AT_MOST:
                del self._held[next(iter(self._held))]

    def of(self, key: str, random: str | None) -> Hold | None:
        """The hold on this key; with a random, only if it is that one's."""
        with self._lock:
            hold = self._held.get(key)
        return hold if hold is not None and random in (None, hold.random) else None

    def forget(self, key: str, random: str) -> None:
        with self._lock:
            hold = self._held.get(key)
            if hold is not None and hold.random == random:
                del self._held[key]

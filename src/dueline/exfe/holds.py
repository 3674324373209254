"""What this client's own gets took: the random that locked a queue, and how many tasks came with it.

Complete's arguments say neither, and both matter: a late worker must not complete another worker's lease, and what was
pushed after the read must not be removed with it. Workers may be threads that share a client, so each thread has its
own; one that got nothing itself speaks for the last that did.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

KEPT_AT_MOST = 10_000  # leases that run out are never given back: the oldest are forgotten


@dataclass(frozen=True)
class LeaseRenewal:
    """`count` tasks were read under `random`; `whole`: they were all there were."""

    random: str
    count: int
    whole: bool

    def removes(self, number: int) -> int:
        """How many tasks "complete `number`" means. Beyond a read that saw the whole queue there is only newer work."""
        if number < 0:
            return self.count
        return min(number, self.count) if self.whole else number


class LeaseRenewals:
    """Safe to share between threads."""

    def __init__(self) -> None:
        self._held: dict[str, dict[int, LeaseRenewal]] = {}  # by key, then by thread: the last get at the end
        self._lock = threading.Lock()

    def take(self, key: str, hold: LeaseRenewal) -> None:
        me = threading.get_ident()
        with self._lock:
            by_thread = self._held.pop(key, {})
            by_thread.pop(me, None)
            by_thread[me] = hold
            self._held[key] = by_thread
            if len(self._held) > KEPT_AT_MOST:
                del self._held[next(iter(self._held))]

    def of(self, key: str, random: str | None) -> LeaseRenewal | None:
        """The hold on this key; with a random, only if it is that one's."""
        with self._lock:
            by_thread = self._held.get(key, {})
            if random is not None:
                return next((hold for hold in by_thread.values() if hold.random == random), None)
            return by_thread.get(threading.get_ident()) or next(reversed(by_thread.values()), None)

    def forget(self, key: str, random: str) -> None:
        with self._lock:
            left = {thread: hold for thread, hold in self._held.get(key, {}).items() if hold.random != random}
            if left:
                self._held[key] = left
            else:
                self._held.pop(key, None)

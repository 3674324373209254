"""Remembers what each `get` of this client locked: the lock's random value, and how many tasks were read.

`complete` needs both, and its arguments contain neither: a late worker must not complete another worker's lease, and
tasks that were pushed after the read must not be removed. Workers may be threads that share a client, so the record is
per thread. A thread without a `get` of its own uses the most recent one.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

KEPT_AT_MOST = 10_000  # an expired lease is never released, so the oldest records are dropped


@dataclass(frozen=True)
class Lock:
    """The lock with the value `random`, under which `count` tasks were read. `whole`: they were the whole queue."""

    random: str
    count: int
    whole: bool

    def removes(self, number: int) -> int:
        """How many tasks "complete `number`" removes. After a read of the whole queue, any further task is newer and
        stays."""
        if number < 0:
            return self.count
        return min(number, self.count) if self.whole else number


class Locks:
    """Safe to share between threads."""

    def __init__(self) -> None:
        self._by_key: dict[str, dict[int, Lock]] = {}  # by key, then by thread; the latest get is last
        self._lock = threading.Lock()

    def take(self, key: str, lock: Lock) -> None:
        me = threading.get_ident()
        with self._lock:
            by_thread = self._by_key.pop(key, {})
            by_thread.pop(me, None)
            by_thread[me] = lock
            self._by_key[key] = by_thread
            if len(self._by_key) > KEPT_AT_MOST:
                del self._by_key[next(iter(self._by_key))]

    def of(self, key: str, random: str | None) -> Lock | None:
        """The lock on this key; with `random`, only the one that has this value."""
        with self._lock:
            by_thread = self._by_key.get(key, {})
            if random is not None:
                return next((lock for lock in by_thread.values() if lock.random == random), None)
            return by_thread.get(threading.get_ident()) or next(reversed(by_thread.values()), None)

    def forget(self, key: str, random: str) -> None:
        with self._lock:
            left = {thread: lock for thread, lock in self._by_key.get(key, {}).items() if lock.random != random}
            if left:
                self._by_key[key] = left
            else:
                self._by_key.pop(key, None)

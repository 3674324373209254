"""Warnings about trouble that repeats: the first at once, then one a minute that tells how many were left out.

Trouble that goes on for hours must be seen in the log and must not fill it. What belongs together has one key: the
refused calls of one topic to one host, say, or the refused sends of one topic. The number of keys is bounded, and with
it the number of lines: when there are too many different keys within a minute, further ones share one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any

import structlog

INTERVAL_S = 60.0
MAX_KEYS = 1000
_OTHERS = object()  # the key of all that have found no place


class Notices:
    """One for each part of the server that has something to say; `logger` is that part's name in the log."""

    def __init__(self, logger: str, now_s: Callable[[], float] = time.monotonic, max_keys: int = MAX_KEYS) -> None:
        self._log: Any = structlog.get_logger(logger)
        self._now_s = now_s
        self._max_keys = max_keys
        self._keys: dict[Hashable, _Key] = {}  # the one that was logged longest ago comes first

    def notice(self, key: Hashable, event: str, **fields: object) -> None:
        """Warn of `event`, unless this key was logged within the last minute. A line after left-out ones counts them in
        `suppressed`."""
        now_s = self._now_s()
        if key not in self._keys and not self._has_place(now_s):
            key = _OTHERS
        known = self._keys.get(key)
        if known is not None and now_s < known.logged_at_s + INTERVAL_S:
            known.suppressed += 1
            return
        if known is not None:
            del self._keys[key]
            if known.suppressed:
                fields["suppressed"] = known.suppressed
        self._keys[key] = _Key(now_s)
        self._log.warning(event, **fields)

    def _has_place(self, now_s: float) -> bool:
        """Is there a place for one more key, maybe that of a key that has not been logged for a minute?"""
        while len(self._keys) >= self._max_keys:
            first = next(iter(self._keys))
            if now_s < self._keys[first].logged_at_s + INTERVAL_S:
                return False
            del self._keys[first]
        return True


class _Key:
    __slots__ = ("logged_at_s", "suppressed")

    def __init__(self, logged_at_s: float) -> None:
        self.logged_at_s = logged_at_s
        self.suppressed = 0

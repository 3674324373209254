"""Rate-limited warnings: the first one at once, then one a minute with the number of suppressed ones.

A problem that lasts for hours must be visible in the log without filling it. Warnings that belong together share a key,
for example the refused sends of one topic, or the refused calls of one topic to one host. The number of keys is
bounded, and so is the number of lines: when there are too many keys within a minute, further ones share a single key.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

from ..event_log import EventLog

INTERVAL_S = 60.0
MAX_KEYS = 1000
_OTHERS = object()  # the shared key of everything above the bound


class Notices:
    """One instance per part of the server; `logger` is that part's name in the log."""

    def __init__(self, logger: str, now_s: Callable[[], float] = time.monotonic, max_keys: int = MAX_KEYS) -> None:
        self._log = EventLog(logger)
        self._now_s = now_s
        self._max_keys = max_keys
        self._keys: dict[Hashable, _Key] = {}  # in order of the last log line, oldest first

    def notice(self, key: Hashable, event: str, **fields: object) -> None:
        """Log `event` as a warning, unless this key was logged within the last minute. The next line of the key counts
        the suppressed ones in `suppressed`."""
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
        """Whether one more key fits, perhaps by replacing one that was not logged for a minute."""
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

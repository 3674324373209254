"""The audit log as a list of entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from ...engine.audit_log import MAX_ENTRIES, AuditEntry, AuditFilter
from ..audit_limits import INSPECTED, PAGE, bounded
from ..push_log_limits import pack_cursor, unpack_cursor


class MemoryAuditLog:
    """Implements `engine.audit_log.AuditLog`. The newest entry is the last one; `_number` is its number, which never
    repeats."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._entries: list[AuditEntry] = []
        self._number = 0
        self._max_entries = MAX_ENTRIES

    async def append(self, entries: Sequence[AuditEntry], max_entries: int = 0) -> None:
        self._max_entries = max_entries or self._max_entries
        self._entries += (replace(bounded(entry), at_ms=self._clock()) for entry in entries)
        self._number += len(entries)
        del self._entries[: -self._max_entries]

    async def page(self, which: AuditFilter, cursor: bytes, limit: int) -> tuple[list[AuditEntry], bytes | None]:
        below, oldest = unpack_cursor(cursor) or self._number + 1, self._number - len(self._entries) + 1
        newest = min(below - 1, self._number)
        found: list[AuditEntry] = []
        for number in range(newest, oldest - 1, -1):
            entry = self._entries[number - oldest]
            if _matches(entry, which):
                found.append(entry)
            if len(found) == min(limit, PAGE) or newest - number == INSPECTED - 1:
                return found, pack_cursor(number) if number > oldest else None
        return found, None


def _matches(entry: AuditEntry, which: AuditFilter) -> bool:
    wanted = ((which.namespace, entry.namespace), (which.who, entry.who), (which.action, entry.action))
    return entry.at_ms >= which.since_ms and all(value in (None, found) for value, found in wanted)

"""The rings of the charts as a dict of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from ...engine.chart_store import (
    MAX_NAMESPACES,
    MAX_TOPICS,
    MINUTE_MS,
    RING_MINUTES,
    TOPIC_MINUTES,
    TOPIC_SLOTS,
    ChartRow,
)


class MemoryCharts:
    """Implements `engine.chart_store.ChartStore`."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._first: int | None = None
        self._rows: dict[tuple[str, int], ChartRow] = {}
        self._topics: dict[tuple[str, int], dict[str, ChartRow]] = {}
        self._last: dict[str, int] = {}  # the newest minute of each namespace that has a place
        self._next: dict[str, int] = {}  # when its pending jobs may be counted again

    @property
    def _minute(self) -> int:
        return self._clock() // MINUTE_MS

    async def add(self, rows: Sequence[ChartRow], can_count: bool = True) -> list[bool]:
        if rows and self._first is None:
            self._first = rows[0].minute
        return [self._add(row, can_count) for row in rows]

    def _add(self, row: ChartRow, can_count: bool) -> bool:
        name, now = row.namespace, self._minute
        if not now - RING_MINUTES < row.minute <= now + 1 or not self._has_place(name):
            return False
        if row.topic is not None:
            self._add_topic(row, row.topic)
            return False
        self._last[name] = max(row.minute, self._last.get(name, 0))
        if any(row.counts):
            kept = self._row(name, row.minute, len(row.counts))
            self._write(replace(kept, counts=_added(kept.counts, row.counts)))
        if not can_count or self._next.get(name, 0) > now:
            return False
        self._next[name] = now + 1
        return True

    def _add_topic(self, row: ChartRow, topic: str) -> None:
        place = (row.namespace, row.minute % TOPIC_SLOTS)
        if row.namespace not in self._last or row.minute <= self._minute - TOPIC_SLOTS:
            return
        kept = {name: one for name, one in self._topics.get(place, {}).items() if one.minute == row.minute}
        if topic not in kept and len(kept) >= MAX_TOPICS:
            topic = ""
        before = kept.get(topic)
        counts = row.counts if before is None else _added(before.counts, row.counts)
        self._topics[place] = {**kept, topic: replace(row, topic=topic, counts=counts)}

    def _has_place(self, name: str) -> bool:
        if name in self._last or len(self._last) < MAX_NAMESPACES:
            return True
        old = min(self._last, key=lambda one: (self._last[one], one))
        if self._last[old] >= self._minute - RING_MINUTES:
            return False
        self._rows = {key: row for key, row in self._rows.items() if key[0] != old}
        self._topics = {key: rows for key, rows in self._topics.items() if key[0] != old}
        del self._last[old]
        self._next.pop(old, None)
        return True

    def _row(self, name: str, minute: int, counts: int) -> ChartRow:
        kept = self._rows.get((name, minute % RING_MINUTES))
        if kept is None or kept.minute != minute:
            return ChartRow(name, minute, (0,) * counts)
        return replace(kept, counts=kept.counts + (0,) * (counts - len(kept.counts)))

    def _write(self, row: ChartRow) -> None:
        self._rows[row.namespace, row.minute % RING_MINUTES] = row

    async def set_pending(self, namespace: str, minute: int, pending: int, next_minute: int) -> None:
        if namespace in self._last and minute > self._minute - RING_MINUTES:
            self._write(replace(self._row(namespace, minute, 0), pending=pending))
            self._next[namespace] = next_minute

    async def read(self, namespace: str, minute: int, count: int) -> tuple[int | None, list[ChartRow]]:
        found = [self._rows.get((namespace, one % RING_MINUTES)) for one in range(minute, minute + count)]
        wanted = range(minute, minute + count)
        rows = [row for row, one in zip(found, wanted, strict=True) if row is not None and row.minute == one]
        return self._first, rows

    async def read_topics(self, namespace: str, minute: int) -> tuple[int | None, list[ChartRow]]:
        wanted = range(minute, minute + TOPIC_MINUTES)
        kept = (self._topics.get((namespace, one % TOPIC_SLOTS), {}).values() for one in wanted)
        found = [row for rows in kept for row in rows if row.minute in wanted]
        return self._first if namespace in self._last else None, found


def _added(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(one, other, strict=True))

"""The rings of the charts in the store: calls charts.lua."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from ...engine.chart_store import MAX_NAMESPACES, MAX_TOPICS, TOPIC_MINUTES, ChartRow
from .codec import pack_numbers, unpack_numbers
from .keys import chart_keys
from .push_log import Run

ADD, PENDING, READ, READ_TOPICS = 1, 2, 3, 4
STEP = 240  # minutes per call, so that no call takes the store long
_topics = msgspec.msgpack.Decoder(tuple[int, int, dict[str, tuple[int, ...]]]).decode


class ValkeyCharts:
    """Implements `engine.chart_store.ChartStore`. `run` makes one call of a changing script and returns its reply."""

    def __init__(self, run: Run, prefix: str) -> None:
        self._run = run
        self._keys = chart_keys(prefix)
        self._changing = asyncio.Lock()  # the store remembers one call per process

    async def add(self, rows: Sequence[ChartRow], can_count: bool = True) -> list[bool]:
        if not rows:
            return []
        names: list[bytes] = []
        numbers = [ADD, MAX_NAMESPACES, int(can_count), len(rows[0].counts), MAX_TOPICS]
        for row in rows:
            name, topic = row.namespace.encode(), (row.topic or "").encode()
            names += (name, topic)
            numbers += (len(name), 0 if row.topic is None else len(topic) + 1, row.minute, *row.counts)
        async with self._changing:
            return [bool(asked) for asked in (await self._ask("", numbers, b"".join(names)))[0]]

    async def set_pending(self, namespace: str, minute: int, pending: int, next_minute: int) -> None:
        name = namespace.encode()
        async with self._changing:
            await self._ask("", [PENDING, len(name), minute, pending, next_minute], name)

    async def read(self, namespace: str, minute: int, count: int) -> tuple[int | None, list[ChartRow]]:
        name = namespace.encode()
        first = -1
        rows: list[ChartRow] = []
        for start in range(minute, minute + count, STEP):
            size = min(STEP, minute + count - start)
            (first, *sizes), blob = await self._ask("r", [READ, len(name), start, size], name)
            at = 0
            for size in sizes:
                found, pending, *counts = unpack_numbers(blob[at : at + size])
                at += size
                if minute <= found < minute + count:
                    rows.append(ChartRow(namespace, found, tuple(counts), None if pending < 0 else pending))
        return None if first < 0 else first, rows

    async def read_topics(self, namespace: str, minute: int) -> tuple[int | None, list[ChartRow]]:
        name = namespace.encode()
        (first, *sizes), blob = await self._ask("r", [READ_TOPICS, len(name), minute, TOPIC_MINUTES], name)
        at = 0
        rows: list[ChartRow] = []
        for size in sizes:
            found, _, topics = _topics(blob[at : at + size])
            at += size
            if minute <= found < minute + TOPIC_MINUTES:
                rows += [ChartRow(namespace, found, counts, topic=one) for one, counts in topics.items()]
        return None if first < 0 else first, rows

    async def _ask(self, slot: str, numbers: list[int], blob: bytes) -> tuple[list[int], bytes]:
        reply = await self._run("charts", self._keys, slot, pack_numbers(numbers), blob)
        return unpack_numbers(reply[4]), reply[5]

"""Charts of the day before the demo was started: what the shop would have done, minute by minute, and in its topics in
the last minutes.

A server adds its counts to the charts after each minute. This writes older minutes into the same ring, through the
store of the running server.
"""

from __future__ import annotations

import math
import random
from pathlib import Path

from ..engine.chart_store import MINUTE_MS, RING_MINUTES, TOPIC_SLOTS, ChartRow
from ..engine.charts import COUNTS
from ..metrics.table import DELIVERY_LATENESS
from ..runtime.access import StoreAccess, tries_for
from ..runtime.locations import FolderStore

AT_ONCE = 120
PENDING_EVERY = 5  # minutes
SHARES = {"order-timeouts": 0.4, "reminders": 0.2, "emails": 0.2, "payment-notify": 0.15, "videos": 0.05}
TROUBLE = range(190, 245)  # minutes ago: the mail server refused connections


async def write_chart_history(data: Path, seed: int) -> None:
    """Fill the ring of the namespace `default` in the store of this data folder."""
    access = StoreAccess(FolderStore(data), tries_for(20))
    await access.start()
    try:
        now = access.store.now_ms() // MINUTE_MS
        chance = random.Random(seed)
        minutes = range(now - RING_MINUTES + 2, now)
        rows = [_row(chance, minute, now - minute) for minute in minutes]
        for start in range(0, len(rows), AT_ONCE):
            await access.store.charts.add(rows[start : start + AT_ONCE], can_count=False)
        await access.store.charts.add(_of_topics(rows[1 - TOPIC_SLOTS :]), can_count=False)
        for minute in minutes[::PENDING_EVERY]:
            pending = int(2400 + 700 * _busy(minute) + chance.uniform(-30, 30))
            await access.store.charts.set_pending("default", minute, pending, minute + 1)
    finally:
        await access.stop()


def _busy(minute: int) -> float:
    """From 0 at night to 1 in the evening."""
    hour = minute / 60 % 24
    return max(0.0, math.sin((hour - 6) / 17 * math.pi)) if 6 <= hour <= 23 else 0.0


def _row(chance: random.Random, minute: int, ago: int) -> ChartRow:
    sends = int((40 + 300 * _busy(minute)) * chance.uniform(0.85, 1.15))
    deliveries = int(sends * chance.uniform(0.95, 1.05))
    failures = int(deliveries * (0.4 if ago in TROUBLE else 0.03) * chance.uniform(0.6, 1.4))
    dead = int(chance.random() < (0.25 if ago in TROUBLE else 0.008))
    counts = {
        "sends": sends,
        "deliveries": deliveries,
        "acks": deliveries - failures,
        "failures": failures,
        "dead": dead,
    }
    return ChartRow("default", minute, (*(counts[name] for name in COUNTS), *_lateness(deliveries, ago)))


def _of_topics(rows: list[ChartRow]) -> list[ChartRow]:
    return [
        ChartRow(row.namespace, row.minute, tuple(int(n * share) for n in row.counts), topic=topic)
        for row in rows
        for topic, share in SHARES.items()
    ]


def _lateness(deliveries: int, ago: int) -> list[int]:
    """Most deliveries are a few milliseconds late; the trouble made some of them wait."""
    late_ms = (2, 6, 180) if ago in TROUBLE else (2, 4, 8 + ago % 7)
    bounds_ms = [bound * 1000 for bound in DELIVERY_LATENESS.bounds]
    buckets = [0] * (len(bounds_ms) + 1)
    for share, late in zip((0.7, 0.27, 0.03), late_ms, strict=True):
        place = next((at for at, bound in enumerate(bounds_ms) if late <= bound), len(bounds_ms))
        buckets[place] += math.ceil(deliveries * share)
    return buckets

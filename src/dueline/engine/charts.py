"""Charts: what happened in each namespace, minute by minute, for a day, and in each topic, for five minutes.

Every process counts what it does (engine.metrics). Shortly after each full minute it adds the difference to a ring in
the store (chart_store), one call for all, and none if nothing happened. So the charts outlive processes, and all
processes are in them. The store then asks one process to count the pending jobs of a namespace, which costs one
`stats` call per partition: at most PENDING_CALLS a minute on average. Without activity their number does not change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from ..metrics.table import DELIVERY_LATENESS
from .chart_store import MINUTE_MS, RING_MINUTES, TOPIC_MINUTES, TOPIC_SLOTS, ChartRow
from .checks import within
from .directory import DIRECTORY_PAGE
from .errors import DuelineError, UnknownOutcome
from .job import Partition, Reason
from .metrics import EngineMetrics, TopicMetrics
from .rounds import Rounds
from .store import Store
from .timer import Timer
from .topics import Topics

COUNTS = (
    "sends",
    "deliveries",
    "acks",
    "failures",
    "dead",
)  # the first counts of a row; the buckets of lateness follow
PENDING_CALLS = 200
MAX_PARTITIONS = 10_000  # a larger namespace has no pending counts
CALLS_AT_ONCE = 20
AFTER_MINUTE_MS = 500
SETTLE_MS = 2_000  # after which all processes should have added a minute
MAX_ROWS = 500  # that wait for a store that is down; the oldest are dropped
MAX_TOPIC_ROWS = 1_000
STOP_S = 1.0
_DONE = COUNTS.index("acks")
_BOUNDS_MS = tuple(bound * 1000 for bound in DELIVERY_LATENESS.bounds)

Values = tuple[int | None, ...]


class Charts(msgspec.Struct, frozen=True):
    """One value per minute from `from_ms` on; None: not known. The last minute is not over."""

    step_ms: int
    from_ms: int
    sends: Values
    deliveries: Values
    acks: Values
    failures: Values
    dead: Values
    pending: Values
    late_p50_ms: tuple[float | None, ...]
    late_p99_ms: tuple[float | None, ...]


class TopicRates(msgspec.Struct, frozen=True):
    """What all processes did in a topic in the last five full minutes. None: not known, or nothing was delivered."""

    done_per_s: float | None = None
    late_p99_ms: float | None = None


class ChartRecorder:
    """Adds what this process counted to the store, every minute but not more often than `round_s`, and reads the
    charts."""

    def __init__(self, store: Store, topics: Topics, metrics: EngineMetrics, timer: Timer, round_s: float) -> None:
        self._store = store
        self._topics = topics
        self._metrics = metrics
        self._skipped_s = round_s // 60 * 60  # whole minutes
        self._recorded: dict[int, tuple[TopicMetrics, tuple[int, ...]]] = {}  # what is in rows already
        self._rows: list[ChartRow] = []
        self._topic_rows: list[ChartRow] = []
        self._uncounted: set[str] = set()  # namespaces in which something happened since this process counted
        self._minute = 0  # in which the current counts happen
        self._rounds = Rounds(self._round, timer, "adding to the charts failed", back_off=(1.0, 60.0))

    def start(self) -> None:
        self._minute = self._store.now_ms() // MINUTE_MS
        self._rounds.start()

    async def stop(self) -> None:
        """Add what was counted since the last full minute, if the store answers soon."""
        await self._rounds.stop()
        self._collect()
        try:
            async with asyncio.timeout(STOP_S):
                await self._add(can_count=False)
        except (DuelineError, TimeoutError):
            pass

    async def _round(self) -> float:
        now_ms = self._store.now_ms()
        minute = now_ms // MINUTE_MS
        if minute != self._minute:
            self._collect()
            self._minute = minute
        asked = await self._add()
        for namespace in asked:
            await self._count_pending(namespace)
        until_next_ms = (minute + 1) * MINUTE_MS + AFTER_MINUTE_MS - self._store.now_ms()
        return until_next_ms / 1000 + self._skipped_s

    def _collect(self) -> None:
        """One row per namespace and topic in which something happened since the last time."""
        sums: dict[str, tuple[int, ...]] = {}
        recorded: dict[int, tuple[TopicMetrics, tuple[int, ...]]] = {}
        for namespace, topic, metrics in self._metrics.by_topic():
            counts = _counts(metrics)
            _, before = self._recorded.get(id(metrics), (metrics, (0,) * len(counts)))
            recorded[id(metrics)] = (metrics, counts)  # holds the object, so that its id stays its own
            new = tuple(now - then for now, then in zip(counts, before, strict=True))
            if any(new) and namespace:
                sums[namespace] = _added(sums.get(namespace), new)
                self._topic_rows.append(ChartRow(namespace, self._minute, new, topic=topic))
        self._recorded = recorded
        self._topic_rows = [row for row in self._topic_rows if row.minute > self._minute - TOPIC_SLOTS]
        del self._topic_rows[:-MAX_TOPIC_ROWS]
        self._rows += [ChartRow(namespace, self._minute, counts) for namespace, counts in sums.items()]
        del self._rows[:-MAX_ROWS]
        self._uncounted |= sums.keys()

    async def _add(self, can_count: bool = True) -> list[str]:
        """Adds the collected rows. Returns the namespaces whose pending jobs this process should count."""
        rows = list(self._rows)
        named = {row.namespace for row in rows}
        # Their pending jobs were not counted since the last activity: ask again.
        empty = (0,) * (len(COUNTS) + len(_BOUNDS_MS) + 1)
        rows += [ChartRow(one, self._minute - 1, empty) for one in self._uncounted if can_count and one not in named]
        if not rows:
            return []
        try:
            answers = await self._store.charts.add([*rows, *self._topic_rows], can_count)
        except UnknownOutcome:
            self._rows, self._topic_rows = [], []  # it may have been done: a gap is better than counting twice
            raise
        self._rows, self._topic_rows = [], []
        return list({row.namespace for row, asked in zip(rows, answers, strict=False) if asked})

    async def _count_pending(self, namespace: str) -> None:
        self._uncounted.discard(namespace)
        minute, pending, calls, after = self._minute - 1, 0, 0, ""
        while True:
            entries = await self._store.directory.topics(namespace, after, DIRECTORY_PAGE)
            partitions = [
                partition
                for entry in entries
                for partition in self._topics.apply((namespace, entry.topic), entry).partitions
            ]
            calls += len(partitions)
            if calls > MAX_PARTITIONS:
                return
            pending += await self._pending(partitions)
            if len(entries) < DIRECTORY_PAGE:
                break
            after = entries[-1].topic
        next_minute = self._store.now_ms() // MINUTE_MS + max(1, -(-calls // PENDING_CALLS))
        await self._store.charts.set_pending(namespace, minute, pending, next_minute)

    async def _pending(self, partitions: Sequence[Partition]) -> int:
        total = 0
        for start in range(0, len(partitions), CALLS_AT_ONCE):
            some = partitions[start : start + CALLS_AT_ONCE]
            stats = await asyncio.gather(*(self._store.stats(partition) for partition in some))
            total += sum(one.scheduled + one.ready + one.leased for one in stats)
        return total

    async def read(self, namespace: str, hours: int) -> Charts:
        within(hours, 1, RING_MINUTES // 60, "hours")
        now = self._store.now_ms() // MINUTE_MS
        first = now - hours * 60 + 1
        begun, rows = await self._store.charts.read(namespace, first, hours * 60)
        return charts_of(first, now, begun, rows)

    async def topics(self, namespace: str) -> dict[str, TopicRates]:
        """The rates of the topics. `""`: of every topic that has none of its own here."""
        first = (self._store.now_ms() - SETTLE_MS) // MINUTE_MS - TOPIC_MINUTES
        begun, rows = await self._store.charts.read_topics(namespace, first)
        return rates_of(first, begun, rows)


def rates_of(first: int, begun: int | None, rows: Sequence[ChartRow]) -> dict[str, TopicRates]:
    """The rates in the TOPIC_MINUTES minutes from `first` on, or since `begun`."""
    seconds = 60 * (first + TOPIC_MINUTES - max(first, first + TOPIC_MINUTES if begun is None else begun))
    if seconds <= 0:
        return {"": TopicRates()}
    sums: dict[str, tuple[int, ...]] = {}
    for row in rows:
        topic = row.topic or ""
        sums[topic] = _added(sums.get(topic), row.counts)
    rates = {
        topic: TopicRates(round(counts[_DONE] / seconds, 3), percentile(counts[len(COUNTS) :], 0.99))
        for topic, counts in sums.items()
    }
    return {**rates, "": TopicRates(None if "" in sums else 0.0)}


def charts_of(first: int, now: int, begun: int | None, rows: Sequence[ChartRow]) -> Charts:
    """The charts of the minutes from `first` to `now`. Before `begun` nothing was recorded."""
    by_minute = {row.minute: row for row in rows}
    minutes = range(first, now + 1)

    def counts_of(place: int) -> Values:
        return tuple(
            by_minute[minute].counts[place]
            if minute in by_minute and by_minute[minute].counts
            else None
            if begun is None or minute < begun or minute == now
            else 0
            for minute in minutes
        )

    def late(share: float) -> tuple[float | None, ...]:
        found = (by_minute.get(minute) for minute in minutes)
        return tuple(None if row is None else percentile(row.counts[len(COUNTS) :], share) for row in found)

    pending: list[int | None] = []
    last: int | None = None
    for minute in minutes:
        row = by_minute.get(minute)
        if row is not None:
            last = row.pending
        pending.append(last)
    sends, deliveries, acks, failures, dead = (counts_of(place) for place in range(len(COUNTS)))
    return Charts(
        MINUTE_MS, first * MINUTE_MS, sends, deliveries, acks, failures, dead, tuple(pending), late(0.5), late(0.99)
    )


def percentile(buckets: Sequence[int], share: float) -> float | None:
    """The lateness that this share of the deliveries did not exceed, interpolated within its bucket. A greater
    lateness than the last bound counts as the last bound."""
    wanted, seen, low_ms = sum(buckets) * share, 0, 0.0
    if not wanted:
        return None
    for count, high_ms in zip(buckets, _BOUNDS_MS, strict=False):
        if count and seen + count >= wanted:
            return round(low_ms + (high_ms - low_ms) * (wanted - seen) / count, 1)
        seen, low_ms = seen + count, high_ms
    return _BOUNDS_MS[-1]


def _counts(metrics: TopicMetrics) -> tuple[int, ...]:
    sent, dead = metrics.sent, metrics.dead
    failures = metrics.released + metrics.leases_lost + dead[Reason.EXHAUSTED] + dead[Reason.REJECTED]
    sends = sent["created"] + sent["replaced"] + sent["appended"]
    return (sends, metrics.pulled, metrics.acked, failures, sum(dead.values()), *metrics.late)


def _added(one: tuple[int, ...] | None, other: tuple[int, ...]) -> tuple[int, ...]:
    return other if one is None else tuple(a + b for a, b in zip(one, other, strict=True))

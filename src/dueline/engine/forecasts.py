"""What falls due when: the scheduled jobs between given times, of one topic or of a whole namespace. No I/O.

The counts come from the partitions' schedules (`Store.stats`); no job is read. One topic is counted exactly, now. A
namespace is summed in pages of its topics, by one caller at a time, with few store calls in flight. The sum is kept
for at least ten times as long as it took, so its readers cost the store less than a tenth of their time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec

from ..bounds import MAX_EDGES
from .checks import Checks, within
from .directory import DIRECTORY_PAGE
from .errors import InvalidField, NotFound
from .job import Partition
from .limits import LAST_MS
from .store import Stats, Store
from .topics import Topic, Topics

MAX_TOPICS = 5000  # of one sum
MAX_CALLS = 10_000  # one per partition
TOPICS_AT_ONCE = 20  # divides DIRECTORY_PAGE
SHOWN_TOPICS = 8
KEEP_TIMES = 10  # how long a sum is kept, in times of its own cost
KEEP_S = 2.0  # at least
MAX_SUMS = 32  # kept at once


class TopicForecast(msgspec.Struct, frozen=True):
    """One topic's part of a forecast. `paused`: the jobs that fall due while the topic is paused."""

    topic: str
    counts: tuple[int, ...]
    paused: tuple[int, ...]
    later: int


class Forecast(msgspec.Struct, frozen=True):
    """The scheduled jobs that fall due from edges_ms[i] on and before edges_ms[i + 1]. `paused`: those of topics that
    are still paused at edges_ms[i]; `counts`: all others. `later`: all from the last edge on. `topics`: the largest
    ones. `complete` False: there are more topics than one sum may have."""

    at_ms: int
    edges_ms: tuple[int, ...]
    counts: tuple[int, ...]
    paused: tuple[int, ...]
    later: int
    topics: tuple[TopicForecast, ...]
    topics_counted: int
    complete: bool


class _Sum(msgspec.Struct, frozen=True):
    namespace: str
    forecast: Forecast
    until_s: float
    ended_s: float

    def serves(self, namespace: str, edges_ms: tuple[int, ...], now_s: float) -> bool:
        """Whether it answers a call. A page that shows "from now on" moves all its edges with the time: as long as the
        sum is kept, it serves these, too."""
        mine_ms = self.forecast.edges_ms
        if self.namespace != namespace or now_s >= self.until_s or len(mine_ms) != len(edges_ms):
            return False
        shifts_ms = {theirs - mine for theirs, mine in zip(edges_ms, mine_ms, strict=True)}
        return len(shifts_ms) == 1 and 0 <= shifts_ms.pop() <= (now_s - self.ended_s + 1 + KEEP_S) * 1000


class Forecasts:
    """Counts scheduled jobs by due time."""

    def __init__(self, store: Store, topics: Topics, checks: Checks, time_s: Callable[[], float]) -> None:
        self._store = store
        self._topics = topics
        self._checks = checks
        self._time_s = time_s
        self._sums: list[_Sum] = []
        self._summing = asyncio.Lock()

    async def topic(self, namespace: str, name: str, edges_ms: Sequence[int]) -> Forecast:
        """Of one topic, exact. Raises NotFound."""
        edges = _checked(edges_ms)
        self._checks.topic_name(namespace, name)
        entry = await self._store.directory.topic(namespace, name)
        if entry is None:
            raise NotFound(f'there is no topic "{name}"')
        topic = self._topics.apply((namespace, name), entry)
        stats = await self._stats(topic.partitions, edges)
        return _summed(edges, [_of_topic(topic, stats, edges)], max(one.now_ms for one in stats), complete=True)

    async def namespace(self, namespace: str, edges_ms: Sequence[int]) -> Forecast:
        """Of all topics, at most MAX_TOPICS. The answer may be a little older than the call: its `at_ms` and `edges_ms`
        say what was counted."""
        edges = _checked(edges_ms)
        return self._kept(namespace, edges) or await self._next(namespace, edges)

    def _kept(self, namespace: str, edges: tuple[int, ...]) -> Forecast | None:
        now_s = self._time_s()
        self._sums = [one for one in self._sums if now_s < one.until_s][-MAX_SUMS:]
        return next((one.forecast for one in self._sums if one.serves(namespace, edges, now_s)), None)

    async def _next(self, namespace: str, edges: tuple[int, ...]) -> Forecast:
        async with self._summing:
            kept = self._kept(namespace, edges)  # of a caller that was before this one
            if kept is not None:
                return kept
            started_s = self._time_s()
            forecast = await self._sum(namespace, edges)
            ended_s = self._time_s()
            until_s = ended_s + max(KEEP_S, KEEP_TIMES * (ended_s - started_s))
            self._sums.append(_Sum(namespace, forecast, until_s, ended_s))
            return forecast

    async def _sum(self, namespace: str, edges: tuple[int, ...]) -> Forecast:
        parts: list[TopicForecast] = []
        calls, at_ms, after = 0, 0, ""
        while True:
            entries = await self._store.directory.topics(namespace, after, DIRECTORY_PAGE)
            topics = [self._topics.apply((namespace, entry.topic), entry) for entry in entries]
            for start in range(0, len(topics), TOPICS_AT_ONCE):
                some = topics[start : start + TOPICS_AT_ONCE]
                calls += sum(len(topic.partitions) for topic in some)
                if len(parts) + len(some) > MAX_TOPICS or calls > MAX_CALLS:
                    return _summed(edges, parts, at_ms or self._store.now_ms(), complete=False)
                stats = await asyncio.gather(*(self._stats(topic.partitions, edges) for topic in some))
                at_ms = at_ms or stats[0][0].now_ms
                parts += [_of_topic(topic, of_it, edges) for topic, of_it in zip(some, stats, strict=True)]
            if len(entries) < DIRECTORY_PAGE:
                return _summed(edges, parts, at_ms or self._store.now_ms(), complete=True)
            after = entries[-1].topic

    async def _stats(self, partitions: Sequence[Partition], edges: tuple[int, ...]) -> list[Stats]:
        return await asyncio.gather(*(self._store.stats(partition, edges) for partition in partitions))


def _checked(edges_ms: Sequence[int]) -> tuple[int, ...]:
    if not 2 <= len(edges_ms) <= MAX_EDGES:
        raise InvalidField(f"must have 2 to {MAX_EDGES} times", "edges_ms")
    if any(later <= earlier for earlier, later in pairwise(edges_ms)):
        raise InvalidField("must ascend", "edges_ms")
    within(edges_ms[0], 0, LAST_MS, "edges_ms")
    within(edges_ms[-1], 0, LAST_MS, "edges_ms")
    return tuple(edges_ms)


def _of_topic(topic: Topic, stats: Sequence[Stats], edges: tuple[int, ...]) -> TopicForecast:
    *bands, later = map(sum, zip(*(one.bands for one in stats), strict=True))
    paused_until_ms = topic.config.paused_until_ms
    counts = tuple(0 if edge < paused_until_ms else count for edge, count in zip(edges, bands, strict=False))
    paused = tuple(count if edge < paused_until_ms else 0 for edge, count in zip(edges, bands, strict=False))
    return TopicForecast(topic.name, counts, paused, later)


def _summed(edges: tuple[int, ...], parts: Sequence[TopicForecast], at_ms: int, complete: bool) -> Forecast:
    def added(rows: list[tuple[int, ...]]) -> tuple[int, ...]:
        return tuple(map(sum, zip(*rows, strict=True))) if rows else (0,) * (len(edges) - 1)

    largest = sorted((part for part in parts if any(part.counts)), key=lambda part: (-sum(part.counts), part.topic))
    return Forecast(
        at_ms=at_ms,
        edges_ms=edges,
        counts=added([part.counts for part in parts]),
        paused=added([part.paused for part in parts]),
        later=sum(part.later for part in parts),
        topics=tuple(largest[:SHOWN_TOPICS]),
        topics_counted=len(parts),
        complete=complete,
    )

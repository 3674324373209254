"""Forecasts: how many scheduled jobs fall due between given times, in a topic or in a whole namespace. No I/O.

The counts come from the partitions' indexes (`Store.forecast`); no job is read. One topic is counted exactly, now. A
namespace is summed page by page of its topics, by one task for all callers. The sum is kept for at least ten times as
long as it took, so its readers cost the store less than a tenth of their time. A sum that takes long is not waited for:
its callers get what is counted so far, with `complete` False, until it has ended.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec

from ..bounds import MAX_EDGES
from .bands import Bands, ForecastPart
from .checks import Checks, within
from .directory import DIRECTORY_PAGE
from .errors import Draining, InvalidField, NotFound
from .limits import LAST_MS
from .store import Store
from .topics import Topic, Topics

MAX_TOPICS = 5000  # of one sum
MAX_PARTITIONS = 10_000
SHOWN_TOPICS = 8
KEEP_TIMES = 10  # how long a sum is kept, in times of its own cost
KEEP_S = 2.0  # at least
MAX_SUMS = 32  # kept at once
PATIENCE_S = 0.15  # of a caller with a sum


class TopicForecast(msgspec.Struct, frozen=True):
    """One topic's part of `Forecast.counts`."""

    topic: str
    counts: tuple[int, ...]


class Forecast(msgspec.Struct, frozen=True):
    """The scheduled jobs that fall due from edges_ms[i] on and before edges_ms[i + 1]. `paused`: those of topics that
    are still paused at edges_ms[i]; `retries`: of all other topics those that wait for another attempt; `counts`: all
    others. `later`: all from the last edge on. `topics`: the largest ones. `complete` False: only the first
    `topics_counted` topics are included, because the sum goes on, or because there are more than one sum may have."""

    at_ms: int
    edges_ms: tuple[int, ...]
    counts: tuple[int, ...]
    retries: tuple[int, ...]
    paused: tuple[int, ...]
    later: int
    topics: tuple[TopicForecast, ...]
    topics_counted: int
    complete: bool


class _Sum:
    """A sum over the topics of a namespace: first growing, then kept until `until_s`."""

    def __init__(self, namespace: str, edges_ms: tuple[int, ...], begun_s: float) -> None:
        self.namespace = namespace
        self.edges_ms = edges_ms
        self.begun_s = begun_s
        self.until_s: float | None = None  # None: it is still growing
        self.forecast: Forecast | None = None
        self.task: asyncio.Task[None] | None = None
        self.shown = asyncio.Event()  # callers do not wait any longer

    def serves(self, namespace: str, edges_ms: tuple[int, ...], now_s: float) -> bool:
        """Whether it answers a call. A page that shows "from now on" moves all its edges with the time: as long as the
        sum is kept, it serves these, too."""
        if self.namespace != namespace or len(self.edges_ms) != len(edges_ms):
            return False
        shifts_ms = {theirs - mine for theirs, mine in zip(edges_ms, self.edges_ms, strict=True)}
        return len(shifts_ms) == 1 and 0 <= shifts_ms.pop() <= (now_s - self.begun_s + 1 + KEEP_S) * 1000

    def is_kept(self, now_s: float) -> bool:
        return self.until_s is None or now_s < self.until_s


class Forecasts:
    """Counts scheduled jobs by due time. `stop` ends the sums that are under way."""

    def __init__(self, store: Store, topics: Topics, checks: Checks, time_s: Callable[[], float]) -> None:
        self._store = store
        self._topics = topics
        self._checks = checks
        self._time_s = time_s
        self._sums: list[_Sum] = []
        self._summing = asyncio.Lock()

    async def stop(self) -> None:
        tasks = [one.task for one in self._sums if one.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._sums = []

    async def topic(self, namespace: str, name: str, edges_ms: Sequence[int]) -> Forecast:
        """The forecast of one topic, exact. Raises NotFound."""
        edges = _checked(edges_ms)
        self._checks.topic_name(namespace, name)
        entry = await self._store.directory.topic(namespace, name)
        if entry is None:
            raise NotFound(f'there is no topic "{name}"')
        topic = self._topics.apply((namespace, name), entry)
        bands = await self._store.forecast(_parts(topic, edges), edges)
        return _forecast(edges, bands, [TopicForecast(name, bands.counts)], 1, complete=True)

    async def namespace(self, namespace: str, edges_ms: Sequence[int]) -> Forecast:
        """The forecast of all topics, at most MAX_TOPICS. The answer may be a little older than the call: its
        `at_ms` and `edges_ms` say what was counted."""
        edges = _checked(edges_ms)
        found = self._found(namespace, edges)
        if found is None:
            found = _Sum(namespace, edges, self._time_s())
            self._sums.append(found)
            found.task = asyncio.get_running_loop().create_task(self._run(found))
            found.task.add_done_callback(_retrieve_exception)
        await found.shown.wait()
        if found.forecast is None:
            await asyncio.gather(found.task or asyncio.sleep(0), return_exceptions=True)
            raise (found.task and not found.task.cancelled() and found.task.exception()) or Draining()
        return found.forecast

    def _found(self, namespace: str, edges: tuple[int, ...]) -> _Sum | None:
        now_s = self._time_s()
        growing = [one for one in self._sums if one.until_s is None]
        self._sums = growing + [one for one in self._sums if one.until_s is not None and one.is_kept(now_s)][-MAX_SUMS:]
        return next((one for one in self._sums if one.serves(namespace, edges, now_s)), None)

    async def _run(self, one: _Sum) -> None:
        try:
            async with self._summing:  # one sum at a time
                started_s = self._time_s()
                await self._sum(one)
                ended_s = self._time_s()
        except BaseException:
            if one in self._sums:
                self._sums.remove(one)
            raise
        finally:
            one.shown.set()
        one.until_s = ended_s + max(KEEP_S, KEEP_TIMES * (ended_s - started_s))

    async def _sum(self, one: _Sum) -> None:
        """Sum page by page, and show what there is after PATIENCE_S."""
        edges, total = one.edges_ms, None
        largest: list[tuple[int, Topic]] = []
        partitions, topics_counted, after = 0, 0, ""
        while True:
            entries = await self._store.directory.topics(one.namespace, after, DIRECTORY_PAGE)
            topics = [self._topics.apply((one.namespace, entry.topic), entry) for entry in entries]
            del topics[MAX_TOPICS - topics_counted :]
            parts = [_parts(topic, edges) for topic in topics]
            partitions += sum(map(len, parts))
            full = len(topics) < len(entries) or partitions > MAX_PARTITIONS
            if topics and partitions <= MAX_PARTITIONS:
                bands = await self._store.forecast([part for of_topic in parts for part in of_topic], edges)
                total = bands if total is None else _added(total, bands)
                largest = _largest(largest, topics, parts, bands.by_partition)
                topics_counted += len(topics)
            ended = full or len(entries) < DIRECTORY_PAGE
            if ended or one.shown.is_set() or self._time_s() - one.begun_s > PATIENCE_S:
                total = total or _nothing(edges, self._store.now_ms())
                shown = [await self._of_topic(topic, edges) for _, topic in largest] if ended else []
                one.forecast = _forecast(edges, total, shown, topics_counted, complete=ended and not full)
                one.shown.set()
            if ended:
                return
            after = entries[-1].topic

    async def _of_topic(self, topic: Topic, edges: tuple[int, ...]) -> TopicForecast:
        return TopicForecast(topic.name, (await self._store.forecast(_parts(topic, edges), edges)).counts)


def _retrieve_exception(task: asyncio.Task[None]) -> None:
    """Mark the exception of a failed sum as retrieved: its callers, if any are left, get it too."""
    if not task.cancelled():
        task.exception()


def _checked(edges_ms: Sequence[int]) -> tuple[int, ...]:
    if not 2 <= len(edges_ms) <= MAX_EDGES:
        raise InvalidField(f"must have 2 to {MAX_EDGES} times", "edges_ms")
    if any(later <= earlier for earlier, later in pairwise(edges_ms)):
        raise InvalidField("must ascend", "edges_ms")
    within(edges_ms[0], 0, LAST_MS, "edges_ms")
    within(edges_ms[-1], 0, LAST_MS, "edges_ms")
    return tuple(edges_ms)


def _parts(topic: Topic, edges: tuple[int, ...]) -> list[ForecastPart]:
    paused = sum(1 for edge_ms in edges[:-1] if edge_ms < topic.config.paused_until_ms)
    return [ForecastPart(partition, paused) for partition in topic.partitions]


def _largest(
    known: list[tuple[int, Topic]],
    topics: Sequence[Topic],
    parts: Sequence[Sequence[ForecastPart]],
    counts: Sequence[int],
) -> list[tuple[int, Topic]]:
    """The SHOWN_TOPICS topics with the most jobs, among `known` and the topics of one page."""
    found, at = list(known), 0
    for topic, of_topic in zip(topics, parts, strict=True):
        count = sum(counts[at : at + len(of_topic)])
        at += len(of_topic)
        if count:
            found.append((count, topic))
    return heapq.nsmallest(SHOWN_TOPICS, found, key=lambda one: (-one[0], one[1].name))


def _added(one: Bands, other: Bands) -> Bands:
    return Bands(
        now_ms=one.now_ms,
        counts=tuple(map(sum, zip(one.counts, other.counts, strict=True))),
        retries=tuple(map(sum, zip(one.retries, other.retries, strict=True))),
        paused=tuple(map(sum, zip(one.paused, other.paused, strict=True))),
        later=one.later + other.later,
        by_partition=(),
    )


def _nothing(edges: tuple[int, ...], now_ms: int) -> Bands:
    zeros = (0,) * (len(edges) - 1)
    return Bands(now_ms, zeros, zeros, zeros, 0, ())


def _forecast(
    edges: tuple[int, ...], bands: Bands, topics: Sequence[TopicForecast], topics_counted: int, complete: bool
) -> Forecast:
    return Forecast(
        at_ms=bands.now_ms,
        edges_ms=edges,
        counts=bands.counts,
        retries=bands.retries,
        paused=bands.paused,
        later=bands.later,
        topics=tuple(one for one in topics if any(one.counts)),
        topics_counted=topics_counted,
        complete=complete,
    )

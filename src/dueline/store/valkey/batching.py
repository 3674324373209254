"""Batches calls: those that arrive while a script call is in flight join the next one.

Each operation has few calls in flight per partition, so the cost per job falls as the load rises. The store remembers
each caller's last call, which makes every script safe to repeat; it needs one slot per lane, operation and partition.
The second lane is for high load: if enough jobs wait, the next call is sent while the store still works on the first
one or waits for its disk. Calls leave in queue order, and the store runs them in that order on one connection.

The queue is bounded and shared by all callers. A client connection has one call at a time, so its share is the size of
that call. A call is accepted if at least its own size stays free afterwards, so large calls are refused first and leave
room for small ones. An empty queue accepts any call. All queues of a namespace may share a limit (QueueLimit).

A call that the store does not answer takes as long as the patience of a call. The items behind it would wait as
long again, and their callers would have given up by then. So when such a call fails, items that have waited for a while
are refused, too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from functools import partial
from itertools import accumulate, chain, repeat
from math import inf
from operator import attrgetter
from time import monotonic
from typing import Any, Generic, TypeVar

import msgspec

from ...engine.completion import Done, awaited, leave, tell, tell_each
from ...engine.errors import Loading, RateLimited, StoreDown, Unavailable, UnknownOutcome
from ...engine.limits import BATCH_BYTES, BATCH_JOBS, Limits
from ...engine.outcomes import OutcomeHook, Outcomes, actor_name
from ...engine.queue_limit import QueueLimit

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Entry(msgspec.Struct, frozen=True):
    """A call that waits or is in flight."""

    items: Sequence[Any]
    size: int
    done: Done
    since_s: float
    by: str  # while somebody records


_items_of = attrgetter("items")
_size_of = attrgetter("size")
_done_of = attrgetter("done")
_NO_IDS: frozenset[str] = frozenset()
NOT_SENT = "the store does not answer; this call waited behind another one and was not sent"
MOST_WAIT_S = 0.25  # behind a call that fails; with the patience of a call (4.5 s) it is less than 5 s
SECOND_LANE_JOBS = 16  # jobs that must wait to open it; a call for fewer costs more than it saves


class Batcher(Generic[Item, Result]):
    """Batches calls of one operation on one partition. `run(items, lane, done)` makes one script call for up to 500
    jobs, and calls `done` with their results or with the error. All ids in flight are different, within a lane and
    between the lanes. `idle` is called when nothing is in flight or waits any more. `namespace`: the limit of all
    queues of the partition's namespace, if it has one. `report` tells the outcomes of a call to whoever records them
    (`hook`)."""

    __slots__ = (
        "_bytes",
        "_flying",
        "_hook",
        "_id_of",
        "_idle",
        "_jobs",
        "_lanes",
        "_limits",
        "_namespace",
        "_opens_at",
        "_queue",
        "_report_to",
        "_run",
        "_size_of",
    )

    def __init__(
        self,
        run: Callable[[list[Item], int, Done], object],
        id_of: Callable[[Item], str],
        size_of: Callable[[Item], int],
        idle: Callable[[], object],
        limits: Limits,
        lanes: int = 1,
        namespace: QueueLimit | None = None,
        hook: OutcomeHook = OutcomeHook(),
        report: Callable[[Outcomes, list[Item], list[Result], list[str]], None] | None = None,
    ) -> None:
        self._run = run
        self._hook = hook
        self._report_to = report
        self._id_of = id_of
        self._size_of = size_of
        self._idle = idle
        self._limits = limits
        self._namespace = namespace
        self._queue: deque[_Entry] = deque()
        self._jobs = 0
        self._bytes = 0
        self._lanes = lanes
        self._flying: dict[int, set[str]] = {}  # by lane: the ids of its call; empty while it is about to leave
        self._opens_at = 0.0  # how many jobs must wait to open a lane

    def call(self, items: Sequence[Item]) -> Awaitable[list[Result]]:
        """`post` for a caller that awaits the results."""
        return awaited(self.post, items)

    def post(self, items: Sequence[Item], done: Done, fits: bool = False) -> None:
        """`done` gets the results in the order of the items, or the error. Items with the same id run in separate
        calls, in order. Raises RateLimited, or the error of the namespace's limit. `fits`: one script call takes the
        items, and there is room for them."""
        jobs = len(items)
        size = self._size_of(items[0]) if jobs == 1 else sum(map(self._size_of, items))
        namespace = self._namespace
        if not fits:
            limits = self._limits
            if self._jobs and (
                self._jobs + 2 * jobs > limits.max_queued_jobs or self._bytes + 2 * size > limits.max_queued_bytes
            ):
                raise RateLimited()
            if namespace is not None:
                namespace.check(jobs)
            if jobs > 1 and len(parts := self._parts(items, size)) > 1:
                post = partial(self.post, fits=True)  # room was checked for the whole call
                leave(together([awaited(post, part) for part in parts]), done)
                return
        by = actor_name() if self._hook.outcomes is not None else ""
        self._queue.append(_Entry(items, size, done, monotonic(), by))
        self._jobs += jobs
        self._bytes += size
        if namespace is not None:
            namespace.jobs += jobs
        if self._jobs >= self._opens_at:
            lane = 1 if 0 in self._flying else 0
            self._fly(lane, set())
            asyncio.get_running_loop().call_soon(self._leave, lane)  # with what else arrives in this turn of the loop

    def _parts(self, items: Sequence[Item], whole: int) -> list[Sequence[Item]]:
        """The items of each script call."""
        if len(items) <= BATCH_JOBS and whole <= BATCH_BYTES and len(set(map(self._id_of, items))) == len(items):
            return [items]
        parts: list[Sequence[Item]] = []
        start = size = 0
        seen: set[str] = set()
        for i, item in enumerate(items):
            id, more = self._id_of(item), self._size_of(item)
            if i > start and (i - start == BATCH_JOBS or size + more > BATCH_BYTES or id in seen):
                parts.append(items[start:i])
                start, size, seen = i, 0, set()
            seen.add(id)
            size += more
        return [*parts, items[start:]]

    def _fly(self, lane: int, ids: set[str] | None) -> None:
        """Note the ids that are in flight on a lane. None: it is free."""
        if ids is None:
            del self._flying[lane]
        else:
            self._flying[lane] = ids
        flying = len(self._flying)
        self._opens_at = 0 if not flying else SECOND_LANE_JOBS if flying < self._lanes else inf

    def _leave(self, lane: int) -> None:
        """Send what waits. If nothing does, or the other lane will take it, this lane is free again."""
        if self._queue and (len(self._flying) == 1 or self._jobs >= SECOND_LANE_JOBS):
            batch, items = self._take(lane)
            if batch:
                self._run(items, lane, partial(self._answered, lane, batch, items))
                return
        self._fly(lane, None)
        if not self._flying:
            self._idle()

    def _answered(self, lane: int, batch: list[_Entry], items: list[Item], results: list[Result] | Exception) -> None:
        if self._hook.outcomes is not None:
            self._report(self._hook.outcomes, batch, items, results)
        if self._queue:  # the next call takes along what arrives in this turn of the loop
            asyncio.get_running_loop().call_soon(self._go_on, lane, batch, results)
        else:
            self._go_on(lane, batch, results)

    def _go_on(self, lane: int, batch: list[_Entry], results: list[Result] | Exception) -> None:
        """Send the next call, then hand out the results of the last one, so that the store works in the meantime."""
        if isinstance(results, StoreDown | Loading | UnknownOutcome):
            self._refuse(monotonic() - MOST_WAIT_S)
        self._leave(lane)
        _hand_out(batch, results)

    def _report(
        self,
        outcomes: Outcomes,
        batch: list[_Entry],
        items: list[Item],
        results: list[Result] | Exception,
    ) -> None:
        if isinstance(results, Unavailable):  # a part of it may have been done
            outcomes.lost()
        elif self._report_to is not None and isinstance(results, list):
            self._report_to(outcomes, items, results, [entry.by for entry in batch for _ in entry.items])

    def _refuse(self, before_s: float) -> None:
        """Refuse items that have waited since before that time. They were never sent to the store."""
        while self._queue and self._queue[0].since_s < before_s:
            entry = self._queue.popleft()
            self._dropped(len(entry.items), entry.size)
            tell(entry.done, StoreDown(NOT_SENT))

    def _dropped(self, jobs: int, size: int) -> None:
        """Count jobs and bytes that were taken out of the queue."""
        self._jobs -= jobs
        self._bytes -= size
        if self._namespace is not None:
            self._namespace.jobs -= jobs

    def _take(self, lane: int) -> tuple[list[_Entry], list[Item]]:
        """The calls that leave next, and their items. Usually all that wait fit into one script call, and all their ids
        are different."""
        elsewhere = self._flying.get(1 - lane, _NO_IDS)
        fit = self._jobs <= BATCH_JOBS and self._bytes <= BATCH_BYTES
        batch = [*self._queue] if fit else self._first(elsewhere)
        items, ids = self._joined(batch)
        if len(ids) < len(items) or not ids.isdisjoint(elsewhere):
            batch = self._first(elsewhere)
            items, ids = self._joined(batch)
        for _ in batch:
            self._queue.popleft()
        self._dropped(len(items), sum(map(_size_of, batch)))
        self._fly(lane, ids)
        return batch, items

    def _joined(self, batch: list[_Entry]) -> tuple[list[Item], set[str]]:
        """The items of some calls, and their ids."""
        items = [*chain.from_iterable(map(_items_of, batch))]
        return items, set(map(self._id_of, items))

    def _first(self, elsewhere: Collection[str]) -> list[_Entry]:
        """As many of the waiting calls as fit into one script call, up to one with an id that is in flight."""
        batch: list[_Entry] = []
        seen: set[str] = set(elsewhere)
        jobs = size = 0
        for entry in self._queue:
            ids = [*map(self._id_of, entry.items)]
            jobs += len(ids)
            size += entry.size
            if (batch and (jobs > BATCH_JOBS or size > BATCH_BYTES)) or not seen.isdisjoint(ids):
                break
            seen.update(ids)
            batch.append(entry)
        return batch


async def together(parts: Sequence[Awaitable[list[Result]]]) -> list[Result]:
    """The results of a call that took several script calls. If only some of them took effect, the outcome of the whole
    call is unknown."""
    outcomes = await asyncio.gather(*parts, return_exceptions=True)
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    if failures:
        raise failures[0] if len(failures) == len(outcomes) else UnknownOutcome() from failures[0]
    return [one for outcome in outcomes if not isinstance(outcome, BaseException) for one in outcome]


def in_task(
    run: Callable[[list[Item], int], Coroutine[Any, Any, list[Result]]],
) -> Callable[[list[Item], int, Done], object]:
    """A `run` for a Batcher from a coroutine function."""
    return lambda items, lane, done: leave(run(items, lane), done)


def _hand_out(batch: list[_Entry], results: list[Any] | Exception) -> None:
    """Give each call its results, or the error."""
    if isinstance(results, BaseException):
        shares = repeat(results)
    else:
        ends = [*accumulate(map(len, map(_items_of, batch)), initial=0)]
        shares = map(results.__getitem__, map(slice, ends, ends[1:]))
    tell_each(zip(map(_done_of, batch), shares, strict=False))

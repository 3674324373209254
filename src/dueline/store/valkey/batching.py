"""Batches calls: those that arrive while a script call is in flight join the next one.

Each operation has few calls in flight per partition, so the cost per job falls as the load rises. The store remembers
each caller's last call, which makes every script safe to repeat; it needs one slot per lane, operation and partition.
The second lane is for high load: if enough jobs wait, the next call is sent while the store still works on the first
one or waits for its disk. Calls leave in queue order, and the store runs them in that order on one connection.

The queue is bounded and shared by all callers. A client connection has one call at a time, so its share is the size of
that call. A call is accepted if at least its own size stays free afterwards, so large calls are refused first and leave
room for small ones. An empty queue accepts any call. All queues of a namespace may share a limit (QueueLimit).

A call that the store does not answer takes as long as the patience of a call. What waits behind it would wait as long
again, and its caller would have given up by then. So when such a call fails, what has waited a while is refused, too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from ...engine.errors import Loading, RateLimited, StoreDown, Unavailable, UnknownOutcome
from ...engine.limits import BATCH_BYTES, BATCH_JOBS, Limits
from ...engine.outcomes import OutcomeHook, Outcomes
from ...engine.queue_limit import QueueLimit

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Entry(Generic[Item, Result]):
    __slots__ = ("future", "items", "since_s", "size")

    def __init__(self, items: Sequence[Item], size: int, future: asyncio.Future[list[Result]], since_s: float) -> None:
        self.items = items
        self.size = size
        self.future = future
        self.since_s = since_s


NOT_SENT = "the store does not answer; this call waited behind another one and was not sent"
MOST_WAIT_S = 0.25  # behind a call that fails; with the patience of a call (4.5 s) it is less than 5 s
SECOND_LANE_JOBS = 16  # jobs that must wait to open it; a call for fewer costs more than it saves


class Batcher(Generic[Item, Result]):
    """Batches calls of one operation on one partition. `run(items, lane)` does one script call for up to 500 jobs. All
    ids in flight are different, within a lane and between the lanes. `namespace`: the limit of all queues of the
    partition's namespace, if it has one. `tell` tells the outcomes of a call to whoever records them (`hook`)."""

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
        "_queue",
        "_run",
        "_size_of",
        "_tasks",
        "_tell",
    )

    def __init__(
        self,
        run: Callable[[list[Item], int], Awaitable[list[Result]]],
        id_of: Callable[[Item], str],
        size_of: Callable[[Item], int],
        idle: Callable[[], object],
        limits: Limits,
        lanes: int = 1,
        namespace: QueueLimit | None = None,
        hook: OutcomeHook = OutcomeHook(),
        tell: Callable[[Outcomes, list[Item], list[Result]], None] | None = None,
    ) -> None:
        self._run = run
        self._hook = hook
        self._tell = tell
        self._id_of = id_of
        self._size_of = size_of
        self._idle = idle
        self._limits = limits
        self._namespace = namespace
        self._queue: deque[_Entry[Item, Result]] = deque()
        self._jobs = 0
        self._bytes = 0
        self._lanes = lanes
        self._tasks: dict[int, asyncio.Task[None]] = {}  # by lane
        self._flying: dict[int, set[str]] = {}  # by lane: the ids of its call

    def call(self, items: Sequence[Item]) -> Awaitable[list[Result]]:
        """Results in the order of the items. Items with the same id run in separate calls, in order."""
        jobs = len(items)
        size = self._size_of(items[0]) if jobs == 1 else sum(map(self._size_of, items))
        if self._jobs:
            limits = self._limits
            if self._jobs + 2 * jobs > limits.max_queued_jobs or self._bytes + 2 * size > limits.max_queued_bytes:
                raise RateLimited()
        if self._namespace is not None:
            self._namespace.check(jobs)
        if jobs == 1:
            return self._enqueue(items, size)
        parts = self._parts(items, size)
        return self._enqueue(*parts[0]) if len(parts) == 1 else self._in_parts(parts)

    def _in_parts(self, parts: list[tuple[Sequence[Item], int]]) -> Awaitable[list[Result]]:
        return together([self._enqueue(*part) for part in parts])  # room was checked for the whole call: all fit

    def _parts(self, items: Sequence[Item], whole: int) -> list[tuple[Sequence[Item], int]]:
        if len(items) <= BATCH_JOBS and whole <= BATCH_BYTES and len(set(map(self._id_of, items))) == len(items):
            return [(items, whole)]
        parts: list[tuple[Sequence[Item], int]] = []
        start = size = 0
        seen: set[str] = set()
        for i, item in enumerate(items):
            id, more = self._id_of(item), self._size_of(item)
            if i > start and (i - start == BATCH_JOBS or size + more > BATCH_BYTES or id in seen):
                parts.append((items[start:i], size))
                start, size, seen = i, 0, set()
            seen.add(id)
            size += more
        parts.append((items[start:], size))
        return parts

    def _enqueue(self, items: Sequence[Item], size: int) -> asyncio.Future[list[Result]]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Result]] = loop.create_future()
        self._queue.append(_Entry(items, size, future, loop.time()))
        self._jobs += len(items)
        self._bytes += size
        if self._namespace is not None:
            self._namespace.jobs += len(items)
        if not self._tasks or (len(self._tasks) < self._lanes and self._jobs >= SECOND_LANE_JOBS):
            lane = 1 if 0 in self._tasks else 0
            self._tasks[lane] = loop.create_task(self._work(lane))
        return future

    async def _work(self, lane: int) -> None:
        # Send the next call before handing out the last results, so that the store works in the meantime.
        loop = asyncio.get_running_loop()
        last: Callable[[], None] = _nothing
        try:
            while self._queue and (len(self._tasks) == 1 or self._jobs >= SECOND_LANE_JOBS):
                batch, items = self._take(lane)
                if not batch:  # the next items wait for the other lane, which will take them
                    break
                if last is _nothing:  # no task needed: a single call still leaves in this turn of the loop
                    results = await _result(self._run(items, lane))
                else:
                    call = loop.create_task(_result(self._run(items, lane)))
                    last()
                    results = await call
                if self._hook.outcomes is not None:
                    self._report(self._hook.outcomes, items, results)
                last = partial(_settle, batch, results)
                if isinstance(results, StoreDown | Loading | UnknownOutcome):
                    self._refuse(loop.time() - MOST_WAIT_S)
        finally:
            del self._tasks[lane]
            self._flying.pop(lane, None)
            if not self._tasks:
                self._idle()
            last()

    def _report(self, outcomes: Outcomes, items: list[Item], results: list[Result] | Exception) -> None:
        if isinstance(results, Unavailable):  # a part of it may have been done
            outcomes.lost()
        elif self._tell is not None and isinstance(results, list):
            self._tell(outcomes, items, results)

    def _refuse(self, before_s: float) -> None:
        """Refuse items that have waited since before that time. They were never sent to the store."""
        while self._queue and self._queue[0].since_s < before_s:
            entry = self._queue[0]
            self._drop(entry)
            if not entry.future.done():
                entry.future.set_exception(StoreDown(NOT_SENT))

    def _drop(self, entry: _Entry[Item, Result]) -> None:
        """Take the first entry out of the queue."""
        self._queue.popleft()
        self._jobs -= len(entry.items)
        self._bytes -= entry.size
        if self._namespace is not None:
            self._namespace.jobs -= len(entry.items)

    def _take(self, lane: int) -> tuple[list[_Entry[Item, Result]], list[Item]]:
        batch: list[_Entry[Item, Result]] = []
        items: list[Item] = []
        seen: set[str] = set()
        elsewhere = self._flying.get(1 - lane, seen)
        size = 0
        queue, id_of = self._queue, self._id_of
        while queue:
            entry = queue[0]
            if batch and (len(items) + len(entry.items) > BATCH_JOBS or size + entry.size > BATCH_BYTES):
                break
            if len(entry.items) == 1:
                id = id_of(entry.items[0])
                if id in seen or id in elsewhere:
                    break
                seen.add(id)
            else:
                ids = list(map(id_of, entry.items))
                if not elsewhere.isdisjoint(ids) or (batch and not seen.isdisjoint(ids)):
                    break
                seen.update(ids)
            self._drop(entry)
            batch.append(entry)
            items += entry.items
            size += entry.size
        self._flying[lane] = seen
        return batch, items


async def together(parts: Sequence[Awaitable[list[Result]]]) -> list[Result]:
    """The results of a call that took several script calls. If only some of them took effect, the outcome of the whole
    call is unknown."""
    outcomes = await asyncio.gather(*parts, return_exceptions=True)
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    if failures:
        raise failures[0] if len(failures) == len(outcomes) else UnknownOutcome() from failures[0]
    return [one for outcome in outcomes if not isinstance(outcome, BaseException) for one in outcome]


def _nothing() -> None:
    """Placeholder for the results before the first call."""


async def _result(call: Awaitable[list[Result]]) -> list[Result] | Exception:
    try:
        return await call
    except Exception as error:
        return error


def _settle(batch: list[_Entry[Item, Result]], results: list[Result] | Exception) -> None:
    """Hand out the results of a call, or its error."""
    at = 0
    for entry in batch:
        until = at + len(entry.items)
        if not entry.future.done():
            if isinstance(results, Exception):
                entry.future.set_exception(results)
            else:
                entry.future.set_result(results[at:until])
        at = until

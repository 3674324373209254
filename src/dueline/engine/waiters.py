"""Pulls that wait, without a tick (DESIGN 5, STORE 10-16).

For every partition that somebody pulls from there is one `Waiting`: a queue of waiters in order of arrival, and what
the last call said about the next moment at which the partition could give something. It has at most one store call
under way, which carries the credits of all its waiters; who arrives meanwhile joins the next call. Between calls it
sleeps until that moment or until the store wakes it. There is no periodic re-check.

A waiter may wait on several partitions (topics in order of priority, partitions by the earliest moment). It stands in
the queues of all of them, but its credit is in one call at a time (`asking`), so it never leases more than it can take.

    arrive -> ask each partition once, best first -> park -> ask a partition that is due or woken -> park ... ->
    answered
                        |                                       |
                        +-- jobs, or wait_ms 0: answered        +-- time over, draining: answered with []
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from .errors import Draining, DuelineError, RateLimited
from .job import LeasedJob, Partition
from .limits import PULL_BYTES
from .store import Release, Store
from .timer import Timer
from .topics import Topic
from .waiting import Waiter, Waiting

OFF_DUTY_S = 0.003


class Waiters:
    """All waiters of this process. `place` is this process's among those that wait on one partition, guessed."""

    def __init__(self, store: Store, timer: Timer, max_waiters: int, place: int | None = None) -> None:
        self.store = store
        self.timer = timer
        self.died: Callable[[str, str], None] | None = None  # told of topics where a pull found dead jobs
        self.off_duty_s = OFF_DUTY_S * (random.randint(1, 4) if place is None else place)
        self._max_waiters = max_waiters
        self._partitions: dict[Partition, Waiting] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = False
        self._count = 0
        self._own = 0  # of them, pulls of the server itself

    @property
    def count(self) -> int:
        """How many pulls are not answered yet, but for those of the server itself, which wait for a mark to change."""
        return self._count - self._own

    def count_on(self, partitions: Sequence[Partition]) -> int:
        """How many waiters stand in the queues of these partitions."""
        found: set[Waiter] = set()
        for partition in partitions:
            waiting = self._partitions.get(partition)
            if waiting is not None:
                found.update(waiting.queue)
        return len(found)

    def announced(self, partitions: Sequence[Partition]) -> bool:
        """Has this process told the store that somebody waits there, even if nobody does any more?"""
        now_s = self.timer.time()
        return any(
            partition in self._partitions and self._partitions[partition].announced_s > now_s
            for partition in partitions
        )

    async def pull(
        self, topics: Sequence[Topic], max: int, lease_ms: int | None, wait_ms: int, fails_fast: bool = False
    ) -> list[LeasedJob]:
        """Due jobs of these topics, in order of priority; waits up to wait_ms for the first one."""
        if self._draining:
            raise Draining
        if self._count >= self._max_waiters:
            raise RateLimited("too many pulls are waiting")
        until_s = self.timer.time() + wait_ms / 1000 if wait_ms else None
        waiter = Waiter(asyncio.get_running_loop().create_future(), topics, max, lease_ms, until_s, fails_fast)
        for topic in topics:
            self._join(waiter, topic)
        self._count += 1
        self._own += waiter.own
        if until_s is not None:
            waiter.timeout = self.timer.call_later(wait_ms / 1000, lambda: self._timed_out(waiter))
        self._advance(waiter)
        try:
            return await waiter.future
        except asyncio.CancelledError:
            self._gone(waiter)
            raise

    def woken(self, partition: Partition) -> None:
        """The store's word that a partition may have something now."""
        waiting = self._partitions.get(partition)
        if waiting is not None:
            waiting.woken()

    def widened(self, topic: Topic) -> None:
        """A topic has more partitions than before: whoever waits on it waits on all of them."""
        waiters: dict[Waiter, None] = {}
        for partition in topic.partitions:
            waiting = self._partitions.get(partition)
            if waiting is not None:
                waiters.update(waiting.queue)
        for waiter in waiters:
            self._join(waiter, topic)
            if waiter.asking is None:
                self._advance(waiter)

    def drain(self) -> None:
        """Answer every parked pull with nothing and take no new ones."""
        self._draining = True
        waiters = {waiter: None for waiting in self._partitions.values() for waiter in waiting.queue}
        for waiter in waiters:
            self._timed_out(waiter)

    async def stop(self) -> None:
        """Drain, and wait for the calls that are under way: what they bring is answered or given back."""
        self.drain()
        while self._tasks:
            await asyncio.wait(self._tasks)
        for waiting in self._partitions.values():
            waiting.close()

    # -- the way of one waiter

    def _join(self, waiter: Waiter, topic: Topic) -> None:
        partitions: list[Waiting] = []
        for partition in topic.partitions:
            waiting = self._partitions.get(partition)
            if waiting is None:
                waiting = self._partitions[partition] = Waiting(self, topic, partition)
            waiting.topic = topic
            if waiter in waiting.queue:
                continue
            waiting.queue[waiter] = None
            partitions.append(waiting)
        if len(partitions) > 1:
            random.shuffle(partitions)  # among equals: no partition is always the last
            partitions.sort(key=lambda waiting: float("inf") if waiting.wake_s is None else waiting.wake_s)
        waiter.partitions.extend(partitions)
        for waiting in partitions:
            # A pull that does not wait must see what its own caller has just sent: it always asks.
            if waiter.until_s is None or waiting.is_due() or not waiting.is_known(waiter.until_s):
                waiter.untried.append(waiting)

    def _advance(self, waiter: Waiter) -> None:
        """The next step of a waiter whose credit is free."""
        if waiter.untried and not waiter.over:
            waiter.untried[0].pump()
        elif waiter.jobs or waiter.until_s is None or waiter.over:
            self.finish(waiter)
        else:
            due = [waiting for waiting in waiter.partitions if waiting.is_due()]
            if due:
                waiter.untried = due
                due[0].pump()
            else:
                for waiting in waiter.partitions:
                    waiting.arm()

    def proceed(self, waiter: Waiter, asked: Waiting, filled: bool, more: bool) -> None:
        """After a call: answered, or on to the next partition. `filled`: it got all that the call asked for it."""
        if waiter.future.done():
            return
        if not waiter.lacks or (more and waiter.jobs):
            self.finish(waiter)
            return
        if filled and sum(len(job.body) for job in waiter.jobs) >= PULL_BYTES:
            self.finish(waiter)
            return
        again = more or filled
        if waiter.untried and waiter.untried[0] is asked:
            if not again:
                waiter.untried.pop(0)
        elif again:
            waiter.untried.insert(0, asked)
        self._advance(waiter)

    def finish(self, waiter: Waiter) -> None:
        """Answer with what it has; the error of a store that has not come back, if it has nothing."""
        self._remove(waiter)
        if waiter.future.done():
            return
        if waiter.error is not None and not waiter.jobs:
            waiter.future.set_exception(waiter.error)
        else:
            waiter.future.set_result(waiter.jobs)

    def _timed_out(self, waiter: Waiter) -> None:
        waiter.over = True
        if waiter.asking is None:
            self.finish(waiter)

    def _gone(self, waiter: Waiter) -> None:
        """The caller was cancelled. What it holds already goes back; what is under way is seen to by that call."""
        self._remove(waiter)
        if not waiter.future.cancelled():
            waiter.future.exception()  # seen: nobody is left to get it
        by_partition: dict[Partition, list[LeasedJob]] = {}
        topics = {topic.name: topic for topic in waiter.topics}
        for job in waiter.jobs:
            by_partition.setdefault(topics[job.topic].partition_of(job.id), []).append(job)
        for partition, jobs in by_partition.items():
            self.spawn(self.give_back(partition, jobs))

    def _remove(self, waiter: Waiter) -> None:
        if waiter.timeout is not None:
            waiter.timeout.cancel()
            waiter.timeout = None
        partitions, waiter.partitions = waiter.partitions, []
        for waiting in partitions:
            del waiting.queue[waiter]
            waiting.left()
        if partitions:
            self._count -= 1
            self._own -= waiter.own

    async def give_back(self, partition: Partition, jobs: Sequence[LeasedJob]) -> None:
        """Release jobs that nobody will work on, at once, without costing an attempt. If it fails, the lease ends."""
        releases = [Release(job.id, job.lease, delay_ms=0, count=False) for job in jobs]
        try:
            await self.store.release(partition, releases)
        except DuelineError:
            pass

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def dropped(self, waiting: Waiting) -> None:
        """A partition that nobody has asked for a while."""
        if self._partitions.get(waiting.partition) is waiting and not waiting.queue:
            del self._partitions[waiting.partition]

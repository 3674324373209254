"""Waiting pulls, without polling.

Each partition with waiting pulls has one `Waiting`: a queue of waiters in order of arrival, and the next time at which
the partition may have a job, as reported by the last store call. It has at most one store call in flight, which asks
for jobs for all its waiters. A waiter that arrives in the meantime joins the next call. Between calls it sleeps until
the reported time or until the store wakes it. There is no periodic re-check.

A waiter may wait on several partitions (topics in order of priority, partitions by earliest time). It is in the queues
of all of them, but takes part in one call at a time (`asking`), so it never leases more than it asked for.

    arrive -> ask each partition once, best first -> park -> ask a partition that is due or woken -> park ... -> answer
                        |                                       |
                        +-- jobs, or wait_ms 0: answer          +-- time is up, or draining: answer []
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
    """All waiters of this process. `place` is a guess of its position among the processes waiting on a partition."""

    def __init__(self, store: Store, timer: Timer, max_waiters: int, place: int | None = None) -> None:
        self.store = store
        self.timer = timer
        self.died: Callable[[str, str], None] | None = None  # called with topics where a pull found dead jobs
        self.outdated: Callable[[Topic], None] | None = None  # called if a partition has another config than its topic
        self.off_duty_s = OFF_DUTY_S * (random.randint(1, 4) if place is None else place)
        self._max_waiters = max_waiters
        self._partitions: dict[Partition, Waiting] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = False
        self._count = 0
        self._own = 0  # how many of them are the server's own pulls

    @property
    def count(self) -> int:
        """How many pulls are waiting, without the server's own pulls, which wait for announcements."""
        return self._count - self._own

    def count_on(self, partitions: Sequence[Partition]) -> int:
        """How many waiters are in the queues of these partitions."""
        found: set[Waiter] = set()
        for partition in partitions:
            waiting = self._partitions.get(partition)
            if waiting is not None:
                found.update(waiting.queue)
        return len(found)

    def announced(self, partitions: Sequence[Partition]) -> bool:
        """Whether the store still believes that this process waits there, even if no pull does any more."""
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
        """The store reports that a partition may have a job now."""
        waiting = self._partitions.get(partition)
        if waiting is not None:
            waiting.woken()

    def widened(self, topic: Topic) -> None:
        """A topic has more partitions than before; its waiters now wait on all of them."""
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
        """Return no jobs to every waiting pull, and accept no new pulls."""
        self._draining = True
        waiters = {waiter: None for waiting in self._partitions.values() for waiter in waiting.queue}
        for waiter in waiters:
            self._timed_out(waiter)

    async def stop(self) -> None:
        """Drain, and wait for calls in flight. Their jobs are delivered or released."""
        self.drain()
        while self._tasks:
            await asyncio.wait(self._tasks)
        for waiting in self._partitions.values():
            waiting.close()

    # -- the steps of one waiter

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
            random.shuffle(partitions)  # so that no partition is always the last among equals
            partitions.sort(key=lambda waiting: float("inf") if waiting.wake_s is None else waiting.wake_s)
        waiter.partitions.extend(partitions)
        for waiting in partitions:
            # A pull that does not wait always asks the store, so that it sees jobs its caller has just sent.
            if waiter.until_s is None or waiting.is_due() or not waiting.is_known(waiter.until_s):
                waiter.untried.append(waiting)

    def _advance(self, waiter: Waiter) -> None:
        """The next step of a waiter that takes part in no call."""
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
        """After a call: answer, or ask the next partition. `filled`: the waiter got all the jobs it asked for."""
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
        """Answer with the jobs it has. If it has none and the store is still down, raise that error."""
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
        """The caller was cancelled. Release the jobs it has; a call in flight releases its own."""
        self._remove(waiter)
        if not waiter.future.cancelled():
            waiter.future.exception()  # retrieve it, because no caller is left
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
        """Release jobs that nobody will work on, without costing an attempt. If this fails, their leases expire."""
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
        """Drop a partition that has had no pulls for a while."""
        if self._partitions.get(waiting.partition) is waiting and not waiting.queue:
            del self._partitions[waiting.partition]

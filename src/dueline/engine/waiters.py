"""Waiting pulls, without polling.

A `Waiter` is a pull call that is not answered yet. It waits in the `PartitionQueue` of every partition it asks for, in
order of arrival. A queue has at most one store call in flight, which asks for jobs for all its waiters; a waiter that
arrives in the meantime joins the next call. Between calls the queue sleeps until the time that the store named for the
next job, or until the store wakes it. There is no periodic re-check. `Waiters` holds the queues of this process.

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
from functools import partial
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from . import commands
from .alarm import Alarm
from .completion import Done, Outbox, leave
from .errors import Draining, DuelineError, RateLimited
from .fan_out import over_partitions
from .job import LeasedJob, Partition
from .limits import BATCH_JOBS
from .outcomes import actor_name
from .rounds import MOST_DOUBLINGS
from .store import Credit, Pull, PullOutcome, Release, Store
from .timer import Handle, Timer
from .topics import Topic
from .waiter import Waiter

OFF_DUTY_S = 0.003
LINGER_S = 5.0  # how long a partition without waiters stays subscribed, and how long the store believes it has some
FIRST_BACK_OFF_S, LAST_BACK_OFF_S = 0.1, 2.0


Claim = list[tuple[Waiter, Credit]]
"""The waiters of one store call, and what each asks for."""


class PartitionQueue:
    """The waiters of one partition, in order of arrival, and the one store call for all of them."""

    def __init__(self, owner: Waiters, topic: Topic, partition: Partition) -> None:
        self.topic = topic
        self.partition = partition
        self.waiters: dict[Waiter, None] = {}
        self.alarm = Alarm(owner.timer, owner.store, self._due)
        self.wait_until_s = 0.0  # until this time the store believes that this process waits here
        self._owner = owner
        self._busy = False
        self._watched = False
        self._woken = False
        self._on_duty = True
        self._failures = 0
        self._retried = False  # a wake-up has ended the back-off since pulls began to fail
        self._linger: Handle | None = None
        self._empty_since_s = 0.0

    # -- events

    def woken(self) -> None:
        """A job became deliverable earlier than expected. A process that is off duty lets the one on duty go first. Of
        several wake-ups while pulls fail, the first one ends the back-off: the store may have come back."""
        if self._failures:
            if self._retried:
                return
            self._retried = True
        self._woken = True
        self.alarm.expect(0, 0.0 if self._on_duty else self._owner.timer.time() + self._owner.off_duty_s)
        if self._busy:
            return
        if self._on_duty:
            self.pump()
        else:
            self.arm()

    def emptied(self) -> None:
        """The last waiter left the queue."""
        self._empty_since_s = self._owner.timer.time()
        if self._linger is None:
            self._linger = self._owner.timer.call_later(LINGER_S, self._lingered)

    def is_known(self, until_s: float) -> bool:
        """Whether the store will wake this process until then, so that the alarm can be trusted."""
        return self._watched and self.wait_until_s >= until_s and not self._failures

    def pump(self) -> None:
        """Call the store, if a waiter should ask this partition now. A call in flight does this when it ends."""
        if not self._busy:
            self._busy = True
            self._owner.calls += 1
            asyncio.get_running_loop().call_soon(self._serve)  # for all that arrive in this turn of the loop

    def arm(self) -> None:
        """Sleep until the partition is due, if a waiter is parked here."""
        if not self._busy and self.waiters:
            self.alarm.set()

    def close(self) -> None:
        self.alarm.cancel()
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None

    # -- sleeping

    def _due(self) -> None:
        """The alarm went off."""
        if self.alarm.is_due():
            self.pump()
        else:
            self.arm()

    def _lingered(self) -> None:
        self._linger = None
        if self.waiters:
            return
        rest_s = self._empty_since_s + LINGER_S - self._owner.timer.time()
        if rest_s > 0 or self._busy:
            self._linger = self._owner.timer.call_later(max(rest_s, 0.1), self._lingered)
        elif self._watched:
            self._busy = True
            self._owner.spawn(self._unwatch())
        else:
            self.close()
            self._owner.dropped(self)

    async def _unwatch(self) -> None:
        self._watched = False
        self.alarm.expect(0, 0.0)
        try:
            await self._owner.store.unwatch(self.partition)
        except DuelineError:
            pass  # the store drops subscriptions with the connection; a stray wake-up costs nothing
        self._busy = False
        if self.waiters:
            self.pump()
        else:
            self.close()
            self._owner.dropped(self)

    # -- asking the store

    def _serve(self) -> None:
        """Ask for the waiters that should ask now. The answer of the store calls it again."""
        claim = self._claim()
        if claim:
            self._ask(claim)
            return
        self._busy = False
        if not self.alarm.is_due():  # if due, the waiters are busy elsewhere; each checks here again before it parks
            self.arm()
        self._owner.called()

    def _claim(self) -> Claim:
        """Select the waiters for the next store call, in order of arrival, up to one batch."""
        claim: Claim = []
        room = BATCH_JOBS
        due = self.alarm.is_due()
        for waiter in self.waiters:
            if waiter.asking is not None or waiter.answered:
                continue
            untried = waiter.untried
            if untried:
                if untried[0] is not self or (self._failures and not waiter.fails_fast and not due):
                    continue
            elif not due:
                continue
            credit = waiter.credit
            if waiter.jobs or credit.max > room:
                credit = replace(credit, max=min(waiter.lacks, room))
            waiter.asking = self
            claim.append((waiter, credit))
            room -= credit.max
            if not room:
                break
        return claim

    def _ask(self, claim: Claim) -> None:
        until_s = max([waiter.until_s or 0.0 for waiter, _ in claim])
        if until_s and not self._watched:
            leave(self._watch(), partial(self._watching, claim, until_s))
        else:
            self._pull(claim, until_s)

    async def _watch(self) -> None:
        await self._owner.store.watch(self.partition)
        self._watched = True

    def _watching(self, claim: Claim, until_s: float, error: BaseException | None) -> None:
        if error is None:
            self._pull(claim, until_s)
        else:
            self._on_reply(claim, 0.0, error)

    def _pull(self, claim: Claim, until_s: float) -> None:
        wait_until_s = max(until_s + LINGER_S, self.wait_until_s) if until_s else self.wait_until_s
        wait_ms = max(1, int((wait_until_s - self._owner.timer.time()) * 1000)) if until_s else 0
        self._woken = False
        credits = tuple([credit for _, credit in claim])
        on_reply = partial(self._on_reply, claim, wait_until_s)
        self._owner.store.post_pull(self.partition, Pull(credits, self.topic.lease_ms, wait_ms), on_reply)

    def _on_reply(self, claim: Claim, wait_until_s: float, pulled: PullOutcome | BaseException) -> None:
        # The next call is for all that arrive in this turn of the loop, too.
        asyncio.get_running_loop().call_soon(self._go_on, claim, wait_until_s, pulled)

    def _go_on(self, claim: Claim, wait_until_s: float, pulled: PullOutcome | BaseException) -> None:
        """Make the next call, then hand out the jobs of the last one, so that the store works in the meantime."""
        outbox = self._owner.outbox
        outbox.hold()
        try:
            if isinstance(pulled, BaseException):
                self._failed(claim, pulled)
            else:
                self.wait_until_s = wait_until_s
                self._answered(claim, pulled)
            self._serve()
        finally:
            outbox.release()

    def _answered(self, claim: Claim, pulled: PullOutcome) -> None:
        if pulled.jobs or pulled.deaths or pulled.leases_lost:
            self.topic.metrics.count_pulled(pulled.jobs, pulled.deaths, pulled.leases_lost)
            if pulled.deaths and self._owner.died is not None:
                self._owner.died(self.partition.namespace, self.partition.topic)
        if pulled.policy_version != self.topic.version and self._owner.outdated is not None:
            self._owner.outdated(self.topic)
        self._failures, self._retried = 0, False
        self._on_duty = pulled.on_duty
        self._plan(pulled)
        spare: list[tuple[Waiter, LeasedJob]] = []
        jobs, place = pulled.jobs, 0
        for waiter, credit in claim:
            share = jobs[place : place + credit.max]
            place += credit.max
            waiter.asking = waiter.error = None
            if waiter.answered:
                spare.extend((waiter, job) for job in share)
            else:
                waiter.jobs += share
        if spare:
            self._hand_on(spare)
        rest = len(jobs)
        for waiter, credit in claim:
            rest -= credit.max
            waiter.proceed(self, rest >= 0, pulled.more)  # below 0: it did not get all that it asked for

    def _plan(self, pulled: PullOutcome) -> None:
        """Decide from the answer when to ask again. A wake-up that came during the call may be newer."""
        now_s = self._owner.timer.time()
        extra_s = 0.0 if pulled.on_duty else self._owner.off_duty_s
        if pulled.more:
            self.alarm.expect(0, 0.0)
        elif self._woken:
            self.alarm.expect(0, now_s + extra_s)
        elif pulled.next_ms is None:
            self.alarm.expect(None, None)
        elif pulled.jobs and pulled.next_ms <= pulled.now_ms:
            self.alarm.expect(pulled.next_ms, now_s)
        else:
            # At least 1 ms: the store has just returned nothing, even if this process's view of its clock differs.
            rest_ms = max(1, pulled.next_ms - self._owner.store.now_ms())
            self.alarm.expect(pulled.next_ms, now_s + rest_ms / 1000 + extra_s)

    def _hand_on(self, spare: list[tuple[Waiter, LeasedJob]]) -> None:
        """Give jobs of waiters that have left to the next one with the same lease time and name, else release them."""
        back: list[LeasedJob] = []
        served: dict[Waiter, None] = {}
        for left, job in spare:
            for waiter in self.waiters:
                alike = waiter.credit.lease_ms == left.credit.lease_ms and waiter.credit.by == left.credit.by
                if waiter.asking is None and alike and waiter.lacks and not waiter.answered:
                    waiter.jobs.append(job)
                    served[waiter] = None
                    break
            else:
                back.append(job)
        for waiter in served:
            waiter.finish()
        if back:
            self._owner.spawn(self._owner.give_back(self.topic, back))

    def _failed(self, claim: Claim, error: BaseException) -> None:
        """Non-waiting and fail-fast pulls get the error; the others retry with backoff."""
        back_off_s = min(FIRST_BACK_OFF_S * 2**self._failures, LAST_BACK_OFF_S)
        self._failures = min(self._failures + 1, MOST_DOUBLINGS)
        self.alarm.expect(0, self._owner.timer.time() + back_off_s)
        if not isinstance(error, DuelineError):
            context = {"message": f"pull from {self.partition} failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        for waiter, _ in claim:
            waiter.asking = None
            waiter.error = error
            if waiter.fails_fast or waiter.over or waiter.jobs:
                waiter.finish()
            else:
                waiter.proceed(self, filled=False, more=False)


class Waiters:
    """All waiters of this process. `place` is a guess of its position among the processes waiting on a partition."""

    def __init__(self, store: Store, timer: Timer, max_waiters: int, place: int | None = None) -> None:
        self.store = store
        self.timer = timer
        self.died: Callable[[str, str], None] | None = None  # called with topics where a pull found dead jobs
        self.outdated: Callable[[Topic], None] | None = None  # called if a partition has another config than its topic
        self.off_duty_s = OFF_DUTY_S * (random.randint(1, 4) if place is None else place)
        self._max_waiters = max_waiters
        self._queues: dict[Partition, PartitionQueue] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = False
        self.outbox = Outbox()
        self._quiet: asyncio.Event | None = None
        self.calls = 0  # partitions with a call in flight, or about to leave
        self.count = 0  # pulls that are not answered yet

    def count_on(self, partitions: Sequence[Partition]) -> int:
        """How many waiters are in the queues of these partitions."""
        found: set[Waiter] = set()
        for partition in partitions:
            queue = self._queues.get(partition)
            if queue is not None:
                found.update(queue.waiters)
        return len(found)

    def counts_as_waiting(self, partitions: Sequence[Partition]) -> bool:
        """Whether the store still believes that this process waits there, even if no pull does any more."""
        now_s = self.timer.time()
        return any(
            partition in self._queues and self._queues[partition].wait_until_s > now_s for partition in partitions
        )

    def post(self, topics: Sequence[Topic], command: commands.Pull, done: Done) -> Waiter:
        """Due jobs of these topics, in order of priority; waits up to wait_ms for the first one."""
        if self._draining:
            raise Draining
        if self.count >= self._max_waiters:
            raise RateLimited("too many pulls are waiting")
        by = command.by
        credit = Credit(command.max, command.lease_ms, by, by or actor_name())
        until_s = self.timer.time() + command.wait_ms / 1000 if command.wait_ms else None
        waiter = Waiter(self, topics, credit, until_s, command.fails_fast or until_s is None, done)
        for topic in topics:
            self._join(waiter, topic)
        self.count += 1
        waiter.advance()
        return waiter

    def called(self) -> None:
        """A partition has no call in flight any more."""
        self.calls -= 1
        if not self.calls and self._quiet is not None:
            self._quiet.set()

    def woken(self, partition: Partition) -> None:
        """The store reports that a partition may have a job now."""
        queue = self._queues.get(partition)
        if queue is not None:
            queue.woken()

    def moved(self, topic: Topic, before: Sequence[Partition]) -> None:
        """A topic has other partitions than before; its waiters now wait on all of them."""
        waiters: dict[Waiter, None] = {}
        for partition in (*before, *topic.partitions):
            queue = self._queues.get(partition)
            if queue is not None:
                waiters.update(queue.waiters)
        for waiter in waiters:
            self._join(waiter, topic)
            if waiter.asking is None:
                waiter.advance()

    def drain(self) -> None:
        """Return no jobs to every waiting pull, and accept no new pulls."""
        self._draining = True
        waiters = {waiter: None for queue in self._queues.values() for waiter in queue.waiters}
        for waiter in waiters:
            waiter.time_out()

    async def stop(self) -> None:
        """Drain, and wait for calls in flight. Their jobs are delivered or released."""
        self.drain()
        while self.calls or self._tasks:
            if self.calls:
                self._quiet = asyncio.Event()
                await self._quiet.wait()
            if self._tasks:
                await asyncio.wait(self._tasks)
        for queue in self._queues.values():
            queue.close()

    def _join(self, waiter: Waiter, topic: Topic) -> None:
        joined: list[PartitionQueue] = []
        for partition in topic.partitions:
            queue = self._queues.get(partition)
            if queue is None:
                queue = self._queues[partition] = PartitionQueue(self, topic, partition)
            queue.topic = topic
            if waiter not in queue.waiters:
                queue.waiters[waiter] = None
                joined.append(queue)
        if len(joined) > 1:
            random.shuffle(joined)  # so that no partition is always the last among equals
            joined.sort(key=lambda queue: float("inf") if queue.alarm.wake_s is None else queue.alarm.wake_s)
        waiter.queues += joined
        until_s = waiter.until_s
        if until_s is not None:
            joined = [queue for queue in joined if queue.alarm.is_due() or not queue.is_known(until_s)]
        waiter.untried += joined  # a pull that does not wait asks all, so that it sees jobs its caller has just sent

    def release(self, waiter: Waiter) -> None:
        """Release the jobs of a waiter whose caller is gone."""
        for topic in waiter.topics:
            jobs = [job for job in waiter.jobs if job.topic == topic.name]
            if jobs:
                self.spawn(self.give_back(topic, jobs))

    async def give_back(self, topic: Topic, jobs: Sequence[LeasedJob]) -> None:
        """Release jobs that nobody will work on, without costing an attempt. If this fails, their leases expire."""
        releases = [Release(job.id, job.lease, delay_ms=0, count=False) for job in jobs]
        try:
            await over_partitions(topic, releases, attrgetter("id"), self.store.release, lambda _: None)
        except DuelineError:
            pass

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def dropped(self, queue: PartitionQueue) -> None:
        """Drop a partition that has had no pulls for a while."""
        if self._queues.get(queue.partition) is queue and not queue.waiters:
            del self._queues[queue.partition]

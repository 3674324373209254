"""One partition's waiters and the one store call for all of them. `engine.waiters` describes the model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .errors import DuelineError
from .job import LeasedJob, Partition
from .limits import BATCH_JOBS, INTERNAL_NAMESPACE
from .store import Credit, Pull, PullOutcome
from .timer import Handle
from .topics import Topic

if TYPE_CHECKING:
    from .waiters import Waiters

LINGER_S = 5.0  # how long a partition without waiters stays subscribed, and how long the store believes it has some
LONGEST_SLEEP_S = 3600.0
FIRST_BACK_OFF_S, LAST_BACK_OFF_S = 0.1, 2.0


class Waiter:
    """One pull call that is not answered yet. `until_s` None: it does not wait."""

    __slots__ = (
        "asking",
        "error",
        "fails_fast",
        "future",
        "jobs",
        "lease_ms",
        "max",
        "over",
        "own",
        "partitions",
        "timeout",
        "topics",
        "until_s",
        "untried",
    )

    def __init__(
        self,
        future: asyncio.Future[list[LeasedJob]],
        topics: Sequence[Topic],
        max: int,
        lease_ms: int | None,
        until_s: float | None,
        fails_fast: bool,
    ) -> None:
        self.future = future
        self.own = bool(topics) and topics[0].namespace == INTERNAL_NAMESPACE
        self.topics = topics
        self.max = max
        self.lease_ms = lease_ms
        self.until_s = until_s
        self.fails_fast = fails_fast or until_s is None
        self.partitions: list[Waiting] = []
        self.untried: list[Waiting] = []  # partitions to ask next, best first; empty: parked
        self.asking: Waiting | None = None  # the partition whose call includes this waiter
        self.jobs: list[LeasedJob] = []
        self.over = False  # time is up: answer as soon as no call includes it
        self.timeout: Handle | None = None
        self.error: Exception | None = None  # of the last call, if it failed

    @property
    def lacks(self) -> int:
        return self.max - len(self.jobs)


class Waiting:
    """The waiters of one partition, and when to ask it next."""

    def __init__(self, owner: Waiters, topic: Topic, partition: Partition) -> None:
        self.topic = topic
        self.partition = partition
        self.queue: dict[Waiter, None] = {}
        self.next_ms: int | None = 0  # on the store's clock; 0: unknown, ask; None: only a wake-up can bring jobs
        self.wake_s: float | None = 0.0  # the same moment on the timer's clock
        self.announced_s = 0.0  # until this time the store believes that this process waits here
        self._owner = owner
        self._busy = False
        self._watched = False
        self._woken = False
        self._on_duty = True
        self._failures = 0
        self._alarm: Handle | None = None
        self._alarm_s = 0.0
        self._linger: Handle | None = None
        self._empty_since_s = 0.0

    # -- events

    def woken(self) -> None:
        """A job became deliverable earlier than expected. A process that is off duty lets the one on duty go first."""
        if self._failures:
            return
        self._woken = True
        self._expect(0, 0.0 if self._on_duty else self._owner.timer.time() + self._owner.off_duty_s)
        if self._busy:
            return
        if self._on_duty:
            self.pump()
        else:
            self.arm()

    def left(self) -> None:
        """A waiter left the queue."""
        if not self.queue:
            self._empty_since_s = self._owner.timer.time()
            if self._linger is None:
                self._linger = self._owner.timer.call_later(LINGER_S, self._lingered)

    def is_due(self) -> bool:
        """Whether it is time to ask this partition again."""
        return self.wake_s is not None and self.wake_s <= self._owner.timer.time()

    def is_known(self, until_s: float) -> bool:
        """Whether the store will wake this process until then, so that `wake_s` can be trusted."""
        return self._watched and self.announced_s >= until_s and not self._failures

    def pump(self) -> None:
        """Ask the store if a waiter should ask here now. While a call is in flight, its end does this instead."""
        if not self._busy:
            self._busy = True
            self._owner.spawn(self._serve())

    def arm(self) -> None:
        """Sleep until the partition is due, if a waiter is parked here."""
        if self._busy or self.wake_s is None or not self.queue:
            return
        if self._alarm is not None:
            if self._alarm_s <= self.wake_s:
                return
            self._alarm.cancel()
        delay_s = min(max(self.wake_s - self._owner.timer.time(), 0.0), LONGEST_SLEEP_S)
        self._alarm_s = self.wake_s
        self._alarm = self._owner.timer.call_later(delay_s, self._rang)

    def close(self) -> None:
        for handle in (self._alarm, self._linger):
            if handle is not None:
                handle.cancel()
        self._alarm = self._linger = None

    # -- sleeping

    def _expect(self, next_ms: int | None, wake_s: float | None) -> None:
        self.next_ms = next_ms
        self.wake_s = wake_s

    def _rang(self) -> None:
        """The alarm went off. If the store's clock says it is too early, sleep the rest."""
        self._alarm = None
        rest_ms = 0 if self.next_ms is None else self.next_ms - self._owner.store.now_ms()
        if self.wake_s is not None and rest_ms > 0 and not self._failures:
            self.wake_s = max(self.wake_s, self._owner.timer.time() + rest_ms / 1000)
        if self.is_due():
            self.pump()
        else:
            self.arm()

    def _lingered(self) -> None:
        self._linger = None
        if self.queue:
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
        self._expect(0, 0.0)
        try:
            await self._owner.store.unwatch(self.partition)
        except DuelineError:
            pass  # the store drops subscriptions with the connection; a stray wake-up costs nothing
        self._busy = False
        if self.queue:
            self.pump()
        else:
            self.close()
            self._owner.dropped(self)

    # -- asking the store

    async def _serve(self) -> None:
        while claim := self._claim():
            await self._ask(claim)
        self._busy = False
        if not self.is_due():  # if due, the waiters are busy elsewhere, and each checks here again before it parks
            self.arm()

    def _claim(self) -> list[tuple[Waiter, int]]:
        """Select the waiters that ask here now, in order of arrival, up to one batch."""
        claim: list[tuple[Waiter, int]] = []
        room = BATCH_JOBS
        due = self.is_due()
        for waiter in self.queue:
            if waiter.asking is not None or waiter.future.done():
                continue
            if waiter.untried:
                if waiter.untried[0] is not self or (self._failures and not waiter.fails_fast and not due):
                    continue
            elif not due:
                continue
            credit = min(waiter.lacks, room)
            waiter.asking = self
            claim.append((waiter, credit))
            room -= credit
            if room == 0:
                break
        return claim

    async def _ask(self, claim: list[tuple[Waiter, int]]) -> None:
        until_s = max((waiter.until_s or 0.0 for waiter, _ in claim), default=0.0)
        store = self._owner.store
        try:
            if until_s and not self._watched:
                await store.watch(self.partition)
                self._watched = True
            announced_s = max(until_s + LINGER_S, self.announced_s) if until_s else self.announced_s
            wait_ms = max(1, int((announced_s - self._owner.timer.time()) * 1000)) if until_s else 0
            self._woken = False
            credits = tuple(Credit(credit, waiter.lease_ms) for waiter, credit in claim)
            pulled = await store.pull(self.partition, Pull(credits, self.topic.lease_ms, wait_ms))
            self.announced_s = announced_s
        except Exception as error:
            self._failed(claim, error)
        else:
            self._answered(claim, pulled)

    def _answered(self, claim: list[tuple[Waiter, int]], pulled: PullOutcome) -> None:
        if pulled.jobs or pulled.deaths or pulled.leases_lost:
            self.topic.figures.count_pulled(pulled.jobs, pulled.deaths, pulled.leases_lost)
            if pulled.deaths and self._owner.died is not None:
                self._owner.died(self.partition.namespace, self.partition.topic)
        if pulled.policy_version != self.topic.version and self._owner.outdated is not None:
            self._owner.outdated(self.topic)
        self._failures = 0
        self._on_duty = pulled.on_duty
        self._plan(pulled)
        spare: list[tuple[int | None, LeasedJob]] = []
        shares: list[tuple[Waiter, int]] = []
        place = 0
        for waiter, credit in claim:
            share = pulled.jobs[place : place + credit]
            place += credit
            waiter.asking = None
            waiter.error = None
            if waiter.future.done():
                spare.extend((waiter.lease_ms, job) for job in share)
                continue
            waiter.jobs.extend(share)
            shares.append((waiter, credit - len(share)))
        if spare:
            self._hand_on(spare)
        for waiter, unused in shares:
            self._owner.proceed(waiter, self, filled=unused == 0, more=pulled.more)

    def _plan(self, pulled: PullOutcome) -> None:
        """Decide when to ask again, from the answer. A wake-up that came during the call may be newer than it."""
        now_s = self._owner.timer.time()
        extra_s = 0.0 if pulled.on_duty else self._owner.off_duty_s
        if pulled.more:
            self._expect(0, 0.0)
        elif self._woken:
            self._expect(0, now_s + extra_s)
        elif pulled.next_ms is None:
            self._expect(None, None)
        elif pulled.jobs and pulled.next_ms <= pulled.now_ms:
            self._expect(pulled.next_ms, now_s)
        else:
            # At least 1 ms: the store has just returned nothing, even if this process's view of its clock differs.
            rest_ms = max(1, pulled.next_ms - self._owner.store.now_ms())
            self._expect(pulled.next_ms, now_s + rest_ms / 1000 + extra_s)

    def _hand_on(self, spare: list[tuple[int | None, LeasedJob]]) -> None:
        """Give jobs of waiters that have left to the next one that wants the same lease time, else release them."""
        back: list[LeasedJob] = []
        served: dict[Waiter, None] = {}
        for lease_ms, job in spare:
            for waiter in self.queue:
                if waiter.asking is None and waiter.lease_ms == lease_ms and waiter.lacks and not waiter.future.done():
                    waiter.jobs.append(job)
                    served[waiter] = None
                    break
            else:
                back.append(job)
        for waiter in served:
            self._owner.finish(waiter)
        if back:
            self._owner.spawn(self._owner.give_back(self.partition, back))

    def _failed(self, claim: list[tuple[Waiter, int]], error: Exception) -> None:
        """Non-waiting and fail-fast pulls get the error; the others retry with backoff."""
        back_off_s = min(FIRST_BACK_OFF_S * 2**self._failures, LAST_BACK_OFF_S)
        self._failures += 1
        self._expect(0, self._owner.timer.time() + back_off_s)
        if not isinstance(error, DuelineError):
            context = {"message": f"pull from {self.partition} failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        for waiter, _ in claim:
            waiter.asking = None
            waiter.error = error
            if waiter.fails_fast or waiter.over or waiter.jobs:
                self._owner.finish(waiter)
            else:
                self._owner.proceed(waiter, self, filled=False, more=False)

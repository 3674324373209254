"""Pulls that wait, without a tick (DESIGN 5, STORE 10-16).

For every line that somebody pulls from there is one `Waiting`: a queue of waiters in order of arrival, and what the
last call said about the next moment at which the line could give something. It has at most one store call under
way, which carries the credits of all its waiters; who arrives meanwhile joins the next call. Between calls it sleeps
until that moment or until the store wakes it. There is no periodic re-check.

A waiter may wait on several lines (topics in order of priority, partitions by the earliest moment). It stands in the
queues of all of them, but its credit is in one call at a time (`asking`), so it never leases more than it can take.

    arrive -> ask each line once, best first -> park -> ask a line that is due or woken -> park ... -> answered
                        |                                       |
                        +-- jobs, or wait_ms 0: answered        +-- time over, draining: answered with []
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Sequence
from typing import Any

from .errors import Draining, DuelineError, RateLimited
from .job import Held, Line
from .limits import BATCH_JOBS, PULL_BYTES
from .store import Credit, Pull, Pulled, Release, Store
from .timer import Handle, Timer
from .topics import Topic

LINGER_S = 5.0  # how long a line without waiters stays subscribed, and how far ahead "somebody waits" is announced
OFF_DUTY_S = 0.003
LONGEST_SLEEP_S = 3600.0
FIRST_BACK_OFF_S, LAST_BACK_OFF_S = 0.1, 2.0


class Waiter:
    """One pull call that is not answered yet. `until_s` None: it does not wait."""

    __slots__ = (
        "asking",
        "error",
        "future",
        "jobs",
        "lease_ms",
        "lines",
        "max",
        "over",
        "timeout",
        "topics",
        "until_s",
        "untried",
    )

    def __init__(
        self,
        future: asyncio.Future[list[Held]],
        topics: Sequence[Topic],
        max: int,
        lease_ms: int | None,
        until_s: float | None,
    ) -> None:
        self.future = future
        self.topics = topics
        self.max = max
        self.lease_ms = lease_ms
        self.until_s = until_s
        self.lines: list[Waiting] = []
        self.untried: list[Waiting] = []  # lines to ask next, best first; empty: parked
        self.asking: Waiting | None = None  # the line whose call carries this waiter's credit
        self.jobs: list[Held] = []
        self.over = False  # time is up: answer as soon as no call carries its credit
        self.timeout: Handle | None = None
        self.error: Exception | None = None  # of the last call, if that failed

    @property
    def lacks(self) -> int:
        return self.max - len(self.jobs)


class Waiting:
    """The waiters of one line and what is known about it."""

    def __init__(self, owner: Waiters, topic: Topic, line: Line) -> None:
        self.topic = topic
        self.line = line
        self.queue: dict[Waiter, None] = {}
        self.next_ms: int | None = 0  # on the store's clock; 0: not known, ask; None: only a wake-up can change it
        self.wake_s: float | None = 0.0  # the same moment on the timer's clock
        self.announced_s = 0.0  # until when the store knows that somebody waits here
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

    # -- what others tell this line

    def woken(self) -> None:
        """Something became deliverable earlier. A process that is off duty gives the other one a moment."""
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
        """A waiter went out of the queue."""
        if not self.queue:
            self._empty_since_s = self._owner.timer.time()
            if self._linger is None:
                self._linger = self._owner.timer.call_later(LINGER_S, self._lingered)

    def is_due(self) -> bool:
        """Is it time to ask this line again?"""
        return self.wake_s is not None and self.wake_s <= self._owner.timer.time()

    def is_known(self, until_s: float) -> bool:
        """Will the store wake this process until then, so that `wake_s` can be believed?"""
        return self._watched and self.announced_s >= until_s and not self._failures

    def pump(self) -> None:
        """Ask the store, if somebody's turn is here. While a call is under way, its end sees to it."""
        if not self._busy:
            self._busy = True
            self._owner.spawn(self._serve())

    def arm(self) -> None:
        """Sleep until the line is due, as long as somebody is parked here."""
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
        """The alarm. The store's clock decides: if it is not time yet, sleep the rest."""
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
            await self._owner.store.unwatch(self.line)
        except DuelineError:
            pass  # the store forgets subscriptions with the connection; a stray wake-up costs nothing
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
        self.arm()

    def _claim(self) -> list[tuple[Waiter, int]]:
        """Take the credits of those whose turn is here, in order of arrival, up to one batch."""
        claim: list[tuple[Waiter, int]] = []
        room = BATCH_JOBS
        due = self.is_due()
        for waiter in self.queue:
            if waiter.asking is not None or waiter.future.done():
                continue
            if waiter.untried:
                if waiter.untried[0] is not self or (self._failures and waiter.until_s is not None and not due):
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
                await store.watch(self.line)
                self._watched = True
            announced_s = max(until_s + LINGER_S, self.announced_s) if until_s else self.announced_s
            wait_ms = max(1, int((announced_s - self._owner.timer.time()) * 1000)) if until_s else 0
            self._woken = False
            credits = tuple(Credit(credit, waiter.lease_ms) for waiter, credit in claim)
            pulled = await store.pull(self.line, Pull(credits, self.topic.lease_ms, wait_ms))
            self.announced_s = announced_s
        except Exception as error:
            self._failed(claim, error)
        else:
            self._answered(claim, pulled)

    def _answered(self, claim: list[tuple[Waiter, int]], pulled: Pulled) -> None:
        self.topic.figures.count_pulled(pulled.jobs, pulled.deaths, pulled.leases_lost)
        self._failures = 0
        self._on_duty = pulled.on_duty
        self._plan(pulled)
        spare: list[tuple[int | None, Held]] = []
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

    def _plan(self, pulled: Pulled) -> None:
        """When to ask again, from what the call said. A wake-up that came meanwhile may be younger than its answer."""
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
            # At least 1 ms: the store has just given nothing, whatever this process believes its clock to be.
            rest_ms = max(1, pulled.next_ms - self._owner.store.now_ms())
            self._expect(pulled.next_ms, now_s + rest_ms / 1000 + extra_s)

    def _hand_on(self, spare: list[tuple[int | None, Held]]) -> None:
        """Jobs pulled for waiters who are gone: to the next who asked for the same lease, else back to the store."""
        back: list[Held] = []
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
            self._owner.spawn(self._owner.give_back(self.line, back))

    def _failed(self, claim: list[tuple[Waiter, int]], error: Exception) -> None:
        """Who does not wait gets the error; who waits tries again after a back-off, until its own time is over."""
        back_off_s = min(FIRST_BACK_OFF_S * 2**self._failures, LAST_BACK_OFF_S)
        self._failures += 1
        self._expect(0, self._owner.timer.time() + back_off_s)
        if not isinstance(error, DuelineError):
            context = {"message": f"pull from {self.line} failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        for waiter, _ in claim:
            waiter.asking = None
            waiter.error = error
            if waiter.until_s is None or waiter.over or waiter.jobs:
                self._owner.finish(waiter)
            else:
                self._owner.proceed(waiter, self, filled=False, more=False)


class Waiters:
    """All waiters of this process. `place` is this process's among those that wait on one line, guessed."""

    def __init__(self, store: Store, timer: Timer, max_waiters: int, place: int | None = None) -> None:
        self.store = store
        self.timer = timer
        self.off_duty_s = OFF_DUTY_S * (random.randint(1, 4) if place is None else place)
        self._max_waiters = max_waiters
        self._lines: dict[Line, Waiting] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = False
        self._count = 0

    @property
    def count(self) -> int:
        """How many pulls are not answered yet."""
        return self._count

    def count_on(self, lines: Sequence[Line]) -> int:
        """How many waiters stand in the queues of these lines."""
        found: set[Waiter] = set()
        for line in lines:
            waiting = self._lines.get(line)
            if waiting is not None:
                found.update(waiting.queue)
        return len(found)

    def announced(self, lines: Sequence[Line]) -> bool:
        """Has this process told the store that somebody waits there, even if nobody does any more?"""
        now_s = self.timer.time()
        return any(line in self._lines and self._lines[line].announced_s > now_s for line in lines)

    async def pull(self, topics: Sequence[Topic], max: int, lease_ms: int | None, wait_ms: int) -> list[Held]:
        """Due jobs of these topics, in order of priority; waits up to wait_ms for the first one."""
        if self._draining:
            raise Draining
        if self._count >= self._max_waiters:
            raise RateLimited("too many pulls are waiting")
        until_s = self.timer.time() + wait_ms / 1000 if wait_ms else None
        waiter = Waiter(asyncio.get_running_loop().create_future(), topics, max, lease_ms, until_s)
        for topic in topics:
            self._join(waiter, topic)
        self._count += 1
        if until_s is not None:
            waiter.timeout = self.timer.call_later(wait_ms / 1000, lambda: self._timed_out(waiter))
        self._advance(waiter)
        try:
            return await waiter.future
        except asyncio.CancelledError:
            self._gone(waiter)
            raise

    def woken(self, line: Line) -> None:
        """The store's word that a line may have something now."""
        waiting = self._lines.get(line)
        if waiting is not None:
            waiting.woken()

    def widened(self, topic: Topic) -> None:
        """A topic has more lines than before: whoever waits on it waits on all of them."""
        waiters: dict[Waiter, None] = {}
        for line in topic.lines:
            waiting = self._lines.get(line)
            if waiting is not None:
                waiters.update(waiting.queue)
        for waiter in waiters:
            self._join(waiter, topic)
            if waiter.asking is None:
                self._advance(waiter)

    def drain(self) -> None:
        """Answer every parked pull with nothing and take no new ones."""
        self._draining = True
        waiters = {waiter: None for waiting in self._lines.values() for waiter in waiting.queue}
        for waiter in waiters:
            self._timed_out(waiter)

    async def stop(self) -> None:
        """Drain, and wait for the calls that are under way: what they bring is answered or given back."""
        self.drain()
        while self._tasks:
            await asyncio.wait(self._tasks)
        for waiting in self._lines.values():
            waiting.close()

    # -- the way of one waiter

    def _join(self, waiter: Waiter, topic: Topic) -> None:
        lines: list[Waiting] = []
        for line in topic.lines:
            waiting = self._lines.get(line)
            if waiting is None:
                waiting = self._lines[line] = Waiting(self, topic, line)
            if waiter in waiting.queue:
                continue
            waiting.queue[waiter] = None
            lines.append(waiting)
        if len(lines) > 1:
            random.shuffle(lines)  # among equals: no partition is always the last
            lines.sort(key=lambda waiting: float("inf") if waiting.wake_s is None else waiting.wake_s)
        waiter.lines.extend(lines)
        for waiting in lines:
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
            due = [waiting for waiting in waiter.lines if waiting.is_due()]
            if due:
                waiter.untried = due
                due[0].pump()
            else:
                for waiting in waiter.lines:
                    waiting.arm()

    def proceed(self, waiter: Waiter, asked: Waiting, filled: bool, more: bool) -> None:
        """After a call: answered, or on to the next line. `filled`: it got all that the call asked for it."""
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
        by_line: dict[Line, list[Held]] = {}
        topics = {topic.name: topic for topic in waiter.topics}
        for job in waiter.jobs:
            by_line.setdefault(topics[job.topic].line_of(job.id), []).append(job)
        for line, jobs in by_line.items():
            self.spawn(self.give_back(line, jobs))

    def _remove(self, waiter: Waiter) -> None:
        if waiter.timeout is not None:
            waiter.timeout.cancel()
            waiter.timeout = None
        lines, waiter.lines = waiter.lines, []
        for waiting in lines:
            del waiting.queue[waiter]
            waiting.left()
        if lines:
            self._count -= 1

    async def give_back(self, line: Line, jobs: Sequence[Held]) -> None:
        """Release jobs that nobody will work on, at once, without costing an attempt. If it fails, the lease ends."""
        releases = [Release(job.id, job.lease, delay_ms=0, count=False) for job in jobs]
        try:
            await self.store.release(line, releases)
        except DuelineError:
            pass

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def dropped(self, waiting: Waiting) -> None:
        """A line that nobody has asked for a while."""
        if self._lines.get(waiting.line) is waiting and not waiting.queue:
            del self._lines[waiting.line]

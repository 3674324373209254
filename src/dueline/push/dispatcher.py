"""The dispatcher of one topic: a consumer that handles each job by calling the push target.

    gate open? --pull, up to the number of free slots--> one task per job: call --> judge --> ack | release
        ^                                                                     |
        +--- paused; breaker open; no instance to call; no free slot <--- report

While the gate is closed nothing is pulled, so no job is leased and no attempt is spent. The store's pull enforces
concurrency and rate over all processes (`engine.push_target.limits_of`); this module counts only the slots of its own
process. A pull that is parked when the gate closes is cancelled.

The dispatcher learns from a job that no instance is available; that job is released without costing an attempt. It then
polls for an instance every second. It pulls again when one appears, or when no job waits any more (checked twice a
minute). So a topic without jobs polls for nothing, and a waiting job is leased once, not every second.

The result of a call is written to the store, with retries, until the store accepts it or the lease is lost. After a
lost lease nothing is written, because another consumer may have the job. A half-open breaker lets one job through in
this process, and its result decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from ..engine.commands import Pull
from ..engine.engine import Engine
from ..engine.errors import DuelineError, NotFound, RateLimited, StoreFull, Unavailable
from ..engine.job import LeasedJob
from ..engine.push_log import Attempt
from ..engine.push_target import Breaker, PushTopic
from ..engine.rounds import Rounds
from ..engine.store import Code, Extend
from ..engine.timer import LoopTimer, Timer
from ..lease_renewal import LeaseRenewal, LeaseRenewals, until_accepted
from .call import Call, Response
from .courier import Courier, Outcome, Verdict
from .delivery import Delivery, settle
from .hosts import Hosts
from .observer import NullObserver, PushObserver
from .reports import Reports

CONSUMER = "push"  # in the history of the jobs
LONG_S = 3600.0
LOOK_S = 1.0  # between two looks for an available instance
LOOKS = 30  # after this many looks, check whether a job still waits
WAIT_MS = 300_000
MARGIN_MS = 5_000  # how much longer a lease is than the call's time limit
LEASE_MS = 30_000  # for calls without a time limit; if this process dies, another one takes over after this time
FIRST_BACK_OFF_S, LAST_BACK_OFF_S = 0.1, 5.0


class Caller(Protocol):
    """Makes calls: `push.outgoing_calls.OutgoingCalls`, or a table in a test."""

    async def call(self, call: Call) -> Response: ...


class PushContext(msgspec.Struct, frozen=True):
    """What all dispatchers of a process share."""

    engine: Engine
    caller: Caller
    couriers: Mapping[str, Courier]
    hosts: Hosts
    timer: Timer = LoopTimer()
    watch: PushObserver = NullObserver()


class Dispatcher:
    """Use `start`, `stop`, and `retarget` when the topic's target has changed."""

    def __init__(self, push_topic: PushTopic, context: PushContext) -> None:
        self.push_topic = push_topic
        self._context = context
        self._engine = context.engine
        self._timer = context.timer
        self._name = (push_topic.namespace, push_topic.topic)
        self._reports = Reports(context.engine.store.pushes, *self._name, context.timer, self._reported)
        self._renewals = LeaseRenewals[LeaseRenewal[LeasedJob]](self._extend, DuelineError, context.timer)
        self._running: dict[asyncio.Task[None], LeaseRenewal[LeasedJob]] = {}
        self._calling: set[asyncio.Task[None]] = set()  # those that can still be aborted
        self._parked: asyncio.Task[list[LeasedJob]] | None = None
        back_off = (FIRST_BACK_OFF_S, LAST_BACK_OFF_S)
        self._rounds = Rounds(self._step, context.timer, f"the dispatcher failed: {'/'.join(self._name)}", back_off)
        self._loaded = False
        self._broken = False  # as last reported to the observer
        self._no_instance_until_s = 0.0
        self._looks: int | None = None  # since a job found no instance; None when none has
        self._hurried = asyncio.Event()

    @property
    def in_flight(self) -> int:
        return len(self._running)

    def start(self) -> None:
        self._context.watch.paused(*self._name, self.push_topic.target.paused)
        self._rounds.start()

    def retarget(self, push_topic: PushTopic) -> None:
        """Push to this target from now on. Calls in progress are not interrupted."""
        before, self.push_topic = self.push_topic.target, push_topic
        now = push_topic.target
        self._context.watch.paused(*self._name, now.paused)
        if before.address != now.address:
            self._loaded = False  # the breaker's state belongs to the previous target
            self._no_instance_until_s = 0.0
            self._looks = None
        self.nudge()

    def nudge(self) -> None:
        """Check the gate again, because something changed."""
        self._rounds.wake()
        if self._parked is not None and self._closed_s() is not None:
            self._parked.cancel()

    async def stop(self, drain_s: float | None) -> None:
        """Stop pulling. Calls in progress get `drain_s` to finish (None: no limit); the jobs of the remaining ones are
        released without costing an attempt."""
        self._rounds.end()
        self.nudge()
        await self._rounds.stop()
        if self._running:
            alarm = None if drain_s is None else self._timer.call_later(drain_s, self.hurry)
            if drain_s == 0:
                self.hurry()
            while self._running:
                await asyncio.wait(list(self._running))
            if alarm is not None:
                alarm.cancel()
        await self._renewals.stop()
        await self._reports.stop()
        self._context.watch.gone(*self._name)

    def hurry(self) -> None:
        """Abort the calls in progress; their jobs are released."""
        self._hurried.set()
        for task in self._calling:
            task.cancel()

    # -- one round

    async def _step(self) -> float:
        """Pull once if the gate is open. Returns how long to sleep unless nudged."""
        if not self._loaded:
            await self._reports.load()
            self._loaded = True
            self._tell_breaker()
        rest_s = self._closed_s()
        if rest_s is not None:
            return rest_s
        push_topic = self.push_topic
        if self._looks is not None and not await self._look(push_topic, self._looks + 1):
            return self._closed_s() or 0.0
        places = self._places()
        if places <= 0:
            return LONG_S  # the end of a call nudges
        limits = self._engine.limits
        timeout_ms = push_topic.target.timeout_ms
        lease_ms = min(LEASE_MS if timeout_ms is None else timeout_ms + MARGIN_MS, limits.max_lease_ms)
        wait_ms = min(WAIT_MS, limits.max_wait_ms)
        jobs = await self._pull(Pull(*self._topic, min(places, limits.max_pull), lease_ms, wait_ms, by=CONSUMER))
        if jobs and await self._opened():
            await self._engine.give_back(self._name[0], jobs)
            return self._closed_s() or 0.0
        for job in jobs:
            self._begin(self.push_topic, job, lease_ms)
        return 0.0 if jobs or wait_ms >= 1000 else LOOK_S

    async def _look(self, push_topic: PushTopic, looks: int) -> bool:
        """Whether to pull again after a job found no instance: yes if one is available, or if no job waits any more."""
        found = await self._courier.has_instance(push_topic)
        if not found and looks % LOOKS == 0:
            found = not await self._waited_for()
        if push_topic.target != self.push_topic.target:
            return False  # the answer was about the previous target: start over
        if found:
            self._looks, self._no_instance_until_s = None, 0.0
        else:
            self._wait_for_instance(push_topic, looks)
        return found

    def _wait_for_instance(self, push_topic: PushTopic, looks: int) -> None:
        """Pull nothing until an instance is available."""
        self._looks, self._no_instance_until_s = looks, self._timer.time() + LOOK_S
        self._context.watch.no_instance(*self._name, self._courier.why_unavailable(push_topic))

    async def _waited_for(self) -> bool:
        """Whether a job could be pushed now; True when that cannot be determined."""
        try:
            view = await self._engine.topic(*self._name)
        except NotFound:
            return False
        except DuelineError:
            return True
        return view.ready + view.leased > 0

    async def _opened(self) -> bool:
        """Whether other processes opened the breaker while this one had nothing to report."""
        if self._breaker is None or not self._reports.is_old:
            return False
        try:
            await self._reports.load()
        except DuelineError:
            return False  # the jobs are leased already: decide by the last known state
        self._tell_breaker()
        return self._closed_s() is not None

    def _reported(self) -> None:
        self._tell_breaker()
        self.nudge()

    def _tell_breaker(self) -> None:
        """Tell the observer if the breaker has opened or closed."""
        breaker, failures = self._breaker, self._reports.state.failures
        broken = breaker is not None and failures >= breaker.failures
        if broken != self._broken:
            self._broken = broken
            self._context.watch.breaker(*self._name, failures if broken else 0, None)

    @property
    def _courier(self) -> Courier:
        return self._context.couriers[self.push_topic.target.courier]

    @property
    def _topic(self) -> tuple[str, tuple[str, ...]]:
        return self._name[0], (self._name[1],)

    @property
    def _breaker(self) -> Breaker | None:
        """The topic's breaker. None if its jobs go to many targets, because breakers are then per host."""
        return None if self._courier.many_targets else self.push_topic.target.breaker

    def _closed_s(self) -> float | None:
        """How long the gate stays closed if nothing changes; None if this process believes that it is open."""
        if self._rounds.stopping or self.push_topic.target.paused:
            return LONG_S
        breaker, state = self._breaker, self._reports.state
        if breaker is not None and state.failures >= breaker.failures:
            rest_ms = state.open_until_ms - self._engine.store.now_ms()
            if rest_ms > 0:
                return rest_ms / 1000
        rest_s = self._no_instance_until_s - self._timer.time()
        return rest_s if rest_s > 0 else None

    def _places(self) -> int:
        """How many more jobs may be pulled."""
        breaker = self._breaker
        if breaker is not None and self._reports.state.failures >= breaker.failures:
            return 0 if self._running or self._reports.pending else 1  # half open: one job, whose result decides
        return self.push_topic.target.concurrency - len(self._running)

    async def _pull(self, pull: Pull) -> list[LeasedJob]:
        """Wait for jobs. If the gate closes meanwhile, returns no jobs, and the engine releases those that it has just
        leased."""
        self._parked = asyncio.get_running_loop().create_task(self._engine.pull(pull))
        try:
            await asyncio.wait([self._parked])
            return [] if self._parked.cancelled() else self._parked.result()
        finally:
            self._parked.cancel()
            self._parked = None

    # -- one job

    def _begin(self, push_topic: PushTopic, job: LeasedJob, lease_ms: int) -> None:
        renewal = self._renewals.add(LeaseRenewal(job, lease_ms))
        task = asyncio.get_running_loop().create_task(self._push(push_topic, renewal))
        self._running[task] = renewal
        self._calling.add(task)
        task.add_done_callback(self._ended)
        self._context.watch.in_flight(*self._name, len(self._running))

    async def _extend(self, renewals: Sequence[LeaseRenewal[LeasedJob]]) -> None:
        items = [Extend(renewal.job.id, renewal.job.lease, renewal.lease_ms) for renewal in renewals]
        for renewal, outcome in zip(renewals, await self._engine.extend(*self._name, items), strict=True):
            if outcome.code is not Code.OK:
                renewal.lose()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._renewals.remove(self._running.pop(task))
        self._calling.discard(task)
        self._context.watch.in_flight(*self._name, len(self._running))
        if not task.cancelled() and (error := task.exception()) is not None:
            self._complain("a push failed", error)
        self.nudge()

    async def _push(self, push_topic: PushTopic, renewal: LeaseRenewal[LeasedJob]) -> None:
        task = asyncio.current_task()
        assert task is not None
        courier = self._context.couriers[push_topic.target.courier]
        delivery = Delivery(
            push_topic,
            renewal.job,
            courier,
            self._context.caller,
            self._context.hosts,
            self._report,
            lambda failures, host: self._context.watch.breaker(*self._name, failures, host),
        )
        try:
            verdict = await delivery.run(self._engine.store.now_ms)
        except asyncio.CancelledError:
            verdict = Verdict(Outcome.NO_INSTANCE, delay_ms=0)  # the server stops
        except Exception as error:
            self._complain("a courier failed", error)
            verdict = Verdict(Outcome.RETRY, f"internal: {type(error).__name__}")
        self._calling.discard(task)
        if verdict.outcome is Outcome.NO_INSTANCE and verdict.delay_ms is None:
            self._wait_for_instance(push_topic, self._looks or 0)
            self.nudge()
        await self._settle(renewal, verdict)

    def _report(self, attempt: Attempt, failure: str | None) -> None:
        self._reports.add(attempt, self._breaker)
        self._context.watch.called(*self._name, attempt, failure)

    async def _settle(self, renewal: LeaseRenewal[LeasedJob], verdict: Verdict) -> None:
        """Apply the verdict, retrying until the store answers."""
        await until_accepted(
            renewal,
            lambda: settle(self._engine, self._name, renewal.job, verdict),
            (Unavailable, RateLimited, StoreFull),
            self._hurried,
            self._timer,
        )

    def _complain(self, message: str, error: BaseException) -> None:
        """Report a bug to the event loop's exception handler; the job continues by its retry policy."""
        context = {"message": f"{message}: {'/'.join(self._name)}", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)

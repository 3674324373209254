"""One running worker: lanes pull jobs, handlers run them, and their verdicts are reported to the queue.

    lane -> JobLease (renewed) -> middleware -> handlers, one after the other -> worst verdict -> ack or release

A job occupies its place until its handlers have ended. Three things end them early: their timeout (a failure), a lost
lease (the outcome is dropped, because another consumer may have the job), and the end of a stop's grace period (the job
is given back uncounted).
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from ..api.answers import LeasedJob
from ..client.errors import Unavailable
from ..client.tracing import HandlerSpan
from .acks import Acks
from .child import call_here
from .context import Context
from .handlers import Handler
from .lane import Lane
from .leases import Do, JobLease, Leases
from .metrics import WorkerMetrics
from .outcomes import Ending, TimedOut, Verdict, summary, verdict_of, worst
from .processes import Processes
from .queue import Queue
from .settler import Settler
from .threads import Threads

CANCEL_S = 5.0  # how long a cancelled coroutine may take to end
CHILD_START_S = 120.0  # how long a child process may take to import its handler
LAST_WORDS_S = 5.0  # how long the last acks and releases of a stop may take

_WELL = ("done", "snoozed", "given_back")  # outcomes that are not errors

log = logging.getLogger("dueline.worker")

CallNext = Callable[[Context], Coroutine[Any, Any, Verdict]]
Middleware = Callable[[Context, CallNext], Awaitable[Verdict | None]]


class Settings(msgspec.Struct, frozen=True):
    """How a worker runs. `places`: how many jobs at a time, by mode. `call`: runs plain functions instead of threads
    and processes; `do`: how these functions wait for the queue (see worker.host)."""

    places: Mapping[str, int]
    lease_ms: int
    middleware: tuple[Middleware, ...] = ()
    token: str | None = None
    call: Callable[[Callable[[], Any]], Awaitable[Any]] | None = None
    do: Do | None = None
    name: str | None = None  # for the history of the jobs
    prefetch: int = 0  # how many jobs each lane may pull ahead
    ack_within_ms: int = 0  # how long an ack may wait for others


class Runner:
    """Runs handlers, by topic, on a queue. Call `start`, then `stop`; it cannot be started again."""

    def __init__(
        self, queue: Queue, handlers: Mapping[str, Sequence[Handler]], settings: Settings, metrics: WorkerMetrics
    ) -> None:
        self._queue = queue
        self._metrics = metrics
        self._handlers = handlers
        self._settings = settings
        self._stopping = False
        self._cut = asyncio.Event()
        self._cutting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leases = Leases(queue, settings.lease_ms, lambda: self._stopping, settings.do)
        self._acks = Acks(
            queue, settings.ack_within_ms / 1000, lambda: any(one.in_hand for one in self._lanes.values())
        )
        self._settler = Settler(queue, self._acks, self._cut)
        self._threads = Threads()
        self._processes = Processes(queue, settings.token)
        self._run_job = functools.reduce(_wrapped, reversed(settings.middleware), self._all_handlers)
        self._lanes: dict[str, Lane] = {}
        self._pulling: list[asyncio.Task[None]] = []
        self._running: dict[asyncio.Task[None], JobLease] = {}
        self._since_ms: dict[asyncio.Task[None], int] = {}
        self._returning: set[asyncio.Task[None]] = set()  # jobs that never got a place

    def jobs(self) -> list[tuple[str, str, int]]:
        """What is running: topic, id and since when, on this machine's clock; the oldest first."""
        return [(one.job.topic, one.job.id, self._since_ms[task]) for task, one in self._running.items()]

    @property
    def running(self) -> int:
        """How many jobs are running."""
        return len(self._running)

    @property
    def stopping(self) -> bool:
        return self._stopping

    @property
    def trouble(self) -> str | None:
        """Why jobs cannot be pulled at the moment, if that is so."""
        return next((lane.trouble for lane in self._lanes.values() if lane.trouble is not None), None)

    async def start(self) -> None:
        try:
            await self._queue.start()
        except Unavailable as away:  # the lanes keep trying
            log.warning("the queue is unavailable: %s", away)
        loop = asyncio.get_running_loop()
        lanes = [self._lane(topics, places) for topics, places in lanes_of(self._handlers, self._settings.places)]
        self._lanes = {topic: lane for lane in lanes for topic in lane.topics}
        self._pulling = [loop.create_task(lane.run(), name=f"pull {lane.topics}") for lane in lanes]
        for task in self._pulling:
            task.add_done_callback(_complain)

    def _lane(self, topics: Sequence[str], places: int) -> Lane:
        settings, calls = self._settings, (self._lease, self._begin, self._give_back)
        return Lane(
            self._queue, self._acks, topics, places, settings.lease_ms, *calls, settings.prefetch, settings.name
        )

    async def stop(self, grace_s: float) -> None:
        """Stop pulling, let handlers continue for `grace_s`, then give the remaining jobs back uncounted."""
        self._stopping = True
        for task in self._pulling:
            task.cancel()
        self._processes.stopping()
        await asyncio.gather(*self._pulling, return_exceptions=True)
        for lane in set(self._lanes.values()):
            lane.stop()
        self._acks.hurry()
        if self._running:
            await _until({self._cutting}, set(self._running), grace_s)
        self.cut()
        if self._running:
            log.info("giving %d jobs back", len(self._running))
        if self._running or self._returning:
            _, silent = await asyncio.wait({*self._running, *self._returning}, timeout=CANCEL_S + LAST_WORDS_S)
            for task in silent:  # the queue is unavailable: the leases will expire
                task.cancel()
        await self._leases.stop()
        self._threads.stop()
        await self._processes.stop()

    def cut(self) -> None:
        """End the grace period of a stop."""
        self._cut.set()
        if not self._cutting.done():
            self._cutting.set_result(None)

    # --- one job ----------------------------------------------------------------------------------------------------

    def _lease(self, job: LeasedJob) -> JobLease:
        return self._leases.add(JobLease(job, self._leases))

    def _begin(self, lane: Lane, lease: JobLease) -> None:
        task = asyncio.get_running_loop().create_task(self._work(lane, lease))
        self._running[task] = lease
        self._since_ms[task] = int(time.time() * 1000)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._leases.remove(self._running.pop(task))
        self._since_ms.pop(task, None)
        _complain(task)

    def _give_back(self, leases: Sequence[JobLease]) -> None:
        """Give back jobs that never got a place."""
        log.info("giving %d jobs back that were pulled ahead", len(leases))
        task = asyncio.get_running_loop().create_task(self._settler.give_all_back(leases))
        self._returning.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._returning.discard(task)
            for lease in leases:
                self._leases.remove(lease)
            _complain(task)

        task.add_done_callback(ended)

    async def _work(self, lane: Lane, lease: JobLease) -> None:
        with HandlerSpan(lease.job) as span:
            await self._worked(lane, lease, span)

    async def _worked(self, lane: Lane, lease: JobLease, span: HandlerSpan) -> None:
        job, loop = lease.job, asyncio.get_running_loop()
        begin_s, outcome = loop.time(), "given_back"
        self._metrics.begun(job.topic)
        try:
            verdict = await self._verdict(lease)
            if lease.is_lost:
                outcome = "lost"
            elif verdict is not None:
                outcome = verdict.ending.name.lower()
            span.ended(None if outcome in _WELL else outcome, None if verdict is None else summary(verdict.error))
        finally:
            spent_s = loop.time() - begin_s
            self._metrics.ended(job.topic, outcome, spent_s)
            lane.leave(spent_s)
        if lease.is_lost:
            log.warning("%s %s: the lease is lost, the outcome is dropped", job.topic, job.id)
        elif verdict is None:
            await self._settler.give_back(lease)
        else:
            if verdict.ending is Ending.FAILED:
                log.warning("%s %s failed at attempt %d: %s", job.topic, job.id, job.attempt, summary(verdict.error))
            await self._settler.settle(lease, verdict)

    async def _verdict(self, lease: JobLease) -> Verdict | None:
        """The verdict on the job; None: it must be given back, or its lease was lost."""
        if lease.is_lost:  # while it waited for a place
            return None
        context = Context(lease.job, lease)
        work = asyncio.get_running_loop().create_task(self._run_job(context))
        await asyncio.wait({work, lease.lost, self._cutting}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            await asyncio.wait({work}, timeout=CANCEL_S)
            if not work.done() or work.cancelled():
                return None
        if work.cancelled():
            return Verdict(Ending.FAILED, error="the handler was cancelled from inside")
        error = work.exception()
        return verdict_of(error) if error is not None else work.result()

    async def _all_handlers(self, context: Context) -> Verdict:
        """Run all handlers, even when one fails. The worst verdict counts."""
        return worst([await self._run(handler, context) for handler in self._handlers[context.topic]])

    async def _run(self, handler: Handler, context: Context) -> Verdict:
        limit = _Limit(handler, handler.mode == "process" and self._settings.call is None)
        try:
            async with limit.timeout:
                return await self._called(handler, context, limit)
        except TimeoutError as error:
            return verdict_of(TimedOut(limit.text()) if limit.timeout.expired() else error)
        except Exception as error:
            return verdict_of(error)
        except (SystemExit, KeyboardInterrupt) as error:  # a handler must not end the worker
            return verdict_of(RuntimeError(f"the handler raised {error!r}"))

    async def _called(self, handler: Handler, context: Context, limit: _Limit) -> Verdict:
        if handler.mode == "async":
            return verdict_of(await handler.invoke(context.job, context))
        if self._settings.call is not None:
            return verdict_of(await self._settings.call(lambda: call_here(handler, context.job, context)))
        if handler.mode == "thread":
            lane = self._lanes[handler.topic]
            return verdict_of(await self._threads.run(lambda: call_here(handler, context.job, context), lane))
        lease: Any = context.lease
        return await self._processes.run(handler.location, lease, limit.begun)


class _Limit:
    """The time limit of a handler. The start of a child process has a limit of its own."""

    def __init__(self, handler: Handler, in_child: bool) -> None:
        self._handler = handler
        self._has_begun = not in_child
        self.timeout = asyncio.timeout(handler.timeout_s if self._has_begun else CHILD_START_S)

    def begun(self) -> None:
        timeout_s, self._has_begun = self._handler.timeout_s, True
        if not self.timeout.expired():
            self.timeout.reschedule(None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s)

    def text(self) -> str:
        if self._has_begun:
            return f"{self._handler.name} did not end within {self._handler.timeout_s:g} s"
        return f"the process for {self._handler.name} did not begin within {CHILD_START_S:g} s"


def lanes_of(handlers: Mapping[str, Sequence[Handler]], places: Mapping[str, int]) -> list[tuple[list[str], int]]:
    """The topics of each lane and its number of places. A topic with its own concurrency gets its own lane; the others
    share a lane by their heaviest mode."""
    found: list[tuple[list[str], int]] = []
    shared: dict[str, list[str]] = {"async": [], "thread": [], "process": []}
    for topic, several in handlers.items():
        own = [handler.places for handler in several if handler.places is not None]
        if own:
            found.append(([topic], min(own)))
        else:
            modes = {handler.mode for handler in several}
            shared["process" if "process" in modes else "thread" if "thread" in modes else "async"].append(topic)
    return found + [(topics, places[mode]) for mode, topics in shared.items() if topics]


def _wrapped(inner: CallNext, middleware: Middleware) -> CallNext:
    """`middleware` around `inner`. Its result counts; if it returns None, the inner result does."""

    async def outer(context: Context) -> Verdict:
        seen: list[Verdict] = []

        async def call_next(context: Context) -> Verdict:
            verdict = await inner(context)
            seen.append(verdict)
            return verdict

        try:
            verdict = await middleware(context, call_next)
        except Exception as error:
            return verdict_of(error)
        except (SystemExit, KeyboardInterrupt) as error:  # like a handler, it must not end the worker
            return verdict_of(RuntimeError(f"a middleware raised {error!r}"))
        if verdict is not None:
            return verdict
        if not seen:
            return Verdict(Ending.FAILED, error="a middleware neither called the next one nor returned a verdict")
        return seen[-1]

    return outer


async def _until(first: set[asyncio.Future[None]], all_of: set[asyncio.Task[None]], timeout_s: float) -> None:
    """Wait until all of `all_of` have ended, one of `first` has, or the time is over."""
    every = asyncio.ensure_future(asyncio.wait(all_of))
    await asyncio.wait({*first, every}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    every.cancel()


def _complain(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a part of the worker failed", exc_info=error)

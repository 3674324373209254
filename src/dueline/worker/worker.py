"""A Python worker: its handlers by topic, and its life cycle.

    worker = Worker("redis://127.0.0.1:6379")

    @worker.handles("order.close", max_attempts=5, retry=["10s", "1m", "10m"], timeout="30s")
    async def close_order(order: Order) -> None: ...

    close_order.send(Order(7), delay="30m")          # anywhere, even where no worker runs
    worker.run()                                     # until SIGTERM or Ctrl-C

Hooks (`on_startup`, `on_shutdown`) run before the first job and after the last one. `health` is an address for probes
and Prometheus.

The constructor opens nothing; the first send or `start` does. Sends use the connection of the running worker if there
is one, else a queue in a background thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Sequence
from types import ModuleType, TracebackType
from typing import Any, ParamSpec, TypeVar, Unpack, cast

from ..client.schedule_api import DeclaredOptions
from ..client.sending import Policy, RetryRule, with_attempts
from ..client.times import Duration, duration_ms
from .context import refuse_in_loop
from .handle import Handle
from .handlers import Handler, HandlerLocation, Mode, handler_of
from .health import HealthPort, Reason, health_address
from .hooks import Hooks
from .host import Host
from .locations import check_location
from .log import show_log
from .metrics import WorkerMetrics
from .queue import Queue, connect
from .reports import TakesReports, WorkerReports, worker_name
from .runner import Middleware, Runner, Settings
from .schedules import WorkerSchedules
from .sync import SyncQueue
from .tasks import TaskWorker, find_tasks, task_handler
from .topic_policies import TopicPolicies

P = ParamSpec("P")
T = TypeVar("T")
Hook = TypeVar("Hook", bound=Callable[[], Any])

LEASE = "30s"
GRACE = "20s"
PREFETCH, MAX_PREFETCH = 100, 500
ACK_WITHIN = "5ms"
PROPOSAL_S = 1.0  # how long `start` waits for the policy proposals; after that they continue in the background
LET_GO_S = 0.5  # how long a start that is being cancelled may take to close its connection

log = logging.getLogger("dueline.worker")


class Worker:
    """Handlers, and the queue that their jobs come from."""

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str | None = None,
        token: str | None = None,
        queue: Queue | None = None,
        concurrency: int = 100,
        threads: int = 10,
        processes: int | None = None,
        lease: Duration = LEASE,
        grace: Duration = GRACE,
        prefetch: int = PREFETCH,
        ack_within: Duration = ACK_WITHIN,
        middleware: Sequence[Middleware] = (),
        modules: Sequence[str | ModuleType] = (),
        health: str | None = None,
        name: str | None = None,
    ) -> None:
        """`url`: a server (http://), a store (redis://, valkey://, unix://) or embedded:FOLDER; defaults to DUELINE_URL
        or else http://127.0.0.1:9277. `queue`: an existing queue to use instead.

        `concurrency`, `threads`, `processes`: how many jobs run at a time in coroutines, threads and processes (default
        for processes: one per processor). `lease`: renewed automatically while a handler runs; if this process is
        killed, its jobs are redelivered after this time. `grace`: how long handlers may continue when the worker stops.
        `prefetch`: how many jobs it may pull ahead while jobs are quick; 0: none. `ack_within`: how long an ack may
        wait for others, so that they share a call; 0: each is sent at once.
        `modules`: modules with TaskWorker classes. `health`: HOST:PORT for /healthz, /readyz and /metrics.
        `name`: written into the schedules that this worker declares, so that `prune_schedules` knows them; also shown
        by `dueline workers`."""
        self._url = url
        self._namespace = namespace
        self._token = token
        self._queue_or_url = queue
        self._places = {"async": concurrency, "thread": threads, "process": processes or os.cpu_count() or 1}
        if min(self._places.values()) < 1:
            raise ValueError("concurrency, threads and processes must be at least 1")
        self._lease_ms = duration_ms(lease, "lease")
        if self._lease_ms < 1000:
            raise ValueError("lease: must be at least 1 second, because it is renewed at a third of its length")
        self._grace_s = duration_ms(grace, "grace") / 1000
        if not 0 <= prefetch <= MAX_PREFETCH:
            raise ValueError(f"prefetch: must be 0 to {MAX_PREFETCH}, is {prefetch}")
        self._prefetch = prefetch
        self._ack_within_ms = duration_ms(ack_within, "ack_within")
        if self._ack_within_ms > self._lease_ms / 10:
            raise ValueError(
                "ack_within: must be at most a tenth of the lease, because an ack that waits is not stored"
            )
        self._middleware = tuple(middleware)
        self._modules = tuple(modules)
        self._health: HealthPort | None = None
        self._hooks = Hooks()
        self._metrics = WorkerMetrics()
        self._handlers: dict[str, list[Handler]] = {}
        self._bound: set[type[TaskWorker]] = set()
        self._host: Host | None = None
        self._outside: SyncQueue | None = None
        self._queue: Queue | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runner: Runner | None = None
        self._ending: asyncio.Event | None = None
        self._on_stop: list[Callable[[], None]] = []
        if health is not None:
            self.show_health(health)
        self._proposal: asyncio.Task[None] | None = None
        self.topic_policies = TopicPolicies()
        self._schedules = WorkerSchedules(name)
        self._name = name
        self._reports: WorkerReports | None = None

    # --- what is handled --------------------------------------------------------------------------------------------

    def handles(
        self,
        topic: str,
        *,
        mode: Mode | None = None,
        timeout: Duration | None = None,
        concurrency: int | None = None,
        max_attempts: int | None = None,
        retry: RetryRule | None = None,
        lease: Duration | None = None,
        ttl: Duration | None = None,
    ) -> Callable[[Callable[P, T]], Handle[P, T]]:
        """The decorated function handles the jobs of `topic`. A topic may have several handlers; all run, in order.

        `mode`: coroutines run in the event loop and plain functions in threads; "process" runs either in child
        processes. `timeout`: a longer run counts as failed. `concurrency`: how many jobs of this topic run at a time,
        separately from its mode's limit. `max_attempts`, `retry`, `lease`, `ttl`: the topic's policy, for jobs from any
        sender, unless an operator has set these values. All handlers of a topic must agree on it."""
        if callable(topic):
            raise TypeError(f'name the topic, such as @worker.handles("{getattr(topic, "__name__", "order.close")}")')
        given = {"max_attempts": max_attempts, "retry": retry, "lease": lease, "ttl": ttl}
        policy = cast("Policy", with_attempts({name: value for name, value in given.items() if value is not None}))

        def decorate(function: Callable[P, T]) -> Handle[P, T]:
            inner = cast("Handle[P, T]", function) if isinstance(function, Handle) else None
            plain: Any = function if inner is None else inner.function
            location = HandlerLocation(plain.__module__, plain.__qualname__)
            handler = handler_of(topic, plain, location, mode, timeout, concurrency)
            self.topic_policies.add(topic, policy)
            self._add(handler)
            return Handle(self, handler, plain, inner)

        return decorate

    def schedule(
        self, name: str | None = None, body: Any = None, **options: Unpack[DeclaredOptions]
    ) -> Callable[[Handle[P, T]], Handle[P, T]]:
        """Send a job with `body` to the handler below at each occurrence. Written above `@worker.handles`.

        `name`: of the schedule; default: the topic. Options as in `Client.put_schedule`: `cron` with `tz`, or `every`;
        `starts_at`, `ends_at`, `jitter`, `misfire`, `overlap`; and the policy of its jobs. The schedule is written when
        a worker starts, unless the queue already has the same one."""

        def decorate(handle: Handle[P, T]) -> Handle[P, T]:
            if not isinstance(handle, Handle):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError("write @worker.schedule above @worker.handles, which names the topic")
            self._schedules.add(name or handle.topic, handle.topic, body, options)
            return handle

        return decorate

    def prune_schedules(self) -> None:
        """At the start, delete schedules that a worker of this name wrote earlier and that are no longer in its code.
        Raises ValueError if the worker has no name."""
        if self._schedules.owner is None:
            raise ValueError('give the worker a name, such as Worker(name="billing"), before you prune its schedules')
        self._schedules.prune = True

    def bind(self, *kinds: type[TaskWorker]) -> None:
        """Bind TaskWorker classes: each handles the topic named by its `type`. Classes already bound are skipped."""
        for kind in kinds:
            if kind not in self._bound:
                self._add(task_handler(kind))
                self._bound.add(kind)

    def find(self, *modules: str | ModuleType) -> list[type[TaskWorker]]:
        """Import modules (packages recursively) and bind the TaskWorker classes that they define."""
        kinds = find_tasks(modules)
        self.bind(*kinds)
        return kinds

    def _add(self, handler: Handler) -> None:
        if self._runner is not None:
            raise RuntimeError("the worker is running: add handlers before it starts")
        self._handlers.setdefault(handler.topic, []).append(handler)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it handles."""
        return tuple(self._handlers)

    # --- life -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until SIGTERM or SIGINT, then stop gracefully; a second signal ends the grace period. A worker that is
        still connecting stops at once. If the program has not configured logging, the worker logs to stderr."""
        show_log()
        asyncio.run(self.serve())

    async def serve(self) -> None:
        """`run` for an event loop in the main thread."""
        loop = asyncio.get_running_loop()
        self._ending = asyncio.Event()
        signals = (signal.SIGTERM, signal.SIGINT)
        for number in signals:
            loop.add_signal_handler(number, self.end)
        try:
            try:
                await self._start_until(self._ending)
                await self._ending.wait()
            finally:
                await self.stop()
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    async def _start_until(self, ending: asyncio.Event) -> None:
        """Start, or give up when `ending` is set, because connecting to an unavailable queue may take long."""
        starting, stop = asyncio.ensure_future(self.start()), asyncio.ensure_future(ending.wait())
        try:
            done, _ = await asyncio.wait({starting, stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
            while not starting.done():  # it gets a moment to clean up; a clean-up that takes longer is cancelled too
                starting.cancel()
                await asyncio.wait({starting}, timeout=LET_GO_S)
        if starting in done:
            starting.result()
        elif not starting.cancelled():
            starting.exception()  # retrieved, so that asyncio does not log it

    def end(self) -> None:
        """Make `serve` stop; a second call ends the grace period. Call it in the event loop's thread."""
        if self._ending is not None and not self._ending.is_set():
            log.info("stopping")
            self._ending.set()
        elif self._runner is not None:
            self._runner.cut()

    async def start(self) -> None:
        """Connect and begin to pull. Raises DuelineApiError if the queue cannot be used, ValueError for handlers that
        cannot run."""
        if self._host is not None and not self._host.here:  # such as the lifespan of an application in a test
            return await self._host.on_loop(self.start())
        if self._runner is not None:
            return
        self.find(*self._modules)
        if not self._handlers:
            raise ValueError("the worker handles nothing: decorate functions with @worker.handles or name modules")
        if self._host is None:
            for handler in (one for several in self._handlers.values() for one in several if one.mode == "process"):
                check_location(handler)
        given = self._queue_or_url if self._host is None else self._host.queue
        # The thread of this loop lasts as long as the worker, so it may start an embedded store.
        queue = given or connect(self._url, self._namespace, self._token, any_thread=True)
        runner = Runner(queue, self._handlers, self._settings(), self._metrics)
        self._queue, self._loop = queue, asyncio.get_running_loop()  # hooks may send
        try:
            if self._health is not None and self._host is None:
                await self._health.start()
            await self._hooks.start(self._call)
            await runner.start()
        except BaseException:
            await self._end(queue)
            raise
        self._runner = runner
        self._proposal = self._loop.create_task(self._declare(queue))
        await asyncio.wait({self._proposal}, timeout=PROPOSAL_S)
        if self._host is None and isinstance(queue, TakesReports):
            modes = {handler.mode for several in self._handlers.values() for handler in several}
            places = sum(self._places[mode] for mode in modes)
            self._reports = WorkerReports(queue, worker_name(self._name), self.topics, places, runner.jobs)
            self._reports.start()
        log.info("working on %s", ", ".join(self._handlers))

    async def _declare(self, queue: Queue) -> None:
        """Write what the handlers declare about their topics and schedules."""
        await self.topic_policies.propose_all(queue)
        await self._schedules.write_all(queue)

    async def stop(self, grace: Duration | None = None) -> None:
        """Stop pulling, let handlers continue for `grace`, give the remaining jobs back uncounted, and disconnect."""
        if self._host is not None and not self._host.here:
            return await self._host.on_loop(self.stop(grace))
        runner, queue = self._runner, self._queue
        if runner is None or queue is None:
            return
        for callback in self._on_stop:
            callback()
        if self._proposal is not None:
            self._proposal.cancel()
        try:
            await runner.stop(self._grace_s if grace is None else duration_ms(grace, "grace") / 1000)
            if self._reports is not None:
                await self._reports.stop()
        finally:
            await self._end(queue)

    async def _end(self, queue: Queue) -> None:
        """Clean up after the last job, or after a failed start."""
        try:
            await self._hooks.stop(self._call)
        finally:
            if self._health is not None:
                self._health.stop()
            self._runner = self._queue = self._loop = None
            if self._queue_or_url is None and self._host is None:
                await queue.close()

    async def _call(self, function: Callable[[], Any]) -> Any:
        """Run a plain function where it may block."""
        return await (asyncio.to_thread(function) if self._host is None else self._host.call(function))

    def on_startup(self, hook: Hook) -> Hook:
        """Call this function or coroutine function before the first job, on each start; usable as a decorator. Hooks
        run in the order they were added. A hook that raises keeps the worker from starting."""
        self._hooks.startup.append(hook)
        return hook

    def on_shutdown(self, hook: Hook) -> Hook:
        """Call this function or coroutine function after the last job, while the queue still accepts sends; usable as
        a decorator. Hooks run in reverse order, even when one raises."""
        self._hooks.shutdown.append(hook)
        return hook

    def show_health(self, address: str) -> None:
        """Serve /healthz, /readyz and /metrics at HOST:PORT while the worker runs. Raises ValueError."""
        health_address(address)
        self._health = HealthPort(address, self._reasons, self._metrics.page)

    def _reasons(self) -> list[Reason]:
        """Why the worker is not ready; empty when it is."""
        if self._runner is None:
            return [Reason("starting", "the worker is starting")]
        if self._runner.stopping:
            return [Reason("draining", "the worker is stopping")]
        trouble = self._runner.trouble
        return [] if trouble is None else [Reason("queue", f"jobs cannot be pulled: {trouble}")]

    def on_stop(self, callback: Callable[[], None]) -> None:
        """Call this function when a stop begins, before the grace period."""
        self._on_stop.append(callback)

    async def __aenter__(self) -> Worker:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def close(self) -> None:
        """Close the background connection that sends use while no worker runs. The next send opens it again."""
        outside, self._outside = self._outside, None
        if outside is not None:
            outside.close()

    def live_in(self, host: Host | None) -> None:
        """Use the queue and threads of a host instead of own ones; None: own ones again. Not while it runs."""
        if self._runner is not None:
            raise RuntimeError("the worker is running: stop it first")
        self._host = host

    def _settings(self) -> Settings:
        name, host = worker_name(self._name), self._host
        if host is None:
            own = (self._prefetch, self._ack_within_ms)
            return Settings(self._places, self._lease_ms, self._middleware, self._token, None, None, name, *own)
        middleware = (*host.middleware, *self._middleware)
        return Settings(self._places, self._lease_ms, middleware, self._token, host.call, host.do, name)

    # --- sending ----------------------------------------------------------------------------------------------------

    def do(self, ask: Callable[[Queue], Coroutine[Any, Any, T]], instead: str) -> T:
        """Run an operation on the queue and wait for its result, in a thread without an event loop."""
        refuse_in_loop(instead)
        if self._host is not None:
            return self._host.do(ask)
        loop, queue = self._loop, self._queue
        if loop is not None and queue is not None:
            return asyncio.run_coroutine_threadsafe(ask(queue), loop).result()
        return self._sync().do(ask)

    async def ado(self, ask: Callable[[Queue], Coroutine[Any, Any, T]]) -> T:
        """Run an operation on the queue, from any event loop."""
        if self._host is not None:
            return await self._host.ado(ask)
        loop, queue = self._loop, self._queue
        if loop is not None and queue is not None:
            if loop is asyncio.get_running_loop():
                return await ask(queue)
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(ask(queue), loop))
        if self._queue_or_url is not None:
            return await ask(self._queue_or_url)
        return await asyncio.wrap_future(self._sync().submit(ask))

    def join_queue(self, url: str | None, namespace: str | None, token: str | None, keep: bool = False) -> None:
        """Use another queue: the parent's in a child process, or the one named on a command line. None changes nothing.
        `keep`: values that the program itself has set take precedence."""
        own, new = (self._url, self._namespace, self._token), (url, namespace, token)
        first, second = (own, new) if keep else (new, own)
        self._url, self._namespace, self._token = (a or b for a, b in zip(first, second, strict=True))

    def _sync(self) -> SyncQueue:
        if self._queue_or_url is not None:
            raise RuntimeError("this worker's queue belongs to an event loop: start the worker, or use the async form")
        if self._outside is None:
            self._outside = SyncQueue(self._url, self._namespace, self._token)
        return self._outside

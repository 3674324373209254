"""A whole queue inside a test, in virtual time: the real engine and API on the reference store. For tests only.

    with VirtualQueue() as queue:
        queue.work(worker)                                        # handlers run when time passes
        queue.client.send("reminders", {"user": 7}, delay="15d")
        queue.clock.advance("15d")
        assert queue.recorder.bodies("reminders") == [{"user": 7}]

Nothing is kept after `close`: the memory store is the readable model that the real store is compared with, and is not
meant for production. There is no socket, no process and no sleep; fifteen days take only as long as the work in them.

Time stands still between the calls of a test. A client call returns when it is answered and all its immediate
consequences have happened, handlers included. Coroutines run on the queue's own event loop, plain functions in the
test's thread (see `virtual_loop`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar

from ..api.answers import Info
from ..api.reply import Reply
from ..client.calls import Call
from ..client.in_process import Ask
from ..client.times import Duration, Moment, duration_ms, moment_ms
from ..dialects.native.api import NativeApi
from ..durations import datetime_of
from ..engine.limits import Limits
from ..engine.timer import Handle
from ..runtime.runtime import Runtime
from ..store.memory import MemoryStore
from ..worker import Worker
from .flaky import FlakyStore, Trouble
from .hosting import VirtualHost, patient_queue
from .local_client import LocalAsyncClient, LocalClient
from .recorder import Recorder, RecordingEngine
from .virtual_loop import GRACE_S, VirtualLoop

T = TypeVar("T")

NEVER_MS = 50 * 366 * 86_400_000
LIMITS = Limits(max_wait_ms=NEVER_MS)  # there are no connections to time out: a worker's pull waits as long as it takes


class QueueClock:
    """A queue's clock, which moves only when the test moves it."""

    def __init__(self, loop: VirtualLoop, start_ms: int) -> None:
        self._loop = loop
        self._start_ms = start_ms

    def __call__(self) -> int:
        return self.now_ms

    @property
    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return self._start_ms + round(self._loop.time() * 1e6) // 1000

    @property
    def now(self) -> datetime:
        """The time in UTC. It starts at the real time, so that it agrees with programs that read the real clock."""
        return datetime_of(self.now_ms)

    def advance(self, by: Duration = 0) -> None:
        """Let time pass ("30d", seconds, a timedelta). Everything that becomes due happens at its time, in order.
        Returns when nothing is left to do."""
        end_ms = self.now_ms + duration_ms(by, "by")
        self._loop.pass_time(max(0.0, (end_ms - self._start_ms) / 1000 - self._loop.time()))

    def advance_to(self, moment: Moment) -> None:
        """Let time pass until `moment`; do nothing if that is in the past."""
        self.advance(max(0, moment_ms(moment, "moment") - self.now_ms) / 1000)

    async def async_advance(self, by: Duration = 0) -> None:
        """`advance` for tests that are coroutines of another event loop."""
        await asyncio.to_thread(self.advance, by)


class _LoopTimer:
    """The engine's timers on the virtual loop."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def time(self) -> float:
        return self._loop.time()

    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> Handle:
        return self._loop.call_later(delay_s, callback)


class VirtualQueue:
    """A queue in virtual time. `start` is its start time; the default is the real time. `trouble` injects faults into
    its store (`flaky`). `namespace_ids` lists the namespaces whose ids are unique over all topics. Use it in a with
    block, or call `open` and `close`."""

    def __init__(
        self,
        start: Moment | None = None,
        trouble: Trouble | None = None,
        namespace_ids: frozenset[str] = frozenset(),
        limits: Limits = LIMITS,
        grace_s: float = GRACE_S,
    ) -> None:
        start_ms = int(time.time()) * 1000 if start is None else moment_ms(start, "start")
        self.loop = VirtualLoop(grace_s)
        self.clock = QueueClock(self.loop, start_ms)
        self.recorder = Recorder()
        self.store = FlakyStore(MemoryStore(self.clock), trouble or Trouble())
        self._limits, self._namespace_ids = limits, namespace_ids
        self._clients: dict[str, tuple[LocalClient, LocalAsyncClient]] = {}
        self._engine: RecordingEngine | None = None
        self._runtime: Runtime | None = None
        self._api: NativeApi | None = None
        self._hosts: list[VirtualHost] = []
        self._workers: list[Worker] = []
        self.loop.attentive = lambda: any(host.running for host in self._hosts)

    def __enter__(self) -> VirtualQueue:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Start the loop, the store and the engine."""
        if self._engine is None:
            self.loop.start()
            self.run(self._open())

    def close(self) -> None:
        """Stop everything. It may be called twice."""
        if self._engine is not None and not self.loop.is_closed():
            self.store.calm()
            # Handlers that have not started yet are cancelled with their worker.
            self.loop.wait_for(asyncio.run_coroutine_threadsafe(self._close(), self.loop), errands=False)
        self.loop.end()

    @property
    def engine(self) -> RecordingEngine:
        assert self._engine is not None, "the queue is not open"
        return self._engine

    # -- clients

    @property
    def client(self) -> LocalClient:
        """A `dueline.Client` of this queue."""
        return self.clients("default")[0]

    @property
    def async_client(self) -> LocalAsyncClient:
        """A `dueline.AsyncClient` of this queue, usable in any event loop."""
        return self.clients("default")[1]

    def clients(self, namespace: str) -> tuple[LocalClient, LocalAsyncClient]:
        """The two clients of a namespace."""
        if namespace not in self._clients:
            ask = self.api(namespace)
            self._clients[namespace] = LocalClient(self.loop, ask), LocalAsyncClient(self.loop, ask)
        return self._clients[namespace]

    def api(self, namespace: str = "default") -> Ask:
        """The API that the clients of a namespace call."""
        api = self._api
        assert api is not None, "the queue is not open"

        def ask(call: Call[Any]) -> Awaitable[Reply]:
            return api.answer(call.operation, namespace, call.params, call.request)

        return ask

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the queue's event loop, let as much time pass as it needs, and return its result."""
        if self.loop.inside:
            work.close()
            raise RuntimeError("this is the queue's own event loop: await the coroutine instead")
        running: Future[T] = asyncio.run_coroutine_threadsafe(work, self.loop)
        return self.loop.wait_for(running)

    def settle(self) -> None:
        """Run everything that is due now. No time passes."""
        self.loop.pass_time(0)

    # -- workers

    def host(self, worker: Worker, namespace: str = "default") -> Worker:
        """Direct a worker's sends to this queue, whatever its URL, without starting the worker."""
        assert self._api is not None, "the queue is not open"
        queue = patient_queue(self._api, namespace, self._limits.max_wait_ms)
        self._hosts.append(host := VirtualHost(self.loop, queue, self.recorder, self.clock))
        worker.live_in(host)
        self._workers.append(worker)
        return worker

    def work(self, worker: Worker, namespace: str = "default") -> Worker:
        """Start a worker in this queue. It stops when the queue is closed, and then uses its own URL again."""
        if worker not in self._workers:
            self.host(worker, namespace)
        self.run(worker.start())
        self.settle()
        return worker

    def stop(self, worker: Worker) -> None:
        """Stop a worker. Its leased jobs are released. It may be started again."""
        self.run(worker.stop(0))

    # -- opening and closing

    async def _open(self) -> None:
        # Nobody else uses this store, so nothing needs polling: an idle year costs nothing.
        self._engine = RecordingEngine(
            self.store,
            self._limits,
            namespace_ids=self._namespace_ids,
            idle_ms=NEVER_MS,
            round_s=NEVER_MS / 1000,
            timer=_LoopTimer(self.loop),
        )
        self._engine.recorder = self.recorder
        self._api = NativeApi(self._engine, _info)
        self._runtime = Runtime(self.store, self._engine)
        await self._runtime.start()

    async def _close(self) -> None:
        for worker in self._workers:
            await worker.stop(0)
            worker.live_in(None)
        assert self._runtime is not None
        await self._runtime.stop()


def _info() -> Info:
    return Info("0", durability="none", store="memory, for tests only")

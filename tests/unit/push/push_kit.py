"""The real dispatcher on the reference store, with time moved by hand and a target that is a table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from dueline.engine.commands import Send
from dueline.engine.engine import Engine
from dueline.engine.job import BodyKind, Job
from dueline.engine.policy import Ladder
from dueline.engine.push_log import Attempt
from dueline.engine.push_target import PushTarget
from dueline.push.courier import Courier
from dueline.push.discovery import Instance
from dueline.push.discovery.static import StaticResolver
from dueline.push.dispatcher import PushContext
from dueline.push.hosts import Hosts
from dueline.push.http_couriers import CarriedCourier, HttpCourier
from dueline.push.manager import PushManager
from dueline.push.outgoing_calls import Call, CallFailed, Response
from dueline.store.memory import MemoryStore
from dueline.testing.clock import VirtualClock
from dueline.testing.timer import VirtualTimer, settled
from tests.kit.events import SharedEvents

NS = "default"
URL = "https://target.test/hook"
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
PAYMENT = Ladder((2 * MINUTE, 10 * MINUTE, 10 * MINUTE, HOUR, 2 * HOUR, 6 * HOUR, 15 * HOUR))

Reply = Response | CallFailed | asyncio.Event


def answer(status: int = 200, excerpt: str = "", **headers: str) -> Response:
    return Response(status, {name.replace("_", "-"): value for name, value in headers.items()}, excerpt, 3)


class Target:
    """Whoever is called. `replies` by URL (or for all) are used up in order; then `default` counts. An Event in their
    place holds the call until it is set, and then answers 200."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.default: Reply = answer()
        self.replies: dict[str | None, list[Reply]] = {}
        self.calls: list[tuple[int, Call]] = []
        self.now = 0  # calls under way
        self.most = 0
        self._now_ms = now_ms
        self._start_ms = now_ms()

    @property
    def times(self) -> list[int]:
        return [at for at, _ in self.calls]

    async def call(self, call: Call) -> Response:
        self.calls.append((self._now_ms() - self._start_ms, call))
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            replies = self.replies.get(call.url) or self.replies.get(None) or []
            reply = replies.pop(0) if replies else self.default
            if isinstance(reply, asyncio.Event):
                await reply.wait()
                reply = answer()
            if isinstance(reply, CallFailed):
                raise reply
            return reply
        finally:
            self.now -= 1


class RecordingObserver:
    """Records the events of a process."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, str | None]] = []
        self.without_instance: list[tuple[str, str]] = []
        self.breakers: list[tuple[str, int, str | None]] = []
        self.flying: list[int] = []
        self.pauses: list[bool] = []
        self.ended: list[str] = []

    def called(self, namespace: str, topic: str, attempt: Attempt, failure: str | None) -> None:
        self.calls.append((topic, attempt.status, failure))

    def no_instance(self, namespace: str, topic: str, why: str) -> None:
        self.without_instance.append((topic, why))

    def breaker(self, namespace: str, topic: str, failures: int, host: str | None) -> None:
        self.breakers.append((topic, failures, host))

    def in_flight(self, namespace: str, topic: str, calls: int) -> None:
        self.flying.append(calls)

    def paused(self, namespace: str, topic: str, paused: bool) -> None:
        self.pauses.append(paused)

    def gone(self, namespace: str, topic: str) -> None:
        self.ended.append(topic)


class LiveTable(StaticResolver):
    """Services that come and go: it looks into its table at every call."""

    def __init__(self, table: Mapping[str, Sequence[Instance]]) -> None:
        super().__init__({})
        self._live = table

    def knows(self, service: str) -> bool:
        return service.lower() in self._live

    async def instances(self, service: str, fresh: bool = False) -> Sequence[Instance]:
        return await StaticResolver(self._live).instances(service, fresh)

    async def services(self) -> Mapping[str, Sequence[Instance]]:
        return await StaticResolver(self._live).services()


class Process:
    """One server process as far as push goes."""

    def __init__(self, store: MemoryStore, timer: VirtualTimer, target: Target, table: Mapping[str, Any]) -> None:
        self.engine = Engine(store, timer=timer)
        self.observer = RecordingObserver()
        self.couriers: dict[str, Courier] = {
            "http": HttpCourier(LiveTable(table), store.now_ms),
            "carried": CarriedCourier(store.now_ms),
        }
        push_context = PushContext(self.engine, target, self.couriers, Hosts(2), timer, self.observer)
        self.manager = PushManager(push_context)

    async def stop(self, drain_s: float = 0.0) -> None:
        await self.manager.stop(drain_s)
        await self.engine.stop()


class PushKit:
    """A store, its time, a target, and one or more processes."""

    def __init__(self, processes: int = 1, table: Mapping[str, Sequence[Instance]] | None = None) -> None:
        self.clock = VirtualClock()
        self.timer = VirtualTimer(self.clock)
        self.store = MemoryStore(self.clock)
        self.target = Target(self.clock)
        self.table = dict(table or {})
        self.events = SharedEvents()
        self.processes = [self.process() for _ in range(processes)]
        self.complaints: list[dict[str, Any]] = []

    def process(self) -> Process:
        process = Process(self.store, self.timer, self.target, self.table)
        self.events.engines.append(process.engine)
        self.store.events = self.events
        return process

    @property
    def engine(self) -> Engine:
        return self.processes[0].engine

    @property
    def manager(self) -> PushManager:
        return self.processes[0].manager

    async def start(self) -> None:
        for process in self.processes:
            process.manager.start()
        await settled()

    async def push_to(self, topic: str = "t", **words: Any) -> None:
        """Give the topic a target and let every process hear of it."""
        if words.get("courier", "http") == "http" and "service" not in words:
            words.setdefault("url", URL)
        await self.engine.set_push(NS, topic, PushTarget(**words))
        await self.heard()

    async def heard(self) -> None:
        """Let every process hear of what others changed."""
        await settled()

    async def send(self, id: str, topic: str = "t", **words: Any) -> None:
        body, kind = words.pop("body", b'{"n":1}'), words.pop("kind", BodyKind.JSON)
        await self.engine.send(NS, topic, Send(id, body, kind, **{"retain_ms": 100 * 24 * HOUR, **words}))
        await settled()

    async def job(self, id: str, topic: str = "t") -> Job:
        return await self.engine.get(NS, topic, id)

    async def state(self, id: str, topic: str = "t") -> str:
        return (await self.job(id, topic)).state.value

    async def log(self, id: str | None = None, topic: str = "t") -> list[Attempt]:
        """The log of attempts, oldest first."""
        found, _ = await self.store.pushes.attempts(NS, topic, id, b"", 100)
        return found[::-1]

    async def advance(self, by_ms: int) -> None:
        await self.timer.advance(by_ms)


@asynccontextmanager
async def running(**options: Any) -> AsyncIterator[PushKit]:
    """A started kit. At its end no task may be left over and no error unseen."""
    kit = PushKit(**options)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: kit.complaints.append(context))
    try:
        await kit.start()
        yield kit
    finally:
        for process in kit.processes:
            await process.stop()
    rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not rest
    assert not kit.complaints, kit.complaints

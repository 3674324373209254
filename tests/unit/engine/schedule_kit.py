"""Servers with schedules on one reference store, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from dueline.engine.commands import Pull, Send, TopicPatch
from dueline.engine.engine import Engine
from dueline.engine.errors import UnknownOutcome
from dueline.engine.job import BodyKind, LeasedJob, Partition
from dueline.engine.limits import Limits
from dueline.engine.policy import TopicPolicy
from dueline.engine.schedule import Schedule, ScheduleView
from dueline.engine.store import Code, Outcome, Ref, Release, SendItem, SendOutcome
from dueline.store.memory import MemoryStore
from dueline.testing.clock import VirtualClock
from dueline.testing.timer import VirtualTimer, settled
from tools.faults.cut_store import CutStore

NS = "default"
HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000 // HOUR_MS * HOUR_MS  # a whole hour
SELDOM_S = 30 * 86_400.0


def template(body: bytes = b'"x"', **options: Any) -> Send:
    return Send(None, body, BodyKind.JSON, **options)


def every(seconds: float, topic: str = "t", **options: Any) -> Schedule:
    return Schedule(topic, options.pop("job", template()), every_ms=int(seconds * 1000), **options)


class BlockingStore(MemoryStore):
    """The reference store. A send to the `blocked_topic` waits until `go_on` is set. The answer of the next send to the
    topic `lost` is lost. `released`: what releases returned."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.blocked_topic: str | None = None
        self.lost: str | None = None
        self.go_on = asyncio.Event()
        self.released: list[Code] = []

    async def send(self, partition: Partition, items: Sequence[SendItem], policy_version: int = 0) -> list[SendOutcome]:
        if partition.topic == self.blocked_topic:
            self.blocked_topic = None
            await self.go_on.wait()
        results = await super().send(partition, items, policy_version)
        if partition.topic == self.lost:
            self.lost = None
            raise UnknownOutcome
        return results

    async def release(self, partition: Partition, items: Sequence[Release]) -> list[Outcome]:
        results = await super().release(partition, items)
        self.released += [result.code for result in results]
        return results


class ScheduleKit:
    """`engine` is the newest server. Times are counted from the start, in seconds."""

    def __init__(self, store: Callable[[VirtualClock], BlockingStore] = BlockingStore) -> None:
        self.clock = VirtualClock(START_MS)
        self.timer = VirtualTimer(self.clock)
        self.memory = store(self.clock)
        self.servers: list[tuple[CutStore, Engine]] = []

    async def serve(self, at: int = 0, *, done: bool = False, limits: Limits = Limits()) -> Engine:
        """Start another server, which is gone at its call number `at`."""
        store = CutStore(self.memory, at, done=done)
        engine = Engine(store, limits, timer=store.timer(self.timer), round_s=SELDOM_S, idle_ms=int(SELDOM_S * 1000))  # pyright: ignore[reportArgumentType]
        self.servers.append((store, engine))
        starting = asyncio.ensure_future(engine.start())
        await settled()
        assert starting.done()
        return engine

    @property
    def engine(self) -> Engine:
        return self.servers[-1][1]

    @property
    def store(self) -> CutStore:
        return self.servers[-1][0]

    async def stop(self) -> None:
        self.memory.go_on.set()
        for store, engine in self.servers:
            if not store.gone.is_set():
                await engine.stop()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()  # of servers that are gone

    async def advance(self, seconds: float) -> None:
        await self.timer.advance(round(seconds * 1000))

    async def put(self, name: str, schedule: Schedule, version: int | None = None) -> ScheduleView:
        return (await self.engine.schedules.put(NS, name, schedule, version))[0]

    async def get(self, name: str) -> ScheduleView:
        return await self.engine.schedules.get(NS, name)

    async def partitions(self, topic: str, number: int) -> None:
        await self.engine.set_topic(NS, topic, TopicPatch(TopicPolicy(), partitions=number))

    async def pulled(self, topic: str = "t") -> list[LeasedJob]:
        """Everything that is ready, and acks it."""
        jobs = await self.engine.pull(Pull(NS, (topic,), max=1000))
        if jobs:
            await self.engine.ack(NS, topic, [Ref(job.id, job.lease) for job in jobs])
        return jobs

    async def times(self, topic: str = "t") -> list[float]:
        """The occurrences of all jobs that are ready, in their order. Acks the jobs."""
        return [seconds_of(job.id) for job in await self.pulled(topic)]


def seconds_of(id: str) -> float:
    seconds = (int(id.rpartition("@")[2]) - START_MS) / 1000
    return int(seconds) if seconds == int(seconds) else seconds


@asynccontextmanager
async def schedules(*topics: str) -> AsyncIterator[ScheduleKit]:
    """One server. `topics`: made before, with three partitions, and without retention of ended jobs."""
    kit = ScheduleKit()
    await kit.serve()
    for topic in topics:
        await kit.engine.set_topic(NS, topic, TopicPatch(TopicPolicy(retain_ms=0), partitions=3))
    try:
        yield kit
    finally:
        await kit.stop()

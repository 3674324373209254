"""An engine on the reference store whose time is moved by hand: no test here sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from dueline.engine.commands import Pull, Send
from dueline.engine.engine import Engine
from dueline.engine.job import BodyKind, LeasedJob, Partition
from dueline.engine.limits import Limits
from dueline.engine.store import Pull as StorePull
from dueline.engine.store import PullOutcome
from dueline.store.memory import MemoryStore
from dueline.testing.clock import VirtualClock
from dueline.testing.timer import VirtualTimer, settled

__all__ = ["NS", "EngineKit", "RecordingStore", "VirtualTimer", "ids", "running", "settled"]

NS = "default"


class RecordingStore(MemoryStore):
    """The reference store, with a record of its pulls, a gate to hold them, and failures on demand."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__(clock)
        self.pulls: list[tuple[Partition, StorePull]] = []
        self.calls: list[str] = []
        self.gate: asyncio.Event | None = None
        self.failures: list[Exception] = []
        self.on_duty = True
        self.hesitate: Callable[[], Awaitable[None]] | None = None  # on the way there and on the way back

    async def watch(self, partition: Partition) -> None:
        self.calls.append(f"watch {partition.topic}")
        await super().watch(partition)

    async def unwatch(self, partition: Partition) -> None:
        self.calls.append(f"unwatch {partition.topic}")
        await super().unwatch(partition)

    async def pull(self, partition: Partition, pull: StorePull) -> PullOutcome:
        self.pulls.append((partition, pull))
        self.calls.append(f"pull {partition.topic}")
        if self.failures:
            raise self.failures.pop(0)
        if self.hesitate is not None:
            await self.hesitate()
        pulled = await super().pull(partition, pull)
        if self.hesitate is not None:
            await self.hesitate()
        if self.gate is not None:
            await self.gate.wait()  # the answer is on its way
        if not self.on_duty:
            pulled = replace(pulled, on_duty=False)
        return pulled


class EngineKit:
    """One engine, its store and its time."""

    def __init__(self, limits: Limits = Limits(), store: type[RecordingStore] = RecordingStore, **options: Any) -> None:
        self.clock = VirtualClock()
        self.timer = VirtualTimer(self.clock)
        self.store = store(self.clock)
        self.engine = Engine(self.store, limits, timer=self.timer, **options)

    async def send(self, topic: str, id: str, delay_ms: int | None = None, **options: Any) -> int:
        """The due time, counted from the kit's start."""
        command = Send(id, b'"body"', BodyKind.JSON, delay_ms=delay_ms, **options)
        sent = await self.engine.send(NS, topic, command)
        return sent.due_at_ms - self.timer.start_ms

    def pull(
        self, *topics: str, max: int = 1, lease_ms: int | None = None, wait_ms: int = 0
    ) -> asyncio.Task[list[LeasedJob]]:
        return asyncio.ensure_future(self.engine.pull(Pull(NS, topics, max, lease_ms, wait_ms)))

    async def advance(self, by_ms: int) -> None:
        await self.timer.advance(by_ms)


@asynccontextmanager
async def running(**options: Any) -> AsyncIterator[EngineKit]:
    """A kit whose engine is stopped whatever happens."""
    kit = EngineKit(**options)
    try:
        yield kit
    finally:
        if kit.store.gate is not None:
            kit.store.gate.set()
        await kit.engine.stop()


def ids(jobs: list[LeasedJob]) -> list[str]:
    return [job.id for job in jobs]

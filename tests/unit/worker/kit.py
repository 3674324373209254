"""A worker on the reference store: real time, no process, no socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from dueline.api.answers import Info, Job, LeasedJob, LeasedJobs, Outcome
from dueline.client.in_process import InProcessClient
from dueline.dialects.native.api import NativeApi
from dueline.engine.engine import Engine
from dueline.store.memory import MemoryStore
from dueline.worker import Worker
from dueline.worker.client_queue import ClientQueue

WITHIN_S = 20.0


class WorkerKit:
    """`queue` is the worker's; `worker` is started by the test."""

    def __init__(self, engine: Engine, **options: Any) -> None:
        self.engine = engine
        self.queue = WatchedQueue(engine)
        self.worker = Worker(queue=self.queue, **options)

    async def ended(self, id: str, topic: str = "t") -> Job:
        """The job when it has ended."""
        return await self.until(id, "done", "dead", "cancelled", topic=topic)

    async def until(self, id: str, *states: str, topic: str = "t") -> Job:
        """The job when it is in one of these states. The queue reports every change."""
        async with asyncio.timeout(WITHIN_S):
            while (job := await self.queue.get(topic, id)).state not in states:
                await self.queue.changed()
        return job


class WatchedQueue(ClientQueue):
    """A queue that says when something was settled, and counts what was asked."""

    def __init__(self, engine: Engine) -> None:
        api = NativeApi(engine, lambda: Info("0"))
        ask = lambda call: api.answer(call.operation, None, call.params, call.request)  # noqa: E731
        super().__init__(InProcessClient(ask), namespace="default")
        self.extended = 0
        self.pulls: list[tuple[str, ...]] = []
        self.acks: list[int] = []
        self.joined: list[list[str]] = []  # the jobs that were acked by a pull
        self._news = asyncio.Event()

    async def changed(self) -> None:
        await self._news.wait()
        self._news.clear()

    async def pull(
        self,
        topics: Sequence[str],
        max: int = 1,
        lease_ms: int | None = None,
        wait_ms: int = 0,
        by: str | None = None,
    ) -> Sequence[LeasedJob]:
        self.pulls.append(tuple(topics))
        jobs = await super().pull(topics, max, lease_ms, wait_ms, by)
        self._news.set()
        return jobs

    async def ack_and_pull(
        self, topic: str, jobs: Sequence[Any], max: int = 1, lease_ms: int | None = None, by: str | None = None
    ) -> LeasedJobs:
        self.joined.append([job.id for job in jobs])
        try:
            return await super().ack_and_pull(topic, jobs, max, lease_ms, by)
        finally:
            self._news.set()

    async def ack(self, jobs: Sequence[Any]) -> list[Outcome]:
        self.acks.append(len(jobs))
        try:
            return await super().ack(jobs)
        finally:
            self._news.set()

    async def release(self, *args: Any, **options: Any) -> list[Outcome]:
        try:
            return await super().release(*args, **options)
        finally:
            self._news.set()

    async def extend(self, jobs: Sequence[Any], lease_ms: int) -> list[Outcome]:
        self.extended += 1
        try:
            return await super().extend(jobs, lease_ms)
        finally:
            self._news.set()


@asynccontextmanager
async def worker_kit(**options: Any) -> AsyncIterator[WorkerKit]:
    """The worker is stopped at the end, if it was started."""
    engine = Engine(MemoryStore(lambda: time.time_ns() // 1_000_000))
    await engine.start()
    made = WorkerKit(engine, **options)
    try:
        yield made
        await made.worker.stop("5s")
    finally:
        await made.worker.stop(0)
        await engine.stop()

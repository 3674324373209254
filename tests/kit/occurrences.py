"""Schedules on a real store, and a consumer that notes which of their occurrences became a job, and how often."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from dueline.engine.commands import Pull
from dueline.engine.engine import Engine
from dueline.engine.errors import DuelineError, Unavailable
from dueline.engine.schedule import ScheduleView
from dueline.engine.store import Ref
from dueline.store.valkey.store import ValkeyStore
from dueline.store.valkey.witness import Replication

from .waiting import until

LEASE_MS = 10_000
MOST_SCHEDULES = 100


class Consumer:
    """Pulls and acks the jobs of the schedules of one topic, whatever the store does. `came`: all ids; `made`: how
    often a job of this id was new; `early`: ids of jobs that came before their occurrence."""

    def __init__(self, engine: Engine, namespace: str, topic: str) -> None:
        self.came: set[str] = set()
        self.made: Counter[str] = Counter()
        self.early: list[str] = []
        self.pulls = 0
        self._engine = engine
        self._namespace, self._topic = namespace, topic

    async def consume(self) -> None:
        while True:
            await self.pull(1000)

    async def pull(self, wait_ms: int) -> bool:
        """Whether there was a job. If an ack is not answered, its job comes again, and is not new then."""
        self.pulls += 1
        try:
            jobs = await self._engine.pull(
                Pull(self._namespace, (self._topic,), max=500, lease_ms=LEASE_MS, wait_ms=wait_ms)
            )
            self.came.update(job.id for job in jobs)
            self.made.update(job.id for job in jobs if job.delivery == 1)
            self.early += [job.id for job in jobs if job.due_at_ms < at_ms_of(job.id) or job.late_ms < 0]
            if jobs:
                await self._engine.ack(self._namespace, self._topic, [Ref(job.id, job.lease) for job in jobs])
        except Unavailable:
            return True
        return bool(jobs)

    @property
    def last_ms(self) -> int:
        """The latest occurrence that became a job."""
        return max(map(at_ms_of, self.came))

    @property
    def doubled(self) -> list[str]:
        return [id for id, times in self.made.items() if times > 1]


def at_ms_of(id: str) -> int:
    """The occurrence that an id names."""
    return int(id.rpartition("@")[2])


def ids_until(views: Iterable[ScheduleView], every_ms: int, until_ms: int) -> set[str]:
    """The ids of all occurrences from the next ones of these schedules to a time."""
    return {f"{view.name}@{at_ms}" for view in views for at_ms in range(view.next_at_ms or 0, until_ms + 1, every_ms)}


async def views_of(engine: Engine, namespace: str) -> list[ScheduleView]:
    return (await engine.schedules.list(namespace, "", MOST_SCHEDULES))[0]


async def all_reach(engine: Engine, namespace: str, at_ms: int) -> None:
    """Returns when every schedule has sent an occurrence of this time or a later one."""

    async def have() -> bool:
        try:
            views = await views_of(engine, namespace)
        except DuelineError:
            return False
        return all(view.last_at_ms is not None and view.last_at_ms >= at_ms for view in views)

    await until(have, within_s=60)


@asynccontextmanager
async def engine_on(url: str, *, serves: bool, replicated: bool = False) -> AsyncIterator[Engine]:
    """An engine of this process. `serves`: it runs schedules, as a server does."""
    store = ValkeyStore(url, replication=Replication() if replicated else None)
    await store.start()
    engine = Engine(store)
    try:
        if serves:
            await engine.start()
        yield engine
    finally:
        await engine.stop()
        await store.stop()


@asynccontextmanager
async def consuming(consumer: Consumer) -> AsyncIterator[None]:
    """The consumer works in the background."""
    task = asyncio.ensure_future(consumer.consume())
    try:
        yield
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

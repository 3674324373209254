"""Schedules on three servers that are killed and stopped at random: every occurrence becomes one job, none is early.

A job is acked and gone at once, so its id protects nothing. DUELINE_SCHEDULE_FAULT_S makes the run longer.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from dueline.engine.commands import Pull, Send, TopicPatch
from dueline.engine.engine import Engine
from dueline.engine.errors import DuelineError
from dueline.engine.job import BodyKind
from dueline.engine.policy import TopicPolicy
from dueline.engine.schedule import Schedule, ScheduleView
from dueline.engine.store import Ref
from dueline.store.valkey.store import ValkeyStore
from tests.kit.valkey import PrivateValkey
from tests.kit.waiting import until
from tools.faults.server_process import ServerProcess
from tools.faults.store_check import findings_at

from .kit import serving, short_folder

SECONDS = float(os.environ.get("DUELINE_SCHEDULE_FAULT_S", "20"))
NUMBER = 50
NS, TOPIC = "scheduled", "t"
EVERY = Schedule(TOPIC, Send(None, b"1", BodyKind.JSON), every_ms=1000)


class Consumer:
    """Pulls and acks the jobs of the schedules. `came`: how often each id came; `early`: before their occurrence."""

    def __init__(self, engine: Engine) -> None:
        self.came: Counter[str] = Counter()
        self.early: list[str] = []
        self._engine = engine

    async def consume(self) -> None:
        while True:
            await self.pull(1000)

    async def pull(self, wait_ms: int) -> bool:
        jobs = await self._engine.pull(Pull(NS, (TOPIC,), max=500, lease_ms=60_000, wait_ms=wait_ms))
        if jobs:
            self.came.update(job.id for job in jobs)
            self.early += [job.id for job in jobs if job.due_at_ms < _at_ms(job.id) or job.late_ms < 0]
            await self._engine.ack(NS, TOPIC, [Ref(job.id, job.lease) for job in jobs])
        return bool(jobs)


@pytest.mark.slow
@pytest.mark.timeout(int(120 + 2 * SECONDS))
async def test_kills_and_stops_lose_double_and_hurry_no_occurrence() -> None:
    with PrivateValkey() as valkey:
        async with _engine(valkey.url) as engine, _servers(valkey.url) as servers:
            await engine.set_topic(NS, TOPIC, TopicPatch(TopicPolicy(retain_ms=0), partitions=4))
            first: dict[str, ScheduleView] = {}
            for number in range(NUMBER):
                first[f"s{number}"] = (await engine.schedules.put(NS, f"s{number}", EVERY, None))[0]
            consumer = Consumer(engine)
            consuming = asyncio.ensure_future(consumer.consume())
            faults = await _trouble(servers, random.Random(1))
            now_ms = engine.store.now_ms()
            await until(
                lambda: _views(engine), lambda views: all(_caught_up(view, now_ms) for view in views), within_s=60
            )
            for name in first:
                await engine.schedules.pause(NS, name)
            await asyncio.gather(*(server.stop() for server in servers))
            consuming.cancel()
            await asyncio.gather(consuming, return_exceptions=True)
            while await consumer.pull(0):
                pass
            last = {view.name: view for view in await _views(engine)}
        expected = {id for name in first for id in _ids(first[name], last[name])}
        assert len(expected) >= NUMBER * SECONDS * 0.9
        missed, doubled = expected - consumer.came.keys(), [id for id, n in consumer.came.items() if n > 1]
        print(
            f"{NUMBER} schedules every second, {SECONDS:.0f} s, {faults} faults on 3 servers, "
            f"{len(expected)} occurrences: {len(missed)} missed, {len(doubled)} doubled, {len(consumer.early)} early"
        )
        assert (missed, doubled, consumer.early, consumer.came.keys() - expected) == (set(), [], [], set())
        assert sum(view.missed_count for view in last.values()) == 0
        assert await findings_at(valkey.url) == []


async def _trouble(servers: list[ServerProcess], dice: random.Random) -> int:
    """Kill and restart servers; stop each one once for longer than a lease. At least one is always left alone."""
    loop = asyncio.get_running_loop()
    end_s, faults = loop.time() + SECONDS, 0
    stopped = dice.choice(servers)
    while loop.time() < end_s:
        stopped.signal(signal.SIGSTOP)
        again_s = min(loop.time() + 12.0, end_s)
        victims = [server for server in servers if server is not stopped]
        while loop.time() < again_s:
            await asyncio.sleep(dice.uniform(0.2, 2.0))  # the fault's own time: nothing is awaited
            victim = dice.choice(victims)
            await victim.kill()
            await victim.start()
            faults += 1
        stopped.signal(signal.SIGCONT)
        faults += 1
        stopped = dice.choice(servers)
    return faults


def _caught_up(view: ScheduleView, now_ms: int) -> bool:
    return view.last_at_ms is not None and view.last_at_ms >= now_ms


def _ids(first: ScheduleView, last: ScheduleView) -> list[str]:
    assert first.next_at_ms is not None
    assert last.last_at_ms is not None
    return [f"{first.name}@{at_ms}" for at_ms in range(first.next_at_ms, last.last_at_ms + 1, 1000)]


def _at_ms(id: str) -> int:
    return int(id.rpartition("@")[2])


async def _views(engine: Engine) -> list[ScheduleView]:
    try:
        return (await engine.schedules.list(NS, "", NUMBER))[0]
    except DuelineError:
        return []


@asynccontextmanager
async def _engine(url: str) -> AsyncIterator[Engine]:
    """An engine of this process that runs no schedules: its loops are not started."""
    store = ValkeyStore(url)
    await store.start()
    engine = Engine(store)
    try:
        yield engine
    finally:
        await engine.stop()
        await store.stop()


@asynccontextmanager
async def _servers(url: str) -> AsyncIterator[list[ServerProcess]]:
    with short_folder() as folder:
        async with AsyncExitStack() as stack:
            yield [await stack.enter_async_context(serving(folder / str(n), store_url=url)) for n in range(3)]

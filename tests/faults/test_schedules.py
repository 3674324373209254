"""Schedules on three servers that are killed and stopped at random: every occurrence becomes one job, none is early.

A job is acked and gone at once, so its id protects nothing.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from dueline.engine.commands import Send, TopicPatch
from dueline.engine.job import BodyKind
from dueline.engine.policy import TopicPolicy
from dueline.engine.schedule import Misfire, Schedule
from tests.kit.fault_suite import FaultSuite
from tests.kit.occurrences import Consumer, all_reach, consuming, engine_on, ids_until, views_of
from tests.kit.valkey import PrivateValkey
from tools.faults.scenario import Scenario
from tools.faults.server_process import ServerProcess
from tools.faults.store_check import findings_at

from .kit import serving
from .under_load import clock_steps

NUMBER = 50
EVERY_MS = 1000
STOPPED_S = 12.0  # longer than the lease of a schedule
NS, TOPIC = "scheduled", "t"
# `all`: on a slow machine, servers that are killed again and again may be late by more than what counts as no outage.
EVERY = Schedule(TOPIC, Send(None, b"1", BodyKind.JSON), every_ms=EVERY_MS, misfire=Misfire.ALL)


@pytest.mark.faults
@pytest.mark.timeout(600)
async def test_kills_and_stops_lose_double_and_hurry_no_occurrence(suite: FaultSuite, folder: Path) -> None:
    """For two minutes in the long suite."""
    seconds = suite.rounds(20, 120)
    with PrivateValkey() as valkey:
        async with engine_on(valkey.url, serves=False) as engine, _servers(valkey.url, folder) as servers:
            await engine.set_topic(NS, TOPIC, TopicPatch(TopicPolicy(retain_ms=0), partitions=4))
            first = [(await engine.schedules.put(NS, f"s{number}", EVERY, None))[0] for number in range(NUMBER)]
            consumer = Consumer(engine, NS, TOPIC)
            async with consuming(consumer):
                faults = await _trouble(servers, random.Random(suite.seed), seconds)
                over_ms = engine.store.now_ms()
                await all_reach(engine, NS, over_ms)
                others = await clock_steps(servers)
                await asyncio.gather(*(server.stop() for server in servers))
            while await consumer.pull(0):
                pass
            last = await views_of(engine, NS)
        expected = ids_until(first, EVERY_MS, over_ms)
        assert len(expected) >= NUMBER * seconds * 0.9
        others += await findings_at(valkey.url)
        others += [f"{id} is no occurrence" for id in consumer.came - ids_until(first, EVERY_MS, consumer.last_ms)]
        others += [f"{view.name} missed {view.missed_count}" for view in last if view.missed_count]
        suite.report(
            Scenario(
                name="50 schedules every second, servers killed",
                seed=suite.seed,
                operations=len(expected),
                faults=faults,
                lost=len(expected - consumer.came),
                early=len(consumer.early),
                doubled=len(consumer.doubled),
                others=tuple(map(str, others)),
            )
        )


async def _trouble(servers: list[ServerProcess], dice: random.Random, seconds: float) -> int:
    """Kill and restart servers; stop one at a time for longer than a lease. Returns the number of faults."""
    loop = asyncio.get_running_loop()
    end_s, faults = loop.time() + seconds, 0
    while loop.time() < end_s:
        stopped = dice.choice(servers)
        stopped.signal(signal.SIGSTOP)
        again_s = min(loop.time() + STOPPED_S, end_s)
        victims = [server for server in servers if server is not stopped]
        while loop.time() < again_s:
            await asyncio.sleep(dice.uniform(0.2, 2.0))  # the fault's own time: nothing is awaited
            victim = dice.choice(victims)
            await victim.kill()
            await victim.start()
            faults += 1
        stopped.signal(signal.SIGCONT)
        faults += 1
    return faults


@asynccontextmanager
async def _servers(url: str, folder: Path) -> AsyncIterator[list[ServerProcess]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(serving(folder / str(n), store_url=url)) for n in range(3)]

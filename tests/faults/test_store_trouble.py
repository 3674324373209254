"""A store that is full, that forgets scripts and connections, that stands still.

One real `dueline serve` on a private store of ours, whose settings the tests change at run time.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import redis

from dueline.testing.checker import Report, check
from dueline.testing.history import Outcome, Recorder, Send
from tests.kit.async_tests import one_loop
from tests.kit.waiting import until
from tools.faults.load import Load, Plan
from tools.faults.recording_client import Job, RecordingClient
from tools.faults.store_check import findings_at

from ..kit.valkey import PrivateValkey
from .kit import ServersKit, shared_servers

PLAN = Plan(topics=("flush-a", "flush-b"), max_delay_ms=300, lease_ms=(300, 500), wait_ms=200)


@pytest.fixture(scope="module")
def own_valkey() -> Iterator[PrivateValkey]:
    with PrivateValkey() as server:
        yield server


loop_runner = one_loop  # the tests share servers


@pytest.fixture(scope="module")
def kit(own_valkey: PrivateValkey, loop_runner: asyncio.Runner) -> Iterator[ServersKit]:
    with shared_servers(1, own_valkey.url, loop_runner) as kit:
        yield kit


@asynccontextmanager
async def loaded(kit: ServersKit, plan: Plan, recorder: Recorder) -> AsyncIterator[Load]:
    load = Load(plan, [kit.servers[0].address], recorder, seed=9)
    try:
        await load.start()
        await load.acknowledged_reaches(50)
        yield load
    finally:
        await load.stop()


async def ended_well(load: Load, recorder: Recorder, valkey: PrivateValkey) -> Report:
    """Stop sending, drain, dump, check, fsck."""
    await load.stop_sending()
    assert await load.drained(20.0)
    await load.stop()
    report = check(recorder.events, await load.dump())
    assert report.violations == ()
    assert report.left == 0
    assert report.deliveries > 0
    assert load.bugs == []
    assert await findings_at(valkey.url) == []
    return report


async def test_forgotten_scripts_and_killed_connections_are_invisible_to_callers(
    kit: ServersKit, own_valkey: PrivateValkey
) -> None:
    recorder, operator = Recorder(), redis.from_url(own_valkey.url)
    async with loaded(kit, PLAN, recorder) as load:
        killed = 0
        for turn in range(30):
            began_ns = recorder.now_ns()
            operator.script_flush()
            if turn % 3 == 0:
                killed += operator.client_kill_filter(_type="normal", skipme=True)
            if turn % 10 == 5:
                killed += operator.client_kill_filter(_type="pubsub", skipme=True)
            recorder.fault("script flush, connections killed", began_ns)
            await load.acknowledged_reaches(load.acknowledged + 15)
        report = await ended_well(load, recorder, own_valkey)
    assert (report.unknown, report.unavailable) == (0, 0)
    assert killed > 10
    assert report.under_way > 0, "nothing was under way when connections were killed: this test shows nothing"


async def test_a_full_store_refuses_sends_and_drains(kit: ServersKit, own_valkey: PrivateValkey) -> None:
    recorder, operator = Recorder(), redis.from_url(own_valkey.url)
    plan = Plan(topics=("full",), consumers=0, max_delay_ms=0, pause_ms=0.5, body_bytes=6000, wild=False)
    server = kit.servers[0]
    operator.config_set("maxmemory", int(operator.info("memory")["used_memory"]) + 3_000_000)
    load = Load(plan, [server.address], recorder, seed=4)
    await load.start()
    await until(lambda: any(e.code == "store_full" for e in recorder.events))
    await load.stop_sending()
    full = [e for e in recorder.events if isinstance(e, Send) and e.outcome is Outcome.FAIL]
    assert {e.code for e in full} == {"store_full"}
    drain = Load(Plan(topics=("full",), producers=0, wild=False), [server.address], recorder, seed=4)
    await drain.start()
    report = await ended_well(drain, recorder, own_valkey)
    assert report.deliveries == report.sends_ok > 100, "each once, and none that was refused"
    recording_client = RecordingClient("after", *server.address, recorder)
    assert [v.outcome for v in await recording_client.send(plan.topics[0], [Job("after", b"1")])] == [Outcome.OK]
    await recording_client.close()
    await load.stop()
    operator.config_set("maxmemory", 0)


async def test_a_store_that_stands_still_leaves_unknowns_and_no_contradiction(
    kit: ServersKit, own_valkey: PrivateValkey
) -> None:
    recorder = Recorder()
    pid = int(redis.from_url(own_valkey.url).info("server")["process_id"])
    impatient = Plan(topics=("still-a", "still-b"), max_delay_ms=300, lease_ms=(300, 500), wait_ms=200, timeout_s=0.5)
    async with loaded(kit, impatient, recorder) as load:
        for _ in range(2):
            began_ns = recorder.now_ns()
            os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(2.0)
            os.kill(pid, signal.SIGCONT)
            recorder.fault("store stopped for 2 s", began_ns)
            await load.acknowledged_reaches(load.acknowledged + 50)
        report = await ended_well(load, recorder, own_valkey)
    assert report.unknown > 0, "nobody noticed the pause: this test shows nothing"
    assert report.recovered > 0, "no unknown send had been done: this test shows little"

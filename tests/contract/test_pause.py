"""Pausing a partition: sends are taken, pulls give nothing, leases go on."""

from __future__ import annotations

from dueline.engine.job import Reason, State
from dueline.engine.limits import LAST_MS
from dueline.engine.store import Code
from tests.kit.store import StoreKit


async def test_a_paused_partition_takes_sends_and_gives_nothing(kit: StoreKit) -> None:
    await kit.control(pause_until_ms=LAST_MS)
    assert (await kit.send("a")).code is Code.CREATED
    pulled = await kit.pulled()
    assert (pulled.jobs, pulled.next_ms, pulled.more) == ([], None, False)
    assert (await kit.stats()).paused_until_ms == LAST_MS
    await kit.control(pause_until_ms=0)
    assert (await kit.stats()).paused_until_ms is None
    assert await kit.pull_ids() == ["a"]


async def test_a_pause_until_a_time_ends_by_itself(kit: StoreKit) -> None:
    until_ms = kit.clock.now_ms + 1_000
    await kit.control(pause_until_ms=until_ms)
    await kit.send("a")
    pulled = await kit.pulled()
    assert (pulled.jobs, pulled.next_ms) == ([], until_ms)
    assert (await kit.stats()).paused_until_ms == until_ms
    await kit.advance(999)
    assert await kit.pull_ids() == []
    await kit.advance(1)
    assert (await kit.stats()).paused_until_ms is None
    assert await kit.pull_ids() == ["a"]


async def test_leases_go_on_while_paused(kit: StoreKit) -> None:
    for id in ("acked", "released", "extended"):
        await kit.send(id)
    leased = {one.id: one.lease for one in await kit.pull()}
    await kit.control(pause_until_ms=LAST_MS)
    assert await kit.ack("acked", leased["acked"]) is Code.OK
    assert (await kit.release("released", leased["released"])).code is Code.OK
    assert (await kit.extend("extended", leased["extended"], 60_000)).code is Code.OK
    assert await kit.pull_ids() == []


async def test_paused_time_counts_for_the_ttl(kit: StoreKit) -> None:
    await kit.control(pause_until_ms=LAST_MS)
    await kit.send("a", ttl_ms=100)
    await kit.advance(100)
    job = await kit.job("a")
    assert (job.state, job.reason) == (State.DEAD, Reason.EXPIRED)


async def test_pause_and_resume_can_be_repeated(kit: StoreKit) -> None:
    for _ in range(2):
        await kit.control(pause_until_ms=LAST_MS)
    for _ in range(2):
        await kit.control(pause_until_ms=0)
    await kit.send("a")
    assert await kit.pull_ids() == ["a"]


async def test_setting_one_thing_leaves_the_others(kit: StoreKit) -> None:
    await kit.control(pause_until_ms=LAST_MS)
    await kit.control(max_in_flight=1)
    await kit.control(policy_version=0)
    assert (await kit.stats()).paused_until_ms == LAST_MS
    await kit.control(pause_until_ms=0)
    await kit.send("a")
    await kit.send("b")
    assert await kit.pull_ids() == ["a"]

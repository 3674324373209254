"""Pausing a partition: sends are taken, pulls give nothing, leases go on."""

from __future__ import annotations

from dueline.engine.job import Reason, State
from dueline.engine.limits import LAST_MS
from dueline.engine.store import Code
from tests.kit.bed import Bed


async def test_a_paused_partition_takes_sends_and_gives_nothing(bed: Bed) -> None:
    await bed.control(pause_until_ms=LAST_MS)
    assert (await bed.send("a")).code is Code.CREATED
    pulled = await bed.pulled()
    assert (pulled.jobs, pulled.next_ms, pulled.more) == ([], None, False)
    assert (await bed.stats()).paused_until_ms == LAST_MS
    await bed.control(pause_until_ms=0)
    assert (await bed.stats()).paused_until_ms is None
    assert await bed.pull_ids() == ["a"]


async def test_a_pause_until_a_time_ends_by_itself(bed: Bed) -> None:
    until_ms = bed.clock.now_ms + 1_000
    await bed.control(pause_until_ms=until_ms)
    await bed.send("a")
    pulled = await bed.pulled()
    assert (pulled.jobs, pulled.next_ms) == ([], until_ms)
    assert (await bed.stats()).paused_until_ms == until_ms
    await bed.advance(999)
    assert await bed.pull_ids() == []
    await bed.advance(1)
    assert (await bed.stats()).paused_until_ms is None
    assert await bed.pull_ids() == ["a"]


async def test_leases_go_on_while_paused(bed: Bed) -> None:
    for id in ("acked", "released", "extended"):
        await bed.send(id)
    held = {one.id: one.lease for one in await bed.pull()}
    await bed.control(pause_until_ms=LAST_MS)
    assert await bed.ack("acked", held["acked"]) is Code.OK
    assert (await bed.release("released", held["released"])).code is Code.OK
    assert (await bed.extend("extended", held["extended"], 60_000)).code is Code.OK
    assert await bed.pull_ids() == []


async def test_paused_time_counts_for_the_ttl(bed: Bed) -> None:
    await bed.control(pause_until_ms=LAST_MS)
    await bed.send("a", ttl_ms=100)
    await bed.advance(100)
    job = await bed.job("a")
    assert (job.state, job.reason) == (State.DEAD, Reason.EXPIRED)


async def test_pause_and_resume_can_be_repeated(bed: Bed) -> None:
    for _ in range(2):
        await bed.control(pause_until_ms=LAST_MS)
    for _ in range(2):
        await bed.control(pause_until_ms=0)
    await bed.send("a")
    assert await bed.pull_ids() == ["a"]


async def test_setting_one_thing_leaves_the_others(bed: Bed) -> None:
    await bed.control(pause_until_ms=LAST_MS)
    await bed.control(max_in_flight=1)
    await bed.control(policy_version=0)
    assert (await bed.stats()).paused_until_ms == LAST_MS
    await bed.control(pause_until_ms=0)
    await bed.send("a")
    await bed.send("b")
    assert await bed.pull_ids() == ["a"]

"""A server is gone, or stands still, in the middle of an occurrence: the next one completes it, and nothing comes
twice. Jobs are acked and gone at once, so that ids protect nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from schedule_kit import NS, START_MS, ScheduleKit, every, schedules, template

from dueline.engine.commands import Pull, TopicPatch
from dueline.engine.fence import Fence
from dueline.engine.job import Partition, Reason
from dueline.engine.limits import INTERNAL_NAMESPACE
from dueline.engine.policy import TopicPolicy
from dueline.engine.schedule import Misfire, Overlap
from dueline.engine.store import Code, Release
from dueline.testing.timer import settled
from tests.kit.async_tests import async_fixture

HOME = Partition(INTERNAL_NAMESPACE, f"schedules:{NS}")


@async_fixture
async def kit() -> AsyncIterator[ScheduleKit]:
    async with schedules("t", "u") as kit:
        yield kit


async def _cut_in(kit: ScheduleKit, call: str, done: bool) -> None:
    """Let the next occurrence begin, and end the server at this call of it."""
    await settled()
    steps = await _calls_of_one(call)
    kit.store.stop_at(steps, done=done)
    await kit.advance(10)
    assert kit.store.gone.is_set()
    assert kit.store.calls[-1] == call


async def _calls_of_one(call: str) -> int:
    """The number of the call in a server's second occurrence."""
    kit = ScheduleKit()
    await kit.serve()
    await kit.engine.set_topic(NS, "t", TopicPatch(TopicPolicy(retain_ms=0), partitions=3))
    await kit.put("a", every(10))
    await kit.advance(10)
    before = len(kit.store.calls)
    await kit.advance(10)
    calls = kit.store.calls[before:]
    for store, engine in kit.servers:
        assert not store.gone.is_set()
        await engine.stop()
    return calls.index(call) + 1


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", ["pull", "send", "release"])
async def test_another_server_completes_what_was_begun(kit: ScheduleKit, call: str, done: bool) -> None:
    await kit.put("a", every(10))
    await kit.advance(10)
    assert await kit.times() == [10]
    await _cut_in(kit, call, done)
    await kit.serve()
    at_once = (call, done) in (("pull", False), ("send", True), ("release", False), ("release", True))
    assert await kit.times() == ([20] if at_once else [])
    await kit.advance(15)
    assert sorted(await kit.times()) == ([30] if at_once else [20, 30])
    view = await kit.get("a")
    assert (view.last_at_ms, view.missed_count, view.last_error) == (START_MS + 30_000, 0, None)


async def test_a_change_after_a_cut_off_release_does_not_forget_the_last_job(kit: ScheduleKit) -> None:
    """The job of 20 s was sent, but no progress says so. It still counts as the last one."""
    await kit.put("a", every(10))
    await kit.advance(10)
    assert await kit.times() == [10]
    await _cut_in(kit, "release", done=False)
    await kit.serve()
    await kit.put("a", every(10, overlap=Overlap.SKIP))
    await kit.advance(10)
    view = await kit.get("a")
    assert (view.last_at_ms, view.last_job) == (START_MS + 20_000, f"a@{START_MS + 20_000}")
    assert view.missed_count == 1
    assert await kit.times() == [20]
    await kit.advance(10)
    assert await kit.times() == [40]


async def test_a_schedule_made_again_does_not_wait_for_a_job_of_the_deleted_one(kit: ScheduleKit) -> None:
    await kit.put("a", every(10))
    await kit.advance(10)
    await kit.engine.schedules.delete(NS, "a")
    await kit.put("a", every(10, overlap=Overlap.SKIP))
    await kit.advance(10)
    assert sorted(await kit.times()) == [10, 20]


async def test_an_answer_that_is_lost_is_found_out_by_the_next_holder(kit: ScheduleKit) -> None:
    await kit.put("a", every(60))
    kit.memory.lost = "t"
    await kit.advance(60)
    assert await kit.times() == [60]
    assert kit.memory.lost is None
    await kit.advance(30)
    assert await kit.times() == []
    assert (await kit.get("a")).last_at_ms == START_MS + 60_000


async def test_a_holder_that_stands_still_sends_nothing_twice_and_loses_its_lease(kit: ScheduleKit) -> None:
    await kit.put("a", every(10))
    kit.memory.blocked_topic = "t"
    await kit.advance(10)
    assert await kit.times() == []
    await kit.serve()
    await kit.advance(15)
    assert sorted(await kit.times()) == [10, 20]
    assert set(kit.memory.released) == {Code.OK}
    kit.memory.go_on.set()
    await settled()
    assert await kit.times() == []
    assert kit.memory.released[-1] is Code.LEASE_LOST
    await kit.advance(10)
    assert await kit.times() == [30]


@pytest.mark.parametrize("change", ["put", "move", "pause", "delete"])
async def test_a_holder_that_stands_still_sends_nothing_after_a_change(kit: ScheduleKit, change: str) -> None:
    await kit.put("a", every(10))
    kit.memory.blocked_topic = "t"
    await kit.advance(10)
    schedules = kit.engine.schedules
    if change == "put":
        await kit.put("a", every(100))
    elif change == "move":
        await kit.put("a", every(100, topic="u"))
    else:
        await getattr(schedules, change)(NS, "a")
    kit.memory.go_on.set()
    await settled()
    assert kit.engine.metrics.schedules.failed == 0  # it was refused, but nobody has to try again
    await kit.advance(50)
    assert await kit.times() == []
    if change in ("put", "move"):
        await kit.advance(50)
        assert await kit.times("u" if change == "move" else "t") == [100]


async def test_a_holder_that_stands_still_sends_nothing_that_another_server_skipped(kit: ScheduleKit) -> None:
    await kit.put("a", every(10, misfire=Misfire.SKIP))
    kit.memory.blocked_topic = "t"
    await kit.advance(10)
    await kit.advance(3600)
    await kit.serve()
    await kit.advance(0)
    kit.memory.go_on.set()
    await settled()
    assert await kit.times() == []
    assert (await kit.get("a")).missed_count == 361


async def test_a_holder_that_stands_still_sends_nothing_that_was_skipped_for_an_older_job(kit: ScheduleKit) -> None:
    await kit.put("a", every(10, overlap=Overlap.SKIP))
    await kit.advance(10)
    [job] = await kit.engine.pull(Pull(NS, ("t",)))
    await kit.engine.release(NS, "t", [Release(job.id, job.lease, dead=Reason.REJECTED)])
    kit.memory.blocked_topic = "t"
    await kit.advance(10)
    await kit.engine.revive(NS, "t", [job.id])
    await kit.serve()
    await kit.advance(15)
    kit.memory.go_on.set()
    await settled()
    assert await kit.times() == [10]
    assert (await kit.get("a")).missed_count == 2


async def test_the_next_holder_writes_the_fences_that_a_killed_change_left_out(kit: ScheduleKit) -> None:
    await kit.put("a", every(10))
    kit.memory.blocked_topic = "t"
    await kit.advance(10)
    await kit.serve()
    calls = len(kit.store.calls)
    calling = asyncio.ensure_future(kit.put("a", every(20, topic="u")))
    await settled()
    assert calling.done()
    kit.store.stop_at(kit.store.calls[calls:].index("send") + 1, done=True)  # the same change again
    calling = asyncio.ensure_future(kit.put("a", every(20, topic="u2")))
    await settled()
    assert (calling.done(), kit.store.calls[-1]) == (False, "send")
    await kit.serve()
    await kit.advance(10)
    assert (await kit.times("u"), await kit.times("u2")) == ([], [20])
    kit.memory.go_on.set()
    await settled()
    assert await kit.times() == []
    [fence] = {fence for n in range(8) for fence in (await kit.memory.fences(Partition(NS, "u", n)))[0]}
    assert fence == Fence(f"{NS}\0a", (await kit.get("a")).version, gone=True)


@pytest.mark.parametrize("change", ["put", "move", "pause", "resume", "delete"])
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
async def test_a_change_that_was_cut_off_anywhere_is_done_or_not(kit: ScheduleKit, change: str, done: bool) -> None:
    """The caller got no answer. Whatever it did, no occurrence comes twice, and later changes work."""
    for at in range(1, 12):
        name = f"a{at}"
        await kit.put(name, every(10, paused=change == "resume"))
        await kit.advance(10)
        await kit.pulled()
        kit.store.stop_at(at, done=done)
        calling = asyncio.ensure_future(_change(kit, name, change))
        await kit.advance(0)
        ended = calling.done()
        kit.store.gone.set()
        await kit.serve()
        await kit.advance(25)
        jobs = [job.id for topic in ("t", "u") for job in await kit.pulled(topic)]
        assert len(jobs) == len(set(jobs))
        mine = [id for id in jobs if id.startswith(f"{name}@")]
        if not ended and change == "pause":
            assert len(mine) in (0, 2)
        await kit.put(name, every(10))
        await kit.advance(10)
        assert len([job for job in await kit.pulled() if job.id.startswith(f"{name}@")]) == 1
        await kit.engine.schedules.delete(NS, name)
        await kit.advance(15)
        assert not await kit.pulled()
        assert (await kit.memory.stats(HOME)).scheduled == 0


async def _change(kit: ScheduleKit, name: str, change: str) -> None:
    if change in ("put", "move"):
        await kit.put(name, every(10, topic="u" if change == "move" else "t", job=template(b"2")))
    else:
        await getattr(kit.engine.schedules, change)(NS, name)


async def test_a_schedule_goes_on_with_more_partitions_than_before(kit: ScheduleKit) -> None:
    """A holder stands still while its topic gets more partitions."""
    await kit.put("a", every(10, topic="new"))
    await kit.put("b", every(3600, topic="new"))
    await kit.put("b", every(3600, topic="new"))
    await kit.advance(30)
    assert await kit.times("new") == [10, 20, 30]
    kit.memory.blocked_topic = "new"
    await kit.advance(10)
    await kit.serve()
    await kit.partitions("new", 4)
    for number in range(1, 5):
        found = {fence.schedule: fence.at_ms for fence in (await kit.memory.fences(Partition(NS, "new", number)))[0]}
        assert found == {f"{NS}\0a": START_MS + 30_000, f"{NS}\0b": 0}
    await kit.advance(15)
    assert sorted(await kit.times("new")) == [40, 50]
    kit.memory.go_on.set()
    await settled()
    assert await kit.times("new") == []
    await kit.advance(120)
    assert len(await kit.times("new")) == 12

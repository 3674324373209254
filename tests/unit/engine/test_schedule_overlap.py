"""Overlap `skip`: whether the job of the last occurrence is alive decides about the next one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from schedule_kit import NS, START_MS, ScheduleKit, every, schedules

from dueline.engine.commands import Pull
from dueline.engine.job import LeasedJob, Reason
from dueline.engine.schedule import Overlap
from dueline.engine.store import Ref, Release
from tests.kit.async_tests import async_fixture

FIRST = f"a@{START_MS + 10_000}"


@async_fixture
async def kit() -> AsyncIterator[ScheduleKit]:
    async with schedules() as kit:
        yield kit


async def test_an_occurrence_is_skipped_while_the_last_job_lives(kit: ScheduleKit) -> None:
    await kit.put("a", every(10, overlap=Overlap.SKIP))
    await kit.advance(25)
    [job] = await kit.engine.pull(Pull(NS, ("t",), max=10, lease_ms=100_000))
    await kit.advance(10)
    assert (await kit.get("a")).missed_count == 2
    assert kit.engine.metrics.schedules.skipped == 2
    await kit.engine.ack(NS, "t", [Ref(job.id, job.lease)])
    await kit.advance(10)
    assert await kit.times() == [40]
    assert job.id == f"a@{START_MS + 10_000}"


async def _pulled(kit: ScheduleKit) -> LeasedJob:
    [job] = await kit.engine.pull(Pull(NS, ("t",)))
    assert job.id == FIRST
    return job


async def _given_back(kit: ScheduleKit, delay_ms: int | None, dead: Reason | None = None) -> None:
    job = await _pulled(kit)
    await kit.engine.release(NS, "t", [Release(job.id, job.lease, delay_ms=delay_ms, dead=dead)])


async def _do(kit: ScheduleKit, what: str) -> None:
    """What becomes of the job of the first occurrence."""
    if what == "leased":
        await _pulled(kit)
    elif what == "waits for its retry":
        await _given_back(kit, 60_000)
    elif what == "done":
        job = await _pulled(kit)
        await kit.engine.ack(NS, "t", [Ref(job.id, job.lease)])
    elif what == "cancelled":
        await kit.engine.cancel(NS, "t", [FIRST])
    elif what in ("dead", "revived"):
        await _given_back(kit, None, Reason.REJECTED)
    if what == "revived":
        await kit.engine.revive(NS, "t", [FIRST])


@pytest.mark.parametrize(
    ("what", "lives"),
    [
        ("ready", True),
        ("leased", True),
        ("waits for its retry", True),
        ("revived", True),
        ("done", False),
        ("cancelled", False),
        ("dead", False),
    ],
)
@pytest.mark.parametrize("partitions", [1, 3])
async def test_only_a_job_that_lives_is_in_the_way(kit: ScheduleKit, what: str, lives: bool, partitions: int) -> None:
    """Also if the topic gets more partitions meanwhile."""
    await kit.put("a", every(10, overlap=Overlap.SKIP))
    await kit.advance(10)
    await _do(kit, what)
    if partitions > 1:
        await kit.partitions("t", partitions)
    await kit.advance(10)
    view = await kit.get("a")
    second = f"a@{START_MS + 20_000}"
    assert (view.last_job, view.missed_count) == ((FIRST, 1) if lives else (second, 0))


async def test_a_run_is_in_nobodys_way(kit: ScheduleKit) -> None:
    await kit.put("a", every(10, overlap=Overlap.SKIP))
    await kit.engine.schedules.run(NS, "a")
    await kit.advance(10)
    assert ((await kit.get("a")).last_job, (await kit.get("a")).missed_count) == (FIRST, 0)

"""A server is gone after an occurrence became a job or was skipped, and before it wrote that down. The next one counts
the occurrence as what it is."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from schedule_kit import NS, START_MS, ScheduleKit, every, schedules

from dueline.engine.schedule import Misfire, Overlap
from tests.kit.async_tests import async_fixture


@async_fixture
async def kit() -> AsyncIterator[ScheduleKit]:
    async with schedules("t") as kit:
        yield kit


async def _cut_before_release(kit: ScheduleKit, seconds: float) -> None:
    kit.store.stop_in("release", done=False)
    await kit.advance(seconds)
    assert kit.store.gone.is_set()


async def _state(kit: ScheduleKit) -> tuple[float | None, str | None, int]:
    view = await kit.get("a")
    last_s = None if view.last_at_ms is None else (view.last_at_ms - START_MS) // 1000
    return last_s, view.last_job, view.missed_count


@pytest.mark.parametrize("paused", [False, True], ids=["as it was", "paused meanwhile"])
async def test_an_occurrence_that_a_dead_server_skipped_does_not_count_as_sent(kit: ScheduleKit, paused: bool) -> None:
    """When the next server comes, the job that was in the way is done."""
    await kit.put("a", every(30, overlap=Overlap.SKIP))
    await kit.advance(30)
    await _cut_before_release(kit, 30)
    await kit.serve()
    assert await kit.times() == [30]
    if paused:
        await kit.engine.schedules.pause(NS, "a")
        await kit.engine.schedules.resume(NS, "a")
    await kit.advance(29)
    assert await kit.times() == []
    metrics = kit.engine.metrics.schedules
    assert await _state(kit) == (30, f"a@{START_MS + 30_000}", 1)
    assert (metrics.missed + metrics.skipped, metrics.fired) == (1, 0)
    await kit.advance(1)
    assert await kit.times() == [90]
    assert await _state(kit) == (90, f"a@{START_MS + 90_000}", 1)


@pytest.mark.parametrize(
    ("misfire", "sent", "missed"),
    [(Misfire.LATEST, [30, 3630], 119), (Misfire.SKIP, [30], 120), (Misfire.ALL, [30, *range(660, 3631, 30)], 20)],
)
async def test_a_job_of_a_dead_server_does_not_count_as_missed(
    kit: ScheduleKit, misfire: Misfire, sent: list[float], missed: int
) -> None:
    await kit.put("a", every(30, misfire=misfire))
    await kit.advance(10)
    await _cut_before_release(kit, 20)
    await kit.advance(3600)
    await kit.serve()
    await kit.advance(0)
    assert (await _state(kit))[0] == sent[-1]
    assert (await _state(kit))[2] == missed
    assert sorted(await kit.times()) == sent


@pytest.mark.parametrize("misfire", list(Misfire))
async def test_the_job_of_a_dead_server_is_in_the_way_of_the_next_one(kit: ScheduleKit, misfire: Misfire) -> None:
    await kit.put("a", every(600, misfire=misfire, overlap=Overlap.SKIP))
    await kit.advance(10)
    await _cut_before_release(kit, 590)
    await kit.advance(3600)
    await kit.serve()
    await kit.advance(0)
    assert await _state(kit) == (600, f"a@{START_MS + 600_000}", 6)
    assert await kit.times() == [600]

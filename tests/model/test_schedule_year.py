"""Every occurrence becomes one job, not before its time, although every server is gone after a few store calls
(tools.faults.schedule_year). The year itself is slow; the weeks in which clocks change are not."""

from __future__ import annotations

import pytest

from tools.faults.schedule_year import Simulation, midnight, some_schedules

CALLS = {f"{call}, {when}" for call in ("pull", "send", "release") for when in ("before it", "its answer")}


@pytest.mark.parametrize(
    ("schedules", "start_ms", "days"),
    [
        (40, midnight(2026, 3, 5), 35),
        (40, midnight(2026, 9, 30), 35),
        pytest.param(200, midnight(2026, 1, 1), 366, marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
    ],
    ids=["spring", "autumn", "year"],
)
async def test_no_occurrence_is_missed_doubled_or_early(schedules: int, start_ms: int, days: int) -> None:
    simulation = Simulation(some_schedules(schedules, seed=1), start_ms, most_calls=61)
    result = await simulation.run(days)
    assert result.occurrences > 10 * schedules * days / 366
    assert result.is_right, result
    assert 0 < result.ahead < result.occurrences
    assert set(result.calls) >= CALLS


async def test_without_fences_occurrences_are_doubled() -> None:
    simulation = Simulation(some_schedules(40, seed=1), midnight(2026, 3, 5), most_calls=61, fenced=False)
    assert (await simulation.run(20)).doubled


async def test_a_wrong_due_time_is_noticed() -> None:
    for shift_ms in (-1, 1):
        simulation = Simulation(some_schedules(40, seed=1), midnight(2026, 3, 5), most_calls=61, shift_ms=shift_ms)
        result = await simulation.run(5)
        assert (result.early > 0, result.late > 0) == (shift_ms < 0, shift_ms > 0)

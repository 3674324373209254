"""Kill -9 of the server, of its store, of both, of the whole process group, at random instants under load.

Short forms of `python -m tools.faults.crash`: the same run, fewer rounds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.faults.crash import CrashRun, Result
from tools.faults.load import Plan

pytestmark = pytest.mark.slow

PLAN = Plan(max_delay_ms=1_000, retry_s=15.0)


async def crashed(folder: Path, what: str, rounds: int, workers: int = 1) -> Result:
    run = CrashRun(folder, rounds=rounds, seed=7, what=what, workers=workers, plan=PLAN)
    return await run.run()


@pytest.mark.parametrize(("what", "rounds"), [("all", 4), ("store", 4)])
async def test_nothing_acknowledged_is_lost_by_kill_9(what: str, rounds: int, folder: Path) -> None:
    result = await crashed(folder, what, rounds)
    assert result.failures() == [], result.table()
    assert (result.report.faults, result.struck) == (rounds, rounds)


async def test_nothing_acknowledged_is_lost_when_a_server_of_several_workers_is_killed(folder: Path) -> None:
    result = await crashed(folder, "group", 1, workers=2)
    assert result.failures() == [], result.table()

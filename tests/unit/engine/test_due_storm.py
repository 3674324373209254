"""Many jobs become due in one second, on the virtual clock: the waiters of a process take them all, and none early."""

from __future__ import annotations

from bench.due_storm import STORM_MS, storm


async def test_a_storm_is_served_completely_without_a_call_before_it_or_in_vain() -> None:
    found = await storm(20_000, spread_ms=0, consumers=20, job_us=100.0)
    assert (len(found.late_ms), found.late_ms[0] >= 0, found.quiet_calls) == (20_000, True, 0)
    assert found.drained_s >= 2.0, "the store was faster than its time per job allows"
    assert found.calls["pull"] <= 20_000 / 20, "pulls did not take what was due"
    assert found.empty_pulls <= found.calls["pull"] / 10


async def test_spread_due_times_turn_a_storm_into_a_stream() -> None:
    found = await storm(20_000, spread_ms=9 * STORM_MS, consumers=20, job_us=100.0)
    assert len(found.late_ms) == 20_000
    assert found.late(0.99) <= 100, "jobs queued although the store had time"

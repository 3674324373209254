"""Many calls on schedules at the same moment: all of them succeed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from schedule_kit import NS, ScheduleKit, every, schedules

from tests.kit.async_tests import async_fixture

HOUR = 3600


@async_fixture
async def kit() -> AsyncIterator[ScheduleKit]:
    async with schedules() as kit:
        yield kit


async def test_many_runs_at_once_are_as_many_jobs(kit: ScheduleKit) -> None:
    await kit.put("a", every(HOUR))
    sent = await asyncio.gather(*(kit.engine.schedules.run(NS, "a") for _ in range(100)))
    assert len({one.id for one in sent}) == len(await kit.pulled()) == 100
    other = await kit.serve()  # its runs meet those ids, and pass them
    sent += await asyncio.gather(*(other.schedules.run(NS, "a") for _ in range(100)))
    assert len({one.id for one in sent}) == 200


async def test_changes_at_once_wait_for_each_other(kit: ScheduleKit, monkeypatch: pytest.MonkeyPatch) -> None:
    read = kit.memory.read

    async def slow_read(*words: Any) -> Any:
        """As on a real store: others come first between a read and a write."""
        found = await read(*words)
        await asyncio.sleep(0)
        return found

    monkeypatch.setattr(kit.memory, "read", slow_read)
    changed = await asyncio.gather(*(kit.engine.schedules.put(NS, "a", every(10), None) for _ in range(50)))
    assert len({view.version for view, _ in changed}) == 50
    assert [is_new for _, is_new in changed].count(True) == 1
    views = await asyncio.gather(*(kit.engine.schedules.pause(NS, "a") for _ in range(50)))
    assert len({view.version for view in views}) == 50
    assert (await kit.get("a")).version == max(view.version for view in views)


async def test_the_first_schedules_of_a_namespace_can_be_made_at_once(
    kit: ScheduleKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = kit.memory.directory.topic

    async def slow_read(*words: Any) -> Any:
        found = await read(*words)
        await asyncio.sleep(0)
        return found

    monkeypatch.setattr(kit.memory.directory, "topic", slow_read)
    await asyncio.gather(*(kit.put(f"s{number}", every(10)) for number in range(50)))
    assert len((await kit.engine.schedules.list(NS, "", 100))[0]) == 50

"""Rounds of work in the background, in virtual time: when one begins, and how it all ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dueline.engine.errors import StoreDown
from dueline.engine.rounds import Rounds
from dueline.testing.clock import VirtualClock
from dueline.testing.timer import VirtualTimer, settled
from tests.kit.waiting import turns


class Work:
    """Notes when it is done. `says`: what the next rounds say or raise; then an hour. `gate`: holds a round."""

    def __init__(self, says: list[float | Exception] | None = None, **options: Any) -> None:
        self.timer = VirtualTimer(VirtualClock())
        self.says = says or []
        self.gate: asyncio.Event | None = None
        self.times_ms: list[int] = []
        self.complaints: list[dict[str, Any]] = []
        self.rounds = Rounds(self, self.timer, "the work failed", **options)

    async def __call__(self) -> float:
        self.times_ms.append(round(self.timer.time() * 1000))
        if self.gate is not None:
            await self.gate.wait()
        said = self.says.pop(0) if self.says else 3600.0
        if isinstance(said, Exception):
            raise said
        return said


@asynccontextmanager
async def running(work: Work) -> AsyncIterator[None]:
    """Nothing may be left over at the end, neither a task nor a timer."""
    asyncio.get_running_loop().set_exception_handler(lambda _, context: work.complaints.append(context))
    try:
        yield
    finally:
        await work.rounds.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert work.timer.sleeping == []


async def test_a_round_says_when_the_next_one_is_and_a_wake_up_brings_it_forward() -> None:
    work = Work([5.0, 7.0])

    async with running(work):
        work.rounds.start()
        await work.timer.advance(20_000)
        assert work.times_ms == [0, 5_000, 12_000]
        work.rounds.wake()
        work.rounds.wake()
        await settled()
        assert work.times_ms == [0, 5_000, 12_000, 20_000]


async def test_a_wake_up_during_a_round_is_not_lost() -> None:
    work = Work()

    async with running(work):
        work.gate = asyncio.Event()
        work.rounds.start()
        await settled()
        work.rounds.wake()
        assert work.times_ms == [0]
        work.gate.set()
        await settled()
        assert work.times_ms == [0, 0]


async def test_rounds_without_a_rest_leave_others_their_turn() -> None:
    work = Work([0.0] * 1_000)

    async with running(work):
        work.rounds.start()
        for turn in range(5):
            assert len(work.times_ms) <= turn + 1
            await turns()


async def test_after_a_failure_it_rests_longer_and_longer_woken_or_not_until_a_round_succeeds() -> None:
    work = Work([*[StoreDown() for _ in range(5)], 60.0, StoreDown()], back_off=(0.1, 0.5))

    async with running(work):
        work.rounds.start()
        for _ in range(200):
            await work.timer.advance(10)
            work.rounds.wake() if len(work.times_ms) < 6 else None
        assert work.times_ms == [0, 100, 300, 700, 1_200, 1_700]
        await work.timer.advance(60_000)
        assert work.times_ms[6:] == [61_700, 61_800]
    assert work.complaints == []


async def test_a_bug_is_logged_and_the_work_goes_on() -> None:
    bug = ValueError("a bug")
    work = Work([bug])

    async with running(work):
        work.rounds.start()
        await work.timer.advance(1_000)
        assert work.times_ms == [0, 1_000]
    assert work.complaints == [{"message": "the work failed", "exception": bug}]


async def test_after_a_round_that_took_long_no_wake_up_counts_for_some_times_as_long() -> None:
    work = Work([30.0], calm=10.0)

    async with running(work):
        work.gate = asyncio.Event()
        work.rounds.start()
        await work.timer.advance(2_000)
        work.gate.set()
        await settled()
        work.rounds.wake()
        await work.timer.advance(19_000)
        assert work.times_ms == [0]
        await work.timer.advance(60_000)
        assert work.times_ms == [0, 22_000]


@pytest.mark.parametrize(
    ("says", "options"),
    [([], {}), ([StoreDown()], {}), ([], {"calm": 10.0})],
    ids=["resting", "backing off", "calm"],
)
async def test_the_end_does_not_wait_for_a_rest(says: list[float | Exception], options: dict[str, Any]) -> None:
    work = Work(says, **options)

    async with running(work):
        work.gate = asyncio.Event()
        work.rounds.start()
        await work.timer.advance(100)  # the round takes some time
        work.gate.set()
        await settled()
        assert work.timer.sleeping != []
        await work.rounds.stop()
        assert work.times_ms == [0]


async def test_the_end_waits_for_the_round_that_is_under_way_and_no_other_begins() -> None:
    work = Work([0.0])

    async with running(work):
        work.gate = asyncio.Event()
        work.rounds.start()
        await settled()
        ending = asyncio.ensure_future(work.rounds.stop())
        await settled()
        assert (ending.done(), work.rounds.stopping) == (False, True)
        work.gate.set()
        await ending
        assert work.times_ms == [0]


async def test_stopping_before_the_start_or_twice_and_starting_twice_or_after_the_end_do_no_harm() -> None:
    work, never = Work(), Work()

    async with running(work):
        tasks = asyncio.all_tasks()
        await never.rounds.stop()
        never.rounds.start()
        assert asyncio.all_tasks() == tasks
        work.rounds.start()
        work.rounds.start()
        await settled()
        await work.rounds.stop()
        await work.rounds.stop()
        work.rounds.start()
        work.rounds.wake()
        await settled()
        assert (work.times_ms, never.times_ms) == ([0], [])

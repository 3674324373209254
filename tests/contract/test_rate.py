"""A rate limit of a partition: so many deliveries a second, over everybody who pulls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from dueline.engine.job import Partition
from dueline.engine.limits import LAST_MS
from dueline.engine.store import Control, Credit, Pull
from tests.kit.bed import Bed, another, item


async def crowd(bed: Bed, count: int) -> None:
    await bed.send_many([item(f"{number:04}") for number in range(count)])


async def given(bed: Bed, max: int = 1000, **words: int) -> tuple[list[str], int | None]:
    """One pull: the ids, and how long from now until another one could give something."""
    pulled = await bed.pulled(max, lease_ms=600_000, **words)
    return [job.id for job in pulled.jobs], None if pulled.next_ms is None else pulled.next_ms - bed.clock.now_ms


async def moments(bed: Bed, count: int) -> list[int]:
    """When each of the next deliveries came, for one who sleeps exactly as long as he is told; from now."""
    start_ms, found = bed.clock.now_ms, []
    while len(found) < count:
        ids, wait_ms = await given(bed)
        found += [bed.clock.now_ms - start_ms] * len(ids)
        assert wait_ms
        bed.clock.advance(wait_ms)
    return found


async def test_a_slow_partition_gives_one_at_a_time_and_says_when_the_next_may_leave(bed: Bed) -> None:
    await bed.control(rate_per_s=4)
    await crowd(bed, 3)
    assert await given(bed) == (["0000"], 250)
    assert await given(bed) == ([], 250)
    await bed.advance(249)
    assert await given(bed) == ([], 1)
    await bed.advance(1)
    assert await given(bed) == (["0001"], 250)
    await bed.advance(250)
    assert (await given(bed))[0] == ["0002"]


async def test_nobody_who_sleeps_as_told_is_late_and_the_rate_is_exact(bed: Bed) -> None:
    await bed.control(rate_per_s=3)
    await crowd(bed, 13)
    assert await moments(bed, 12) == [0, 334, 667, 1000, 1334, 1667, 2000, 2334, 2667, 3000, 3334, 3667]


@pytest.mark.parametrize(
    ("rate_per_s", "at_ms"),
    [(0.001, [0, 1_000_000, 2_000_000]), (0.3, [0, 3334, 6667, 10_000]), (7.7, [0, 130, 260, 390])],
)
async def test_rates_that_are_no_whole_number_are_kept_too(bed: Bed, rate_per_s: float, at_ms: list[int]) -> None:
    await bed.control(rate_per_s=rate_per_s)
    await crowd(bed, 5)
    assert await moments(bed, len(at_ms)) == at_ms


async def test_after_a_rest_a_fast_partition_gives_a_tenth_of_a_second_and_one_at_once(bed: Bed) -> None:
    await bed.control(rate_per_s=1000)
    await crowd(bed, 400)
    assert await given(bed) == (["0000"], 1)
    await bed.advance(30)
    assert len((await given(bed))[0]) == 30
    await bed.advance(60_000)
    ids, wait_ms = await given(bed)
    assert (len(ids), wait_ms) == (101, 1)


async def test_who_comes_late_loses_nothing(bed: Bed) -> None:
    await bed.control(rate_per_s=1)
    await crowd(bed, 3)
    await given(bed)
    await bed.advance(1_090)
    assert await given(bed) == (["0001"], 910)


async def test_one_who_takes_less_than_allowed_leaves_the_rest_for_the_next(bed: Bed) -> None:
    await bed.control(rate_per_s=50)
    await crowd(bed, 9)
    await bed.advance(1_000)
    assert [(await given(bed, 2))[0], (await given(bed))[0], (await given(bed))[0]] == [
        ["0000", "0001"],
        ["0002", "0003", "0004", "0005"],
        [],
    ]


async def test_no_limit_again(bed: Bed) -> None:
    await bed.control(rate_per_s=1)
    await crowd(bed, 30)
    assert len((await given(bed))[0]) == 1
    await bed.control(rate_per_s=0)
    assert len((await given(bed))[0]) == 29


async def test_the_same_limit_again_is_no_new_start(bed: Bed) -> None:
    await bed.control(rate_per_s=2)
    await crowd(bed, 3)
    await given(bed)
    await bed.advance(100)
    await bed.control(rate_per_s=2)
    await bed.control(pause_until_ms=0, max_in_flight=9)
    assert await given(bed) == ([], 400)


async def test_another_limit_goes_on_with_what_was_saved(bed: Bed) -> None:
    await bed.control(rate_per_s=2)
    await crowd(bed, 3)
    await given(bed)
    await bed.advance(250)  # half a delivery
    await bed.control(rate_per_s=1)
    assert await given(bed) == ([], 500)
    await bed.control(rate_per_s=100)
    assert await given(bed) == ([], 5)


async def test_a_job_that_is_given_back_takes_another_turn(bed: Bed) -> None:
    await bed.control(rate_per_s=1)
    await crowd(bed, 2)
    held = (await bed.pulled()).jobs[0]
    await bed.release(held.id, held.lease, delay_ms=0, count=False)
    assert await given(bed) == ([], 1000)
    await bed.advance(1000)
    assert (await given(bed))[0] == [held.id]


async def test_a_partition_with_nothing_to_give_spends_nothing(bed: Bed) -> None:
    await bed.control(rate_per_s=1)
    assert await given(bed) == ([], None)
    await bed.send("late", delay_ms=500)
    assert await given(bed) == ([], 500)
    await bed.advance(500)
    assert await given(bed) == (["late"], 600_000)


async def test_a_job_that_died_waiting_spends_nothing(bed: Bed) -> None:
    await bed.control(rate_per_s=1)
    await bed.send("over", ttl_ms=10)
    await bed.send("good")
    await bed.advance(10)
    assert (await given(bed))[0] == ["good"]


async def test_pause_places_and_rate_hold_together(bed: Bed) -> None:
    await bed.control(rate_per_s=1, max_in_flight=2, pause_until_ms=bed.clock.now_ms + 5_000)
    await crowd(bed, 4)
    assert (await bed.pulled()).jobs == []
    await bed.advance(5_000)
    assert await given(bed) == (["0000"], 900)
    await bed.advance(1000)
    assert (await given(bed))[0] == ["0001"]
    await bed.advance(1000)
    assert await given(bed) == ([], 598_000)  # both places are taken until the first deadline
    await bed.ack("0000")
    assert (await given(bed))[0] == ["0002"]
    await bed.ack("0001")
    assert await given(bed) == ([], 900)  # a place is free, but it is too soon


async def test_the_limit_holds_over_all_who_pull(bed: Bed) -> None:
    await bed.control(rate_per_s=20)
    await crowd(bed, 9)
    await bed.advance(1_000)
    async with another(bed) as other:
        pulled = await bed.store.pull(bed.partition, Pull((Credit(1, None), Credit(1, None)), 30_000))
        assert [job.id for job in pulled.jobs] == ["0000", "0001"]
        assert await given(other) == (["0002"], 50)
        assert await given(bed) == ([], 50)


async def test_partitions_of_a_wide_namespace_have_limits_of_their_own(bed: Bed) -> None:
    partitions = [Partition("namespace_ids", f"{bed.partition.topic}-{name}", 0, True) for name in "ab"]
    await bed.store.control(partitions[0], Control(rate_per_s=1))
    for number in range(2):
        for partition in partitions:
            await bed.store.send(partition, [item(f"{partition.topic}-{number}")])
    pulled = [await bed.store.pull(partition, Pull((Credit(9, None),), 30_000)) for partition in partitions]
    assert [len(one.jobs) for one in pulled] == [1, 2]


async def raised(bed: Bed) -> None:
    await bed.control(rate_per_s=2)


async def lifted(bed: Bed) -> None:
    await bed.control(rate_per_s=0)


@pytest.mark.parametrize("change", [raised, lifted], ids=lambda change: change.__name__)
async def test_who_sleeps_for_the_rate_is_woken_when_it_is(bed: Bed, change: Callable[[Bed], Awaitable[None]]) -> None:
    await bed.control(rate_per_s=0.01)
    await crowd(bed, 3)
    await bed.store.watch(bed.partition)
    await given(bed)
    assert await given(bed, wait_ms=600_000) == ([], 100_000)
    bed.events.forget_wakes()
    await change(bed)
    await bed.events.next_wake()


async def test_a_partition_with_a_limit_is_not_dropped(bed: Bed) -> None:
    await bed.control(rate_per_s=1)
    assert not await bed.store.retire(bed.partition)
    await bed.control(rate_per_s=0)
    assert await bed.store.retire(bed.partition)


async def test_a_limit_of_one_in_ages_names_a_time_that_can_be_stored(bed: Bed) -> None:
    await bed.control(rate_per_s=1e-12)
    await crowd(bed, 2)
    await given(bed)
    assert (await bed.pulled()).next_ms == LAST_MS


async def test_a_clock_that_went_back_does_not_stop_the_partition(bed: Bed) -> None:
    await bed.control(rate_per_s=1)
    await bed.send_many([item("a", at_ms=1), item("b", at_ms=1)])
    await given(bed)
    bed.clock.now_ms -= 900  # below what the clock guard refuses
    pulled = await bed.pulled()
    assert pulled.jobs == []
    bed.clock.advance(1000)
    assert (await given(bed))[0] == ["b"]

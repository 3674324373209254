"""A rate limit of a partition: so many deliveries a second, over everybody who pulls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from dueline.engine.job import Partition
from dueline.engine.limits import LAST_MS
from dueline.engine.store import Control, Credit, Pull
from tests.kit.store import StoreKit, another, item


async def send_jobs(kit: StoreKit, count: int) -> None:
    await kit.send_many([item(f"{number:04}") for number in range(count)])


async def given(kit: StoreKit, max: int = 1000, **words: int) -> tuple[list[str], int | None]:
    """One pull: the ids, and how long from now until another one could give something."""
    pulled = await kit.pulled(max, lease_ms=600_000, **words)
    return [job.id for job in pulled.jobs], None if pulled.next_ms is None else pulled.next_ms - kit.clock.now_ms


async def moments(kit: StoreKit, count: int) -> list[int]:
    """When each of the next deliveries came, from now, if the consumer sleeps exactly as long as the store says."""
    start_ms, found = kit.clock.now_ms, []
    while len(found) < count:
        ids, wait_ms = await given(kit)
        found += [kit.clock.now_ms - start_ms] * len(ids)
        assert wait_ms
        kit.clock.advance(wait_ms)
    return found


async def test_a_slow_partition_gives_one_at_a_time_and_says_when_the_next_may_leave(kit: StoreKit) -> None:
    await kit.control(rate_per_s=4)
    await send_jobs(kit, 3)
    assert await given(kit) == (["0000"], 250)
    assert await given(kit) == ([], 250)
    await kit.advance(249)
    assert await given(kit) == ([], 1)
    await kit.advance(1)
    assert await given(kit) == (["0001"], 250)
    await kit.advance(250)
    assert (await given(kit))[0] == ["0002"]


async def test_nobody_who_sleeps_as_long_as_the_store_says_is_late_and_the_rate_is_exact(kit: StoreKit) -> None:
    await kit.control(rate_per_s=3)
    await send_jobs(kit, 13)
    assert await moments(kit, 12) == [0, 334, 667, 1000, 1334, 1667, 2000, 2334, 2667, 3000, 3334, 3667]


@pytest.mark.parametrize(
    ("rate_per_s", "at_ms"),
    [(0.001, [0, 1_000_000, 2_000_000]), (0.3, [0, 3334, 6667, 10_000]), (7.7, [0, 130, 260, 390])],
)
async def test_rates_that_are_no_whole_number_are_kept_too(kit: StoreKit, rate_per_s: float, at_ms: list[int]) -> None:
    await kit.control(rate_per_s=rate_per_s)
    await send_jobs(kit, 5)
    assert await moments(kit, len(at_ms)) == at_ms


async def test_after_a_rest_a_fast_partition_gives_a_tenth_of_a_second_and_one_at_once(kit: StoreKit) -> None:
    await kit.control(rate_per_s=1000)
    await send_jobs(kit, 400)
    assert await given(kit) == (["0000"], 1)
    await kit.advance(30)
    assert len((await given(kit))[0]) == 30
    await kit.advance(60_000)
    ids, wait_ms = await given(kit)
    assert (len(ids), wait_ms) == (101, 1)


async def test_who_comes_late_loses_nothing(kit: StoreKit) -> None:
    await kit.control(rate_per_s=1)
    await send_jobs(kit, 3)
    await given(kit)
    await kit.advance(1_090)
    assert await given(kit) == (["0001"], 910)


async def test_one_who_takes_less_than_allowed_leaves_the_rest_for_the_next(kit: StoreKit) -> None:
    await kit.control(rate_per_s=50)
    await send_jobs(kit, 9)
    await kit.advance(1_000)
    assert [(await given(kit, 2))[0], (await given(kit))[0], (await given(kit))[0]] == [
        ["0000", "0001"],
        ["0002", "0003", "0004", "0005"],
        [],
    ]


async def test_no_limit_again(kit: StoreKit) -> None:
    await kit.control(rate_per_s=1)
    await send_jobs(kit, 30)
    assert len((await given(kit))[0]) == 1
    await kit.control(rate_per_s=0)
    assert len((await given(kit))[0]) == 29


async def test_the_same_limit_again_is_no_new_start(kit: StoreKit) -> None:
    await kit.control(rate_per_s=2)
    await send_jobs(kit, 3)
    await given(kit)
    await kit.advance(100)
    await kit.control(rate_per_s=2)
    await kit.control(pause_until_ms=0, max_in_flight=9)
    assert await given(kit) == ([], 400)


async def test_another_limit_goes_on_with_what_was_saved(kit: StoreKit) -> None:
    await kit.control(rate_per_s=2)
    await send_jobs(kit, 3)
    await given(kit)
    await kit.advance(250)  # half a delivery
    await kit.control(rate_per_s=1)
    assert await given(kit) == ([], 500)
    await kit.control(rate_per_s=100)
    assert await given(kit) == ([], 5)


async def test_a_job_that_is_given_back_takes_another_turn(kit: StoreKit) -> None:
    await kit.control(rate_per_s=1)
    await send_jobs(kit, 2)
    leased = (await kit.pulled()).jobs[0]
    await kit.release(leased.id, leased.lease, delay_ms=0, count=False)
    assert await given(kit) == ([], 1000)
    await kit.advance(1000)
    assert (await given(kit))[0] == [leased.id]


async def test_a_partition_with_nothing_to_give_spends_nothing(kit: StoreKit) -> None:
    await kit.control(rate_per_s=1)
    assert await given(kit) == ([], None)
    await kit.send("late", delay_ms=500)
    assert await given(kit) == ([], 500)
    await kit.advance(500)
    assert await given(kit) == (["late"], 600_000)


async def test_a_job_that_died_waiting_spends_nothing(kit: StoreKit) -> None:
    await kit.control(rate_per_s=1)
    await kit.send("over", ttl_ms=10)
    await kit.send("good")
    await kit.advance(10)
    assert (await given(kit))[0] == ["good"]


async def test_pause_places_and_rate_hold_together(kit: StoreKit) -> None:
    await kit.control(rate_per_s=1, max_in_flight=2, pause_until_ms=kit.clock.now_ms + 5_000)
    await send_jobs(kit, 4)
    assert (await kit.pulled()).jobs == []
    await kit.advance(5_000)
    assert await given(kit) == (["0000"], 900)
    await kit.advance(1000)
    assert (await given(kit))[0] == ["0001"]
    await kit.advance(1000)
    assert await given(kit) == ([], 598_000)  # both places are taken until the first deadline
    await kit.ack("0000")
    assert (await given(kit))[0] == ["0002"]
    await kit.ack("0001")
    assert await given(kit) == ([], 900)  # a place is free, but it is too soon


async def test_the_limit_holds_over_all_who_pull(kit: StoreKit) -> None:
    await kit.control(rate_per_s=20)
    await send_jobs(kit, 9)
    await kit.advance(1_000)
    async with another(kit) as other:
        pulled = await kit.store.pull(kit.partition, Pull((Credit(1, None), Credit(1, None)), 30_000))
        assert [job.id for job in pulled.jobs] == ["0000", "0001"]
        assert await given(other) == (["0002"], 50)
        assert await given(kit) == ([], 50)


async def test_partitions_of_a_namespace_with_its_own_ids_have_limits_of_their_own(kit: StoreKit) -> None:
    partitions = [Partition("namespace_ids", f"{kit.partition.topic}-{name}", 0, True) for name in "ab"]
    await kit.store.control(partitions[0], Control(rate_per_s=1))
    for number in range(2):
        for partition in partitions:
            await kit.store.send(partition, [item(f"{partition.topic}-{number}")])
    pulled = [await kit.store.pull(partition, Pull((Credit(9, None),), 30_000)) for partition in partitions]
    assert [len(one.jobs) for one in pulled] == [1, 2]


async def raised(kit: StoreKit) -> None:
    await kit.control(rate_per_s=2)


async def lifted(kit: StoreKit) -> None:
    await kit.control(rate_per_s=0)


@pytest.mark.parametrize("change", [raised, lifted], ids=lambda change: change.__name__)
async def test_who_sleeps_for_the_rate_is_woken_when_it_is(
    kit: StoreKit, change: Callable[[StoreKit], Awaitable[None]]
) -> None:
    await kit.control(rate_per_s=0.01)
    await send_jobs(kit, 3)
    await kit.store.watch(kit.partition)
    await given(kit)
    assert await given(kit, wait_ms=600_000) == ([], 100_000)
    kit.events.forget_wakes()
    await change(kit)
    await kit.events.next_wake()


async def test_a_partition_with_a_limit_is_not_dropped(kit: StoreKit) -> None:
    await kit.control(rate_per_s=1)
    assert not await kit.store.retire(kit.partition)
    await kit.control(rate_per_s=0)
    assert await kit.store.retire(kit.partition)


async def test_a_limit_of_one_in_ages_names_a_time_that_can_be_stored(kit: StoreKit) -> None:
    await kit.control(rate_per_s=1e-12)
    await send_jobs(kit, 2)
    await given(kit)
    assert (await kit.pulled()).next_ms == LAST_MS


async def test_a_clock_that_went_back_does_not_stop_the_partition(kit: StoreKit) -> None:
    await kit.control(rate_per_s=1)
    await kit.send_many([item("a", at_ms=1), item("b", at_ms=1)])
    await given(kit)
    kit.clock.step(-900)  # below what the clock guard refuses
    pulled = await kit.pulled()
    assert pulled.jobs == []
    kit.clock.advance(1000)
    assert (await given(kit))[0] == ["b"]

"""A sleeping consumer is woken by everything that makes a job deliverable earlier than it was promised."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from dueline.engine.job import Reason
from dueline.engine.limits import LAST_MS
from dueline.engine.store import Credit, OnConflict, Pull
from tests.kit.store import StoreKit, item


async def asleep(kit: StoreKit) -> int | None:
    """A process waits on the partition, as engines do: watch, pull, then sleep until the time that the pull named."""
    await kit.store.watch(kit.partition)
    pulled = await kit.pulled(wait_ms=60_000)
    assert pulled.jobs == []
    kit.events.forget_wakes()
    return pulled.next_ms


async def send_now(kit: StoreKit) -> None:
    await kit.send("new")


async def send_earlier_than_the_head(kit: StoreKit) -> None:
    await kit.send("new", delay_ms=500)


async def reschedule_earlier(kit: StoreKit) -> None:
    await kit.edit("waiting", delay_ms=10)


async def fire(kit: StoreKit) -> None:
    await kit.fire("waiting")


async def replace_earlier(kit: StoreKit) -> None:
    await kit.send("waiting", delay_ms=3, on_live=OnConflict.REPLACE)


async def replace_an_ended_one(kit: StoreKit) -> None:
    await kit.send("cancelled", on_live=OnConflict.REPLACE)


async def revive(kit: StoreKit) -> None:
    await kit.revive("dead")


async def release_now(kit: StoreKit) -> None:
    await kit.release("leased", delay_ms=0)


async def release_earlier_than_the_head(kit: StoreKit) -> None:
    await kit.release("leased", delay_ms=300)


CAUSES = [
    send_now,
    send_earlier_than_the_head,
    reschedule_earlier,
    fire,
    replace_earlier,
    replace_an_ended_one,
    revive,
    release_now,
    release_earlier_than_the_head,
]


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.__name__)
async def test_a_sleeper_is_woken_by(kit: StoreKit, cause: Callable[[StoreKit], Awaitable[None]]) -> None:
    await kit.make_dead("dead")
    await kit.send("cancelled", delay_ms=5)
    await kit.cancel("cancelled")
    await kit.send("leased")
    await kit.pull(1, lease_ms=90_000)
    await kit.send("waiting", delay_ms=1_000)
    assert await asleep(kit) == kit.clock.now_ms + 1_000
    await cause(kit)
    await kit.events.next_wake()
    assert set(kit.events.woken_partitions) == {kit.partition}
    next_ms = (await kit.pulled(wait_ms=60_000)).next_ms
    assert next_ms is not None


async def test_a_sleeper_on_an_empty_partition_is_woken_by_the_first_send(kit: StoreKit) -> None:
    assert await asleep(kit) is None
    await kit.send("a", delay_ms=10_000)
    await kit.events.next_wake()


async def test_a_sleeper_gets_the_first_deadline_so_that_a_lost_lease_needs_no_wake_up(kit: StoreKit) -> None:
    await kit.send("a")
    await kit.pull(1, lease_ms=700)
    await kit.send("b", delay_ms=9_000)
    assert await asleep(kit) == kit.clock.now_ms + 700


@pytest.mark.parametrize("until_ms", [0, 1_500], ids=["resumed", "shortened"])
async def test_the_end_of_a_pause_wakes(kit: StoreKit, until_ms: int) -> None:
    await kit.send("a")
    await kit.control(pause_until_ms=LAST_MS)
    assert await asleep(kit) is None
    await kit.control(pause_until_ms=until_ms and kit.clock.now_ms + until_ms)
    await kit.events.next_wake()


async def ack(kit: StoreKit, lease: str) -> None:
    await kit.ack("leased", lease)


async def release(kit: StoreKit, lease: str) -> None:
    await kit.release("leased", lease, delay_ms=50_000)


async def reject(kit: StoreKit, lease: str) -> None:
    await kit.release("leased", lease, dead=Reason.REJECTED)


async def cancel(kit: StoreKit, lease: str) -> None:
    await kit.cancel("leased")


async def forget(kit: StoreKit, lease: str) -> None:
    await kit.cancel("leased", forget=True)


async def replace(kit: StoreKit, lease: str) -> None:
    await kit.send("leased", delay_ms=50_000, on_live=OnConflict.REPLACE)


async def raise_the_limit(kit: StoreKit, lease: str) -> None:
    await kit.control(max_in_flight=2)


async def lift_the_limit(kit: StoreKit, lease: str) -> None:
    await kit.control(max_in_flight=0)


FREEING = [ack, release, reject, cancel, forget, replace, raise_the_limit, lift_the_limit]


@pytest.mark.parametrize("free", FREEING, ids=lambda free: free.__name__)
async def test_a_freed_place_wakes(kit: StoreKit, free: Callable[[StoreKit, str], Awaitable[None]]) -> None:
    await kit.control(max_in_flight=1)
    await kit.send_many([item("leased"), item("next")])
    leased = await kit.pull_one(lease_ms=40_000)
    assert await asleep(kit) == kit.clock.now_ms + 40_000
    await free(kit, leased.lease)
    await kit.events.next_wake()


async def test_every_process_that_watches_hears_of_it(kit: StoreKit) -> None:
    assert await asleep(kit) is None
    await kit.send("a")
    await kit.events.next_wake()
    assert [leased.id for leased in (await kit.pulled(wait_ms=60_000)).jobs] == ["a"]
    kit.events.forget_wakes()
    await kit.send("b")
    await kit.events.next_wake()


async def test_who_no_longer_watches_is_not_called(kit: StoreKit) -> None:
    await asleep(kit)
    other = type(kit.partition)(kit.partition.namespace, kit.partition.topic + "-other")
    await kit.store.watch(other)
    await kit.store.pull(other, Pull((Credit(1, None),), 30_000, 60_000))
    await kit.store.unwatch(kit.partition)
    kit.events.forget_wakes()
    await kit.send("a")
    await kit.store.send(other, [item("b")])
    await kit.events.next_wake()
    assert set(kit.events.woken_partitions) == {other}

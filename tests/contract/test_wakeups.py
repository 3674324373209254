"""Who sleeps is woken by everything that makes a job deliverable earlier than he was told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from dueline.engine.job import Reason
from dueline.engine.limits import LAST_MS
from dueline.engine.store import Credit, OnConflict, Pull
from tests.kit.bed import Bed, item


async def asleep(bed: Bed) -> int | None:
    """A process waits on the partition, as engines do: watch, pull, then sleep until the time that the pull named."""
    await bed.store.watch(bed.partition)
    pulled = await bed.pulled(wait_ms=60_000)
    assert pulled.jobs == []
    bed.events.forget_wakes()
    return pulled.next_ms


async def send_now(bed: Bed) -> None:
    await bed.send("new")


async def send_earlier_than_the_head(bed: Bed) -> None:
    await bed.send("new", delay_ms=500)


async def reschedule_earlier(bed: Bed) -> None:
    await bed.edit("waiting", delay_ms=10)


async def fire(bed: Bed) -> None:
    await bed.fire("waiting")


async def replace_earlier(bed: Bed) -> None:
    await bed.send("waiting", delay_ms=3, on_live=OnConflict.REPLACE)


async def replace_an_ended_one(bed: Bed) -> None:
    await bed.send("cancelled", on_live=OnConflict.REPLACE)


async def revive(bed: Bed) -> None:
    await bed.revive("dead")


async def release_now(bed: Bed) -> None:
    await bed.release("leased", delay_ms=0)


async def release_earlier_than_the_head(bed: Bed) -> None:
    await bed.release("leased", delay_ms=300)


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
async def test_a_sleeper_is_woken_by(bed: Bed, cause: Callable[[Bed], Awaitable[None]]) -> None:
    await bed.make_dead("dead")
    await bed.send("cancelled", delay_ms=5)
    await bed.cancel("cancelled")
    await bed.send("leased")
    await bed.pull(1, lease_ms=90_000)
    await bed.send("waiting", delay_ms=1_000)
    assert await asleep(bed) == bed.clock.now_ms + 1_000
    await cause(bed)
    await bed.events.next_wake()
    assert set(bed.events.woken_partitions) == {bed.partition}
    next_ms = (await bed.pulled(wait_ms=60_000)).next_ms
    assert next_ms is not None


async def test_a_sleeper_on_an_empty_partition_is_woken_by_the_first_send(bed: Bed) -> None:
    assert await asleep(bed) is None
    await bed.send("a", delay_ms=10_000)
    await bed.events.next_wake()


async def test_a_sleeper_is_told_the_first_deadline_so_that_a_lost_lease_needs_no_wake_up(bed: Bed) -> None:
    await bed.send("a")
    await bed.pull(1, lease_ms=700)
    await bed.send("b", delay_ms=9_000)
    assert await asleep(bed) == bed.clock.now_ms + 700


@pytest.mark.parametrize("until_ms", [0, 1_500], ids=["resumed", "shortened"])
async def test_the_end_of_a_pause_wakes(bed: Bed, until_ms: int) -> None:
    await bed.send("a")
    await bed.control(pause_until_ms=LAST_MS)
    assert await asleep(bed) is None
    await bed.control(pause_until_ms=until_ms and bed.clock.now_ms + until_ms)
    await bed.events.next_wake()


async def ack(bed: Bed, lease: str) -> None:
    await bed.ack("held", lease)


async def release(bed: Bed, lease: str) -> None:
    await bed.release("held", lease, delay_ms=50_000)


async def reject(bed: Bed, lease: str) -> None:
    await bed.release("held", lease, dead=Reason.REJECTED)


async def cancel(bed: Bed, lease: str) -> None:
    await bed.cancel("held")


async def forget(bed: Bed, lease: str) -> None:
    await bed.cancel("held", forget=True)


async def replace(bed: Bed, lease: str) -> None:
    await bed.send("held", delay_ms=50_000, on_live=OnConflict.REPLACE)


async def raise_the_limit(bed: Bed, lease: str) -> None:
    await bed.control(max_in_flight=2)


async def lift_the_limit(bed: Bed, lease: str) -> None:
    await bed.control(max_in_flight=0)


FREEING = [ack, release, reject, cancel, forget, replace, raise_the_limit, lift_the_limit]


@pytest.mark.parametrize("free", FREEING, ids=lambda free: free.__name__)
async def test_a_freed_place_wakes(bed: Bed, free: Callable[[Bed, str], Awaitable[None]]) -> None:
    await bed.control(max_in_flight=1)
    await bed.send_many([item("held"), item("next")])
    held = await bed.pull_one(lease_ms=40_000)
    assert await asleep(bed) == bed.clock.now_ms + 40_000
    await free(bed, held.lease)
    await bed.events.next_wake()


async def test_every_process_that_watches_hears_of_it(bed: Bed) -> None:
    assert await asleep(bed) is None
    await bed.send("a")
    await bed.events.next_wake()
    assert [held.id for held in (await bed.pulled(wait_ms=60_000)).jobs] == ["a"]
    bed.events.forget_wakes()
    await bed.send("b")
    await bed.events.next_wake()


async def test_who_no_longer_watches_is_not_called(bed: Bed) -> None:
    await asleep(bed)
    other = type(bed.partition)(bed.partition.namespace, bed.partition.topic + "-other")
    await bed.store.watch(other)
    await bed.store.pull(other, Pull((Credit(1, None),), 30_000, 60_000))
    await bed.store.unwatch(bed.partition)
    bed.events.forget_wakes()
    await bed.send("a")
    await bed.store.send(other, [item("b")])
    await bed.events.next_wake()
    assert set(bed.events.woken_partitions) == {other}

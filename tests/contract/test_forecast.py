"""Forecasts: what falls due between given times, over many partitions; retries and paused bands apart."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from dueline.engine.bands import Bands, ForecastPart
from dueline.engine.job import Partition, Reason, State
from dueline.engine.limits import LAST_MS
from dueline.engine.store import OnConflict, Revive
from tests.kit.store import StoreKit, item


def partitions(kit: StoreKit, count: int) -> list[Partition]:
    return [replace(kit.partition, number=number) for number in range(count)]


async def forecast(kit: StoreKit, *edges_ms: int, of: Sequence[Partition] = (), paused_bands: int = 0) -> Bands:
    """With edges from now on."""
    parts = [ForecastPart(partition, paused_bands) for partition in of or [kit.partition]]
    return await kit.store.forecast(parts, [kit.clock.now_ms + edge_ms for edge_ms in edges_ms])


async def fail(kit: StoreKit, id: str, delay_ms: int, **words: object) -> None:
    """Send a job, deliver it and give it back for a time."""
    await kit.send(id)
    leased = next(leased for leased in await kit.pull() if leased.id == id)
    await kit.release(id, leased.lease, delay_ms=delay_ms, **words)


async def test_a_band_begins_at_its_edge_and_ends_before_the_next(kit: StoreKit) -> None:
    await kit.send_many([item(f"j{delay_ms}", delay_ms=delay_ms) for delay_ms in (0, 10, 20, 21, 5_000)])
    found = await forecast(kit, 0, 10, 20, 21, 22)
    assert (found.counts, found.later, found.now_ms) == ((0, 1, 1, 1), 1, kit.clock.now_ms)
    found = await forecast(kit, 11, 20)
    assert (found.counts, found.later) == ((0,), 3)
    await kit.advance(10)
    found = await forecast(kit, -500, -10, 0, 10, 6_000)  # what is due already is not scheduled
    assert (found.counts, found.later) == ((0, 0, 0, 3), 0)
    assert (await forecast(kit, 0, LAST_MS - kit.clock.now_ms)).counts == (3,)


async def test_a_partition_with_many_jobs_is_counted_like_one_with_few(kit: StoreKit) -> None:
    await kit.send_many([item(f"j{delay_ms}", delay_ms=delay_ms) for delay_ms in range(1, 301)])
    found = await forecast(kit, 0, 1, 2, 50, 50 + 1, 200, 290, 400)
    assert (found.counts, found.later) == ((0, 1, 48, 1, 149, 90, 11), 0)
    assert found.by_partition == (300,)
    found = await forecast(kit, *range(1, 65))
    assert (found.counts, found.later) == ((1,) * 63, 237)


async def test_many_partitions_are_summed_and_counted_each(kit: StoreKit) -> None:
    all_of_them = partitions(kit, 150)
    for partition in all_of_them[::10]:
        count = partition.number // 10
        await kit.store.send(
            partition, [item(f"j{n}", delay_ms=5) for n in range(count)] or [item("later", delay_ms=50)]
        )
    found = await forecast(kit, 0, 10, of=all_of_them)
    assert (found.counts, found.later) == ((sum(range(15)),), 1)
    assert found.by_partition == tuple(n // 10 if n % 10 == 0 else 0 for n in range(150))


async def test_bands_of_a_pause_are_counted_apart_with_their_retries(kit: StoreKit) -> None:
    await fail(kit, "again", 5)
    await kit.send_many([item(f"j{delay_ms}", delay_ms=delay_ms) for delay_ms in (5, 15, 25)])
    found = await forecast(kit, 0, 10, 20, paused_bands=1)
    assert (found.counts, found.retries, found.paused, found.later) == ((0, 1), (0, 0), (2, 0), 1)
    assert found.by_partition == (1,)


async def test_a_job_is_a_retry_while_it_waits_and_has_used_an_attempt(kit: StoreKit) -> None:
    async def shown() -> tuple[int, int]:
        found = await forecast(kit, 0, 1_000)
        return found.counts[0], found.retries[0]

    await kit.send("a", delay_ms=100)
    assert await shown() == (1, 0)
    await kit.advance(100)
    lease = (await kit.pull_one()).lease
    await kit.release("a", lease, delay_ms=100, count=False)
    assert await shown() == (1, 0)  # it was given back unused
    await kit.advance(100)
    await kit.release("a", (await kit.pull_one()).lease, delay_ms=100)
    assert await shown() == (0, 1)
    await kit.edit("a", delay_ms=200)
    assert await shown() == (0, 1)
    assert (await forecast(kit, 0, 150)).retries == (0,)
    await kit.edit("a", body=b"2")
    assert await shown() == (0, 1)
    await kit.fire("a")
    assert await shown() == (0, 0)
    lease = (await kit.pull_one()).lease
    assert await shown() == (0, 0)
    await kit.release("a", lease, delay_ms=100)
    await kit.send("a", on_live=OnConflict.REPLACE, delay_ms=50)
    assert await shown() == (1, 0)


async def test_what_ends_a_waiting_retry_ends_it_in_the_forecast(kit: StoreKit) -> None:
    for id in ("acked", "cancelled", "expired", "stays"):
        await fail(kit, id, 500)
    await fail(kit, "revived", 500)
    await kit.ack("acked")
    await kit.cancel("cancelled")
    await kit.cancel("expired", forget=True)
    assert (await forecast(kit, 0, 1_000)).retries == (2,)
    await kit.advance(500)
    for leased in await kit.pull():
        dead = None if leased.id == "stays" else Reason.REJECTED
        await kit.release(leased.id, leased.lease, delay_ms=100, dead=dead)
    await kit.revive("revived", delay_ms=100)  # its attempts count from 0 again
    found = await forecast(kit, 0, 1_000)
    assert (found.counts, found.retries) == ((1,), (1,))


async def test_waiting_retries_are_no_dead_jobs(kit: StoreKit) -> None:
    await kit.make_dead("d1")
    await kit.advance(1)
    await kit.make_dead("d2")
    for number in range(120):
        await fail(kit, f"w{number:03}", 5_000)
    assert await kit.listed_ids(state=State.DEAD) == ["d1", "d2"]
    assert await kit.listed_ids(state=State.DEAD, newest=True) == ["d2", "d1"]
    assert (await kit.stats()).dead == 2
    revived = await kit.store.revive(kit.partition, Revive(None, limit=5))
    assert [id for id, _ in revived] == ["d1", "d2"]

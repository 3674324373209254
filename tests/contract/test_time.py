"""What time alone does: ttl, retention, lost leases. Clean-up may or may not have run."""

from __future__ import annotations

import time
from typing import Any

from dueline.engine.job import Partition, Reason, State
from dueline.engine.store import Code, Credit, OnConflict, Pull
from tests.kit.store import StoreKit, item, valkey_store
from tests.kit.valkey import PrivateValkey


async def test_a_job_expires_its_ttl_after_its_due_time(kit: StoreKit) -> None:
    await kit.send("a", delay_ms=100, ttl_ms=50)
    expires_ms = kit.clock.now_ms + 150
    await kit.advance(149)
    assert await kit.state("a") is State.READY
    await kit.advance(3)
    job = await kit.job("a")
    assert (job.state, job.reason, job.body) == (State.DEAD, Reason.EXPIRED, b"body")
    assert (job.ended_at_ms, job.updated_at_ms, job.expires_at_ms) == (expires_ms, expires_ms, expires_ms)
    assert await kit.pull_ids() == []
    assert await kit.ack("a") is Code.ALREADY_DONE
    assert await kit.cancel("a") is Code.ALREADY_DONE
    assert (await kit.edit("a", delay_ms=5)).code is Code.ALREADY_DONE


async def test_a_leased_job_does_not_expire_before_its_lease_ends(kit: StoreKit) -> None:
    await kit.send_many([item("acked", ttl_ms=10), item("lost", ttl_ms=10), item("released", ttl_ms=10)])
    leased = {one.id: one.lease for one in await kit.pull(lease_ms=100)}
    deadline_ms = kit.clock.now_ms + 100
    await kit.advance(50)
    assert await kit.state("acked") is State.LEASED
    assert await kit.ack("acked", leased["acked"]) is Code.OK
    released = await kit.release("released", leased["released"], delay_ms=0)
    assert (released.code, released.reason) == (Code.DEAD, Reason.EXPIRED)
    assert (await kit.job("released")).ended_at_ms == kit.clock.now_ms
    await kit.advance(51)
    lost = await kit.job("lost")
    assert (lost.state, lost.reason, lost.ended_at_ms) == (State.DEAD, Reason.EXPIRED, deadline_ms)
    assert await kit.ack("lost", leased["lost"]) is Code.LEASE_LOST


async def test_a_lost_lease_whose_job_expires_later_dies_then(kit: StoreKit) -> None:
    await kit.send("a", ttl_ms=100)
    expires_ms = kit.clock.now_ms + 100
    await kit.pull_one(lease_ms=30)
    await kit.advance(50)
    assert await kit.state("a") is State.READY
    await kit.advance(60)
    job = await kit.job("a")
    assert (job.reason, job.ended_at_ms) == (Reason.EXPIRED, expires_ms)


async def test_a_retry_wait_does_not_move_the_expiry_and_ends_with_it(kit: StoreKit) -> None:
    await kit.send("a", ttl_ms=100)
    expires_ms = kit.clock.now_ms + 100
    leased = await kit.pull_one()
    await kit.advance(10)
    await kit.release("a", leased.lease, delay_ms=5_000)
    assert (await kit.job("a")).expires_at_ms == expires_ms
    await kit.advance(90)
    job = await kit.job("a")
    assert (job.state, job.reason, job.ended_at_ms) == (State.DEAD, Reason.EXPIRED, expires_ms)
    await kit.advance(5_000)
    assert await kit.pull_ids() == []


async def test_exhausted_comes_before_expired(kit: StoreKit) -> None:
    await kit.send("a", ttl_ms=10, max_attempts=1)
    await kit.pull_one(lease_ms=20)
    await kit.advance(30)
    assert (await kit.job("a")).reason is Reason.EXHAUSTED


async def test_done_and_cancelled_jobs_are_gone_after_their_retention(kit: StoreKit) -> None:
    await kit.send_many([item("done", retain_ms=100), item("cancelled", retain_ms=100, tags=("t",))])
    leased = next(one for one in await kit.pull() if one.id == "done")
    await kit.ack("done", leased.lease)
    await kit.cancel("cancelled")
    await kit.advance(99)
    assert (await kit.state("done"), await kit.state("cancelled")) == (State.DONE, State.CANCELLED)
    await kit.advance(1)
    assert (await kit.read("done"), await kit.read("cancelled")) == (None, None)
    assert await kit.ack("done", leased.lease) is Code.NOT_FOUND
    assert await kit.cancel("cancelled") is Code.NOT_FOUND
    assert await kit.purge("done") == [("done", Code.NOT_FOUND)]


async def test_without_retention_nothing_is_left_at_once(kit: StoreKit) -> None:
    await kit.send_many([item("done", retain_ms=0), item("cancelled", retain_ms=0, delay_ms=9)])
    leased = await kit.pull_one()
    assert await kit.ack("done", leased.lease) is Code.OK
    assert await kit.cancel("cancelled") is Code.OK
    assert (await kit.read("done"), await kit.read("cancelled")) == (None, None)
    assert await kit.ack("done", leased.lease) is Code.NOT_FOUND
    stats = await kit.stats()
    assert (stats.done, stats.cancelled, stats.ready, stats.scheduled) == (0, 0, 0, 0)


async def test_dead_jobs_have_a_retention_of_their_own_from_their_death(kit: StoreKit) -> None:
    await kit.make_dead("exhausted", retain_ms=0, dead_retain_ms=1_000)
    await kit.send("expired", ttl_ms=10, retain_ms=0, dead_retain_ms=1_000)
    await kit.advance(999)
    assert await kit.state("exhausted") is State.DEAD
    await kit.advance(1)
    assert await kit.read("exhausted") is None
    assert (await kit.job("expired")).retain_until_ms == kit.clock.now_ms + 10
    await kit.advance(10)
    assert await kit.read("expired") is None
    assert (await kit.revive("expired"))[0][1].code is Code.NOT_FOUND


async def test_a_job_that_died_and_was_forgotten_unseen_is_gone(kit: StoreKit) -> None:
    await kit.send("lease", max_attempts=1, dead_retain_ms=20)
    await kit.pull(1)
    await kit.send("ttl", ttl_ms=10, dead_retain_ms=20)
    await kit.send("none", ttl_ms=10, dead_retain_ms=0)
    kit.clock.advance(100_000)
    assert [await kit.read(id) for id in ("ttl", "lease", "none")] == [None] * 3
    assert (await kit.send("ttl")).code is Code.CREATED
    assert (await kit.send("lease", on_live=OnConflict.REPLACE)).code is Code.CREATED
    assert await kit.cancel("none") is Code.NOT_FOUND
    assert await kit.pull_ids() == ["ttl", "lease"]


def near(next_ms: int | None, at_ms: int) -> bool:
    """Clean-up is asked for within its grain after the work is there, never before."""
    return next_ms is not None and at_ms <= next_ms < at_ms + 10_000


async def test_clean_up_writes_down_what_is_true_already_and_says_when_to_come_back(kit: StoreKit) -> None:
    kit.calm()
    await kit.send_many(
        [
            item("expired", ttl_ms=10),
            item("exhausted", max_attempts=1),
            item("done", retain_ms=500),
            item("dead", max_attempts=1, dead_retain_ms=500),
            item("alive", delay_ms=1_000),
        ]
    )
    leased = {one.id: one.lease for one in await kit.pull(lease_ms=20)}
    await kit.cancel("expired")
    await kit.purge("expired")
    await kit.send("expired", ttl_ms=10)
    await kit.ack("done", leased["done"])
    await kit.release("dead", leased["dead"])
    start_ms = kit.clock.now_ms
    kit.clock.advance(5)
    nothing = await kit.store.clean(kit.partition)
    assert (nothing.expired, nothing.exhausted, nothing.purged, nothing.dead_trimmed) == (0, 0, 0, 0)
    assert (near(nothing.next_ms, start_ms + 10), nothing.more) == (True, False)
    kit.clock.advance(100)
    ids = ["expired", "exhausted", "done", "dead", "alive"]
    before = await kit.store.read(kit.partition, ids)
    cleaned = await kit.store.clean(kit.partition)
    assert (cleaned.expired, cleaned.exhausted, cleaned.purged, cleaned.dead_trimmed) == (1, 1, 0, 0)
    assert (near(cleaned.next_ms, start_ms + 500), cleaned.more) == (True, False)
    assert await kit.store.read(kit.partition, ids) == before
    kit.clock.advance(400)
    cleaned = await kit.store.clean(kit.partition)
    assert (cleaned.expired, cleaned.exhausted, cleaned.purged, cleaned.dead_trimmed) == (0, 0, 1, 1)


async def test_clean_up_works_in_bounded_steps(kit: StoreKit) -> None:
    kit.calm()
    await kit.send_many([item(f"{n}", ttl_ms=10, dead_retain_ms=10) for n in range(450)])
    kit.clock.advance(50)
    steps = 0
    while (cleaned := await kit.store.clean(kit.partition, 100)).more:
        steps += 1
        assert steps < 100
    assert steps >= 3
    assert cleaned.next_ms is None
    assert (await kit.stats()).dead == 0


async def test_work_for_the_cleaner_is_noted_before_it_is_due(kit: StoreKit) -> None:
    await kit.send("a", ttl_ms=10)
    assert kit.events.notes
    partition, at_ms = kit.events.notes[-1]
    assert partition == kit.partition
    assert at_ms >= kit.clock.now_ms + 10
    await kit.store.agenda_noted(kit.partition, at_ms)
    kit.events.notes.clear()
    await kit.send("b", ttl_ms=10)
    assert kit.events.notes == []


async def test_plain_jobs_make_no_work_for_the_cleaner(kit: StoreKit) -> None:
    await kit.send_many([item("a"), item("b", delay_ms=100)])
    await kit.pull(1)
    assert kit.events.notes == []


def floored(name: str, source: str) -> str:
    """The mistake that the rounding guards against: what begins is counted from the past millisecond."""
    right = "start = us > 0 and now + 1 or now"
    assert name != "lib/time" or right in source
    return source.replace(right, "start = now")


async def any_early(url: str, partition: Partition, delay_ms: int, jobs: int, **options: Any) -> bool:
    """Whether one of so many jobs came before its request + delay had passed, which is early on any clock."""
    store = valkey_store(url, None, **options)
    await store.start()
    try:
        for n in range(jobs):
            asked_at_ns = time.monotonic_ns()
            await store.send(partition, [item(f"{n}", delay_ms=delay_ms)])
            while not (await store.pull(partition, Pull((Credit(1, None),), 30_000))).jobs:
                pass
            if time.monotonic_ns() - asked_at_ns < delay_ms * 1_000_000:
                return True
    finally:
        await store.stop()
    return False


async def test_by_the_real_clock_nothing_comes_early_by_a_fraction_of_a_millisecond(
    private_valkey: PrivateValkey,
) -> None:
    """Only the production store has a clock with fractions. With the wrong rounding the same test sees an early job; on
    a busy machine that takes more jobs."""
    assert not await any_early(private_valkey.url, Partition("early", "right"), 5, 60)
    assert await any_early(private_valkey.url, Partition("early", "wrong"), 5, 5_000, lua_patch=floored)

"""Pulling: order, leases, bounds, and what the answer says about the next time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dueline.engine.job import BodyKind, LeasedJob, Partition, Reason, State
from dueline.engine.store import Code, Credit, Pull
from tests.kit.store import StoreKit, item


class Deaths:
    """Hears which jobs a store found to be dead."""

    def __init__(self) -> None:
        self.found: list[tuple[str, Reason]] = []

    def died(self, partition: Partition, deaths: Sequence[tuple[str, Reason]]) -> None:
        self.found += deaths

    def pulled(self, partition: Partition, jobs: Sequence[LeasedJob], credits: Any) -> None: ...
    def done(self, operation: str, partition: Partition, items: Any, results: Any, by: Any) -> None: ...
    def lost(self) -> None: ...


async def test_a_leased_job_carries_everything(kit: StoreKit) -> None:
    created_ms = kit.clock.now_ms
    sent = await kit.send(
        "a", body=b"\x00\xff", kind=BodyKind.BYTES, delay_ms=10, tags=("t",), headers=b"h", max_attempts=4
    )
    await kit.advance(13)
    leased = await kit.pull_one(lease_ms=500)
    assert leased == LeasedJob(
        id="a",
        topic=kit.partition.topic,
        body=b"\x00\xff",
        kind=BodyKind.BYTES,
        headers=b"h",
        tags=("t",),
        attempt=1,
        delivery=1,
        max_attempts=4,
        lease=leased.lease,
        lease_until_ms=kit.clock.now_ms + 500,
        due_at_ms=created_ms + 10,
        created_at_ms=created_ms,
        late_ms=3,
        version=sent.version,
    )
    job = await kit.job("a")
    assert (job.state, job.lease_until_ms, job.due_at_ms) == (State.LEASED, leased.lease_until_ms, created_ms + 10)
    assert (job.deliveries, job.attempts, job.updated_at_ms) == (1, 1, kit.clock.now_ms)


async def test_a_leased_job_has_the_progress_that_its_last_holder_left(kit: StoreKit) -> None:
    versions = {id: (await kit.send(id, max_attempts=None)).version for id in "abc"}
    left = {"a": b"one", "b": b"", "c": b"\x00three"}
    for job in await kit.pull():
        assert job.progress == b""
        await kit.release(job.id, job.lease, delay_ms=0, progress=left[job.id] or None, error="later")
    for _ in range(2):  # the second time, the leases of the first have expired
        jobs = await kit.pull(lease_ms=10)
        assert {job.id: job.progress for job in jobs} == left
        assert {job.id: job.version for job in jobs} == versions
        await kit.advance(10)


async def test_a_pull_reports_the_dead_beside_jobs_with_progress(kit: StoreKit) -> None:
    kit.calm()
    await kit.send("a")
    await kit.send("b", ttl_ms=10)
    for job in await kit.pull():
        await kit.release(job.id, job.lease, delay_ms=0, progress=b"half")
    heard = kit.store.hook.outcomes = Deaths()
    await kit.advance(10)
    assert [(job.id, job.progress) for job in await kit.pull()] == [("a", b"half")]
    await kit.clean()
    assert heard.found == [("b", Reason.EXPIRED)]


async def test_a_leased_job_has_its_ttl_and_its_first_due_time_even_after_a_release(kit: StoreKit) -> None:
    created_ms = kit.clock.now_ms
    await kit.send("a", delay_ms=10, ttl_ms=5_000)
    await kit.advance(10)
    leased = await kit.pull_one()
    assert (leased.expires_at_ms, leased.ttl_ms, leased.first_due_at_ms) == (created_ms + 5_010, 5_000, created_ms + 10)
    await kit.advance(7)
    await kit.release("a", leased.lease, delay_ms=0)
    again = await kit.pull_one()
    assert (again.due_at_ms, again.first_due_at_ms) == (created_ms + 17, created_ms + 10)
    job = await kit.job("a")
    assert (job.ttl_ms, job.expires_at_ms, job.first_due_at_ms) == (5_000, created_ms + 5_010, created_ms + 10)


async def test_a_job_without_a_limit_of_attempts_says_so(kit: StoreKit) -> None:
    await kit.send("a", max_attempts=None)
    assert (await kit.pull_one()).max_attempts is None


async def test_nothing_is_delivered_before_its_due_millisecond(kit: StoreKit) -> None:
    await kit.send("a", delay_ms=100)
    assert await kit.pull_ids() == []
    await kit.advance(99)
    assert (await kit.pull_ids(), await kit.state("a")) == ([], State.SCHEDULED)
    await kit.advance(1)
    assert await kit.state("a") is State.READY
    assert await kit.pull_ids() == ["a"]


async def test_order_is_by_due_time_then_by_send_order(kit: StoreKit) -> None:
    sends = [("z", 5), ("b", 3), ("a", 5), ("y", 3), ("m", 0), ("c", 3)]
    for id, delay_ms in sends:
        await kit.send(id, delay_ms=delay_ms)
    await kit.advance(10)
    assert await kit.pull_ids() == ["m", "b", "y", "c", "z", "a"]


async def test_jobs_of_one_millisecond_come_in_send_order_across_calls(kit: StoreKit) -> None:
    at_ms = kit.clock.now_ms + 50
    ids = [f"{n * 37 % 101:03}" for n in range(101)]
    for start in range(0, 101, 10):
        await kit.send_many([item(id, at_ms=at_ms) for id in ids[start : start + 10]])
        await kit.advance(1)
    await kit.advance(100)
    got: list[str] = []
    while batch := await kit.pull_ids(7):
        got += batch
    assert got == ids


async def test_an_over_lease_stands_at_its_deadline_among_the_due(kit: StoreKit) -> None:
    await kit.send("lost")
    await kit.send("equal", delay_ms=20)
    await kit.send("early", delay_ms=10)
    await kit.send("late", delay_ms=30)
    assert await kit.pull_ids(1, lease_ms=20) == ["lost"]
    await kit.advance(40)
    assert await kit.pull_ids() == ["early", "lost", "equal", "late"]


async def test_a_leased_job_is_given_to_nobody_else_until_its_lease_is_over(kit: StoreKit) -> None:
    await kit.send("a")
    first = await kit.pull_one(lease_ms=100)
    await kit.advance(99)
    assert await kit.pull_ids() == []
    await kit.advance(1)
    kit.calm()
    pulled = await kit.pulled()
    assert [(leased.attempt, leased.delivery, leased.late_ms) for leased in pulled.jobs] == [(2, 2, 0)]
    assert pulled.leases_lost == 1
    assert pulled.jobs[0].lease != first.lease


async def test_the_lease_is_the_pulls_else_the_jobs_else_the_default(kit: StoreKit) -> None:
    await kit.send_many([item("own", lease_ms=700), item("none"), item("asked", lease_ms=700)])
    now_ms = kit.clock.now_ms
    first = await kit.store.pull(kit.partition, Pull((Credit(2, None), Credit(1, 50)), 900))
    assert [leased.lease_until_ms - now_ms for leased in first.jobs] == [700, 900, 50]


async def test_credits_of_several_waiters_are_filled_in_their_order(kit: StoreKit) -> None:
    await kit.send_many([item(f"{n}") for n in range(5)])
    credits = (Credit(2, 100), Credit(1, 200), Credit(1, 300), Credit(9, 400))
    pulled = await kit.store.pull(kit.partition, Pull(credits, 900))
    now_ms = kit.clock.now_ms
    assert [(leased.id, leased.lease_until_ms - now_ms) for leased in pulled.jobs] == [
        ("0", 100),
        ("1", 100),
        ("2", 200),
        ("3", 300),
        ("4", 400),
    ]


async def test_a_pull_takes_no_more_than_asked(kit: StoreKit) -> None:
    await kit.send_many([item(f"{n}") for n in range(5)])
    assert await kit.pull_ids(2) == ["0", "1"]
    stats = await kit.stats()
    assert (stats.ready, stats.leased) == (3, 2)


async def test_an_empty_partition_promises_nothing(kit: StoreKit) -> None:
    pulled = await kit.pulled()
    assert (pulled.jobs, pulled.next_ms, pulled.more, pulled.now_ms) == ([], None, False, kit.clock.now_ms)


async def test_the_next_time_is_the_earlier_of_first_due_and_first_deadline(kit: StoreKit) -> None:
    now_ms = kit.clock.now_ms
    await kit.send_many([item("now"), item("soon", delay_ms=500), item("late", delay_ms=9_000)])
    assert (await kit.pulled(lease_ms=2_000)).next_ms == now_ms + 500
    await kit.advance(500)
    assert (await kit.pulled(lease_ms=9_000)).next_ms == now_ms + 2_000


async def test_what_is_left_over_can_be_had_at_once(kit: StoreKit) -> None:
    await kit.send_many([item("a"), item("b")])
    pulled = await kit.pulled(1)
    assert pulled.next_ms is not None
    assert pulled.next_ms <= kit.clock.now_ms


async def test_bodies_beyond_the_bound_of_one_pull_come_in_the_following_ones(kit: StoreKit) -> None:
    await kit.send_many([item(f"{n}", body=bytes([n]) * 600_000) for n in range(3)])
    kit.calm()
    pulled = await kit.pulled()
    assert (len(pulled.jobs) < 3, pulled.more) == (True, True)
    rest = await kit.pull()
    assert [leased.body[:1] for leased in [*pulled.jobs, *rest]] == [b"\0", b"\1", b"\2"]


async def test_expired_jobs_in_front_do_not_hide_the_living(kit: StoreKit) -> None:
    await kit.send_many([item(f"x{n}", ttl_ms=5) for n in range(300)])
    await kit.send("alive", delay_ms=5)
    await kit.advance(10)
    assert await kit.pull_ids() == ["alive"]
    await kit.clean()
    assert (await kit.stats()).dead_by_reason["expired"] == 300


async def test_an_in_flight_limit_holds_jobs_back_until_a_place_is_free(kit: StoreKit) -> None:
    await kit.control(max_in_flight=2)
    await kit.send_many([item(f"{n}") for n in range(4)])
    pulled = await kit.pulled(lease_ms=1_000)
    assert [leased.id for leased in pulled.jobs] == ["0", "1"]
    assert pulled.next_ms == kit.clock.now_ms + 1_000
    assert await kit.pull_ids() == []
    assert await kit.ack("0", pulled.jobs[0].lease) is Code.OK
    assert await kit.pull_ids() == ["2"]
    await kit.control(max_in_flight=0)
    assert await kit.pull_ids() == ["3"]


async def test_an_over_lease_frees_its_place(kit: StoreKit) -> None:
    await kit.control(max_in_flight=1)
    await kit.send_many([item("a"), item("b")])
    assert await kit.pull_ids(lease_ms=100) == ["a"]
    await kit.advance(100)
    assert await kit.pull_ids() == ["b"]
    assert await kit.state("a") is State.READY

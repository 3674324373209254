"""The history of a job: what it has, what is dropped, and its budget."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from dueline.engine.history import HISTORY_BYTES, MAX_ENTRIES, History, HistoryEntry
from dueline.engine.job import Reason
from dueline.engine.limits import INTERNAL_NAMESPACE, Limits
from dueline.engine.policy import AT_ONCE, Ladder
from dueline.engine.store import Code, Merge, OnConflict
from dueline.store.memory import MemoryStore
from tests.kit.async_tests import async_fixture
from tests.kit.fixtures import make_kit
from tests.kit.store import KINDS, StoreKit, valkey_store

Entry = HistoryEntry


async def entries(kit: StoreKit, id: str = "a") -> tuple[HistoryEntry, ...]:
    history = await kit.history(id)
    assert history is not None
    return history.entries


async def words(kit: StoreKit, id: str = "a") -> list[str]:
    return [entry.what for entry in await entries(kit, id)]


async def test_an_unknown_job_has_no_history(kit: StoreKit) -> None:
    assert await kit.history("a") is None
    await kit.send("b")
    assert await kit.history("a") is None


async def test_a_job_that_was_only_sent_says_when(kit: StoreKit) -> None:
    await kit.send("a", delay_ms=50)
    assert await kit.history("a") == History((Entry(kit.clock.now_ms, "sent"),), 0)
    assert (await kit.stats()).history_bytes == 0


async def test_a_life_with_a_failure_is_told_from_its_send_to_its_end(kit: StoreKit) -> None:
    t = kit.clock.now_ms
    await kit.send("a", retry=Ladder((10,)))
    await kit.advance(1)
    [first] = (await kit.pulled(by="worker-1")).jobs
    await kit.advance(1)
    await kit.release("a", first.lease, error="the printer is out of paper")
    await kit.advance(10)
    [second] = (await kit.pulled(by="worker-2")).jobs
    await kit.advance(1)
    assert await kit.ack("a", second.lease) is Code.OK
    await kit.advance(1)
    assert await kit.history("a") == History(
        (
            Entry(t, "sent"),
            Entry(t + 1, "delivered", 1, "worker-1"),
            Entry(t + 2, "released", 1, error="the printer is out of paper", due_at_ms=t + 12),
            Entry(t + 12, "delivered", 2, "worker-2"),
            Entry(t + 13, "acked", 2),
        ),
        0,
    )


async def test_edits_lost_leases_deaths_and_revivals_are_told(kit: StoreKit) -> None:
    t = kit.clock.now_ms
    await kit.send("a", max_attempts=2, dead_retain_ms=10_000)
    await kit.advance(1)
    await kit.edit("a", delay_ms=0)
    await kit.pull_one(lease_ms=10)
    await kit.advance(10)
    await kit.edit("a", delay_ms=5)
    await kit.advance(5)
    leased = await kit.pull_one()
    await kit.release("a", leased.lease, error="no luck")
    await kit.advance(1)
    await kit.revive("a", delay_ms=7)
    assert await entries(kit) == (
        Entry(t, "sent"),
        Entry(t + 1, "edited", due_at_ms=t + 1),
        Entry(t + 1, "delivered", 1),
        Entry(t + 11, "lease_lost", 1),
        Entry(t + 11, "edited", due_at_ms=t + 16),
        Entry(t + 16, "delivered", 2),
        Entry(t + 16, "dead", 2, error="no luck", reason=Reason.EXHAUSTED),
        Entry(t + 17, "revived", due_at_ms=t + 24),
    )


async def test_a_dead_job_ends_with_its_reason_even_before_clean_up(kit: StoreKit) -> None:
    t = kit.clock.now_ms
    await kit.send("a", ttl_ms=5)
    kit.clock.advance(9)
    assert await entries(kit) == (Entry(t, "sent"), Entry(t + 5, "dead", reason=Reason.EXPIRED))


async def test_edits_before_the_first_delivery_are_told_even_after_the_end(kit: StoreKit) -> None:
    t = kit.clock.now_ms
    for id in "abc":
        await kit.send(id, delay_ms=10)
        await kit.edit(id, delay_ms=20)
        await kit.advance(1)
        await kit.edit(id, delay_ms=0)
        edits = (Entry(t, "sent"), Entry(t, "edited", due_at_ms=t + 20), Entry(t + 1, "edited", due_at_ms=t + 1))
        assert await entries(kit, id) == edits
        if id == "a":
            leased = await kit.pull_one()
            await kit.ack(id, leased.lease)
            edits += (Entry(t + 1, "delivered", 1), Entry(t + 1, "acked", 1))
        elif id == "b":
            await kit.ack(id)
            edits += (Entry(t + 1, "acked"),)
        else:
            await kit.cancel(id)
            edits += (Entry(t + 1, "cancelled"),)
        assert await entries(kit, id) == edits
        t += 1


async def test_an_edited_job_that_was_never_delivered_keeps_its_rules(kit: StoreKit) -> None:
    t = kit.clock.now_ms
    await kit.send("a", delay_ms=10, ttl_ms=5, max_attempts=1, dead_retain_ms=10_000)
    await kit.edit("a", delay_ms=30)
    job = await kit.job("a")
    assert (job.due_at_ms, job.expires_at_ms, job.attempts, job.deliveries) == (t + 30, t + 35, 0, 0)
    await kit.advance(30)
    leased = await kit.pull_one(lease_ms=1)
    assert (leased.attempt, leased.late_ms) == (1, 0)
    await kit.advance(1)
    assert await words(kit) == ["sent", "edited", "delivered", "dead"]
    assert (await kit.stats()).history_bytes == HISTORY_BYTES + 17 + 11


async def test_a_merge_group_tells_its_last_edit_before_its_first_delivery(kit: StoreKit) -> None:
    t = kit.clock.now_ms
    await kit.send("a", delay_ms=10, merge=Merge("key"))
    for delay in (20, 30):
        await kit.edit("a", delay_ms=delay)
        await kit.advance(1)
    assert await entries(kit) == (Entry(t, "sent"), Entry(t + 1, "edited"))
    assert (await kit.stats()).history_bytes == 0


async def test_a_cancelled_job_ends_with_that(kit: StoreKit) -> None:
    await kit.send("a")
    await kit.pull_one()
    await kit.cancel("a")
    assert await words(kit) == ["sent", "delivered", "cancelled"]


async def test_a_lease_that_expired_is_told_when_the_job_is_delivered_again(kit: StoreKit) -> None:
    await kit.send("a")
    await kit.pull_one(lease_ms=10)
    await kit.advance(10)
    assert await words(kit) == ["sent", "delivered"]
    await kit.pull_one()
    assert await words(kit) == ["sent", "delivered", "lease_lost", "delivered"]


async def test_only_the_last_ten_entries_are_kept_and_the_other_deliveries_counted(kit: StoreKit) -> None:
    await kit.send("a", retry=AT_ONCE, max_attempts=100)
    for number in range(13):
        [leased] = (await kit.pulled(by=f"worker-{number}" if number % 3 else None)).jobs
        await kit.release("a", leased.lease, error=f"error {number}" if number % 2 else None)
        await kit.advance(1)
    history = await kit.history("a")
    assert history is not None
    assert [entry.what for entry in history.entries] == ["sent", *["delivered", "released"] * (MAX_ENTRIES // 2)]
    assert [entry.attempt for entry in history.entries[1:]] == [9, 9, 10, 10, 11, 11, 12, 12, 13, 13]
    assert [entry.by for entry in history.entries[1::2]] == ["worker-8", None, "worker-10", "worker-11", None]
    assert history.dropped == 8


async def test_names_and_errors_are_cut_between_characters(kit: StoreKit) -> None:
    await kit.send("a")
    [leased] = (await kit.pulled(by="ü" * 100)).jobs
    await kit.release("a", leased.lease, error="€" * 300)
    _, delivered, released = await entries(kit)
    assert (delivered.by, released.error) == ("ü" * 64, "€" * 66)


async def test_an_uncounted_release_has_the_attempt_of_its_delivery(kit: StoreKit) -> None:
    await kit.send("a")
    leased = await kit.pull_one()
    await kit.release("a", leased.lease, delay_ms=0, count=False)
    await kit.pull_one()
    assert [entry.attempt for entry in await entries(kit)] == [None, 1, 1, 1]


async def test_a_replaced_job_begins_a_new_history(kit: StoreKit) -> None:
    await kit.send("a")
    await kit.pull_one()
    await kit.send("a", body=b"new", on_live=OnConflict.REPLACE)
    assert await words(kit) == ["sent"]
    assert (await kit.stats()).history_bytes == 0


async def test_a_released_job_keeps_its_progress_beside_its_history(kit: StoreKit) -> None:
    await kit.send("a")
    leased = await kit.pull_one()
    await kit.release("a", leased.lease, progress=b"half", error="later")
    leased = await kit.pull_one()
    assert ((await kit.job("a")).progress, (await kit.job("a")).last_error) == (b"half", "later")
    await kit.ack("a", leased.lease)
    job = await kit.job("a")
    assert (job.progress, job.last_error) == (b"half", "later")
    assert await words(kit) == ["sent", "delivered", "released", "delivered", "acked"]


async def test_the_servers_own_jobs_have_no_history(kit: StoreKit) -> None:
    kit.partition = replace(kit.partition, namespace=INTERNAL_NAMESPACE)
    await kit.send("a", max_attempts=None)
    for _ in range(3):
        await kit.release("a", (await kit.pull_one(lease_ms=10)).lease, delay_ms=0, progress=b"half")
    await kit.pull_one(lease_ms=10)
    await kit.advance(10)
    await kit.pull_one()
    stats = await kit.stats()
    assert (await words(kit), stats.history_bytes, stats.history_dropped) == (["sent"], 0, 0)


@pytest.mark.parametrize("retain_ms", [0, 1000])
async def test_the_bytes_of_a_history_end_with_its_job(kit: StoreKit, retain_ms: int) -> None:
    await kit.send("a", retain_ms=retain_ms)
    [leased] = (await kit.pulled(by="me")).jobs
    assert (await kit.stats()).history_bytes == HISTORY_BYTES + 11 + 3
    await kit.ack("a", leased.lease)
    kept = (await kit.stats()).history_bytes
    assert kept == (HISTORY_BYTES + 11 + 3 if retain_ms else 0)
    await kit.advance(1000)
    await kit.clean()
    assert (await kit.stats()).history_bytes == 0


BUDGET = 3 * (HISTORY_BYTES + 11)  # three first deliveries


def bounded(kit: StoreKit, budget: int) -> StoreKit:
    """The same store with another budget."""
    if kit.kind == "memory":
        return StoreKit("memory", lambda clock: MemoryStore(clock, budget))
    url: str = kit.store.url  # pyright: ignore[reportAttributeAccessIssue]
    return StoreKit(kit.kind, lambda clock: valkey_store(url, clock, limits=Limits(max_history_bytes=budget)))


@async_fixture(params=KINDS)
async def small(request: pytest.FixtureRequest) -> AsyncIterator[StoreKit]:
    async with make_kit(request.param, request) as kit, bounded(kit, BUDGET) as small:
        yield small


async def test_no_entry_is_kept_beyond_the_budget_and_each_of_them_is_counted(small: StoreKit) -> None:
    for id in "abcde":
        await small.send(id)
    jobs = await small.pull()
    stats = await small.stats()
    assert (stats.history_bytes, stats.history_dropped) == (BUDGET, 2)
    assert await words(small, "c") == ["sent", "delivered"]
    assert await small.history("d") == History(((await entries(small, "d"))[0],), 1)
    await small.release("a", jobs[0].lease, error="no room for this")
    stats = await small.stats()
    assert (stats.history_bytes, stats.history_dropped) == (BUDGET, 3)
    assert (await small.job("a")).last_error == "no room for this"
    await small.cancel("b", forget=True)
    await small.pull_one()
    stats = await small.stats()
    assert (stats.history_bytes, stats.history_dropped) == (BUDGET - HISTORY_BYTES, 3)


async def test_the_budget_holds_for_every_operation_in_every_script_case(small: StoreKit) -> None:
    for number in range(40):
        await small.send(f"j{number % 7}", max_attempts=3, on_live=OnConflict.KEEP, on_ended=OnConflict.REPLACE)
        for leased in (await small.pulled(3, lease_ms=3, by="someone" if number % 2 else None)).jobs:
            if number % 4 == 0:
                await small.release(leased.id, leased.lease, error="x" * number)
            elif number % 5 == 0:
                await small.ack(leased.id, leased.lease)
        await small.advance(3)
        await small.edit(f"j{number % 3}", delay_ms=0)
        await small.revive("j1", "j2", "j4")
        assert (await small.stats()).history_bytes <= BUDGET


async def test_without_a_budget_nothing_is_kept_and_nothing_counted(kit: StoreKit) -> None:
    async with bounded(kit, 0) as off:
        await off.send("a")
        leased = await off.pull_one()
        await off.release("a", leased.lease, error="no")
        await off.edit("a", delay_ms=0)
        leased = await off.pull_one()
        await off.ack("a", leased.lease)
        t = off.clock.now_ms
        assert await off.history("a") == History((Entry(t, "sent"), Entry(t, "acked", 2)), 2)
        stats = await off.stats()
        assert (stats.history_bytes, stats.history_dropped) == (0, 0)

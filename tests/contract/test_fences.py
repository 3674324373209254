"""Fences: what a partition remembers of the schedules that send to it, and the progress that a job carries."""

from __future__ import annotations

from typing import Any

import pytest

from dueline.engine.fence import GONE_KEEP_MS, Fence, Occurrence
from dueline.engine.job import Partition, State
from dueline.engine.limits import MAX_REFUNDS
from dueline.engine.store import Code, OnConflict, SendOutcome
from dueline.store.valkey import fsck
from dueline.store.valkey.keys import key_of
from dueline.store.valkey.reader import StoreReader
from tests.kit.store import StoreKit, another, item

NAME = "ns\0every-day"


def at(at_ms: int, version: int = 7, schedule: str = NAME) -> Occurrence:
    return Occurrence(schedule, version, at_ms)


async def fences(kit: StoreKit) -> set[Fence]:
    found: set[Fence] = set()
    cursor: bytes | None = b""
    while cursor is not None:
        page, cursor = await kit.store.fences(kit.partition, cursor)
        found |= set(page)
    return found


async def findings(kit: StoreKit) -> list[str]:
    """What fsck says of the partition; nothing in memory."""
    if kit.kind == "memory":
        return []
    store: Any = kit.store
    reader = StoreReader(store.url)
    try:
        contents = await fsck._read(reader, store.prefix, kit.partition)  # pyright: ignore[reportPrivateUsage]
    finally:
        await reader.stop()
    return [one.what for one in fsck.check(kit.partition, contents)]


async def test_an_occurrence_becomes_one_job_even_when_the_job_is_long_gone(kit: StoreKit) -> None:
    sent = await kit.send("a@1000", retain_ms=0, occurrence=at(1000))
    assert (sent.code, sent.state) == (Code.CREATED, State.READY)
    await kit.ack("a@1000")
    assert await kit.read("a@1000") is None
    again = await kit.send("a@1000", retain_ms=0, occurrence=at(1000))
    assert again == SendOutcome(Code.KEPT, State.DONE, 1000, 7)
    assert (await kit.send("a@999", occurrence=at(999))).code is Code.KEPT
    assert (await kit.send("a@1001", occurrence=at(1001))).code is Code.CREATED
    assert await kit.pull_ids() == ["a@1001"]
    assert await fences(kit) == {Fence(NAME, 7, 1001)}
    assert await findings(kit) == []


async def test_an_occurrence_that_was_sent_ahead_is_due_at_its_time_and_not_sent_again(kit: StoreKit) -> None:
    at_ms = kit.clock.now_ms + 500
    sent = await kit.send("a@1", at_ms=at_ms, retain_ms=0, occurrence=at(at_ms))
    assert (sent.code, sent.state, sent.due_at_ms) == (Code.CREATED, State.SCHEDULED, at_ms)
    assert await kit.store.fence(kit.partition, [Fence(NAME, 8)]) == [Fence(NAME, 8, at_ms)]
    for version, code in ((7, Code.VERSION_MISMATCH), (8, Code.KEPT), (9, Code.KEPT)):
        again = await kit.send("a@1", at_ms=at_ms, retain_ms=0, occurrence=at(at_ms, version))
        assert (again.code, again.due_at_ms) == (code, at_ms)
    await kit.advance(499)
    assert await kit.pull_ids() == []
    await kit.advance(1)
    assert await kit.pull_ids() == ["a@1"]
    await kit.ack("a@1")
    assert (await kit.send("a@1", at_ms=at_ms, retain_ms=0, occurrence=at(at_ms, 9))).code is Code.KEPT
    assert await findings(kit) == []


async def test_occurrences_of_one_call_meet_each_other_and_other_schedules_do_not(kit: StoreKit) -> None:
    results = await kit.send_many(
        [
            item("a@2", occurrence=at(2)),
            item("a@1", occurrence=at(1)),
            item("b@1", occurrence=at(1, schedule="ns\0b")),
            item("plain"),
            item("a@3", occurrence=at(3)),
        ]
    )
    assert [one.code for one in results] == [Code.CREATED, Code.KEPT, Code.CREATED, Code.CREATED, Code.CREATED]
    assert await kit.pull_ids() == ["a@2", "b@1", "plain", "a@3"]
    assert await fences(kit) == {Fence(NAME, 7, 3), Fence("ns\0b", 7, 1)}
    assert await findings(kit) == []


@pytest.mark.parametrize("rule", list(OnConflict)[:2])
async def test_an_id_that_is_taken_is_refused_even_by_the_same_request(kit: StoreKit, rule: OnConflict) -> None:
    await kit.send("a@1", retain_ms=100, on_live=rule)
    assert (await kit.send("a@1", retain_ms=100, on_live=rule, occurrence=at(1))).code is Code.ID_EXISTS
    await kit.ack("a@1")
    assert (await kit.send("a@1", retain_ms=100, on_live=rule, occurrence=at(1))).code is Code.ID_EXISTS
    assert await fences(kit) == set()
    await kit.advance(100)
    assert (await kit.send("a@1", occurrence=at(1), tags=("t",), ttl_ms=5)).code is Code.CREATED
    assert await kit.listed_ids(tag="t") == ["a@1"]


async def test_an_older_version_is_refused_after_its_fence(kit: StoreKit) -> None:
    await kit.send("a@1", occurrence=at(1, version=7))
    assert await kit.store.fence(kit.partition, [Fence(NAME, 9)]) == [Fence(NAME, 9, 1)]
    for at_ms in (1, 2):
        refused = await kit.send(f"a@{at_ms}", occurrence=at(at_ms, version=8))
        assert refused == SendOutcome(Code.VERSION_MISMATCH, State.DONE, 1, 9)
    assert (await kit.send("a@1", occurrence=at(1, version=9))).code is Code.KEPT
    assert (await kit.send("a@2", occurrence=at(2, version=9))).code is Code.CREATED
    assert (await kit.send("a@3", occurrence=at(3, version=10))).code is Code.CREATED
    assert (await kit.send("a@4", occurrence=at(4, version=9))).code is Code.VERSION_MISMATCH
    assert await kit.pull_ids() == ["a@1", "a@2", "a@3"]


async def test_a_fence_is_never_lowered(kit: StoreKit) -> None:
    store, partition = kit.store, kit.partition
    assert await store.fence(partition, [Fence(NAME, 5, 100)]) == [Fence(NAME, 5, 100)]
    assert await store.fence(partition, [Fence(NAME, 4, 200)]) == [Fence(NAME, 5, 100)]
    assert await store.fence(partition, [Fence(NAME, 4, gone=True)]) == [Fence(NAME, 5, 100)]
    assert await store.fence(partition, [Fence(NAME, 5, 50)]) == [Fence(NAME, 5, 100)]
    assert await store.fence(partition, [Fence(NAME, 6, 50), Fence("x", 1)]) == [Fence(NAME, 6, 100), Fence("x", 1)]
    assert await fences(kit) == {Fence(NAME, 6, 100), Fence("x", 1)}
    assert await findings(kit) == []


async def test_a_schedule_that_is_gone_sends_nothing_until_a_newer_version_does(kit: StoreKit) -> None:
    await kit.store.fence(kit.partition, [Fence(NAME, 8, 0, gone=True)])
    assert (await kit.send("a@1", occurrence=at(1, version=8))).code is Code.VERSION_MISMATCH
    assert await findings(kit) == []
    assert (await kit.send("a@1", occurrence=at(1, version=9))).code is Code.CREATED
    assert await fences(kit) == {Fence(NAME, 9, 1)}
    assert await findings(kit) == []
    await kit.advance(GONE_KEEP_MS)
    await kit.clean()
    assert await fences(kit) == {Fence(NAME, 9, 1)}


async def test_clean_up_drops_the_fence_of_a_schedule_that_is_gone_after_30_days(kit: StoreKit) -> None:
    await kit.store.fence(kit.partition, [Fence(NAME, 8, 5, gone=True), Fence("ns\0stays", 8, 5)])
    due_ms = kit.clock.now_ms + GONE_KEEP_MS
    assert [note for note in kit.events.notes if note[0] == kit.partition and note[1] >= due_ms]
    await kit.advance(1000)
    await kit.store.fence(kit.partition, [Fence(NAME, 8, gone=True)])  # again: the time counts from the first
    await kit.advance(GONE_KEEP_MS - 1001)
    await kit.clean()
    assert await fences(kit) == {Fence(NAME, 8, 5, gone=True), Fence("ns\0stays", 8, 5)}
    await kit.advance(1)
    await kit.clean()
    assert await fences(kit) == {Fence("ns\0stays", 8, 5)}
    assert await findings(kit) == []


async def test_a_partition_with_a_fence_does_not_retire(kit: StoreKit) -> None:
    await kit.store.fence(kit.partition, [Fence(NAME, 8)])
    assert kit.partition in kit.events.unlisted_partitions
    assert await kit.store.retire(kit.partition) is False
    assert await kit.store.retire(kit.partition, True) is False
    await kit.store.fence(kit.partition, [Fence(NAME, 9, gone=True)])
    assert await kit.store.retire(kit.partition, True) is False
    await kit.advance(GONE_KEEP_MS)
    await kit.clean()
    assert await kit.store.retire(kit.partition) is True


async def test_all_fences_can_be_read_and_copied_and_the_maximum_wins(kit: StoreKit) -> None:
    some = {Fence(f"ns\0{n}", 1 + n % 5, n, gone=n % 7 == 0) for n in range(1000)}
    for start in range(0, 1000, 500):
        await kit.store.fence(kit.partition, list(some)[start : start + 500])
    assert await fences(kit) == some
    other = Partition(kit.partition.namespace, kit.partition.topic, 1)
    await kit.store.fence(other, [Fence("ns\0001", 1, 2)])
    cursor: bytes | None = b""
    while cursor is not None:
        page, cursor = await kit.store.fences(kit.partition, cursor)
        if page:
            await kit.store.fence(other, page)
    kit.partition = other
    expected = {one for one in some if one.schedule != "ns\0001"}
    assert await fences(kit) == expected | {Fence("ns\0001", 2, 2)}
    assert await findings(kit) == []


@pytest.mark.parametrize("kit", ["valkey", "stressed"], indirect=True)
@pytest.mark.parametrize(
    ("letter", "command", "found"),
    [
        ("m", ("HSET", f"o:{NAME}", b"\0" * 17), "the fence of the schedule ns/every-day cannot be read"),
        ("m", ("HDEL", f"o:{NAME}"), "counter on is 2, but there are 1 fences"),
        ("m", ("HSET", "on", "3"), "counter on is 3, but there are 2 fences"),
        ("a", ("ZADD", 5, f"o{NAME}"), "the fence of the schedule ns/every-day ends at 5 in the agenda"),
        ("a", ("ZREM", f"o{NAME}"), "is missing in the agenda"),
        ("a", ("ZADD", 5, "ons\0stays"), "in the agenda"),
    ],
)
async def test_fsck_finds_damaged_fences(kit: StoreKit, letter: str, command: tuple[Any, ...], found: str) -> None:
    await kit.store.fence(kit.partition, [Fence(NAME, 8, 5, gone=True), Fence("ns\0stays", 8, 5)])
    assert await findings(kit) == []
    store: Any = kit.store
    key = key_of(store.prefix, kit.partition, letter)
    await store.plain(key, command[0], key, *command[1:])
    assert found in " ".join(await findings(kit))


async def test_a_replace_with_a_version_keeps_the_progress_and_ends_the_lease(kit: StoreKit) -> None:
    assert (await kit.send("s", replaces=3)).code is Code.VERSION_MISMATCH
    assert await kit.read("s") is None
    first = await kit.send("s", body=b"1", replaces=0, max_attempts=None, ttl_ms=90_000, tags=("t",))
    assert first.code is Code.CREATED
    assert await kit.send("s", body=b"2", replaces=0) == SendOutcome(
        Code.VERSION_MISMATCH, State.DONE, 0, first.version
    )
    leased = await kit.pull_one()
    released = await kit.release("s", leased.lease, at_ms=kit.clock.now_ms + 10, count=False, progress=b"p\0\xff")
    assert (released.code, released.at_ms) == (Code.OK, kit.clock.now_ms + 10)
    await kit.advance(10)
    leased = await kit.pull_one()
    job = await kit.job("s")
    assert (job.progress, job.version, job.attempts, job.state) == (b"p\0\xff", first.version, 1, State.LEASED)
    second = await kit.send("s", body=b"2", replaces=first.version, at_ms=kit.clock.now_ms + 5, max_attempts=None)
    assert (second.code, second.state) == (Code.REPLACED, State.SCHEDULED)
    assert second.version > first.version
    job = await kit.job("s")
    assert (job.progress, job.body, job.deliveries, job.refunds, job.expires_at_ms, job.tags) == (
        b"p\0\xff", b"2", 0, 0, None, (),
    )  # fmt: skip
    assert (job.due_at_ms, job.created_at_ms, job.last_error) == (kit.clock.now_ms + 5, kit.clock.now_ms, None)
    assert (await kit.release("s", leased.lease, progress=b"late")).code is Code.LEASE_LOST
    assert (await kit.job("s")).progress == b"p\0\xff"
    assert await findings(kit) == []
    await kit.advance(5)
    assert (await kit.pull_one()).body == b"2"
    await kit.send("s", on_live=OnConflict.REPLACE)
    assert (await kit.job("s")).progress == b""


async def test_of_two_replaces_of_one_version_one_wins(kit: StoreKit) -> None:
    first = await kit.send("s", replaces=0)
    async with another(kit) as other:
        codes = {
            (await one.send("s", body=body, replaces=first.version)).code for one, body in ((kit, b"1"), (other, b"2"))
        }
    assert codes == {Code.REPLACED, Code.VERSION_MISMATCH}
    assert (await kit.job("s")).body == b"1"


async def test_progress_survives_the_end_of_a_lease_an_edit_and_the_end_of_the_job(kit: StoreKit) -> None:
    await kit.send("s", max_attempts=None, retain_ms=1_000)
    await kit.release("s", (await kit.pull_one()).lease, delay_ms=0, progress=b"one", error="no luck")
    await kit.pull_one(lease_ms=10)
    await kit.advance(10)
    leased = await kit.pull_one(lease_ms=10)
    job = await kit.job("s")
    assert (job.progress, job.last_error) == (b"one", "no luck")
    await kit.release("s", leased.lease, delay_ms=0)
    await kit.edit("s", body=b"new")
    assert (await kit.job("s")).progress == b"one"
    assert await kit.ack("s") is Code.OK
    job = await kit.job("s")
    assert (job.state, job.progress, job.last_error) == (State.DONE, b"one", "no luck")
    assert await findings(kit) == []


async def test_progress_can_be_emptied(kit: StoreKit) -> None:
    await kit.send("s", max_attempts=None)
    await kit.release("s", (await kit.pull_one()).lease, delay_ms=0, progress=b"one")
    await kit.release("s", (await kit.pull_one()).lease, delay_ms=0, progress=b"")
    assert (await kit.job("s")).progress == b""


async def test_a_release_to_a_time_is_exact_and_a_past_one_means_now(kit: StoreKit) -> None:
    await kit.send("s")
    due_ms = kit.clock.now_ms + 1_000
    leased = await kit.pull_one()
    await kit.advance(300)
    assert (await kit.release("s", leased.lease, at_ms=due_ms)).at_ms == due_ms
    await kit.advance(699)
    assert await kit.pull_ids() == []
    await kit.advance(1)
    leased = await kit.pull_one()
    assert (leased.due_at_ms, leased.late_ms) == (due_ms, 0)
    assert (await kit.release("s", leased.lease, at_ms=1)).at_ms == kit.clock.now_ms
    assert await kit.pull_ids() == ["s"]


async def test_uncounted_releases_are_not_limited_without_max_attempts(kit: StoreKit) -> None:
    await kit.send("s", max_attempts=None)
    for _ in range(3 * MAX_REFUNDS):
        leased = await kit.pull_one()
        assert leased.attempt == 1
        await kit.release("s", leased.lease, at_ms=1, count=False)
    job = await kit.job("s")
    assert (job.deliveries, job.attempts) == (3 * MAX_REFUNDS, 0)

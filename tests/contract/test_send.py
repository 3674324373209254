"""Sending: times, defaults, and what happens when the id is taken."""

from __future__ import annotations

from typing import Any

import pytest

from dueline.engine.job import BodyKind, Job, State
from dueline.engine.limits import LAST_MS
from dueline.engine.policy import Backoff, JobPolicy, Ladder
from dueline.engine.store import Code, OnConflict, SendOutcome, StalePolicy
from tests.kit.store import StoreKit, item

KEEP, REJECT, REPLACE = OnConflict.KEEP, OnConflict.REJECT, OnConflict.REPLACE


async def test_a_sent_job_reads_back_whole(kit: StoreKit) -> None:
    policy = JobPolicy(5_000, 3, 1_000, 2_000, Ladder((10, 20)), keep_body=True)
    now_ms = kit.clock.now_ms
    sent = await kit.send(
        "a",
        body=b'{"x": 1}',
        kind=BodyKind.JSON,
        delay_ms=70,
        policy=policy,
        ttl_ms=500,
        tags=("red", "b"),
        headers=b"h",
    )
    assert sent == SendOutcome(Code.CREATED, State.SCHEDULED, now_ms + 70, sent.version)
    assert await kit.job("a") == Job(
        id="a",
        topic=kit.partition.topic,
        state=State.SCHEDULED,
        reason=None,
        body=b'{"x": 1}',
        kind=BodyKind.JSON,
        headers=b"h",
        tags=("red", "b"),
        due_at_ms=now_ms + 70,
        created_at_ms=now_ms,
        updated_at_ms=now_ms,
        ended_at_ms=None,
        deliveries=0,
        refunds=0,
        policy=policy,
        expires_at_ms=now_ms + 570,
        lease_until_ms=None,
        retain_until_ms=None,
        version=sent.version,
        last_error=None,
        ttl_ms=500,
    )


@pytest.mark.parametrize(
    "policy",
    [
        JobPolicy(),
        JobPolicy(lease_ms=1, max_attempts=None, retain_ms=0, dead_retain_ms=0),
        JobPolicy(max_attempts=10_000, retry=Ladder(tuple(range(1, 33)))),
        JobPolicy(retry=Backoff(base_ms=100)),
        JobPolicy(retry=Backoff(base_ms=1, factor=1.5, max_ms=9_000, jitter=0.25), keep_body=True),
        JobPolicy(lease_ms=7 * 86_400_000, dead_retain_ms=3650 * 86_400_000),
    ],
)
async def test_every_policy_comes_back_as_it_was_given(kit: StoreKit, policy: JobPolicy) -> None:
    await kit.send("a", policy=policy)
    assert (await kit.job("a")).policy == policy


async def test_more_policies_than_a_partition_interns_all_come_back(kit: StoreKit) -> None:
    policies = [JobPolicy(lease_ms=1000 + n) for n in range(300)]
    await kit.send_many([item(f"j{n}", policy=policy) for n, policy in enumerate(policies)])
    jobs = await kit.store.read(kit.partition, [f"j{n}" for n in range(300)])
    assert [job and job.policy for job in jobs] == policies


async def test_a_send_without_a_delay_is_ready_at_once(kit: StoreKit) -> None:
    sent = await kit.send("a")
    assert (sent.code, sent.state, sent.due_at_ms) == (Code.CREATED, State.READY, kit.clock.now_ms)


async def test_a_past_time_means_now_and_a_far_one_is_clamped(kit: StoreKit) -> None:
    assert (await kit.send("past", at_ms=1)).due_at_ms == kit.clock.now_ms
    assert (await kit.send("far", at_ms=LAST_MS + 10**13)).due_at_ms == LAST_MS
    assert (await kit.send("later", at_ms=kit.clock.now_ms + 5)).due_at_ms == kit.clock.now_ms + 5


async def test_versions_grow_with_every_send_of_the_partition(kit: StoreKit) -> None:
    versions = [(await kit.send(id)).version for id in ("a", "b", "c")]
    assert versions == sorted(set(versions))


@pytest.mark.parametrize("rule", [REJECT, KEEP])
async def test_the_same_request_again_is_kept(kit: StoreKit, rule: OnConflict) -> None:
    first = await kit.send("a", delay_ms=100, on_live=rule)
    before = await kit.job("a")
    await kit.advance(10)
    again = await kit.send("a", delay_ms=100, on_live=rule)
    assert again == SendOutcome(Code.KEPT, State.SCHEDULED, first.due_at_ms, first.version)
    assert await kit.job("a") == before


async def test_the_same_request_is_kept_also_after_an_edit_of_the_job(kit: StoreKit) -> None:
    await kit.send("a", delay_ms=100)
    edited = await kit.edit("a", body=b"other")
    again = await kit.send("a", delay_ms=100)
    assert (again.code, again.version) == (Code.KEPT, edited.version)
    assert (await kit.job("a")).body == b"other"


async def test_another_request_under_a_taken_id_is_refused_and_changes_nothing(kit: StoreKit) -> None:
    first = await kit.send("a", delay_ms=100)
    before = await kit.job("a")
    refused = await kit.send("a", delay_ms=5)
    assert refused == SendOutcome(Code.ID_EXISTS, State.SCHEDULED, first.due_at_ms, first.version)
    assert await kit.job("a") == before


async def test_keep_answers_with_the_job_that_is_there(kit: StoreKit) -> None:
    first = await kit.send("a", delay_ms=100)
    kept = await kit.send("a", body=b"other", on_live=KEEP)
    assert kept == SendOutcome(Code.KEPT, State.SCHEDULED, first.due_at_ms, first.version)


async def test_replace_makes_a_new_job_and_ends_a_running_lease(kit: StoreKit) -> None:
    await kit.send("a", body=b"old", tags=("old",), ttl_ms=50)
    leased = await kit.pull_one()
    await kit.advance(5)
    sent = await kit.send("a", body=b"new", delay_ms=10, on_live=REPLACE)
    assert (sent.code, sent.state, sent.due_at_ms) == (Code.REPLACED, State.SCHEDULED, kit.clock.now_ms + 10)
    job = await kit.job("a")
    assert (job.body, job.tags, job.deliveries, job.expires_at_ms) == (b"new", (), 0, None)
    assert (job.created_at_ms, job.version) == (kit.clock.now_ms, sent.version)
    assert await kit.ack("a", leased.lease) is Code.LEASE_LOST
    assert (await kit.extend("a", leased.lease, 1000)).code is Code.LEASE_LOST
    assert (await kit.release("a", leased.lease)).code is Code.LEASE_LOST
    assert await kit.pull_ids() == []
    await kit.advance(10)
    again = await kit.pull_one()
    assert (again.body, again.attempt, again.delivery) == (b"new", 1, 1)


async def test_replaced_jobs_stand_behind_those_of_the_same_millisecond(kit: StoreKit) -> None:
    for id in ("a", "b"):
        await kit.send(id)
    await kit.send("a", on_live=REPLACE)
    assert await kit.pull_ids() == ["b", "a"]


async def test_an_ended_id_stays_taken_while_its_record_is_readable(kit: StoreKit) -> None:
    await kit.send("a", retain_ms=1_000)
    await kit.ack("a")
    kept = await kit.send("a", retain_ms=1_000)
    assert (kept.code, kept.state) == (Code.KEPT, State.DONE)
    assert (await kit.send("a", body=b"other")).code is Code.ID_EXISTS
    assert (await kit.send("a", body=b"other", on_live=KEEP)).code is Code.KEPT
    await kit.advance(999)
    assert (await kit.send("a", body=b"other")).code is Code.ID_EXISTS
    await kit.advance(1)
    assert (await kit.send("a", body=b"other")).code is Code.CREATED


async def test_what_to_do_with_an_ended_id_is_its_own_choice(kit: StoreKit) -> None:
    await kit.send("a")
    assert (await kit.send("a", body=b"other", on_live=REJECT, on_ended=REPLACE)).code is Code.ID_EXISTS
    await kit.cancel("a")
    replaced = await kit.send("a", body=b"other", on_live=REJECT, on_ended=REPLACE)
    assert (replaced.code, replaced.state) == (Code.REPLACED, State.READY)
    stats = await kit.stats()
    assert (stats.ready, stats.cancelled) == (1, 0)


async def test_what_to_do_with_an_overdue_id_is_its_own_choice(kit: StoreKit) -> None:
    """Overdue: leased, and its ttl is over. Nobody else gets it any more, but its holder may still ack it."""
    await kit.send("a", ttl_ms=10)
    first = await kit.pull_one(lease_ms=1_000)
    choice: dict[str, Any] = {"body": b"new", "on_live": KEEP, "on_ended": REPLACE}
    assert (await kit.send("a", **choice, on_overdue=REPLACE)).code is Code.KEPT  # not overdue yet
    await kit.advance(10)
    assert (await kit.send("a", **choice)).code is Code.KEPT  # not said: as any live one
    assert (await kit.send("a", **choice, on_overdue=REJECT)).code is Code.ID_EXISTS
    replaced = await kit.send("a", **choice, on_overdue=REPLACE)
    assert (replaced.code, replaced.state) == (Code.REPLACED, State.READY)
    assert await kit.ack("a", first.lease) is Code.LEASE_LOST
    again = await kit.pull_one()
    assert (again.body, again.delivery) == (b"new", 1)


async def test_a_job_that_waits_or_is_leased_in_its_time_is_not_overdue(kit: StoreKit) -> None:
    choice: dict[str, Any] = {"body": b"new", "on_live": KEEP, "on_overdue": REPLACE}
    for id, ttl_ms in (("leased", 1_000), ("leased-for-ever", None)):
        await kit.send(id, ttl_ms=ttl_ms)
    assert len(await kit.pull(2, lease_ms=1_000)) == 2
    await kit.send("waits", delay_ms=10, ttl_ms=1_000)
    await kit.advance(999)
    for id in ("leased", "leased-for-ever", "waits"):
        assert (await kit.send(id, **choice)).code is Code.KEPT
    await kit.send("expired", ttl_ms=1, dead_retain_ms=10_000)
    await kit.advance(1)
    assert (await kit.send("expired", **choice)).code is Code.KEPT  # ended: the rule for ended ones


async def test_a_dead_id_can_be_replaced_and_leaves_the_dead(kit: StoreKit) -> None:
    await kit.make_dead("a")
    assert (await kit.send("a", on_live=REPLACE)).code is Code.REPLACED
    stats = await kit.stats()
    assert (stats.ready, stats.dead, stats.dead_by_reason["exhausted"]) == (1, 0, 0)
    assert (await kit.pull_one()).delivery == 1


async def test_jobs_of_one_call_with_the_same_id_meet_each_other(kit: StoreKit) -> None:
    results = await kit.send_many(
        [item("a", body=b"1"), item("a", body=b"1"), item("a", body=b"2"), item("a", body=b"3", on_live=REPLACE)]
    )
    assert [result.code for result in results] == [Code.CREATED, Code.KEPT, Code.ID_EXISTS, Code.REPLACED]
    assert [leased.body for leased in await kit.pull()] == [b"3"]
    stats = await kit.stats()
    assert (stats.ready, stats.leased) == (0, 1)


async def test_a_thousand_jobs_go_in_and_out_in_one_call_each_in_send_order(kit: StoreKit) -> None:
    ids = [f"{n * 7919 % 1000}" for n in range(1000)]
    sent = await kit.send_many([item(id) for id in ids])
    assert [result.code for result in sent] == [Code.CREATED] * 1000
    leased = await kit.pull(1000)
    assert [one.id for one in leased] == ids
    assert len({one.lease for one in leased}) == 1000


async def test_long_ids_are_stored(kit: StoreKit) -> None:
    long = "\N{GRINNING FACE}" * 200
    await kit.send("first")
    assert (await kit.send(long)).code is Code.CREATED
    assert [leased.id for leased in await kit.pull()] == ["first", long]


async def test_the_largest_policy_version_can_be_sent_with(kit: StoreKit) -> None:
    largest = 2**40
    await kit.control(policy_version=largest)
    for id in ("a", "b", "c"):
        assert [result.code for result in await kit.store.send(kit.partition, [item(id)], largest)] == [Code.CREATED]
    with pytest.raises(StalePolicy):
        await kit.store.send(kit.partition, [item("d")], largest - 1)


async def test_a_send_with_an_older_policy_version_does_nothing(kit: StoreKit) -> None:
    await kit.control(policy_version=3)
    with pytest.raises(StalePolicy) as caught:
        await kit.store.send(kit.partition, [item("a")], 2)
    assert caught.value.version == 3
    assert await kit.read("a") is None
    assert [result.code for result in await kit.store.send(kit.partition, [item("a")], 3)] == [Code.CREATED]
    assert [result.code for result in await kit.store.send(kit.partition, [item("b")], 4)] == [Code.CREATED]


async def test_partitions_do_not_see_each_other(kit: StoreKit) -> None:
    other = type(kit.partition)(kit.partition.namespace, kit.partition.topic, number=1)
    await kit.send("a", body=b"0")
    sent = await kit.store.send(other, [item("a", body=b"1")])
    assert sent[0].code is Code.CREATED
    assert [leased.body for leased in await kit.pull()] == [b"0"]
    assert (await kit.store.stats(other)).ready == 1

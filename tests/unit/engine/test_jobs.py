"""Calls on jobs that exist: patch, fire, list, revive, purge, and bulk calls by filter."""

from __future__ import annotations

from typing import Any

import pytest
from engine_kit import NS, EngineKit

from dueline.engine.commands import Bulk, Filter, Patch, TopicPatch
from dueline.engine.errors import (
    AlreadyDone,
    DuelineError,
    JobLeased,
    NotFound,
    StoreDown,
    UnknownOutcome,
    VersionMismatch,
)
from dueline.engine.fan_out import PartialOutcome
from dueline.engine.job import Job, Partition, Reason, State
from dueline.engine.policy import AT_ONCE, Backoff, JobPolicy, Ladder, TopicPolicy
from dueline.engine.store import Code, Edit, Outcome, Page, Query, Ref, Release


async def kill(kit: EngineKit, topic: str, *ids: str, **options: Any) -> None:
    """Make dead jobs."""
    for id in ids:
        await kit.send(topic, id, **options)
    jobs = await kit.pull(topic, max=len(ids))
    await kit.engine.release(NS, topic, [Release(job.id, job.lease, dead=Reason.REJECTED) for job in jobs])


async def test_a_patch_moves_and_edits_and_answers_with_the_job_after(kit: EngineKit) -> None:
    await kit.send("mail", "a", 1_000, ttl_ms=500)
    before = await kit.engine.get(NS, "mail", "a")
    patch = Patch("a", delay_ms=50, body=b"new", tags=("x",), headers=(("h", "1"),), max_attempts=3)
    job = await kit.engine.patch(NS, "mail", patch)
    assert (job.due_at_ms, job.body, job.tags, job.headers) == (
        kit.clock.now_ms + 50,
        b"new",
        ("x",),
        b'{"h":"1"}',
    )
    assert (job.policy.max_attempts, job.expires_at_ms) == (3, job.due_at_ms + 500)
    assert job.version > before.version


async def test_a_patch_takes_away_what_is_said_to_be_none(kit: EngineKit) -> None:
    await kit.send("mail", "a", ttl_ms=500, tags=("x",), headers=(("h", "1"),), lease_ms=9, max_attempts=2)
    patch = Patch("a", ttl_ms=None, tags=(), headers=(), lease_ms=None, max_attempts=None)
    job = await kit.engine.patch(NS, "mail", patch)
    assert (job.expires_at_ms, job.tags, job.headers, job.policy) == (None, (), b"", JobPolicy(max_attempts=None))


@pytest.mark.parametrize(
    ("sent", "patch", "expected"),
    [
        ({}, {"retry": Ladder((1,) * 12)}, 13),
        ({"max_attempts": 4}, {"retry": Ladder((1,) * 12)}, 4),
        ({"retry": Ladder((1, 2))}, {"retry": AT_ONCE}, 20),
        ({"retry": Ladder((1, 2))}, {"retry": None}, 20),
        ({"retry": Ladder((1, 2))}, {"retry": Backoff(5)}, 20),
        ({"retry": Ladder((1, 2))}, {"max_attempts": 2}, 2),
        ({"max_attempts": 4}, {"lease_ms": 7}, 4),
    ],
)
async def test_a_patched_ladder_decides_the_attempts_unless_the_job_has_its_own(
    sent: dict[str, Any], patch: dict[str, Any], expected: int, kit: EngineKit
) -> None:
    await kit.send("mail", "a", **sent)
    assert (await kit.engine.patch(NS, "mail", Patch("a", **patch))).policy.max_attempts == expected


@pytest.mark.parametrize("option", [{"delay_ms": 5}, {"max_attempts": 5}])
async def test_a_patch_is_refused_as_the_state_says(option: dict[str, Any], kit: EngineKit) -> None:
    with pytest.raises(NotFound):
        await kit.engine.patch(NS, "mail", Patch("a", **option))
    await kit.send("mail", "a")
    version = (await kit.engine.get(NS, "mail", "a")).version
    with pytest.raises(VersionMismatch):
        await kit.engine.patch(NS, "mail", Patch("a", version=version + 1, **option))
    [job] = await kit.pull("mail")
    with pytest.raises(JobLeased):
        await kit.engine.patch(NS, "mail", Patch("a", **option))
    await kit.engine.ack(NS, "mail", [Ref("a", job.lease)])
    with pytest.raises(AlreadyDone):
        await kit.engine.patch(NS, "mail", Patch("a", **option))


@pytest.mark.parametrize("with_version", [False, True])
async def test_a_patch_of_the_policy_that_meets_another_change_is_made_again_unless_a_version_was_given(
    with_version: bool, kit: EngineKit
) -> None:
    await kit.send("mail", "a", 1_000)
    version = (await kit.engine.get(NS, "mail", "a")).version
    real = kit.store.edit
    raced: list[Outcome] = []

    async def racing(partition: Partition, items: Any) -> list[Outcome]:
        if not raced:
            raced.extend(await real(partition, [Edit("a", body=b"other")]))
        return await real(partition, items)

    kit.store.edit = racing  # type: ignore[method-assign]
    patch = Patch("a", max_attempts=3, version=version if with_version else None)
    if with_version:
        with pytest.raises(VersionMismatch):
            await kit.engine.patch(NS, "mail", patch)
    else:
        job = await kit.engine.patch(NS, "mail", patch)
        assert (job.body, job.policy.max_attempts) == (b"other", 3)


async def test_a_patched_job_that_ends_before_it_can_be_read_is_not_called_missing(kit: EngineKit) -> None:
    await kit.send("mail", "a", 1_000)

    async def nothing(partition: Partition, ids: Any, body: bool = True) -> list[Job | None]:
        return [None]

    kit.store.read = nothing  # type: ignore[method-assign]
    with pytest.raises(UnknownOutcome):
        await kit.engine.patch(NS, "mail", Patch("a", delay_ms=5))


async def test_a_list_walks_all_partitions_page_by_page(kit: EngineKit) -> None:
    await kit.engine.set_topic(NS, "namespace_ids", TopicPatch(TopicPolicy(), partitions=16))
    sent = {f"job{number}" for number in range(60)}
    for id in sent:
        await kit.send("namespace_ids", id)
    seen: list[str] = []
    cursor: bytes | None = b""
    while cursor is not None:
        page = await kit.engine.list(NS, "namespace_ids", Query(cursor=cursor, limit=7))
        assert len(page.jobs) <= 7
        seen += [job.id for job in page.jobs]
        cursor = page.cursor
    assert (len(seen), set(seen)) == (60, sent)


async def test_revive_and_purge_answer_for_each_id_in_order(kit: EngineKit) -> None:
    await kill(kit, "mail", "a", "b")
    await kit.send("mail", "live")
    revived = await kit.engine.revive(
        NS, "mail", ["none", "a", "live"], delay_ms=10, max_attempts=2, set_max_attempts=True
    )
    assert [done.code for done in revived] == [Code.NOT_FOUND, Code.OK, Code.NOT_FOUND]
    job = await kit.engine.get(NS, "mail", "a")
    assert (job.state, job.attempts, job.policy.max_attempts) == (State.SCHEDULED, 0, 2)
    purged = await kit.engine.purge(NS, "mail", ["b", "live"])
    assert [done.code for done in purged] == [Code.OK, Code.NOT_FOUND]
    metrics = kit.engine.metrics.of(NS, "mail")
    assert (metrics.revived, metrics.purged, metrics.dead["rejected"]) == (1, 1, 2)


async def test_a_bulk_cancel_takes_what_matches_and_a_dry_run_takes_nothing(kit: EngineKit) -> None:
    await kit.engine.set_topic(NS, "namespace_ids", TopicPatch(TopicPolicy(), partitions=4))
    for number in range(700):
        await kit.send("namespace_ids", f"x{number}", 1_000 + number, tags=("x",))
    await kit.send("namespace_ids", "ready", tags=("x",))
    await kit.send("namespace_ids", "leased", tags=("x",))
    await kit.send("namespace_ids", "other", 1_000)
    await kit.pull("namespace_ids")
    which = Filter(tag="x")
    assert await kit.engine.cancel_matching(NS, "namespace_ids", which, True) == Bulk(702, 0, True)
    assert await kit.engine.cancel_matching(NS, "namespace_ids", which, False) == Bulk(702, 702, False)
    view = await kit.engine.topic(NS, "namespace_ids")
    assert (view.scheduled, view.ready, view.leased, view.cancelled) == (1, 0, 0, 702)
    assert await kit.engine.cancel_matching(NS, "namespace_ids", Filter(), False) == Bulk(1, 1, False)


async def test_a_bulk_cancel_by_state_and_time_leaves_the_rest(kit: EngineKit) -> None:
    for number in range(10):
        await kit.send("mail", f"job{number}", number * 1_000)
    start = kit.timer.start_ms
    which = Filter(state=State.SCHEDULED, due_after_ms=start + 3_000, due_before_ms=start + 6_000)
    assert await kit.engine.cancel_matching(NS, "mail", which, False) == Bulk(3, 3, False)
    page = await kit.engine.list(NS, "mail", Query(state=State.CANCELLED))
    assert sorted(job.id for job in page.jobs) == ["job3", "job4", "job5"]


async def test_a_bulk_call_stops_after_its_time_and_the_next_one_goes_on(kit: EngineKit) -> None:
    for number in range(1_200):
        await kit.send("mail", f"job{number}", 60_000)
    real = kit.store.list

    async def slow(partition: Partition, query: Query) -> Page:
        await kit.advance(1_100)
        return await real(partition, query)

    kit.store.list = slow  # type: ignore[method-assign]
    first = await kit.engine.cancel_matching(NS, "mail", Filter(state=State.SCHEDULED), False)
    assert (first.complete, first.changed) == (False, 1_000)
    second = await kit.engine.cancel_matching(NS, "mail", Filter(state=State.SCHEDULED), False)
    assert (second.complete, second.changed) == (True, 200)


async def test_a_job_that_changed_after_it_was_listed_is_judged_again(kit: EngineKit) -> None:
    await kit.send("mail", "a")
    await kit.send("mail", "b")
    real = kit.store.cancel

    async def racing(partition: Partition, ids: Any, forget: bool = False) -> list[Outcome]:
        await kit.engine.ack(NS, "mail", [Ref("a")])
        return await real(partition, ids, forget)

    kit.store.cancel = racing  # type: ignore[method-assign]
    assert await kit.engine.cancel_matching(NS, "mail", Filter(state=State.READY), False) == Bulk(2, 1, False)
    assert (await kit.engine.get(NS, "mail", "a")).state is State.DONE


async def test_bulk_revive_and_purge_mean_the_dead(kit: EngineKit) -> None:
    await kill(kit, "mail", "a", "b", tags=("x",))
    await kill(kit, "mail", "c")
    await kit.send("mail", "live", 60_000, tags=("x",))
    assert await kit.engine.revive_matching(NS, "mail", Filter(tag="x"), True) == Bulk(2, 0, True)
    assert await kit.engine.revive_matching(NS, "mail", Filter(tag="x"), False, delay_ms=5) == Bulk(2, 2, False)
    assert await kit.engine.purge_matching(NS, "mail", Filter(), False) == Bulk(1, 1, False)
    page = await kit.engine.list(NS, "mail", Query())
    assert {job.id: job.state for job in page.jobs} == {
        "a": State.SCHEDULED,
        "b": State.SCHEDULED,
        "live": State.SCHEDULED,
    }


async def test_a_release_without_a_delay_is_given_a_jitter_draw(kit: EngineKit) -> None:
    waits: set[int] = set()
    for number in range(20):
        await kit.send("mail", f"job{number}", retry=Backoff(100_000, jitter=1.0))
        [job] = await kit.pull("mail")
        [done] = await kit.engine.release(NS, "mail", [Release(job.id, job.lease)])
        waits.add(done.at_ms - kit.clock.now_ms)
    assert len(waits) > 5
    assert max(waits) <= 100_000


async def test_calls_over_partitions_answer_in_order(kit: EngineKit) -> None:
    await kit.engine.set_topic(NS, "namespace_ids", TopicPatch(TopicPolicy(), partitions=8))
    for number in range(30):
        await kit.send("namespace_ids", f"job{number}")
    jobs = await kit.pull("namespace_ids", max=30)
    refs = [Ref(job.id, job.lease) for job in jobs]
    refs[7] = Ref("none", "t")
    refs[11] = Ref(refs[11].id, "stale")
    results = await kit.engine.ack(NS, "namespace_ids", refs)
    expected = [Code.OK] * 30
    expected[7], expected[11] = Code.NOT_FOUND, Code.LEASE_LOST
    assert [done.code for done in results] == expected


@pytest.mark.parametrize("failure", [StoreDown, UnknownOutcome])
async def test_when_one_of_several_partitions_fails_the_results_of_the_others_are_known(
    failure: type[DuelineError], kit: EngineKit
) -> None:
    await kit.engine.set_topic(NS, "namespace_ids", TopicPatch(TopicPolicy(), partitions=8))
    ids = [f"job{number}" for number in range(50)]
    for id in ids:
        await kit.send("namespace_ids", id)
    real = kit.store.cancel
    lost: list[str] = []

    async def failing(partition: Partition, some: Any, *words: Any) -> list[Outcome]:
        if partition.number == 1:
            lost.extend(some)
            raise failure
        return await real(partition, some, *words)

    kit.store.cancel = failing  # type: ignore[method-assign]
    with pytest.raises(PartialOutcome) as raised:
        await kit.engine.cancel(NS, "namespace_ids", ids)
    assert raised.value.done is None
    for id, result in zip(ids, raised.value.results, strict=True):
        if id in lost:
            assert type(result) is failure
            assert getattr(result, "id", id) == id
        else:
            assert isinstance(result, Outcome)
            assert result.code is Code.OK
    assert lost
    assert kit.engine.metrics.of(NS, "namespace_ids").cancelled == 50 - len(lost)

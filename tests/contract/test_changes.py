"""Cancel, edit, reschedule, fire, revive, purge."""

from __future__ import annotations

from msgspec.structs import replace

from dueline.engine.job import BodyKind, Reason, State
from dueline.engine.policy import JobPolicy
from dueline.engine.store import Code, Edit, OnConflict, Outcome, Purge, Revive, Spare
from tests.kit.bed import Bed, item


async def test_a_cancelled_job_is_never_delivered(bed: Bed) -> None:
    await bed.send_many([item("ready"), item("scheduled", delay_ms=10)])
    for id in ("ready", "scheduled"):
        assert await bed.cancel(id) is Code.OK
        job = await bed.job(id)
        assert (job.state, job.body, job.ended_at_ms) == (State.CANCELLED, None, bed.clock.now_ms)
        assert job.retain_until_ms == bed.clock.now_ms + 60_000
    await bed.advance(20)
    assert await bed.pull_ids() == []


async def test_cancel_of_a_leased_job_ends_the_lease(bed: Bed) -> None:
    await bed.send("a")
    held = await bed.pull_one()
    assert await bed.cancel("a") is Code.OK
    assert await bed.ack("a", held.lease) is Code.LEASE_LOST
    assert (await bed.release("a", held.lease)).code is Code.LEASE_LOST
    assert (await bed.extend("a", held.lease, 5)).code is Code.LEASE_LOST
    assert await bed.state("a") is State.CANCELLED
    await bed.advance(40_000)
    assert await bed.pull_ids() == []


async def test_cancel_again_is_ok_but_not_of_what_is_done_or_dead(bed: Bed) -> None:
    await bed.send_many([item("cancelled"), item("done")])
    await bed.cancel("cancelled")
    before = await bed.job("cancelled")
    await bed.advance(5)
    assert await bed.cancel("cancelled") is Code.OK
    assert await bed.job("cancelled") == before
    await bed.ack("done")
    await bed.make_dead("dead")
    assert await bed.cancel("done") is Code.ALREADY_DONE
    assert await bed.cancel("dead") is Code.ALREADY_DONE
    assert (await bed.state("done"), await bed.state("dead")) == (State.DONE, State.DEAD)


async def test_cancel_with_forget_leaves_nothing(bed: Bed) -> None:
    await bed.send_many([item("live", tags=("t",)), item("cancelled")])
    await bed.cancel("cancelled")
    for id in ("live", "cancelled"):
        assert await bed.cancel(id, forget=True) is Code.OK
        assert await bed.read(id) is None
        assert await bed.cancel(id) is Code.NOT_FOUND
    stats = await bed.stats()
    assert (stats.ready, stats.cancelled) == (0, 0)
    assert await bed.listed_ids(tag="t") == []


async def test_cancel_spares_an_overdue_one_if_asked_to(bed: Bed) -> None:
    """Overdue: leased, and its ttl is over. It counts as ended, although its holder may still ack it."""
    await bed.send_many([item("kept", ttl_ms=10), item("forgotten", ttl_ms=10), item("in-time", ttl_ms=11)])
    held = {job.id: job for job in await bed.pull(3, lease_ms=1_000)}
    await bed.advance(10)
    before = await bed.job("kept")
    assert await bed.cancel("kept", spare=Spare.OVERDUE) is Code.ALREADY_DONE
    assert await bed.job("kept") == before
    assert await bed.cancel("in-time", spare=Spare.OVERDUE) is Code.OK
    assert await bed.ack("kept", held["kept"].lease) is Code.OK
    assert await bed.cancel("forgotten", spare=Spare.OVERDUE, forget=True) is Code.ALREADY_DONE
    assert await bed.read("forgotten") is None
    stats = await bed.stats()
    assert (stats.leased, stats.done, stats.cancelled) == (0, 1, 1)


async def test_cancel_of_one_id_twice_in_a_call_counts_once(bed: Bed) -> None:
    await bed.send("a")
    results = await bed.store.cancel(bed.partition, ["a", "a", "b"])
    assert [result.code for result in results] == [Code.OK, Code.OK, Code.NOT_FOUND]
    assert (await bed.stats()).cancelled == 1


async def test_a_rescheduled_job_is_due_at_its_new_time_only(bed: Bed) -> None:
    sent = await bed.send("a", delay_ms=100, ttl_ms=50)
    later = await bed.edit("a", delay_ms=500)
    assert (later.code, later.at_ms) == (Code.OK, bed.clock.now_ms + 500)
    assert later.version > sent.version
    job = await bed.job("a")
    assert (job.due_at_ms, job.expires_at_ms, job.version) == (later.at_ms, later.at_ms + 50, later.version)
    await bed.advance(100)
    assert await bed.pull_ids() == []
    sooner = await bed.edit("a", at_ms=bed.clock.now_ms + 5)
    assert sooner.at_ms == bed.clock.now_ms + 5
    await bed.advance(5)
    assert await bed.pull_ids() == ["a"]


async def test_fire_makes_a_job_due_now(bed: Bed) -> None:
    sent = await bed.send("a", delay_ms=100_000)
    fired = await bed.fire("a")
    assert (fired.code, fired.at_ms, fired.version > sent.version) == (Code.OK, bed.clock.now_ms, True)
    assert await bed.state("a") is State.READY
    assert await bed.pull_ids() == ["a"]


async def test_an_edit_changes_what_it_names_and_nothing_else(bed: Bed) -> None:
    await bed.send("a", body=b"old", delay_ms=100, tags=("t", "u"), headers=b"h", ttl_ms=900)
    before = await bed.job("a")
    await bed.advance(1)
    steps: list[dict[str, object]] = [
        {"body": b"new", "kind": BodyKind.BYTES},
        {"headers": b"other"},
        {"headers": b""},
        {"tags": ("v",)},
        {"tags": ()},
        {"body": b"", "kind": BodyKind.TEXT},
    ]
    for words in steps:
        done = await bed.edit("a", **words)
        assert done == Outcome(Code.OK, before.due_at_ms, version=done.version)
        before = replace(before, **words, version=done.version, updated_at_ms=bed.clock.now_ms)
        assert await bed.job("a") == before


async def test_an_edit_of_the_tags_moves_the_job_in_the_tag_index(bed: Bed) -> None:
    await bed.send("a", tags=("old", "both"))
    await bed.edit("a", tags=("new", "both"))
    assert await bed.listed_ids(tag="old") == []
    assert await bed.listed_ids(tag="new") == ["a"]
    assert await bed.listed_ids(tag="both") == ["a"]


async def test_an_edit_of_the_ttl_counts_from_the_due_time(bed: Bed) -> None:
    await bed.send("a", delay_ms=100)
    due_ms = (await bed.job("a")).due_at_ms
    await bed.edit("a", ttl_ms=50)
    assert (await bed.job("a")).expires_at_ms == due_ms + 50
    moved = await bed.edit("a", ttl_ms=70, delay_ms=200)
    assert (await bed.job("a")).expires_at_ms == moved.at_ms + 70
    await bed.edit("a", ttl_ms=0)
    assert (await bed.job("a")).expires_at_ms is None
    await bed.advance(10_000)
    assert await bed.pull_ids() == ["a"]


async def test_an_edit_of_the_policy_takes_effect(bed: Bed) -> None:
    sent = await bed.send("a")
    policy = JobPolicy(lease_ms=77, max_attempts=1)
    done = await bed.edit("a", policy=policy, version=sent.version)
    assert done.code is Code.OK
    assert (await bed.job("a")).policy == policy
    held = await bed.pull_one()
    assert held.lease_until_ms == bed.clock.now_ms + 77
    assert (await bed.release("a", held.lease)).reason is Reason.EXHAUSTED


async def test_an_edit_with_another_version_is_refused(bed: Bed) -> None:
    sent = await bed.send("a", delay_ms=5)
    edited = await bed.edit("a", delay_ms=10, version=sent.version)
    before = await bed.job("a")
    assert (await bed.edit("a", delay_ms=20, version=sent.version)).code is Code.VERSION_MISMATCH
    assert await bed.job("a") == before
    assert (await bed.edit("a", delay_ms=20, version=edited.version)).code is Code.OK


async def test_a_leased_job_cannot_be_edited_until_its_lease_is_over(bed: Bed) -> None:
    await bed.send("a")
    held = await bed.pull_one(lease_ms=10)
    before = await bed.job("a")
    assert (await bed.edit("a", body=b"x", kind=BodyKind.TEXT)).code is Code.JOB_LEASED
    assert (await bed.fire("a")).code is Code.JOB_LEASED
    assert await bed.job("a") == before
    await bed.advance(10)
    assert (await bed.edit("a", body=b"x", kind=BodyKind.TEXT)).code is Code.OK
    assert await bed.ack("a", held.lease) is Code.LEASE_LOST
    again = await bed.pull_one()
    assert (again.body, again.attempt, again.delivery) == (b"x", 2, 2)


async def test_an_ended_job_cannot_be_edited(bed: Bed) -> None:
    await bed.send_many([item("done"), item("cancelled")])
    await bed.ack("done")
    await bed.cancel("cancelled")
    await bed.make_dead("dead")
    for id in ("done", "cancelled", "dead"):
        assert (await bed.edit(id, delay_ms=5)).code is Code.ALREADY_DONE


async def test_an_edited_job_stands_behind_those_of_the_same_millisecond(bed: Bed) -> None:
    await bed.send_many([item("a"), item("b"), item("c")])
    await bed.edit("a", body=b"x", kind=BodyKind.TEXT)
    await bed.fire("b")
    assert await bed.pull_ids() == ["c", "a", "b"]


async def test_a_job_twice_in_one_edit_takes_both(bed: Bed) -> None:
    await bed.send("a", delay_ms=5)
    first, second = await bed.store.edit(
        bed.partition, [Edit("a", delay_ms=10), Edit("a", body=b"x", kind=BodyKind.TEXT)]
    )
    assert (first.code, second.code) == (Code.OK, Code.OK)
    job = await bed.job("a")
    assert (job.version, job.due_at_ms, job.body) == (second.version, bed.clock.now_ms + 10, b"x")
    assert (await bed.stats()).scheduled == 1


async def test_a_revived_job_starts_again_from_attempt_one(bed: Bed) -> None:
    await bed.make_dead("a", max_attempts=1, ttl_ms=100, tags=("t",), headers=b"h")
    dead = await bed.job("a")
    await bed.advance(5_000)
    ((id, done),) = await bed.revive("a", delay_ms=10)
    assert (id, done) == ("a", Outcome(Code.OK, bed.clock.now_ms + 10, version=done.version))
    assert done.version > dead.version
    job = await bed.job("a")
    assert job == replace(
        dead,
        state=State.SCHEDULED,
        reason=None,
        due_at_ms=done.at_ms,
        updated_at_ms=bed.clock.now_ms,
        ended_at_ms=None,
        refunds=1,
        expires_at_ms=done.at_ms + 100,
        retain_until_ms=None,
        version=done.version,
    )
    await bed.advance(10)
    held = await bed.pull_one()
    assert (held.attempt, held.delivery) == (1, 2)
    assert (await bed.release("a", held.lease)).reason is Reason.EXHAUSTED


async def test_an_expired_job_can_be_revived(bed: Bed) -> None:
    await bed.send("a", ttl_ms=10)
    await bed.advance(10)
    assert (await bed.job("a")).reason is Reason.EXPIRED
    await bed.revive("a")
    held = await bed.pull_one()
    assert (held.id, held.attempt, held.delivery) == ("a", 1, 1)


async def test_revive_can_give_another_number_of_attempts(bed: Bed) -> None:
    await bed.make_dead("a")
    await bed.make_dead("b")
    await bed.revive("a", max_attempts=2, set_max_attempts=True)
    await bed.revive("b", max_attempts=None, set_max_attempts=True)
    assert (await bed.job("a")).policy.max_attempts == 2
    assert (await bed.job("b")).policy.max_attempts is None
    held = {one.id: one for one in await bed.pull()}
    assert (await bed.release("a", held["a"].lease)).code is Code.OK


async def test_only_the_dead_can_be_revived(bed: Bed) -> None:
    await bed.send_many([item("live"), item("done"), item("cancelled")])
    await bed.ack("done")
    await bed.cancel("cancelled")
    codes = {id: done.code for id, done in await bed.revive("live", "done", "cancelled", "none")}
    assert codes == {
        "live": Code.NOT_FOUND,
        "done": Code.NOT_FOUND,
        "cancelled": Code.NOT_FOUND,
        "none": Code.NOT_FOUND,
    }
    assert await bed.pull_ids() == ["live"]


async def test_revive_and_purge_take_the_oldest_dead_when_no_ids_are_named(bed: Bed) -> None:
    for id in ("z", "m", "a", "k"):
        await bed.make_dead(id)
        await bed.advance(1)
    revived = await bed.store.revive(bed.partition, Revive(None, limit=2))
    assert [(id, done.code) for id, done in revived] == [("z", Code.OK), ("m", Code.OK)]
    purged = await bed.store.purge(bed.partition, Purge(None, limit=1))
    assert [(id, done.code) for id, done in purged] == [("a", Code.OK)]
    assert (await bed.stats()).dead == 1
    assert await bed.pull_ids() == ["z", "m"]


async def test_purge_forgets_ended_jobs_and_only_them(bed: Bed) -> None:
    await bed.send_many([item("live", tags=("t",)), item("done"), item("cancelled")])
    await bed.ack("done")
    await bed.cancel("cancelled")
    await bed.make_dead("dead", tags=("t",))
    live = await bed.job("live")
    assert await bed.purge("done", "cancelled", "dead", "live", "none") == [
        ("done", Code.OK),
        ("cancelled", Code.OK),
        ("dead", Code.OK),
        ("live", Code.NOT_FOUND),
        ("none", Code.NOT_FOUND),
    ]
    assert [await bed.read(id) for id in ("done", "cancelled", "dead")] == [None] * 3
    assert await bed.job("live") == live
    assert await bed.listed_ids(tag="t") == ["live"]
    stats = await bed.stats()
    assert (stats.done, stats.cancelled, stats.dead) == (0, 0, 0)
    assert (await bed.send("dead", on_live=OnConflict.REJECT)).code is Code.CREATED

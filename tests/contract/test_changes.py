"""Cancel, edit, reschedule, fire, revive, purge."""

from __future__ import annotations

from msgspec.structs import replace

from dueline.engine.job import BodyKind, Reason, State
from dueline.engine.policy import JobPolicy
from dueline.engine.store import Code, Edit, OnConflict, Outcome, Purge, Revive, Spare
from tests.kit.store import StoreKit, item


async def test_a_cancelled_job_is_never_delivered(kit: StoreKit) -> None:
    await kit.send_many([item("ready"), item("scheduled", delay_ms=10)])
    for id in ("ready", "scheduled"):
        assert await kit.cancel(id) is Code.OK
        job = await kit.job(id)
        assert (job.state, job.body, job.ended_at_ms) == (State.CANCELLED, None, kit.clock.now_ms)
        assert job.retain_until_ms == kit.clock.now_ms + 60_000
    await kit.advance(20)
    assert await kit.pull_ids() == []


async def test_cancel_of_a_leased_job_ends_the_lease(kit: StoreKit) -> None:
    await kit.send("a")
    leased = await kit.pull_one()
    assert await kit.cancel("a") is Code.OK
    assert await kit.ack("a", leased.lease) is Code.LEASE_LOST
    assert (await kit.release("a", leased.lease)).code is Code.LEASE_LOST
    assert (await kit.extend("a", leased.lease, 5)).code is Code.LEASE_LOST
    assert await kit.state("a") is State.CANCELLED
    await kit.advance(40_000)
    assert await kit.pull_ids() == []


async def test_cancel_again_is_ok_but_not_of_what_is_done_or_dead(kit: StoreKit) -> None:
    await kit.send_many([item("cancelled"), item("done")])
    await kit.cancel("cancelled")
    before = await kit.job("cancelled")
    await kit.advance(5)
    assert await kit.cancel("cancelled") is Code.OK
    assert await kit.job("cancelled") == before
    await kit.ack("done")
    await kit.make_dead("dead")
    assert await kit.cancel("done") is Code.ALREADY_DONE
    assert await kit.cancel("dead") is Code.ALREADY_DONE
    assert (await kit.state("done"), await kit.state("dead")) == (State.DONE, State.DEAD)


async def test_cancel_with_forget_leaves_nothing(kit: StoreKit) -> None:
    await kit.send_many([item("live", tags=("t",)), item("cancelled")])
    await kit.cancel("cancelled")
    for id in ("live", "cancelled"):
        assert await kit.cancel(id, forget=True) is Code.OK
        assert await kit.read(id) is None
        assert await kit.cancel(id) is Code.NOT_FOUND
    stats = await kit.stats()
    assert (stats.ready, stats.cancelled) == (0, 0)
    assert await kit.listed_ids(tag="t") == []


async def test_cancel_spares_an_overdue_one_if_asked_to(kit: StoreKit) -> None:
    """Overdue: leased, and its ttl is over. It counts as ended, although its holder may still ack it."""
    await kit.send_many([item("kept", ttl_ms=10), item("forgotten", ttl_ms=10), item("in-time", ttl_ms=11)])
    leased = {job.id: job for job in await kit.pull(3, lease_ms=1_000)}
    await kit.advance(10)
    before = await kit.job("kept")
    assert await kit.cancel("kept", spare=Spare.OVERDUE) is Code.ALREADY_DONE
    assert await kit.job("kept") == before
    assert await kit.cancel("in-time", spare=Spare.OVERDUE) is Code.OK
    assert await kit.ack("kept", leased["kept"].lease) is Code.OK
    assert await kit.cancel("forgotten", spare=Spare.OVERDUE, forget=True) is Code.ALREADY_DONE
    assert await kit.read("forgotten") is None
    stats = await kit.stats()
    assert (stats.leased, stats.done, stats.cancelled) == (0, 1, 1)


async def test_cancel_of_one_id_twice_in_a_call_counts_once(kit: StoreKit) -> None:
    await kit.send("a")
    results = await kit.store.cancel(kit.partition, ["a", "a", "b"])
    assert [result.code for result in results] == [Code.OK, Code.OK, Code.NOT_FOUND]
    assert (await kit.stats()).cancelled == 1


async def test_a_rescheduled_job_is_due_at_its_new_time_only(kit: StoreKit) -> None:
    sent = await kit.send("a", delay_ms=100, ttl_ms=50)
    later = await kit.edit("a", delay_ms=500)
    assert (later.code, later.at_ms) == (Code.OK, kit.clock.now_ms + 500)
    assert later.version > sent.version
    job = await kit.job("a")
    assert (job.due_at_ms, job.expires_at_ms, job.version) == (later.at_ms, later.at_ms + 50, later.version)
    await kit.advance(100)
    assert await kit.pull_ids() == []
    sooner = await kit.edit("a", at_ms=kit.clock.now_ms + 5)
    assert sooner.at_ms == kit.clock.now_ms + 5
    await kit.advance(5)
    assert await kit.pull_ids() == ["a"]


async def test_fire_makes_a_job_due_now(kit: StoreKit) -> None:
    sent = await kit.send("a", delay_ms=100_000)
    fired = await kit.fire("a")
    assert (fired.code, fired.at_ms, fired.version > sent.version) == (Code.OK, kit.clock.now_ms, True)
    assert await kit.state("a") is State.READY
    assert await kit.pull_ids() == ["a"]


async def test_an_edit_changes_what_it_names_and_nothing_else(kit: StoreKit) -> None:
    await kit.send("a", body=b"old", delay_ms=100, tags=("t", "u"), headers=b"h", ttl_ms=900)
    before = await kit.job("a")
    await kit.advance(1)
    steps: list[dict[str, object]] = [
        {"body": b"new", "kind": BodyKind.BYTES},
        {"headers": b"other"},
        {"headers": b""},
        {"tags": ("v",)},
        {"tags": ()},
        {"body": b"", "kind": BodyKind.TEXT},
    ]
    for words in steps:
        done = await kit.edit("a", **words)
        assert done == Outcome(Code.OK, before.due_at_ms, version=done.version)
        before = replace(before, **words, version=done.version, updated_at_ms=kit.clock.now_ms)
        assert await kit.job("a") == before


async def test_an_edit_of_the_tags_moves_the_job_in_the_tag_index(kit: StoreKit) -> None:
    await kit.send("a", tags=("old", "both"))
    await kit.edit("a", tags=("new", "both"))
    assert await kit.listed_ids(tag="old") == []
    assert await kit.listed_ids(tag="new") == ["a"]
    assert await kit.listed_ids(tag="both") == ["a"]


async def test_an_edit_of_the_ttl_counts_from_the_due_time(kit: StoreKit) -> None:
    await kit.send("a", delay_ms=100)
    due_ms = (await kit.job("a")).due_at_ms
    await kit.edit("a", ttl_ms=50)
    assert (await kit.job("a")).expires_at_ms == due_ms + 50
    moved = await kit.edit("a", ttl_ms=70, delay_ms=200)
    assert (await kit.job("a")).expires_at_ms == moved.at_ms + 70
    await kit.edit("a", ttl_ms=0)
    assert (await kit.job("a")).expires_at_ms is None
    await kit.advance(10_000)
    assert await kit.pull_ids() == ["a"]


async def test_an_edit_of_the_policy_takes_effect(kit: StoreKit) -> None:
    sent = await kit.send("a")
    policy = JobPolicy(lease_ms=77, max_attempts=1)
    done = await kit.edit("a", policy=policy, version=sent.version)
    assert done.code is Code.OK
    assert (await kit.job("a")).policy == policy
    leased = await kit.pull_one()
    assert leased.lease_until_ms == kit.clock.now_ms + 77
    assert (await kit.release("a", leased.lease)).reason is Reason.EXHAUSTED


async def test_an_edit_with_another_version_is_refused(kit: StoreKit) -> None:
    sent = await kit.send("a", delay_ms=5)
    edited = await kit.edit("a", delay_ms=10, version=sent.version)
    before = await kit.job("a")
    assert (await kit.edit("a", delay_ms=20, version=sent.version)).code is Code.VERSION_MISMATCH
    assert await kit.job("a") == before
    assert (await kit.edit("a", delay_ms=20, version=edited.version)).code is Code.OK


async def test_a_leased_job_cannot_be_edited_until_its_lease_is_over(kit: StoreKit) -> None:
    await kit.send("a")
    leased = await kit.pull_one(lease_ms=10)
    before = await kit.job("a")
    assert (await kit.edit("a", body=b"x", kind=BodyKind.TEXT)).code is Code.JOB_LEASED
    assert (await kit.fire("a")).code is Code.JOB_LEASED
    assert await kit.job("a") == before
    await kit.advance(10)
    assert (await kit.edit("a", body=b"x", kind=BodyKind.TEXT)).code is Code.OK
    assert await kit.ack("a", leased.lease) is Code.LEASE_LOST
    again = await kit.pull_one()
    assert (again.body, again.attempt, again.delivery) == (b"x", 2, 2)


async def test_an_ended_job_cannot_be_edited(kit: StoreKit) -> None:
    await kit.send_many([item("done"), item("cancelled")])
    await kit.ack("done")
    await kit.cancel("cancelled")
    await kit.make_dead("dead")
    for id in ("done", "cancelled", "dead"):
        assert (await kit.edit(id, delay_ms=5)).code is Code.ALREADY_DONE


async def test_an_edited_job_stands_behind_those_of_the_same_millisecond(kit: StoreKit) -> None:
    await kit.send_many([item("a"), item("b"), item("c")])
    await kit.edit("a", body=b"x", kind=BodyKind.TEXT)
    await kit.fire("b")
    assert await kit.pull_ids() == ["c", "a", "b"]


async def test_a_job_twice_in_one_edit_takes_both(kit: StoreKit) -> None:
    await kit.send("a", delay_ms=5)
    first, second = await kit.store.edit(
        kit.partition, [Edit("a", delay_ms=10), Edit("a", body=b"x", kind=BodyKind.TEXT)]
    )
    assert (first.code, second.code) == (Code.OK, Code.OK)
    job = await kit.job("a")
    assert (job.version, job.due_at_ms, job.body) == (second.version, kit.clock.now_ms + 10, b"x")
    assert (await kit.stats()).scheduled == 1


async def test_a_revived_job_starts_again_from_attempt_one(kit: StoreKit) -> None:
    await kit.make_dead("a", max_attempts=1, ttl_ms=100, tags=("t",), headers=b"h")
    dead = await kit.job("a")
    await kit.advance(5_000)
    ((id, done),) = await kit.revive("a", delay_ms=10)
    assert (id, done) == ("a", Outcome(Code.OK, kit.clock.now_ms + 10, version=done.version))
    assert done.version > dead.version
    job = await kit.job("a")
    assert job == replace(
        dead,
        state=State.SCHEDULED,
        reason=None,
        due_at_ms=done.at_ms,
        updated_at_ms=kit.clock.now_ms,
        ended_at_ms=None,
        refunds=1,
        expires_at_ms=done.at_ms + 100,
        retain_until_ms=None,
        version=done.version,
    )
    await kit.advance(10)
    leased = await kit.pull_one()
    assert (leased.attempt, leased.delivery) == (1, 2)
    assert (await kit.release("a", leased.lease)).reason is Reason.EXHAUSTED


async def test_an_expired_job_can_be_revived(kit: StoreKit) -> None:
    await kit.send("a", ttl_ms=10)
    await kit.advance(10)
    assert (await kit.job("a")).reason is Reason.EXPIRED
    await kit.revive("a")
    leased = await kit.pull_one()
    assert (leased.id, leased.attempt, leased.delivery) == ("a", 1, 1)


async def test_revive_can_give_another_number_of_attempts(kit: StoreKit) -> None:
    await kit.make_dead("a")
    await kit.make_dead("b")
    await kit.revive("a", max_attempts=2, set_max_attempts=True)
    await kit.revive("b", max_attempts=None, set_max_attempts=True)
    assert (await kit.job("a")).policy.max_attempts == 2
    assert (await kit.job("b")).policy.max_attempts is None
    leased = {one.id: one for one in await kit.pull()}
    assert (await kit.release("a", leased["a"].lease)).code is Code.OK


async def test_only_the_dead_can_be_revived(kit: StoreKit) -> None:
    await kit.send_many([item("live"), item("done"), item("cancelled")])
    await kit.ack("done")
    await kit.cancel("cancelled")
    codes = {id: done.code for id, done in await kit.revive("live", "done", "cancelled", "none")}
    assert codes == {
        "live": Code.NOT_FOUND,
        "done": Code.NOT_FOUND,
        "cancelled": Code.NOT_FOUND,
        "none": Code.NOT_FOUND,
    }
    assert await kit.pull_ids() == ["live"]


async def test_revive_and_purge_take_the_oldest_dead_when_no_ids_are_named(kit: StoreKit) -> None:
    for id in ("z", "m", "a", "k"):
        await kit.make_dead(id)
        await kit.advance(1)
    revived = await kit.store.revive(kit.partition, Revive(None, limit=2))
    assert [(id, done.code) for id, done in revived] == [("z", Code.OK), ("m", Code.OK)]
    purged = await kit.store.purge(kit.partition, Purge(None, limit=1))
    assert [(id, done.code) for id, done in purged] == [("a", Code.OK)]
    assert (await kit.stats()).dead == 1
    assert await kit.pull_ids() == ["z", "m"]


async def test_purge_forgets_ended_jobs_and_only_them(kit: StoreKit) -> None:
    await kit.send_many([item("live", tags=("t",)), item("done"), item("cancelled")])
    await kit.ack("done")
    await kit.cancel("cancelled")
    await kit.make_dead("dead", tags=("t",))
    live = await kit.job("live")
    assert await kit.purge("done", "cancelled", "dead", "live", "none") == [
        ("done", Code.OK),
        ("cancelled", Code.OK),
        ("dead", Code.OK),
        ("live", Code.NOT_FOUND),
        ("none", Code.NOT_FOUND),
    ]
    assert [await kit.read(id) for id in ("done", "cancelled", "dead")] == [None] * 3
    assert await kit.job("live") == live
    assert await kit.listed_ids(tag="t") == ["live"]
    stats = await kit.stats()
    assert (stats.done, stats.cancelled, stats.dead) == (0, 0, 0)
    assert (await kit.send("dead", on_live=OnConflict.REJECT)).code is Code.CREATED

"""What a failed merge group does when newer sends of its key are there: new work is not held back by a retry."""

from __future__ import annotations

from dueline.engine.job import Reason, State
from dueline.engine.policy import Ladder
from dueline.engine.store import Code, MergeUpdate, Outcome, Release
from tests.kit.bed import Bed

from .test_merge import bodies, merging, put


async def held_group(bed: Bed, *texts: str, id: str = "old", **words: object) -> str:
    """A group of these items that somebody holds; the token."""
    for text in texts:
        await put(bed, text, group=id, **words)
    held = await bed.pull_one(lease_ms=100)
    assert held.id == id
    return held.lease


async def test_a_released_group_gives_its_items_to_the_open_one_in_front(bed: Bed) -> None:
    lease = await held_group(bed, "1", "2", max_attempts=3)
    sent = await put(bed, "3", group="new", delay_ms=500)
    done = await bed.release("old", lease, error="no luck")
    assert done == Outcome(Code.OK, sent.due_at_ms)
    new, old = await bed.job("new"), await bed.job("old")
    assert (bodies(new), new.state, new.due_at_ms, new.deliveries) == (
        ["1", "2", "3"],
        State.SCHEDULED,
        sent.due_at_ms,
        0,
    )
    assert (old.state, old.items, old.merge_key, old.deliveries) == (State.CANCELLED, None, "key", 1)
    assert old.last_error == "its items went to group new"
    assert await bed.release("old", lease) == Outcome(Code.LEASE_LOST)
    await bed.advance(500)
    held = await bed.pull_one()
    assert (held.id, held.attempt, bodies(held)) == ("new", 1, ["1", "2", "3"])


async def test_a_group_of_a_generated_id_is_named_as_callers_write_it(bed: Bed) -> None:
    for id in ("0123456789abcdef0123456789abcdef", "01234567-89ab-cdef-0123-456789abcdef", "\x01", "sixteen-letters!"):
        old = f"old {id}"
        lease = await held_group(bed, "1", key=id, id=old)
        await put(bed, "2", id, group=id, delay_ms=1_000)
        await bed.release(old, lease)
        assert (await bed.job(old)).last_error == f"its items went to group {id}"


async def test_a_lost_lease_gives_its_items_when_a_pull_finds_it(bed: Bed) -> None:
    lease = await held_group(bed, "1")
    await put(bed, "2", group="new", delay_ms=500)
    await bed.advance(100)
    assert await bed.state("old") is State.READY
    pulled = await bed.pulled()
    assert (pulled.jobs, pulled.more, pulled.next_ms) == ([], False, (await bed.job("new")).due_at_ms)
    assert await bed.ack("old", lease) is Code.LEASE_LOST
    assert bodies(await bed.job("new")) == ["1", "2"]
    await bed.advance(400)
    assert await bed.pull_ids() == ["new"]


async def test_the_holder_of_a_lost_lease_may_still_ack_when_new_sends_have_come(bed: Bed) -> None:
    lease = await held_group(bed, "1")
    await bed.advance(100)
    await put(bed, "2", group="new", delay_ms=500)
    assert await bed.ack("old", lease) is Code.OK
    assert bodies(await bed.job("new")) == ["2"]


async def test_a_lost_lease_and_a_due_open_group_come_in_one_delivery(bed: Bed) -> None:
    await held_group(bed, "1")
    await put(bed, "2", group="new", delay_ms=150)
    await bed.advance(150)
    assert [(held.id, bodies(held)) for held in await bed.pull()] == [("new", ["1", "2"])]


async def test_a_lost_lease_that_fills_the_open_group_makes_it_due_at_once(bed: Bed) -> None:
    await held_group(bed, "1")
    await put(bed, "2", group="new", delay_ms=1_000, max_items=2)
    await bed.advance(100)
    assert [(held.id, bodies(held)) for held in await bed.pull()] == [("new", ["1", "2"])]
    assert (await put(bed, "3", group="next")).code is Code.CREATED


async def test_a_release_that_fills_the_open_group_makes_it_due_at_once(bed: Bed) -> None:
    lease = await held_group(bed, "1")
    await put(bed, "2", group="new", delay_ms=1_000, max_items=2)
    assert await bed.release("old", lease) == Outcome(Code.OK, bed.clock.now_ms)
    assert bodies(await bed.pull_one()) == ["1", "2"]


async def test_a_send_that_opens_a_group_takes_what_waits_for_its_retry_the_oldest_first(bed: Bed) -> None:
    ladder = {"retry": Ladder((10_000,)), "max_items": 2}
    first = await held_group(bed, "1", "2", id="a", **ladder)
    second = await held_group(bed, "3", "4", id="b", **ladder)
    third = await held_group(bed, "5", "6", id="c", **ladder)
    await bed.release("b", second)
    await bed.release("a", first)
    await bed.release("c", third)
    sent = await put(bed, "7", group="new", delay_ms=500, max_items=6)
    assert (sent.code, sent.items_count) == (Code.CREATED, 5)
    assert bodies(await bed.job("new")) == ["1", "2", "3", "4", "7"]
    assert [await bed.state(id) for id in "abc"] == [State.CANCELLED, State.CANCELLED, State.SCHEDULED]


async def test_items_stand_in_send_order_in_whatever_order_their_groups_fail(bed: Bed) -> None:
    first = await held_group(bed, "1", "2", id="a")
    second = await held_group(bed, "3", id="b")
    await put(bed, "4", group="new", delay_ms=500)
    await bed.release("a", first)
    await bed.release("b", second)
    await put(bed, "5")
    assert bodies(await bed.job("new")) == ["1", "2", "3", "4", "5"]


async def test_what_does_not_fit_stays_a_group_of_its_own(bed: Bed) -> None:
    lease = await held_group(bed, "1", "2")
    await put(bed, "3", group="new", delay_ms=1_000, max_items=2)
    assert await bed.release("old", lease, delay_ms=70) == Outcome(Code.OK, bed.clock.now_ms + 70)
    await bed.advance(70)
    assert [(held.id, held.attempt, bodies(held)) for held in await bed.pull()] == [("old", 2, ["1", "2"])]
    assert bodies(await bed.job("new")) == ["3"]


async def test_bytes_that_do_not_fit_stay_a_group_of_their_own(bed: Bed) -> None:
    lease = await held_group(bed, "123")
    await put(bed, "45", group="new", delay_ms=1_000, max_bytes=4)
    await bed.release("old", lease, delay_ms=70)
    assert [bodies(await bed.job(id)) for id in ("old", "new")] == [["123"], ["45"]]


async def test_a_group_given_back_unused_stays_apart(bed: Bed) -> None:
    lease = await held_group(bed, "1")
    await put(bed, "2", group="new", delay_ms=1_000)
    await bed.release("old", lease, count=False, delay_ms=0)
    held = await bed.pull_one()
    assert (held.id, held.attempt, bodies(held)) == ("old", 1, ["1"])
    await bed.release("old", held.lease, count=True)
    assert bodies(await bed.job("new")) == ["1", "2"]


async def test_a_group_that_failed_before_and_is_now_given_back_unused_stays_apart_too(bed: Bed) -> None:
    lease = await held_group(bed, "1")
    await bed.release("old", lease, delay_ms=0)
    held = await bed.pull_one()
    assert (held.id, held.attempt) == ("old", 2)
    await put(bed, "2", group="new", delay_ms=1_000)
    await bed.release("old", held.lease, count=False, delay_ms=0)
    again = await bed.pull_one()
    assert (again.id, again.attempt, bodies(again)) == ("old", 2, ["1"])
    assert bodies(await bed.job("new")) == ["2"]


async def test_a_group_whose_attempts_are_used_up_dies_with_its_items_and_is_revived_as_itself(bed: Bed) -> None:
    lease = await held_group(bed, "1", max_attempts=1)
    await put(bed, "2", group="new", delay_ms=1_000)
    assert (await bed.release("old", lease)).reason is Reason.EXHAUSTED
    assert bodies(await bed.job("old")) == ["1"]
    await bed.revive("old")
    assert await bed.listed_ids(merge_key="key") == ["old", "new"]
    held = await bed.pull_one()
    assert (held.id, held.attempt, bodies(held)) == ("old", 1, ["1"])
    await put(bed, "3")
    assert bodies(await bed.job("new")) == ["2", "3"]


async def test_a_lease_of_a_last_attempt_that_is_lost_is_dead_with_its_items(bed: Bed) -> None:
    await held_group(bed, "1", max_attempts=1)
    await put(bed, "2", group="new", delay_ms=1_000)
    await bed.advance(100)
    assert await bed.pull() == []
    job = await bed.job("old")
    assert (job.state, job.reason, bodies(job)) == (State.DEAD, Reason.EXHAUSTED, ["1"])


async def test_a_group_that_the_target_stops_gives_nothing(bed: Bed) -> None:
    lease = await held_group(bed, "1")
    await put(bed, "2", group="new", delay_ms=1_000)
    await bed.release("old", lease, dead=Reason.REJECTED)
    assert bodies(await bed.job("old")) == ["1"]
    assert bodies(await bed.job("new")) == ["2"]


async def test_ids_of_items_that_moved_mean_the_group_they_are_in(bed: Bed) -> None:
    lease = await held_group(bed, "1", item_id="x", retain_ms=10)
    await put(bed, "2", group="new", delay_ms=1_000)
    await bed.release("old", lease)
    await bed.advance(10)
    await bed.clean()
    kept = await put(bed, "again", item_id="x")
    assert (kept.code, kept.group, kept.items_count) == (Code.KEPT, "new", 2)


async def test_nothing_stays_of_a_group_without_retention_that_gave_its_items(bed: Bed) -> None:
    lease = await held_group(bed, "1", retain_ms=0)
    await put(bed, "2", group="new", delay_ms=1_000)
    assert (await bed.release("old", lease)).code is Code.OK
    assert await bed.read("old") is None
    assert bodies(await bed.job("new")) == ["1", "2"]


async def test_a_kept_body_is_no_reason_to_keep_items_that_moved(bed: Bed) -> None:
    lease = await held_group(bed, "1", keep_body=True, tags=("t",))
    await put(bed, "2", group="new", delay_ms=1_000)
    await bed.release("old", lease)
    job = await bed.job("old")
    assert (job.state, job.items, job.tags) == (State.CANCELLED, None, ())


async def test_groups_of_other_keys_take_nothing(bed: Bed) -> None:
    lease = await held_group(bed, "1")
    await put(bed, "2", "other", group="new", delay_ms=1_000)
    await bed.release("old", lease, delay_ms=5)
    assert [bodies(await bed.job(id)) for id in ("old", "new")] == [["1"], ["2"]]


async def test_two_groups_that_fail_in_one_call_both_give(bed: Bed) -> None:
    leases = [await held_group(bed, text, id=text) for text in "12"]
    await put(bed, "3", group="new", delay_ms=1_000, max_items=3)
    done = await bed.store.release(bed.partition, [Release(id, lease) for id, lease in zip("12", leases, strict=True)])
    assert [one.code for one in done] == [Code.OK, Code.OK]
    held = await bed.pull_one()
    assert (held.id, bodies(held)) == ("new", ["1", "2", "3"])


async def test_two_openings_in_one_call_share_out_what_waits(bed: Bed) -> None:
    leases = {id: await held_group(bed, *texts, id=id) for id, texts in (("a", "12"), ("b", "3"))}
    for id, lease in leases.items():
        await bed.release(id, lease, delay_ms=10_000)
    sent = await bed.send_many([merging(text, group=f"new-{text}", max_items=2, delay_ms=500) for text in "456"])
    assert [(one.code, one.items_count, one.state) for one in sent] == [
        (Code.CREATED, 2, State.READY),
        (Code.CREATED, 1, State.SCHEDULED),
        (Code.APPENDED, 2, State.READY),
    ]
    assert [(held.id, bodies(held)) for held in await bed.pull()] == [("new-4", ["3", "4"]), ("new-5", ["5", "6"])]
    assert bodies(await bed.job("a")) == ["1", "2"]


async def test_an_append_wakes_a_sleeper_when_it_makes_its_group_due_earlier(bed: Bed) -> None:
    await put(bed, "1", delay_ms=10_000, max_items=3)
    await bed.store.watch(bed.partition)
    assert (await bed.pulled(wait_ms=60_000)).next_ms == bed.clock.now_ms + 10_000
    bed.events.forget_wakes()
    await put(bed, "2", delay_ms=5_000, update=MergeUpdate.ALWAYS)
    await bed.events.next_wake()
    assert (await bed.pulled(wait_ms=60_000)).next_ms == bed.clock.now_ms + 5_000
    bed.events.forget_wakes()
    await put(bed, "3")
    await bed.events.next_wake()
    assert bodies(await bed.pull_one()) == ["1", "2", "3"]

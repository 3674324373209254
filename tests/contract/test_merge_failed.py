"""What a failed merge group does when newer sends of its key are there: a retry does not delay new work."""

from __future__ import annotations

from dueline.engine.job import Reason, State
from dueline.engine.policy import Ladder
from dueline.engine.store import Code, MergeUpdate, Outcome, Release
from tests.kit.store import StoreKit

from .test_merge import bodies, merging, put


async def leased_group(kit: StoreKit, *texts: str, id: str = "old", **words: object) -> str:
    """A group of these items that somebody holds; the token."""
    for text in texts:
        await put(kit, text, group=id, **words)
    leased = await kit.pull_one(lease_ms=100)
    assert leased.id == id
    return leased.lease


async def test_a_released_group_gives_its_items_to_the_open_one_in_front(kit: StoreKit) -> None:
    lease = await leased_group(kit, "1", "2", max_attempts=3)
    sent = await put(kit, "3", group="new", delay_ms=500)
    done = await kit.release("old", lease, error="no luck")
    assert done == Outcome(Code.OK, sent.due_at_ms)
    new, old = await kit.job("new"), await kit.job("old")
    assert (bodies(new), new.state, new.due_at_ms, new.deliveries) == (
        ["1", "2", "3"],
        State.SCHEDULED,
        sent.due_at_ms,
        0,
    )
    assert (old.state, old.items, old.merge_key, old.deliveries) == (State.CANCELLED, None, "key", 1)
    assert old.last_error == "its items went to group new"
    assert await kit.release("old", lease) == Outcome(Code.LEASE_LOST)
    await kit.advance(500)
    leased = await kit.pull_one()
    assert (leased.id, leased.attempt, bodies(leased)) == ("new", 1, ["1", "2", "3"])


async def test_a_group_of_a_generated_id_is_named_as_callers_write_it(kit: StoreKit) -> None:
    for id in ("0123456789abcdef0123456789abcdef", "01234567-89ab-cdef-0123-456789abcdef", "\x01", "sixteen-letters!"):
        old = f"old {id}"
        lease = await leased_group(kit, "1", key=id, id=old)
        await put(kit, "2", id, group=id, delay_ms=1_000)
        await kit.release(old, lease)
        assert (await kit.job(old)).last_error == f"its items went to group {id}"


async def test_a_lost_lease_gives_its_items_when_a_pull_finds_it(kit: StoreKit) -> None:
    lease = await leased_group(kit, "1")
    await put(kit, "2", group="new", delay_ms=500)
    await kit.advance(100)
    assert await kit.state("old") is State.READY
    pulled = await kit.pulled()
    assert (pulled.jobs, pulled.more, pulled.next_ms) == ([], False, (await kit.job("new")).due_at_ms)
    assert await kit.ack("old", lease) is Code.LEASE_LOST
    assert bodies(await kit.job("new")) == ["1", "2"]
    await kit.advance(400)
    assert await kit.pull_ids() == ["new"]


async def test_the_holder_of_a_lost_lease_may_still_ack_when_new_sends_have_come(kit: StoreKit) -> None:
    lease = await leased_group(kit, "1")
    await kit.advance(100)
    await put(kit, "2", group="new", delay_ms=500)
    assert await kit.ack("old", lease) is Code.OK
    assert bodies(await kit.job("new")) == ["2"]


async def test_a_lost_lease_and_a_due_open_group_come_in_one_delivery(kit: StoreKit) -> None:
    await leased_group(kit, "1")
    await put(kit, "2", group="new", delay_ms=150)
    await kit.advance(150)
    assert [(leased.id, bodies(leased)) for leased in await kit.pull()] == [("new", ["1", "2"])]


async def test_a_lost_lease_that_fills_the_open_group_makes_it_due_at_once(kit: StoreKit) -> None:
    await leased_group(kit, "1")
    await put(kit, "2", group="new", delay_ms=1_000, max_items=2)
    await kit.advance(100)
    assert [(leased.id, bodies(leased)) for leased in await kit.pull()] == [("new", ["1", "2"])]
    assert (await put(kit, "3", group="next")).code is Code.CREATED


async def test_a_release_that_fills_the_open_group_makes_it_due_at_once(kit: StoreKit) -> None:
    lease = await leased_group(kit, "1")
    await put(kit, "2", group="new", delay_ms=1_000, max_items=2)
    assert await kit.release("old", lease) == Outcome(Code.OK, kit.clock.now_ms)
    assert bodies(await kit.pull_one()) == ["1", "2"]


async def test_a_send_that_opens_a_group_takes_what_waits_for_its_retry_the_oldest_first(kit: StoreKit) -> None:
    ladder = {"retry": Ladder((10_000,)), "max_items": 2}
    first = await leased_group(kit, "1", "2", id="a", **ladder)
    second = await leased_group(kit, "3", "4", id="b", **ladder)
    third = await leased_group(kit, "5", "6", id="c", **ladder)
    await kit.release("b", second)
    await kit.release("a", first)
    await kit.release("c", third)
    sent = await put(kit, "7", group="new", delay_ms=500, max_items=6)
    assert (sent.code, sent.items_count) == (Code.CREATED, 5)
    assert bodies(await kit.job("new")) == ["1", "2", "3", "4", "7"]
    assert [await kit.state(id) for id in "abc"] == [State.CANCELLED, State.CANCELLED, State.SCHEDULED]


async def test_items_stand_in_send_order_in_whatever_order_their_groups_fail(kit: StoreKit) -> None:
    first = await leased_group(kit, "1", "2", id="a")
    second = await leased_group(kit, "3", id="b")
    await put(kit, "4", group="new", delay_ms=500)
    await kit.release("a", first)
    await kit.release("b", second)
    await put(kit, "5")
    assert bodies(await kit.job("new")) == ["1", "2", "3", "4", "5"]


async def test_what_does_not_fit_stays_a_group_of_its_own(kit: StoreKit) -> None:
    lease = await leased_group(kit, "1", "2")
    await put(kit, "3", group="new", delay_ms=1_000, max_items=2)
    assert await kit.release("old", lease, delay_ms=70) == Outcome(Code.OK, kit.clock.now_ms + 70)
    await kit.advance(70)
    assert [(leased.id, leased.attempt, bodies(leased)) for leased in await kit.pull()] == [("old", 2, ["1", "2"])]
    assert bodies(await kit.job("new")) == ["3"]


async def test_bytes_that_do_not_fit_stay_a_group_of_their_own(kit: StoreKit) -> None:
    lease = await leased_group(kit, "123")
    await put(kit, "45", group="new", delay_ms=1_000, max_bytes=4)
    await kit.release("old", lease, delay_ms=70)
    assert [bodies(await kit.job(id)) for id in ("old", "new")] == [["123"], ["45"]]


async def test_a_group_given_back_unused_stays_apart(kit: StoreKit) -> None:
    lease = await leased_group(kit, "1")
    await put(kit, "2", group="new", delay_ms=1_000)
    await kit.release("old", lease, count=False, delay_ms=0)
    leased = await kit.pull_one()
    assert (leased.id, leased.attempt, bodies(leased)) == ("old", 1, ["1"])
    await kit.release("old", leased.lease, count=True)
    assert bodies(await kit.job("new")) == ["1", "2"]


async def test_a_group_that_failed_before_and_is_now_given_back_unused_stays_apart_too(kit: StoreKit) -> None:
    lease = await leased_group(kit, "1")
    await kit.release("old", lease, delay_ms=0)
    leased = await kit.pull_one()
    assert (leased.id, leased.attempt) == ("old", 2)
    await put(kit, "2", group="new", delay_ms=1_000)
    await kit.release("old", leased.lease, count=False, delay_ms=0)
    again = await kit.pull_one()
    assert (again.id, again.attempt, bodies(again)) == ("old", 2, ["1"])
    assert bodies(await kit.job("new")) == ["2"]


async def test_a_group_whose_attempts_are_used_up_dies_with_its_items_and_is_revived_as_itself(kit: StoreKit) -> None:
    lease = await leased_group(kit, "1", max_attempts=1)
    await put(kit, "2", group="new", delay_ms=1_000)
    assert (await kit.release("old", lease)).reason is Reason.EXHAUSTED
    assert bodies(await kit.job("old")) == ["1"]
    await kit.revive("old")
    assert await kit.listed_ids(merge_key="key") == ["old", "new"]
    leased = await kit.pull_one()
    assert (leased.id, leased.attempt, bodies(leased)) == ("old", 1, ["1"])
    await put(kit, "3")
    assert bodies(await kit.job("new")) == ["2", "3"]


async def test_a_lease_of_a_last_attempt_that_is_lost_is_dead_with_its_items(kit: StoreKit) -> None:
    await leased_group(kit, "1", max_attempts=1)
    await put(kit, "2", group="new", delay_ms=1_000)
    await kit.advance(100)
    assert await kit.pull() == []
    job = await kit.job("old")
    assert (job.state, job.reason, bodies(job)) == (State.DEAD, Reason.EXHAUSTED, ["1"])


async def test_a_group_that_the_target_stops_gives_nothing(kit: StoreKit) -> None:
    lease = await leased_group(kit, "1")
    await put(kit, "2", group="new", delay_ms=1_000)
    await kit.release("old", lease, dead=Reason.REJECTED)
    assert bodies(await kit.job("old")) == ["1"]
    assert bodies(await kit.job("new")) == ["2"]


async def test_ids_of_items_that_moved_mean_the_group_they_are_in(kit: StoreKit) -> None:
    lease = await leased_group(kit, "1", item_id="x", retain_ms=10)
    await put(kit, "2", group="new", delay_ms=1_000)
    await kit.release("old", lease)
    await kit.advance(10)
    await kit.clean()
    kept = await put(kit, "again", item_id="x")
    assert (kept.code, kept.group, kept.items_count) == (Code.KEPT, "new", 2)


async def test_nothing_stays_of_a_group_without_retention_that_gave_its_items(kit: StoreKit) -> None:
    lease = await leased_group(kit, "1", retain_ms=0)
    await put(kit, "2", group="new", delay_ms=1_000)
    assert (await kit.release("old", lease)).code is Code.OK
    assert await kit.read("old") is None
    assert bodies(await kit.job("new")) == ["1", "2"]


async def test_a_kept_body_is_no_reason_to_keep_items_that_moved(kit: StoreKit) -> None:
    lease = await leased_group(kit, "1", keep_body=True, tags=("t",))
    await put(kit, "2", group="new", delay_ms=1_000)
    await kit.release("old", lease)
    job = await kit.job("old")
    assert (job.state, job.items, job.tags) == (State.CANCELLED, None, ())


async def test_groups_of_other_keys_take_nothing(kit: StoreKit) -> None:
    lease = await leased_group(kit, "1")
    await put(kit, "2", "other", group="new", delay_ms=1_000)
    await kit.release("old", lease, delay_ms=5)
    assert [bodies(await kit.job(id)) for id in ("old", "new")] == [["1"], ["2"]]


async def test_two_groups_that_fail_in_one_call_both_give(kit: StoreKit) -> None:
    leases = [await leased_group(kit, text, id=text) for text in "12"]
    await put(kit, "3", group="new", delay_ms=1_000, max_items=3)
    done = await kit.store.release(kit.partition, [Release(id, lease) for id, lease in zip("12", leases, strict=True)])
    assert [one.code for one in done] == [Code.OK, Code.OK]
    leased = await kit.pull_one()
    assert (leased.id, bodies(leased)) == ("new", ["1", "2", "3"])


async def test_two_openings_in_one_call_share_out_what_waits(kit: StoreKit) -> None:
    leases = {id: await leased_group(kit, *texts, id=id) for id, texts in (("a", "12"), ("b", "3"))}
    for id, lease in leases.items():
        await kit.release(id, lease, delay_ms=10_000)
    sent = await kit.send_many([merging(text, group=f"new-{text}", max_items=2, delay_ms=500) for text in "456"])
    assert [(one.code, one.items_count, one.state) for one in sent] == [
        (Code.CREATED, 2, State.READY),
        (Code.CREATED, 1, State.SCHEDULED),
        (Code.APPENDED, 2, State.READY),
    ]
    assert [(leased.id, bodies(leased)) for leased in await kit.pull()] == [
        ("new-4", ["3", "4"]),
        ("new-5", ["5", "6"]),
    ]
    assert bodies(await kit.job("a")) == ["1", "2"]


async def test_an_append_wakes_a_sleeper_when_it_makes_its_group_due_earlier(kit: StoreKit) -> None:
    await put(kit, "1", delay_ms=10_000, max_items=3)
    await kit.store.watch(kit.partition)
    assert (await kit.pulled(wait_ms=60_000)).next_ms == kit.clock.now_ms + 10_000
    kit.events.forget_wakes()
    await put(kit, "2", delay_ms=5_000, update=MergeUpdate.ALWAYS)
    await kit.events.next_wake()
    assert (await kit.pulled(wait_ms=60_000)).next_ms == kit.clock.now_ms + 5_000
    kit.events.forget_wakes()
    await put(kit, "3")
    await kit.events.next_wake()
    assert bodies(await kit.pull_one()) == ["1", "2", "3"]

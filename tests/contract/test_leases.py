"""Ack, release and extend: tokens, deadlines, attempts."""

from __future__ import annotations

import pytest

from dueline.engine.job import Reason, State
from dueline.engine.limits import MAX_REFUNDS
from dueline.engine.policy import AT_ONCE, DEFAULT_RETRY, Backoff, JobPolicy, Ladder, Retry
from dueline.engine.store import Code, Outcome, Ref, Release
from tests.kit.store import StoreKit, item


async def test_an_acked_job_is_done_and_never_comes_back(kit: StoreKit) -> None:
    await kit.send("a", tags=("t",), headers=b"h")
    leased = await kit.pull_one()
    await kit.advance(5)
    assert await kit.ack("a", leased.lease) is Code.OK
    job = await kit.job("a")
    assert (job.state, job.body, job.headers, job.tags) == (State.DONE, None, b"", ())
    assert (job.ended_at_ms, job.updated_at_ms) == (kit.clock.now_ms, kit.clock.now_ms)
    assert (job.retain_until_ms, job.lease_until_ms) == (kit.clock.now_ms + 60_000, None)
    await kit.advance(50_000)
    assert await kit.pull_ids() == []


async def test_a_topic_may_keep_the_bodies_of_ended_jobs(kit: StoreKit) -> None:
    await kit.send("a", body=b"kept", keep_body=True, headers=b"h", tags=("t",))
    assert await kit.ack("a") is Code.OK
    job = await kit.job("a")
    assert (job.state, job.body, job.headers, job.tags) == (State.DONE, b"kept", b"h", ("t",))


async def test_jobs_acked_together_keep_what_their_own_policies_say(kit: StoreKit) -> None:
    await kit.send_many([item("kept", keep_body=True), item("bare"), item("gone", retain_ms=0, keep_body=True)])
    for ids in (("kept", "bare"), ("gone",)):
        leased = {job.id: job.lease for job in await kit.pull(len(ids))}
        done = await kit.store.ack(kit.partition, [Ref(id, leased[id] if id == "bare" else None) for id in ids])
        assert [one.code for one in done] == [Code.OK] * len(ids)
    assert [(job.id, job.state, job.body) for job in [await kit.job("kept"), await kit.job("bare")]] == [
        ("kept", State.DONE, item("kept").body),
        ("bare", State.DONE, None),
    ]
    assert await kit.read("gone") is None


async def test_the_same_ack_again_is_ok_and_another_token_is_not(kit: StoreKit) -> None:
    await kit.send("a", lease_ms=10)
    old = await kit.pull_one()
    await kit.advance(10)
    leased = await kit.pull_one()
    assert await kit.ack("a", old.lease) is Code.LEASE_LOST
    assert await kit.ack("a", leased.lease) is Code.OK
    before = await kit.job("a")
    await kit.advance(1)
    assert await kit.ack("a", leased.lease) is Code.OK
    assert await kit.ack("a", old.lease) is Code.LEASE_LOST
    assert await kit.ack("a") is Code.ALREADY_DONE
    assert await kit.job("a") == before


async def test_a_holder_whose_job_was_acked_without_a_token_learns_that_it_is_done(kit: StoreKit) -> None:
    await kit.send("a")
    leased = await kit.pull_one()
    assert await kit.ack("a") is Code.OK
    assert await kit.ack("a", leased.lease) is Code.OK


@pytest.mark.parametrize("token", ["", "x", "A" * 16, "_" * 16, "0" * 24])
async def test_an_invented_token_acks_no_job_that_was_never_leased(kit: StoreKit, token: str) -> None:
    await kit.send_many([item("done"), item("ready")])
    await kit.ack("done")
    assert await kit.ack("done", token) is Code.LEASE_LOST
    assert await kit.ack("ready", token) is Code.LEASE_LOST
    assert (await kit.extend("ready", token, 5)).code is Code.LEASE_LOST
    assert (await kit.release("ready", token)).code is Code.LEASE_LOST


async def test_ack_without_a_token_takes_a_job_from_any_live_state(kit: StoreKit) -> None:
    await kit.send_many([item("leased"), item("ready"), item("scheduled", delay_ms=1_000)])
    assert await kit.pull_ids(1) == ["leased"]
    for id in ("leased", "ready", "scheduled"):
        assert await kit.ack(id) is Code.OK
        assert await kit.state(id) is State.DONE
    await kit.advance(2_000)
    assert await kit.pull_ids() == []


async def test_what_is_not_there_is_not_found(kit: StoreKit) -> None:
    assert await kit.ack("no") is Code.NOT_FOUND
    assert await kit.ack("no", "token") is Code.NOT_FOUND
    assert (await kit.release("no")).code is Code.NOT_FOUND
    assert (await kit.release("no", "token")).code is Code.NOT_FOUND
    assert (await kit.extend("no", "token", 5)).code is Code.NOT_FOUND
    assert await kit.cancel("no") is Code.NOT_FOUND
    assert (await kit.edit("no", delay_ms=5)).code is Code.NOT_FOUND
    assert await kit.read("no") is None


@pytest.mark.parametrize("token", ["", "x", "nonsense", "ÿ" * 40, "0" * 24, "AAAAAAAAAAAAAAAA"])
async def test_a_foreign_token_changes_nothing(kit: StoreKit, token: str) -> None:
    await kit.send("a")
    await kit.pull_one()
    before = await kit.job("a")
    assert await kit.ack("a", token) is Code.LEASE_LOST
    assert (await kit.release("a", token)).code is Code.LEASE_LOST
    assert (await kit.extend("a", token, 90_000)).code is Code.LEASE_LOST
    assert await kit.job("a") == before


async def test_a_token_is_worthless_for_a_job_that_was_never_pulled(kit: StoreKit) -> None:
    await kit.send_many([item("a"), item("b", delay_ms=1)])
    leased = await kit.pull_one()
    assert await kit.ack("b", leased.lease) is Code.LEASE_LOST
    assert (await kit.release("b", leased.lease)).code is Code.LEASE_LOST
    assert (await kit.extend("b", leased.lease, 5)).code is Code.LEASE_LOST


async def test_a_token_stays_current_after_the_deadline_until_somebody_else_has_the_job(kit: StoreKit) -> None:
    await kit.send_many([item("acked"), item("released"), item("extended"), item("taken")])
    leased = {one.id: one.lease for one in await kit.pull(lease_ms=10)}
    await kit.advance(15)
    assert await kit.ack("acked", leased["acked"]) is Code.OK
    assert (await kit.release("released", leased["released"], delay_ms=500)).code is Code.OK
    assert await kit.extend("extended", leased["extended"], 500) == Outcome(Code.OK, kit.clock.now_ms + 500)
    assert await kit.state("extended") is State.LEASED
    assert await kit.pull_ids() == ["taken"]
    assert await kit.ack("taken", leased["taken"]) is Code.LEASE_LOST


async def test_the_last_attempt_is_dead_at_its_deadline(kit: StoreKit) -> None:
    await kit.send("a", max_attempts=1)
    leased = await kit.pull_one(lease_ms=10)
    deadline_ms = kit.clock.now_ms + 10
    await kit.advance(9)
    assert await kit.state("a") is State.LEASED
    await kit.advance(3)
    assert await kit.ack("a", leased.lease) is Code.LEASE_LOST
    assert (await kit.release("a", leased.lease)).code is Code.LEASE_LOST
    assert (await kit.extend("a", leased.lease, 5)).code is Code.LEASE_LOST
    assert await kit.ack("a") is Code.ALREADY_DONE
    job = await kit.job("a")
    assert (job.state, job.reason, job.ended_at_ms) == (State.DEAD, Reason.EXHAUSTED, deadline_ms)
    assert (job.updated_at_ms, job.lease_until_ms, job.body) == (deadline_ms, None, b"body")
    assert await kit.pull_ids() == []


async def test_an_ack_in_time_saves_the_last_attempt(kit: StoreKit) -> None:
    await kit.send("a", max_attempts=1)
    leased = await kit.pull_one(lease_ms=10)
    await kit.advance(9)
    assert await kit.ack("a", leased.lease) is Code.OK


async def test_a_released_job_waits_its_delay_before_it_is_ready(kit: StoreKit) -> None:
    await kit.send("a")
    leased = await kit.pull_one()
    await kit.advance(7)
    due_ms = kit.clock.now_ms + 100
    assert await kit.release("a", leased.lease, delay_ms=100, error="boom") == Outcome(Code.OK, due_ms)
    job = await kit.job("a")
    assert (job.state, job.due_at_ms, job.last_error, job.lease_until_ms) == (State.SCHEDULED, due_ms, "boom", None)
    assert (job.updated_at_ms, job.attempts) == (kit.clock.now_ms, 1)
    await kit.advance(99)
    assert await kit.pull_ids() == []
    await kit.advance(1)
    again = await kit.pull_one()
    assert (again.attempt, again.delivery, again.due_at_ms) == (2, 2, due_ms)
    assert await kit.ack("a", leased.lease) is Code.LEASE_LOST


async def test_a_release_without_an_error_keeps_the_last_one(kit: StoreKit) -> None:
    await kit.send("a")
    await kit.release("a", (await kit.pull_one()).lease, error="first")
    await kit.release("a", (await kit.pull_one()).lease)
    assert (await kit.job("a")).last_error == "first"


async def test_a_long_error_is_cut_between_characters(kit: StoreKit) -> None:
    await kit.send("a")
    await kit.release("a", (await kit.pull_one()).lease, error="x" + "é" * 2_000)
    assert (await kit.job("a")).last_error == "x" + "é" * 511


async def test_release_without_a_token_needs_a_running_lease(kit: StoreKit) -> None:
    await kit.send_many([item("leased"), item("ready"), item("scheduled", delay_ms=1_000), item("ended")])
    await kit.cancel("ended")
    assert await kit.pull_ids(1, lease_ms=10) == ["leased"]
    for id in ("ready", "scheduled", "ended"):
        assert (await kit.release(id)).code is Code.LEASE_LOST
    assert (await kit.release("leased")).code is Code.OK
    assert await kit.pull_ids(1, lease_ms=10) == ["leased"]
    await kit.advance(10)
    assert (await kit.release("leased")).code is Code.LEASE_LOST


async def test_a_release_of_the_last_attempt_is_the_end(kit: StoreKit) -> None:
    await kit.send("a", max_attempts=2)
    assert (await kit.release("a", (await kit.pull_one()).lease)).code is Code.OK
    leased = await kit.pull_one()
    await kit.advance(3)
    assert await kit.release("a", leased.lease, error="why") == Outcome(Code.DEAD, reason=Reason.EXHAUSTED)
    job = await kit.job("a")
    assert (job.state, job.reason, job.ended_at_ms) == (State.DEAD, Reason.EXHAUSTED, kit.clock.now_ms)
    assert (job.last_error, job.body, job.attempts) == ("why", b"body", 2)
    assert await kit.ack("a", leased.lease) is Code.LEASE_LOST


@pytest.mark.parametrize("reason", [Reason.REJECTED, Reason.CORRUPT])
async def test_a_consumer_can_say_stop(kit: StoreKit, reason: Reason) -> None:
    await kit.send("a")
    leased = await kit.pull_one()
    assert await kit.release("a", leased.lease, dead=reason, error="410") == Outcome(Code.DEAD, reason=reason)
    job = await kit.job("a")
    assert (job.state, job.reason, job.last_error) == (State.DEAD, reason, "410")
    assert (await kit.stats()).dead_by_reason[reason.value] == 1


async def test_a_release_that_does_not_count_costs_no_attempt(kit: StoreKit) -> None:
    await kit.send("a", max_attempts=1)
    for delivery in range(1, 4):
        leased = await kit.pull_one()
        assert (leased.attempt, leased.delivery) == (1, delivery)
        assert (await kit.release("a", leased.lease, count=False, delay_ms=0)).code is Code.OK
    job = await kit.job("a")
    assert (job.deliveries, job.refunds, job.attempts) == (3, 3, 0)


async def test_refunds_have_an_end(kit: StoreKit) -> None:
    await kit.send("a", max_attempts=1)
    for _ in range(MAX_REFUNDS):
        assert (await kit.release("a", (await kit.pull_one()).lease, count=False)).code is Code.OK
    last = await kit.release("a", (await kit.pull_one()).lease, count=False)
    assert last == Outcome(Code.DEAD, reason=Reason.EXHAUSTED)


LADDER = Ladder((100, 2_000, 30))
STEEP = Backoff(base_ms=100, factor=10.0, max_ms=5_000)


@pytest.mark.parametrize(
    ("retry", "draw", "waits_ms"),
    [
        (AT_ONCE, 0.5, [0, 0, 0]),
        (LADDER, 0.5, [100, 2_000, 30, 30]),
        (STEEP, 0.0, [100, 1_000, 5_000, 5_000]),
        (Backoff(1_000, 2.0, 60_000, 0.5), 1.0, [500, 1_000, 2_000]),
        (Backoff(1_000, 2.0, 60_000, 0.5), 0.25, [875, 1_750, 3_500]),
    ],
)
async def test_a_release_without_a_delay_waits_by_the_retry_policy(
    kit: StoreKit, retry: Retry, draw: float, waits_ms: list[int]
) -> None:
    await kit.send("a", retry=retry)
    for wait_ms in waits_ms:
        leased = await kit.pull_one()
        due_ms = kit.clock.now_ms + wait_ms
        assert await kit.release("a", leased.lease, jitter_draw=draw) == Outcome(Code.OK, due_ms)
        await kit.advance(wait_ms)


async def test_a_job_without_options_is_tried_twenty_times_over_eight_hours(kit: StoreKit) -> None:
    await kit.send("a", policy=JobPolicy())
    began_ms = kit.clock.now_ms
    for attempt in range(1, 20):
        leased = await kit.pull_one()
        assert (leased.attempt, leased.max_attempts) == (attempt, 20)
        wait_ms = min(1_000 * 2 ** (attempt - 1), 3_600_000)
        assert await kit.release("a", leased.lease, jitter_draw=0.0) == Outcome(Code.OK, kit.clock.now_ms + wait_ms)
        await kit.advance(wait_ms - 1)
        assert await kit.pull() == []
        await kit.advance(1)
    leased = await kit.pull_one()
    assert (await kit.release("a", leased.lease)).code is Code.DEAD
    assert kit.clock.now_ms - began_ms == 29_295_000  # 8 h 8 min
    assert (await kit.job("a")).policy == JobPolicy(max_attempts=20, retry=DEFAULT_RETRY)


async def test_a_lost_lease_uses_a_rung_but_does_not_wait(kit: StoreKit) -> None:
    await kit.send("a", retry=LADDER)
    await kit.pull_one(lease_ms=10)
    await kit.advance(10)
    leased = await kit.pull_one()
    assert await kit.release("a", leased.lease) == Outcome(Code.OK, kit.clock.now_ms + 2_000)


async def test_an_explicit_delay_wins_over_the_retry_policy(kit: StoreKit) -> None:
    await kit.send("a", retry=LADDER)
    leased = await kit.pull_one()
    assert await kit.release("a", leased.lease, delay_ms=7) == Outcome(Code.OK, kit.clock.now_ms + 7)


async def test_a_released_job_keeps_its_place_within_a_millisecond(kit: StoreKit) -> None:
    await kit.send_many([item("a"), item("b")])
    for leased in reversed(await kit.pull()):
        await kit.release(leased.id, leased.lease)
    assert await kit.pull_ids() == ["a", "b"]


async def test_extend_never_shortens(kit: StoreKit) -> None:
    await kit.send("a")
    leased = await kit.pull_one(lease_ms=1_000)
    assert await kit.extend("a", leased.lease, 10) == Outcome(Code.OK, leased.lease_until_ms)
    assert await kit.extend("a", leased.lease, 5_000) == Outcome(Code.OK, kit.clock.now_ms + 5_000)
    await kit.advance(4_999)
    assert await kit.pull_ids() == []
    await kit.advance(1)
    assert await kit.pull_ids() == ["a"]


async def test_an_extended_last_attempt_dies_at_the_new_deadline(kit: StoreKit) -> None:
    await kit.send("a", max_attempts=1)
    leased = await kit.pull_one(lease_ms=100)
    await kit.extend("a", leased.lease, 500)
    await kit.advance(499)
    assert await kit.state("a") is State.LEASED
    await kit.advance(1)
    job = await kit.job("a")
    assert (job.state, job.ended_at_ms) == (State.DEAD, kit.clock.now_ms)


async def test_each_job_of_a_call_has_its_own_result(kit: StoreKit) -> None:
    await kit.send_many([item("a"), item("b"), item("c")])
    leased = {one.id: one.lease for one in await kit.pull()}
    results = await kit.store.ack(
        kit.partition, [Ref("a", leased["a"]), Ref("none", "x"), Ref("b", leased["a"]), Ref("a", leased["a"]), Ref("c")]
    )
    codes = [result.code for result in results]
    assert codes == [Code.OK, Code.NOT_FOUND, Code.LEASE_LOST, Code.OK, Code.OK]
    stats = await kit.stats()
    assert (stats.done, stats.leased) == (2, 1)


async def test_a_job_twice_in_one_release_is_released_once(kit: StoreKit) -> None:
    await kit.send("a")
    leased = await kit.pull_one()
    twice = [Release("a", leased.lease, 100), Release("a", leased.lease, 200)]
    codes = [result.code for result in await kit.store.release(kit.partition, twice)]
    assert codes == [Code.OK, Code.LEASE_LOST]
    assert (await kit.job("a")).due_at_ms == kit.clock.now_ms + 100
    assert (await kit.stats()).scheduled == 1


async def test_a_thousand_leases_are_acked_in_one_call(kit: StoreKit) -> None:
    await kit.send_many([item(f"{n}") for n in range(1000)])
    leased = await kit.pull(1000)
    results = await kit.store.ack(kit.partition, [Ref(one.id, one.lease) for one in leased])
    assert [result.code for result in results] == [Code.OK] * 1000
    assert (await kit.stats()).done == 1000

"""Pulls that wait: on time, in order, without a tick, without leasing more than somebody can take."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from engine_kit import NS, EngineKit, ids, running, settled

from dueline.engine.commands import TopicPatch
from dueline.engine.errors import RateLimited, StoreDown
from dueline.engine.ids import partition_of
from dueline.engine.job import State
from dueline.engine.limits import Limits
from dueline.engine.policy import TopicPolicy
from dueline.engine.store import Credit


async def test_a_parked_pull_gets_the_job_at_its_due_time_with_two_store_calls(kit: EngineKit) -> None:
    await kit.send("mail", "a", 1_000)
    pull = kit.pull("mail", wait_ms=5_000)
    await kit.advance(999)
    assert not pull.done()
    await kit.advance(1)
    [job] = await pull
    assert (job.id, job.late_ms, len(kit.store.pulls)) == ("a", 0, 2)


async def test_nothing_is_asked_while_nothing_can_be_due(kit: EngineKit) -> None:
    pull = kit.pull("mail", wait_ms=300_000)
    await kit.advance(299_000)
    assert len(kit.store.pulls) == 1
    await kit.advance(1_000)
    assert await pull == []


async def test_a_send_wakes_a_parked_pull_at_once(kit: EngineKit) -> None:
    pull = kit.pull("mail", wait_ms=5_000)
    await settled()
    await kit.send("mail", "a")
    assert ids(await pull) == ["a"]


async def test_an_earlier_job_moves_the_sleep_forward(kit: EngineKit) -> None:
    await kit.send("mail", "late", 4_000)
    pull = kit.pull("mail", wait_ms=5_000)
    await settled()
    await kit.send("mail", "early", 100)
    await kit.advance(100)
    assert ids(await pull) == ["early"]


async def test_a_lease_that_ends_wakes_a_parked_pull(kit: EngineKit) -> None:
    await kit.send("mail", "a")
    [first] = await kit.pull("mail", lease_ms=500)
    pull = kit.pull("mail", wait_ms=5_000)
    await kit.advance(499)
    assert not pull.done()
    await kit.advance(1)
    [second] = await pull
    assert (second.id, second.attempt, second.lease != first.lease) == ("a", 2, True)


async def test_waiters_are_served_in_the_order_of_their_arrival_by_one_call(kit: EngineKit) -> None:
    for number in range(3):
        await kit.send("mail", f"job{number}", 100)
    pulls = [kit.pull("mail", wait_ms=1_000) for _ in range(3)]
    await settled()
    calls = len(kit.store.pulls)
    await kit.advance(100)
    assert [ids(await pull) for pull in pulls] == [["job0"], ["job1"], ["job2"]]
    assert len(kit.store.pulls) == calls + 1
    assert kit.store.pulls[-1][1].credits == (Credit(1, None),) * 3


async def test_a_pull_that_does_not_wait_joins_the_call_of_those_that_do(kit: EngineKit) -> None:
    parked = kit.pull("mail", wait_ms=1_000)
    await settled()
    kit.store.gate = asyncio.Event()
    await kit.send("mail", "a")
    await settled()  # the wake-up's call is under way
    quick = [kit.pull("mail") for _ in range(2)]
    await settled()
    kit.store.gate.set()
    assert ids(await parked) == ["a"]
    assert [await pull for pull in quick] == [[], []]
    assert [pull.credits for _, pull in kit.store.pulls[2:]] == [(Credit(1, None), Credit(1, None))]


async def test_a_pull_without_wait_asks_the_store_even_if_a_sleeper_believes_there_is_nothing(kit: EngineKit) -> None:
    parked = kit.pull("mail", wait_ms=1_000)
    await settled()
    before = len(kit.store.pulls)
    assert await kit.pull("mail") == []
    assert len(kit.store.pulls) == before + 1
    assert not parked.done()


async def test_a_partition_is_watched_before_the_first_pull_that_waits_and_left_after_a_while(kit: EngineKit) -> None:
    first = kit.pull("mail", wait_ms=100)
    await kit.advance(100)
    await first
    second = kit.pull("mail", wait_ms=100)
    await kit.advance(100)
    await second
    assert [call for call in kit.store.calls if "watch" in call] == ["watch mail"]
    assert kit.store.calls[:2] == ["watch mail", "pull mail"]
    await kit.advance(6_000)
    assert kit.store.calls[-1] == "unwatch mail"
    assert kit.timer.sleeping == []


async def test_a_pull_without_wait_watches_nothing(kit: EngineKit) -> None:
    await kit.pull("mail")
    assert kit.store.calls == ["pull mail"]
    assert kit.store.pulls[0][1].wait_ms == 0


async def test_the_store_learns_how_long_a_pull_waits(kit: EngineKit) -> None:
    pulls = [kit.pull("mail", wait_ms=2_000), kit.pull("mail", wait_ms=20_000)]
    await settled()
    assert kit.store.pulls[0][1].wait_ms >= 20_000
    calls = len(kit.store.pulls)
    longer = kit.pull("mail", wait_ms=60_000)
    await settled()
    assert kit.store.pulls[calls][1].wait_ms >= 60_000
    for pull in (*pulls, longer):
        pull.cancel()


async def test_a_waiter_takes_from_the_first_topic_that_has_something(kit: EngineKit) -> None:
    await kit.send("low", "b")
    await kit.send("high", "a")
    assert ids(await kit.pull("high", "low")) == ["a"]
    assert ids(await kit.pull("high", "low")) == ["b"]
    assert await kit.pull("high", "low") == []


async def test_a_waiter_on_several_partitions_never_leases_more_than_it_asked_for(kit: EngineKit) -> None:
    await kit.engine.set_topic(NS, "namespace_ids", TopicPatch(TopicPolicy(), partitions=8))
    pull = kit.pull("namespace_ids", max=2, wait_ms=10_000)
    await settled()
    for number in range(20):
        await kit.send("namespace_ids", f"job{number}", 100)
    await kit.advance(100)
    assert len(await pull) == 2
    view = await kit.engine.topic(NS, "namespace_ids")
    assert (view.leased, view.ready) == (2, 18)


async def test_one_pull_collects_from_all_partitions(kit: EngineKit) -> None:
    await kit.engine.set_topic(NS, "namespace_ids", TopicPatch(TopicPolicy(), partitions=8))
    sent = {f"job{number}" for number in range(40)}
    for id in sorted(sent):
        await kit.send("namespace_ids", id)
    assert set(ids(await kit.pull("namespace_ids", max=100))) == sent


async def test_a_wake_up_of_a_second_partition_while_the_first_is_asked_is_not_lost(kit: EngineKit) -> None:
    pull = kit.pull("a", "b", wait_ms=10_000)
    await settled()
    kit.store.gate = asyncio.Event()
    kit.engine.woken(kit.store.pulls[0][0])  # a false alarm on the first partition
    await settled()
    await kit.send("b", "job")
    await settled()
    assert not pull.done()
    kit.store.gate.set()
    assert ids(await pull) == ["job"]


async def test_a_wake_up_during_a_call_is_asked_about_after_it(kit: EngineKit) -> None:
    kit.store.gate = asyncio.Event()
    pull = kit.pull("mail", wait_ms=10_000)
    await settled()
    await kit.send("mail", "a")  # after the call saw an empty partition, before its answer is here
    await settled()
    kit.store.gate.set()
    assert ids(await pull) == ["a"]


async def test_a_job_pulled_for_a_waiter_who_left_goes_to_the_next_one(kit: EngineKit) -> None:
    await kit.send("mail", "a")
    kit.store.gate = asyncio.Event()
    gone = kit.pull("mail", wait_ms=1_000)
    await settled()
    heir = kit.pull("mail", wait_ms=1_000)
    await settled()
    gone.cancel()
    await settled()
    kit.store.gate.set()
    [job] = await heir
    assert (job.id, job.attempt, job.delivery) == ("a", 1, 1)


@pytest.mark.parametrize("heir_lease_ms", [None, 5_000])
async def test_a_job_that_nobody_can_inherit_goes_back_without_costing_an_attempt(
    heir_lease_ms: int | None, kit: EngineKit
) -> None:
    await kit.send("mail", "a", max_attempts=1)
    kit.store.gate = asyncio.Event()
    gone = kit.pull("mail", lease_ms=60_000, wait_ms=1_000)
    await settled()
    heir = kit.pull("mail", lease_ms=heir_lease_ms, wait_ms=1_000) if heir_lease_ms else None
    gone.cancel()
    await settled()
    kit.store.gate.set()
    if heir is None:
        await settled()
        heir = kit.pull("mail")
    [job] = await heir
    assert (job.id, job.attempt, job.delivery) == ("a", 1, 2)
    with pytest.raises(asyncio.CancelledError):
        await gone


async def test_a_pull_cancelled_at_the_moment_of_its_answer_gives_the_jobs_back(kit: EngineKit) -> None:
    await kit.send("mail", "a", max_attempts=1)
    timer: Any = kit.timer
    real = timer.call_later

    def cancel_first(delay_s: float, callback: Any) -> Any:
        # The waiter leaves its queue and is answered in the same turn of the loop, before its task runs again.
        asyncio.get_running_loop().call_soon(pull.cancel)
        return real(delay_s, callback)

    timer.call_later = cancel_first
    pull = kit.pull("mail")
    with pytest.raises(asyncio.CancelledError):
        await pull
    timer.call_later = real
    await settled()
    job = await kit.engine.get(NS, "mail", "a")
    assert (job.state, job.attempts, kit.engine.waiters) == (State.READY, 0, 0)


async def test_a_pull_whose_time_ends_during_its_call_still_gets_the_job(kit: EngineKit) -> None:
    await kit.send("mail", "a")
    kit.store.gate = asyncio.Event()
    pull = kit.pull("mail", wait_ms=50)
    await kit.advance(100)
    assert not pull.done()
    kit.store.gate.set()
    assert ids(await pull) == ["a"]


async def test_a_pull_that_does_not_wait_gets_the_stores_error(kit: EngineKit) -> None:
    kit.store.failures = [StoreDown()]
    with pytest.raises(StoreDown):
        await kit.pull("mail")


async def test_a_parked_pull_outlives_a_store_that_comes_back(kit: EngineKit) -> None:
    await kit.send("mail", "a")
    kit.store.failures = [StoreDown(), StoreDown()]
    pull = kit.pull("mail", wait_ms=10_000)
    await kit.advance(99)
    assert len(kit.store.pulls) == 1
    await kit.advance(201)
    assert ids(await pull) == ["a"]
    assert len(kit.store.pulls) == 3


async def test_a_store_that_was_away_for_an_hour_is_asked_again(kit: EngineKit) -> None:
    await kit.send("mail", "a")
    kit.store.failures = [StoreDown()] * 100_000
    pulls: list[asyncio.Task[Any]] = []
    for _ in range(15):  # somebody waits all the time
        pulls.append(kit.pull("mail", wait_ms=300_000))
        await kit.advance(240_000)
    kit.store.failures = []
    await kit.advance(2_000)
    assert ids(await pulls[-1]) == ["a"]
    await asyncio.gather(*pulls[:-1], return_exceptions=True)


async def test_a_parked_pull_says_at_its_end_that_the_store_is_down(kit: EngineKit) -> None:
    kit.store.failures = [StoreDown()] * 100
    pull = kit.pull("mail", wait_ms=10_000)
    await kit.advance(10_000)
    with pytest.raises(StoreDown):
        await pull
    assert len(kit.store.pulls) < 12


async def test_a_process_off_duty_lets_the_other_one_go_first(kit: EngineKit) -> None:
    kit.store.on_duty = False
    await kit.send("mail", "a", 1_000)
    pull = kit.pull("mail", wait_ms=5_000)
    await kit.advance(1_002)
    assert not pull.done()
    await kit.advance(10)
    assert ids(await pull) == ["a"]


async def test_a_clock_that_runs_ahead_of_the_store_costs_a_call_a_millisecond_but_never_an_early_job(
    kit: EngineKit,
) -> None:
    due = await kit.send("mail", "a", 1_000)
    kit.store.now_ms = lambda: kit.clock() + 3  # type: ignore[method-assign]
    pull = kit.pull("mail", wait_ms=5_000)
    await kit.advance(1_000)
    [job] = await pull
    assert (job.late_ms, job.due_at_ms) == (0, kit.timer.start_ms + due)
    assert len(kit.store.pulls) == 5  # at the start, then at 997, 998, 999 and 1000 ms


async def test_an_alarm_that_rings_before_the_stores_clock_says_so_sleeps_the_rest(kit: EngineKit) -> None:
    await kit.send("mail", "a", 1_000)
    pull = kit.pull("mail", wait_ms=5_000)
    await settled()
    kit.store.now_ms = lambda: kit.clock() - 5  # type: ignore[method-assign]
    await kit.advance(1_004)
    assert len(kit.store.pulls) == 1
    await kit.advance(1)
    assert ids(await pull) == ["a"]


async def test_two_partitions_that_are_due_at_once_are_not_both_asked_for_one_credit(kit: EngineKit) -> None:
    await kit.send("a", "first", 100)
    await kit.send("b", "second", 100)
    pull = kit.pull("a", "b", wait_ms=5_000)
    await settled()
    kit.store.gate = asyncio.Event()
    await kit.advance(100)
    kit.store.gate.set()
    assert len(await pull) == 1
    await settled()
    jobs = [await kit.engine.get(NS, *job) for job in (("a", "first"), ("b", "second"))]
    assert [(job.state, job.deliveries) for job in jobs] == [(State.LEASED, 1), (State.READY, 0)]


async def test_a_paused_topic_makes_a_pull_wait_until_the_pause_is_over(kit: EngineKit) -> None:
    await kit.send("mail", "a")
    await kit.engine.pause(NS, "mail", kit.clock.now_ms + 1_000)
    pull = kit.pull("mail", wait_ms=5_000)
    await kit.advance(999)
    assert not pull.done()
    await kit.advance(1)
    assert ids(await pull) == ["a"]


async def test_resume_wakes_a_parked_pull(kit: EngineKit) -> None:
    await kit.send("mail", "a")
    await kit.engine.pause(NS, "mail", None)
    pull = kit.pull("mail", wait_ms=5_000)
    await settled()
    await kit.engine.resume(NS, "mail")
    assert ids(await pull) == ["a"]


async def test_a_large_pull_is_made_of_several_bounded_calls(kit: EngineKit) -> None:
    for number in range(700):
        await kit.send("mail", f"job{number}")
    jobs = await kit.pull("mail", max=1_000)
    assert ids(jobs) == [f"job{number}" for number in range(700)]
    assert [sum(credit.max for credit in pull.credits) for _, pull in kit.store.pulls] == [500, 500]


async def test_too_many_waiting_pulls_are_refused() -> None:
    async with running(limits=Limits(max_waiters=1)) as kit:
        first = kit.pull("mail", wait_ms=1_000)
        await settled()
        with pytest.raises(RateLimited):
            await kit.pull("mail", wait_ms=1_000)
        first.cancel()
        await settled()
        assert await kit.pull("mail") == []


async def test_a_waiter_joins_the_partitions_that_a_topic_gets_while_it_waits(kit: EngineKit) -> None:
    kit.store.directory.knows = lambda namespace, topic: True  # type: ignore[method-assign]  # not listed yet
    pull = kit.pull("new", max=1, wait_ms=5_000)
    await settled()
    await kit.engine.set_topic(NS, "new", TopicPatch(TopicPolicy(), partitions=4))
    elsewhere = next(f"job{n}" for n in range(100) if partition_of(f"job{n}", 4) == 3)
    await kit.send("new", elsewhere)
    assert ids(await pull) == [elsewhere]


async def test_the_default_lease_is_the_topics(kit: EngineKit) -> None:
    await kit.engine.set_topic(NS, "mail", TopicPatch(TopicPolicy(lease_ms=7_000)))
    await kit.send("mail", "a")
    await kit.send("mail", "b", lease_ms=3_000)
    jobs = await kit.pull("mail", max=2)
    assert [job.lease_until_ms - kit.clock.now_ms for job in jobs] == [7_000, 3_000]


async def test_a_wake_up_ends_the_back_off_once(kit: EngineKit) -> None:
    """The subscription is there again, so the store may be back, too. If it is not, the back-off goes on."""
    kit.store.failures = [StoreDown()] * 100
    pull = kit.pull("mail", wait_ms=60_000)
    await kit.advance(5_000)
    before = len(kit.store.pulls)
    partition = kit.store.pulls[-1][0]
    for _ in range(3):
        kit.engine.woken(partition)
        await settled()
    assert len(kit.store.pulls) == before + 1
    kit.store.failures = []
    await kit.advance(2_000)
    await kit.send("mail", "a")
    assert ids(await pull) == ["a"]
    kit.store.failures = [StoreDown()]
    pull = kit.pull("mail", wait_ms=60_000)
    await settled()
    await kit.send("mail", "b")
    assert ids(await pull) == ["b"], "without waiting for the back-off"

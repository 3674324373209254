"""The dispatcher: when it calls, what becomes of the jobs, and what it costs them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dueline.engine.errors import StoreDown, UnknownOutcome
from dueline.engine.job import BodyKind, Partition, Reason
from dueline.engine.policy import Ladder
from dueline.engine.push_log import Attempt, TargetState
from dueline.engine.push_target import Breaker, PushTarget
from dueline.push.courier import Verdict
from dueline.push.discovery import Instance
from dueline.push.outgoing_calls import CallFailed

from .push_kit import HOUR, MINUTE, NS, PAYMENT, SECOND, URL, PushKit, answer, running, settled


async def test_a_job_is_called_in_at_its_time_and_done_on_success(kit: PushKit) -> None:
    await kit.push_to()
    await kit.send("j", delay_ms=5_000)
    await kit.advance(4_999)
    assert kit.target.times == []
    await kit.advance(1)
    assert kit.target.times == [5_000]
    assert await kit.state("j") == "done"
    start_ms = kit.timer.start_ms
    assert await kit.log() == [Attempt("j", 1, start_ms + 5_000, 200, 3, ok=True)]
    assert kit.processes[0].observer.calls == [("t", 200, None)]


async def test_the_payment_ladder_is_kept_to_the_second_and_its_end_is_dead(kit: PushKit) -> None:
    await kit.push_to(retry=PAYMENT, breaker=None)
    kit.target.default = answer(500, "down")
    await kit.send("order")
    await kit.advance(48 * HOUR)
    waits = [later - earlier for earlier, later in zip(kit.target.times, kit.target.times[1:], strict=False)]
    assert waits == list(PAYMENT.waits_ms)
    job = await kit.job("order")
    assert (job.state.value, job.reason, job.attempts) == ("dead", Reason.EXHAUSTED, 8)
    assert job.last_error == "answered 500"
    assert [one.attempt for one in await kit.log()] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert {one.excerpt for one in await kit.log()} == {"down"}


async def test_secrets_that_a_target_repeats_are_not_stored(kit: PushKit) -> None:
    await kit.push_to(retry=PAYMENT)
    kit.target.replies[None] = [
        answer(500, '{"Authorization": "Token hunter2hunter2", "key": "whsec_aHVudGVyMg=="}'),
        CallFailed("connect", "no connection to http://user:hunter2@host/", 3),
        answer(400, dueline_abort="Bearer hunter2hunter2 is wrong"),
    ]
    await kit.send("j")
    await kit.advance(HOUR)
    job, log = await kit.job("j"), await kit.log()
    assert [(one.error, one.excerpt) for one in log] == [
        ("answered 500", '{"Authorization": "***", "key": "whsec_***"}'),
        ("no connection to http://***@host/", None),
        ("answered 400, Dueline-Abort: Bearer *** is wrong", None),
    ]
    assert job.last_error == log[-1].error


async def test_a_target_that_comes_back_gets_the_job_at_the_next_rung(kit: PushKit) -> None:
    await kit.push_to(retry=PAYMENT)
    kit.target.replies[None] = [CallFailed("connect", "cannot connect"), answer(503), answer(204)]
    await kit.send("order")
    await kit.advance(HOUR)
    assert kit.target.times == [0, 2 * MINUTE, 12 * MINUTE]
    assert await kit.state("order") == "done"


async def test_a_failed_call_is_kept_with_the_job_and_in_the_log(kit: PushKit) -> None:
    await kit.push_to(retry=Ladder((MINUTE,)))
    kit.target.replies[None] = [CallFailed("refused", "https://target.test/hook: not public", 4)]
    await kit.send("j")
    job = await kit.job("j")
    assert (job.state.value, job.attempts, job.last_error) == (
        "scheduled",
        1,
        "https://target.test/hook: not public",
    )
    [entry] = await kit.log("j")
    assert (entry.status, entry.duration_ms, entry.ok, entry.error) == (0, 4, False, job.last_error)
    assert kit.processes[0].observer.calls == [("t", 0, "refused")]


@pytest.mark.parametrize("reply", [answer(410), answer(500, dueline_abort="never"), answer(404, dueline_abort="")])
async def test_gone_or_an_abort_header_is_dead_at_once(reply: object, kit: PushKit) -> None:
    await kit.push_to(retry=PAYMENT, breaker=Breaker(1, HOUR))
    kit.target.replies[None] = [reply]  # type: ignore[list-item]
    await kit.send("j")
    job = await kit.job("j")
    assert (job.state.value, job.reason, job.attempts) == ("dead", Reason.REJECTED, 1)
    await kit.send("next")  # a target that says so works as it should: no breaker opens
    assert await kit.state("next") == "done"


async def test_retry_after_beats_the_rung_and_is_capped_at_a_day(kit: PushKit) -> None:
    await kit.push_to(retry=PAYMENT)
    date = "Wed, 15 Nov 2023 00:00:00 GMT"  # the virtual clock begins at 1700000000 = 14 Nov 2023 22:13:20
    kit.target.replies[None] = [
        answer(503, retry_after="7"),
        answer(429, retry_after=date),
        answer(500, retry_after="999999999999"),
        answer(503, retry_after="soon"),
    ]
    await kit.send("j")
    await kit.advance(60 * HOUR)
    at_date = 6_400 * SECOND
    assert kit.target.times == [0, 7_000, at_date, at_date + 24 * HOUR, at_date + 25 * HOUR]
    assert await kit.state("j") == "done"


async def test_only_the_named_statuses_are_a_success(kit: PushKit) -> None:
    await kit.push_to(success=(302, 500), retry=Ladder((SECOND, SECOND)))
    kit.target.replies[None] = [answer(200), answer(302)]
    await kit.send("j")
    await kit.advance(SECOND)
    assert [one.ok for one in await kit.log()] == [False, True]
    assert await kit.state("j") == "done"


async def test_no_more_calls_at_once_than_the_target_may_have_over_all_processes() -> None:
    async with running(processes=3) as kit:
        await kit.push_to(concurrency=3)
        gates = [asyncio.Event() for _ in range(10)]
        kit.target.replies[None] = list(gates)
        for number in range(10):
            await kit.send(f"j{number}")
        assert (kit.target.now, kit.target.most) == (3, 3)
        for gate in gates:
            gate.set()
            await settled()
        assert (len(kit.target.calls), kit.target.most) == (10, 3)
        assert {await kit.state(f"j{number}") for number in range(10)} == {"done"}


async def test_no_more_calls_a_second_than_the_rate_allows_over_all_processes() -> None:
    async with running(processes=2) as kit:
        await kit.push_to(rate_per_s=2.0)
        for number in range(7):
            await kit.send(f"j{number}")
        await kit.advance(10 * SECOND)
        assert len(kit.target.times) == 7
        for first in range(5):
            assert kit.target.times[first + 2] - kit.target.times[first] >= 1_000


async def test_a_paused_target_is_not_called_and_nothing_is_leased_for_it(kit: PushKit) -> None:
    await kit.push_to(paused=True)
    await kit.send("j")
    await kit.advance(HOUR)
    assert (kit.target.times, await kit.state("j"), (await kit.job("j")).deliveries) == ([], "ready", 0)
    await kit.engine.resume_push(NS, "t")
    await settled()
    assert await kit.state("j") == "done"
    await kit.engine.pause_push(NS, "t")
    await settled()
    await kit.send("k")
    assert await kit.state("k") == "ready"
    assert kit.processes[0].observer.pauses == [True, False, True]


async def test_a_target_that_another_process_pauses_is_called_no_more_at_once() -> None:
    async with running(processes=2) as kit:
        await kit.push_to()
        await kit.processes[1].engine.pause_push(NS, "t")
        await settled()
        await kit.send("j")
        await kit.advance(HOUR)
        assert (kit.target.times, await kit.state("j")) == ([], "ready")


async def test_a_paused_topic_is_not_pushed(kit: PushKit) -> None:
    await kit.push_to()
    await kit.engine.pause(NS, "t", None)
    await kit.send("j")
    await kit.advance(HOUR)
    assert await kit.state("j") == "ready"
    await kit.engine.resume(NS, "t")
    await settled()
    assert await kit.state("j") == "done"


async def test_a_call_that_takes_longer_than_its_lease_keeps_the_job(kit: PushKit) -> None:
    await kit.push_to(timeout_ms=10_000)  # the lease is 15 s
    gate = asyncio.Event()
    kit.target.replies[None] = [gate]
    await kit.send("j")
    await kit.advance(10 * MINUTE)
    assert (await kit.job("j")).state.value == "leased"
    gate.set()
    await settled()
    job = await kit.job("j")
    assert (job.state.value, job.deliveries, len(kit.target.calls)) == ("done", 1, 1)


async def test_the_outcome_of_a_lost_lease_is_dropped(kit: PushKit) -> None:
    await kit.push_to(timeout_ms=10_000)
    gate = asyncio.Event()
    kit.target.replies[None] = [gate]
    await kit.send("j")
    await kit.engine.cancel(NS, "t", ["j"], forget=True)
    await kit.engine.pause_push(NS, "t")
    await kit.send("j")  # the same id again, another job
    gate.set()
    await kit.advance(MINUTE)
    job = await kit.job("j")
    assert (job.state.value, job.deliveries) == ("ready", 0)


@pytest.mark.parametrize("error", [StoreDown, UnknownOutcome])
async def test_an_ack_that_the_store_did_not_take_is_said_again_and_the_target_is_called_once(
    error: type[Exception], kit: PushKit
) -> None:
    await kit.push_to(timeout_ms=10_000)
    real, down = kit.store.ack, True

    async def ack(partition: object, items: object) -> object:
        if down:
            raise error
        return await real(partition, items)  # type: ignore[arg-type]

    kit.store.ack = ack  # type: ignore[method-assign, assignment]
    await kit.send("j")
    await kit.advance(5 * MINUTE)
    assert await kit.state("j") == "leased"
    down = False
    await kit.advance(10 * SECOND)
    assert (await kit.state("j"), len(kit.target.calls)) == ("done", 1)


async def test_a_store_that_is_away_is_asked_ever_less_often_and_pushing_goes_on_when_it_is_back(kit: PushKit) -> None:
    real, asked = kit.store.pull, 0

    async def pull(partition: Partition, pull: object) -> object:
        nonlocal asked
        asked += partition.topic == "t"
        raise StoreDown

    kit.store.pull = pull  # type: ignore[method-assign, assignment]
    await kit.push_to()
    await kit.send("j")
    await kit.advance(MINUTE)
    assert 1 < asked < 60
    kit.store.pull = real  # type: ignore[method-assign]
    await kit.advance(10 * SECOND)
    assert await kit.state("j") == "done"


async def test_the_breaker_opens_lets_one_through_and_closes(kit: PushKit) -> None:
    await kit.push_to(breaker=Breaker(3, 10_000), retry=Ladder((SECOND,) * 20), concurrency=1)
    kit.target.default = answer(500)
    for number in range(5):
        await kit.send(f"j{number}")
    assert len(kit.target.times) == 3  # the third failure in a row opened it
    await kit.advance(9_999)
    assert len(kit.target.times) == 3
    await kit.advance(1)
    assert kit.target.times[3:] == [10_000]  # one probe; it failed: closed for as long again
    await kit.advance(9_999)
    assert len(kit.target.times) == 4
    kit.target.default = answer(200)
    await kit.advance(1)
    assert {await kit.state(f"j{number}") for number in range(5)} == {"done"}
    assert (await kit.store.pushes.state(NS, "t")).failures == 0
    assert kit.processes[0].observer.breakers == [("t", 3, None), ("t", 0, None)]


async def test_half_open_only_one_call_is_made_however_many_places_there_are(kit: PushKit) -> None:
    await kit.push_to(breaker=Breaker(2, 10_000), retry=Ladder((SECOND,) * 20), concurrency=8)
    kit.target.default = answer(500)
    for number in range(8):
        await kit.send(f"j{number}")
    failed = len(kit.target.times)
    gate = asyncio.Event()
    kit.target.replies[None] = [gate]
    await kit.advance(10_000)
    assert len(kit.target.times) == failed + 1
    await kit.advance(20_000)
    assert len(kit.target.times) == failed + 1
    kit.target.default = answer(200)
    gate.set()
    await kit.advance(1)
    assert {await kit.state(f"j{number}") for number in range(8)} == {"done"}


async def test_one_process_s_failures_and_another_s_open_the_breaker_together() -> None:
    async with running(processes=2) as kit:
        await kit.push_to(breaker=Breaker(4, HOUR), retry=Ladder((10 * SECOND,) * 20))
        kit.target.default = answer(500)
        for number in range(4):
            await kit.send(f"j{number}")
        assert (await kit.store.pushes.state(NS, "t")).open_until_ms == kit.timer.start_ms + HOUR
        made = len(kit.target.times)
        await kit.advance(HOUR - 1)
        assert len(kit.target.times) == made


async def test_a_target_that_is_down_or_hangs_leaves_the_others_on_time(kit: PushKit) -> None:
    await kit.push_to("broken", url="https://broken.test/", concurrency=2)
    await kit.push_to("hanging", url="https://hanging.test/", concurrency=2)
    await kit.push_to("fine", url="https://fine.test/")
    gate = asyncio.Event()
    kit.target.replies["https://broken.test/"] = [CallFailed("timeout", "no answer")] * 50
    kit.target.replies["https://hanging.test/"] = [gate] * 5
    for number in range(5):
        await kit.send(f"b{number}", "broken")
        await kit.send(f"h{number}", "hanging")
    for number in range(20):
        await kit.send(f"f{number}", "fine", delay_ms=number * 100)
    await kit.advance(MINUTE)
    fine = [at for at, call in kit.target.calls if call.url == "https://fine.test/"]
    assert fine == [number * 100 for number in range(20)]
    gate.set()
    await settled()


async def test_the_next_instance_is_called_when_one_fails_in_the_same_attempt() -> None:
    table = {"billing": (Instance("http://one"), Instance("http://two"), Instance("http://three"))}

    async with running(table=table) as kit:
        await kit.push_to(service="billing")
        kit.target.replies["http://one"] = [CallFailed("connect", "cannot connect")]
        await kit.send("j")
        assert [call.url for _, call in kit.target.calls] == ["http://one", "http://two"]
        job = await kit.job("j")
        assert (job.state.value, job.attempts) == ("done", 1)
        assert [(one.attempt, one.ok) for one in await kit.log()] == [(1, False), (1, True)]


async def test_stopping_lets_calls_end_and_gives_the_rest_back_without_costing_an_attempt(kit: PushKit) -> None:
    await kit.push_to(concurrency=3)
    quick, slow = asyncio.Event(), asyncio.Event()
    kit.target.replies[None] = [quick, slow, slow]
    for number in range(5):
        await kit.send(f"j{number}")
    ending = asyncio.create_task(kit.manager.stop(5.0))
    await settled()
    quick.set()
    await kit.advance(4_999)
    assert not ending.done()
    await kit.advance(1)
    assert ending.done()
    jobs = [await kit.job(f"j{number}") for number in range(5)]
    assert [(job.state.value, job.attempts) for job in jobs] == [
        ("done", 1),
        ("ready", 0),
        ("ready", 0),
        ("ready", 0),
        ("ready", 0),
    ]
    assert len(kit.target.calls) == 3


async def test_stop_is_safe_before_start_and_twice(kit: PushKit) -> None:
    await kit.push_to()
    other = kit.process()
    await other.stop()
    await other.stop()
    await kit.manager.stop(0)


async def test_a_removed_target_lets_its_calls_end_and_makes_no_new_ones(kit: PushKit) -> None:
    await kit.push_to(concurrency=1)
    gate = asyncio.Event()
    kit.target.replies[None] = [gate]
    await kit.send("j")
    await kit.send("k")
    await kit.engine.remove_push(NS, "t")
    await settled()
    assert kit.manager.topics == []
    gate.set()
    await settled()
    assert (await kit.state("j"), await kit.state("k")) == ("done", "ready")
    assert kit.processes[0].observer.ended == ["t"]


async def test_the_target_of_a_deleted_topic_is_called_by_no_process_any_more() -> None:
    async with running(processes=2) as kit:
        await kit.push_to()
        assert [process.manager.topics for process in kit.processes] == [[(NS, "t")]] * 2
        await kit.engine.delete_topic(NS, "t")
        await kit.heard()
        assert [process.manager.topics for process in kit.processes] == [[], []]
        await kit.send("j")
        assert (kit.target.calls, await kit.state("j")) == ([], "ready")
        await kit.push_to(url="https://other.test/")
        await kit.advance(SECOND)
        assert ([call.url for _, call in kit.target.calls], await kit.state("j")) == (
            ["https://other.test/"],
            "done",
        )


async def test_another_address_is_called_from_the_next_job_on_and_has_a_fresh_breaker(kit: PushKit) -> None:
    await kit.push_to(breaker=Breaker(1, HOUR), retry=Ladder((SECOND,) * 5))
    kit.target.replies[URL] = [answer(500)]
    await kit.send("j")
    await kit.advance(MINUTE)
    assert len(kit.target.calls) == 1
    await kit.push_to(url="https://other.test/", breaker=Breaker(1, HOUR))
    await kit.advance(SECOND)
    assert [call.url for _, call in kit.target.calls] == [URL, "https://other.test/"]
    assert await kit.state("j") == "done"


async def test_a_new_process_finds_the_targets_that_are_there(kit: PushKit) -> None:
    await kit.push_to("one")
    await kit.push_to("two")
    await kit.manager.stop(0)
    await kit.send("j", "two")
    assert await kit.state("j", "two") == "ready"
    other = kit.process()
    other.manager.start()
    await settled()
    assert sorted(other.manager.topics) == [(NS, "one"), (NS, "two")]
    assert await kit.state("j", "two") == "done"
    await other.stop()


async def test_a_target_that_another_process_sets_changes_and_removes_is_heard_of_at_once() -> None:
    async with running(processes=2) as kit:
        await kit.processes[1].manager.stop(0)  # it makes no calls itself
        other = kit.processes[1].engine
        for target in (PushTarget(url=URL), PushTarget(url="https://other.test/")):
            await other.set_push(NS, "t", target)
            await settled()
            await kit.send(f"to {target.url}")
        assert [call.url for _, call in kit.target.calls] == [URL, "https://other.test/"]
        await other.remove_push(NS, "t")
        await settled()
        assert kit.manager.topics == []


async def test_a_target_whose_announcement_was_lost_is_found_within_30_seconds() -> None:
    async with running(processes=2) as kit:
        await kit.advance(MINUTE)
        await kit.processes[1].manager.stop(0)
        kit.events.deaf.add(kit.engine)
        await kit.processes[1].engine.set_push(NS, "t", PushTarget(url=URL))
        await kit.send("j")
        assert await kit.state("j") == "ready"
        await kit.advance(30 * SECOND)
        assert await kit.state("j") == "done"
        await kit.processes[1].engine.remove_push(NS, "t")
        await kit.advance(30 * SECOND)
        assert kit.manager.topics == []


async def test_an_idle_topic_sleeps(kit: PushKit) -> None:
    await kit.push_to()
    real, calls = kit.store.pull, 0

    async def pull(partition: Partition, pull: object) -> object:
        nonlocal calls
        calls += 1
        return await real(partition, pull)  # type: ignore[arg-type]

    kit.store.pull = pull  # type: ignore[method-assign, assignment]
    await kit.advance(HOUR)
    assert calls <= 13  # the parked pull is renewed every five minutes


async def test_a_body_of_each_kind_is_what_was_sent(kit: PushKit) -> None:
    await kit.push_to()
    await kit.send("json", body=b'{"a": 1}')
    await kit.send("text", body="größe".encode(), kind=BodyKind.TEXT)
    await kit.send("bytes", body=b"\x00\xff", kind=BodyKind.BYTES)
    found = {
        dict(call.headers)["Dueline-Job-Id"]: (call.body, dict(call.headers)["Content-Type"])
        for _, call in kit.target.calls
    }
    assert found == {
        "json": (b'{"a": 1}', "application/json"),
        "text": ("größe".encode(), "text/plain; charset=utf-8"),
        "bytes": (b"\x00\xff", "application/octet-stream"),
    }


async def test_a_breaker_that_cannot_be_read_is_asked_for_ever_less_often(kit: PushKit) -> None:
    real, asked = kit.store.pushes.state, 0

    async def state(namespace: str, topic: str) -> TargetState:
        nonlocal asked
        asked += 1
        raise StoreDown

    kit.store.pushes.state = state
    await kit.push_to()
    await kit.send("j")
    await kit.advance(MINUTE)
    assert 1 < asked < 25
    kit.store.pushes.state = real
    await kit.advance(10 * SECOND)
    assert await kit.state("j") == "done"


async def test_a_courier_with_a_bug_costs_its_job_a_rung_and_is_logged(kit: PushKit) -> None:
    await kit.push_to(retry=Ladder((SECOND,)))
    courier: Any = kit.processes[0].couriers["http"]
    real = courier.judge

    def judge(*_: object) -> Verdict:
        raise ZeroDivisionError

    courier.judge = judge
    await kit.send("j")
    job = await kit.job("j")
    assert (job.state.value, job.last_error) == ("scheduled", "internal: ZeroDivisionError")
    courier.judge = real
    await kit.advance(SECOND)
    assert await kit.state("j") == "done"
    [complaint] = kit.complaints
    assert isinstance(complaint["exception"], ZeroDivisionError)
    kit.complaints.clear()


async def test_a_target_whose_courier_this_server_does_not_have_is_left_to_others(kit: PushKit) -> None:
    await kit.push_to(courier="pigeon")
    await kit.send("j")
    await kit.advance(HOUR)
    assert (kit.manager.topics, await kit.state("j")) == ([], "ready")


async def test_reports_that_the_store_did_not_take_are_repeated_when_it_is_back(kit: PushKit) -> None:
    await kit.push_to()
    real = kit.store.pushes.report

    async def report(*_: object) -> TargetState:
        raise StoreDown

    kit.store.pushes.report = report
    await kit.send("a")
    await kit.send("b")
    assert (await kit.log(), await kit.state("b")) == ([], "done")
    kit.store.pushes.report = real
    await kit.advance(SECOND)
    assert [one.id for one in await kit.log()] == ["a", "b"]

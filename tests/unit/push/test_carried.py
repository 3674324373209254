"""Jobs that carry their own URL: many hosts in one topic, none of which may hold up the others."""

from __future__ import annotations

import asyncio
from typing import Any

from dueline.engine.job import Reason
from dueline.engine.policy import Ladder
from dueline.engine.push_target import METHOD_HEADER, URL_HEADER, Breaker
from dueline.push.hosts import Hosts, host_of, may_return, wait_ms
from dueline.push.outgoing_calls import CallFailed
from tests.kit.waiting import turns

from .push_kit import HOUR, MINUTE, NS, SECOND, PushKit, answer, settled

DOWN = CallFailed("connect", "cannot connect")


async def send_to(kit: PushKit, id: str, url: str, method: str = "POST", **words: Any) -> None:
    await kit.send(id, headers=((URL_HEADER, url), (METHOD_HEADER, method)), **words)


async def test_a_job_goes_where_it_says_by_the_method_it_says(kit: PushKit) -> None:
    await kit.push_to(courier="carried", headers=(("Content-Type", "application/json"),))
    await send_to(kit, "j", "https://one.test/a?b=c", "Delete", body=b"as it came")
    [(_, call)] = kit.target.calls
    assert (call.method, call.url, call.body) == ("Delete", "https://one.test/a?b=c", b"as it came")
    headers = {name.lower(): value for name, value in call.headers}
    assert headers["content-type"] == "application/json"
    assert not {"dueline-url", "dueline-method"} & set(headers)


async def test_a_job_that_says_no_url_is_dead_and_holds_nobody_up(kit: PushKit) -> None:
    await kit.push_to(courier="carried")
    await kit.send("none")
    await send_to(kit, "j", "https://one.test/")
    job = await kit.job("none")
    assert (job.state.value, job.reason, job.last_error) == ("dead", Reason.REJECTED, "the job carries no URL")
    assert await kit.state("j") == "done"


async def test_a_host_that_hangs_keeps_its_share_and_the_others_are_on_time(kit: PushKit) -> None:
    await kit.push_to(courier="carried", concurrency=8)  # two places for one host, by the kit's settings
    gate = asyncio.Event()
    kit.target.replies["https://hangs.test/"] = [gate] * 30
    for number in range(30):
        await send_to(kit, f"h{number}", "https://hangs.test/")
    assert kit.target.now == 2
    for number in range(20):
        await send_to(kit, f"f{number}", "https://fine.test/", delay_ms=number * 50)
    await kit.advance(MINUTE)
    fine = [at for at, call in kit.target.calls if call.url == "https://fine.test/"]
    assert fine == [number * 50 for number in range(20)]
    assert kit.target.now == 2
    jobs = [await kit.job(f"h{number}") for number in range(30)]
    assert sum(job.state.value == "leased" for job in jobs) == 4  # two are called, two wait in line
    assert {job.attempts for job in jobs if job.state.value != "leased"} == {0}
    gate.set()
    await kit.advance(5 * MINUTE)
    assert {await kit.state(f"h{number}") for number in range(30)} == {"done"}
    assert {(await kit.job(f"h{number}")).attempts for number in range(30)} == {1}


async def test_a_host_that_fails_again_and_again_is_left_alone_and_then_asked_once(kit: PushKit) -> None:
    await kit.push_to(courier="carried", breaker=Breaker(2, 60_000), retry=Ladder((SECOND,) * 30))
    kit.target.replies["https://down.test/"] = [DOWN] * 3
    for number in range(4):
        await send_to(kit, f"d{number}", "https://down.test/")
    await send_to(kit, "f", "https://fine.test/")
    calls = [at for at, call in kit.target.calls if call.url == "https://down.test/"]
    assert (calls, await kit.state("f")) == ([0, 0], "done")
    await kit.advance(59_999)
    assert len(kit.target.calls) == 3
    await kit.advance(1)
    assert len(kit.target.calls) == 4  # one, and it fails: alone for as long again
    await kit.advance(5 * MINUTE)
    assert {await kit.state(f"d{number}") for number in range(4)} == {"done"}
    assert (await kit.store.pushes.state(NS, "t")).open_until_ms == 0


async def test_a_host_that_refuses_a_job_is_not_a_host_that_fails(kit: PushKit) -> None:
    await kit.push_to(courier="carried", breaker=Breaker(1, HOUR), retry=Ladder((SECOND,)))
    kit.target.replies[None] = [answer(404), answer(400)]
    await send_to(kit, "a", "https://one.test/")
    await send_to(kit, "b", "https://one.test/")
    await send_to(kit, "c", "https://one.test/")
    assert await kit.state("c") == "done"


async def test_waiting_for_a_place_costs_no_attempt_as_long_as_that_can_be(kit: PushKit) -> None:
    await kit.push_to(courier="carried", concurrency=2, retry=Ladder((SECOND,)))  # one of them for one host
    gate = asyncio.Event()
    kit.target.replies["https://hangs.test/"] = [gate]
    await send_to(kit, "first", "https://hangs.test/")
    await send_to(kit, "waits", "https://hangs.test/")
    await kit.advance(40 * MINUTE)
    job = await kit.job("waits")
    assert (job.attempts, job.state.value) == (0, "scheduled")
    assert len(kit.target.calls) == 1
    await kit.advance(3 * HOUR)
    job = await kit.job("waits")
    assert (job.state.value, job.attempts, len(kit.target.calls)) == ("done", 1, 2)  # it was called all the same
    gate.set()
    await settled()


def test_a_job_waits_a_little_longer_every_time_and_is_given_back_a_bounded_number_of_times() -> None:
    waits = [wait_ms(number) for number in range(100)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (100, 30_000)
    assert (may_return(0), may_return(98), may_return(99)) == (True, True, False)


def test_a_host_is_its_name_and_port_however_it_is_written() -> None:
    assert (
        host_of("https://user@Example.TEST:8443/a?b#c") == host_of("http://example.test:8443/") == "example.test:8443"
    )


async def test_a_busy_host_is_called_again_as_soon_as_a_call_has_ended_in_the_order_of_the_jobs(kit: PushKit) -> None:
    await kit.push_to(courier="carried", concurrency=12)
    gates = [asyncio.Event() for _ in range(6)]
    kit.target.replies["https://busy.test/"] = list(gates)
    for number in range(6):
        await send_to(kit, f"j{number}", "https://busy.test/")
    assert kit.target.now == 2
    for number, gate in enumerate(gates):
        gate.set()
        await settled()
        called = [dict(call.headers)["Dueline-Job-Id"] for _, call in kit.target.calls]
        assert called == [f"j{n}" for n in range(min(number + 3, 6))]
    assert [at for at, _ in kit.target.calls] == [0] * 6
    assert {(await kit.job(f"j{number}")).deliveries for number in range(6)} == {1}


async def test_whoever_waits_for_a_host_that_then_fails_is_sent_away_and_nobody_waits_for_it_until_it_is_well() -> None:
    hosts = Hosts(2)
    assert [await hosts.enter("h", 9, None, 0) for _ in range(2)] == [None, None]
    waiting = [asyncio.create_task(hosts.enter("h", 9, None, 0)) for _ in range(2)]
    await turns()
    hosts.leave("h", False, None, 0)
    assert await asyncio.gather(*waiting) == [0, 0]
    assert await hosts.enter("h", 9, None, 0) is None  # there is a place
    assert await hosts.enter("h", 9, None, 0) == 0
    hosts.leave("h", True, None, 0)
    assert await hosts.enter("h", 9, None, 0) is None
    patient = asyncio.create_task(hosts.enter("h", 9, None, 0))
    await turns()
    hosts.leave("h", True, None, 0)
    assert await patient is None


async def test_no_more_wait_for_busy_hosts_than_the_share() -> None:
    hosts = Hosts(1)
    for name in "abc":
        assert await hosts.enter(name, 3, None, 0) is None
    waiting = [asyncio.create_task(hosts.enter(name, 3, None, 0)) for name in "aab"]
    await turns()
    assert await hosts.enter("a", 3, None, 0) == 0
    assert await hosts.enter("c", 3, None, 0) == 0
    for name in "aab":
        hosts.leave(name, True, None, 0)
    assert await asyncio.gather(*waiting) == [None] * 3


async def test_a_turn_that_comes_to_somebody_who_has_left_goes_to_the_next() -> None:
    hosts = Hosts(1)
    assert await hosts.enter("h", 9, None, 0) is None
    gone, too_late, last = (asyncio.create_task(hosts.enter("h", 9, None, 0)) for _ in range(3))
    await turns()
    gone.cancel()
    await asyncio.wait([gone])
    hosts.leave("h", True, None, 0)
    too_late.cancel()
    await asyncio.wait([too_late])
    assert await last is None
    hosts.leave("h", True, None, 0)
    assert await hosts.enter("h", 9, None, 0) is None


async def test_the_breaker_of_a_host_is_reported_when_it_opens_and_when_it_closes(kit: PushKit) -> None:
    await kit.push_to(courier="carried", breaker=Breaker(2, SECOND), retry=Ladder((SECOND,) * 9))
    kit.target.replies["https://one.test/"] = [answer(500)] * 3
    await send_to(kit, "j", "https://one.test/")
    for _ in range(10):
        await kit.advance(SECOND)
    assert (await kit.state("j"), kit.processes[0].observer.breakers) == (
        "done",
        [("t", 2, "one.test"), ("t", 0, "one.test")],
    )


async def test_hosts_that_nobody_calls_are_forgotten_when_there_are_many() -> None:
    hosts = Hosts(1)
    assert await hosts.enter("kept", 1, None, 0) is None
    for number in range(25_000):
        name = f"h{number}"
        assert await hosts.enter(name, 1, None, 0) is None
        hosts.leave(name, number % 2 == 0, Breaker(1, 10), 0)
    assert len(hosts) <= 10_000
    assert await hosts.enter("kept", 1, None, 0) == 0


async def test_a_job_whose_namespace_has_used_its_look_ups_waits_and_costs_no_attempt(kit: PushKit) -> None:
    await kit.push_to(courier="carried", breaker=Breaker(1, HOUR))
    limited = CallFailed("limited", "too many look-ups", wait_ms=3 * SECOND)
    kit.target.replies["https://one.test/"] = [limited, limited]
    await send_to(kit, "j", "https://one.test/")
    job = await kit.job("j")
    assert (job.state.value, job.attempts) == ("scheduled", 0)
    await kit.advance(10 * SECOND)
    assert await kit.state("j") == "done"
    assert kit.target.times == [0, 3 * SECOND, 6 * SECOND]
    assert {call.namespace for _, call in kit.target.calls} == {NS}

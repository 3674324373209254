"""What keeps jobs from being pushed stands in the log: at once, then once a minute with a count."""

from __future__ import annotations

from typing import Any

from dueline.push.call import CallFailed
from dueline.push.discovery import Instance
from dueline.telemetry.notices import Notices
from dueline.telemetry.push_notices import PushNotices
from tests.kit.log_lines import logged_events

from .push_kit import MINUTE, NS, SECOND, PushKit, running

REASON = "http://internal.test/hook: internal.test may not be called there: it is a private address"


async def test_a_job_without_an_instance_is_reported_with_every_look_until_there_is_one(kit: PushKit) -> None:
    await kit.push_to(service="billing")
    await kit.send("a")
    events = kit.processes[0].observer.without_instance
    assert events[0] == (
        "t",
        "no instance of the service billing is known (discovery.eureka.url or discovery.static)",
    )
    for _ in range(10):
        await kit.advance(SECOND)
    assert 10 <= len(events) <= 12
    assert len(set(events)) == 1


async def test_no_instance_is_missed_while_no_job_waits_or_one_is_there() -> None:
    async with running(table={"billing": [Instance("http://billing.test")]}) as kit:
        await kit.push_to(service="billing")
        await kit.push_to("idle", service="nobody")
        await kit.send("a")
        await kit.advance(MINUTE)
        assert (await kit.state("a"), kit.processes[0].observer.without_instance) == ("done", [])


async def test_a_refused_call_and_an_absence_are_logged_once_a_minute_and_name_the_setting(kit: PushKit) -> None:
    now_s = 0.0
    with logged_events() as lines:
        noticed = PushNotices(Notices("dueline.push", lambda: now_s))
        kit.target.default = CallFailed("refused", REASON)
        await kit.push_to(breaker=None)
        await kit.send("a")
        [attempt] = await kit.log()
        for _ in range(3):
            noticed.called(NS, "t", attempt, "refused")
            noticed.no_instance(NS, "u", "no instance")
            noticed.refused_at_send("10.0.0.1 is a private address")
        noticed.called(NS, "t", attempt, None)
        first: list[Any] = list(lines)
        now_s = 60.0
        noticed.refused_at_send("10.0.0.2 is a private address")
    guard = "the egress guard refused"
    assert first == [
        {
            "event": f"{guard} to call a push target; to allow the call, add its address to push.allow",
            "level": "warning",
            "namespace": NS,
            "topic": "t",
            "job": "a",
            "reason": REASON,
            "setting": "push.allow",
        },
        {"event": "jobs are waiting: no instance", "level": "warning", "namespace": NS, "topic": "u"},
        {
            "event": f"{guard} a URL in a request; to allow it, add its address to push.allow",
            "level": "warning",
            "reason": "10.0.0.1 is a private address",
            "setting": "push.allow",
        },
    ]
    assert [(one["reason"], one["suppressed"]) for one in lines[3:]] == [("10.0.0.2 is a private address", 2)]


def test_a_breaker_logs_one_line_when_it_opens_and_one_when_it_closes() -> None:
    with logged_events() as lines:
        noticed = PushNotices(Notices("dueline.push"))
        noticed.breaker(NS, "t", 5, None)
        noticed.breaker(NS, "t", 0, None)
        noticed.breaker(NS, "u", 3, "one.test")
    fails = "a push target keeps failing and is not called for a while"
    assert lines == [
        {"event": fails, "level": "warning", "namespace": NS, "topic": "t", "failures": 5},
        {"event": "a push target answers again", "level": "info", "namespace": NS, "topic": "t"},
        {"event": fails, "level": "warning", "namespace": NS, "topic": "u", "host": "one.test", "failures": 3},
    ]

"""The dispatcher while no instance is available: what waiting costs the jobs, the store and the registry."""

from __future__ import annotations

import asyncio
from typing import Any

from dueline.engine.errors import NotFound, StoreDown
from dueline.engine.push_target import PushTopic
from dueline.push.discovery import Instance

from .push_kit import HOUR, MINUTE, NS, SECOND, URL, PushKit, settled


def looks_of(kit: PushKit) -> list[str]:
    """The topics for which somebody was looked for, one entry a look."""
    courier: Any = kit.processes[0].couriers["http"]
    real, looks = courier.has_instance, []

    async def has_instance(push_topic: PushTopic) -> bool:
        looks.append(push_topic.topic)
        return await real(push_topic)

    courier.has_instance = has_instance
    return looks


def appear(kit: PushKit, *urls: str) -> None:
    """From now on the service billing runs there."""
    kit.table["billing"] = tuple(Instance(url) for url in urls)


async def test_a_service_without_instances_is_waited_for_and_costs_no_attempt(kit: PushKit) -> None:
    looks = looks_of(kit)
    await kit.push_to(service="billing")
    await kit.send("j")
    await kit.advance(5 * MINUTE)
    job = await kit.job("j")
    assert (job.state.value, job.attempts, job.deliveries, len(looks)) == ("ready", 0, 1, 300)
    appear(kit, "http://one", "http://two")
    await kit.advance(1 * SECOND)
    job = await kit.job("j")
    assert (job.state.value, job.attempts, job.deliveries) == ("done", 1, 2)
    assert [call.url for _, call in kit.target.calls] == ["http://one"]
    looks.clear()
    await kit.send("k")
    assert (await kit.state("k"), looks) == ("done", [])


async def test_nobody_is_looked_for_while_there_is_no_job(kit: PushKit) -> None:
    looks = looks_of(kit)
    await kit.push_to(service="billing")
    await kit.send("later", delay_ms=HOUR)
    await kit.advance(HOUR - 1)
    assert looks == []
    await kit.advance(1 + 10 * SECOND)
    assert len(looks) == 10


async def test_when_the_jobs_that_waited_are_gone_nobody_is_looked_for_any_more(kit: PushKit) -> None:
    looks = looks_of(kit)
    await kit.push_to(service="billing")
    await kit.send("j")
    await kit.advance(45 * SECOND)
    assert len(looks) == 45
    await kit.engine.cancel(NS, "t", ["j"])
    await kit.advance(HOUR)
    assert len(looks) == 60
    appear(kit, "http://one")
    await kit.send("k")
    assert (await kit.state("k"), len(looks)) == ("done", 60)


async def test_a_topic_that_has_never_been_seen_has_no_jobs_and_figures_that_fail_are_no_reason_to_stop_looking(
    kit: PushKit,
) -> None:
    looks = looks_of(kit)
    await kit.push_to(service="billing")
    await kit.send("j")
    await kit.advance(1)
    failure: type[Exception] = StoreDown

    async def topic(*_: object) -> object:
        raise failure

    kit.engine.topic = topic  # type: ignore[method-assign, assignment]
    await kit.engine.cancel(NS, "t", ["j"], forget=True)
    await kit.advance(59 * SECOND)
    assert len(looks) == 59
    failure = NotFound
    await kit.advance(HOUR)
    assert len(looks) == 60


async def test_another_service_is_tried_by_the_next_pull_and_not_looked_for_first(kit: PushKit) -> None:
    looks = looks_of(kit)
    await kit.push_to(service="billing")
    await kit.send("j")
    await kit.push_to(url=URL)
    assert (await kit.state("j"), looks) == ("done", [])


async def test_a_look_that_was_about_the_target_before_does_not_hold_up_the_new_one(kit: PushKit) -> None:
    courier: Any = kit.processes[0].couriers["http"]
    looking, answered = asyncio.Event(), asyncio.Event()

    async def has_instance(_: PushTopic) -> bool:
        looking.set()
        await answered.wait()
        return False

    courier.has_instance = has_instance
    await kit.push_to(service="billing")
    await kit.send("j")
    await kit.advance(SECOND)
    assert looking.is_set()
    await kit.push_to(url=URL)
    answered.set()
    await settled()
    assert await kit.state("j") == "done"

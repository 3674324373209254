"""The dispatcher while nobody is there to call: what waiting costs the jobs, the store and the registry."""

from __future__ import annotations

import asyncio
from typing import Any

from dueline.engine.errors import NotFound, StoreDown
from dueline.engine.push_target import Pushing
from dueline.push.discovery import Instance

from .push_kit import HOUR, MINUTE, NS, SECOND, URL, World, settled


def looks_of(world: World) -> list[str]:
    """The topics for which somebody was looked for, one entry a look."""
    courier: Any = world.processes[0].couriers["http"]
    real, looks = courier.somebody, []

    async def somebody(pushing: Pushing) -> bool:
        looks.append(pushing.topic)
        return await real(pushing)

    courier.somebody = somebody
    return looks


def appear(world: World, *urls: str) -> None:
    """From now on the service billing runs there."""
    world.table["billing"] = tuple(Instance(url) for url in urls)


async def test_a_service_without_instances_is_waited_for_and_costs_no_attempt(world: World) -> None:
    looks = looks_of(world)
    await world.push_to(service="billing")
    await world.send("j")
    await world.advance(5 * MINUTE)
    job = await world.job("j")
    assert (job.state.value, job.attempts, job.deliveries, len(looks)) == ("ready", 0, 1, 300)
    appear(world, "http://one", "http://two")
    await world.advance(1 * SECOND)
    job = await world.job("j")
    assert (job.state.value, job.attempts, job.deliveries) == ("done", 1, 2)
    assert [call.url for _, call in world.target.calls] == ["http://one"]
    looks.clear()
    await world.send("k")
    assert (await world.state("k"), looks) == ("done", [])


async def test_nobody_is_looked_for_while_there_is_no_job(world: World) -> None:
    looks = looks_of(world)
    await world.push_to(service="billing")
    await world.send("later", delay_ms=HOUR)
    await world.advance(HOUR - 1)
    assert looks == []
    await world.advance(1 + 10 * SECOND)
    assert len(looks) == 10


async def test_when_the_jobs_that_waited_are_gone_nobody_is_looked_for_any_more(world: World) -> None:
    looks = looks_of(world)
    await world.push_to(service="billing")
    await world.send("j")
    await world.advance(45 * SECOND)
    assert len(looks) == 45
    await world.engine.cancel(NS, "t", ["j"])
    await world.advance(HOUR)
    assert len(looks) == 60
    appear(world, "http://one")
    await world.send("k")
    assert (await world.state("k"), len(looks)) == ("done", 60)


async def test_a_topic_that_has_never_been_seen_has_no_jobs_and_figures_that_fail_are_no_reason_to_stop_looking(
    world: World,
) -> None:
    looks = looks_of(world)
    await world.push_to(service="billing")
    await world.send("j")
    await world.advance(1)
    failure: type[Exception] = StoreDown

    async def topic(*_: object) -> object:
        raise failure

    world.engine.topic = topic  # type: ignore[method-assign, assignment]
    await world.engine.cancel(NS, "t", ["j"], forget=True)
    await world.advance(59 * SECOND)
    assert len(looks) == 59
    failure = NotFound
    await world.advance(HOUR)
    assert len(looks) == 60


async def test_another_service_is_tried_by_the_next_pull_and_not_looked_for_first(world: World) -> None:
    looks = looks_of(world)
    await world.push_to(service="billing")
    await world.send("j")
    await world.push_to(url=URL)
    assert (await world.state("j"), looks) == ("done", [])


async def test_a_look_that_was_about_the_target_before_does_not_hold_up_the_new_one(world: World) -> None:
    courier: Any = world.processes[0].couriers["http"]
    looking, told = asyncio.Event(), asyncio.Event()

    async def somebody(_: Pushing) -> bool:
        looking.set()
        await told.wait()
        return False

    courier.somebody = somebody
    await world.push_to(service="billing")
    await world.send("j")
    await world.advance(SECOND)
    assert looking.is_set()
    await world.push_to(url=URL)
    told.set()
    await settled()
    assert await world.state("j") == "done"

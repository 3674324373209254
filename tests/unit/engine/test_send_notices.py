"""What the log says about sends, in virtual time."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from engine_kit import NS, World
from structlog.testing import capture_logs

from dueline.engine.commands import Send
from dueline.engine.errors import StoreDown, StoreFull
from dueline.engine.job import BodyKind
from dueline.engine.push_target import PushTarget
from dueline.server.send_notices import SendNotices
from dueline.telemetry.notices import Notices

Lines = list[MutableMapping[str, Any]]


@pytest.fixture
def partitions(world: World) -> Iterator[Lines]:
    """The lines that are logged about the sends of the world."""
    with capture_logs() as lines:
        notices = SendNotices(world.engine, Notices("dueline.server", world.timer.time), world.timer)
        world.engine.watch_sends(notices)
        yield lines
        notices.stop()


def job(id: str) -> Send:
    return Send(id, b"1", BodyKind.JSON)


def unconsumed(partitions: Lines) -> list[tuple[str, int, int]]:
    return [
        (partition["topic"], partition["ready"], partition["oldest_ready_s"])
        for partition in partitions
        if partition["event"] == "nobody consumes this topic"
    ]


async def test_a_topic_that_nobody_consumes_is_told_ten_seconds_after_its_job_was_due(
    world: World, partitions: Lines
) -> None:
    await world.send("t", "a", delay_ms=5_000)
    await world.send("t", "b", delay_ms=9_000)
    await world.advance(14_999)
    assert unconsumed(partitions) == []
    await world.advance(1)
    assert unconsumed(partitions) == [("t", 2, 10)]


async def test_it_is_told_once_a_minute_while_jobs_are_sent_and_costs_nothing_when_none_are(
    world: World, partitions: Lines
) -> None:
    looks: list[str] = []
    stats = world.store.stats

    async def counted(partition: Any, *args: Any) -> Any:
        looks.append(partition.topic)
        return await stats(partition, *args)

    world.store.stats = counted
    for number in range(100):
        await world.send("t", f"{number}")
        await world.advance(1_000)
    await world.advance(3_600_000)
    assert unconsumed(partitions) == [("t", 10, 10), ("t", 70, 70), ("t", 100, 130)]
    assert looks == ["t"] * 3


async def test_a_consumer_that_waits_or_works_or_will_come_is_not_missed(world: World, partitions: Lines) -> None:
    await world.send("held", "a")
    assert len(await world.pull("held", lease_ms=60_000)) == 1
    await world.send("held", "b")
    await world.send("paused", "a")
    await world.engine.pause(NS, "paused", None)
    await world.send("pushed", "a")
    await world.engine.set_push(NS, "pushed", PushTarget(url="http://127.0.0.1:1/"))
    waiting = world.pull("waited", wait_ms=300_000)
    await world.send("waited", "later", delay_ms=100_000)
    await world.send("polled", "a")
    await world.advance(5_000)
    assert len(await world.pull("polled")) == 1
    await world.advance(20_000)
    assert unconsumed(partitions) == []
    waiting.cancel()


async def test_refused_sends_are_told_at_once_and_then_counted(world: World, partitions: Lines) -> None:
    async def full(*_: Any) -> Any:
        raise StoreFull("the store refuses writes")

    world.store.send = full
    for number in range(3):
        with pytest.raises(StoreFull):
            await world.send("t", f"{number}")
    refusals = await world.engine.send_many(NS, "many", [job("x"), job("y")])
    assert [type(one) for one in refusals] == [StoreFull, StoreFull]
    told = [(partition["topic"], partition["code"], partition["detail"]) for partition in partitions]
    assert told == [(name, "store_full", "the store refuses writes") for name in ("t", "many")]


async def test_while_sends_are_closed_none_is_stored_and_each_says_why(world: World, partitions: Lines) -> None:
    world.engine.close_sends("the store may delete jobs")
    for send in (world.send("t", "a"), world.engine.send_many(NS, "t", [job("b")])):
        with pytest.raises(StoreDown, match="the store may delete jobs"):
            await send
    assert [partition["detail"] for partition in partitions] == ["the store may delete jobs"]
    world.engine.close_sends(None)
    await world.send("t", "a")
    assert (await world.engine.topic(NS, "t")).ready == 1

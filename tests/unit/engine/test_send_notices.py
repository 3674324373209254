"""What the log says about sends, in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from engine_kit import NS, EngineKit

from dueline.engine.commands import Send
from dueline.engine.errors import StoreDown, StoreFull, UnknownOutcome
from dueline.engine.job import BodyKind
from dueline.engine.push_target import PushTarget
from dueline.server.send_notices import SendNotices
from dueline.telemetry.notices import Notices
from tests.kit.log_lines import Line, logged_events

Lines = list[Line]


@pytest.fixture
def logged(kit: EngineKit) -> Iterator[Lines]:
    """The lines that are logged about the sends of the kit."""
    with logged_events() as lines:
        notices = SendNotices(kit.engine, Notices("dueline.server", kit.timer.time), kit.timer)
        kit.engine.watch_sends(notices)
        yield lines
        notices.stop()


def job(id: str) -> Send:
    return Send(id, b"1", BodyKind.JSON)


def unconsumed(logged: Lines) -> list[tuple[str, int, int]]:
    return [
        (line["topic"], line["ready"], line["oldest_ready_s"])
        for line in logged
        if line["event"] == "nobody consumes this topic"
    ]


async def test_a_topic_that_nobody_consumes_is_logged_ten_seconds_after_its_job_was_due(
    kit: EngineKit, logged: Lines
) -> None:
    await kit.send("t", "a", delay_ms=5_000)
    await kit.send("t", "b", delay_ms=9_000)
    await kit.advance(14_999)
    assert unconsumed(logged) == []
    await kit.advance(1)
    assert unconsumed(logged) == [("t", 2, 10)]


async def test_it_is_logged_once_a_minute_while_jobs_are_sent_and_costs_nothing_when_none_are(
    kit: EngineKit, logged: Lines
) -> None:
    looks: list[str] = []
    stats = kit.store.stats

    async def counted(partition: Any, *args: Any) -> Any:
        looks.append(partition.topic)
        return await stats(partition, *args)

    kit.store.stats = counted
    for number in range(100):
        await kit.send("t", f"{number}")
        await kit.advance(1_000)
    await kit.advance(3_600_000)
    assert unconsumed(logged) == [("t", 10, 10), ("t", 70, 70), ("t", 100, 130)]
    assert looks == ["t"] * 3


async def test_a_consumer_that_waits_or_works_or_will_come_is_not_missed(kit: EngineKit, logged: Lines) -> None:
    await kit.send("leased", "a")
    assert len(await kit.pull("leased", lease_ms=60_000)) == 1
    await kit.send("leased", "b")
    await kit.send("paused", "a")
    await kit.engine.pause(NS, "paused", None)
    await kit.send("pushed", "a")
    await kit.engine.set_push(NS, "pushed", PushTarget(url="http://127.0.0.1:1/"))
    waiting = kit.pull("waited", wait_ms=300_000)
    await kit.send("waited", "later", delay_ms=100_000)
    await kit.send("polled", "a")
    await kit.advance(5_000)
    assert len(await kit.pull("polled")) == 1
    await kit.advance(20_000)
    assert unconsumed(logged) == []
    waiting.cancel()


async def test_refused_sends_are_logged_at_once_and_then_counted(kit: EngineKit, logged: Lines) -> None:
    async def full(*_: Any) -> Any:
        raise StoreFull("the store refuses writes")

    kit.store.send = full
    for number in range(3):
        with pytest.raises(StoreFull):
            await kit.send("t", f"{number}")
    refusals = await kit.engine.send_many(NS, "many", [job("x"), job("y")])
    assert [type(one) for one in refusals] == [StoreFull, StoreFull]
    notices = [(line["topic"], line["code"], line["detail"]) for line in logged]
    assert notices == [("t", "store_full", "the store refuses writes")]


async def test_refusals_of_an_unavailable_store_share_one_line_for_all_topics(kit: EngineKit, logged: Lines) -> None:
    async def down(*_: Any) -> Any:
        raise StoreDown("the store does not answer")

    kit.store.send = down
    for topic in ("a", "b"):
        with pytest.raises(StoreDown):
            await kit.send(topic, "x")
    assert [type(one) for one in await kit.engine.send_many(NS, "c", [job("x")])] == [StoreDown]
    assert [(line["event"], line["code"], line["topic"]) for line in logged] == [
        ("a send was refused", "store_down", "a")
    ]


async def test_a_send_that_may_have_been_done_is_not_called_refused(kit: EngineKit, logged: Lines) -> None:
    async def unknown(*_: Any) -> Any:
        raise UnknownOutcome

    kit.store.send = unknown
    with pytest.raises(UnknownOutcome):
        await kit.send("t", "x")
    assert [type(one) for one in await kit.engine.send_many(NS, "t", [job("x")])] == [UnknownOutcome]
    assert logged == []

"""Forecasts: what falls due between given times, of one topic and of all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from engine_kit import NS, EngineKit, RecordingStore, running

from dueline.engine import forecasts
from dueline.engine.commands import TopicPatch
from dueline.engine.errors import InvalidField, NotFound
from dueline.engine.job import Partition
from dueline.engine.limits import LAST_MS
from dueline.engine.policy import TopicPolicy
from dueline.engine.store import Stats


class CountingStore(RecordingStore):
    """Counts the calls of `stats`, and those that run at the same time. Each takes `cost_ms`."""

    counted = running_now = most = 0
    cost_ms = 0

    async def stats(self, partition: Partition, edges_ms: Sequence[int] = (), from_now: bool = False) -> Stats:
        self.counted += 1
        self.running_now += 1
        self.most = max(self.most, self.running_now)
        await asyncio.sleep(0)
        self.running_now -= 1
        return await super().stats(partition, edges_ms, from_now)


def shifted(kit: EngineKit, *edges_ms: int) -> list[int]:
    return [kit.clock.now_ms + edge_ms for edge_ms in edges_ms]


async def test_a_topics_forecast_is_the_sum_of_its_partitions(kit: EngineKit) -> None:
    await kit.engine.set_topic(NS, "mail", TopicPatch(TopicPolicy(), partitions=3))
    for number in range(30):
        await kit.send("mail", f"j{number}", delay_ms=number)
    edges_ms = shifted(kit, 0, 10, 20)
    found = await kit.engine.forecasts.topic(NS, "mail", edges_ms)
    assert (found.at_ms, found.edges_ms, found.complete) == (kit.clock.now_ms, tuple(edges_ms), True)
    assert (found.counts, found.paused, found.later) == ((9, 10), (0, 0), 10)
    assert [(one.topic, one.counts) for one in found.topics] == [("mail", (9, 10))]


async def test_what_falls_due_during_a_pause_is_counted_apart(kit: EngineKit) -> None:
    for topic in ("mail", "sms"):
        for number in range(3):
            await kit.send(topic, f"j{number}", delay_ms=10 * number + 5)
    edges_ms = shifted(kit, 0, 10, 20, 30)
    await kit.engine.pause(NS, "mail", kit.clock.now_ms + 15)
    found = await kit.engine.forecasts.namespace(NS, edges_ms)
    assert (found.counts, found.paused, found.topics_counted) == ((1, 1, 2), (1, 1, 0), 2)
    await kit.engine.pause(NS, "mail", None)
    found = await kit.engine.forecasts.topic(NS, "mail", edges_ms)
    assert (found.counts, found.paused, found.later, found.topics) == ((0, 0, 0), (1, 1, 1), 0, ())


async def test_the_largest_topics_are_named() -> None:
    async with running(store=CountingStore) as kit:
        for number in range(12):
            for job in range(number):
                await kit.send(f"t{number:02}", f"j{job}", delay_ms=5)
        found = await kit.engine.forecasts.namespace(NS, shifted(kit, 0, 10))
        assert [one.topic for one in found.topics] == [f"t{number:02}" for number in range(11, 3, -1)]
        assert (found.counts, found.topics_counted, found.complete) == ((66,), 11, True)


async def test_one_caller_sums_for_all_with_few_calls_at_once() -> None:
    async with running(store=CountingStore) as kit:
        store = kit.store
        assert isinstance(store, CountingStore)
        for number in range(250):
            await kit.send(f"t{number}", "a", delay_ms=5)
        store.counted = store.most = 0
        edges_ms = shifted(kit, 0, 10)
        found = await asyncio.gather(*(kit.engine.forecasts.namespace(NS, edges_ms) for _ in range(20)))
        assert {one.counts for one in found} == {(250,)}
        assert store.counted == 250
        assert store.most <= forecasts.TOPICS_AT_ONCE


async def test_a_sum_is_kept_and_serves_edges_that_move_with_the_time() -> None:
    async with running(store=CountingStore) as kit:
        store = kit.store
        assert isinstance(store, CountingStore)
        await kit.send("mail", "a", delay_ms=60_000)
        first = await kit.engine.forecasts.namespace(NS, shifted(kit, 0, 60_000))
        assert (first.counts, first.later, store.counted) == ((0,), 1, 1)
        await kit.advance(1_000)
        assert await kit.engine.forecasts.namespace(NS, shifted(kit, 0, 60_000)) is first
        assert await kit.engine.forecasts.namespace(NS, first.edges_ms) is first
        assert store.counted == 1
        wider = await kit.engine.forecasts.namespace(NS, shifted(kit, 0, 60_001))  # another question
        assert (wider.counts, wider.later, store.counted) == ((1,), 0, 2)
        await kit.advance(1_000)
        again = await kit.engine.forecasts.namespace(NS, shifted(kit, 0, 60_000))
        assert (again.counts, store.counted) == ((1,), 3)
        assert (await kit.engine.forecasts.namespace("else", shifted(kit, 0, 60_000))).counts == (0,)


async def test_a_sum_is_kept_for_ten_times_its_cost() -> None:
    class Slow(CountingStore):
        async def stats(self, partition: Partition, edges_ms: Sequence[int] = (), from_now: bool = False) -> Stats:
            await kit.advance(3_000)
            return await super().stats(partition, edges_ms, from_now)

    async with running(store=Slow) as kit:
        assert isinstance(kit.store, CountingStore)
        await kit.send("mail", "a", delay_ms=600_000)
        edges_ms = shifted(kit, 0, 900_000)
        first = await kit.engine.forecasts.namespace(NS, edges_ms)
        await kit.advance(29_000)
        assert await kit.engine.forecasts.namespace(NS, edges_ms) is first
        await kit.advance(1_001)
        assert await kit.engine.forecasts.namespace(NS, edges_ms) is not first


async def test_more_topics_than_one_sum_may_have_make_it_incomplete(
    kit: EngineKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecasts, "MAX_TOPICS", 40)
    for number in range(41):
        await kit.send(f"t{number:02}", "a", delay_ms=5)
    found = await kit.engine.forecasts.namespace(NS, shifted(kit, 0, 10))
    assert (found.counts, found.topics_counted, found.complete) == ((40,), 40, False)


async def test_wrong_edges_are_refused(kit: EngineKit) -> None:
    await kit.send("mail", "a")
    for wrong in ([], [1], [2, 1], [1, 1], [-1, 5], [1, LAST_MS + 1], list(range(65))):
        for asked in (kit.engine.forecasts.topic(NS, "mail", wrong), kit.engine.forecasts.namespace(NS, wrong)):
            with pytest.raises(InvalidField) as refused:
                await asked
            assert refused.value.field == "edges_ms"
    with pytest.raises(NotFound):
        await kit.engine.forecasts.topic(NS, "nothing", [1, 2])

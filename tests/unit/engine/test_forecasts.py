"""Forecasts: what falls due between given times, of one topic and of all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from engine_kit import NS, EngineKit, RecordingStore, running

from dueline.engine import forecasts
from dueline.engine.bands import Bands, ForecastPart
from dueline.engine.commands import TopicPatch
from dueline.engine.errors import Draining, InvalidField, NotFound, StoreDown
from dueline.engine.limits import LAST_MS
from dueline.engine.policy import TopicPolicy
from dueline.engine.store import Release
from tests.kit.waiting import until


class CountingStore(RecordingStore):
    """Counts the partitions in calls of `forecast`, and the calls that run at the same time."""

    counted = running_now = most = 0

    async def forecast(self, parts: Sequence[ForecastPart], edges_ms: Sequence[int]) -> Bands:
        self.counted += len(parts)
        self.running_now += 1
        self.most = max(self.most, self.running_now)
        await asyncio.sleep(0)
        self.running_now -= 1
        return await super().forecast(parts, edges_ms)


class SlowStore(CountingStore):
    """Every call of `forecast` waits for `gate` and takes `cost_ms` on the engine's clock. `once`: only the first one
    does, and the next one waits until the gate is opened."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.gate = asyncio.Event()
        self.gate.set()
        self.advance: Callable[[int], Awaitable[None]] | None = None
        self.cost_ms = 0
        self.once = False

    async def forecast(self, parts: Sequence[ForecastPart], edges_ms: Sequence[int]) -> Bands:
        await self.gate.wait()
        if self.advance is not None and self.cost_ms:
            await self.advance(self.cost_ms)
        if self.once:
            self.cost_ms, self.once = 0, False
            self.gate.clear()
        return await super().forecast(parts, edges_ms)


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
        assert store.counted == 250 + forecasts.SHOWN_TOPICS
        assert store.most == 1


async def test_a_sum_is_kept_and_serves_edges_that_move_with_the_time() -> None:
    async with running(store=CountingStore) as kit:
        store = kit.store
        assert isinstance(store, CountingStore)
        await kit.send("mail", "a", delay_ms=60_000)
        first = await kit.engine.forecasts.namespace(NS, shifted(kit, 0, 60_000))
        assert (first.counts, first.later, store.counted) == ((0,), 1, 1)  # no topic falls due, so none is shown
        await kit.advance(1_000)
        assert await kit.engine.forecasts.namespace(NS, shifted(kit, 0, 60_000)) is first
        assert await kit.engine.forecasts.namespace(NS, first.edges_ms) is first
        assert store.counted == 1
        wider = await kit.engine.forecasts.namespace(NS, shifted(kit, 0, 60_001))  # another question
        assert (wider.counts, wider.later, store.counted) == ((1,), 0, 3)
        await kit.advance(1_000)
        again = await kit.engine.forecasts.namespace(NS, shifted(kit, 0, 60_000))
        assert (again.counts, store.counted) == ((1,), 5)
        assert (await kit.engine.forecasts.namespace("else", shifted(kit, 0, 60_000))).counts == (0,)


async def test_a_sum_is_kept_for_ten_times_its_cost() -> None:
    async with running(store=SlowStore) as kit:
        store = kit.store
        assert isinstance(store, SlowStore)
        store.advance, store.cost_ms = kit.advance, 3_000
        await kit.send("mail", "a", delay_ms=6_000_000)
        edges_ms = shifted(kit, 0, 900_000)
        first = await kit.engine.forecasts.namespace(NS, edges_ms)
        await kit.advance(29_000)
        assert await kit.engine.forecasts.namespace(NS, edges_ms) is first
        await kit.advance(1_001)
        assert await kit.engine.forecasts.namespace(NS, edges_ms) is not first


async def test_a_long_sum_answers_with_what_is_counted_and_goes_on() -> None:
    async with running(store=SlowStore) as kit:
        store = kit.store
        assert isinstance(store, SlowStore)
        store.advance, store.cost_ms, store.once = kit.advance, 1_000, True
        for number in range(250):
            await kit.send(f"t{number:03}", "a", delay_ms=600_000)
        edges_ms = shifted(kit, 0, 900_000)
        first = await kit.engine.forecasts.namespace(NS, edges_ms)
        assert (first.counts, first.topics_counted, first.complete, first.topics) == ((100,), 100, False, ())
        assert await kit.engine.forecasts.namespace(NS, edges_ms) is first
        store.gate.set()
        last = await until(lambda: kit.engine.forecasts.namespace(NS, edges_ms), lambda found: found.complete)
        assert (last.counts, last.topics_counted, len(last.topics)) == ((250,), 250, forecasts.SHOWN_TOPICS)
        assert store.counted == 250 + forecasts.SHOWN_TOPICS  # one sum for all these calls


async def test_a_sum_that_fails_tells_all_its_callers_and_is_not_kept() -> None:
    class Failing(CountingStore):
        broken = True

        async def forecast(self, parts: Sequence[ForecastPart], edges_ms: Sequence[int]) -> Bands:
            await asyncio.sleep(0)
            if self.broken:
                raise StoreDown("away")
            return await super().forecast(parts, edges_ms)

    async with running(store=Failing) as kit:
        store = kit.store
        assert isinstance(store, Failing)
        await kit.send("mail", "a", delay_ms=5)
        edges_ms = shifted(kit, 0, 10)
        calls = [kit.engine.forecasts.namespace(NS, edges_ms) for _ in range(3)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(one) for one in found] == [StoreDown] * 3
        store.broken = False
        assert (await kit.engine.forecasts.namespace(NS, edges_ms)).counts == (1,)


async def test_a_stopped_engine_ends_its_sums() -> None:
    async with running(store=SlowStore) as kit:
        store = kit.store
        assert isinstance(store, SlowStore)
        await kit.send("mail", "a", delay_ms=5)
        store.gate.clear()
        asked = asyncio.ensure_future(kit.engine.forecasts.namespace(NS, shifted(kit, 0, 10)))
        await asyncio.sleep(0)
        await kit.engine.stop()
        with pytest.raises(Draining):
            await asked


async def test_jobs_that_wait_for_another_attempt_are_counted_apart(kit: EngineKit) -> None:
    await kit.send("mail", "first", delay_ms=5_000)
    for id in ("again", "snoozed"):
        await kit.send("mail", id)
    for job in await kit.pull("mail", max=2):
        await kit.engine.release(NS, "mail", [Release(job.id, job.lease, delay_ms=5_000, count=job.id == "again")])
    edges_ms = shifted(kit, 0, 10_000)
    for found in (
        await kit.engine.forecasts.topic(NS, "mail", edges_ms),
        await kit.engine.forecasts.namespace(NS, edges_ms),
    ):
        assert (found.counts, found.retries, found.paused) == ((2,), (1,), (0,))
        assert [one.counts for one in found.topics] == [(2,)]


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

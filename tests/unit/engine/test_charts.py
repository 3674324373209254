"""Charts: what a process counted, minute by minute."""

from __future__ import annotations

import pytest
from engine_kit import NS, EngineKit, running

from dueline.engine import charts
from dueline.engine.chart_store import MINUTE_MS, ChartRow
from dueline.engine.charts import COUNTS, SETTLE_MS, TopicRates, charts_of, percentile, rates_of
from dueline.engine.commands import Pull, TopicPatch
from dueline.engine.engine import Engine
from dueline.engine.errors import StoreDown
from dueline.engine.job import Reason
from dueline.engine.metrics import MAX_TOPICS
from dueline.engine.policy import TopicPolicy
from dueline.engine.store import Ref, Release

LATE = (0,) * 16


async def full_minutes(kit: EngineKit, number: int = 1) -> None:
    for _ in range(number):
        await kit.advance(MINUTE_MS)


async def work(kit: EngineKit) -> None:
    """3 sends, 3 deliveries (2 of them late), 1 ack, 1 release, 1 death; one job stays pending."""
    for id in ("a", "b", "c"):
        await kit.send("mail", id)
    await kit.advance(30)
    a, b, c = await kit.engine.pull(Pull(NS, ("mail",), 3, None, 0))
    await kit.engine.ack(NS, "mail", [Ref(a.id, a.lease)])
    await kit.engine.release(NS, "mail", [Release(b.id, b.lease, delay_ms=3_600_000)])
    await kit.engine.release(NS, "mail", [Release(c.id, c.lease, dead=Reason.REJECTED)])


async def test_what_happened_is_charted_after_the_minute_is_over(kit: EngineKit) -> None:
    await kit.engine.start()
    await work(kit)
    before = await kit.engine.charts.read(NS, 1)
    assert set(before.sends) == {None}
    await full_minutes(kit, 3)
    found = await kit.engine.charts.read(NS, 1)
    assert (len(found.sends), found.step_ms) == (60, MINUTE_MS)
    assert found.from_ms + 59 * MINUTE_MS <= kit.clock.now_ms < found.from_ms + 60 * MINUTE_MS
    assert [getattr(found, name)[-4:] for name in COUNTS] == [
        (3, 0, 0, None),
        (3, 0, 0, None),
        (1, 0, 0, None),
        (2, 0, 0, None),
        (1, 0, 0, None),
    ]
    assert found.pending[-5:] == (None, 1, 1, 1, 1)
    assert found.late_p50_ms[-4:] == (35.0, None, None, None)
    assert found.sends[-5] is None
    other = await kit.engine.charts.read("else", 1)
    assert (set(other.sends), set(other.pending)) == ({None, 0}, {None})


async def test_the_rates_of_topics_are_those_of_five_full_minutes_on_all_servers(kit: EngineKit) -> None:
    await kit.engine.start()
    assert await kit.engine.charts.topics(NS) == {"": TopicRates()}
    await work(kit)
    other = Engine(kit.store, timer=kit.timer)
    await other.start()
    await kit.send("mail", "d")
    [job] = await other.pull(Pull(NS, ("mail",), 1, None, 0))
    await other.ack(NS, "mail", [Ref(job.id, job.lease)])
    await kit.send("news", "a")
    await full_minutes(kit)
    await kit.advance(SETTLE_MS)
    found = await kit.engine.charts.topics(NS)
    assert found == await other.charts.topics(NS)
    assert found == {"mail": TopicRates(round(2 / 60, 3), 49.6), "news": TopicRates(0.0), "": TopicRates(0.0)}
    await full_minutes(kit, 4)
    assert (await kit.engine.charts.topics(NS))["mail"].done_per_s == round(2 / 300, 3)
    await full_minutes(kit)
    assert await kit.engine.charts.topics(NS) == {"": TopicRates(0.0)}
    await other.stop()


async def test_an_idle_process_sends_nothing() -> None:
    calls: list[int] = []

    async with running() as kit:
        add = kit.store.charts.add

        async def noted(rows: list[ChartRow], can_count: bool = True) -> list[bool]:
            calls.append(len(rows))
            return await add(rows, can_count)

        kit.store.charts.add = noted  # pyright: ignore[reportAttributeAccessIssue]
        await kit.engine.start()
        await full_minutes(kit, 5)
        assert calls == []
        await kit.send("mail", "a")
        await full_minutes(kit, 5)
        assert calls == [2]  # a row of the namespace and one of the topic
    assert calls == [2]


async def test_a_store_that_is_down_gets_the_minutes_later(kit: EngineKit) -> None:
    await kit.engine.start()
    add = kit.store.charts.add

    async def down(rows: list[ChartRow], can_count: bool = True) -> list[bool]:
        raise StoreDown("not now")

    kit.store.charts.add = down  # pyright: ignore[reportAttributeAccessIssue]
    await kit.send("mail", "a")
    await full_minutes(kit)
    await kit.send("mail", "b")
    await kit.send("mail", "c")
    await full_minutes(kit)
    kit.store.charts.add = add
    await full_minutes(kit, 2)
    assert (await kit.engine.charts.read(NS, 1)).sends[-6:] == (None, 1, 2, 0, 0, None)


async def test_what_was_counted_since_the_last_minute_is_added_at_the_stop() -> None:
    async with running() as kit:
        await kit.engine.start()
        await kit.send("mail", "a")
        await kit.engine.stop()
        later = Engine(kit.store, timer=kit.timer)
        await full_minutes(kit)
        assert (await later.charts.read(NS, 1)).sends[-2:] == (1, None)


async def test_topics_without_metrics_of_their_own_are_charted_in_their_namespace(kit: EngineKit) -> None:
    await kit.engine.start()
    for number in range(MAX_TOPICS + 5):
        await kit.send(f"t{number}", "a")
    await full_minutes(kit, 2)
    assert (await kit.engine.charts.read(NS, 1)).sends[-3:] == (MAX_TOPICS + 5, 0, None)
    assert (await kit.engine.charts.read("other", 1)).sends[-3:] == (0, 0, None)


async def test_many_partitions_are_counted_less_often(kit: EngineKit, monkeypatch: pytest.MonkeyPatch) -> None:
    await kit.engine.start()
    monkeypatch.setattr(charts, "PENDING_CALLS", 2)
    await kit.engine.set_topic(NS, "mail", TopicPatch(TopicPolicy(), partitions=6))
    for number in range(6):
        await kit.send("mail", f"j{number}")
        await full_minutes(kit)
    await full_minutes(kit)
    assert (await kit.engine.charts.read(NS, 1)).pending[-8:] == (1, None, None, 4, None, None, 6, 6)


def test_rates_of_topics_say_what_is_not_known() -> None:
    def row(topic: str, acks: int, minute: int = 10) -> ChartRow:
        return ChartRow("ns", minute, (0, 0, acks, 0, 0, *LATE), topic=topic)

    assert rates_of(10, None, []) == rates_of(10, 15, []) == {"": TopicRates()}
    assert rates_of(10, 3, [row("a", 300), row("a", 300, 14)]) == {"a": TopicRates(2.0), "": TopicRates(0.0)}
    assert rates_of(10, 14, [row("a", 6, 14)])["a"] == TopicRates(0.1)  # recorded for one minute
    shared = rates_of(10, 3, [row("a", 300), row("", 7)])  # others share a row: each of them is unknown
    assert shared == {"a": TopicRates(1.0), "": TopicRates()}


def test_a_chart_says_what_is_not_known() -> None:
    rows = [ChartRow("ns", 4, (1, 2, 3, 4, 5, *LATE), 9), ChartRow("ns", 6, (), 7), ChartRow("ns", 7, (1, 0, 0, 0, 0))]
    found = charts_of(2, 9, 3, rows)
    assert found.sends == (None, 0, 1, 0, 0, 1, 0, None)
    assert found.dead == (None, 0, 5, 0, 0, 0, 0, None)
    assert found.pending == (None, None, 9, 9, 7, None, None, None)
    assert set(found.late_p99_ms) == {None}
    assert set(charts_of(2, 9, None, []).sends) == {None}


@pytest.mark.parametrize(
    ("buckets", "share", "late_ms"),
    [
        ([0] * 16, 0.5, None),
        ([4] + [0] * 15, 0.5, 0.5),
        ([2, 2] + [0] * 14, 0.5, 1.0),
        ([2, 2] + [0] * 14, 0.75, 1.5),
        ([99, 0, 0, 0, 0, 1] + [0] * 10, 0.5, 0.5),
        ([0] * 15 + [3], 0.5, 60_000.0),
    ],
)
def test_a_percentile_lies_within_its_bucket(buckets: list[int], share: float, late_ms: float | None) -> None:
    assert percentile(buckets, share) == late_ms

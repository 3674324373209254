"""The rings of the charts: counts of all processes are added up per minute, for a day and for a bounded number of
namespaces."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest

from dueline.engine.chart_store import MAX_NAMESPACES, MAX_TOPICS, MINUTE_MS, RING_MINUTES, TOPIC_MINUTES, ChartRow
from tests.kit.async_tests import async_fixture
from tests.kit.fixtures import make_kit
from tests.kit.store import KINDS, StoreKit


@async_fixture(params=KINDS)
async def kit(request: pytest.FixtureRequest) -> AsyncIterator[StoreKit]:
    """A store has one set of rings, so each test has a prefix of its own."""
    async with make_kit(request.param, request, prefix=f"charts-{uuid.uuid4().hex[:12]}") as kit:
        yield kit


def minute_of(kit: StoreKit) -> int:
    return kit.clock.now_ms // MINUTE_MS


async def rows(kit: StoreKit, namespace: str = "ns") -> list[tuple[int, tuple[int, ...], int | None]]:
    """All rows of the last day: minutes ago, counts, pending."""
    now = minute_of(kit)
    _, found = await kit.store.charts.read(namespace, now - RING_MINUTES + 1, RING_MINUTES)
    assert {row.namespace for row in found} <= {namespace}
    return [(now - row.minute, row.counts, row.pending) for row in found]


async def test_nothing_was_recorded_yet(kit: StoreKit) -> None:
    assert await kit.store.charts.read("ns", minute_of(kit), 1) == (None, [])


async def test_what_processes_add_to_a_minute_is_summed(kit: StoreKit) -> None:
    now = minute_of(kit)
    assert await kit.store.charts.add([ChartRow("ns", now, (1, 2, 0)), ChartRow("other", now, (9, 9, 9))])
    await kit.store.charts.add([ChartRow("ns", now, (10, 0, 2**40))])
    await kit.store.charts.add([ChartRow("ns", now - 1, (5, 0, 0))])
    assert await rows(kit) == [(1, (5, 0, 0), None), (0, (11, 2, 2**40), None)]
    assert await rows(kit, "other") == [(0, (9, 9, 9), None)]
    begun, found = await kit.store.charts.read("ns", now, 1)
    assert (begun, [row.minute for row in found]) == (now, [now])
    assert await kit.store.charts.add([]) == []


async def test_one_caller_a_minute_counts_the_pending_jobs(kit: StoreKit) -> None:
    charts, now = kit.store.charts, minute_of(kit)
    row, other = ChartRow("ns", now, (1,)), ChartRow("other", now, (1,))
    assert await charts.add([row], can_count=False) == [False]
    assert await charts.add([row, other, row]) == [True, True, False]
    assert await charts.add([row]) == [False]
    await charts.set_pending("ns", now, 7, now + 3)
    assert await rows(kit) == [(0, (4,), 7)]
    for minutes, asked in ((1, False), (1, False), (1, True)):
        await kit.advance(minutes * MINUTE_MS)
        assert await charts.add([ChartRow("ns", minute_of(kit), (0,))]) == [asked]
    assert await rows(kit) == [(3, (4,), 7)]  # zeros are not stored
    await charts.set_pending("ns", minute_of(kit), 0, 0)
    assert await rows(kit) == [(3, (4,), 7), (0, (), 0)]
    await charts.set_pending("nobody", minute_of(kit), 5, 0)
    assert await rows(kit, "nobody") == []


async def test_a_ring_holds_one_day(kit: StoreKit) -> None:
    start = minute_of(kit)
    for _ in range(3):
        await kit.store.charts.add([ChartRow("ns", minute_of(kit), (1,))])
        await kit.advance(RING_MINUTES // 2 * MINUTE_MS)
    await kit.store.charts.add([ChartRow("ns", minute_of(kit), (2,))])
    assert await rows(kit) == [(RING_MINUTES // 2, (1,), None), (0, (2,), None)]
    await kit.store.charts.add([ChartRow("ns", start, (9,)), ChartRow("ns", minute_of(kit) + 2, (9,))])  # not today
    assert await rows(kit) == [(RING_MINUTES // 2, (1,), None), (0, (2,), None)]
    assert (await kit.store.charts.read("ns", start, 1))[0] == start


async def test_a_new_namespace_takes_the_place_of_one_that_was_quiet_for_a_day(kit: StoreKit) -> None:
    charts = kit.store.charts
    await charts.add([ChartRow(f"n{number}", minute_of(kit), (1,)) for number in range(MAX_NAMESPACES)])
    await kit.advance(10 * MINUTE_MS)
    await charts.add([ChartRow(f"n{number}", minute_of(kit), (1,)) for number in range(1, MAX_NAMESPACES)])
    assert await charts.add([ChartRow("new", minute_of(kit), (1,))]) == [False]
    assert await rows(kit, "new") == []
    assert await charts.read_topics("new", minute_of(kit)) == (None, [])  # what it does is not known
    assert (await charts.read_topics("n1", minute_of(kit)))[0] is not None
    await kit.advance((RING_MINUTES - 5) * MINUTE_MS)
    await charts.add([ChartRow("new", minute_of(kit), (1,)), ChartRow("newer", minute_of(kit), (1,))])
    assert await rows(kit, "new") == [(0, (1,), None)]
    assert await rows(kit, "newer") == []
    assert (await rows(kit, "n0"), len(await rows(kit, "n1"))) == ([], 1)


async def topic_rows(kit: StoreKit, namespace: str = "ns", ago: int = TOPIC_MINUTES - 1) -> set[tuple[int, str, int]]:
    """Minutes ago, topic, first count."""
    now = minute_of(kit)
    _, found = await kit.store.charts.read_topics(namespace, now - ago)
    assert {row.namespace for row in found} <= {namespace}
    return {(now - row.minute, row.topic or "", row.counts[0]) for row in found}


async def test_what_processes_add_to_a_topic_is_summed_and_kept_for_minutes(kit: StoreKit) -> None:
    charts, now = kit.store.charts, minute_of(kit)
    assert await charts.read_topics("ns", now) == (None, [])
    name = "\u6d4b" * 80  # as long as names may be
    await charts.add([ChartRow("unknown", now - 2000, (1,)), ChartRow("unknown", now, (1,), topic="a")])
    assert await topic_rows(kit, "unknown") == set()
    for _ in range(2):
        rows = [ChartRow("ns", now - ago, (1,), topic=topic) for ago in (0, 1) for topic in ("a", name, "7")]
        assert await charts.add([ChartRow("ns", now, (1,)), *rows]) in ([True] + [False] * 6, [False] * 7)
    await charts.add([ChartRow("ns", now, (40,), topic="a"), ChartRow("ns", now - 100, (1,), topic="old")])
    expected = {(0, "a", 42), (0, name, 2), (0, "7", 2), (1, "a", 2), (1, name, 2), (1, "7", 2)}
    assert await topic_rows(kit) == expected
    await kit.advance(TOPIC_MINUTES * MINUTE_MS)
    assert await topic_rows(kit) == set()
    await charts.add([ChartRow("ns", minute_of(kit), (1,), topic="a")])
    assert await topic_rows(kit) == {(0, "a", 1)}
    assert await topic_rows(kit, ago=TOPIC_MINUTES) == {(5, "a", 42), (5, name, 2), (5, "7", 2)}
    await kit.advance(3 * MINUTE_MS)
    await charts.add([ChartRow("ns", minute_of(kit), (5,), topic="new")])  # in the place of the first minute
    assert await topic_rows(kit) == {(3, "a", 1), (0, "new", 5)}


async def test_topics_above_the_limit_share_a_row(kit: StoreKit) -> None:
    charts, now = kit.store.charts, minute_of(kit)
    rows = [ChartRow("ns", now, (1,), topic=f"t{number}") for number in range(MAX_TOPICS + 3)]
    await charts.add([ChartRow("ns", now, (1,)), *rows, rows[0]])
    found = await topic_rows(kit)
    assert len(found) == MAX_TOPICS + 1
    assert found >= {(0, "", 3), (0, "t0", 2), (0, "t1", 1)}

"""Which calls travel together, how many are in flight, and that ids of calls in flight are different."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from typing import cast

import pytest

from dueline.engine.completion import Done
from dueline.engine.errors import (
    ClockStep,
    DuelineError,
    Loading,
    QuotaExceeded,
    RateLimited,
    StoreDown,
    UnknownOutcome,
)
from dueline.engine.limits import BATCH_JOBS, Limits
from dueline.engine.outcomes import Actor, OutcomeHook, Outcomes, begin_call
from dueline.engine.queue_limit import QueueLimit
from dueline.store.valkey import batching
from dueline.store.valkey.batching import SECOND_LANE_JOBS, Batcher, in_task
from tests.kit.waiting import turns


class Store:
    """Calls wait here until they are answered; an answer is what was asked, in capitals."""

    def __init__(self, lanes: int = 1, limits: Limits = Limits(), namespace: QueueLimit | None = None) -> None:
        self.flying: dict[int, tuple[list[str], asyncio.Future[None]]] = {}
        self.seen: list[list[str]] = []
        self.idle = 0
        self.batcher: Batcher[str, str] = Batcher(in_task(self._run), str, len, self._is_idle, limits, lanes, namespace)

    def _is_idle(self) -> None:
        self.idle += 1

    async def _run(self, items: list[str], lane: int) -> list[str]:
        assert lane not in self.flying, "one call in flight per lane"
        there = {item for others, _ in self.flying.values() for item in others}
        assert there.isdisjoint(items)
        assert len(set(items)) == len(items)
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.flying[lane] = (items, answered)
        self.seen.append(items)
        try:
            await answered
        finally:
            del self.flying[lane]
        return [item.upper() for item in items]

    def answer(self, lane: int, failure: Exception | None = None) -> None:
        _, answered = self.flying[lane]
        if failure is None:
            answered.set_result(None)
        else:
            answered.set_exception(failure)

    async def answer_all(self, calls: Sequence[asyncio.Future[list[str]]]) -> None:
        while not all(call.done() for call in calls):
            await self.settled()
            for lane in list(self.flying):
                self.answer(lane)

    async def settled(self) -> None:
        """Until nothing moves by itself any more."""
        await turns(20)


def names(number: int, prefix: str = "n") -> list[str]:
    return [f"{prefix}{n}" for n in range(number)]


async def test_what_arrives_while_a_call_is_under_way_joins_the_next_one() -> None:
    store = Store()
    calls = [asyncio.ensure_future(store.batcher.call(["a"]))]
    await store.settled()
    calls += [asyncio.ensure_future(store.batcher.call([name])) for name in ("b", "c", "d")]
    await store.settled()
    assert store.seen == [["a"]]
    store.answer(0)
    await store.settled()
    assert store.seen == [["a"], ["b", "c", "d"]]
    store.answer(0)
    assert await asyncio.gather(*calls) == [["A"], ["B"], ["C"], ["D"]]
    assert store.idle == 1


async def test_results_are_handed_out_at_once_unless_the_next_call_must_leave_first() -> None:
    calls: list[Done] = []
    events: list[object] = []

    def run(items: list[str], lane: int, done: Done) -> None:
        calls.append(done)
        events.append(items)

    batcher: Batcher[str, str] = Batcher(run, str, len, lambda: None, Limits())
    batcher.post(["a"], events.append)
    await turns(2)
    calls[0](["A"])
    assert events == [["a"], ["A"]]
    for item in "bc":
        batcher.post([item], events.append)
        await turns(2)
    calls[1](["B"])
    assert events[2:] == [["b"]]
    await turns(2)
    assert events[2:] == [["b"], ["c"], ["B"]]


@pytest.mark.parametrize(
    ("lanes", "waiting", "second"), [(2, SECOND_LANE_JOBS, True), (2, SECOND_LANE_JOBS - 1, False), (1, 40, False)]
)
async def test_a_second_call_leaves_only_when_enough_wait_for_it(lanes: int, waiting: int, second: bool) -> None:
    store = Store(lanes)
    calls = [asyncio.ensure_future(store.batcher.call(["first"]))]
    await store.settled()
    calls += [asyncio.ensure_future(store.batcher.call([name])) for name in names(waiting)]
    await store.settled()
    assert (1 in store.flying) is second
    while store.flying:
        store.answer(max(store.flying))
        await store.settled()
    assert await asyncio.gather(*calls) == [["FIRST"], *([name.upper()] for name in names(waiting))]
    assert store.idle == 1


async def test_a_lane_that_is_left_alone_takes_all_that_waits() -> None:
    store = Store(2)
    calls = [asyncio.ensure_future(store.batcher.call([name])) for name in ("first", *names(40))]
    await store.settled()
    calls += [asyncio.ensure_future(store.batcher.call([name])) for name in names(40, "m")]
    await store.settled()
    calls += [asyncio.ensure_future(store.batcher.call([name])) for name in names(3, "late")]
    await store.settled()
    assert len(store.flying) == 2
    store.answer(0)
    await store.settled()
    assert store.seen[-1] != names(3, "late"), "three are too few for a lane beside another one"
    store.answer(1)
    await store.settled()
    assert store.seen[-1] == names(3, "late")
    store.answer(max(store.flying))
    await asyncio.gather(*calls)


async def test_a_call_of_an_id_that_is_in_flight_waits_for_it_and_holds_up_what_came_later() -> None:
    store = Store(2)
    calls = [asyncio.ensure_future(store.batcher.call(["same"]))]
    await store.settled()
    calls += [asyncio.ensure_future(store.batcher.call([name])) for name in ("same", *names(40))]
    calls.append(asyncio.ensure_future(store.batcher.call([*names(3, "many"), "same"])))
    await store.settled()
    assert store.seen == [["same"]]
    store.answer(0)
    await store.settled()
    assert store.seen[1] == ["same", *names(40)]
    store.answer(0)
    await store.settled()
    assert store.seen[2] == [*names(3, "many"), "same"]
    store.answer(0)
    await asyncio.gather(*calls)


async def test_a_call_that_failed_fails_those_who_were_in_it_and_no_others() -> None:
    store = Store(2)
    calls = [asyncio.ensure_future(store.batcher.call(["first"]))]
    await store.settled()
    calls += [asyncio.ensure_future(store.batcher.call([name])) for name in names(20)]
    await store.settled()
    store.answer(1, OSError("cut"))
    store.answer(0)
    await store.settled()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert outcomes[0] == ["FIRST"]
    assert {type(outcome) for outcome in outcomes[1:]} == {OSError}
    assert store.idle == 1


async def test_many_jobs_in_one_call_are_taken_apart_and_put_together_again() -> None:
    store = Store(2)
    many = names(2 * BATCH_JOBS + 7)
    call = asyncio.ensure_future(store.batcher.call(many))
    await store.settled()
    while store.flying:
        store.answer(min(store.flying))
        await store.settled()
    assert await call == [name.upper() for name in many]
    assert sorted(map(len, store.seen)) == [7, BATCH_JOBS, BATCH_JOBS]


async def test_a_call_for_nothing_is_answered_too() -> None:
    store = Store(2)
    call = asyncio.ensure_future(store.batcher.call([]))
    await store.settled()
    store.answer(0)
    assert await call == []


async def test_more_than_may_wait_is_refused() -> None:
    store = Store(2, Limits(max_queued_jobs=10))
    calls = [asyncio.ensure_future(store.batcher.call(["first"]))]
    await store.settled()
    calls += [asyncio.ensure_future(store.batcher.call([name])) for name in names(9)]
    await store.settled()
    with pytest.raises(RateLimited):
        store.batcher.call(["one too many"])
    await store.answer_all(calls)


@pytest.mark.parametrize("limits", [Limits(max_queued_jobs=1000), Limits(max_queued_bytes=5000)], ids=["jobs", "bytes"])
async def test_large_calls_that_flood_the_queue_leave_room_for_small_ones(limits: Limits) -> None:
    store = Store(2, limits)
    calls = [asyncio.ensure_future(store.batcher.call(["first"]))]
    await store.settled()
    for flooder in range(10, 60):
        with contextlib.suppress(RateLimited):
            calls.append(asyncio.ensure_future(store.batcher.call([f"{flooder}-{n}" for n in range(100, 200)])))
    assert 5 < len(calls) < 51
    calls += [asyncio.ensure_future(store.batcher.call([name])) for name in names(32)]
    await store.answer_all(calls)


async def test_a_call_that_is_larger_than_the_queue_is_taken_when_nothing_waits() -> None:
    store = Store(1, Limits(max_queued_jobs=10))
    call = asyncio.ensure_future(store.batcher.call(names(50)))
    with pytest.raises(RateLimited):
        store.batcher.call(["one more"])
    await store.answer_all([call])


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_comes_in_whatever_order_everybody_gets_his_own_answer(seed: int) -> None:
    draw, store = random.Random(seed), Store(2)
    calls: list[tuple[list[str], asyncio.Future[list[str]]]] = []
    for _ in range(300):
        items = draw.sample(names(60), draw.choice((1, 1, 1, 1, 5, 30)))
        calls.append((items, asyncio.ensure_future(store.batcher.call(items))))
        await turns(draw.choice((0, 0, 1, 3)))
        if store.flying and draw.random() < 0.3:
            lane = draw.choice(list(store.flying))
            if not store.flying[lane][1].done():
                store.answer(lane)
    await store.settled()
    while store.flying:
        for _, answered in store.flying.values():
            if not answered.done():
                answered.set_result(None)
        await store.settled()
    assert all(call.done() for _, call in calls), "nobody is forgotten"
    assert [await call for _, call in calls] == [[item.upper() for item in items] for items, _ in calls]


async def test_the_queues_of_a_namespace_share_a_limit_and_other_namespaces_do_not() -> None:
    shared = QueueLimit(3, QuotaExceeded)
    first, second, other = Store(namespace=shared), Store(namespace=shared), Store()
    calls = [asyncio.ensure_future(first.batcher.call(["a"]))]
    await first.settled()  # it is in flight, and no longer queued
    calls += [asyncio.ensure_future(one.batcher.call(["b", "c"])) for one in (first,)]
    assert shared.jobs == 2
    calls.append(asyncio.ensure_future(second.batcher.call(["d"])))
    with pytest.raises(QuotaExceeded):
        second.batcher.call(["e"])
    calls.append(asyncio.ensure_future(other.batcher.call(["e"] * 1)))
    await asyncio.gather(*(store.answer_all(calls) for store in (first, second, other)))
    assert shared.jobs == 0
    assert [call.result() for call in calls] == [["A"], ["B", "C"], ["D"], ["E"]]


async def test_an_empty_queue_of_a_namespace_accepts_any_call() -> None:
    shared = QueueLimit(3, QuotaExceeded)
    store = Store(namespace=shared)
    call = asyncio.ensure_future(store.batcher.call([str(number) for number in range(10)]))
    await store.answer_all([call])
    assert len(call.result()) == 10
    assert shared.jobs == 0


@pytest.mark.parametrize("error", [StoreDown(), Loading(), UnknownOutcome()])
async def test_what_waited_behind_a_call_without_an_answer_is_refused_as_not_sent(
    error: DuelineError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "MOST_WAIT_S", 0.0)
    shared = QueueLimit(100, QuotaExceeded)
    store = Store(namespace=shared)
    first = asyncio.ensure_future(store.batcher.call(["a"]))
    await store.settled()
    second = asyncio.ensure_future(store.batcher.call(["b"]))
    await store.settled()
    store.answer(0, error)
    await store.settled()
    assert isinstance(second.exception(), StoreDown)
    assert (store.seen, shared.jobs, store.idle) == ([["a"]], 0, 1)
    assert first.exception() is error
    third = asyncio.ensure_future(store.batcher.call(["c"]))
    await store.answer_all([third])
    assert await third == ["C"]


@pytest.mark.parametrize(("error", "most_s"), [(StoreDown(), 3600.0), (ClockStep(), 0.0), (ValueError(), 0.0)])
async def test_what_has_just_come_is_still_sent_and_so_is_all_after_other_errors(
    error: Exception, most_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "MOST_WAIT_S", most_s)
    store = Store()
    first = asyncio.ensure_future(store.batcher.call(["a"]))
    await store.settled()
    second = asyncio.ensure_future(store.batcher.call(["b"]))
    await store.settled()
    store.answer(0, error)
    await store.answer_all([second])
    assert (first.exception(), await second) == (error, ["B"])


class Heard:
    """What a batcher tells whoever records: each item, and by whom."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, str]] = []

    def tell(self, outcomes: object, items: list[str], results: list[str], by: list[str]) -> None:
        self.reports += zip(items, by, strict=True)


async def test_items_of_one_call_are_told_with_the_actor_of_each() -> None:
    hook, heard = OutcomeHook(), Heard()
    hook.outcomes = cast(Outcomes, heard)

    async def run(items: list[str], lane: int) -> list[str]:
        return items

    batcher: Batcher[str, str] = Batcher(in_task(run), str, len, lambda: None, Limits(), hook=hook, report=heard.tell)

    async def request(who: str, items: list[str]) -> asyncio.Task[object]:
        actor = Actor(who)
        begin_call(actor)
        await batcher.call(items)
        actor.name = ""  # the call has ended

        async def later() -> None:
            await batcher.call([f"{who} later"])

        return asyncio.ensure_future(later())

    calls = [asyncio.ensure_future(request(*one)) for one in (("ann", ["a", "b"]), ("bob", ["c"]))]
    await asyncio.gather(*[await call for call in calls])
    assert sorted(heard.reports) == [("a", "ann"), ("ann later", ""), ("b", "ann"), ("bob later", ""), ("c", "bob")]

"""What all processes together know of a push target: its log of attempts, and its breaker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dueline.engine.errors import InvalidField
from dueline.engine.limits import LAST_MS
from dueline.engine.push_log import Attempt, TargetState
from dueline.store.push_log_limits import KEPT
from dueline.store.valkey.keys import push_keys, pushed_topic
from tests.kit.store import StoreKit, another

FAILURES, OPEN_MS = 3, 10_000


def attempt(id: str, ok: bool = True, **words: Any) -> Attempt:
    """One call of the target. A failed one has a text of its own, so that the last error can be recognised."""
    texts = {} if ok else {"error": f"{id} failed", "excerpt": "no"}
    return Attempt(**{"id": id, "attempt": 1, "at_ms": 7, "status": 200, "duration_ms": 3, "ok": ok, **texts, **words})


async def report(kit: StoreKit, *attempts: Attempt, failures: int = FAILURES, open_ms: int = OPEN_MS) -> TargetState:
    state = await kit.store.pushes.report("ns", kit.partition.topic, attempts, failures, open_ms)
    assert await kit.store.pushes.state("ns", kit.partition.topic) == state
    return state


async def fail(kit: StoreKit, times: int) -> TargetState:
    return await report(kit, *(attempt(str(number), ok=False) for number in range(times)))


async def page(
    kit: StoreKit, id: str | None = None, cursor: bytes = b"", limit: int = 500
) -> tuple[list[Attempt], bytes | None]:
    return await kit.store.pushes.attempts("ns", kit.partition.topic, id, cursor, limit)


async def ids(kit: StoreKit, limit: int = 500) -> list[list[str]]:
    """The whole log, by pages."""
    pages: list[list[str]] = []
    cursor: bytes | None = b""
    while cursor is not None:
        found, cursor = await page(kit, None, cursor, limit)
        pages.append([one.id for one in found])
    return pages


async def fill(kit: StoreKit, count: int) -> None:
    for start in range(0, count, 500):
        await report(kit, *(attempt(str(number)) for number in range(start, min(count, start + 500))))


async def test_a_target_that_was_never_called_has_no_past(kit: StoreKit) -> None:
    assert await kit.store.pushes.state("ns", kit.partition.topic) == TargetState()
    assert await page(kit) == ([], None)
    assert await page(kit, "a") == ([], None)
    assert await report(kit) == TargetState()


ODD = [
    attempt("0123456789abcdef0123456789abcdef"),
    attempt("0b5b5d2e-6bd9-4f4c-9f0b-7a2a4bb7d0ad", status=0, ok=False, error="no route", excerpt=None),
    attempt("ü/ {}", ok=False, error=None, excerpt=""),
    attempt("both", ok=False, error="", excerpt="é" * 512, status=503),
    attempt("far", attempt=10_000, at_ms=LAST_MS, duration_ms=3_600_000),
]


async def test_attempts_come_back_as_they_were_reported_the_newest_first(kit: StoreKit) -> None:
    await report(kit, *ODD)
    assert await page(kit) == (ODD[::-1], None)
    for one in ODD:
        assert await page(kit, one.id) == ([one], None)


async def test_texts_are_cut_to_a_kibibyte_between_characters(kit: StoreKit) -> None:
    await report(kit, attempt("a", ok=False, error="x" + "é" * 600, excerpt="€" * 600))
    await report(kit, attempt("b", ok=False, error="\ud800", excerpt="\ud800"))
    [second, first], _ = await page(kit)
    assert (first.error, first.excerpt) == ("x" + "é" * 511, "€" * 341)
    assert (second.error, second.excerpt) == ("?", "?")
    assert (await kit.store.pushes.state("ns", kit.partition.topic)).last_error == "?"


async def test_numbers_that_cannot_be_kept_are_cut_too(kit: StoreKit) -> None:
    await report(kit, attempt("a", attempt=2**40, at_ms=2**60, status=4711, duration_ms=-5))
    [found], _ = await page(kit)
    assert found == attempt("a", attempt=2**32 - 1, at_ms=LAST_MS, status=999, duration_ms=0)


async def test_the_log_is_read_page_by_page(kit: StoreKit) -> None:
    await report(kit, *(attempt(id) for id in "abcde"))
    assert await ids(kit, 2) == [["e", "d"], ["c", "b"], ["a"]]
    assert await ids(kit, 5) == [["e", "d", "c", "b", "a"]]


async def test_what_is_new_does_not_move_a_page_that_is_read_on(kit: StoreKit) -> None:
    await report(kit, *(attempt(id) for id in "abcd"))
    first, cursor = await page(kit, limit=2)
    await report(kit, attempt("e"), attempt("f"))
    assert cursor is not None
    second, end = await page(kit, None, cursor, 2)
    assert ([one.id for one in first + second], end) == (list("dcba"), None)


async def test_the_newest_two_thousand_are_kept(kit: StoreKit) -> None:
    await fill(kit, KEPT + 3)
    pages = await ids(kit)
    assert [len(one) for one in pages] == [500] * 4
    assert [id for one in pages for id in one] == [str(number) for number in range(KEPT + 2, 2, -1)]


async def test_a_page_whose_place_is_gone_from_the_log_is_the_last_one(kit: StoreKit) -> None:
    await report(kit, *(attempt(id) for id in "abcd"))
    _, cursor = await page(kit, limit=2)
    await fill(kit, KEPT)
    assert cursor is not None
    assert await page(kit, None, cursor) == ([], None)


async def test_attempts_of_one_job_are_found_among_all_the_others(kit: StoreKit) -> None:
    await report(kit, attempt("mine", attempt=1))
    await fill(kit, 1_200)
    await report(kit, attempt("mine", attempt=2), attempt("mine2"), attempt("mine", attempt=3))
    found, cursor = await page(kit, "mine", limit=2)
    assert [one.attempt for one in found] == [3, 2]
    assert cursor is not None
    found, cursor = await page(kit, "mine", cursor, 2)
    assert ([one.attempt for one in found], cursor) == ([1], None)
    assert await page(kit, "nobody") == ([], None)


@pytest.mark.parametrize("cursor", [b"x", b"\0" * 7])
async def test_a_cursor_that_is_none_is_refused(kit: StoreKit, cursor: bytes) -> None:
    await report(kit, attempt("a"))
    with pytest.raises(InvalidField):
        await page(kit, None, cursor)


async def test_a_cursor_of_anywhere_does_no_harm(kit: StoreKit) -> None:
    await report(kit, attempt("a"))
    assert await page(kit, None, b"\0" * 5 + b"\1") == ([], None)
    assert [one.id for one in (await page(kit, None, b"\xff" * 6))[0]] == ["a"]


async def test_failures_in_a_row_open_the_breaker_for_its_time(kit: StoreKit) -> None:
    assert await fail(kit, 2) == TargetState(2, 0, "1 failed")
    opened_ms = kit.clock.now_ms + OPEN_MS
    assert await fail(kit, 1) == TargetState(3, opened_ms, "0 failed")


async def test_a_success_begins_the_count_anew_in_the_order_of_the_calls(kit: StoreKit) -> None:
    await fail(kit, 2)
    after = await report(kit, attempt("good"), attempt("a", ok=False), attempt("b", ok=False))
    assert after == TargetState(2, 0, "b failed")
    assert (await report(kit, attempt("c", ok=False))).open_until_ms > 0


async def test_calls_that_were_under_way_do_not_hold_it_open_longer(kit: StoreKit) -> None:
    opened = await fail(kit, 3)
    await kit.advance(OPEN_MS - 1)
    assert await fail(kit, 2) == TargetState(5, opened.open_until_ms, "1 failed")


async def test_half_open_one_failure_opens_it_again(kit: StoreKit) -> None:
    await fail(kit, 3)
    await kit.advance(OPEN_MS)
    assert await fail(kit, 1) == TargetState(4, kit.clock.now_ms + OPEN_MS, "0 failed")


async def test_half_open_one_success_closes_it_and_the_last_error_stays_known(kit: StoreKit) -> None:
    await fail(kit, 3)
    await kit.advance(OPEN_MS)
    assert await report(kit, attempt("good")) == TargetState(0, 0, "2 failed")
    assert await fail(kit, 2) == TargetState(2, 0, "1 failed")


async def test_a_late_success_closes_it_at_once(kit: StoreKit) -> None:
    await fail(kit, 3)
    assert await report(kit, attempt("good")) == TargetState(0, 0, "2 failed")


async def test_a_failure_without_a_text_leaves_none(kit: StoreKit) -> None:
    await fail(kit, 1)
    assert await report(kit, attempt("a", ok=False, error=None)) == TargetState(2, 0, None)


async def test_without_a_breaker_failures_are_only_counted(kit: StoreKit) -> None:
    await fail(kit, 3)
    assert await report(kit, attempt("a", ok=False), failures=0, open_ms=0) == TargetState(4, 0, "a failed")


async def test_a_lower_limit_opens_at_the_next_failure(kit: StoreKit) -> None:
    await fail(kit, 2)
    state = await report(kit, attempt("a", ok=False), failures=1, open_ms=5)
    assert state == TargetState(3, kit.clock.now_ms + 5, "a failed")


async def test_a_reset_forgets_everything(kit: StoreKit) -> None:
    await fail(kit, 3)
    for _ in range(2):
        await kit.store.pushes.reset("ns", kit.partition.topic)
        assert await kit.store.pushes.state("ns", kit.partition.topic) == TargetState()
        assert await page(kit) == ([], None)
    assert await fail(kit, 1) == TargetState(1, 0, "0 failed")
    assert await ids(kit) == [["0"]]


async def test_every_topic_has_a_target_of_its_own(kit: StoreKit) -> None:
    pushes, topic = kit.store.pushes, kit.partition.topic
    names = [("ns", topic), ("ns", f"{topic}/a"), (f"ns/{topic}", "a"), ("n}s", topic)]
    for number, name in enumerate(names):
        await pushes.report(*name, [attempt(str(number), ok=False)], FAILURES, OPEN_MS)
    for number, name in enumerate(names):
        assert (await pushes.state(*name)).last_error == f"{number} failed"
        assert [one.id for one in (await pushes.attempts(*name, None, b"", 9))[0]] == [str(number)]


async def test_reports_made_at_once_are_all_counted(kit: StoreKit) -> None:
    reports = [
        kit.store.pushes.report("ns", kit.partition.topic, [attempt(str(n), ok=n % 2 == 0)], 0, 0) for n in range(900)
    ]
    states = await asyncio.gather(*reports)
    assert states[-1] == TargetState(1, 0, "899 failed")
    assert [id for one in await ids(kit) for id in one] == [str(number) for number in range(899, -1, -1)]


async def test_reports_under_another_rule_are_counted_beside(kit: StoreKit) -> None:
    """The rule was changed while a call was under way."""
    reports = [
        kit.store.pushes.report("ns", kit.partition.topic, [attempt("a", ok=False)], 50, ms) for ms in (1, 2, 1, 2)
    ]
    states = await asyncio.gather(*reports)
    assert {state.open_until_ms for state in states} == {0}
    assert (await kit.store.pushes.state("ns", kit.partition.topic)).failures == 4


async def test_two_processes_see_one_target(kit: StoreKit) -> None:
    async with another(kit) as other:
        await fail(kit, 2)
        seen = await report(other, attempt("x", ok=False))
        assert seen == TargetState(3, kit.clock.now_ms + OPEN_MS, "x failed")
        assert await kit.store.pushes.state("ns", kit.partition.topic) == seen
        assert await ids(kit) == await ids(other) == [["x", "1", "0"]]


def test_push_keys_are_distinct_from_all_others() -> None:
    for key in push_keys("p", "n/s", "a}b"):
        assert pushed_topic("p", key) == ("n/s", "a}b")
    for key in ("p:{n/t/0}:m", "p:{n/t/push}:other", "p:{directory}:meta", "q:{n/t/push}:log", "p:{n//push}:x"):
        assert pushed_topic("p", key) is None

"""Durations, ladders, backoff, and how many attempts there are."""

from __future__ import annotations

import pytest

from dueline.bounds import MAX_WAITS
from dueline.durations import duration_text
from dueline.engine.errors import InvalidField
from dueline.engine.policy import (
    AT_ONCE,
    DEFAULT_RETRY,
    TEN_YEARS_MS,
    Backoff,
    JobPolicy,
    Ladder,
    Retry,
    attempts_allowed,
    duration_ms,
    wait_after,
    waits_of,
)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0s", 0),
        ("1ms", 1),
        ("90s", 90_000),
        ("1.5h", 5_400_000),
        ("2m", 120_000),
        ("10d", 864_000_000),
        ("0.1ms", 1),
        ("1.0001s", 1_001),
        ("0.001s", 1),
        ("3660d", TEN_YEARS_MS),
        ("1w", 604_800_000),
        ("1h30m", 5_400_000),
        ("1w2d3h4m5s6ms", 788_645_006),
        ("1.5h1.5s", 5_401_500),
        ("0.5ms0.5ms", 1),  # the sum is rounded up, not its parts
        ("0.07s", 70),
    ],
)
def test_a_duration_is_one_or_more_numbers_each_with_its_unit(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "s",
        "5 s",
        "-5s",
        "+5s",
        "5S",
        "5sec",
        "1h30",
        "1h 30m",
        "1h-30m",
        "1y",
        ".5s",
        "5.s",
        "1e3s",
        "5s\n",
        "٥s",
        "inf",
        "9" * 40 + "s",
    ],
)
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidField) as caught:
        duration_ms(text, "[3].delay")
    assert caught.value.field == "[3].delay"


def test_more_than_ten_years_is_refused() -> None:
    with pytest.raises(InvalidField):
        duration_ms("3661d")


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0ms"),
        (1, "1ms"),
        (1_500, "1500ms"),
        (90_000, "90s"),
        (600_000, "10m"),
        (3_600_000, "1h"),
        (86_400_000, "1d"),
    ],
)
def test_a_duration_is_spelled_as_short_as_it_is_exact(ms: int, text: str) -> None:
    assert duration_text(ms) == text
    assert duration_ms(text) == ms


@pytest.mark.parametrize(
    ("retry", "waits_ms"),
    [
        (AT_ONCE, ()),
        (Ladder(()), ()),
        (Ladder((5, 1, 9)), (5, 1, 9)),
        (Backoff(100, 2.0, 1_000), (100, 200, 400, 800, 1_000)),
        (Backoff(100, 10.0, 100), (100,)),
        (Backoff(500, 2.0, 100), (100,)),
        (Backoff(100, 1.0, 1_000), (100,)),
        (Backoff(3, 1.5, 10), (3, 4, 6, 10)),
    ],
)
def test_a_retry_policy_is_a_list_of_waits(retry: Retry, waits_ms: tuple[int, ...]) -> None:
    assert waits_of(retry) == waits_ms
    assert JobPolicy(retry=retry).waits_ms == waits_ms


def test_the_default_retry_waits_from_a_second_to_an_hour() -> None:
    doubled = tuple(1_000 * 2**number for number in range(12))
    assert waits_of(DEFAULT_RETRY) == (*doubled, 3_600_000)


def test_a_backoff_that_never_reaches_its_top_ends_where_the_store_ends() -> None:
    assert len(waits_of(Backoff(1, 1.01, 10**9))) == MAX_WAITS


@pytest.mark.parametrize(
    ("retry", "asked", "is_default", "allowed"),
    [
        (AT_ONCE, 10, True, 10),
        (AT_ONCE, None, False, None),
        (Backoff(1), 3, False, 3),
        (Backoff(1), None, False, None),
        (Ladder((1,) * 7), 10, True, 8),
        (Ladder((1,) * 20), 10, True, 21),
        (Ladder((1,) * 7), 3, False, 3),
        (Ladder((1,) * 7), 100, False, 8),
        (Ladder((1,) * 7), None, False, 8),
        (Ladder(()), 10, True, 1),
    ],
)
def test_a_ladder_ends_a_job_by_itself_and_a_number_may_end_it_sooner(
    retry: Retry, asked: int | None, is_default: bool, allowed: int | None
) -> None:
    assert attempts_allowed(retry, asked, is_default) == allowed


@pytest.mark.parametrize(
    ("retry", "attempts", "draw", "wait_ms"),
    [
        (AT_ONCE, 1, 0.5, 0),
        (Ladder((100, 200)), 1, 0.9, 100),
        (Ladder((100, 200)), 2, 0.0, 200),
        (Ladder((100, 200)), 9, 0.0, 200),
        (Ladder((100, 200)), 0, 0.0, 100),
        (Backoff(100, 2.0, 400), 3, 1.0, 400),
        (Backoff(100, 2.0, 400, 0.5), 3, 0.0, 400),
        (Backoff(100, 2.0, 400, 0.5), 3, 1.0, 200),
        (Backoff(100, 2.0, 400, 1.0), 1, 1.0, 0),
        (Backoff(100, 2.0, 400, 0.5), 3, 0.5, 300),
    ],
)
def test_the_wait_after_an_attempt(retry: Retry, attempts: int, draw: float, wait_ms: int) -> None:
    assert wait_after(JobPolicy(retry=retry), attempts, draw) == wait_ms

"""The occurrences of schedules, against an independent library in UTC and against a walk over every minute around clock
changes."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

import pytest

from dueline.engine.commands import Send
from dueline.engine.errors import BadRequest, InvalidField
from dueline.engine.job import BodyKind
from dueline.engine.occurrences import Occurrences
from dueline.engine.schedule import Schedule
from tests.kit.cron_expressions import (
    CHANGES,
    independent_times,
    milliseconds,
    occurrences,
    random_expression,
    walked_times,
)

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
EVER_MS = 200_000_000_000_000


def compare_in_utc(seed: int, count: int) -> int:
    """Compare that many random expressions with croniter. Returns how many were compared; the rest never comes."""
    rng = random.Random(seed)
    compared = 0
    while compared < count:
        expression = random_expression(rng, seconds=compared % 3 == 0)
        start = datetime(2024, 1, 1) + timedelta(seconds=rng.randint(0, 4 * 366 * 86_400))
        try:
            mine = occurrences(expression)
        except InvalidField as error:
            assert "never comes" in error.message or "day-of-month" in error.message, expression
            continue
        expected = independent_times(expression, start, 10)
        assert mine.between(milliseconds(start), EVER_MS, 10) == expected, (expression, start)
        assert mine.last(milliseconds(start), expected[-1]) == (expected[-1], 10), (expression, start)
        compared += 1
    return compared


def compare_around_changes(seed: int, count: int) -> int:
    """Compare that many random expressions with a walk over the minutes of the days around a clock change."""
    rng = random.Random(seed)
    for number in range(count):
        zone, change = CHANGES[number % len(CHANGES)]
        start = change - timedelta(hours=rng.randint(2, 30), minutes=rng.randint(0, 59))
        minutes = rng.randint(6 * 60, 60 * 60)
        expression = " ".join([*random_expression(rng, seconds=False).split()[:2], "* * *"])
        if rng.random() < 0.3:
            expression = f"{rng.randint(0, 59)} {rng.randint(0, 4)} * * *"
        # The walk must not begin in a fold, where a fixed time may have come before.
        expected = walked_times(expression, zone, start, minutes)
        after_ms, until_ms = milliseconds(start) - 1, milliseconds(start) + (minutes - 1) * 60_000
        mine = occurrences(expression, zone)
        assert mine.between(after_ms, until_ms, 100_000) == expected, (expression, zone, start, minutes)
        last = (expected[-1] if expected else None, len(expected))
        assert mine.last(after_ms, until_ms) == last, (expression, zone, start, minutes)
    return count


def test_random_expressions_have_the_times_of_an_independent_library() -> None:
    assert compare_in_utc(seed=14, count=300) == 300


def test_random_expressions_follow_the_minutes_of_a_zone_around_clock_changes() -> None:
    assert compare_around_changes(seed=14, count=140) == 140

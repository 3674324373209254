"""The occurrences of schedules, against an independent library in UTC and against a walk over every minute around clock
changes."""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from dueline.engine.commands import Send
from dueline.engine.errors import BadRequest, InvalidField, MissingField
from dueline.engine.job import BodyKind
from dueline.engine.occurrences import Occurrences
from dueline.engine.schedule import Schedule
from tests.kit.cron_expressions import (
    CHANGES,
    independent_times,
    milliseconds,
    never_comes,
    occurrences,
    random_expression,
    walked_times,
)

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
EVER_MS = 200_000_000_000_000


def compare_in_utc(seed: int, count: int) -> int:
    """Compare that many random expressions with croniter. Returns how many were compared; the rest never occur."""
    rng = random.Random(seed)
    compared = 0
    while compared < count:
        expression = random_expression(rng, seconds=compared % 3 == 0)
        start = datetime(2024, 1, 1) + timedelta(seconds=rng.randint(0, 4 * 366 * 86_400))
        if never_comes(expression):
            with pytest.raises(InvalidField):
                occurrences(expression)
            continue
        mine = occurrences(expression)
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
        minute, hour, _, _, weekday = random_expression(rng, seconds=False).split()
        if rng.random() < 0.3:
            minute, hour = str(rng.randint(0, 59)), str(rng.randint(0, 4))
        expression = f"{minute} {hour} * * {weekday}"
        after_ms = milliseconds(start) - 1 + rng.randint(0, minutes // 2) * 60_000  # also in the middle of a change
        until_ms = milliseconds(start) + (minutes - 1) * 60_000
        expected = [at_ms for at_ms in walked_times(expression, zone, start, minutes) if at_ms > after_ms]
        mine = occurrences(expression, zone)
        assert mine.between(after_ms, until_ms, 100_000) == expected, (expression, zone, start, minutes)
        last = (expected[-1] if expected else None, len(expected))
        assert mine.last(after_ms, until_ms) == last, (expression, zone, start, minutes)
    return count


def every(every_ms: int, starts_at_ms: int | None = None, ends_at_ms: int | None = None) -> Occurrences:
    job = Send(None, b"1", BodyKind.JSON)
    return Occurrences.of(Schedule("t", job, every_ms=every_ms, starts_at_ms=starts_at_ms, ends_at_ms=ends_at_ms))


def walls(cron: str, zone: str, day: str, count: int) -> list[str]:
    """The next wall-clock times from midnight UTC of a day, with their offsets in hours."""
    start = datetime.fromisoformat(day)
    found = occurrences(cron, zone).between(milliseconds(start) - 1, EVER_MS, count)
    moments = [datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(ZoneInfo(zone)) for at_ms in found]
    return [f"{at:%d %H:%M}{at:%z}"[:-2] for at in moments]


def test_random_expressions_have_the_times_of_an_independent_library() -> None:
    assert compare_in_utc(seed=14, count=300) == 300


def test_random_expressions_follow_the_minutes_of_a_zone_around_clock_changes() -> None:
    assert compare_around_changes(seed=14, count=280) == 280


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_random_expressions_agree() -> None:
    """DUELINE_CRON_EXPRESSIONS=10000 compares more of them."""
    count = int(os.environ.get("DUELINE_CRON_EXPRESSIONS", "1000"))
    print(f"in UTC: {compare_in_utc(seed=1, count=count)} equal to croniter")
    print(f"around clock changes: {compare_around_changes(seed=1, count=count)} equal to the walk over the minutes")


SPRING, AUTUMN = "2026-03-29", "2026-10-25"  # Madrid: 02:00 becomes 03:00 at 01:00 UTC; 03:00 becomes 02:00


@pytest.mark.parametrize(
    ("cron", "day", "expected"),
    [
        ("30 2 * * *", SPRING, ["29 03:00+02", "30 02:30+02"]),  # moved to the change
        ("0,30 2 * * *", SPRING, ["29 03:00+02", "30 02:00+02"]),  # both are moved: one
        ("0 2,3 * * *", SPRING, ["29 03:00+02", "30 02:00+02"]),  # moved onto another one: one
        ("0 30 2 * * *", SPRING, ["29 03:00+02", "30 02:30+02"]),  # the same, written with seconds
        ("*/30 2 * * *", SPRING, ["30 02:00+02", "30 02:30+02"]),  # runs through: these times do not exist
        ("0 * * * *", SPRING, ["29 01:00+01", "29 03:00+02"]),  # every hour, in real time
        ("30 2 * * *", AUTUMN, ["25 02:30+02", "26 02:30+01"]),  # the first of the two
        ("0 30 2 * * *", AUTUMN, ["25 02:30+02", "26 02:30+01"]),
        ("*/30 2 * * *", AUTUMN, ["25 02:00+02", "25 02:30+02", "25 02:00+01", "25 02:30+01", "26 02:00+01"]),
        ("0 * * * *", AUTUMN, ["25 02:00+02", "25 02:00+01", "25 03:00+01"]),
    ],
)
def test_clock_changes_follow_the_table_of_the_docs(cron: str, day: str, expected: list[str]) -> None:
    assert walls(cron, "Europe/Madrid", day, len(expected)) == expected


@pytest.mark.parametrize("cron", ["*/20 * * * *", "*/20 2 * * *", "0,20 2,3 * * *", "0 3 * * *", "59 1 * * *"])
@pytest.mark.parametrize(("zone", "change"), CHANGES)
def test_every_minute_around_a_clock_change_has_the_right_next_time(cron: str, zone: str, change: datetime) -> None:
    start = change - timedelta(hours=4)
    expected = walked_times(cron, zone, start, 40 * 60)
    mine = occurrences(cron, zone)
    for minute in range(0, 10 * 60, 5):
        at_ms = milliseconds(start) + minute * 60_000
        later = [found_ms for found_ms in expected if found_ms > at_ms]
        assert mine.between(at_ms, expected[-1], 3) == later[:3]
        assert mine.last(at_ms, expected[-1]) == (later[-1], len(later))


@pytest.mark.parametrize("cron", ["*/20 2,3 * * *", "0,20 2 * * *", "*/7 * * * * *"])
@pytest.mark.parametrize("day", [SPRING, AUTUMN])
def test_an_answer_does_not_depend_on_the_questions_before_it(cron: str, day: str) -> None:
    rng, start_ms = random.Random(14), milliseconds(datetime.fromisoformat(day))
    mine, at_ms, found_ms = occurrences(cron, "Europe/Madrid"), start_ms, start_ms
    for _ in range(100):
        near_ms = rng.choice((at_ms, found_ms)) + rng.choice((-1001, -1, 0, 0, 1))
        at_ms = rng.choice((near_ms, near_ms, near_ms, start_ms + rng.randint(0, 6 * HOUR_MS)))
        found_ms = mine.after(at_ms)
        assert found_ms == occurrences(cron, "Europe/Madrid").after(at_ms)
        assert found_ms is not None


def test_an_interval_is_a_grid_that_does_not_depend_on_when_somebody_looks() -> None:
    grid = every(15 * 60_000)
    noon_ms = milliseconds(datetime(2026, 11, 16, 12))
    quarters = [noon_ms + n * 15 * 60_000 for n in range(1, 5)]
    assert grid.between(noon_ms, noon_ms + HOUR_MS, 10) == quarters
    assert grid.between(noon_ms + 7, noon_ms + HOUR_MS, 10) == quarters
    assert grid.last(noon_ms, noon_ms + HOUR_MS) == (quarters[-1], 4)


def test_an_interval_counts_from_its_start_and_stops_at_its_end() -> None:
    grid = every(10_000, starts_at_ms=1_003, ends_at_ms=31_003)
    assert grid.between(0, EVER_MS, 10) == [1_003, 11_003, 21_003, 31_003]
    assert grid.after(31_003) is None
    assert grid.last(0, EVER_MS) == (31_003, 4)
    assert grid.last(31_003, EVER_MS) == (None, 0)


def test_a_cron_expression_stays_between_its_start_and_its_end() -> None:
    job = Send(None, b"1", BodyKind.JSON)
    daily = Occurrences.of(Schedule("t", job, cron="@daily", starts_at_ms=5 * DAY_MS, ends_at_ms=7 * DAY_MS))
    assert daily.between(0, EVER_MS, 10) == [5 * DAY_MS, 6 * DAY_MS, 7 * DAY_MS]
    assert daily.last(0, EVER_MS) == (7 * DAY_MS, 3)


@pytest.mark.parametrize(
    ("alias", "cron"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@Midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
        ("9-9/3 9 * * *", "9 9 * * *"),  # cronsim alone takes it for 9-59/3
    ],
)
def test_two_ways_to_write_the_same_times(alias: str, cron: str) -> None:
    assert occurrences(alias).between(0, EVER_MS, 20) == occurrences(cron).between(0, EVER_MS, 20)


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("0 0 L * *", ["2028-01-31", "2028-02-29", "2028-03-31"]),
        ("0 0 * * 5L", ["2028-01-28", "2028-02-25", "2028-03-31"]),
        ("0 0 LW * *", ["2028-01-31", "2028-02-29", "2028-03-31"]),
        ("0 0 * * MON#1", ["2028-01-03", "2028-02-07", "2028-03-06"]),
        ("0 0 29 FEB *", ["2028-02-29", "2032-02-29", "2036-02-29"]),
        ("0 0 * 2 MON#5", ["2044-02-29", "2072-02-29", "2112-02-29"]),
    ],
)
def test_days_that_are_found_from_the_end_or_by_their_number(cron: str, expected: list[str]) -> None:
    found = occurrences(cron).between(milliseconds(datetime(2028, 1, 1, 0, 0, 1)), EVER_MS, 3)
    assert [f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d}" for at_ms in found] == expected


@pytest.mark.parametrize(
    ("cron", "text"),
    [
        ("60 * * * *", 'minute field: "60"'),
        ("* 24 * * *", 'hour field: "24"'),
        ("* * 0 * *", 'day-of-month field: "0"'),
        ("* * * 13 *", 'month field: "13"'),
        ("* * * * 8", 'day-of-week field: "8"'),
        ("60 * * * * *", 'second field: "60"'),
        ("* * * foo *", 'month field: "foo"'),
        ("*/0 * * * *", 'minute field: "*/0"'),
        ("5-1 * * * *", 'minute field: "5-1"'),
        ("* * * *", "must have 5 fields, or 6 with seconds first, but has 4"),
        ("", "must have 5 fields"),
        ("@reboot", "is none of @yearly"),
        ("@every 5s", "use every"),
        ("1 1 1 1 " + "1" * 5000, "at most 255 printable ASCII characters"),
        ("* * * * ＊", "ASCII"),
        ("0\t0 * * *", "printable ASCII characters, and spaces between fields"),
        ("0 0 30 2 *", "never occurs: no date matches"),
        ("0 0 0 31 4,JUN,9,11 */2", "never occurs: no date matches"),
        ("0 0 32 2 *", 'day-of-month field: "32"'),
        ("0 0 30 2x *", 'month field: "2x"'),
        ("0 0 * 2 MON#5,TUE#5,L", "day-of-week"),
        ("* * */20 * 1L", "never occurs"),
        ("*/5 2 * 3 7L", "never occurs: its times do not exist in Europe/Madrid"),  # the hour that is always skipped
    ],
)
def test_a_wrong_expression_is_refused_and_its_field_is_named(cron: str, text: str) -> None:
    with pytest.raises(InvalidField) as refused:
        occurrences(cron, "Europe/Madrid")
    assert refused.value.field == "cron"
    assert text in refused.value.message


@pytest.mark.parametrize("zone", ["", "Mars/Olympus", "europe/madrid", "../UTC", "right/UTC", "localtime", "America"])
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(InvalidField) as refused:
        occurrences("@daily", zone)
    assert refused.value.field == "tz"


@pytest.mark.parametrize(
    ("fields", "error", "field"),
    [
        ({}, MissingField, "cron"),
        ({"cron": "@daily", "every_ms": 60_000}, InvalidField, "every"),
        ({"every_ms": 999}, InvalidField, "every"),
        ({"every_ms": 11 * 366 * DAY_MS}, InvalidField, "every"),
        ({"every_ms": 60_000, "tz": "Europe/Madrid"}, InvalidField, "tz"),
        ({"cron": "@daily", "starts_at_ms": 2, "ends_at_ms": 1}, InvalidField, "ends_at_ms"),
    ],
)
def test_fields_that_exclude_each_other_are_refused(
    fields: dict[str, int], error: type[BadRequest], field: str
) -> None:
    with pytest.raises(error) as refused:
        Occurrences.of(Schedule("t", Send(None, b"1", BodyKind.JSON), **fields))  # pyright: ignore[reportArgumentType]
    assert refused.value.field == field


def test_a_count_over_years_does_not_look_at_every_occurrence() -> None:
    """Ten years of seconds: it would take an hour to look at each. The count is that of the seconds."""
    start_ms = milliseconds(datetime(2020, 1, 1))
    end_ms = milliseconds(datetime(2030, 1, 1))
    for zone in ("UTC", "Europe/Madrid"):
        assert occurrences("* * * * * *", zone).last(start_ms, end_ms) == (end_ms, (end_ms - start_ms) // 1000)


def test_there_is_no_occurrence_at_the_end_of_time() -> None:
    assert occurrences("@daily").after(253_402_300_799_999) is None
    assert occurrences("@daily", "Pacific/Kiritimati").after(250_000_000_000_000) is None

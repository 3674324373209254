"""Random cron expressions, and two independent ways to find their times: the library `croniter` in UTC, and looking at
every minute of a zone around the changes of its clock."""

from __future__ import annotations

import random
from bisect import bisect_left
from calendar import monthrange
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import accumulate, islice
from zoneinfo import ZoneInfo

from croniter import croniter

from dueline.engine.commands import Send
from dueline.engine.job import BodyKind
from dueline.engine.occurrences import Occurrences
from dueline.engine.schedule import Schedule

MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
MINUTE = timedelta(minutes=1)
# A wall-clock hour, half an hour, midnight, and a whole day; in both halves of the year.
CHANGES = [
    ("Europe/Madrid", datetime(2026, 3, 29, 1)),
    ("Europe/Madrid", datetime(2026, 10, 25, 1)),
    ("America/New_York", datetime(2027, 3, 14, 7)),
    ("America/New_York", datetime(2027, 11, 7, 6)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30)),
    ("Australia/Lord_Howe", datetime(2027, 4, 3, 15)),
    ("America/Sao_Paulo", datetime(2018, 11, 4, 3)),
    ("America/Sao_Paulo", datetime(2018, 2, 18, 2)),
    ("Africa/Cairo", datetime(2027, 4, 29, 22)),
    ("Africa/Cairo", datetime(2027, 10, 28, 21)),
    ("Pacific/Apia", datetime(2011, 12, 30, 10)),
    ("Antarctica/Troll", datetime(2027, 3, 28, 1)),
    ("Antarctica/Troll", datetime(2027, 10, 31, 1)),
    ("Africa/Casablanca", datetime(2027, 2, 7, 2)),
]


def occurrences(cron: str, tz: str = "UTC") -> Occurrences:
    return Occurrences.of(Schedule(topic="t", job=Send(None, b"1", BodyKind.JSON), cron=cron, tz=tz))


def milliseconds(at: datetime) -> int:
    return round(at.replace(tzinfo=at.tzinfo or UTC).timestamp() * 1000)


def random_field(rng: random.Random, first: int, last: int, names: list[str] | None = None) -> str:
    def value(at: int) -> str:
        return names[at - first] if names and at - first < len(names) and rng.random() < 0.3 else str(at)

    def item() -> str:
        low = rng.randint(first, last - 1)
        high = rng.randint(low + 1, last)  # croniter and cronsim both misread 9-9/3; a test of its own has it
        step = rng.randint(1, 12)
        return rng.choice([value(low), f"{value(low)}-{value(high)}", f"{low}-{high}/{step}", f"*/{step}"])

    return rng.choice(["*", item(), item(), ",".join(item() for _ in range(rng.randint(2, 3)))])


def random_expression(rng: random.Random, seconds: bool) -> str:
    """Every field that can be written. About one in twenty has a day that never comes."""
    day = random_field(rng, 1, 31) if rng.random() < 0.5 else rng.choice(["*", "*", "L"])
    weekday = random_field(rng, 0, 6, DAYS) if rng.random() < 0.4 else "*"
    if rng.random() < 0.15:
        day = "*"  # croniter has no rule for both
        weekday = f"{rng.choice([*DAYS, *'0123456'])}#{rng.randint(1, 4)}"
    elif day != "L" and (covers_all(day, 1, 31, []) or covers_all(weekday, 0, 6, DAYS)):
        day, weekday = "*", "*"  # croniter takes 1-31 for *, which changes whether one of the two is enough
    month = random_field(rng, 1, 12, MONTHS) if rng.random() < 0.4 else "*"
    fields = [random_field(rng, 0, 59), random_field(rng, 0, 23), day, month, weekday]
    return " ".join([random_field(rng, 0, 59)] * seconds + fields)


def never_comes(expression: str) -> bool:
    """Whether no day of a leap year's months has the day of the month, for expressions that ask for it."""
    _, _, day, month, weekday = expression.lower().split()[-5:]
    if day == "l" or not (day.startswith("*") or weekday.startswith("*")):
        return False
    longest = max(monthrange(2024, one)[1] for one in numbers(month, 1, 12, MONTHS))
    return min(numbers(day, 1, 31, [])) > longest


def covers_all(field: str, first: int, last: int, names: list[str]) -> bool:
    return len(numbers(field, first, last, names)) == last - first + 1


def independent_times(expression: str, start: datetime, count: int) -> list[int]:
    """The next times in UTC by croniter, which puts seconds first if told so, and has Debian's rule for `*/2` as an
    option."""
    times = croniter(expression, start, second_at_beginning=True, implement_cron_bug=True)
    return [milliseconds(at) for at in islice(times.all_next(datetime), count)]


def walked_times(expression: str, zone: str, start: datetime, minutes: int) -> list[int]:
    """The times of a five-field expression in `minutes` from `start` (UTC), found by looking at every minute.

    Fixed times: the day is walked along the wall clock, as if it never changed, and every time is moved as the docs
    say. Others: every minute that exists is asked whether its wall-clock time matches."""
    tz = ZoneInfo(zone)
    matches = matcher(expression)
    real = [start.replace(tzinfo=UTC) + n * MINUTE for n in range(minutes)]
    walls = [at.astimezone(tz).replace(tzinfo=None) for at in real]
    if any(field.startswith("*") for field in expression.split()[:2]):
        return [milliseconds(at) for at, wall in zip(real, walls, strict=True) if matches(wall)]
    latest = list(accumulate(walls, max))  # the first minute that shows a time or a later one is found in it
    found: set[int] = set()
    wall = walls[0]
    while wall <= latest[-1]:
        if matches(wall):
            found.add(milliseconds(real[bisect_left(latest, wall)]))
        wall += MINUTE
    return sorted(found)


def numbers(field: str, first: int, last: int, names: list[str]) -> set[int]:
    """The numbers that a field stands for, by a reading that shares nothing with any library."""
    found: set[int] = set()
    for item in field.split(","):
        span, _, step = item.partition("/")
        low, _, high = span.partition("-")
        ends = [names.index(end) + first if end in names else int(end) for end in (low, high or low) if end != "*"]
        start, stop = (first, last) if span == "*" else (ends[0], ends[-1])
        found |= set(range(start, stop + 1, int(step or 1)))
    return found


def matcher(expression: str) -> Callable[[datetime], bool]:
    """Whether a wall-clock minute matches."""
    minute, hour, day, month, weekday = expression.lower().split()
    is_and = day.startswith("*") or weekday.startswith("*")

    minutes, hours, months = numbers(minute, 0, 59, []), numbers(hour, 0, 23, []), numbers(month, 1, 12, MONTHS)

    def on_day(at: datetime) -> bool:
        if day == "l":
            return at.day == monthrange(at.year, at.month)[1]
        return at.day in numbers(day, 1, 31, [])

    def on_weekday(at: datetime) -> bool:
        number = at.isoweekday() % 7
        if "#" in weekday:
            name, _, nth = weekday.partition("#")
            return number in numbers(name, 0, 6, DAYS) and (at.day - 1) // 7 + 1 == int(nth)
        return number in numbers(weekday, 0, 6, DAYS)

    def matched(at: datetime) -> bool:
        if at.minute not in minutes or at.hour not in hours or at.month not in months:
            return False
        return (on_day(at) and on_weekday(at)) if is_and else (on_day(at) or on_weekday(at))

    return matched

"""A cron expression, as a set of wall-clock times. No I/O and no time zones: see `wall_clock`.

The library `cronsim` parses the expression and finds the next time, as Debian's cron does: if neither the day of the
month nor the day of the week starts with `*`, a day that matches one of the two is enough. This module adds what the
library lacks: the names such as `@daily`, messages that name the wrong field, and counting without looking at every
time. A sixth field, for seconds, comes first.
"""

from __future__ import annotations

import re
from copy import copy
from datetime import date, datetime, time, timedelta
from functools import lru_cache

from cronsim import CronSim, CronSimError

from .errors import InvalidField

MAX_CHARS = 255
FIELDS = ("second", "minute", "hour", "day-of-month", "month", "day-of-week")
ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
NEVER = "never occurs: no date matches its day-of-month, month and day-of-week fields"
_ONE_WITH_STEP = re.compile(r"\b(\w+)-\1/[0-9]+")  # such as 9-9/3, which cronsim takes for 9/3, which is 9-23/3
_FIRST = datetime(2000, 1, 1)
_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)


class Cron:
    """The times of one expression. Make it with `parse_cron`."""

    def __init__(self, sim: CronSim) -> None:
        self._sim = sim
        # Debian's rule for clock changes, see docs/schedules.md: it asks how the fields are written.
        self.is_fixed = not any(part.startswith("*") for part in sim.parts[:3])
        self._per_minute = len(sim.seconds)
        self._per_hour = len(sim.minutes) * self._per_minute
        self._per_day = len(sim.hours) * self._per_hour

    def after(self, wall: datetime) -> datetime | None:
        """The first time later than `wall`. None: there is none within 50 years."""
        sim = copy(self._sim)
        sim.dt = wall
        try:
            return next(sim, None)
        except OverflowError:  # the year 10000
            return None

    def count(self, after: datetime, until: datetime) -> int:
        """How many times there are in (after, until]. Looks at every day, not at every time."""
        if until <= after:
            return 0
        days = (until.date() - after.date()).days + 1
        whole = sum(self._has_day(after.date() + n * _DAY) for n in range(days)) * self._per_day
        end_of_day = datetime.combine(until.date(), time()) + _DAY - _SECOND
        return whole - self._in_day_until(after) - (self._in_day_until(end_of_day) - self._in_day_until(until))

    def _has_day(self, day: date) -> bool:
        return day.month in self._sim.months and self._sim.match_day(day)

    def _in_day_until(self, wall: datetime) -> int:
        """How many times the day of `wall` has up to and with `wall`."""
        sim = self._sim
        if not self._has_day(wall.date()):
            return 0
        found = sum(hour < wall.hour for hour in sim.hours) * self._per_hour
        if wall.hour in sim.hours:
            found += sum(minute < wall.minute for minute in sim.minutes) * self._per_minute
            if wall.minute in sim.minutes:
                found += sum(second <= wall.second for second in sim.seconds)
        return found


@lru_cache(1024)
def parse_cron(text: str) -> Cron:
    """The times of an expression. Raises InvalidField for `cron`, and names the part that is wrong."""
    expression = ALIASES.get(text.strip().lower(), text)
    if len(text) > MAX_CHARS or not text.isascii() or not text.isprintable():
        raise _wrong(text, f"must have at most {MAX_CHARS} printable ASCII characters, and spaces between fields")
    if expression.lstrip().startswith("@"):
        raise _wrong(text, f"is none of {', '.join(ALIASES)}; for an interval use every")
    parts = expression.split()
    if len(parts) not in (5, 6):
        raise _wrong(text, f"must have 5 fields, or 6 with seconds first, but has {len(parts)}")
    try:
        cron = Cron(CronSim(_ONE_WITH_STEP.sub(r"\1", expression), _FIRST))
    except CronSimError as error:
        field = str(error).removeprefix("Bad ")
        if field == "day-of-month" and _is_right([*parts[:-2], "*", parts[-1]]):
            raise _wrong(text, NEVER) from None  # such as February 30th
        value = parts[FIELDS.index(field) - len(FIELDS)]
        raise _wrong(text, f'has a wrong {field} field: "{value}"') from None
    if cron.after(_FIRST) is None:
        raise _wrong(text, NEVER)
    return cron


def _is_right(parts: list[str]) -> bool:
    try:
        CronSim(" ".join(parts), _FIRST)
    except CronSimError:
        return False
    return True


def _wrong(text: str, what: str) -> InvalidField:
    return InvalidField(f'"{text[:80]}" {what}', "cron")

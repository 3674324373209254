"""The occurrences of a schedule: the times at which its jobs are due, before jitter. No I/O.

An occurrence is a property of the schedule alone, not of when it is computed: every server finds the same times, and a
schedule that is written again unchanged keeps them. An interval is a fixed grid for the same reason.

When a zone changes its clock, the rule depends on the expression (docs/schedules.md has the table):

- fixed times (no second, minute or hour field starts with `*`): each wall-clock time is one occurrence. One that does
  not exist is moved to the moment of the change, one that exists twice counts the first time. Times that are moved to
  the same moment, or to another time of the expression, are one occurrence.
- others run through the day: a time that does not exist is left out, and one that exists twice is two occurrences.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

from .cron import Cron, parse_cron
from .errors import InvalidField, MissingField
from .limits import LAST_MS
from .schedule import Schedule
from .wall_clock import WallClock, seconds_of, wall_clock, wall_of

MIN_EVERY_MS = 1_000
MAX_EVERY_MS = 10 * 366 * 86_400_000
SEARCH_YEARS = 50
LAST_YEAR = 9000  # no occurrence is searched after it
_SECOND = timedelta(seconds=1)
_CHECKED_FROM_MS = 1_750_000_000_000  # a fixed time: what is accepted does not depend on the day


class Times(Protocol):
    """An endless row of times."""

    def after(self, at_ms: int) -> int | None: ...

    def count(self, after_ms: int, until_ms: int) -> int: ...


class Occurrences:
    """All occurrences of one schedule."""

    def __init__(self, times: Times, first_ms: int, last_ms: int) -> None:
        self._times = times
        self._first_ms = first_ms
        self._last_ms = last_ms

    @classmethod
    def of(cls, schedule: Schedule) -> Occurrences:
        """Raises InvalidField or MissingField and names the field."""
        first_ms, last_ms = schedule.starts_at_ms, schedule.ends_at_ms
        if first_ms is not None and last_ms is not None and last_ms < first_ms:
            raise InvalidField("is earlier than starts_at_ms", "ends_at_ms")
        return cls(_times(schedule), first_ms or 0, LAST_MS if last_ms is None else min(last_ms, LAST_MS))

    def check(self) -> None:
        """Raises InvalidField if there is no occurrence at any time, because of the start or the end. An
        occurrence in the past is enough, so what is accepted does not depend on today's date."""
        if self.after(-1) is None:
            if self._last_ms < LAST_MS:
                raise InvalidField("no occurrence is between starts_at_ms and ends_at_ms", "ends_at_ms")
            raise InvalidField("no occurrence is later than this", "starts_at_ms")

    def after(self, at_ms: int) -> int | None:
        """The first occurrence later than `at_ms`. None: there is none."""
        found_ms = self._times.after(max(at_ms, self._first_ms - 1))
        return None if found_ms is None or found_ms > self._last_ms else found_ms

    def between(self, after_ms: int, until_ms: int, limit: int) -> list[int]:
        """The first `limit` occurrences in (after_ms, until_ms]."""
        found: list[int] = []
        while len(found) < limit and (next_ms := self.after(after_ms)) is not None and next_ms <= until_ms:
            found.append(after_ms := next_ms)
        return found

    def last(self, after_ms: int, until_ms: int) -> tuple[int | None, int]:
        """The last occurrence in (after_ms, until_ms], and how many there are. The cost grows with the number of days,
        not of occurrences."""
        after_ms = max(after_ms, self._first_ms - 1)
        until_ms = min(until_ms, self._last_ms)
        found_ms = self.after(after_ms)
        if found_ms is None or found_ms > until_ms:
            return None, 0
        low_ms, high_ms = found_ms, until_ms  # the last one is in [low_ms, high_ms], and low_ms is an occurrence
        while low_ms < high_ms:
            middle_ms = (low_ms + high_ms) // 2
            next_ms = self.after(middle_ms)
            if next_ms is not None and next_ms <= high_ms:
                low_ms = next_ms
            else:
                high_ms = max(middle_ms, low_ms)
        return low_ms, self._times.count(after_ms, until_ms)


class Grid:
    """`origin_ms` and every multiple of the interval after it."""

    def __init__(self, origin_ms: int, every_ms: int) -> None:
        self._origin_ms = origin_ms
        self._every_ms = every_ms

    def after(self, at_ms: int) -> int | None:
        return self._origin_ms + self._until(at_ms) * self._every_ms

    def count(self, after_ms: int, until_ms: int) -> int:
        return self._until(until_ms) - self._until(after_ms)

    def _until(self, at_ms: int) -> int:
        """How many times there are up to and with `at_ms`."""
        return max((at_ms - self._origin_ms) // self._every_ms + 1, 0)


class CronTimes:
    """The times of a cron expression in a zone. Remembers the last one that it found: a schedule asks for it when it is
    released and again when it is due, and so does every other schedule with the same expression."""

    def __init__(self, cron: Cron, clock: WallClock) -> None:
        self._cron = cron
        self._clock = clock
        self._found_ms = (0, 0)  # between these two there is no time, and the second is one

    def after(self, at_ms: int) -> int | None:
        before_ms, next_ms = self._found_ms
        if before_ms <= at_ms < next_ms:
            return next_ms
        at_s = max(at_ms, 0) // 1000
        if at_s >= seconds_of(datetime(LAST_YEAR, 1, 1)):
            return None
        found_s = self._after_s(at_s)
        if found_s is None:
            return None
        self._found_ms = at_ms, found_s * 1000
        return found_s * 1000

    def count(self, after_ms: int, until_ms: int) -> int:
        """How many times there are in (after_ms, until_ms], found from the wall-clock times between clock changes."""
        after_s, until_s = max(after_ms, 0) // 1000, until_ms // 1000
        wall, found = self._rest_of(after_s), 0
        for change_s in self._clock.changes_s(after_s, until_s):
            before = wall_of(change_s - 1 + self._clock.offset_s(change_s - 1))
            found += self._cron.count(wall, before)
            first = self._clock.wall(change_s)
            if not self._cron.is_fixed:
                wall = first - _SECOND
            elif first > before:  # a gap: all that it moves is one time
                found += min(self._cron.count(before, first), 1)
                wall = first
            else:  # a fold: its second pass has nothing
                wall = before
        return found + self._cron.count(wall, self._clock.wall(until_s))

    def _rest_of(self, at_s: int) -> datetime:
        """The wall-clock time after which the times that are later than `at_s` begin, if no fold is ahead."""
        wall = self._clock.wall(at_s)
        before, after = self._clock.offsets_s(wall)
        is_second_pass = before > after and at_s == seconds_of(wall) - after
        return self._end_of_change(wall) - _SECOND if self._cron.is_fixed and is_second_pass else wall

    def _after_s(self, at_s: int) -> int | None:
        wall = self._rest_of(at_s)
        last = wall.replace(year=wall.year + SEARCH_YEARS, day=min(wall.day, 28))
        before, after = self._clock.offsets_s(wall)
        if before > after and not self._cron.is_fixed:
            # In a fold. If nothing is left in the first pass, go on with the start of the second one.
            found = self._cron.after(wall)
            if found is None or seconds_of(found) - before >= self._clock.change_s(wall):
                wall = self._clock.wall(self._clock.change_s(wall)) - _SECOND
        while (found := self._cron.after(wall)) is not None and found < last:
            for instant_s in self._instants(found):
                if instant_s > at_s:
                    return instant_s
            wall = self._end_of_change(found) - _SECOND
        return None

    def _instants(self, wall: datetime) -> tuple[int, ...]:
        """The instants at which the clocks show this time: none in a gap, two in a fold. A fixed time in a gap comes at
        the end of the gap; its second instant in a fold is skipped by `_rest_of`."""
        before, after = self._clock.offsets_s(wall)
        if before < after:
            return (self._clock.change_s(wall),) if self._cron.is_fixed else ()
        return seconds_of(wall) - before, seconds_of(wall) - after

    def _end_of_change(self, wall: datetime) -> datetime:
        """The first wall-clock time after the gap or fold that `wall` is in."""
        return wall_of(self._clock.change_s(wall) + max(self._clock.offsets_s(wall)))


def _times(schedule: Schedule) -> Times:
    if schedule.every_ms is None:
        if schedule.cron is None:
            raise MissingField("give cron or every", "cron")
        times = CronTimes(parse_cron(schedule.cron), wall_clock(schedule.tz))
        if times.after(_CHECKED_FROM_MS) is None:
            raise InvalidField(f'"{schedule.cron}" never occurs: its times do not exist in {schedule.tz}', "cron")
        return times
    if schedule.cron is not None:
        raise InvalidField("give cron or every, not both", "every")
    if schedule.tz != "UTC":
        raise InvalidField("applies to cron only: an interval is the same in every zone", "tz")
    if not MIN_EVERY_MS <= schedule.every_ms <= MAX_EVERY_MS:
        raise InvalidField("must be at least 1s and at most 3660d", "every")
    return Grid(schedule.starts_at_ms or 0, schedule.every_ms)

"""The wall clock of a time zone: which wall-clock times an instant has, and which instants a wall-clock time has. No
I/O except for reading the zone's data.

When a zone changes its clock, some wall-clock times do not exist (a gap) or exist twice (a fold). Python describes both
with the attribute `fold`: a wall-clock time with fold 0 has the offset before the change, and with fold 1 the one after
it. The two are equal everywhere else; the second is larger in a gap, and smaller in a fold.

Instants are seconds since 1970. Wall-clock times are `datetime` values without a zone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib.resources import files
from zoneinfo import ZoneInfo

from .errors import InvalidField

_EPOCH = datetime(1970, 1, 1)
_DAY_S = 86_400


class WallClock:
    """Make it with `wall_clock`."""

    def __init__(self, zone: ZoneInfo) -> None:
        self._zone = zone

    def wall(self, at_s: int) -> datetime:
        return datetime.fromtimestamp(at_s, UTC).astimezone(self._zone).replace(tzinfo=None, fold=0)

    def offset_s(self, at_s: int) -> int:
        return seconds_of(self.wall(at_s)) - at_s

    def offsets_s(self, wall: datetime) -> tuple[int, int]:
        """The offsets before and after the change that `wall` belongs to. Equal: it belongs to none."""
        return self._offset_s(wall.replace(fold=0)), self._offset_s(wall.replace(fold=1))

    def change_s(self, wall: datetime) -> int:
        """The instant of the change that `wall` belongs to: the first one with the new offset."""
        before, after = self.offsets_s(wall)
        return self._first_with(after, seconds_of(wall) - max(before, after), seconds_of(wall) - min(before, after))

    def changes_s(self, after_s: int, until_s: int) -> Iterator[int]:
        """The instants of all changes in (after_s, until_s]. Two changes are more than a day apart."""
        last_s, last_offset_s = after_s, self.offset_s(after_s)
        while last_s < until_s:
            next_s = min(last_s + _DAY_S, until_s)
            next_offset_s = self.offset_s(next_s)
            if next_offset_s != last_offset_s:
                yield self._first_with(next_offset_s, last_s, next_s)
            last_s, last_offset_s = next_s, next_offset_s

    def _offset_s(self, wall: datetime) -> int:
        offset = self._zone.utcoffset(wall)
        assert offset is not None
        return round(offset.total_seconds())

    def _first_with(self, offset_s: int, low_s: int, high_s: int) -> int:
        """The first instant in (low_s, high_s] with this offset, if the only change in there leads to it."""
        instants = range(low_s + 1, high_s + 1)
        return instants[bisect_left(instants, True, key=lambda at_s: self.offset_s(at_s) == offset_s)]


def seconds_of(wall: datetime) -> int:
    """The seconds since 1970 if `wall` were in UTC."""
    return (wall - _EPOCH) // timedelta(seconds=1)


def wall_of(seconds: int) -> datetime:
    """The opposite of `seconds_of`."""
    return _EPOCH + timedelta(seconds=seconds)


@lru_cache(1024)
def wall_clock(name: str) -> WallClock:
    """The clock of an IANA zone. Raises InvalidField for `tz`.

    The names are those of the package `tzdata`, so that every server takes the same ones. The data are the system's if
    it has them, as Python does it."""
    if name not in _zone_names():
        raise InvalidField(f'"{name[:80]}" is not an IANA time zone, such as Europe/Madrid or UTC', "tz")
    return WallClock(ZoneInfo(name))


@lru_cache(1)
def _zone_names() -> frozenset[str]:
    return frozenset(files("tzdata").joinpath("zones").read_text().split())

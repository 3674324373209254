"""Converts Python's durations and moments into the API's milliseconds. No I/O, no clock.

A duration is a text ("90s", "1h30m": numbers with units ms s m h d w), a number of seconds, or a timedelta. A moment is
an aware datetime or an RFC 3339 text with an offset. Fractions of a millisecond round up, because no job may be early.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from math import ceil, isfinite

from ..durations import EPOCH, parse_duration

Duration = str | int | float | timedelta
Moment = datetime | str

_ONE_MS = timedelta(milliseconds=1)
_NUMBERS = (int, float)


def duration_ms(value: Duration, name: str = "delay") -> int:
    """Whole milliseconds. Raises ValueError or TypeError that names the argument."""
    if type(value) is int and value >= 0:
        return value * 1000  # fast path
    if isinstance(value, str):
        try:
            return parse_duration(value)
        except ValueError as wrong:
            raise ValueError(f"{name}: {wrong}") from None
    if isinstance(value, timedelta):
        ms = -(-value // _ONE_MS)
    elif isinstance(value, bool) or not isinstance(value, _NUMBERS):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: must be a duration (a string, seconds or a timedelta), not {type(value).__name__}")
    elif not isfinite(value):
        raise ValueError(f"{name}: {value} is not a duration")
    else:
        ms = ceil(value * 1000)
    if ms < 0:
        raise ValueError(f"{name}: a duration cannot be negative")
    return ms


def moment_ms(value: Moment, name: str = "at") -> int:
    """Milliseconds since 1970. Raises ValueError or TypeError that names the argument."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(f'{name}: "{value[:40]}" is not a time: write it like "2030-01-01T08:00:00Z"') from None
    if not isinstance(value, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: must be a datetime with a zone or an RFC 3339 string, not {type(value).__name__}")
    if value.utcoffset() is None:
        raise ValueError(f"{name}: a time without a UTC offset is ambiguous: add a time zone")
    return max(0, -((EPOCH - value) // _ONE_MS))

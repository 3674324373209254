"""Durations as text: one or more numbers, each with its unit, such as "90s", "1.5h", "1h30m" or "1w". And moments, as
milliseconds since 1970. No I/O.

This is the only duration parser. It depends on the standard library alone, so the engine, the client and the command
line can share it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
MAX_CHARS = 32
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_PART = r"([0-9]+)(?:\.([0-9]+))?(ms|s|m|h|d|w)"
_PARTS = re.compile(_PART)
_WHOLE = re.compile(f"(?:{_PART})+")


@lru_cache(1024)
def parse_duration(text: str) -> int:
    """The duration in milliseconds, fractions rounded up because no job may be early. Raises ValueError."""
    if len(text) > MAX_CHARS or _WHOLE.fullmatch(text) is None:
        raise ValueError(
            f'"{text[:40]}" is not a duration: write numbers with units (ms s m h d w), such as "90s" or "1h30m"'
        )
    # In units of 10^-32 ms: exact, because a text of 32 characters has fewer decimals.
    total = sum(int(whole + part.ljust(MAX_CHARS, "0")) * UNIT_MS[unit] for whole, part, unit in _PARTS.findall(text))
    return -(-total // 10**MAX_CHARS)


def duration_text(ms: int) -> str:
    """The duration in the largest unit (days at most) that divides it exactly, such as "10m"."""
    for unit in ("d", "h", "m", "s"):
        if ms and ms % UNIT_MS[unit] == 0:
            return f"{ms // UNIT_MS[unit]}{unit}"
    return f"{ms}ms"


def datetime_of(ms: int) -> datetime:
    """The moment in UTC, from milliseconds since 1970."""
    return EPOCH + timedelta(milliseconds=ms)

"""What the log of a push target can hold: an attempt is cut to it, in every store alike. No I/O."""

from __future__ import annotations

from msgspec.structs import replace

from ..engine.errors import InvalidField
from ..engine.limits import LAST_MS, MAX_ERROR_BYTES
from ..engine.push_log import Attempt

KEPT = 2000  # of a topic; older ones go
PAGE = 500  # the most that one page has
EXCERPT_BYTES = 1024
_MOST = 2**32 - 1
_CURSOR_BYTES = 6


def bounded(attempt: Attempt) -> Attempt:
    """The attempt as it is kept."""
    return replace(
        attempt,
        attempt=_within(attempt.attempt, _MOST),
        at_ms=_within(attempt.at_ms, LAST_MS),
        status=_within(attempt.status, 999),
        duration_ms=_within(attempt.duration_ms, _MOST),
        error=_cut(attempt.error, MAX_ERROR_BYTES),
        excerpt=_cut(attempt.excerpt, EXCERPT_BYTES),
    )


def pack_cursor(number: int) -> bytes:
    return number.to_bytes(_CURSOR_BYTES, "big")


def unpack_cursor(cursor: bytes) -> int:
    """The number below which to go on; 0 = from the newest."""
    if len(cursor) not in (0, _CURSOR_BYTES):
        raise InvalidField("is not a cursor of this list", "cursor")
    return int.from_bytes(cursor, "big")


def _within(number: int, most: int) -> int:
    return max(0, min(number, most))


def _cut(text: str | None, most: int) -> str | None:
    """At most so many bytes, between characters."""
    return None if text is None else text.encode(errors="replace")[:most].decode(errors="ignore")

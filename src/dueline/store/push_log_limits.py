"""Size limits of a push target's log. Every store cuts attempts to them in the same way. No I/O."""

from __future__ import annotations

from msgspec.structs import replace

from ..engine.errors import InvalidField
from ..engine.limits import LAST_MS, MAX_ERROR_BYTES
from ..engine.push_log import Attempt

KEPT = 2000  # attempts per topic; older ones are dropped
PAGE = 500  # at most this many per page
EXCERPT_BYTES = 1024
_MOST = 2**32 - 1
_CURSOR_BYTES = 6


def bounded(attempt: Attempt) -> Attempt:
    """The attempt, cut to the limits."""
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
    """The number below which the next page begins; 0 = from the newest."""
    if len(cursor) not in (0, _CURSOR_BYTES):
        raise InvalidField("is not a cursor of this list", "cursor")
    return int.from_bytes(cursor, "big")


def _within(number: int, most: int) -> int:
    return max(0, min(number, most))


def _cut(text: str | None, most: int) -> str | None:
    """The text, cut between characters to at most `most` bytes."""
    return None if text is None else text.encode(errors="replace")[:most].decode(errors="ignore")

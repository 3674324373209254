"""Which occurrences of a schedule are sent now, and which are skipped because they were missed. No I/O.

An occurrence is missed if it is more than GRACE_MS late, or if it passed while the schedule was paused. A server that
dies delays an occurrence by a lease, and a store that fails over by a few seconds; both are less, so every occurrence
still becomes a job. If the first one that is not decided was missed, there was an outage, and the policy says what to
do with all that have passed since.
"""

from __future__ import annotations

import msgspec

from .occurrences import Occurrences
from .schedule import Misfire

GRACE_MS = 60_000
MOST = 100  # missed occurrences that the policy "all" sends


class Due(msgspec.Struct, frozen=True):
    """First skip `skipped` occurrences: all that are earlier than `skipped_to_ms`, a time next to an occurrence that is
    none itself. Then send the one at `at_ms`; None: send none now."""

    at_ms: int | None = None
    skipped: int = 0
    skipped_to_ms: int = 0


def due(
    occurrences: Occurrences,
    misfire: Misfire,
    decided_at_ms: int,
    now_ms: int,
    missed_until_ms: int = 0,
    lead_ms: int = 0,
) -> Due:
    """What to do with the occurrences in (decided_at_ms, now_ms + lead_ms], one to be sent at a time. One that is still
    to come was not missed."""
    first_ms = occurrences.after(decided_at_ms)
    if first_ms is None or first_ms > now_ms + lead_ms:
        return Due()
    if first_ms > max(now_ms - GRACE_MS - 1, min(missed_until_ms, now_ms)):
        return Due(first_ms)
    last_ms, count = occurrences.last(decided_at_ms, now_ms)
    if last_ms is None:
        return Due()
    if misfire is Misfire.SKIP:
        return Due(None, count, last_ms + 1)
    if misfire is Misfire.LATEST:
        return Due(last_ms, count - 1, last_ms - 1)
    if count <= MOST:
        return Due(first_ms)
    skipped_to_ms = _before_the_last(occurrences, decided_at_ms, now_ms)
    return Due(occurrences.after(skipped_to_ms), count - occurrences.last(skipped_to_ms, now_ms)[1], skipped_to_ms)


def _before_the_last(occurrences: Occurrences, after_ms: int, now_ms: int) -> int:
    """The latest time after which there are still MOST occurrences."""
    low_ms, high_ms = after_ms, now_ms
    while low_ms + 1 < high_ms:
        middle_ms = (low_ms + high_ms) // 2
        if occurrences.last(middle_ms, now_ms)[1] >= MOST:
            low_ms = middle_ms
        else:
            high_ms = middle_ms
    return low_ms

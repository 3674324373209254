"""Where charts are kept: a ring of the last 1,440 minutes per namespace. Part of the interface in `store`. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

RING_MINUTES = 1440
MAX_NAMESPACES = 32  # that have a ring; a new one takes the place of one that recorded nothing for a day
MINUTE_MS = 60_000


class ChartRow(msgspec.Struct, frozen=True):
    """What happened in one minute (since 1970) in a namespace. `counts` has the same length everywhere
    (engine.charts). `pending`: live jobs at its end, None if nobody counted them."""

    namespace: str
    minute: int
    counts: tuple[int, ...]
    pending: int | None = None


class ChartStore(Protocol):
    """Each method is one atomic call, except `read`, which is a few. Rows that are older than the ring are ignored."""

    async def add(self, rows: Sequence[ChartRow], can_count: bool = True) -> list[bool]:
        """Add the counts to what other processes recorded in these minutes. Returns per row whether the caller should
        count the pending jobs of its namespace now: one process a minute does, of those that can."""
        ...

    async def set_pending(self, namespace: str, minute: int, pending: int, next_minute: int) -> None:
        """The pending jobs at the end of a minute. Nobody is asked to count them before `next_minute`."""
        ...

    async def read(self, namespace: str, minute: int, count: int) -> tuple[int | None, list[ChartRow]]:
        """The minute of the first row that was ever added (None: there is none), and the rows of these minutes, as far
        as they have one."""
        ...

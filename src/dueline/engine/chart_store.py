"""Where charts are kept: a ring of the last 1,440 minutes per namespace, and the last 5 of its topics. Part of the
interface in `store`. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

RING_MINUTES = 1440
MAX_NAMESPACES = 32  # that have a ring; a new one takes the place of one that recorded nothing for a day
MINUTE_MS = 60_000
TOPIC_MINUTES = 5  # that are read of topics
TOPIC_SLOTS = 8  # minutes that are kept of topics: those, the present one, and rows that come late
MAX_TOPICS = 500  # of a namespace that have a row in the same minute; the others share one


class ChartRow(msgspec.Struct, frozen=True):
    """What happened in one minute in a namespace, or in one of its topics. `minute`: counted since 1970. `topic`: None
    in the namespace's row, "" in the row that the topics without one of their own share. `counts` has the same length
    everywhere (engine.charts). `pending`: live jobs of the namespace at the minute's end, None if nobody counted them.
    """

    namespace: str
    minute: int
    counts: tuple[int, ...]
    pending: int | None = None
    topic: str | None = None


class ChartStore(Protocol):
    """Each method is one atomic call, except `read`, which is a few. Rows that are older than the ring are ignored."""

    async def add(self, rows: Sequence[ChartRow], can_count: bool = True) -> list[bool]:
        """Add the counts to what other processes recorded in these minutes. Returns per row whether the caller should
        count the pending jobs of its namespace now: one process a minute does, of those that can. Topics of a
        namespace without a ring are ignored."""
        ...

    async def set_pending(self, namespace: str, minute: int, pending: int, next_minute: int) -> None:
        """The pending jobs at the end of a minute. No process is asked to count them again before
        `next_minute`."""
        ...

    async def read(self, namespace: str, minute: int, count: int) -> tuple[int | None, list[ChartRow]]:
        """The minute of the first row that was ever added (None: there is none), and the rows of `count` minutes from
        `minute` on. A minute in which nothing happened has no row."""
        ...

    async def read_topics(self, namespace: str, minute: int) -> tuple[int | None, list[ChartRow]]:
        """The minute of the first row ever (None: there is none, or the namespace has no ring), and the rows of topics
        of the TOPIC_MINUTES minutes from this one on."""
        ...

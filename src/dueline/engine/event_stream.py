"""The stream of events in the store: the store interface that `recorder` and `event_feeds` use. No I/O here.

One capped stream serves all namespaces. Every process that changes jobs is a *member*. Processes write to the stream
only while somebody listens: a listener renews the *interest*, a time until which members record what they do.

    listen --announced--> every member begins to record --append, every 50 ms or as a beat--> stream --read--> listeners

Where events are missing, there is a gap, which is an entry of the stream, too:

    new       a member began to record, or nobody listened for a while: what happened before is not in the stream
    lost      a member lost events, or was silent for SILENT_MS while somebody listened: it may have been killed
    trimmed   the reader's position is older than the oldest entry (made by the reader, it is not stored)

The store itself finds silent members, in the calls of the others. It reports a silent member twice and then forgets it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Protocol

import msgspec

INTEREST_MS = 60_000  # how long members record after the last call of `listen`
RENEW_BELOW_MS = 40_000  # `listen` writes nothing while the interest lasts longer than this
SILENT_MS = 6_000
SILENCES = 2  # how often a silent member is reported before it is forgotten
MAX_MEMBERS = 1_000
MAX_ENTRIES = 10_000
MAX_STREAM_BYTES = 16 << 20
MAX_ENTRY_BYTES = 64 << 10
ENTRIES_PER_CALL = 16
START = "0-0"  # the position before the first entry


class EntryKind(IntEnum):
    """What an entry of the stream is."""

    EVENTS = 0
    NEW = 1
    LOST = 2


class StreamEntry(msgspec.Struct, frozen=True):
    """One entry. `id` is its position. `number` counts the entries with events of one member, so that a missing one
    shows. `data` is opaque to the store."""

    id: str
    kind: EntryKind
    member: str = ""
    number: int = 0
    data: bytes = b""


class StreamPage(msgspec.Struct, frozen=True):
    """Entries after a position. `last`: the position of the newest entry. `trimmed`: that of the newest entry that was
    removed because of the limits."""

    entries: list[StreamEntry]
    last: str
    trimmed: str


class EventStream(Protocol):
    """Each method is one atomic call, and safe to repeat."""

    async def join(self, member: str) -> int:
        """Register a process that changes jobs. Returns the time until which it must record events; 0: nobody
        listens."""
        ...

    async def leave(self, member: str) -> None:
        """Forget a process that has appended everything."""
        ...

    async def listen(self) -> StreamPage:
        """Renew the interest. If nobody listened before, this adds a gap and is announced to the members. Returns the
        current positions, without entries."""
        ...

    async def append(
        self, member: str, first: int, batches: Sequence[bytes], opened: bool = False, lost: bool = False
    ) -> int:
        """Add up to ENTRIES_PER_CALL entries, numbered from `first` on; those that the stream has already are not added
        again. A call without entries is a beat: it shows that the member is alive. `opened` adds a gap before them,
        `lost` one after them. Returns the time until which to record events."""
        ...

    async def close(self, member: str) -> int:
        """Stop recording and empty the stream, if nobody listens any more. Returns 0, or the time until which to record
        events because somebody listens again."""
        ...

    async def read(self, after: str) -> StreamPage:
        """Up to ENTRIES_PER_CALL entries after a position."""
        ...

    async def watch_interest(self, heard: Callable[[], None]) -> None:
        """Call `heard` when somebody begins to listen, and when such an announcement may have been missed."""
        ...

    async def watch_entries(self, heard: Callable[[], None]) -> None:
        """Call `heard` after each `append` that added something, and when such an announcement may have been missed."""
        ...

    async def unwatch_entries(self, heard: Callable[[], None]) -> None: ...


def position(id: str) -> tuple[int, int]:
    """A position as a value that can be compared. Raises ValueError."""
    time_ms, _, number = id.partition("-")
    return int(time_ms), int(number)

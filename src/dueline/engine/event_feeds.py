"""Hands the stream of events to the listeners of this process (`event_stream`).

    the stream --one read for all, after each announcement--> a bounded ring --each feed at its own position--> listener

A feed is one listener: a position, a namespace and perhaps some topics. It holds no queue, so a slow listener costs
nothing: it reads from the ring when it is ready, from the store if its position has left the ring, and gets a gap if it
has left the stream. An entry is decoded once, and written once for all listeners that selected the same
topics. While there is a feed, this process renews the interest.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from .errors import Draining, DuelineError, InvalidField
from .event import Event, unpack_events
from .event_stream import ENTRIES_PER_CALL, RENEW_BELOW_MS, START, EntryKind, StreamEntry, StreamPage, position
from .rounds import Rounds
from .store import Store
from .timer import Timer

RENEW_S = RENEW_BELOW_MS / 2000
LINGER_S = 30.0  # how long reading is prepared for the next feed
RING_ENTRIES = 1_000
RING_BYTES = 4 << 20
WRITTEN_ENTRIES = 2 * ENTRIES_PER_CALL  # the newest ones of the ring, whose batches are shared
BACK_OFF_S = (0.05, 1.0)

LAST_PLACE = 2**63  # above every number within a millisecond

Place = tuple[int, int]


class Gap(msgspec.Struct, frozen=True):
    """What happened before may be missing: read again. `reason`: new, lost or trimmed."""

    reason: str


class EventMessage(msgspec.Struct, frozen=True):
    """One message to a listener. `id` is the position after it, with which it can continue."""

    id: str
    what: Event | Gap


class Batch:
    """What one entry of the stream has for a listener: perhaps a gap, then events. `id` is the entry's; `numbers` are
    the places of the events in it."""

    __slots__ = ("_written", "events", "gap", "id", "numbers")

    def __init__(self, id: str, gap: EventMessage | None, numbers: Sequence[int], events: Sequence[Event]) -> None:
        self.id = id
        self.gap = gap
        self.numbers = numbers
        self.events = events
        self._written: bytes | None = None

    def messages(self) -> list[EventMessage]:
        numbered = zip(self.numbers, self.events, strict=True)
        found = [EventMessage(f"{self.id}-{number}", event) for number, event in numbered]
        return found if self.gap is None else [self.gap, *found]

    def written(self, write: Callable[[Batch], bytes]) -> bytes:
        """The result of `write`, which is called once: listeners that selected the same topics share it."""
        if self._written is None:
            self._written = write(self)
        return self._written


Selection = tuple[str, frozenset[str]]
"""A namespace, and topics. No topics: all."""


class _Entry:
    """One entry of the stream, decoded once for all listeners of a process."""

    __slots__ = ("_batches", "_events", "_gap", "_id", "place", "size")

    def __init__(self, entry: StreamEntry, gap: EventMessage | None, events: Sequence[Event]) -> None:
        self.place = position(entry.id)
        self.size = len(entry.data) + 64
        self._id = entry.id
        self._gap = gap
        self._events = events
        self._batches: dict[Selection, Batch | None] | None = {}  # None: no longer shared

    def batch(self, selection: Selection) -> Batch | None:
        """What such a listener gets. None: nothing."""
        shared = self._batches
        if shared is None:
            return self.after(-1, selection)
        if selection not in shared:
            shared[selection] = self.after(-1, selection)
        return shared[selection]

    def after(self, skipped: int, selection: Selection) -> Batch | None:
        """The same without the events up to this number."""
        namespace, topics = selection
        numbers = [
            number
            for number, event in enumerate(self._events)
            if event.namespace == namespace and number > skipped and (not topics or event.topic in topics)
        ]
        gap = self._gap if self._gap is None or not self._gap.id or skipped < 0 else None
        if not numbers and gap is None:
            return None
        return Batch(self._id, gap, numbers, [self._events[number] for number in numbers])

    def forget(self) -> None:
        """Drop the shared batches: listeners that keep up have read them, and they take more memory than the entry."""
        self._batches = None


class _Decoder:
    """Decodes the entries of a stream. Notices when an entry of a member is missing: the store lost it."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def decode(self, entry: StreamEntry) -> _Entry:
        if entry.kind is not EntryKind.EVENTS:
            reason = "new" if entry.kind is EntryKind.NEW else "lost"
            return _Entry(entry, EventMessage(f"{entry.id}-0", Gap(reason)), ())
        before = self._numbers.get(entry.member, entry.number - 1)
        if len(self._numbers) > 10_000:
            self._numbers.clear()
        self._numbers[entry.member] = entry.number
        try:
            events = unpack_events(entry.data)
        except msgspec.DecodeError:  # of another version
            return _Entry(entry, EventMessage(f"{entry.id}-0", Gap("lost")), ())
        is_missing = entry.number > before + 1 and bool(events)
        return _Entry(entry, EventMessage("", Gap("lost")) if is_missing else None, events)


class EventFeeds:
    """All feeds of a process."""

    def __init__(self, store: Store, timer: Timer) -> None:
        self._store = store
        self._feeds: set[Feed] = set()
        self._ring: deque[_Entry] = deque()
        self._ring_bytes = 0
        self._ring_after: Place = (0, 0)  # the ring has every entry after this position
        self._at = START  # of the last entry that was read
        self._decoder = _Decoder()
        self._has_more = False
        self._renew_at_s = 0.0
        self._timer = timer
        self._draining = False
        self._rounds: Rounds | None = None
        self._opening = asyncio.Lock()
        self._rest_at_s = 0.0

    async def open(self, namespace: str, topics: Sequence[str] = (), after: str | None = None) -> Feed:
        """A new listener, from now on or from an earlier position on. No topics: all. Raises InvalidField, or a
        DuelineError of the store."""
        place = None if after is None else parse_id(after)
        if self._draining:
            raise Draining
        async with self._opening:
            page = await self._store.stream.listen()
            if self._rounds is None or not self._feeds:
                self._at, self._ring_after = page.last, position(page.last)
                self._ring.clear()
                self._ring_bytes, self._decoder = 0, _Decoder()
                self._renew_at_s = self._timer.time() + RENEW_S
            if self._rounds is None:
                await self._store.stream.watch_entries(self._announced)
                self._rounds = Rounds(self._round, self._timer, "reading events failed", BACK_OFF_S)
                self._rounds.start()
            feed = Feed(self, self._store, namespace, frozenset(topics), page, place)
            self._feeds.add(feed)
        self._announced()
        return feed

    def close(self, feed: Feed) -> None:
        """End a feed; a listener that waits for it gets nothing more. The last one may come back soon."""
        self._feeds.discard(feed)
        feed.end()
        if not self._feeds:
            self._rest_at_s = self._timer.time() + LINGER_S

    async def _rest(self, rounds: Rounds) -> float:
        """The last listener has left: read no more. The interest ends by itself."""
        async with self._opening:
            if not self._feeds:
                self._rounds = None
                rounds.end()
                await self._store.stream.unwatch_entries(self._announced)
        return 0.0

    def drain(self) -> None:
        """End all feeds, and open no more."""
        self._draining = True
        for feed in list(self._feeds):
            feed.end()

    async def stop(self) -> None:
        self.drain()
        for feed in list(self._feeds):
            self.close(feed)
        if self._rounds is not None:
            await self._rounds.stop()

    def after(self, place: Place) -> list[_Entry] | None:
        """The ring's entries after a position. None: it is older than the ring."""
        if place < self._ring_after:
            return None
        found: list[_Entry] = []
        for entry in reversed(self._ring):
            if entry.place <= place:
                break
            found.append(entry)
        return found[::-1]

    def _announced(self) -> None:
        self._has_more = True
        if self._rounds is not None:
            self._rounds.wake()

    async def _round(self) -> float:
        if not self._feeds and self._rounds is not None:
            left_s = self._rest_at_s - self._timer.time()
            return left_s if left_s > 0 else await self._rest(self._rounds)
        if self._timer.time() >= self._renew_at_s:
            await self._store.stream.listen()
            self._renew_at_s = self._timer.time() + RENEW_S
        while self._has_more:
            self._has_more = False
            try:
                await self._read()
            except DuelineError:
                self._has_more = True
                raise
        return max(0.0, self._renew_at_s - self._timer.time())

    async def _read(self) -> None:
        page = await self._store.stream.read(self._at)
        is_behind, is_ahead = position(self._at) < position(page.trimmed), position(page.last) < position(self._at)
        if is_behind or is_ahead:  # every feed reads from the store, and gets a gap there
            self._at = page.trimmed if is_behind else page.last
            self._ring.clear()
            self._ring_bytes, self._ring_after = 0, position(self._at)
            for feed in self._feeds:
                feed.leaves_ring = True
        for entry in page.entries:
            if position(entry.id) > position(self._at):
                self._keep(entry)
        if page.entries and page.entries[-1].id != page.last:
            self._has_more = True
        for feed in list(self._feeds):
            feed.wake()

    def _keep(self, entry: StreamEntry) -> None:
        self._at = entry.id
        decoded = self._decoder.decode(entry)
        self._ring.append(decoded)
        self._ring_bytes += decoded.size
        if len(self._ring) > WRITTEN_ENTRIES:
            self._ring[-1 - WRITTEN_ENTRIES].forget()
        while len(self._ring) > RING_ENTRIES or self._ring_bytes > RING_BYTES:
            gone = self._ring.popleft()
            self._ring_after = gone.place
            self._ring_bytes -= gone.size


class Feed:
    """One listener. `id` is its position: everything before was given to it, or is not for it."""

    def __init__(
        self,
        feeds: EventFeeds,
        store: Store,
        namespace: str,
        topics: frozenset[str],
        page: StreamPage,
        after: tuple[Place, int] | None,
    ) -> None:
        self._feeds = feeds
        self._store = store
        self._selection = (namespace, topics)
        self._place, self._index = (position(page.last), -1) if after is None else after
        self._decoder = _Decoder()
        self._woken = asyncio.Event()
        self.leaves_ring = after is not None  # its position may be wrong: the store has to say
        self.ended = False

    @property
    def id(self) -> str:
        return f"{self._place[0]}-{self._place[1]}" + ("" if self._index < 0 else f"-{self._index}")

    def wake(self) -> None:
        self._woken.set()

    def end(self) -> None:
        self.ended = True
        self._woken.set()

    async def next(self, wait_s: float) -> list[EventMessage]:
        """The messages of the next batches."""
        return [one for batch in await self.batches(wait_s) for one in batch.messages()]

    async def batches(self, wait_s: float) -> list[Batch]:
        """What comes next; none if nothing comes in this time, or if the feed has ended. What is there is given even
        without a wait. Raises a DuelineError of the store, and can be called again."""
        try:
            async with asyncio.timeout(None) as limit:
                while not self.ended:
                    self._woken.clear()
                    found = await self._ready()
                    if found:
                        return found
                    if limit.when() is None:
                        limit.reschedule(asyncio.get_running_loop().time() + wait_s)
                    await self._woken.wait()
        except TimeoutError:
            pass
        return []

    def close(self) -> None:
        self._feeds.close(self)

    async def _ready(self) -> list[Batch]:
        if not self.leaves_ring and (entries := self._feeds.after(self._place)) is not None:
            if entries:
                self._place, self._index = entries[-1].place, -1
            return [batch for entry in entries if (batch := entry.batch(self._selection)) is not None]
        before = self._place
        if self._index >= 0 and before > (0, 0):  # in the middle of an entry: read that entry again
            before = (before[0], before[1] - 1) if before[1] else (before[0] - 1, LAST_PLACE)
        page = await self._store.stream.read(f"{before[0]}-{before[1]}")
        self.leaves_ring = False
        found: list[Batch] = []
        if self._place < position(page.trimmed) or (self._index >= 0 and self._place == position(page.trimmed)):
            found.append(_gap("trimmed"))
            self._place, self._index = position(page.trimmed), -1
        elif self._place > position(page.last):
            found.append(_gap("lost"))
            self._place, self._index = position(page.last), -1
        for entry in page.entries:
            if position(entry.id) >= self._place:
                batch = self._taken(self._decoder.decode(entry))
                if batch is not None:
                    found.append(batch)
        self._index = -1
        if page.entries and page.entries[-1].id != page.last:
            self._woken.set()
        return found

    def _taken(self, entry: _Entry) -> Batch | None:
        """Advance past an entry. Returns what this listener does not have yet."""
        skipped = self._index if entry.place == self._place else -1
        self._place, self._index = entry.place, -1
        return entry.after(skipped, self._selection)


def _gap(reason: str) -> Batch:
    return Batch("", EventMessage("", Gap(reason)), (), ())


def parse_id(id: str) -> tuple[Place, int]:
    """The position of an entry, and of an event in it (-1: behind all of them). Raises InvalidField."""
    parts = id.split("-")
    if len(parts) not in (2, 3) or not all(part.isascii() and part.isdigit() and len(part) <= 19 for part in parts):
        raise InvalidField("is not the id of an event", "after")
    numbers = [*map(int, parts), -1]
    return (numbers[0], numbers[1]), numbers[2]

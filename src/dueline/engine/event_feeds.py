"""Hands the stream of events to the listeners of this process (`event_stream`).

    the stream --one read for all, after each announcement--> a bounded ring --each feed at its own position--> listener

A feed is one listener: a position, a namespace and perhaps some topics. It holds no queue, so a slow listener costs
nothing: it reads from the ring when it is ready, from the store if its position has left the ring, and gets a gap if it
has left the stream. While there is a feed, this process renews the interest.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

import msgspec

from .errors import Draining, DuelineError, InvalidField
from .event import Event, unpack_events
from .event_stream import RENEW_BELOW_MS, START, EntryKind, StreamEntry, StreamPage, position
from .rounds import Rounds
from .store import Store
from .timer import Timer

RENEW_S = RENEW_BELOW_MS / 2000
LINGER_S = 30.0  # how long reading is prepared for the next feed
RING_ENTRIES = 1_000
RING_BYTES = 4 << 20
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


class _Decoder:
    """Entries to messages. It notices when an entry of a member is missing: the store lost it."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def decode(self, entry: StreamEntry) -> list[EventMessage]:
        if entry.kind is not EntryKind.EVENTS:
            return [EventMessage(f"{entry.id}-0", Gap("new" if entry.kind is EntryKind.NEW else "lost"))]
        before = self._numbers.get(entry.member, entry.number - 1)
        if len(self._numbers) > 10_000:
            self._numbers.clear()
        self._numbers[entry.member] = entry.number
        try:
            events = unpack_events(entry.data)
        except msgspec.DecodeError:  # of another version
            return [EventMessage(f"{entry.id}-0", Gap("lost"))]
        messages = [EventMessage(f"{entry.id}-{place}", event) for place, event in enumerate(events)]
        if entry.number > before + 1 and messages:
            messages.insert(0, EventMessage("", Gap("lost")))
        return messages


class EventFeeds:
    """All feeds of a process."""

    def __init__(self, store: Store, timer: Timer) -> None:
        self._store = store
        self._feeds: set[Feed] = set()
        self._ring: deque[tuple[Place, list[EventMessage], int]] = deque()
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

    def after(self, place: Place) -> list[tuple[Place, list[EventMessage]]] | None:
        """The ring's messages behind a position, entry by entry. None: it is older than the ring."""
        if place < self._ring_after:
            return None
        found: list[tuple[Place, list[EventMessage]]] = []
        for at, messages, _ in reversed(self._ring):
            if at <= place:
                break
            found.append((at, messages))
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
        size = len(entry.data) + 64
        self._ring.append((position(entry.id), self._decoder.decode(entry), size))
        self._ring_bytes += size
        while len(self._ring) > RING_ENTRIES or self._ring_bytes > RING_BYTES:
            self._ring_after, _, gone = self._ring.popleft()
            self._ring_bytes -= gone


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
        self._namespace = namespace
        self._topics = topics
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
        """The next messages; none if nothing comes in this time, or if the feed has ended. What is there is given even
        without a wait. Raises a DuelineError of the store, and can be called again."""
        try:
            async with asyncio.timeout(None) as limit:
                while not self.ended:
                    self._woken.clear()
                    messages = await self._ready()
                    if messages:
                        return messages
                    if limit.when() is None:
                        limit.reschedule(asyncio.get_running_loop().time() + wait_s)
                    await self._woken.wait()
        except TimeoutError:
            pass
        return []

    def close(self) -> None:
        self._feeds.close(self)

    async def _ready(self) -> list[EventMessage]:
        found = None if self.leaves_ring else self._feeds.after(self._place)
        if found is not None:
            return [one for place, messages in found for one in self._taken(place, messages)]
        before = self._place
        if self._index >= 0 and before > (0, 0):  # in the middle of an entry: read that entry again
            before = (before[0], before[1] - 1) if before[1] else (before[0] - 1, LAST_PLACE)
        page = await self._store.stream.read(f"{before[0]}-{before[1]}")
        self.leaves_ring = False
        messages: list[EventMessage] = []
        if self._place < position(page.trimmed) or (self._index >= 0 and self._place == position(page.trimmed)):
            messages.append(EventMessage("", Gap("trimmed")))
            self._place, self._index = position(page.trimmed), -1
        elif self._place > position(page.last):
            messages.append(EventMessage("", Gap("lost")))
            self._place, self._index = position(page.last), -1
        for entry in page.entries:
            if position(entry.id) >= self._place:
                messages += self._taken(position(entry.id), self._decoder.decode(entry))
        self._index = -1
        if page.entries and page.entries[-1].id != page.last:
            self._woken.set()
        return messages

    def _taken(self, place: Place, entry: list[EventMessage]) -> list[EventMessage]:
        """Advance behind an entry. Returns its messages for this listener that it does not have yet."""
        skipped = self._index if place == self._place else -1
        self._place, self._index = place, -1
        return [one for one in entry if self._wants(one.what) and (not one.id or parse_id(one.id)[1] > skipped)]

    def _wants(self, what: Event | Gap) -> bool:
        if isinstance(what, Gap):
            return True
        return what.namespace == self._namespace and (not self._topics or what.topic in self._topics)


def parse_id(id: str) -> tuple[Place, int]:
    """The position of an entry, and of an event in it (-1: behind all of them). Raises InvalidField."""
    parts = id.split("-")
    if len(parts) not in (2, 3) or not all(part.isascii() and part.isdigit() and len(part) <= 19 for part in parts):
        raise InvalidField("is not the id of an event", "after")
    numbers = [*map(int, parts), -1]
    return (numbers[0], numbers[1]), numbers[2]

"""The stream of events as a list of entries."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from ...engine.event_stream import (
    ENTRIES_PER_CALL,
    INTEREST_MS,
    MAX_ENTRIES,
    MAX_MEMBERS,
    MAX_STREAM_BYTES,
    RENEW_BELOW_MS,
    SILENCES,
    SILENT_MS,
    START,
    EntryKind,
    StreamEntry,
    StreamPage,
    position,
)

ENTRY_BYTES = 64  # of an entry besides its data


class MemoryEventStream:
    """Implements `engine.event_stream.EventStream`. `_members`: when each was last heard."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._entries: list[StreamEntry] = []
        self._bytes = 0
        self._last = self._trimmed = START
        self._until_ms = 0
        self._members: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self._silences: dict[str, int] = {}
        self._interested: list[Callable[[], None]] = []
        self._readers: list[Callable[[], None]] = []

    async def join(self, member: str) -> int:
        if member in self._members or len(self._members) < MAX_MEMBERS:
            self._members[member] = self._clock()
        return self._recording_until()

    async def leave(self, member: str) -> None:
        for one in (self._members, self._numbers, self._silences):
            one.pop(member, None)

    async def listen(self) -> StreamPage:
        now_ms = self._clock()
        if self._until_ms <= now_ms:
            self._members = dict.fromkeys(self._members, now_ms)
            self._add(EntryKind.NEW)
            self._until_ms = now_ms + INTEREST_MS
            for heard in list(self._interested):
                heard()
        elif self._until_ms - now_ms < RENEW_BELOW_MS:
            self._until_ms = now_ms + INTEREST_MS
        return StreamPage([], self._last, self._trimmed)

    async def append(
        self, member: str, first: int, batches: Sequence[bytes], opened: bool = False, lost: bool = False
    ) -> int:
        before = self._last
        if opened:
            self._add(EntryKind.NEW, member)
        for number, data in enumerate(batches, first):
            if number > self._numbers.get(member, 0):
                self._numbers[member] = number
                self._add(EntryKind.EVENTS, member, number, data)
        if lost:
            self._add(EntryKind.LOST, member)
        self._members[member] = self._clock()
        self._silences.pop(member, None)
        if self._recording_until():
            self._report_silent()
        if self._last != before:
            self._trim()
            for heard in list(self._readers):
                heard()
        return self._recording_until()

    async def close(self, member: str) -> int:
        if not self._recording_until() and self._entries:
            self._entries.clear()
            self._trimmed, self._bytes = self._last, 0
        return self._recording_until()

    async def read(self, after: str) -> StreamPage:
        start = bisect_right(self._entries, position(after), key=lambda entry: position(entry.id))
        return StreamPage(self._entries[start : start + ENTRIES_PER_CALL], self._last, self._trimmed)

    async def watch_interest(self, heard: Callable[[], None]) -> None:
        self._interested.append(heard)

    async def watch_entries(self, heard: Callable[[], None]) -> None:
        self._readers.append(heard)

    async def unwatch_entries(self, heard: Callable[[], None]) -> None:
        self._readers.remove(heard)

    def _recording_until(self) -> int:
        return self._until_ms if self._until_ms > self._clock() else 0

    def _add(self, kind: EntryKind, member: str = "", number: int = 0, data: bytes = b"") -> None:
        time_ms, place = position(self._last)
        now_ms = self._clock()
        self._last = f"{now_ms}-0" if now_ms > time_ms else f"{time_ms}-{place + 1}"
        self._entries.append(StreamEntry(self._last, kind, member, number, data))
        self._bytes += len(data) + ENTRY_BYTES

    def _report_silent(self) -> None:
        now_ms = self._clock()
        silent = sorted((at_ms, name) for name, at_ms in self._members.items() if at_ms <= now_ms - SILENT_MS)
        for _, name in silent[:10]:
            self._add(EntryKind.LOST, name)
            self._silences[name] = self._silences.get(name, 0) + 1
            self._members[name] = now_ms
            if self._silences[name] >= SILENCES:
                del self._members[name], self._silences[name]
                self._numbers.pop(name, None)

    def _trim(self) -> None:
        while len(self._entries) > MAX_ENTRIES or self._bytes > MAX_STREAM_BYTES:
            gone = self._entries.pop(0)
            self._bytes -= len(gone.data) + ENTRY_BYTES
            self._trimmed = gone.id

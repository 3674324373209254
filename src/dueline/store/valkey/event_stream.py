"""The stream of events: calls events.lua. Its keys are in the directory's slot."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from ...engine.event_stream import (
    ENTRIES_PER_CALL,
    INTEREST_MS,
    MAX_ENTRIES,
    MAX_MEMBERS,
    MAX_STREAM_BYTES,
    RENEW_BELOW_MS,
    SILENCES,
    SILENT_MS,
    EntryKind,
    StreamEntry,
    StreamPage,
)
from .codec import pack_numbers, unpack_numbers
from .keys import entries_channel, interest_channel
from .wakeups import Wakeups

JOIN, LEAVE, LISTEN, APPEND, CLOSE, READ = range(1, 7)
READING = frozenset({READ})

Run = Callable[[int, bytes, bytes], Awaitable[tuple[bytes, bytes]]]


class ValkeyEventStream:
    """Implements `engine.event_stream.EventStream`. `run` makes one call."""

    def __init__(self, run: Run, wakeups: Wakeups, prefix: str) -> None:
        self._run = run
        self._wakeups = wakeups
        self._interest, self._entries_channel = interest_channel(prefix), entries_channel(prefix)

    async def _ask(self, what: int, numbers: list[int], blob: bytes = b"") -> tuple[list[int], bytes]:
        packed, answer = await self._run(what, pack_numbers(numbers), blob)
        return unpack_numbers(packed), answer

    async def join(self, member: str) -> int:
        return (await self._ask(JOIN, [MAX_MEMBERS], member.encode()))[0][0]

    async def leave(self, member: str) -> None:
        await self._ask(LEAVE, [], member.encode())

    async def listen(self) -> StreamPage:
        return _page(*await self._ask(LISTEN, [INTEREST_MS, RENEW_BELOW_MS]))

    async def append(
        self, member: str, first: int, batches: Sequence[bytes], opened: bool = False, lost: bool = False
    ) -> int:
        name = member.encode()
        limits = [SILENT_MS, SILENCES, MAX_ENTRIES, MAX_STREAM_BYTES]
        numbers = [first, int(opened), int(lost), *limits, len(name), *map(len, batches)]
        return (await self._ask(APPEND, numbers, name + b"".join(batches)))[0][0]

    async def close(self, member: str) -> int:
        return (await self._ask(CLOSE, [], member.encode()))[0][0]

    async def read(self, after: str) -> StreamPage:
        return _page(*await self._ask(READ, [ENTRIES_PER_CALL], after.encode()))

    async def watch_interest(self, heard: Callable[[], None]) -> None:
        await self._wakeups.watch(self._interest, lambda _: heard())

    async def watch_entries(self, heard: Callable[[], None]) -> None:
        await self._wakeups.watch(self._entries_channel, lambda _: heard())

    async def unwatch_entries(self, heard: Callable[[], None]) -> None:
        await self._wakeups.unwatch(self._entries_channel)


def _page(numbers: list[int], blob: bytes) -> StreamPage:
    at = 0

    def text(size: int) -> bytes:
        nonlocal at
        at += size
        return blob[at - size : at]

    last, trimmed = text(numbers[0]).decode(), text(numbers[1]).decode()
    entries: list[StreamEntry] = []
    for i in range(2, len(numbers), 5):
        kind, number, id_size, member_size, data_size = numbers[i : i + 5]
        id, member = text(id_size).decode(), text(member_size).decode()
        entries.append(StreamEntry(id, EntryKind(kind), member, number, text(data_size)))
    return StreamPage(entries, last, trimmed)

"""The stream of events as the store keeps it: interest, members, gaps, limits. Every test has a store of its own."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dueline.engine.event_stream import (
    ENTRIES_PER_CALL,
    INTEREST_MS,
    MAX_ENTRIES,
    MAX_ENTRY_BYTES,
    MAX_STREAM_BYTES,
    RENEW_BELOW_MS,
    SILENT_MS,
    START,
    EntryKind,
    EventStream,
    StreamEntry,
    position,
)
from tests.kit.async_tests import async_fixture
from tests.kit.fixtures import make_kit
from tests.kit.store import KINDS, SIGNAL_WITHIN_S, StoreKit


@async_fixture(params=KINDS)
async def kit(request: pytest.FixtureRequest) -> AsyncIterator[StoreKit]:
    options = {} if request.param == "memory" else {"prefix": f"e{uuid.uuid4().hex[:12]}"}
    async with make_kit(request.param, request, **options) as kit:
        yield kit


async def everything(stream: EventStream, after: str = START) -> list[StreamEntry]:
    found: list[StreamEntry] = []
    while page := (await stream.read(after)).entries:
        found += page
        after = page[-1].id
    return found


def shown(entries: list[StreamEntry]) -> list[tuple[str, str, int, bytes]]:
    return [(one.kind.name, one.member, one.number, one.data) for one in entries]


async def test_nobody_records_until_somebody_listens(kit: StoreKit) -> None:
    stream, now_ms = kit.store.stream, kit.clock.now_ms
    assert await stream.join("a") == 0
    page = await stream.listen()
    assert shown(await everything(stream)) == [("NEW", "", 0, b"")]
    assert page.last == (await everything(stream))[-1].id
    assert await stream.join("a") == now_ms + INTEREST_MS
    assert await stream.append("a", 1, []) == now_ms + INTEREST_MS


async def test_interest_ends_after_a_minute_and_is_renewed_before(kit: StoreKit) -> None:
    stream = kit.store.stream
    await stream.listen()
    first_ms = await stream.append("a", 1, [])
    kit.clock.advance(INTEREST_MS - RENEW_BELOW_MS)
    await stream.listen()
    assert await stream.append("a", 1, []) == first_ms, "it lasts long enough: nothing is written"
    kit.clock.advance(1)
    await stream.listen()
    assert await stream.append("a", 1, []) == kit.clock.now_ms + INTEREST_MS
    kit.clock.advance(INTEREST_MS)
    assert await stream.append("a", 1, []) == 0


async def test_a_listener_after_a_while_without_one_gets_a_gap_and_wakes_the_members(kit: StoreKit) -> None:
    stream, heard = kit.store.stream, asyncio.Event()
    await stream.watch_interest(heard.set)
    page = await stream.listen()
    await asyncio.wait_for(heard.wait(), SIGNAL_WITHIN_S)
    kit.clock.advance(INTEREST_MS)
    heard.clear()
    await stream.listen()
    await asyncio.wait_for(heard.wait(), SIGNAL_WITHIN_S)
    assert {entry.kind for entry in await everything(stream, page.last)} == {EntryKind.NEW}


async def test_entries_come_in_order_with_their_numbers_and_are_announced(kit: StoreKit) -> None:
    stream, heard = kit.store.stream, asyncio.Event()
    start = (await stream.listen()).last
    await stream.watch_entries(heard.set)
    await stream.append("a", 1, [b"one", b"\x00two"])
    await asyncio.wait_for(heard.wait(), SIGNAL_WITHIN_S)
    kit.clock.advance(5)
    await stream.append("b", 1, [b"three"])
    found = await everything(stream, start)
    events = ("EVENTS", "a", 1, b"one"), ("EVENTS", "a", 2, b"\x00two"), ("EVENTS", "b", 1, b"three")
    assert shown(found) == list(events)
    assert sorted(found, key=lambda one: position(one.id)) == found
    assert (await stream.read(start)).last == found[-1].id
    assert shown(await everything(stream, found[0].id)) == list(events[1:])
    await stream.unwatch_entries(heard.set)


async def test_a_repeated_append_adds_nothing(kit: StoreKit) -> None:
    stream = kit.store.stream
    start = (await stream.listen()).last
    await stream.append("a", 1, [b"one"])
    await stream.append("a", 1, [b"one", b"two"])
    assert [entry.data for entry in await everything(stream, start)] == [b"one", b"two"]


async def test_a_beat_of_a_quiet_member_adds_nothing(kit: StoreKit) -> None:
    stream = kit.store.stream
    last = (await stream.listen()).last
    await stream.append("a", 1, [])
    assert (await stream.read(last)).last == last


async def test_a_member_that_begins_or_lost_events_says_so(kit: StoreKit) -> None:
    stream = kit.store.stream
    start = (await stream.listen()).last
    await stream.append("a", 1, [b"one"], opened=True, lost=True)
    found = shown(await everything(stream, start))
    assert [one for i, one in enumerate(found) if one not in found[:i]] == [
        ("NEW", "a", 0, b""),
        ("EVENTS", "a", 1, b"one"),
        ("LOST", "a", 0, b""),
    ]


async def test_a_silent_member_is_reported_twice_by_the_others_and_then_forgotten(kit: StoreKit) -> None:
    stream = kit.store.stream
    for member in ("dead", "alive"):
        await stream.join(member)
    kit.clock.advance(10 * SILENT_MS)
    start = (await stream.listen()).last
    for _ in range(8):
        kit.clock.advance(SILENT_MS // 2)
        await stream.listen()
        await stream.append("alive", 1, [])
    assert shown(await everything(stream, start)) == [("LOST", "dead", 0, b"")] * 2


async def test_nobody_is_missed_while_nobody_listens_nor_after_leaving(kit: StoreKit) -> None:
    stream = kit.store.stream
    for member in ("left", "alive"):
        await stream.join(member)
    kit.clock.advance(10 * SILENT_MS)
    await stream.append("alive", 1, [])
    assert await everything(stream) == []
    start = (await stream.listen()).last
    await stream.leave("left")
    kit.clock.advance(SILENT_MS + 1)
    await stream.append("alive", 1, [])
    assert await everything(stream, start) == []


async def test_a_member_that_speaks_again_is_registered_again(kit: StoreKit) -> None:
    stream = kit.store.stream
    await stream.listen()
    await stream.append("a", 1, [b"one"])
    for _ in range(6):
        kit.clock.advance(SILENT_MS)
        await stream.append("b", 1, [])
        await stream.listen()
    start = (await stream.listen()).last
    await stream.append("a", 2, [b"two"])
    kit.clock.advance(SILENT_MS)
    await stream.append("b", 1, [])
    assert shown(await everything(stream, start)) == [("EVENTS", "a", 2, b"two"), ("LOST", "a", 0, b"")]


async def test_recording_ends_only_when_nobody_listens_and_empties_the_stream(kit: StoreKit) -> None:
    stream = kit.store.stream
    await stream.listen()
    await stream.append("a", 1, [b"one"])
    assert await stream.close("a") == kit.clock.now_ms + INTEREST_MS
    kit.clock.advance(INTEREST_MS)
    last = (await stream.read(START)).last
    assert await stream.close("a") == 0
    page = await stream.read(START)
    assert (page.entries, page.last, page.trimmed) == ([], last, last)
    await stream.listen()
    assert {entry.kind for entry in await everything(stream, last)} == {EntryKind.NEW}


async def test_the_stream_is_capped_by_its_bytes(kit: StoreKit) -> None:
    stream, number = kit.store.stream, 1
    await stream.listen()
    for _ in range(MAX_STREAM_BYTES // (ENTRIES_PER_CALL * MAX_ENTRY_BYTES) + 2):
        await stream.append("a", number, [b"x" * MAX_ENTRY_BYTES] * ENTRIES_PER_CALL)
        number += ENTRIES_PER_CALL
    found = await everything(stream)
    assert MAX_STREAM_BYTES - 2 * MAX_ENTRY_BYTES < sum(len(one.data) for one in found) <= MAX_STREAM_BYTES
    page = await stream.read(START)
    assert START != page.trimmed < found[0].id


@pytest.mark.parametrize("kit", ["valkey"], indirect=True)  # the memory of the store's scripts
async def test_an_append_to_a_full_stream_reads_only_what_it_removes(kit: StoreKit) -> None:
    store: Any = kit.store
    await store.stream.listen()
    for call in range(MAX_STREAM_BYTES // (ENTRIES_PER_CALL * MAX_ENTRY_BYTES) + 2):
        batches = [os.urandom(MAX_ENTRY_BYTES) for _ in range(ENTRIES_PER_CALL)]
        await store.stream.append("a", 1 + call * ENTRIES_PER_CALL, batches)
    memory = dict(line.split(b":") for line in (await store.plain(b"", "INFO", "memory")).splitlines() if b":" in line)
    assert int(memory[b"used_memory_lua"]) < MAX_STREAM_BYTES // 3


async def test_the_stream_is_capped_by_its_length(kit: StoreKit) -> None:
    stream = kit.store.stream
    await stream.listen()
    for number in range(1, MAX_ENTRIES + 400, 200):
        await stream.append("a", number, [b"x"] * 200)
    first = (await stream.read(START)).entries[0]
    assert first.number > 200
    page = await stream.read(START)
    assert position(page.trimmed) < position(first.id)

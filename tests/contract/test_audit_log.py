"""The audit log: entries come back as they were appended, the newest first, and no more of them than the limit."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from dueline.engine.audit_log import AuditEntry, AuditFilter
from dueline.engine.errors import InvalidField
from dueline.store.audit_limits import DETAILS_BYTES, INSPECTED, NAME_BYTES, TEXT_BYTES
from tests.kit.async_tests import async_fixture
from tests.kit.fixtures import make_kit
from tests.kit.store import KINDS, StoreKit

ANY = AuditFilter()


@async_fixture(params=KINDS)
async def kit(request: pytest.FixtureRequest) -> AsyncIterator[StoreKit]:
    """A store has one audit log, so each test has a prefix of its own."""
    async with make_kit(request.param, request, prefix=f"audit-{uuid.uuid4().hex[:12]}") as kit:
        yield kit


def entry(id: str, **fields: Any) -> AuditEntry:
    plain: dict[str, Any] = {
        "who": "k1",
        "who_name": "deploy",
        "address": "192.0.2.7",
        "namespace": "ns",
        "action": "delete_topic",
        "topic": "orders",
        "details": {},
        "status": 200,
        "code": "",
        "server": "host:1",
    }
    return AuditEntry(id, **{**plain, **fields})


async def append(kit: StoreKit, *entries: AuditEntry, max_entries: int = 0) -> None:
    await kit.store.audit.append(entries, max_entries)


async def fill(kit: StoreKit, count: int, **fields: Any) -> None:
    for start in range(0, count, 500):
        await append(kit, *(entry(str(number), **fields) for number in range(start, min(count, start + 500))))


async def ids(kit: StoreKit, which: AuditFilter = ANY, limit: int = 500) -> list[str]:
    """The whole log, read page by page."""
    found: list[str] = []
    cursor: bytes | None = b""
    while cursor is not None:
        page, cursor = await kit.store.audit.page(which, cursor, limit)
        assert len(page) <= limit
        found += [one.id for one in page]
    return found


async def test_a_log_without_entries_is_empty(kit: StoreKit) -> None:
    await append(kit)
    assert await kit.store.audit.page(ANY, b"", 10) == ([], None)
    assert await kit.store.audit.page(AuditFilter("ns", "k1", "pause", 5), b"", 10) == ([], None)


async def test_entries_come_back_as_they_were_appended_with_the_time_of_the_store(kit: StoreKit) -> None:
    first = entry("a", details={"ids": ["x", "ü"], "ids_count": 2, "filter": {"tag": "t"}, "dry_run": False})
    second = entry("b", who="", who_name="", namespace="", topic="日本/ {}", status=0, code="client_gone")
    await append(kit, first)
    begun_ms = kit.clock.now_ms
    await kit.advance(5)
    await append(kit, second)
    expected = [replace(second, at_ms=begun_ms + 5), replace(first, at_ms=begun_ms)]
    assert await kit.store.audit.page(ANY, b"", 10) == (expected, None)


async def test_the_log_is_read_page_by_page_and_new_entries_do_not_move_the_pages(kit: StoreKit) -> None:
    await append(kit, *(entry(id) for id in "abcde"))
    first, cursor = await kit.store.audit.page(ANY, b"", 2)
    await append(kit, entry("f"))
    assert cursor is not None
    second, cursor = await kit.store.audit.page(ANY, cursor, 2)
    assert cursor is not None
    third, end = await kit.store.audit.page(ANY, cursor, 2)
    assert ([one.id for one in first + second + third], end) == (list("edcba"), None)


FILTERS: dict[str, tuple[AuditFilter, list[str]]] = {
    "namespace": (AuditFilter(namespace="ns"), ["d", "b", "a"]),
    "who": (AuditFilter(who="k1"), ["d", "c", "a"]),
    "nobody's token": (AuditFilter(who=""), ["b"]),
    "action": (AuditFilter(action="pause"), ["c", "b"]),
    "a part of a name": (AuditFilter(namespace="n"), []),
    "all": (AuditFilter("ns", "k1", "delete_topic"), ["d", "a"]),
    "since": (AuditFilter(since_ms=1), ["d", "c", "b", "a"]),
}


@pytest.mark.parametrize("name", FILTERS)
async def test_a_filter_selects_entries_in_pages_of_any_size(kit: StoreKit, name: str) -> None:
    await append(kit, entry("a"), entry("b", who="", action="pause"))
    await append(kit, entry("c", namespace="nsx", action="pause"), entry("d"))
    which, expected = FILTERS[name]
    assert [await ids(kit, which, limit) for limit in (1, 2, 500)] == [expected] * 3


async def test_since_selects_by_the_time_of_the_store(kit: StoreKit) -> None:
    await append(kit, entry("a"))
    await kit.advance(10)
    await append(kit, entry("b"))
    now_ms = kit.clock.now_ms
    assert await ids(kit, AuditFilter(since_ms=now_ms)) == ["b"]
    assert await ids(kit, AuditFilter(since_ms=now_ms + 1)) == []


async def test_the_newest_entries_are_kept_and_the_limit_is_remembered(kit: StoreKit) -> None:
    await append(kit, *(entry(id) for id in "abcde"), max_entries=3)
    assert await ids(kit) == list("edc")
    await append(kit, entry("f"))
    assert await ids(kit) == list("fed")
    await append(kit, entry("g"), max_entries=5)
    await append(kit, entry("h"))
    assert await ids(kit) == list("hgfed")


async def test_ten_thousand_entries_are_kept_by_default(kit: StoreKit) -> None:
    await fill(kit, 10_003)
    assert await ids(kit) == [str(number) for number in range(10_002, 2, -1)]


async def test_a_page_inspects_a_bounded_number_of_entries_and_then_has_a_cursor(kit: StoreKit) -> None:
    await append(kit, entry("wanted", action="pause"), max_entries=20_000)
    await fill(kit, INSPECTED)
    page, cursor = await kit.store.audit.page(AuditFilter(action="pause"), b"", 10)
    assert (page, cursor is None) == ([], False)
    assert await ids(kit, AuditFilter(action="pause")) == ["wanted"]


async def test_a_page_whose_place_is_gone_from_the_log_is_the_last_one(kit: StoreKit) -> None:
    await append(kit, *(entry(id) for id in "abcd"), max_entries=4)
    _, cursor = await kit.store.audit.page(ANY, b"", 2)
    await append(kit, *(entry(id) for id in "efgh"))
    assert cursor is not None
    assert await kit.store.audit.page(ANY, cursor, 2) == ([], None)


@pytest.mark.parametrize("cursor", [b"x", b"\0" * 7])
async def test_an_invalid_cursor_is_refused(kit: StoreKit, cursor: bytes) -> None:
    await append(kit, entry("a"))
    with pytest.raises(InvalidField):
        await kit.store.audit.page(ANY, cursor, 10)


async def test_a_foreign_cursor_does_no_harm(kit: StoreKit) -> None:
    await append(kit, entry("a"))
    assert await kit.store.audit.page(ANY, b"\0" * 5 + b"\1", 10) == ([], None)
    assert [one.id for one in (await kit.store.audit.page(ANY, b"\xff" * 6, 10))[0]] == ["a"]


async def test_an_entry_is_cut_to_a_bounded_size(kit: StoreKit) -> None:
    huge = "é" * 5_000
    await append(
        kit,
        entry("a", who=huge, who_name=huge, address=huge, namespace=huge, action=huge, topic=huge, code=huge),
        entry("b", topic="a\nb\0\ud800", server="\x1b[31m"),
        entry("c", status=4711),
    )
    (third, second, first), _ = await kit.store.audit.page(ANY, b"", 10)
    short, name = "é" * (TEXT_BYTES // 2), "é" * (NAME_BYTES // 2)
    assert (first.who, first.who_name, first.address, first.action, first.code) == (short,) * 5
    assert (first.namespace, first.topic) == (name, name)
    assert (second.topic, second.server, third.status) == ("a?b??", "?[31m", 999)


async def test_details_that_are_too_large_have_fewer_ids_or_are_left_out(kit: StoreKit) -> None:
    many = ["x" * 500 for _ in range(20)]
    await append(
        kit,
        entry("a", details={"ids": many, "ids_count": 900, "dry_run": True}),
        entry("b", details={"filter": {"tag": "x" * DETAILS_BYTES}}),
        entry("c", details={"tag": "\ud800"}),
    )
    (third, second, first), _ = await kit.store.audit.page(ANY, b"", 10)
    assert first.details == {"ids": many[:2], "ids_count": 900, "dry_run": True}
    assert (second.details, third.details) == ({"cut": True}, {"cut": True})


async def test_entries_appended_at_once_are_all_there_in_order(kit: StoreKit) -> None:
    await asyncio.gather(*(append(kit, entry(str(number))) for number in range(900)))
    assert await ids(kit) == [str(number) for number in range(899, -1, -1)]


async def test_two_processes_write_one_log(kit: StoreKit, request: pytest.FixtureRequest) -> None:
    if kit.kind == "memory":
        pytest.skip("a memory store belongs to one process")
    store: Any = kit.store
    async with make_kit(kit.kind, request, prefix=store.prefix) as other:
        await append(kit, entry("a"), max_entries=2)
        await append(other, entry("b"), entry("c"))
        assert await ids(kit) == await ids(other) == ["c", "b"]

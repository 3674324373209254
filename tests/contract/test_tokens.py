"""Access tokens as the store keeps them: generations, announcements, retention, and the servers that check them.

Tokens belong to no topic, so every test has a store of its own."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from dueline.engine.errors import TooManyTokens
from dueline.engine.token_store import (
    MAX_TOKENS,
    SERVER_GONE_MS,
    SERVER_SEEN_MS,
    TOKEN_PAGE,
    TokenEntry,
    TokenPage,
    TokenStore,
)
from tests.kit.async_tests import async_fixture
from tests.kit.fixtures import make_kit
from tests.kit.store import KINDS, SIGNAL_WITHIN_S, StoreKit

NEW = 0


@async_fixture(params=KINDS)
async def kit(request: pytest.FixtureRequest) -> AsyncIterator[StoreKit]:
    options = {} if request.param == "memory" else {"prefix": f"t{uuid.uuid4().hex[:12]}"}
    async with make_kit(request.param, request, **options) as kit:
        yield kit


def entry(id: str, generation: int = NEW, data: bytes = b"data", remove_at_ms: int = 0) -> TokenEntry:
    return TokenEntry(id, generation, remove_at_ms, data)


async def every(tokens: TokenStore, after: int = 0, limit: int = TOKEN_PAGE) -> list[TokenEntry]:
    """All pages."""
    found: list[TokenEntry] = []
    page = TokenPage([], after, 0)
    while page.after is not None:
        page = await tokens.changed(page.after, limit)
        found += page.entries
    return found


async def test_every_change_gets_the_next_generation_of_all_tokens(kit: StoreKit) -> None:
    tokens = kit.store.tokens
    assert await tokens.changed(0) == TokenPage([], None, 0)
    assert await tokens.put(entry("a", data=b"\x00one")) == 1
    assert await tokens.put(entry("b")) == 2
    assert await tokens.put(entry("a", 1, b"two", remove_at_ms=kit.clock.now_ms + 5)) == 3
    assert await tokens.get("a") == entry("a", 3, b"two", kit.clock.now_ms + 5)
    assert await tokens.get("b") == entry("b", 2)
    assert await tokens.get("c") is None
    assert await tokens.changed(0) == TokenPage([entry("b", 2), entry("a", 3, b"two", kit.clock.now_ms + 5)], None, 3)


async def test_a_change_of_another_generation_is_refused_and_changes_nothing(kit: StoreKit) -> None:
    tokens = kit.store.tokens
    first = await tokens.put(entry("a", data=b"one"))
    assert await tokens.put(entry("a", data=b"two")) == 0
    assert await tokens.put(entry("b", 7, b"two")) == 0
    second = await tokens.put(entry("a", first, b"two"))
    assert await tokens.put(entry("a", first, b"three")) == 0
    assert await tokens.changed(0) == TokenPage([entry("a", second, b"two")], None, second)


async def test_a_repeated_change_has_one_effect_and_the_same_answer(kit: StoreKit) -> None:
    tokens = kit.store.tokens
    assert [await tokens.put(entry("a")) for _ in range(2)] == [1, 1]
    assert [await tokens.put(entry("a", 1, b"two")) for _ in range(2)] == [2, 2]
    assert await tokens.changed(0) == TokenPage([entry("a", 2, b"two")], None, 2)


async def test_tokens_are_paged_by_their_last_change(kit: StoreKit) -> None:
    tokens = kit.store.tokens
    for id in "abcde":
        await tokens.put(entry(id))
    await tokens.put(entry("b", 2, b"new"))
    first = await tokens.changed(0, 2)
    assert first == TokenPage([entry("a", 1), entry("c", 3)], 3, 6)
    assert await tokens.changed(3, 2) == TokenPage([entry("d", 4), entry("e", 5)], 5, 6)
    assert await tokens.changed(5, 2) == TokenPage([entry("b", 6, b"new")], None, 6)
    assert await tokens.changed(6, 2) == TokenPage([], None, 6)
    assert [one.id for one in await every(tokens, limit=1)] == ["a", "c", "d", "e", "b"]


async def test_a_token_is_gone_when_its_time_has_come_and_its_generation_is_not_used_again(kit: StoreKit) -> None:
    tokens = kit.store.tokens
    await tokens.put(entry("ends", remove_at_ms=kit.clock.now_ms + 10))
    await tokens.put(entry("prolonged", remove_at_ms=kit.clock.now_ms + 10))
    await tokens.put(entry("prolonged", 2, b"later"))
    await kit.advance(9)
    assert len(await every(tokens)) == 2
    await kit.advance(1)
    assert await tokens.get("ends") is None
    assert await every(tokens) == [entry("prolonged", 3, b"later")]
    assert await tokens.put(entry("ends", 1, b"changed")) == 0
    assert await tokens.put(entry("ends", data=b"again")) == 4


@pytest.mark.parametrize("kit", ["memory", "valkey"], indirect=True)  # the same script elsewhere, at more cost
async def test_there_are_never_too_many_tokens_and_ended_ones_make_room(kit: StoreKit) -> None:
    tokens = kit.store.tokens
    soon = kit.clock.now_ms + 10
    for start in range(0, MAX_TOKENS, 500):
        await asyncio.gather(*(tokens.put(entry(f"t{n}", remove_at_ms=soon)) for n in range(start, start + 500)))
    with pytest.raises(TooManyTokens):
        await tokens.put(entry("one more"))
    last = await tokens.get("t0")
    assert last is not None
    assert await tokens.put(replace(last, data=b"changed", remove_at_ms=0)) == MAX_TOKENS + 1
    await kit.advance(10)
    assert await every(tokens) == [entry("t0", MAX_TOKENS + 1, b"changed")]
    assert await tokens.put(entry("one more")) == MAX_TOKENS + 2


async def test_a_change_is_announced(kit: StoreKit) -> None:
    tokens = kit.store.tokens
    heard = asyncio.Event()
    await tokens.watch(heard.set)
    await tokens.put(entry("a"))
    await asyncio.wait_for(heard.wait(), SIGNAL_WITHIN_S)
    heard.clear()
    await tokens.put(entry("a", 1, b"two"))
    await asyncio.wait_for(heard.wait(), SIGNAL_WITHIN_S)


async def test_servers_are_behind_until_they_confirm(kit: StoreKit) -> None:
    tokens = kit.store.tokens
    await tokens.put(entry("a"))
    assert await tokens.beat("one", 0) == 1
    assert await tokens.beat("two", 1) == 1
    assert await tokens.behind(1) == ["one"]
    assert await tokens.beat("one", 1) == 1
    assert await tokens.behind(1) == []
    await tokens.put(entry("a", 1, b"two"))
    assert await tokens.behind(2) == ["one", "two"]
    assert await tokens.beat("two", 2) == 2
    assert await tokens.behind(2) == ["one"]
    assert await tokens.beat("two", 1) == 2
    assert await tokens.behind(2) == ["one", "two"]


async def test_a_server_leaves_or_is_removed_only_if_it_is_behind(kit: StoreKit) -> None:
    tokens = kit.store.tokens
    for name, confirmed in (("one", 1), ("two", 2), ("three", 3)):
        await tokens.beat(name, confirmed)
    await tokens.leave("one", below=2)
    await tokens.leave("two", below=2)
    await tokens.leave("nobody", below=2)
    assert await tokens.behind(9) == ["two", "three"]
    await tokens.leave("three")
    await tokens.leave("three")
    assert await tokens.behind(9) == ["two"]


async def test_a_server_that_was_not_seen_for_an_hour_is_forgotten(kit: StoreKit) -> None:
    tokens = kit.store.tokens
    await tokens.beat("dead", 0)
    await tokens.beat("alive", 0)
    for _ in range(SERVER_GONE_MS // SERVER_SEEN_MS):
        await kit.advance(SERVER_SEEN_MS)
        await tokens.beat("alive", 0)
    assert await tokens.behind(1) == ["alive", "dead"]
    await kit.advance(1)
    await tokens.beat("alive", 0)
    assert await tokens.behind(1) == ["alive"]

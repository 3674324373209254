"""The tokens in a server's memory: how they follow the store, and when they are no longer believed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

import msgspec

from dueline.engine.errors import StoreDown
from dueline.engine.token_cache import BEAT_S, TokenCache
from dueline.engine.token_store import TOKEN_PAGE, TokenEntry, TokenStore
from dueline.engine.tokens import LEASE_S, Tokens, TokenSpec
from dueline.rights import EVERYTHING, Right
from dueline.store.memory import MemoryStore
from dueline.store.memory.tokens import MemoryTokens
from dueline.testing.clock import VirtualClock
from dueline.testing.timer import VirtualTimer
from tests.kit.async_tests import async_fixture

T = TypeVar("T")

LEASE_MS, BEAT_MS = round(LEASE_S * 1000), round(BEAT_S * 1000)
WISH = TokenSpec("billing", (Right.SEND,), "shop")


class TroubledTokens(MemoryTokens):
    """Beats can fail, or wait for their answer until `answering` is set."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.down = False
        self.answering = asyncio.Event()
        self.answering.set()

    async def beat(self, server: str, confirmed: int) -> int:
        if self.down:
            raise StoreDown
        generation = await super().beat(server, confirmed)
        await self.answering.wait()
        return generation


class Kit:
    """A store, whoever changes tokens, and one server's cache."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.timer = VirtualTimer(self.clock)
        self.store = MemoryStore(self.clock)
        self.trouble = self.store.tokens = TroubledTokens(self.clock)
        self.tokens = Tokens(self.store, self.timer)
        self.cache = TokenCache(self.store, self.timer, clock=self.timer.time)
        self.changes = 0
        self.cache.changed = self.count

    def count(self) -> None:
        self.changes += 1

    @property
    def ids(self) -> set[str]:
        return set(self.cache.tokens)


@async_fixture
async def kit() -> AsyncIterator[Kit]:
    kit = Kit()
    yield kit
    kit.trouble.answering.set()
    await kit.cache.stop()


async def test_all_tokens_are_there_after_the_start(kit: Kit) -> None:
    made = [await kit.tokens.make(WISH, EVERYTHING) for _ in range(TOKEN_PAGE + 5)]
    await kit.tokens.revoke(made[0].token.id, EVERYTHING)
    assert not kit.cache.is_current
    await kit.cache.start()
    assert kit.cache.is_current
    assert kit.ids == {one.token.id for one in made[1:]}
    assert await kit.store.tokens.behind(kit.cache.generation) == []


async def test_a_change_is_followed_at_once(kit: Kit) -> None:
    await kit.cache.start()
    made = await with_time(kit, kit.tokens.make(WISH, EVERYTHING))
    assert kit.cache.tokens == {made.token.id: made.token}
    rotated = await with_time(kit, kit.tokens.rotate(made.token.id, 1_000, EVERYTHING))
    assert kit.cache.tokens == {made.token.id: rotated.token}
    await with_time(kit, kit.tokens.revoke(made.token.id, EVERYTHING))
    assert (kit.ids, kit.changes) == (set(), 3)


async def with_time(kit: Kit, call: Coroutine[Any, Any, T]) -> T:
    """The result of a change; far less time passes than between two beats."""
    changing = asyncio.ensure_future(call)
    await kit.timer.advance(100)
    assert changing.done()
    return changing.result()


async def test_tokens_are_believed_for_two_seconds_after_the_last_beat(kit: Kit) -> None:
    await kit.cache.start()
    await kit.timer.advance(10 * LEASE_MS)
    assert kit.cache.is_current
    kit.trouble.down = True
    await kit.timer.advance(LEASE_MS - 1)
    assert kit.cache.is_current
    await kit.timer.advance(1)
    assert not kit.cache.is_current
    kit.trouble.down = False
    await kit.timer.advance(BEAT_MS)
    assert kit.cache.is_current


async def test_the_lease_counts_from_the_moment_when_the_beat_was_sent(kit: Kit) -> None:
    await kit.cache.start()
    await kit.timer.advance(0)
    kit.trouble.answering.clear()
    await kit.timer.advance(LEASE_MS)
    assert not kit.cache.is_current
    kit.trouble.answering.set()
    await kit.timer.advance(BEAT_MS - 1)  # the answer of the beat at 500 ms comes now, and is good until 2,500 ms
    assert kit.cache.is_current
    kit.trouble.down = True
    await kit.timer.advance(1)
    assert not kit.cache.is_current


async def test_a_lost_announcement_is_made_up_for_by_the_next_beat(kit: Kit) -> None:
    kit.store.tokens.watch = deaf
    await kit.cache.start()
    making = asyncio.ensure_future(kit.tokens.make(WISH, EVERYTHING))
    await kit.timer.advance(BEAT_MS - 10)
    assert kit.ids == set()
    await kit.timer.advance(100)
    assert making.done()
    assert len(kit.ids) == 1


async def deaf(_: object) -> None:
    """No announcement arrives."""


async def test_a_beat_with_an_old_generation_gives_no_lease(kit: Kit) -> None:
    """A server that cannot load the changes must not go on with the old ones."""
    await kit.cache.start()

    async def down(after: int, limit: int = TOKEN_PAGE) -> object:
        raise StoreDown

    works, kit.store.tokens.changed = kit.store.tokens.changed, down  # pyright: ignore[reportAttributeAccessIssue]
    making = asyncio.ensure_future(kit.tokens.make(WISH, EVERYTHING))
    await kit.timer.advance(LEASE_MS + BEAT_MS)
    assert not kit.cache.is_current
    kit.store.tokens.changed = works
    await kit.timer.advance(2 * BEAT_MS)
    assert kit.cache.is_current
    assert making.done()
    assert len(kit.ids) == 1


async def test_a_store_that_lost_its_newest_data_is_read_anew(kit: Kit) -> None:
    kept = await kit.tokens.make(WISH, EVERYTHING)
    old = msgspec.structs.replace(await stored(kit.store.tokens, kept.token.id), generation=0)
    await kit.tokens.make(WISH, EVERYTHING)
    await kit.cache.start()
    assert len(kit.ids) == 2
    kit.store.tokens = MemoryTokens(kit.clock)
    await kit.store.tokens.put(old)
    await kit.timer.advance(2 * BEAT_MS)
    assert kit.ids == {kept.token.id}
    assert kit.cache.is_current


async def stored(tokens: TokenStore, id: str) -> TokenEntry:
    entry = await tokens.get(id)
    assert entry is not None
    return entry


async def test_a_server_that_stops_believes_nothing_and_is_not_waited_for(kit: Kit) -> None:
    await kit.cache.start()
    assert await kit.store.tokens.behind(9) == [kit.cache.server]
    await kit.cache.stop()
    assert not kit.cache.is_current
    assert await kit.store.tokens.behind(9) == []
    await kit.cache.stop()


async def test_a_store_that_is_down_at_the_start_is_tried_until_it_answers(kit: Kit) -> None:
    kit.trouble.down = True
    await kit.cache.start()
    await kit.timer.advance(LEASE_MS)
    assert not kit.cache.is_current
    kit.trouble.down = False
    await kit.timer.advance(BEAT_MS)
    assert kit.cache.is_current


async def test_expired_tokens_do_not_stay_in_memory(kit: Kit) -> None:
    await kit.cache.start()
    await with_time(kit, kit.tokens.make(msgspec.structs.replace(WISH, expires_at_ms=kit.clock() + 500), EVERYTHING))
    assert len(kit.ids) == 1
    await kit.timer.advance(1_000)
    await with_time(kit, kit.tokens.make(WISH, EVERYTHING))
    assert len(kit.ids) == 1

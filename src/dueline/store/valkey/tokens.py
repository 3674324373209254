"""Access tokens, and the servers that check them: calls tokens.lua. Its keys have a slot of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ...engine.errors import TooManyTokens
from ...engine.token_store import (
    MAX_BEHIND,
    MAX_TOKENS,
    SERVER_GONE_MS,
    SERVER_SEEN_MS,
    TOKEN_PAGE,
    TokenEntry,
    TokenPage,
)
from .codec import pack_numbers, unpack_numbers

PUT, GET, CHANGED, BEAT, BEHIND, LEAVE = range(1, 7)
READING = frozenset({GET, CHANGED})  # not BEAT, which makes a lease, nor BEHIND, whose answer ends a change

Run = Callable[[int, bytes, bytes], Awaitable[tuple[bytes, bytes]]]
Watch = Callable[[Callable[[bytes | None], None]], Awaitable[None]]


class ValkeyTokens:
    """Implements `engine.token_store.TokenStore`. `run` makes one call; `watch` subscribes to the announcements."""

    def __init__(self, run: Run, watch: Watch) -> None:
        self._run = run
        self._watch = watch

    async def _ask(self, what: int, numbers: list[int], blob: bytes = b"") -> tuple[list[int], bytes]:
        packed, answer = await self._run(what, pack_numbers(numbers), blob)
        return unpack_numbers(packed), answer

    async def put(self, entry: TokenEntry) -> int:
        id = entry.id.encode()
        numbers = [entry.generation, entry.remove_at_ms, MAX_TOKENS, len(id)]
        (generation,), _ = await self._ask(PUT, numbers, id + entry.data)
        if generation < 0:
            raise TooManyTokens
        return generation

    async def get(self, id: str) -> TokenEntry | None:
        found = _page(*await self._ask(GET, [], id.encode())).entries
        return found[0] if found else None

    async def changed(self, after: int, limit: int = TOKEN_PAGE) -> TokenPage:
        return _page(*await self._ask(CHANGED, [after, min(limit, TOKEN_PAGE)]))

    async def beat(self, server: str, confirmed: int) -> int:
        (generation,), _ = await self._ask(BEAT, [confirmed, SERVER_SEEN_MS, SERVER_GONE_MS], server.encode())
        return generation

    async def behind(self, generation: int) -> list[str]:
        sizes, blob = await self._ask(BEHIND, [generation, MAX_BEHIND])
        servers: list[str] = []
        at = 0
        for size in sizes:
            servers.append(blob[at : at + size].decode())
            at += size
        return servers

    async def leave(self, server: str, below: int | None = None) -> None:
        await self._ask(LEAVE, [-1 if below is None else below], server.encode())

    async def watch(self, changed: Callable[[], None]) -> None:
        await self._watch(lambda _: changed())


def _page(numbers: list[int], blob: bytes) -> TokenPage:
    generation, after = numbers[:2]
    entries: list[TokenEntry] = []
    at = 0
    for i in range(2, len(numbers), 4):
        id_size, own, remove_at_ms, data_size = numbers[i : i + 4]
        id = blob[at : at + id_size].decode()
        at += id_size
        entries.append(TokenEntry(id, own, remove_at_ms, blob[at : at + data_size]))
        at += data_size
    return TokenPage(entries, None if after < 0 else after, generation)

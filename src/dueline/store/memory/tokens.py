"""Access tokens, and the servers that check them, as plain values."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

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


class MemoryTokens:
    """Implements `engine.token_store.TokenStore` with two dicts. `_servers`: what each has confirmed, and when it was
    seen."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._generation = 0
        self._tokens: dict[str, TokenEntry] = {}
        self._servers: dict[str, tuple[int, int]] = {}
        self._watchers: list[Callable[[], None]] = []

    async def put(self, entry: TokenEntry) -> int:
        old = await self.get(entry.id)
        if (0 if old is None else old.generation) != entry.generation:
            is_repeated = old is not None and old.generation > entry.generation and old.data == entry.data
            return old.generation if old is not None and is_repeated else 0
        if old is None and len(self._tokens) >= MAX_TOKENS and len(self._present()) >= MAX_TOKENS:
            raise TooManyTokens
        self._generation += 1
        self._tokens[entry.id] = replace(entry, generation=self._generation)
        for changed in self._watchers:
            changed()
        return self._generation

    async def get(self, id: str) -> TokenEntry | None:
        entry = self._tokens.get(id)
        return None if entry is None or 0 < entry.remove_at_ms <= self._clock() else entry

    async def changed(self, after: int, limit: int = TOKEN_PAGE) -> TokenPage:
        newer = sorted(
            (entry for entry in self._present().values() if entry.generation > after), key=lambda one: one.generation
        )
        entries = newer[: min(limit, TOKEN_PAGE)]
        return TokenPage(entries, entries[-1].generation if len(newer) > len(entries) else None, self._generation)

    async def beat(self, server: str, confirmed: int) -> int:
        now_ms = self._clock()
        for name, (_, seen_ms) in list(self._servers.items()):
            if seen_ms < now_ms - SERVER_GONE_MS:
                del self._servers[name]
        before = self._servers.get(server)
        is_seen = before is not None and before[1] > now_ms - SERVER_SEEN_MS
        self._servers[server] = (confirmed, before[1] if before is not None and is_seen else now_ms)
        return self._generation

    async def behind(self, generation: int) -> list[str]:
        found = sorted((known, name) for name, (known, _) in self._servers.items() if known < generation)
        return [name for _, name in found[:MAX_BEHIND]]

    async def leave(self, server: str, below: int | None = None) -> None:
        if below is None or self._servers.get(server, (below, 0))[0] < below:
            self._servers.pop(server, None)

    async def watch(self, changed: Callable[[], None]) -> None:
        self._watchers.append(changed)

    def _present(self) -> dict[str, TokenEntry]:
        """The tokens that are not gone; the others are removed."""
        now_ms = self._clock()
        self._tokens = {id: one for id, one in self._tokens.items() if not 0 < one.remove_at_ms <= now_ms}
        return self._tokens

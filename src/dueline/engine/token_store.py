"""The access tokens of a store and the servers that check them: the store interface that `tokens` uses. No I/O here.

Every change of a token gets the next generation, one number for all tokens, and is announced. A server that checks
tokens keeps them all in memory. It *beats*: it reports the generation that it has loaded, and learns the current one.
The store remembers the generation that each server has confirmed, so whoever changes a token can wait for all of them
(`tokens`, `token_cache`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

MAX_TOKENS = 10_000
TOKEN_PAGE = 200  # tokens per call
MAX_BEHIND = 100  # servers per call
SERVER_SEEN_MS = 600_000  # how often a beat renews the time of its server
SERVER_GONE_MS = 3_600_000  # a server that was not seen for this long is forgotten


class TokenEntry(msgspec.Struct, frozen=True):
    """A token as it is stored. `data` is opaque to the store. From `remove_at_ms` on the token is gone; 0: never."""

    id: str
    generation: int
    remove_at_ms: int
    data: bytes


class TokenPage(msgspec.Struct, frozen=True):
    """Tokens in the order of their last change. `after`: where the next page begins; None: this is the last one. A page
    may be empty and still have a next one. `generation`: the newest of all tokens, even of those on later pages."""

    entries: list[TokenEntry]
    after: int | None
    generation: int


class TokenStore(Protocol):
    """Each method is one atomic call, and safe to repeat."""

    async def put(self, entry: TokenEntry) -> int:
        """Write a token if its generation is still `entry.generation` (0: there is no such token) and announce it.
        Returns its new generation; 0: it has another one. Raises TooManyTokens."""
        ...

    async def get(self, id: str) -> TokenEntry | None: ...
    async def changed(self, after: int, limit: int = TOKEN_PAGE) -> TokenPage:
        """Tokens whose generation is above `after`, at most TOKEN_PAGE."""
        ...

    async def beat(self, server: str, confirmed: int) -> int:
        """Register a server with the generation that it has loaded. Returns the current one."""
        ...

    async def behind(self, generation: int) -> list[str]:
        """Servers that have confirmed only an older generation, at most MAX_BEHIND."""
        ...

    async def leave(self, server: str, below: int | None = None) -> None:
        """Forget a server; with `below`, only if the generation that it has confirmed is below this one."""
        ...

    async def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each change from now on, and when an announcement may have been missed."""
        ...

"""Reads whole keys of a store, in steps that do not hold it up. For `fsck`, and for `dueline store accept`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from ...engine.errors import Loading, StoreDown
from ...store_address import Endpoint
from .link import Link, LinkLost, NotNow, WrongKind
from .tls import StoreTls

STEP = "1000"
PATIENCE_S, PAUSE_S = 10.0, 0.1


class StoreReader:
    """Every method may raise StoreDown, Loading, or redis-py's ResponseError."""

    def __init__(self, url: str, tls: StoreTls = StoreTls()) -> None:
        self._link = Link(url, tls=tls)

    async def stop(self) -> None:
        await self._link.stop()

    async def keys(self, pattern: str) -> AsyncIterator[str]:
        """All keys that match, on all primaries. A key whose slot moves meanwhile may come twice, or not at all."""
        for endpoint in await _patiently(self._link.primaries):
            cursor = b"0"
            while True:
                cursor, found = await self._on_node(endpoint, "SCAN", cursor, "MATCH", pattern, "COUNT", STEP)
                for key in found:
                    yield key.decode()
                if cursor == b"0":
                    break

    async def hash(self, key: str) -> dict[bytes, bytes]:
        return dict(await self._pairs("HSCAN", key))

    async def hash_field(self, key: str, field: bytes) -> bytes | None:
        return await self._on_key(key, "HGET", key, field)

    async def sorted_set(self, key: str) -> dict[bytes, float]:
        return {member: float(score) for member, score in await self._pairs("ZSCAN", key)}

    async def list(self, key: str) -> list[bytes]:
        return await self._on_key(key, "LRANGE", key, "0", "-1")

    async def exists(self, key: str) -> bool:
        return bool(await self._on_key(key, "EXISTS", key))

    async def command(self, key: str, *args: Any) -> Any:
        """One command on a key; repeated if the store is away, so it must be safe to repeat."""
        return await self._on_key(key, *args)

    @property
    def is_cluster(self) -> bool:
        return self._link.permanent_keys

    async def _pairs(self, command: str, key: str) -> list[tuple[bytes, bytes]]:
        pairs: list[tuple[bytes, bytes]] = []
        cursor = b"0"
        while True:
            cursor, found = await self._on_key(key, command, key, cursor, "COUNT", STEP)
            pairs += zip(found[::2], found[1::2], strict=True)
            if cursor == b"0":
                return pairs

    async def _on_key(self, key: str, *args: Any) -> Any:
        return await _patiently(lambda: self._link.call(key, *args))

    async def _on_node(self, endpoint: Endpoint, *args: Any) -> Any:
        return await _patiently(lambda: self._link.call_node(endpoint, *args))


async def _patiently(call: Callable[[], Awaitable[Any]]) -> Any:
    """The result of a reading call, repeated for a while if the store is away."""
    clock = asyncio.get_running_loop().time
    until_s = clock() + PATIENCE_S
    while True:
        try:
            return await call()
        except WrongKind as error:
            raise StoreDown(str(error)) from None
        except (LinkLost, NotNow) as error:
            refused = error.refused_s is not None
            if clock() > until_s or refused:
                raise (Loading() if error.loading else StoreDown(str(error))) from None
        await asyncio.sleep(PAUSE_S)

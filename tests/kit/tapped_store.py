"""A store whose calls a test can hold up, change or lose on their way."""

from __future__ import annotations

from typing import Any

import redis.asyncio as redis

from dueline.store.valkey.link import link_for
from dueline.store.valkey.store import ValkeyStore


class TappedLink:
    """A link whose `call` a test may replace; `through` is the way to the store."""

    def __init__(self, url: str, reply_timeout_s: float) -> None:
        self._link = link_for(url, reply_timeout_s)
        self.permanent_keys = self._link.permanent_keys
        self.through = self._link.call

    async def call(self, key: str, *args: Any) -> Any:
        return await self.through(key, *args)

    async def start(self) -> None:
        await self._link.start()

    async def stop(self) -> None:
        await self._link.stop()

    def subscriber(self, channel: str) -> tuple[str, redis.Redis]:
        return self._link.subscriber(channel)


class TappedStore(ValkeyStore):
    """`store.link.call = ...` replaces what a call does."""

    def __init__(self, url: str, *, reply_timeout_s: float = 2.5, **options: Any) -> None:
        self.link = TappedLink(url, reply_timeout_s)
        super().__init__(url, link=self.link, reply_timeout_s=reply_timeout_s, **options)

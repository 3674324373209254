"""A client on a store instead of a server: its calls go to the native API in this process (worker.direct)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from msgspec import Raw

from ..api.reply import Reply
from ..client import Client, Patience
from ..client.address import shown
from ..client.calls import Answer, Call
from ..client.errors import Unavailable, Unreachable
from ..client.in_process import InProcessClient
from ..worker.direct import DirectQueue

T = TypeVar("T")

ONE_TRY = Patience(deadline_s=0.0)


class StoreClient(Client):
    """One namespace of the store at `url`, used from one thread. It connects at the first call."""

    def __init__(self, url: str, namespace: str | None, patience: Patience) -> None:
        self._shown = shown(url)
        self._queue = DirectQueue(url, namespace or "default", ONE_TRY)
        self._local = InProcessClient(self.answer, patience)
        self._runner = asyncio.Runner()

    @property
    def url(self) -> str:
        """The store's address, safe to print."""
        return self._shown

    def close(self) -> None:
        """Disconnect, and stop an embedded store that was started here."""
        self.run(self._queue.close())
        self._runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the queue's event loop."""
        return self._runner.run(work)

    def call(self, call: Call[T]) -> Answer[T]:
        return self.run(self._local.call(call))

    async def answer(self, call: Call[Any]) -> Reply:
        """One try. Raises DuelineApiError if the store cannot be used."""
        try:
            await self._queue.start()
        except Unavailable as down:
            raise Unreachable("unreachable", f"no store answers at {self._shown}: {down.message}") from down
        return await self._queue.answer(call)


class StoreTarget:
    """A load generator's target (bench_target.Target). All its connections share one store client."""

    def __init__(self, client: StoreClient) -> None:
        self._client = client

    async def connect(self) -> StoreTarget:
        return self

    async def ask(self, topic: str, operation: str, body: bytes) -> tuple[int, bytes]:
        reply = await self._client.answer(Call(operation, object, (topic,), Raw(body)))
        return reply.status, reply.json

    def close(self) -> None:
        """The client stays open."""

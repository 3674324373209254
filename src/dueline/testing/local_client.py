"""Clients whose server is in this process: the real API, in virtual time, without a socket.

A failed call is retried by the same rules as any client's (`client.patience`), in virtual time.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from ..client.async_client import AsyncClient
from ..client.calls import Answer, Call
from ..client.client import Client
from ..client.in_process import Ask, InProcessClient
from ..client.patience import Patience
from .virtual_loop import VirtualLoop

T = TypeVar("T")

URL = "http://virtual-queue"
UNJITTERED = Patience(jitter=0)  # makes tests repeatable


class LocalAsyncClient(AsyncClient):
    """An AsyncClient whose server is in this process, usable in every event loop. For tests only."""

    def __init__(self, loop: VirtualLoop, ask: Ask, patience: Patience = UNJITTERED) -> None:
        super().__init__(URL, patience=patience)
        self._loop = loop
        self._local = InProcessClient(ask, patience)

    async def call(self, call: Call[T]) -> Answer[T]:
        """The answer. Raises a DuelineApiError when the call ends without success."""
        if self._loop.inside:
            return await self._local.call(call)
        return await asyncio.to_thread(answer_of, self._loop, self._local, call)


class LocalClient(Client):
    """A Client whose server is in this process. For tests only."""

    def __init__(self, loop: VirtualLoop, ask: Ask, patience: Patience = UNJITTERED) -> None:
        super().__init__(URL, patience=patience)
        self._loop = loop
        self._local = InProcessClient(ask, patience)

    def call(self, call: Call[T]) -> Answer[T]:
        """The answer. Raises a DuelineApiError when the call ends without success."""
        return answer_of(self._loop, self._local, call)

    def now_ns(self) -> int:
        """The virtual time since the queue was opened."""
        return round(self._loop.time() * 1e6) * 1000


def answer_of(loop: VirtualLoop, client: InProcessClient, call: Call[T]) -> Answer[T]:
    """Make the call from a thread. When it returns, all its immediate consequences have happened."""
    if loop.inside:
        raise RuntimeError("a coroutine on the queue's event loop must use the async client and await it")
    running = asyncio.run_coroutine_threadsafe(client.call(call), loop)
    return loop.settled(running, may_wait=call.wait_ms > 0)

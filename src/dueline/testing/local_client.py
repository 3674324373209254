"""Clients whose server is in this process: real requests and the real API, without a socket.

A failed call is retried by the same rules as any client's (`client.patience`), in virtual time.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from ..client.async_client import AsyncClient
from ..client.calls import Answer, Call, headers_of, read_answer
from ..client.client import Client
from ..client.errors import DuelineApiError
from ..client.patience import Patience, Tries
from ..dialects.http import Request
from ..server.router import Router
from .virtual_loop import VirtualLoop

T = TypeVar("T")

URL = "http://virtual-queue"
UNJITTERED = Patience(jitter=0)  # makes tests repeatable


class Local:
    """Answers calls on the virtual loop."""

    def __init__(self, loop: VirtualLoop, router: Router, namespace: str, patience: Patience) -> None:
        self.loop = loop
        self._router = router
        self._namespace = namespace
        self._patience = patience

    async def answer(self, call: Call[T]) -> Answer[T]:
        """Make one call with its retries, on the virtual loop."""
        tries, begin_s = Tries(self._patience, call, 0.0), self.loop.time()
        while True:
            try:
                return tries.answered(await self._try(call))
            except DuelineApiError as error:
                wait_s = tries.wait_s(error, self.loop.time() - begin_s)
            await asyncio.sleep(wait_s)

    async def _try(self, call: Call[T]) -> Answer[T]:
        path, _, query = call.path.partition("?")
        headers = {name.lower(): value for name, value in headers_of(call, self._namespace, None).items()}
        found = self._router.find(call.method, path)
        request = Request(call.method, path, query, headers, call.body or b"", found.params)
        response = await self._router.respond(found, request)
        answered = {name.lower(): value for name, value in response.headers}
        return read_answer(call, response.status, answered, response.body)

    def wait(self, call: Call[T]) -> Answer[T]:
        """Make the call from a thread. When it returns, all its immediate consequences have happened."""
        if self.loop.inside:
            raise RuntimeError("a coroutine on the queue's event loop must use the async client and await it")
        running = asyncio.run_coroutine_threadsafe(self.answer(call), self.loop)
        return self.loop.settled(running, may_wait=call.wait_ms > 0)


class LocalClient(Client):
    """A Client whose server is in this process. For tests only."""

    def __init__(
        self, loop: VirtualLoop, router: Router, namespace: str = "default", patience: Patience = UNJITTERED
    ) -> None:
        super().__init__(URL, namespace, patience=patience)
        self._local = Local(loop, router, namespace, patience)

    def call(self, call: Call[T]) -> Answer[T]:
        """The answer. Raises a DuelineApiError when the call ends without success."""
        return self._local.wait(call)

    def now_ns(self) -> int:
        """The virtual time since the queue was opened."""
        return round(self._local.loop.time() * 1e6) * 1000


class LocalAsyncClient(AsyncClient):
    """An AsyncClient whose server is in this process, usable in every event loop. For tests only."""

    def __init__(
        self, loop: VirtualLoop, router: Router, namespace: str = "default", patience: Patience = UNJITTERED
    ) -> None:
        super().__init__(URL, namespace, patience=patience)
        self._local = Local(loop, router, namespace, patience)

    async def call(self, call: Call[T]) -> Answer[T]:
        """The answer. Raises a DuelineApiError when the call ends without success."""
        if self._local.loop.inside:
            return await self._local.answer(call)
        return await asyncio.to_thread(self._local.wait, call)

"""A client on a store instead of a server: its calls go to the native handlers in this process (server.direct).

Every command works on a store as on a server, because calls and answers are the same bytes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from ..client import Client, DuelineApiError, Patience
from ..client.address import shown
from ..client.calls import Answer, Call, headers_of, read_answer
from ..client.errors import Unavailable, Unreachable
from ..client.patience import Tries
from ..server.direct import DirectApi
from ..worker.direct import DirectQueue

T = TypeVar("T")

ONE_TRY = Patience(deadline_s=0.0)


class StoreClient(Client):
    """One namespace of the store at `url`, used from one thread. It connects at the first call."""

    def __init__(self, url: str, namespace: str | None, patience: Patience) -> None:
        self._shown = shown(url)
        self._namespace = namespace
        self._patience = patience
        self._queue = DirectQueue(url, namespace or "default", ONE_TRY)
        self._api: DirectApi | None = None
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
        return self.run(self._call(call))

    async def _call(self, call: Call[T]) -> Answer[T]:
        tries, begin_s = Tries(self._patience, call, 0.0), time.monotonic()
        while True:
            try:
                status, headers, body = await self.exchange(call)
                return tries.answered(read_answer(call, status, headers, body))
            except DuelineApiError as error:
                wait_s = tries.wait_s(error, time.monotonic() - begin_s)
            await asyncio.sleep(wait_s)

    async def exchange(self, call: Call[Any]) -> tuple[int, dict[str, str], bytes]:
        """One try: the answer's status, headers and body. Raises DuelineApiError if the store cannot be used."""
        if self._api is None:
            try:
                await self._queue.start()
            except Unavailable as down:
                raise Unreachable("unreachable", f"no store answers at {self._shown}: {down.message}") from down
            self._api = DirectApi(*self._queue.opened(), self._shown)
        headers = headers_of(call, self._namespace, None)
        response = await self._api.answer(call.method, call.path, headers, call.body or b"")
        return response.status, dict(response.headers), response.body


class StoreTarget:
    """A load generator's target (bench_target.Target). All its connections share one store client."""

    def __init__(self, client: StoreClient) -> None:
        self._client = client

    async def connect(self) -> StoreTarget:
        return self

    def request(self, call: Call[Any]) -> Call[Any]:
        return call

    async def ask(self, request: Call[Any]) -> tuple[int, bytes]:
        status, _, body = await self._client.exchange(request)
        return status, body

    def close(self) -> None:
        """The client stays open."""

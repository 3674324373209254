"""The async client: keep-alive connections on asyncio, shared by tasks, and the retry loop of a call.

It differs from `client` only in sockets, sleeping and waiting. When a task is cancelled during its call, the connection
is closed, because a late answer must not be read as the answer to the next request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from ..http1.messages import BadResponse, Response
from .address import Address, log, using
from .api import Api
from .async_connection import AsyncConnection, reach
from .calls import Answer, Call, read_answer
from .client import DEFAULT_TIMEOUT_S
from .connection import exchange_error, secured
from .errors import DuelineApiError
from .idle_connections import IdleConnections
from .method import Pages, Plan
from .patience import Patience
from .retrying import retried
from .servers import Servers, servers_of
from .tracing import span_of

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")

MAX_CONNECTIONS = 100


class AsyncClient(Api):
    """A client for asyncio programs. Tasks may share one: each call has a connection to itself.

        async with AsyncClient("http://127.0.0.1:9277") as client:
            await client.send("orders.close", {"order": 7}, delay="30m")

    The first call opens the first connection. `close` may be called at any time and more than once. In another event
    loop, the client opens new connections."""

    def __init__(
        self,
        url: str | None = None,
        namespace: str | None = None,
        token: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        patience: Patience = Patience(),
        tls: ssl.SSLContext | None = None,
        max_connections: int = MAX_CONNECTIONS,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`url`, `namespace` and `token` default to DUELINE_URL, DUELINE_NAMESPACE and DUELINE_TOKEN. `url` may name
        several servers, separated by commas.

        `timeout_s` limits one try (a pull adds its `wait`); `patience` sets how long and how often to retry.
        At most `max_connections` calls run at a time and the others wait; pulls with a `wait` are not counted."""
        self.servers: Servers = servers_of(url, namespace, token)
        log.info(using(self.url))
        self._timeout_s = timeout_s
        self._patience = patience
        self._tls = tls
        self._max_connections = max_connections
        self._sleep = sleep
        self._pool: _Pool | None = None

    @property
    def url(self) -> str:
        return self.servers.url

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections that are not in use."""
        if self._pool is not None:
            self._pool.idle.close()

    async def do(self, plan: Plan[T]) -> T:
        """Execute a method of `api` and return its result."""
        if isinstance(plan, Call):
            return (await self.call(plan)).value
        try:
            ask = next(plan)
            while True:
                try:
                    value = (await self.call(ask)).value
                except DuelineApiError as error:
                    ask = plan.throw(error)
                else:
                    ask = plan.send(value)
        except StopIteration as done:
            return done.value

    async def walk(self, pages: Pages[T]) -> AsyncIterator[T]:
        """The rows of all pages."""
        cursor: str | None = None
        while True:
            page = (await self.call(pages.at(cursor))).value
            for row in pages.rows(page):
                yield row
            cursor = page.next_cursor
            if cursor is None:
                return

    async def call(self, call: Call[T]) -> Answer[T]:
        """Execute a call, retrying where that is safe. Raises DuelineApiError when it fails."""
        span = span_of(call)
        if span is None:
            return await self._answer(call)
        with span as call:
            return span.answered(await self._answer(call))

    async def _answer(self, call: Call[T]) -> Answer[T]:
        """Execute a call, without a span."""
        pool = self._pool_here()
        if call.wait_ms:
            return await self._tried(pool, call)
        async with pool.places:
            return await self._tried(pool, call)

    async def _tried(self, pool: _Pool, call: Call[T]) -> Answer[T]:
        async def once(call: Call[T], timeout_s: float) -> Answer[T]:
            address = self.servers.current(pool.loop.time())
            try:
                response = await self._exchange(pool, address, address.request(call), timeout_s)
                return read_answer(call, response.status, response.headers, response.body)
            except DuelineApiError as error:
                self.servers.failed(address, error, pool.loop.time())
                raise

        return await retried(once, call, self._patience, self._timeout_s, self._sleep, self.servers.count)

    async def _exchange(self, pool: _Pool, address: Address, request: bytes, timeout_s: float) -> Response:
        """One try on one connection, which is kept only after a complete answer."""
        connection: AsyncConnection | None = None
        kept = False
        try:
            async with asyncio.timeout(timeout_s):
                connection = pool.idle.take(address) or await self._connected(address, timeout_s)
                response = await connection.exchange(request)
            kept = response.reusable
            return response
        except (OSError, BadResponse) as error:
            raise exchange_error(address.url, error, timeout_s, connection is not None) from error
        finally:
            if connection is not None:
                pool.idle.give(address, connection) if kept else connection.close()

    async def _connected(self, address: Address, timeout_s: float) -> AsyncConnection:
        if address.secure:
            self._tls = secured(self._tls)
        return await reach(address, self.servers.connect_s(timeout_s), self._tls)

    def _pool_here(self) -> _Pool:
        """The connections of this event loop. Those of another loop cannot be used here; it may even be closed."""
        loop = asyncio.get_running_loop()
        if self._pool is None or self._pool.loop is not loop:
            if self._pool is not None:
                self._pool.idle.close()
            self._pool = _Pool(loop, self._max_connections)
        return self._pool


class _Pool:
    """The connections of one event loop: the idle ones, and places for those in use."""

    def __init__(self, loop: asyncio.AbstractEventLoop, max_connections: int) -> None:
        self.loop = loop
        self.places = asyncio.Semaphore(max_connections)
        self.idle: IdleConnections[AsyncConnection] = IdleConnections()

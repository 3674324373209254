"""The async client: keep-alive connections on asyncio, shared by tasks, and the retry loop of a call.

It differs from `client` only in sockets, sleeping and waiting. When a task is cancelled during its call, the connection
is closed, because a late answer must not be read as the answer to the next request.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from .address import address_of, log, using
from .api import Api
from .async_connection import AsyncConnection, connect
from .calls import Answer, Call, read_answer
from .client import DEFAULT_TIMEOUT_S
from .connection import connect_error, exchange_error, secured
from .errors import DuelineApiError
from .http1 import BadAnswer, Response
from .method import Pages, Plan
from .patience import Patience
from .retrying import retried

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
        """`url`, `namespace` and `token` default to DUELINE_URL, DUELINE_NAMESPACE and DUELINE_TOKEN.

        `timeout_s` limits one try (a pull adds its `wait`); `patience` sets how long and how often to retry.
        At most `max_connections` calls run at a time and the others wait; pulls with a `wait` are not counted."""
        self._address = address_of(url, namespace, token)
        log.info(using(self._address.url))
        self._timeout_s = timeout_s
        self._patience = patience
        self._tls = tls if self._address.secure else None
        self._max_connections = max_connections
        self._sleep = sleep
        self._pool: _Pool | None = None

    @property
    def url(self) -> str:
        return self._address.url

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections that are not in use."""
        if self._pool is not None:
            self._pool.close()

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
        pool = self._pool_here()
        if call.wait_ms:
            return await self._tried(pool, call)
        async with pool.places:
            return await self._tried(pool, call)

    async def _tried(self, pool: _Pool, call: Call[T]) -> Answer[T]:
        request = self._address.request(call)

        async def once(call: Call[T], timeout_s: float) -> Answer[T]:
            response = await self._exchange(pool, request, timeout_s)
            return read_answer(call, response.status, response.headers, response.body)

        return await retried(once, call, self._patience, self._timeout_s, self._sleep)

    async def _exchange(self, pool: _Pool, request: bytes, timeout_s: float) -> Response:
        """One try on one connection, which is kept only after a complete answer."""
        connection: AsyncConnection | None = None
        kept = False
        try:
            async with asyncio.timeout(timeout_s):
                connection = pool.take() or await self._connected()
                response = await connection.exchange(request)
            kept = response.reusable
            return response
        except (OSError, BadAnswer) as error:
            raise exchange_error(self.url, error, timeout_s, connection is not None) from error
        finally:
            if connection is not None:
                pool.give(connection) if kept else connection.abort()

    async def _connected(self) -> AsyncConnection:
        if self._address.secure:
            self._tls = secured(self._tls)
        try:
            return await connect(self._address.host, self._address.port, self._tls)
        except TimeoutError:
            raise
        except OSError as refused:
            raise connect_error(self.url, refused) from refused

    def _pool_here(self) -> _Pool:
        """The connections of this event loop. Those of another loop cannot be used here; it may even be closed."""
        loop = asyncio.get_running_loop()
        if self._pool is None or self._pool.loop is not loop:
            if self._pool is not None:
                self._pool.close()
            self._pool = _Pool(loop, self._max_connections)
        return self._pool


class _Pool:
    """The idle connections of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, max_connections: int) -> None:
        self.loop = loop
        self.places = asyncio.Semaphore(max_connections)
        self._idle: deque[AsyncConnection] = deque()

    def take(self) -> AsyncConnection | None:
        """The most recently used idle connection that still looks usable."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable():
                return connection
            connection.abort()
        return None

    def give(self, connection: AsyncConnection) -> None:
        connection.idle_since_s = time.monotonic()
        self._idle.append(connection)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().abort()

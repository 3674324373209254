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

from .address import Address, address_of, log, using
from .api import Api
from .calls import Answer, Call, read_answer
from .client import DEFAULT_TIMEOUT_S, IDLE_S, connect_error, reason_of, secured
from .errors import DuelineApiError, ServerFault, UnknownOutcome, Unreachable
from .http1 import BadAnswer, Response, ResponseReader
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
        link: _Link | None = None
        kept = False
        try:
            async with asyncio.timeout(timeout_s):
                link = pool.take() or await self._connected()
                response = await link.exchange(request)
            kept = response.reusable
            return response
        except TimeoutError as late:
            if link is None:
                raise Unreachable("unreachable", f"{self.url} was not reached within {timeout_s:g} s") from late
            raise UnknownOutcome("unknown_outcome", f"{self.url} did not answer within {timeout_s:g} s") from late
        except OSError as lost:
            raise UnknownOutcome(
                "unknown_outcome", f"the connection to {self.url} broke before the answer came: {reason_of(lost)}"
            ) from lost
        except BadAnswer as wrong:
            raise ServerFault("bad_answer", f"{wrong}. Is {self.url} the address of a Dueline server?") from wrong
        finally:
            if link is not None:
                pool.give(link) if kept else link.abort()

    async def _connected(self) -> _Link:
        if self._address.secure:
            self._tls = secured(self._tls)
        try:
            return await _connect(self._address, self._tls)
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
        self._idle: deque[_Link] = deque()

    def take(self) -> _Link | None:
        """The most recently used idle connection that still looks usable."""
        while self._idle:
            link = self._idle.pop()
            if link.usable():
                return link
            link.abort()
        return None

    def give(self, link: _Link) -> None:
        link.idle_since_s = time.monotonic()
        self._idle.append(link)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().abort()


class _Link(asyncio.Protocol):
    """One open connection with at most one outstanding request."""

    def __init__(self) -> None:
        self.idle_since_s = 0.0
        self._transport: asyncio.Transport | None = None
        self._reader: ResponseReader | None = None
        self._answer: asyncio.Future[Response] | None = None
        self._lost: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._reader is None:
            self.abort()  # data without a request
            return
        try:
            response = self._reader.feed(data)
        except BadAnswer as wrong:
            self._fail(wrong)
        else:
            self._finish(response)

    def eof_received(self) -> bool:
        if self._reader is not None:
            self._finish(self._reader.end())
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = exc or ConnectionResetError("the server closed the connection")
        self._fail(self._lost)

    async def exchange(self, request: bytes) -> Response:
        """Send a request and wait for its answer. Raises OSError and BadAnswer."""
        if self._lost is not None or self._transport is None:
            raise self._lost or ConnectionResetError("the connection is closed")
        self._reader = ResponseReader()
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def usable(self) -> bool:
        """Whether it may carry a request. The event loop reports when the server closes it."""
        fresh = time.monotonic() - self.idle_since_s <= IDLE_S
        return fresh and self._lost is None and self._transport is not None and not self._transport.is_closing()

    def abort(self) -> None:
        """Close at once, in any state, without reading what the server still sends."""
        if self._transport is None:
            return
        try:
            self._transport.abort()
        except RuntimeError:  # its loop is closed; garbage collection closes the socket
            pass

    def _finish(self, response: Response | None) -> None:
        if response is None:
            return
        answer, self._answer, self._reader = self._answer, None, None
        if answer is not None and not answer.done():
            answer.set_result(response)

    def _fail(self, error: Exception) -> None:
        answer, self._answer, self._reader = self._answer, None, None
        if answer is not None and not answer.done():
            answer.set_exception(error)


async def _connect(address: Address, tls: ssl.SSLContext | None) -> _Link:
    """Connect. Raises OSError."""
    _, link = await asyncio.get_running_loop().create_connection(
        _Link,
        address.host,
        address.port,
        ssl=tls,
        server_hostname=address.host if tls is not None else None,
    )
    return link

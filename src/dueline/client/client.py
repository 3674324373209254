"""The sync client: keep-alive connections on plain sockets, shared by threads, and the retry loop of a call.

It only does I/O. `api` and `calls` build requests and read answers, `http1` parses the bytes, and `patience` decides
whether to retry.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from ..http1.messages import BadResponse, Response
from .address import Address, log, using
from .api import Api
from .calls import Answer, Call, read_answer
from .connection import Connection, connect_error, exchange_error, secured
from .errors import DuelineApiError
from .idle_connections import IdleConnections
from .method import Pages, Plan
from .patience import Patience, Tries
from .servers import servers_of
from .tracing import span_of

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")

DEFAULT_TIMEOUT_S = 10.0


class Client(Api):
    """A client for programs without asyncio. Threads may share one: each call has a connection to itself.

        with Client("http://127.0.0.1:9277") as client:
            client.send("orders.close", {"order": 7}, delay="30m")

    The first call opens the first connection. `close` may be called at any time and more than once. After a fork, the
    child opens its own connections."""

    def __init__(
        self,
        url: str | None = None,
        namespace: str | None = None,
        token: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        patience: Patience = Patience(),
        tls: ssl.SSLContext | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`url`, `namespace` and `token` default to DUELINE_URL, DUELINE_NAMESPACE and DUELINE_TOKEN. `url` may name
        several servers, separated by commas.

        `timeout_s` limits one try (a pull adds its `wait`); `patience` sets how long and how often to retry."""
        self._servers = servers_of(url, namespace, token)
        log.info(using(self.url))
        self._timeout_s = timeout_s
        self._patience = patience
        self._tls = tls
        self._sleep = sleep
        self._connections: IdleConnections[Connection] = IdleConnections()
        self._pid = os.getpid()

    @property
    def url(self) -> str:
        return self._servers.url

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that are not in use."""
        self._idle().close()

    def do(self, plan: Plan[T]) -> T:
        """Execute a method of `api` and return its result."""
        if isinstance(plan, Call):
            return self.call(plan).value
        try:
            ask = next(plan)
            while True:
                try:
                    value = self.call(ask).value
                except DuelineApiError as error:
                    ask = plan.throw(error)
                else:
                    ask = plan.send(value)
        except StopIteration as done:
            return done.value

    def walk(self, pages: Pages[T]) -> Iterator[T]:
        """The rows of all pages."""
        cursor: str | None = None
        while True:
            page = self.call(pages.at(cursor)).value
            yield from pages.rows(page)
            cursor = page.next_cursor
            if cursor is None:
                return

    def call(self, call: Call[T]) -> Answer[T]:
        """Execute a call, retrying where that is safe. Raises DuelineApiError when it fails."""
        span = span_of(call)
        if span is None:
            return self._tried(call)
        with span as call:
            return span.answered(self._tried(call))

    def _tried(self, call: Call[T]) -> Answer[T]:
        begin_s = time.monotonic()
        tries = Tries(self._patience, call, self._timeout_s, self._servers.count)
        while True:
            address = self._servers.current(time.monotonic())
            try:
                response = self._exchange(address, address.request(call), tries.timeout_s(time.monotonic() - begin_s))
                return tries.answered(read_answer(call, response.status, response.headers, response.body))
            except DuelineApiError as error:
                self._servers.failed(address, error, time.monotonic())
                wait_s = tries.wait_s(error, time.monotonic() - begin_s)
            if wait_s:
                self._sleep(wait_s)

    def _exchange(self, address: Address, request: bytes, timeout_s: float) -> Response:
        """One try on one connection, which is kept only after a complete answer."""
        deadline_s = time.monotonic() + timeout_s
        connection = self._connected(address, timeout_s)
        kept = False
        try:
            response = connection.exchange(request, deadline_s)
            kept = response.reusable
            return response
        except (OSError, BadResponse) as error:
            raise exchange_error(address.url, error, timeout_s) from error
        finally:
            if kept:
                self._idle().give(address, connection)
            else:
                connection.close()

    def _connected(self, address: Address, timeout_s: float) -> Connection:
        """An idle connection to the address that still looks usable, or a new one."""
        if (connection := self._idle().take(address)) is not None:
            return connection
        if address.secure:
            self._tls = secured(self._tls)
        tls, limit_s = self._tls if address.secure else None, self._servers.connect_s(timeout_s)
        try:
            return Connection(address.host, address.port, limit_s, tls)
        except OSError as refused:
            raise connect_error(address.url, refused) from refused

    def _idle(self) -> IdleConnections[Connection]:
        """The idle connections of this process. Those inherited from a parent process are never used."""
        if self._pid != os.getpid():
            self._connections, self._pid = IdleConnections(), os.getpid()
        return self._connections

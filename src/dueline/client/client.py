"""The sync client: keep-alive connections on plain sockets, shared by threads, and the retry loop of a call.

It only does I/O. `api` and `calls` build requests and read answers, `http1` parses the bytes, and `patience` decides
whether to retry.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from .address import Address, address_of, log, using
from .api import Api
from .calls import Answer, Call, read_answer
from .errors import DuelineApiError, ServerFault, UnknownOutcome, Unreachable
from .http1 import BadAnswer, Response, ResponseReader
from .method import Pages, Plan
from .patience import Patience, Tries

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")

DEFAULT_TIMEOUT_S = 10.0
IDLE_S = 50.0  # idle connections older than this are dropped: a NAT or proxy in between may have forgotten them
_READ_BYTES = 262_144


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
        """`url`, `namespace` and `token` default to DUELINE_URL, DUELINE_NAMESPACE and DUELINE_TOKEN.

        `timeout_s` limits one try (a pull adds its `wait`); `patience` sets how long and how often to retry."""
        self._address = address_of(url, namespace, token)
        log.info(using(self._address.url))
        self._timeout_s = timeout_s
        self._patience = patience
        self._tls = tls if self._address.secure else None
        self._sleep = sleep
        self._idle: deque[_Connection] = deque()
        self._pid = os.getpid()

    @property
    def url(self) -> str:
        return self._address.url

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that are not in use."""
        while (connection := self._pop()) is not None:
            connection.close()

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
        tries, begin_s = Tries(self._patience, call, self._timeout_s), time.monotonic()
        request = self._address.request(call)
        while True:
            try:
                response = self._exchange(request, tries.timeout_s(time.monotonic() - begin_s))
                return tries.answered(read_answer(call, response.status, response.headers, response.body))
            except DuelineApiError as error:
                wait_s = tries.wait_s(error, time.monotonic() - begin_s)
            self._sleep(wait_s)

    def _exchange(self, request: bytes, timeout_s: float) -> Response:
        """One try on one connection, which is kept only after a complete answer."""
        deadline_s = time.monotonic() + timeout_s
        connection = self._connected(timeout_s)
        kept = False
        try:
            response = connection.exchange(request, deadline_s)
            kept = response.reusable
            return response
        except TimeoutError as late:
            raise UnknownOutcome("unknown_outcome", f"{self.url} did not answer within {timeout_s:g} s") from late
        except OSError as lost:
            raise UnknownOutcome(
                "unknown_outcome", f"the connection to {self.url} broke before the answer came: {reason_of(lost)}"
            ) from lost
        except BadAnswer as wrong:
            raise ServerFault("bad_answer", f"{wrong}. Is {self.url} the address of a Dueline server?") from wrong
        finally:
            if kept:
                connection.idle_since_s = time.monotonic()
                self._idle.append(connection)
            else:
                connection.close()

    def _connected(self, timeout_s: float) -> _Connection:
        """An idle connection that still looks usable, or a new one."""
        while (connection := self._pop()) is not None:
            if connection.usable():
                return connection
            connection.close()
        if self._address.secure:
            self._tls = secured(self._tls)
        try:
            return _Connection(self._address, timeout_s, self._tls)
        except OSError as refused:
            raise connect_error(self.url, refused) from refused

    def _pop(self) -> _Connection | None:
        """The most recently used idle connection. Connections inherited from a parent process are never used."""
        if self._pid != os.getpid():
            self._idle, self._pid = deque(), os.getpid()
        try:
            return self._idle.pop()
        except IndexError:
            return None


class _Connection:
    """One open socket."""

    def __init__(self, address: Address, timeout_s: float, tls: ssl.SSLContext | None) -> None:
        """Connect. Raises OSError."""
        self.idle_since_s = 0.0
        self._socket = socket.create_connection((address.host, address.port), timeout=timeout_s)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname=address.host)
        except BaseException:
            self._socket.close()
            raise

    def exchange(self, request: bytes, deadline_s: float) -> Response:
        """Send a request and read its answer. Raises OSError (TimeoutError at the deadline) and BadAnswer."""
        self._set_timeout(deadline_s)
        self._socket.sendall(request)
        reader = ResponseReader()
        while True:
            self._set_timeout(deadline_s)
            data = self._socket.recv(_READ_BYTES)
            response = reader.feed(data) if data else reader.end()
            if response is not None:
                return response
            if not data:
                raise ConnectionResetError("the server closed the connection")

    def usable(self) -> bool:
        """Whether it may carry a request. If it is readable before any request, the server has closed or broken it."""
        if time.monotonic() - self.idle_since_s > IDLE_S:
            return False
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        return not poller.poll(0)

    def close(self) -> None:
        self._socket.close()

    def _set_timeout(self, deadline_s: float) -> None:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._socket.settimeout(left_s)


def secured(tls: ssl.SSLContext | None) -> ssl.SSLContext:
    """The caller's TLS settings, else Python's defaults: certificates and names are checked."""
    if tls is not None:
        return tls
    import ssl

    return ssl.create_default_context()


def connect_error(url: str, refused: OSError) -> DuelineApiError:
    """The error for a failed connect. It is retried, except when the certificate cannot be trusted."""
    if isinstance(refused, ValueError):  # ssl.SSLCertVerificationError is one
        return ServerFault("bad_certificate", f"{url} has no certificate that can be trusted: {reason_of(refused)}")
    return Unreachable("unreachable", f"no server answers at {url}: {reason_of(refused)}")


def reason_of(error: Exception) -> str:
    """A network error in a few words."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__

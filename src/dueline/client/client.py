"""The sync shell: one keep-alive connection over the standard library's http.client, and the retries.

It decides nothing about the API: `calls` builds the request and reads the answer, `retry` says whether to try again.
One client serves one thread at a time.
"""

from __future__ import annotations

import http.client
import os
import select
import ssl
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from .._version import __version__
from .calls import Answer, Call, headers_of, read_answer
from .errors import DuelineApiError, UnknownOutcome, Unreachable
from .retry import Retry, wait_before_retry

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:9277"
DEFAULT_TIMEOUT_S = 30.0


class Client:
    """Talks to one server. Nothing is opened before the first call; `close` may be called at any time, also twice."""

    def __init__(
        self,
        url: str | None = None,
        namespace: str | None = None,
        token: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        retry: Retry = Retry(),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Without `url`, `namespace` or `token`, DUELINE_URL, DUELINE_NAMESPACE and DUELINE_TOKEN decide."""
        self.url = url or os.environ.get("DUELINE_URL") or DEFAULT_URL
        self._address = _split(self.url)
        self._namespace = header_value(namespace or os.environ.get("DUELINE_NAMESPACE"), "namespace")
        self._token = header_value(token or os.environ.get("DUELINE_TOKEN"), "token")
        self._timeout_s = timeout_s
        self._retry = retry
        self._sleep = sleep
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def call(self, call: Call[T]) -> Answer[T]:
        """Do it, trying again where that is safe. Raises a DuelineApiError when it ends without success."""
        tries, waited_s = 0, 0.0
        while True:
            tries += 1
            try:
                return self._once(call)
            except DuelineApiError as error:
                wait_s = wait_before_retry(self._retry, error, tries, waited_s, call.repeatable)
                if wait_s is None:
                    raise
            self._sleep(wait_s)
            waited_s += wait_s

    def ask(self, call: Call[T]) -> T:
        """The typed value of `call`."""
        return self.call(call).value

    def _once(self, call: Call[Any]) -> Answer[Any]:
        connection = self._connected(call)
        headers = headers_of(call, self._namespace, self._token)
        headers["User-Agent"] = f"dueline/{__version__}"
        try:
            connection.request(call.method, self._address.path.rstrip("/") + call.path, call.body, headers)
            response = connection.getresponse()
            raw = response.read()
        except (OSError, http.client.HTTPException) as lost:
            self.close()
            raise UnknownOutcome(
                "unknown_outcome", f"the connection to {self.url} broke before the answer came: {_reason(lost)}"
            ) from lost
        if response.will_close:
            self.close()
        return read_answer(call, response.status, {k.lower(): v for k, v in response.getheaders()}, raw)

    def _connected(self, call: Call[Any]) -> http.client.HTTPConnection:
        """An open connection with the deadline of this call."""
        timeout_s = self._timeout_s + call.wait_ms / 1000
        if self._connection is not None and _is_stale(self._connection):
            self.close()
        if self._connection is None:
            connection = self._open()
            try:
                connection.connect()
            except OSError as refused:
                connection.close()
                raise Unreachable("unreachable", f"no server answers at {self.url}: {_reason(refused)}") from refused
            self._connection = connection
        self._connection.sock.settimeout(timeout_s)
        return self._connection

    def _open(self) -> http.client.HTTPConnection:
        host, port = self._address.hostname or "", self._address.port
        if self._address.scheme == "https":
            return http.client.HTTPSConnection(
                host, port, timeout=self._timeout_s, context=ssl.create_default_context()
            )
        return http.client.HTTPConnection(host, port, timeout=self._timeout_s)


def _split(url: str) -> SplitResult:
    """The parts of a server's address; raises ValueError that says what is wrong with it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f'"{url}" is not the address of a server: write it like {DEFAULT_URL}')
    if parts.username is not None or parts.password is not None:
        raise ValueError("no user or password in the URL: tokens come from DUELINE_TOKEN or a file")
    if parts.query or parts.fragment:
        raise ValueError(f'"{url}" has a query or a fragment: write it like {DEFAULT_URL}')
    _ = parts.port  # raises ValueError when it is not a port
    return parts


def header_value(text: str | None, name: str) -> str | None:
    """The text if it can stand in a header; raises ValueError otherwise, so that nothing can be injected."""
    if text is not None and not (text.isascii() and text.isprintable()):
        raise ValueError(f"the {name} has a character that cannot stand in a header")
    return text


def _is_stale(connection: http.client.HTTPConnection) -> bool:
    """Whether the server closed an idle connection: bytes or an end before any request can only mean that."""
    if connection.sock is None:
        return True
    poller = select.poll()
    poller.register(connection.sock, select.POLLIN)
    return bool(poller.poll(0))


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__

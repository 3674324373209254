"""One blocking HTTP/1.1 connection, and the errors of all connections. `http1.messages` writes and parses the bytes.

A connection has at most one outstanding request. It may be used again only after a complete answer that allows it
(`Response.reusable`), because a late answer must not be read as the answer to the next request.
"""

from __future__ import annotations

import select
import socket
import time
from typing import TYPE_CHECKING

from ..http1.messages import IDLE_S, BadResponse, Response, ResponseReader
from .errors import DuelineApiError, ServerFault, UnknownOutcome, Unreachable

if TYPE_CHECKING:
    import ssl

_READ_BYTES = 262_144


class Connection:
    """A blocking connection."""

    def __init__(self, host: str, port: int, timeout_s: float, tls: ssl.SSLContext | None = None) -> None:
        """Connect. Raises OSError."""
        self.idle_since_s = 0.0
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        except BaseException:
            self._socket.close()
            raise

    def exchange(self, request: bytes, deadline_s: float) -> Response:
        """Send a request and read its answer. Raises OSError (TimeoutError at the deadline) and BadResponse."""
        self.send(request, deadline_s)
        return self.receive(deadline_s)

    def send(self, request: bytes, deadline_s: float) -> None:
        self._set_timeout(deadline_s)
        self._socket.sendall(request)

    def receive(self, deadline_s: float) -> Response:
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


def exchange_error(url: str, error: Exception, timeout_s: float, connected: bool = True) -> DuelineApiError:
    """The API's error for a failed exchange: whether the request was certainly not sent, or its outcome is unknown."""
    if isinstance(error, BadResponse):
        return ServerFault("bad_answer", f"{error}. Is {url} the address of a Dueline server?")
    if not isinstance(error, TimeoutError):
        message = f"the connection to {url} broke before the answer came: {reason_of(error)}"
        return UnknownOutcome("unknown_outcome", message)
    if connected:
        return UnknownOutcome("unknown_outcome", f"{url} did not answer within {timeout_s:g} s")
    return Unreachable("unreachable", f"{url} was not reached within {timeout_s:g} s")


def connect_error(url: str, refused: OSError) -> DuelineApiError:
    """The error for a failed connect. It is retried, except when the certificate cannot be trusted."""
    if isinstance(refused, ValueError):  # ssl.SSLCertVerificationError is one
        return ServerFault("bad_certificate", f"{url} has no certificate that can be trusted: {reason_of(refused)}")
    return Unreachable("unreachable", f"no server answers at {url}: {reason_of(refused)}")


def reason_of(error: Exception) -> str:
    """A network error in a few words."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def secured(tls: ssl.SSLContext | None) -> ssl.SSLContext:
    """The caller's TLS settings, else Python's defaults: certificates and names are checked."""
    if tls is not None:
        return tls
    import ssl

    return ssl.create_default_context()

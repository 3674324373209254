"""TLS between a socket's transport and a Connection, as a protocol to the one and a transport to the other.

    socket transport  <->  TlsTransport  <->  Connection

The TLS of asyncio and uvloop keeps buffers of its own, which hide when an answer did not reach the kernel. Here each
write is encrypted and handed to the socket's transport at once, and its pause and resume go straight to the
connection. So a connection learns the same with and without TLS: "not paused" means that the kernel has everything.

Each connection takes the context that is current when it is accepted, and keeps it. Reloading a certificate affects
only new connections.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from ..dialects.http import plain_error
from .client_addresses import Admission
from .connection import Connection
from .deadlines import NEVER
from .gate import host_of

if TYPE_CHECKING:
    from .front import Front

READ_BYTES = 256 * 1024


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """One client. Its Connection is made after the handshake."""

    def __init__(self, front: Front, context: ssl.SSLContext) -> None:
        super().__init__()
        self._front = front
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._socket: asyncio.Transport | None = None
        self._admission: Admission | None = None
        self._begun_s = 0.0
        self._connection: Connection | None = None
        self._ended = False  # the client sends nothing more
        self._closing = False  # we send nothing more
        # used by Deadlines
        self.deadline_s = NEVER
        self.slot = 0

    # -- the socket's calls ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)
        self._admission = self._front.addresses.arrive(host_of(transport), self, shakes_hands=True)
        if not self._front.admit_handshake(self):
            self._socket.abort()
            return
        self._begun_s = asyncio.get_running_loop().time()
        due_s = self._begun_s + self._front.limits.header_timeout_s
        self._front.deadlines.watch(self, due_s)

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return  # nobody reads it any more
        self._incoming.write(data)
        try:
            if self._connection is None:
                self._handshake()
            self._read()
        except ssl.SSLWantReadError:
            self._flush()
        except ssl.SSLError as error:
            self._fail(error)

    def eof_received(self) -> bool:
        self._end()
        return True  # `_end` closes, when the connection has nothing left to send

    def connection_lost(self, exc: Exception | None) -> None:
        self._front.dismiss_handshake(self)
        if self._admission is not None:
            self._front.addresses.leave(self._admission)
        self._socket = None
        if self._connection is not None:
            self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._connection is not None:
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        if self._connection is not None:
            self._connection.resume_writing()

    def overdue(self) -> None:
        """The handshake took too long."""
        self.abort()

    @property
    def idle_since_s(self) -> float:
        """Used by ClientAddresses until the handshake is done."""
        return self._begun_s

    # -- the connection's calls -----------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._socket is None or self._closing:
            return
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._tls.write(rest) :]  # pyright: ignore[reportArgumentType] - takes any buffer
        except ssl.SSLError:
            self.abort()
            return
        self._flush()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        for data in list_of_data:
            self.write(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Send the end of the stream. Data that the client still sends are read."""
        if self._send_close_notify() and self._socket is not None:
            self._socket.write_eof()

    def close(self) -> None:
        self._send_close_notify()
        if self._socket is not None:
            self._socket.close()

    def abort(self) -> None:
        if self._socket is not None:
            self._socket.abort()

    def is_closing(self) -> bool:
        return self._socket is None or self._socket.is_closing()

    def pause_reading(self) -> None:
        if self._socket is not None:
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        if self._socket is not None:
            self._socket.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._socket is not None:
            self._socket.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if self._socket is None else self._socket.get_extra_info(name, default)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _handshake(self) -> None:
        """Raises SSLWantReadError until the client has sent its part."""
        self._tls.do_handshake()
        self._front.dismiss_handshake(self)
        self._connection = Connection(self._front, self._admission)
        self._connection.connection_made(self)
        self._flush()

    def _read(self) -> None:
        """Pass on the received data. Raises SSLWantReadError when there is no more, or another SSLError."""
        assert self._connection is not None
        pieces: list[bytes] = []
        try:
            while piece := self._tls.read(READ_BYTES):
                pieces.append(piece)
        except ssl.SSLZeroReturnError:
            pass
        except ssl.SSLError:
            if pieces:
                self._connection.data_received(b"".join(pieces))
            raise
        if pieces:
            self._connection.data_received(b"".join(pieces))
        self._end()

    def _end(self) -> None:
        """The client has closed its side: of TLS, or of the connection."""
        if self._ended:
            return
        self._ended = True
        if self._connection is None or not self._connection.eof_received():
            self.close()

    def _flush(self) -> None:
        if self._outgoing.pending and self._socket is not None:
            self._socket.write(self._outgoing.read())

    def _send_close_notify(self) -> bool:
        """Send close_notify: the end of our data. False if it was sent before."""
        if self._closing:
            return False
        self._closing = True
        if self._connection is not None:
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                pass  # the client has not sent its own yet; we do not wait for it
        self._flush()
        return True

    def _fail(self, error: ssl.SSLError) -> None:
        """Close, because the client sent something that is not acceptable TLS. Tell it why, if possible."""
        self._flush()
        if error.reason == "HTTP_REQUEST" and self._socket is not None:
            refusal = plain_error(400, "tls_required", "This address speaks HTTPS: write https:// in the URL.")
            now_s = asyncio.get_running_loop().time()
            self._socket.write(self._front.encode_head(refusal, False, False, now_s) + refusal.body)
        if self._socket is not None:
            self._socket.close()

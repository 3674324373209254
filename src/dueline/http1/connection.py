"""One HTTP/1.1 connection on asyncio. `messages` writes and parses the bytes.

A connection has at most one outstanding request. It may be used again only after a complete answer that allows it
(`Response.reusable`).
"""

from __future__ import annotations

import asyncio
import time
from typing import cast

from .messages import IDLE_S, BadResponse, Response, ResponseReader


class AsyncConnection(asyncio.Protocol):
    """A connection. It is made by the event loop's create_connection."""

    def __init__(self, max_idle_s: float = IDLE_S) -> None:
        self.idle_since_s = 0.0
        self._max_idle_s = max_idle_s
        self._transport: asyncio.Transport | None = None
        self._reader: ResponseReader | None = None
        self._answer: asyncio.Future[Response] | None = None
        self._last: Response | None = (
            None  # an answer that `exchange` has not returned yet, or will not because it was cancelled
        )
        self._lost: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its type

    def data_received(self, data: bytes) -> None:
        if self._reader is None:
            self.close()  # data without a request
            return
        try:
            response = self._reader.feed(data)
        except BadResponse as wrong:
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

    async def exchange(self, request: bytes, reader: ResponseReader | None = None) -> Response:
        """Send a request and wait for its answer. Raises OSError and BadResponse."""
        response = await self.send(request, reader)
        self._last = None
        return response

    def send(self, request: bytes, reader: ResponseReader | None = None) -> asyncio.Future[Response]:
        """Send a request. Its answer, read by `reader`, is the result of the future. Raises OSError."""
        if self._lost is not None or self._transport is None:
            raise self._lost or ConnectionResetError("the connection is closed")
        self._reader, self._last = reader or ResponseReader(), None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    async def leave(self, timeout_s: float) -> Response | None:
        """After `exchange` was cancelled: close the writing side, and return the answer if one still comes. The
        connection cannot be used again. Raises OSError and BadResponse."""
        assert self._transport is not None
        if self._last is not None:
            return self._last
        if not self.waiting or not self._transport.can_write_eof():  # TLS has no half-close
            return None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write_eof()
        try:
            async with asyncio.timeout(timeout_s):
                return await self._answer
        except TimeoutError:
            return None

    def usable(self) -> bool:
        """Whether it may carry a request. The event loop reports when the server closes it."""
        return self.open and time.monotonic() - self.idle_since_s <= self._max_idle_s

    @property
    def local_port(self) -> int:
        """Our port, by which the server's side can be found."""
        assert self._transport is not None
        return self._transport.get_extra_info("sockname")[1]

    @property
    def waiting(self) -> bool:
        """Whether the answer to a request has not arrived yet."""
        return self._reader is not None

    @property
    def open(self) -> bool:
        return self._lost is None and self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
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
        self._last = response
        if answer is not None and not answer.done():
            answer.set_result(response)

    def _fail(self, error: Exception) -> None:
        answer, self._answer, self._reader = self._answer, None, None
        if answer is not None and not answer.done():
            answer.set_exception(error)

"""The load generator's HTTP: one keep-alive connection, one request at a time, with minimal overhead.

It is not a general client: it trusts the server's Content-Length and handles no other framing.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from ..client.calls import Call
from ..client.encoding import headers_of, http_request


class Wire(asyncio.Protocol):
    """One connection. `ask` sends a request and waits for its answer."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._waiting: asyncio.Future[tuple[int, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(exc or ConnectionResetError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        head_end = self._buffer.find(b"\r\n\r\n")
        if head_end < 0:
            return
        length = content_length(self._buffer[:head_end])
        end = head_end + 4 + length
        if len(self._buffer) < end:
            return
        answer = (int(self._buffer[9:12]), self._buffer[head_end + 4 : end])
        self._buffer = self._buffer[end:]
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(answer)

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Status and body. Raises ConnectionError when the connection ends first."""
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the server closed the connection")
        self._waiting = asyncio.get_running_loop().create_future()
        transport.write(request)
        return await self._waiting

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def content_length(head: bytes) -> int:
    """The length of the body that follows this head; 0 without a Content-Length."""
    lowered = head.lower()
    at = lowered.find(b"\r\ncontent-length:")
    if at < 0:
        return 0
    end = lowered.find(b"\r\n", at + 2)
    return int(lowered[at + 17 : end if end >= 0 else None])


class Asking(Protocol):
    """Answers requests one at a time: a connection, or a store client in this process."""

    async def ask(self, request: Any) -> tuple[int, bytes]: ...
    def close(self) -> None: ...


class Target(Protocol):
    """The target of the load. `request` builds the argument for `ask`, which may be used many times."""

    async def connect(self) -> Asking: ...
    def request(self, call: Call[Any]) -> Any: ...


class ServerTarget(msgspec.Struct, frozen=True):
    """A server, with the caller's namespace and token."""

    url: str
    namespace: str | None = None
    token: str | None = None

    async def connect(self) -> Wire:
        parts = urlsplit(self.url)
        secure = ssl.create_default_context() if parts.scheme == "https" else None
        port = parts.port or (443 if secure else 80)
        _, wire = await asyncio.get_running_loop().create_connection(Wire, parts.hostname or "", port, ssl=secure)
        return wire

    def request(self, call: Call[Any]) -> bytes:
        """The bytes of a call."""
        parts = urlsplit(self.url)
        method, target, body = http_request(call)
        lines = [f"{method} {parts.path.rstrip('/')}{target} HTTP/1.1", f"Host: {parts.netloc}"]
        lines += [f"{name}: {value}" for name, value in headers_of(body, self.namespace, self.token).items()]
        body = body or b""
        lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body

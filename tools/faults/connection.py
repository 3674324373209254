"""A minimal HTTP client that distinguishes "certainly not done" from "unknown". Loopback only, keep-alive.

The SDK hides failures that a fault test must see, so the load generator uses its own client.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec


class NotSent(Exception):
    """No byte of the request left this process: certainly not done."""


class NoAnswer(Exception):
    """The request was sent, but no complete answer came back: the outcome is unknown."""


class Answer(msgspec.Struct, frozen=True):
    status: int
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body) if self.body else None


class Connection:
    """One keep-alive connection, opened on first use and reopened after every failure. One request at a time."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def request(self, method: str, path: str, body: bytes = b"", timeout_s: float = 5.0) -> Answer:
        """One exchange. Raises NotSent or NoAnswer; the next request then uses a new connection."""
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await self._open()
        except (OSError, TimeoutError) as error:
            raise NotSent(type(error).__name__) from None
        try:
            async with asyncio.timeout(timeout_s):
                writer.write(self._head(method, path, len(body)) + body)
                await writer.drain()
                return await self._read(reader)
        except (OSError, TimeoutError, EOFError, ValueError) as error:
            self.close()
            raise NoAnswer(type(error).__name__) from None
        except asyncio.CancelledError:
            self.close()
            raise

    async def send_only(self, method: str, path: str, body: bytes = b"") -> None:
        """Send a request and disconnect without waiting for the answer, like an impatient client."""
        try:
            _, writer = await self._open()
            writer.write(self._head(method, path, len(body)) + body)
            await writer.drain()
        except OSError:
            pass

    def close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._reader is None or self._writer is None or self._reader.at_eof() or self._writer.is_closing():
            self.close()
            self._reader, self._writer = await asyncio.open_connection(self.host, self.port)
        return self._reader, self._writer

    def _head(self, method: str, path: str, length: int) -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nContent-Length: {length}\r\n"
        return (head + "Content-Type: application/json\r\n\r\n").encode()

    async def _read(self, reader: asyncio.StreamReader) -> Answer:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        status = int(lines[0].split(" ")[1])
        fields = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:]) if k}
        body = await reader.readexactly(int(fields.get("content-length", "0")))
        if fields.get("connection", "").lower() == "close":
            self.close()
        return Answer(status, body)

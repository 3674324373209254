"""The raw HTTP client of tests: sends bytes as they are and reads answers one by one.

It shares no code with the SDK's client, so that both cannot be wrong in the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import ssl
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.kit.waiting import turns


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class RawClient:
    """One connection. Reading waits for what the server really sends."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, head_only: bool = False) -> Answer:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:-2])}
        size = int(headers.get("content-length", 0))
        body = b"" if head_only else await self.reader.readexactly(size)
        return Answer(int(head[0].split(" ")[1]), headers, body)

    async def ask(self, data: bytes) -> Answer:
        await self.send(data)
        return await self.answer()

    async def press(self, pieces: Iterable[bytes]) -> Answer:
        """Send on until the answer is there."""
        answer = asyncio.ensure_future(self.answer())
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                if answer.done():
                    break
                await self.send(piece)
                await turns()
        return await answer

    async def closed(self) -> bytes:
        """What comes until the server ends the connection."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""

    def stop_writing(self) -> None:
        """Close the writing side only. Under TLS too, where asyncio has no word for it."""
        with socket.socket(fileno=os.dup(self.writer.get_extra_info("socket").fileno())) as same:
            same.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """Vanish: the server's next look at this connection finds it broken, not ended."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


async def connect(
    port: int,
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
    buffer_bytes: int | None = None,
    source: str | None = None,
    reader_bytes: int = 1 << 16,
) -> RawClient:
    """Connect. `buffer_bytes`: how much the kernel keeps that the client has not read. `source`: from this address.
    `reader_bytes`: how much this process keeps. Beyond it the client stops reading, and uvloop's TLS then loses what
    was received when the server closes: a test that reads more until the end needs more."""
    sock = socket.socket()
    if source is not None:
        sock.bind((source, 0))
    if buffer_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    sock.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(sock, (host, port))
        name = "localhost" if tls else None
        return RawClient(*await asyncio.open_connection(sock=sock, ssl=tls, server_hostname=name, limit=reader_bytes))
    except BaseException:
        sock.close()
        raise

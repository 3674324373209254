"""HTTP for tests that must tell "certainly not done" from "unknown". Loopback only.

The connection is the SDK's. Its clients retry and turn answers into values or errors; a fault test wants every try,
with any status as it is.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from dueline.client.async_connection import AsyncConnection, connect
from dueline.http1.messages import BadResponse, request_bytes


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
        self._connection: AsyncConnection | None = None

    @property
    def local_port(self) -> int:
        """Our port of an open connection."""
        assert self._connection is not None
        return self._connection.local_port

    async def request(self, method: str, path: str, body: bytes = b"", timeout_s: float = 5.0) -> Answer:
        """One exchange. Raises NotSent or NoAnswer; the next request then uses a new connection."""
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._open()
        except (OSError, TimeoutError) as error:
            raise NotSent(type(error).__name__) from None
        try:
            async with asyncio.timeout(timeout_s):
                response = await connection.exchange(self._request(method, path, body))
        except (OSError, TimeoutError, BadResponse) as error:
            self.close()
            raise NoAnswer(type(error).__name__) from None
        except asyncio.CancelledError:
            self.close()
            raise
        if not response.reusable:
            self.close()
        return Answer(response.status, response.body)

    async def send_only(self, method: str, path: str, body: bytes = b"") -> None:
        """Send a request and disconnect without waiting for the answer, like an impatient client."""
        try:
            connection = await self._open()
            connection.send(self._request(method, path, body))
        except OSError:
            pass

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _open(self) -> AsyncConnection:
        if self._connection is None or not self._connection.open:
            self.close()
            self._connection = await connect(self.host, self.port)
        return self._connection

    def _request(self, method: str, path: str, body: bytes) -> bytes:
        headers = {"Host": f"{self.host}:{self.port}", "Content-Type": "application/json"}
        return request_bytes(method, path, headers, body)

"""The health port of a worker: three pages for orchestrators and Prometheus, on the worker's own event loop.

    GET /healthz     200 while the event loop runs; no answer while a handler blocks it
    GET /readyz      200 while jobs are pulled, 503 with the reasons otherwise: starting, queue, draining
    GET /metrics     the metrics (worker.metrics)

One request per connection, and only its head is read. The server's HTTP code is not used here, because it needs
dueline[server], which a worker must not require.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from http import HTTPStatus

import msgspec

from ..client.address import split
from ..metrics.plain_text import CONTENT_TYPE

MAX_CONNECTIONS = 64
MAX_HEAD_BYTES = 16 * 1024
HEAD_S = 5.0

_JSON = "application/json"


class Reason(msgspec.Struct, frozen=True):
    """Why a worker is not ready."""

    code: str
    message: str


def health_address(text: str) -> tuple[str, int]:
    """The host and port of HOST:PORT or [IPV6]:PORT. Raises ValueError."""
    try:
        parts = split(f"//{text}")
        if parts.hostname and parts.port is not None and parts.netloc == text:
            return parts.hostname, parts.port
    except ValueError:
        pass
    raise ValueError(f'health: write HOST:PORT, such as 127.0.0.1:9280, not "{text}"')


class HealthPort:
    """The health port. `reasons`: why the worker is not ready (empty: it is). `metrics`: the metrics page."""

    def __init__(self, address: str, reasons: Callable[[], Sequence[Reason]], metrics: Callable[[], bytes]) -> None:
        self._address = address
        self._reasons = reasons
        self._metrics = metrics
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Listen. Raises ValueError if it cannot listen on the address."""
        host, port = health_address(self._address)
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_HEAD_BYTES)
        except OSError as error:
            raise ValueError(f"health: cannot listen on {self._address}: {_reason(error)}") from None

    def stop(self) -> None:
        """It may be called twice, and before `start`."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MAX_CONNECTIONS:
            writer.close()
            return
        self._open.add(writer)
        try:
            async with asyncio.timeout(HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client is gone, too slow, or does not speak HTTP
        finally:
            self._open.discard(writer)
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        status, kind, body = self._page(rest.split(b" ", 1)[0].partition(b"?")[0])
        if method not in (b"GET", b"HEAD"):
            status, kind, body = 405, _JSON, b'{"error":{"code":"method_not_allowed","message":"Use GET."}}'
        lines = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
            "Connection: close\r\n\r\n",
        )
        return "\r\n".join(lines).encode() + (b"" if method == b"HEAD" else body)

    def _page(self, path: bytes) -> tuple[int, str, bytes]:
        if path == b"/healthz":
            return 200, _JSON, b'{"alive":true}'
        if path == b"/metrics":
            return 200, CONTENT_TYPE, self._metrics()
        if path == b"/readyz":
            reasons = self._reasons()
            answer = {"ready": False, "reasons": reasons} if reasons else {"ready": True}
            return 503 if reasons else 200, _JSON, msgspec.json.encode(answer)
        return 404, _JSON, b'{"error":{"code":"no_route","message":"Ask for /healthz, /readyz or /metrics."}}'


def _reason(error: OSError) -> str:
    """The system's error text, without the sentence that asyncio puts around it."""
    return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else str(error)

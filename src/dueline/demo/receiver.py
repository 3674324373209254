"""The program that push targets call: a small HTTP server on loopback whose answers follow from the job's id.

Most payments are confirmed, some find the bank closed, and a few customers are gone for good. The partner never answers
with success, so its breaker opens.
"""

from __future__ import annotations

import asyncio
import json
import re

PAYMENT_STORY = ((503, "the bank is closed"), (502, "bad gateway"), (503, "the ledger is locked"))
STORY = "pay-20417"  # a payment that fails in several ways
SLOW_S = 0.7
MAX_HEAD_BYTES = 65_536


def answer(path: str, id: str, attempt: int) -> tuple[int, str, float]:
    """How one call is answered: the status, the body, and after how many seconds."""
    number = int(re.sub(r"\D", "", id) or 0)
    if path == "/partner":
        return 500, '{"error": "connection pool exhausted", "node": "partner-eu-3"}', 0.02
    if id == STORY:
        status, error = PAYMENT_STORY[min(attempt, len(PAYMENT_STORY)) - 1]
        return status, json.dumps({"error": error}), 0.05
    if number % 31 == 0:
        return 410, '{"error": "this merchant has closed its account"}', 0.03
    if number % 9 == 0:
        return 503, '{"error": "the bank is closed", "retry": true}', 0.04
    return 200, '{"ok": true}', SLOW_S if number % 23 == 0 else 0.004 + number % 17 * 0.006


class Receiver:
    """Listens from `start` to `stop` on a free port."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        if self._server is None:
            raise RuntimeError("the receiver was not started")
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=MAX_HEAD_BYTES)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                fields = dict(re.findall(r"(?m)^([\w-]+):[ \t]*(.*?)\r?$", head))
                named = {name.lower(): value for name, value in fields.items()}
                await reader.readexactly(int(named.get("content-length", "0")))
                attempt = int(named.get("dueline-attempt", "1"))
                status, body, seconds = answer(head.split(" ")[1], named.get("dueline-job-id", ""), attempt)
                await asyncio.sleep(seconds)
                writer.write(
                    f"HTTP/1.1 {status} Demo\r\nContent-Type: application/json\r\n"
                    f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

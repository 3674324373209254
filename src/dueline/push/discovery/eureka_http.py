"""The HTTP client that reads a Eureka registry, built on httpx. Needs the extra `dueline[eureka]`.

py-eureka-client's own HTTP client keeps no connections, follows redirects, obeys proxy variables, reads responses of
any size, and rejects some valid addresses ([::1], a password with a "+"). This one has one pool, calls only the
configured addresses, reads at most MAX_BYTES, and lets httpx parse addresses. It subclasses that package's HttpClient
and raises the same errors, so it can serve as its transport (`urlopen`). The server itself calls `get`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from email.message import Message
from io import BytesIO
from urllib.error import HTTPError, URLError

import httpx
from py_eureka_client.http_client import HttpClient, HttpRequest, HttpResponse

MAX_BYTES = 32 << 20
CONNECTIONS = 4


class RegistryHttp(HttpClient):
    """Reads from a registry by HTTP. Raises HTTPError for every status but 2xx, and URLError for any other failure."""

    def __init__(self) -> None:
        logging.getLogger("httpx").setLevel(logging.WARNING)  # otherwise every lookup would be logged
        self._client = httpx.AsyncClient(
            trust_env=False, follow_redirects=False, limits=httpx.Limits(max_connections=CONNECTIONS)
        )

    async def get(self, url: str, timeout_s: float) -> bytes:
        """The response's body, which is JSON."""
        return await self._ask("GET", url, {"Accept": "application/json"}, None, timeout_s)

    async def urlopen(
        self, request: str | HttpRequest | None = None, data: bytes | None = None, timeout: float | None = None
    ) -> HttpResponse:
        if request is None:
            raise URLError("there is no address to ask")
        found = HttpResponse()
        if isinstance(request, str):
            body = await self._ask("GET", request, {}, data, timeout)
        else:
            body = await self._ask(request.method, request.url, request.headers, data, timeout)
        found.body_text = body.decode(errors="replace")
        return found

    async def _ask(
        self, method: str, url: str, headers: Mapping[str, str], data: bytes | None, timeout_s: float | None
    ) -> bytes:
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._client.stream(method, url, headers=headers, content=data, timeout=timeout_s) as answer,
            ):
                body = bytearray()
                async for part in answer.aiter_bytes():
                    body += part
                    if len(body) > MAX_BYTES:
                        raise URLError(f"its answer has more than {MAX_BYTES} bytes")
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise URLError(f"{type(error).__name__} {error}".strip()) from None
        if not answer.is_success:
            raise HTTPError(url, answer.status_code, answer.reason_phrase, Message(), BytesIO(bytes(body)))
        return bytes(body)

    async def close(self) -> None:
        await self._client.aclose()

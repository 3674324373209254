"""The transport to a Eureka registry: py-eureka-client's own, with what a long-running server needs.

Its client keeps no connection, follows redirects, obeys proxy variables and reads answers of any size. This one reads
from one pool, from the configured addresses only, and not more than MAX_BYTES. Needs the extra `dueline[eureka]`.
"""

from __future__ import annotations

import asyncio
from io import BytesIO
from urllib.error import HTTPError, URLError

import httpx
from py_eureka_client.eureka_client import EurekaServerConf
from py_eureka_client.http_client import HttpClient, HttpRequest, HttpResponse

MAX_BYTES = 32 << 20
CONNECTIONS = 4


def peers_of(url: str) -> list[str]:
    """The registry's addresses ("http://one/eureka, http://two/eureka"), each with a slash at its end."""
    return [f"{one}/" for one in EurekaServerConf(eureka_server=url, eureka_context="/eureka").servers_in_zone]


class RegistryHttp(HttpClient):
    """Raises HTTPError for every status but 2xx and URLError for everything else."""

    def __init__(self) -> None:
        self._client = httpx.AsyncClient(
            trust_env=False, follow_redirects=False, limits=httpx.Limits(max_connections=CONNECTIONS)
        )

    async def get(self, url: str, timeout_s: float) -> bytes:
        """The JSON of an answer."""
        request = HttpRequest(url, headers={"Accept": "application/json"})
        return (await self.urlopen(request, timeout=timeout_s)).body_text.encode()

    async def urlopen(
        self, request: str | HttpRequest | None = None, data: bytes | None = None, timeout: float | None = None
    ) -> HttpResponse:
        asked = HttpRequest(request) if isinstance(request, str) else request
        if asked is None:
            raise URLError("there is no address to ask")
        try:
            async with asyncio.timeout(timeout):
                async with self._client.stream(
                    asked.method, asked.url, headers=asked.headers, content=data, timeout=timeout
                ) as answer:
                    body = bytearray()
                    async for part in answer.aiter_bytes():
                        body += part
                        if len(body) > MAX_BYTES:
                            raise URLError(f"its answer has more than {MAX_BYTES} bytes")
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise URLError(f"{type(error).__name__} {error}".strip()) from None
        if not answer.is_success:
            reason = answer.reason_phrase
            raise HTTPError(asked.url, answer.status_code, reason, None, BytesIO(bytes(body)))  # pyright: ignore[reportArgumentType]
        found = HttpResponse()
        found.body_text = body.decode(errors="replace")
        return found

    async def close(self) -> None:
        await self._client.aclose()

"""Services from a Eureka registry. Needs the extra `dueline[eureka]`.

The registry is only read. A service is requested by its name (`apps/<NAME>`, then `vips/<name>` for a service whose
VIP name differs from its application name), as often as `cache` asks for it. The whole registry is read only to
list it. Of several registry addresses, the first one that answers is used; one that fails moves to the end.

Our own HTTP client (`eureka_http`) reads it. Of py-eureka-client we use only the base class of HTTP clients: its
EurekaClient reads XML (see `eureka_json`) in a thread that cannot be stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit

from . import Instance
from .cache import CachingResolver, LookupFailed
from .eureka_json import Unreadable, by_service, instances_in

if TYPE_CHECKING:
    from .eureka_http import RegistryHttp


class EurekaMissing(Exception):
    """The configuration names a Eureka registry, but py-eureka-client is not installed: install dueline[eureka]."""


class EurekaResolver:
    """`url` is the registry's address, or several separated by commas. With `prefer_ip`, instances are called by their
    IP addresses."""

    def __init__(self, url: str, prefer_ip: bool = False, refresh_ms: int = 10_000, timeout_ms: int = 5_000) -> None:
        self._url = url
        self._prefer_ip = prefer_ip
        self._timeout_s = timeout_ms / 1000
        self._peers: list[str] = []
        self._http: RegistryHttp | None = None
        self._named = CachingResolver(self._look, self._time_s, refresh_ms)
        self._all = CachingResolver(self._look_at_all, self._time_s, refresh_ms)

    async def start(self) -> None:
        """Make the HTTP client; nothing is requested yet. Raises EurekaMissing."""
        try:
            from .eureka_http import RegistryHttp
        except ImportError:
            raise EurekaMissing(str(EurekaMissing.__doc__)) from None
        self._peers = peers_of(self._url)
        self._http = RegistryHttp()

    async def stop(self) -> None:
        await self._named.stop()
        await self._all.stop()
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    async def instances(self, service: str, fresh: bool = False) -> Sequence[Instance]:
        name = service.lower()
        return await self._named.instances(name, fresh) if name else ()

    async def services(self) -> Mapping[str, Sequence[Instance]]:
        return dict(by_service(list(await self._all.instances(""))))

    async def _look(self, service: str) -> Sequence[Instance]:
        raw = await self._ask(f"apps/{quote(service.upper(), safe='')}")
        if raw is None:
            raw = await self._ask(f"vips/{quote(service, safe='')}")
        return () if raw is None else self._read(raw)

    async def _look_at_all(self, _: str) -> Sequence[Instance]:
        raw = await self._ask("apps/")
        return () if raw is None else self._read(raw)

    def _read(self, raw: bytes) -> Sequence[Instance]:
        try:
            return instances_in(raw, self._prefer_ip)
        except Unreadable as error:
            raise LookupFailed(str(error)) from None

    async def _ask(self, path: str) -> bytes | None:
        """The answer of the first peer that responds; None when it does not know the name (404)."""
        why = "it is not started"
        for peer in tuple(self._peers):
            if self._http is None:
                break
            try:
                return await self._http.get(peer + path, self._timeout_s)
            except HTTPError as error:
                if error.code == 404:
                    return None
                why = f"HTTP {error.code}"
            except URLError as error:
                why = str(error.reason)
            self._peers.remove(peer)
            self._peers.append(peer)
        raise LookupFailed(why)

    @staticmethod
    def _time_s() -> float:
        return asyncio.get_running_loop().time()


def peers_of(text: str) -> list[str]:
    """The registry's addresses ("http://one/eureka, http://two"), each with a trailing slash. An address without a path
    gets the usual path, /eureka."""
    peers = [part.strip().rstrip("/") for part in text.split(",")]
    return [f"{peer}/" if urlsplit(peer).path else f"{peer}/eureka/" for peer in peers if peer]

"""What the load generator (bench_load) calls: a server over HTTP, or a store in this process (direct.StoreTarget)."""

from __future__ import annotations

from typing import Any, Protocol

from ..client.address import address_of
from ..client.async_connection import AsyncConnection, connect
from ..client.calls import Call
from ..client.connection import secured


class TargetConnection(Protocol):
    """Answers requests one at a time."""

    async def ask(self, request: Any) -> tuple[int, bytes]:
        """Status and body. Raises OSError when the connection ends first."""
        ...

    def close(self) -> None: ...


class Target(Protocol):
    """The target of the load. `request` builds the argument for `ask`, which may be used many times."""

    async def connect(self) -> TargetConnection: ...
    def request(self, call: Call[Any]) -> Any: ...


class ServerTarget:
    """A server, with the caller's namespace and token."""

    def __init__(self, url: str, namespace: str | None = None, token: str | None = None) -> None:
        self._address = address_of(url, namespace, token)

    async def connect(self) -> ServerConnection:
        address = self._address
        return ServerConnection(await connect(address.host, address.port, secured(None) if address.secure else None))

    def request(self, call: Call[Any]) -> bytes:
        return self._address.request(call)


class ServerConnection:
    """One keep-alive connection."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        response = await self._connection.exchange(request)
        return response.status, response.body

    def close(self) -> None:
        self._connection.abort()

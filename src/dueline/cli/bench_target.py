"""What the load generator (bench_load) calls: a server over HTTP, or a store in this process (direct.StoreTarget)."""

from __future__ import annotations

from itertools import cycle
from typing import Protocol

from msgspec import Raw

from ..client.address import Address, addresses_of
from ..client.async_connection import AsyncConnection, connect
from ..client.calls import Call
from ..client.connection import secured
from ..load_generator import Answer


class TargetConnection(Protocol):
    """Answers requests one at a time."""

    async def ask(self, topic: str, operation: str, body: bytes) -> Answer:
        """Raises OSError when the connection ends first."""
        ...

    def close(self) -> None: ...


class Target(Protocol):
    """The target of the load."""

    async def connect(self) -> TargetConnection: ...


class ServerTarget:
    """Servers, with the caller's namespace and token. Connections go to them in turns."""

    def __init__(self, url: str, namespace: str | None = None, token: str | None = None) -> None:
        self._addresses = cycle(addresses_of(url, namespace, token))

    async def connect(self) -> ServerConnection:
        address = next(self._addresses)
        connection = await connect(address.host, address.port, secured(None) if address.secure else None)
        return ServerConnection(connection, address)


class ServerConnection:
    """One keep-alive connection."""

    def __init__(self, connection: AsyncConnection, address: Address) -> None:
        self._connection, self._address = connection, address

    async def ask(self, topic: str, operation: str, body: bytes) -> Answer:
        call = Call(operation, object, (topic,), Raw(body))
        response = await self._connection.exchange(self._address.request(call))
        return response.status, response.body

    def close(self) -> None:
        self._connection.close()

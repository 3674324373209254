"""The idle connections of a client. No I/O but closing them."""

from __future__ import annotations

import time
from collections import deque
from typing import Generic, Protocol, TypeVar

from .address import Address


class Reusable(Protocol):
    """A connection that can wait for its next request."""

    idle_since_s: float

    def usable(self) -> bool: ...
    def close(self) -> None: ...


C = TypeVar("C", bound=Reusable)


class IdleConnections(Generic[C]):
    """The most recently used connection comes first. Threads may share one."""

    def __init__(self) -> None:
        self._idle: deque[tuple[Address, C]] = deque()

    def __len__(self) -> int:
        return len(self._idle)

    def take(self, address: Address) -> C | None:
        """A connection to this address that still looks usable. Others are closed: the client has moved on."""
        while (found := self._pop()) is not None:
            where, connection = found
            if where is address and connection.usable():
                return connection
            connection.close()
        return None

    def give(self, address: Address, connection: C) -> None:
        connection.idle_since_s = time.monotonic()
        self._idle.append((address, connection))

    def close(self) -> None:
        while (found := self._pop()) is not None:
            found[1].close()

    def _pop(self) -> tuple[Address, C] | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

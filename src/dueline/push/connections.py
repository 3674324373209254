"""The open connections to targets, for all calls under one egress rule. They are kept for a moment and used again.

A host has a limited number of connections. A call that finds none free waits for its turn. There is no limit over all
hosts: a host that hangs must not block calls to others.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable

from ..http1.connection import AsyncConnection
from .call import STOPPING, CallFailed

KEEP_ALIVE_S = 4.0  # common servers close after 5 s; less makes it rare to reuse a connection that is being closed

Origin = tuple[str, str, int]
"""Scheme, host, port."""


class _Host:
    """The connections of one origin. `places` are taken by calls that have a connection or are making one."""

    __slots__ = ("busy", "idle", "places", "waiting")

    def __init__(self) -> None:
        self.places = 0
        self.busy: set[AsyncConnection] = set()
        self.idle: list[AsyncConnection] = []  # the last one was used last
        self.waiting: deque[asyncio.Future[None]] = deque()


class Connections:
    """`max_per_host` limits the connections to one origin; 0 means no limit."""

    def __init__(self, max_per_host: int) -> None:
        self._max_per_host = max_per_host
        self._hosts: dict[Origin, _Host] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def take(
        self, origin: Origin, connect: Callable[[], Awaitable[AsyncConnection]]
    ) -> tuple[AsyncConnection, bool]:
        """A connection, and whether it was used before. Raises CallFailed, and what `connect` raises. Every connection
        must be given back."""
        host = self._hosts.get(origin) or self._hosts.setdefault(origin, _Host())
        await self._take_place(origin, host)
        while host.idle:
            connection = host.idle.pop()
            if connection.usable():
                host.busy.add(connection)
                return connection, True
            connection.close()
        try:
            connection = await connect()
            if self._is_closed:
                connection.close()
                raise CallFailed("connect", STOPPING)
        except BaseException:
            self._free_place(origin, host)
            raise
        host.busy.add(connection)
        return connection, False

    def give_back(self, origin: Origin, connection: AsyncConnection, reusable: bool) -> None:
        host = self._hosts[origin]
        host.busy.discard(connection)
        if reusable and not self._is_closed and connection.open:
            connection.idle_since_s = time.monotonic()
            host.idle.append(connection)
            self._sweep_later()
        else:
            connection.close()
        self._free_place(origin, host)

    def close(self) -> None:
        """Fail the calls that wait, and those that have a connection."""
        self._is_closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        for host in self._hosts.values():
            for turn in host.waiting:
                if not turn.done():
                    turn.set_exception(CallFailed("connect", STOPPING))
            for connection in (*host.busy, *host.idle):
                connection.close()

    async def _take_place(self, origin: Origin, host: _Host) -> None:
        if not self._max_per_host or host.places < self._max_per_host:
            host.places += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        host.waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._free_place(origin, host)  # it was our turn at the same moment
            raise

    def _free_place(self, origin: Origin, host: _Host) -> None:
        while host.waiting:
            turn = host.waiting.popleft()
            if not turn.done():
                turn.set_result(None)  # it takes over the place
                return
        host.places -= 1
        self._drop_unused(origin, host)

    def _drop_unused(self, origin: Origin, host: _Host) -> None:
        if not host.places and not host.idle:
            self._hosts.pop(origin, None)

    def _sweep_later(self) -> None:
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(KEEP_ALIVE_S, self._sweep)

    def _sweep(self) -> None:
        """Close the connections that have been idle for too long."""
        self._sweeping = None
        for origin, host in list(self._hosts.items()):
            usable = [one for one in host.idle if one.usable()]
            for one in host.idle:
                if one not in usable:
                    one.close()
            host.idle = usable
            if usable:
                self._sweep_later()
            self._drop_unused(origin, host)

"""One node of a store: one connection, many calls in flight, replies in order.

A call is written at once and never cancelled in flight. A connection that is silent for too long is closed. When a
connection is lost, every call on it fails, and the error tells whether the call's bytes were sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from ...engine.completion import Done, settle, tell
from ...store_address import Endpoint
from .connector import Connector
from .link_errors import LinkLost
from .replica_count import ReplicaCount
from .resp import Replies, command
from .witness import Replication, Witness

SUSPECT_S = 0.5  # a reply that takes longer is a reason to ask who the primary is
SUSPECT_AGAIN_S = 0.1


class PipelinedConnection:
    """An open connection. `suspect` is called while a reply is late, `lost` once when no more replies will come."""

    def __init__(
        self,
        connection: AbstractConnection,
        reply_timeout_s: float,
        suspect: Callable[[], None],
        lost: Callable[[PipelinedConnection], None],
    ) -> None:
        writer = connection._writer
        if writer is None:
            raise LinkLost("cannot reach the store: the connection was closed at once", False)
        self._write: Callable[[bytes], None] = writer.transport.write
        self._connection = connection
        self._reply_timeout_s = reply_timeout_s
        self._suspect = suspect
        self._lost = lost
        self._pending: deque[tuple[Done | None, float]] = deque()
        self._watchdog: asyncio.TimerHandle | None = None
        self._retired = False
        self.witness: Witness | None = None
        self.beside: PipelinedConnection | None = None  # the connection of the witness
        self._loop = asyncio.get_running_loop()
        writer.transport.set_protocol(
            Replies(self._answered, lambda why: self.lose(LinkLost(f"the store connection broke: {why}", True)))
        )

    def send(self, packed: bytes, unread: int = 0) -> asyncio.Future[Any]:
        """`post` for a caller that awaits the reply."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self.post(packed, partial(settle, future), unread)
        return future

    def post(self, packed: bytes, on_reply: Done, unread: int = 0) -> None:
        """Write commands at once, without waiting; the batchers bound the amount in flight. `on_reply` gets the reply
        to the last one, or the error; the replies to the first `unread` are dropped. redis-py's own method is a
        coroutine, which would send in a later turn of the loop."""
        now_s = self._loop.time()
        if unread:
            self._pending += ((None, now_s),) * unread
        self._pending.append((on_reply, now_s))
        try:
            self._write(packed)
        except (OSError, RuntimeError) as error:  # uvloop raises RuntimeError for a closed transport
            self.lose(LinkLost(f"the store connection broke: {error}", True))
        if self._watchdog is None and self._pending:
            self._watchdog = self._loop.call_later(min(SUSPECT_S, self._reply_timeout_s), self._look_for_silence)

    def retire(self) -> None:
        """Close it after the replies that it still owes. No call may be sent any more."""
        self._retired = True
        if not self._pending:
            self.lose(LinkLost("the store connection was closed", True))

    def lose(self, error: LinkLost) -> None:
        """Close it; calls without a reply fail with this error."""
        pending, self._pending = self._pending, deque()
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
        if self._write is not _closed:
            self._write = _closed
            self._lost(self)
            if self.beside is not None:
                self.beside.lose(error)
            closing = self._loop.create_task(self._connection.disconnect(nowait=True))
            closing.add_done_callback(lambda task: task.cancelled() or task.exception())
        for on_reply, _ in pending:
            if on_reply is not None:
                tell(on_reply, error)

    def _answered(self, reply: Any) -> None:
        on_reply, _ = self._pending.popleft()
        if on_reply is not None:
            tell(on_reply, reply)
        if self._retired and not self._pending:
            self.retire()

    def _look_for_silence(self) -> None:
        self._watchdog = None
        if not self._pending:
            return
        age_s = self._loop.time() - self._pending[0][1]
        if age_s >= self._reply_timeout_s:
            self.lose(LinkLost(f"the store was silent for {age_s:.1f} s", True))
            return
        wait_s = self._reply_timeout_s - age_s
        if age_s >= SUSPECT_S:
            self._suspect()
            wait_s = min(wait_s, SUSPECT_AGAIN_S)
        elif self._reply_timeout_s > SUSPECT_S:
            wait_s = SUSPECT_S - age_s
        self._watchdog = self._loop.call_later(wait_s, self._look_for_silence)


class Node:
    """One address. `connection` is open and to a primary, or None. `trouble` is called when the node is silent, lost or
    cannot be reached, `uncovered` when no replica has a change in time, `recovered` when a connection is open, and when
    replicas confirm again."""

    def __init__(
        self,
        endpoint: Endpoint,
        connector: Connector,
        reply_timeout_s: float,
        trouble: Callable[[], None],
        primary_only: bool = True,
        replication: Replication | None = None,
        uncovered: Callable[[], None] = lambda: None,
        recovered: Callable[[], None] = lambda: None,
    ) -> None:
        self.endpoint = endpoint
        self._recovered = recovered
        self.connection: PipelinedConnection | None = None
        self._connector = connector
        self._reply_timeout_s = reply_timeout_s
        self._trouble = trouble
        self._primary_only = primary_only
        self._replication = replication
        self._uncovered = uncovered
        self._replicas = ReplicaCount()
        self._connecting: asyncio.Task[PipelinedConnection] | None = None
        self._opening: set[asyncio.Task[AbstractConnection]] = set()
        self._refused_at_s: float | None = None  # since when the address rejects connections
        self._cut: LinkLost | None = None

    async def connected(self) -> PipelinedConnection:
        """The connection, opened if there is none. Raises LinkLost."""
        if self.connection is not None:
            return self.connection
        if self._cut is not None:
            raise LinkLost(str(self._cut), False)
        connecting = self._connecting
        if connecting is None or connecting.done():
            connecting = self._connecting = asyncio.get_running_loop().create_task(self._connect())
            connecting.add_done_callback(lambda task: task.cancelled() or task.exception())  # mark as seen
        return await asyncio.shield(connecting)

    async def open(self) -> AbstractConnection:
        """A connection of the caller's own. Raises LinkLost."""
        if self._cut is not None:
            raise LinkLost(str(self._cut), False)
        opening = asyncio.ensure_future(self._connector.open(self.endpoint, primary_only=self._primary_only))
        self._opening.add(opening)
        wait_s = SUSPECT_S
        try:
            while not (await asyncio.wait([opening], timeout=wait_s))[0]:
                self._trouble()
                wait_s = SUSPECT_AGAIN_S
        finally:
            self._opening.discard(opening)
            if not opening.done():
                opening.cancel()
        if self._cut is not None:  # redis-py may swallow the cancel of a connect
            if not opening.cancelled() and opening.exception() is None:
                await opening.result().disconnect(nowait=True)
            raise LinkLost(str(self._cut), False)
        return opening.result()

    def cut(self, why: str) -> None:
        """Give this node up: calls without a reply, and a connect that is under way, fail at once."""
        self._cut = LinkLost(why, True)
        for opening in self._opening:
            opening.cancel()
        if self.connection is not None:
            self.connection.lose(self._cut)

    def retire(self) -> None:
        """Reconnect for the next call; calls on their way still get their replies."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.retire()

    async def stop(self) -> None:
        self.cut("the store connection was closed")
        connecting, self._connecting = self._connecting, None
        if connecting is not None and not connecting.done():
            await asyncio.wait([connecting])

    async def _connect(self) -> PipelinedConnection:
        loop = asyncio.get_running_loop()
        try:
            connection = PipelinedConnection(await self.open(), self._reply_timeout_s, self._trouble, self._lost)
            if self._replication is not None:
                connection.witness = await self._witness(connection, self._replication)
        except LinkLost as lost:
            if lost.refused_s is None:
                self._refused_at_s = None
            else:
                self._refused_at_s = self._refused_at_s or loop.time()
                lost.refused_s = loop.time() - self._refused_at_s
            if self._cut is None:
                self._trouble()
            raise
        self._refused_at_s = None
        self.connection = connection
        self._recovered()
        return connection

    async def _witness(self, connection: PipelinedConnection, replication: Replication) -> Witness:
        """The witness of a connection. Both are lost together. Raises LinkLost."""
        alive = True

        def lost(_: PipelinedConnection) -> None:
            nonlocal alive
            alive = False
            connection.lose(LinkLost("the witness connection was lost", True))

        try:
            beside = PipelinedConnection(await self.open(), self._reply_timeout_s, self._trouble, lost)
            connection.beside = beside
            question = command(("INFO", "server"))
            one, other = await asyncio.gather(connection.send(question), beside.send(question))
        except (LinkLost, RedisError) as error:
            connection.lose(LinkLost("there is no witness", False))
            raise LinkLost(f"cannot reach the store: {error}", False) from None
        if run_id(one) != run_id(other) or not alive:
            connection.lose(LinkLost("there is no witness", False))
            raise LinkLost("the address has just moved to another process", False)
        return Witness(beside, replication, self._replicas, self._trouble, self._uncovered, self._recovered)

    def _lost(self, connection: PipelinedConnection) -> None:
        if self.connection is connection:
            self.connection = None
            if self._cut is None:
                self._trouble()


def run_id(info: bytes) -> bytes:
    """The id of the process that answered INFO."""
    return info.partition(b"run_id:")[2].partition(b"\r")[0]


def _closed(packed: bytes) -> None:
    """How a connection writes that was lost."""
    raise ConnectionResetError("it is closed")

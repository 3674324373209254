"""The link to a store: one connection per node, many calls in flight, replies in order.

redis-py connects (`connections`) and routes in a Cluster, and `resp` knows the protocol. This module adds what a shared
connection needs. A call is sent at once and never cancelled in flight. A silent connection is closed. When a connection
is lost, every call on it fails, and the error tells whether the call's bytes were sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Protocol
from urllib.parse import urlparse

import redis.asyncio as redis
from redis import exceptions
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import BusyLoadingError, RedisError

from . import connections
from .connections import CONNECT_TIMEOUT_S, once, plain_url
from .resp import Replies, command
from .tls import StoreTls


class LinkLost(Exception):
    """The connection broke. `written`: the call's bytes may have reached the store. `refused`: the address rejected the
    connection at once. `untrusted`: because of a certificate (StoreTls.refusal)."""

    def __init__(
        self, message: str, written: bool, loading: bool = False, refused: bool = False, untrusted: bool = False
    ) -> None:
        super().__init__(message)
        self.written = written
        self.loading = loading
        self.refused = refused
        self.untrusted = untrusted


class Link(Protocol):
    """All connections to one store. Error replies are raised as redis-py's ResponseError."""

    permanent_keys: bool

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def call(self, key: str, *args: Any) -> Any:
        """One command; `key` selects the node."""
        ...

    def subscriber(self, channel: str) -> tuple[str, redis.Redis]:
        """The node that owns a channel, and a client for it (the caller closes it)."""
        ...


def link_for(url: str, reply_timeout_s: float = 10.0, tls: StoreTls = StoreTls()) -> Link:
    scheme = urlparse(plain_url(url)).scheme
    if scheme in ("redis+cluster", "rediss+cluster"):
        return ClusterLink(url.replace("+cluster", "", 1), reply_timeout_s, tls)
    if scheme not in ("unix", "redis", "rediss"):
        raise ValueError(
            f'"{scheme}://" is not a store address: use redis://, rediss://, unix:// or redis+cluster:// '
            "(or the valkey spellings)"
        )
    return SingleLink(url, reply_timeout_s, tls)


class SingleLink:
    """One node. Calls are pipelined; replies are handed out in order."""

    permanent_keys = False

    def __init__(self, url: str, reply_timeout_s: float = 10.0, tls: StoreTls = StoreTls()) -> None:
        self.url = url
        self._tls = tls
        self._reply_timeout_s = reply_timeout_s
        self._connection: AbstractConnection | None = None
        self._connecting: asyncio.Task[AbstractConnection] | None = None
        self._pending: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._watchdog: asyncio.TimerHandle | None = None
        self._stopped = False

    async def start(self) -> None:
        self._stopped = False

    async def stop(self) -> None:
        self._stopped = True
        self._lose(LinkLost("the store connection was closed", True))
        connecting, self._connecting = self._connecting, None
        if connecting is not None and not connecting.done():
            connecting.cancel()
            await asyncio.wait([connecting])

    async def call(self, key: str, *args: Any) -> Any:
        connection = self._connection
        if connection is None:
            connection = await self._connected()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._pending.append((future, loop.time()))
        self._write(connection, command(args))
        if self._watchdog is None:
            self._watchdog = loop.call_later(self._reply_timeout_s, self._look_for_silence)
        return await future

    def subscriber(self, channel: str) -> tuple[str, redis.Redis]:
        return "", connections.client(self.url, self._tls, retry=once())

    async def _connected(self) -> AbstractConnection:
        if self._stopped:
            raise LinkLost("the store connection is closed", False)
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
            self._connecting.add_done_callback(lambda task: task.cancelled() or task.exception())  # mark as seen
        return await asyncio.shield(self._connecting)

    async def _connect(self) -> AbstractConnection:
        if self._connection is not None:
            return self._connection
        connection = connections.connection(self.url, self._tls)
        try:
            await asyncio.wait_for(connection.connect(), CONNECT_TIMEOUT_S + 1)
        except BusyLoadingError as error:
            await connection.disconnect(nowait=True)
            raise LinkLost(str(error), False, loading=True) from None
        except (RedisError, OSError, TimeoutError) as error:
            await connection.disconnect(nowait=True)
            untrusted = self._tls.refusal(error)
            if untrusted is not None:
                raise LinkLost(untrusted, False, refused=True, untrusted=True) from None
            silent = isinstance(error, (TimeoutError, exceptions.TimeoutError))
            raise LinkLost(f"cannot reach the store: {error}", False, refused=not silent) from None
        writer = connection._writer
        if writer is None:
            raise LinkLost("cannot reach the store: the connection was closed at once", False)
        self._connection = connection
        writer.transport.set_protocol(Replies(self._answered, lambda why: self._broke(connection, why)))
        return connection

    def _write(self, connection: AbstractConnection, packed: bytes) -> None:
        """Write at once, without waiting; the batchers bound the amount in flight. redis-py's own method is a
        coroutine, which would send in a later turn of the loop."""
        writer = connection._writer
        try:
            if writer is None:
                raise ConnectionResetError("it is closed")
            writer.write(packed)
        except (OSError, RuntimeError) as error:  # uvloop raises RuntimeError for a closed transport
            self._lose(LinkLost(f"the store connection broke: {error}", True))

    def _answered(self, reply: Any) -> None:
        future, _ = self._pending.popleft()
        if not future.done():
            if isinstance(reply, Exception):
                future.set_exception(reply)
            else:
                future.set_result(reply)

    def _broke(self, connection: AbstractConnection, why: str) -> None:
        if self._connection is connection:
            self._lose(LinkLost(f"the store connection broke: {why}", True))

    def _look_for_silence(self) -> None:
        self._watchdog = None
        if not self._pending:
            return
        loop = asyncio.get_running_loop()
        age = loop.time() - self._pending[0][1]
        if age >= self._reply_timeout_s:
            self._lose(LinkLost(f"the store was silent for {age:.1f} s", True))
        else:
            self._watchdog = loop.call_later(self._reply_timeout_s - age, self._look_for_silence)

    def _lose(self, error: LinkLost) -> None:
        connection, self._connection = self._connection, None
        pending, self._pending = self._pending, deque()
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
        if connection is not None:
            closing = asyncio.get_running_loop().create_task(connection.disconnect(nowait=True))
            closing.add_done_callback(lambda task: task.cancelled() or task.exception())
        for future, _ in pending:
            if not future.done():
                future.set_exception(error)


class ClusterLink:
    """A Cluster: redis-py finds the node and follows MOVED and ASK. Partitions keep permanent keys there."""

    permanent_keys = True

    def __init__(self, url: str, reply_timeout_s: float = 10.0, tls: StoreTls = StoreTls()) -> None:
        self.url = url
        self._tls = tls
        self._reply_timeout_s = reply_timeout_s
        self._cluster: redis.RedisCluster | None = None

    async def start(self) -> None:
        if self._cluster is None:
            self._cluster = connections.cluster(
                self.url, self._tls, socket_connect_timeout=CONNECT_TIMEOUT_S, socket_timeout=self._reply_timeout_s
            )

    async def stop(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            await cluster.aclose()

    async def call(self, key: str, *args: Any) -> Any:
        if asyncio.current_task() is None:  # redis-py's cluster client uses asyncio.timeout, which needs a task
            return await asyncio.ensure_future(self._call(key, *args))
        return await self._call(key, *args)

    async def _call(self, key: str, *args: Any) -> Any:
        if self._cluster is None:
            raise LinkLost("the store connection is closed", False)
        try:
            if args[0] in ("EVAL", "EVALSHA", "HGET", "HSETNX", "HGETALL"):
                return await self._cluster.execute_command(*args)
            node = self._cluster.get_node_from_key(key)
            return await self._cluster.execute_command(*args, target_nodes=node)
        except (
            exceptions.ConnectionError,
            exceptions.TimeoutError,
            exceptions.RedisClusterException,
            OSError,
        ) as error:
            untrusted = self._tls.refusal(error)
            if untrusted is not None:
                raise LinkLost(untrusted, False, refused=True, untrusted=True) from None
            raise LinkLost(f"the store connection broke: {error}", True, isinstance(error, BusyLoadingError)) from None

    def subscriber(self, channel: str) -> tuple[str, redis.Redis]:
        if self._cluster is None:
            raise LinkLost("the store connection is closed", False)
        node = self._cluster.get_node_from_key(channel)
        if node is None:
            raise LinkLost("no node owns this channel", False)
        options: dict[str, Any] = {"host": str(node.host), "port": int(node.port), "retry": once()}
        return str(node.name), connections.client(self.url, self._tls, **options)

"""Connections to a store by redis-py, with our TLS. Every connection begins here.

connection, client, cluster   asynchronous: one connection, a client of one node, a client of a Cluster
blocking_connection           for a thread without an event loop
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import redis.asyncio as redis
from redis.asyncio.connection import AbstractConnection, Connection, ConnectionPool, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.connection import Connection as BlockingConnection
from redis.connection import ConnectionPool as BlockingPool
from redis.exceptions import ConnectionError as Broken

from .tls import DEMANDED, StoreTls, is_secure

CONNECT_TIMEOUT_S = 5.0


def once() -> Retry:
    """For redis-py: do not retry. Its callers do that."""
    return Retry(NoBackoff(), 0)


def plain_url(url: str) -> str:
    """The URL with a scheme that redis-py knows: valkey:// becomes redis://."""
    for ours, theirs in (("valkeys", "rediss"), ("valkey", "redis")):
        if url.startswith((f"{ours}://", f"{ours}+")):
            return theirs + url[len(ours) :]
    return url


def connection(url: str, tls: StoreTls) -> AbstractConnection:
    """A connection to a node. It does not connect by itself, and tries once."""
    options: dict[str, Any] = {**_options(url, tls), "retry": once()}
    kind: type[AbstractConnection] = options.pop("connection_class", Connection)
    return kind(**options)


def client(url: str, tls: StoreTls, **more: Any) -> redis.Redis:
    """A client of a node. `more` takes precedence over the options in the URL."""
    return redis.Redis.from_pool(ConnectionPool(**{**_options(url, tls), **more}))


def cluster(url: str, tls: StoreTls, **more: Any) -> redis.RedisCluster:
    """A client of a Cluster."""
    made = redis.RedisCluster.from_url(f"redis://{url.partition('://')[2]}", protocol=2, **more)
    if is_secure(url):  # redis-py would make its own ssl.SSLContext
        made.connection_kwargs.update(connection_class=TlsConnection, tls=tls)
        for node in made.startup_nodes:
            node.connection_class = TlsConnection
            node.connection_kwargs["tls"] = tls
    return made


def blocking_connection(url: str, tls: StoreTls, reply_timeout_s: float) -> Any:
    """A connection to a node for a thread. It does not connect by itself."""
    pool = BlockingPool.from_url(
        plain_url(url), protocol=2, socket_connect_timeout=CONNECT_TIMEOUT_S, socket_timeout=reply_timeout_s
    )
    if is_secure(url):
        pool.connection_class = BlockingTlsConnection
        pool.connection_kwargs["tls"] = tls
    return pool.make_connection()


class TlsConnection(Connection):
    """A connection with the TLS of our settings. Its errors say why a certificate is refused."""

    def __init__(self, *, tls: StoreTls, **options: Any) -> None:
        super().__init__(**options)
        self._tls = tls

    def _connection_arguments(self) -> Mapping[str, Any]:
        secured = {"ssl": self._tls.context(), "server_hostname": self._tls.name_of(self.host)}
        return {**super()._connection_arguments(), **secured}

    async def connect_check_health(self, check_health: bool = True, retry_socket_connect: bool = True) -> None:
        try:
            await super().connect_check_health(check_health, retry_socket_connect)
        except Broken as error:
            why = self._tls.refusal(error)
            if why is None:
                raise
            raise Broken(why) from error

    async def on_connect_check_health(self, check_health: bool = True) -> None:
        try:
            await super().on_connect_check_health(check_health)
        except Broken as error:
            # With TLS 1.3, a store that misses a client certificate closes the connection only now, and its reason may
            # be lost.
            if self._tls.cert is not None or self._tls.refusal(error) is not None:
                raise
            raise Broken(f"{error}. Perhaps {DEMANDED}") from error


class BlockingTlsConnection(BlockingConnection):
    """The same for a thread."""

    def __init__(self, *, tls: StoreTls, **options: Any) -> None:
        super().__init__(**options)
        self._tls = tls

    def _connect(self) -> Any:
        connected = super()._connect()
        try:
            return self._tls.context().wrap_socket(connected, server_hostname=self._tls.name_of(self.host))
        except BaseException:
            connected.close()
            raise


def _options(url: str, tls: StoreTls) -> dict[str, Any]:
    options: dict[str, Any] = {
        "protocol": 2,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        **parse_url(plain_url(url)),
    }
    if is_secure(url):
        options.update(connection_class=TlsConnection, tls=tls)
    return options

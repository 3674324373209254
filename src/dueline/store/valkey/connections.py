"""Connections of redis-py with our TLS: for the event loop, and for a thread without one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redis.asyncio.connection import Connection
from redis.connection import Connection as BlockingConnection
from redis.connection import ConnectionPool as BlockingPool
from redis.exceptions import ConnectionError as Broken

from .tls import DEMANDED, StoreTls, is_secure

CONNECT_TIMEOUT_S = 5.0


def blocking_connection(url: str, tls: StoreTls, reply_timeout_s: float) -> Any:
    """A connection to a node for a thread. It does not connect by itself."""
    pool = BlockingPool.from_url(
        url, protocol=2, socket_connect_timeout=CONNECT_TIMEOUT_S, socket_timeout=reply_timeout_s
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

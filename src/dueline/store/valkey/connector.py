"""Opens connections to the nodes of one store. redis-py does it: addresses, login, TLS, the database.

Every connection for jobs is to a primary: ROLE is asked after every connect, because an address may have become that of
a replica, and what says so (a sentinel, a node of the Cluster) may not know yet.
"""

from __future__ import annotations

import asyncio
from typing import Any

from redis import exceptions
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError, RedisError

from ...certificate_files import BadCertificate
from ...store_address import Endpoint, StoreAddress
from .connections import CONNECT_TIMEOUT_S, TlsConnection
from .link_errors import LinkLost
from .tls import StoreTls


class Connector:
    """How to reach the nodes of a store. All connections are made from these options; TLS belongs to them, too."""

    def __init__(self, options: dict[str, Any], tls: StoreTls) -> None:
        self._kind: type[AbstractConnection] = options.pop("connection_class", Connection)
        self._options: dict[str, Any] = {"protocol": 2, **options}
        self._tls = tls
        if self._kind is SSLConnection:
            self._kind = TlsConnection
            self._options["tls"] = tls

    @classmethod
    def of_nodes(cls, address: StoreAddress, tls: StoreTls) -> Connector:
        """The connector for the nodes of a store."""
        return cls(dict(parse_url(address.node_url)), tls)

    @classmethod
    def of_sentinels(cls, address: StoreAddress, tls: StoreTls) -> Connector:
        """The connector for the sentinels of a store. They have a login of their own, and no databases."""
        options: dict[str, Any] = dict(parse_url(address.node_url))
        username, password = address.sentinel_login
        return cls({**options, "username": username, "password": password, "db": 0}, tls)

    async def open(
        self, endpoint: Endpoint, *, primary_only: bool = False, timeout_s: float = CONNECT_TIMEOUT_S
    ) -> AbstractConnection:
        """A new connection. Raises LinkLost; its `refused_s` is 0 if the address rejected the connection."""
        options = dict(self._options)
        options |= {"host": endpoint.host, "port": endpoint.port} if endpoint.port else {"path": endpoint.host}
        connection = self._kind(retry=Retry(NoBackoff(), 0), socket_connect_timeout=timeout_s, **options)
        try:
            async with asyncio.timeout(timeout_s + 1):
                await connection.connect()
                if primary_only:
                    await _check_role(connection, endpoint)
        except BaseException as error:
            await connection.disconnect(nowait=True)
            if isinstance(error, BusyLoadingError):
                raise LinkLost(str(error), False, loading=True) from None
            untrusted = str(error) if isinstance(error, BadCertificate) else self._tls.refusal(error)
            if untrusted is not None:
                raise LinkLost(untrusted, False, refused_s=0.0, untrusted=True) from None
            if isinstance(error, RedisError | OSError | TimeoutError | RuntimeError):  # uvloop's: a closed transport
                silent = isinstance(error, TimeoutError | exceptions.TimeoutError)
                why = str(error) or "it is silent"
                raise LinkLost(f"cannot reach the store: {why}", False, refused_s=None if silent else 0.0) from None
            raise
        return connection


async def _check_role(connection: AbstractConnection, endpoint: Endpoint) -> None:
    """Raises LinkLost if the node says that it is not a primary. One that may not be asked is trusted."""
    await connection.send_command("ROLE")
    try:
        role: Any = await connection.read_response()
    except exceptions.ResponseError:
        return
    if isinstance(role, list) and role and role[0] != b"master":
        raise LinkLost(f"{endpoint} is not a primary: its role is {role[0].decode(errors='replace')}", False)

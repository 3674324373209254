"""Connecting to a server on asyncio: `connection` without blocking."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..http1.connection import AsyncConnection
from .connection import connect_error, secured

if TYPE_CHECKING:
    import ssl

    from .address import Address


async def connect(host: str, port: int, tls: ssl.SSLContext | None = None) -> AsyncConnection:
    """Connect. Raises OSError."""
    _, connection = await asyncio.get_running_loop().create_connection(
        AsyncConnection, host, port, ssl=tls, server_hostname=host if tls is not None else None
    )
    return connection


async def reach(address: Address, limit_s: float, tls: ssl.SSLContext | None = None) -> AsyncConnection:
    """Connect to a server, with the caller's TLS settings or the defaults. Raises Unreachable, ServerFault, and
    TimeoutError at the limit."""
    context = secured(tls) if address.secure else None
    try:
        async with asyncio.timeout(limit_s):
            return await connect(address.host, address.port, context)
    except TimeoutError:
        raise
    except OSError as refused:
        raise connect_error(address.url, refused) from refused

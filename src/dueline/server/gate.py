"""Which clients may connect to a listener, by their address. Checked once, before a byte is read and before TLS."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Sequence
from typing import cast

from ..dialects.settings import Network


class Networks:
    """The addresses of these networks. `refused` is called with every other one."""

    def __init__(self, networks: Sequence[Network], refused: Callable[[str], None]) -> None:
        self._networks = tuple(networks)
        self._refused = refused

    def accept(self, host: str) -> bool:
        """Whether a client at this address may connect. A client on a unix socket has no address, and may not."""
        if self._has(host):
            return True
        self._refused(host)
        return False

    def _has(self, host: str) -> bool:
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)


class Gate(asyncio.Protocol):
    """The first protocol of a connection. If its address is accepted, `protocol` takes over, else it is closed."""

    def __init__(self, networks: Networks, protocol: Callable[[], asyncio.Protocol]) -> None:
        self._networks = networks
        self._protocol = protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        accepted = cast(asyncio.Transport, transport)
        if not self._networks.accept(host_of(transport)):
            accepted.abort()
            return
        inner = self._protocol()
        accepted.set_protocol(inner)
        inner.connection_made(transport)


def host_of(transport: asyncio.BaseTransport) -> str:
    """The client's host. Empty for a unix socket."""
    peer = transport.get_extra_info("peername")
    return peer[0] if isinstance(peer, tuple) else ""

"""Only clients of the given networks may connect."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from dueline.server.gate import Networks

from ..kit.raw_http import connect
from .kit import OK, OpenKit


@pytest.mark.parametrize(
    ("network", "inside", "outside"),
    [
        ("10.1.0.0/16", "10.1.255.255", "10.2.0.0"),
        ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
        ("127.0.0.1", "::ffff:127.0.0.1", "::1"),
        ("fe80::/10", "fe80::1%lo", "fec0::1"),
        ("10.0.0.0/8", "10.0.0.1", ""),  # a unix socket has no address
    ],
)
def test_an_address_is_in_a_network_or_not(network: str, inside: str, outside: str) -> None:
    refused: list[str] = []
    networks = Networks([ip_network(network)], refused.append)
    assert (networks.accept(inside), networks.accept(outside), refused) == (True, False, [outside])


async def test_a_client_of_another_network_is_closed_before_it_says_anything(open_kit: OpenKit) -> None:
    refused: list[str] = []
    async with open_kit(networks=Networks([ip_network("127.0.0.1/32")], refused.append)) as front_kit:
        good = await front_kit.client(source="127.0.0.1")
        assert (await good.ask(OK)).status == 200
        assert refused == []
        stranger = await connect(front_kit.port, source="127.0.0.2")  # without TLS: it does not even get that far
        assert (await stranger.closed(), refused) == (b"", ["127.0.0.2"])
        stranger.close()
        assert front_kit.front.connections == 1
        assert (await good.ask(OK)).status == 200

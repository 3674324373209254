"""A store that resets connections while they are made: the link is lost, whatever the event loop raises."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator

import pytest
import uvloop

from dueline.store.valkey.connector import Connector
from dueline.store.valkey.link_errors import LinkLost
from dueline.store.valkey.tls import StoreTls
from dueline.store_address import Endpoint, parse_store_url
from tests.kit.async_tests import LoopFactory, async_fixture

CONNECTS = 200


@pytest.fixture(params=[None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop_factory(request: pytest.FixtureRequest) -> LoopFactory | None:
    return request.param


@async_fixture
async def resetting_port() -> AsyncIterator[int]:
    """A server that resets every connection as soon as it has accepted it."""

    async def reset(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    server = await asyncio.start_server(reset, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def test_a_connect_that_is_reset_is_a_lost_link(resetting_port: int) -> None:
    """The reset arrives before, between and after the first commands, so it is tried many times."""
    connector = Connector.of_nodes(parse_store_url(f"redis://127.0.0.1:{resetting_port}"), StoreTls())
    endpoint = Endpoint("127.0.0.1", resetting_port)
    tries = [connector.open(endpoint, primary_only=True) for _ in range(CONNECTS)]
    found = await asyncio.gather(*tries, return_exceptions=True)
    assert {type(error) for error in found} == {LinkLost}

"""A cancelled exchange whose answer is still wanted: nothing that the server sends may be lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from dueline.client.async_connection import AsyncConnection, connect
from tests.kit.waiting import turns, until

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"

Server = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def connected(server: Server) -> AsyncIterator[AsyncConnection]:
    """A connection to a server that answers with `server`."""
    listener = await asyncio.start_server(server, "127.0.0.1", 0)
    connection = await connect("127.0.0.1", listener.sockets[0].getsockname()[1])
    try:
        yield connection
    finally:
        connection.close()
        listener.close()


async def cancelled(connection: AsyncConnection) -> asyncio.Task[object]:
    """An exchange that is sent and then cancelled, but whose task has not run since."""
    exchange = asyncio.ensure_future(connection.exchange(REQUEST))
    await turns()
    exchange.cancel()
    return exchange


@pytest.mark.parametrize("at", ["before it leaves", "after it leaves"])
async def test_an_answer_on_its_way_when_the_exchange_is_cancelled_still_arrives(at: str) -> None:
    answered = asyncio.Event()

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if at == "after it leaves":
            assert await reader.read() == b"", "the client closes its writing side"
        writer.write(ANSWER)
        await writer.drain()
        answered.set()

    async with connected(server) as connection:
        exchange = await cancelled(connection)
        if at == "before it leaves":
            await answered.wait()
            await until(lambda: not connection.waiting, every_s=0)
        response = await connection.leave(10)
        assert response is not None
        assert response.body == b"ok"
        assert exchange.cancelled()


async def test_an_answer_that_arrives_in_the_same_turn_as_the_cancellation_is_not_lost() -> None:
    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with connected(server) as connection:
        exchange = asyncio.ensure_future(connection.exchange(REQUEST))
        await turns()
        connection.data_received(ANSWER)
        exchange.cancel()
        await asyncio.wait({exchange})
        assert exchange.cancelled()
        response = await connection.leave(10)
        assert response is not None
        assert response.body == b"ok"


async def test_a_server_that_ends_the_connection_leaves_no_answer() -> None:
    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with connected(server) as connection:
        await cancelled(connection)
        with pytest.raises(ConnectionResetError):
            await connection.leave(10)


async def test_a_server_that_says_nothing_is_waited_for_only_so_long() -> None:
    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with connected(server) as connection:
        await cancelled(connection)
        assert await connection.leave(0.01) is None

"""A cancelled exchange whose answer is still wanted: nothing that the server sends may be lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dueline.client.async_connection import AsyncConnection, connect

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"

Server = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def run(server: Server, scenario: Callable[[AsyncConnection], Awaitable[None]]) -> None:
    async def main() -> None:
        listener = await asyncio.start_server(server, "127.0.0.1", 0)
        connection = await connect("127.0.0.1", listener.sockets[0].getsockname()[1])
        try:
            async with asyncio.timeout(20):
                await scenario(connection)
        finally:
            connection.abort()
            listener.close()

    asyncio.run(main())


async def cancelled(connection: AsyncConnection) -> asyncio.Task[object]:
    """An exchange that is sent and then cancelled, but whose task has not run since."""
    exchange = asyncio.ensure_future(connection.exchange(REQUEST))
    await asyncio.sleep(0)
    exchange.cancel()
    return exchange


@pytest.mark.parametrize("at", ["before it leaves", "after it leaves"])
def test_an_answer_on_its_way_when_the_exchange_is_cancelled_still_arrives(at: str) -> None:
    answered = asyncio.Event()

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if at == "after it leaves":
            assert await reader.read() == b"", "the client closes its writing side"
        writer.write(ANSWER)
        await writer.drain()
        answered.set()

    async def scenario(connection: AsyncConnection) -> None:
        exchange = await cancelled(connection)
        if at == "before it leaves":
            await answered.wait()
            while connection.waiting:  # noqa: ASYNC110 - the loop delivers it
                await asyncio.sleep(0)
        response = await connection.leave(10)
        assert response is not None
        assert response.body == b"ok"
        assert exchange.cancelled()

    run(server, scenario)


def test_an_answer_that_arrives_in_the_same_turn_as_the_cancellation_is_not_lost() -> None:
    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def scenario(connection: AsyncConnection) -> None:
        exchange = asyncio.ensure_future(connection.exchange(REQUEST))
        await asyncio.sleep(0)
        connection.data_received(ANSWER)
        exchange.cancel()
        await asyncio.wait({exchange})
        assert exchange.cancelled()
        response = await connection.leave(10)
        assert response is not None
        assert response.body == b"ok"

    run(server, scenario)


def test_a_server_that_ends_the_connection_leaves_no_answer() -> None:
    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def scenario(connection: AsyncConnection) -> None:
        await cancelled(connection)
        with pytest.raises(ConnectionResetError):
            await connection.leave(10)

    run(server, scenario)


def test_a_server_that_says_nothing_is_waited_for_only_so_long() -> None:
    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async def scenario(connection: AsyncConnection) -> None:
        await cancelled(connection)
        assert await connection.leave(0.01) is None

    run(server, scenario)

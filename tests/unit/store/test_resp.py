"""The store's protocol as bytes, against a server that says exactly what the test wants, in whatever pieces."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop
from redis.asyncio.connection import Connection
from redis.exceptions import NoScriptError

from dueline.store.valkey.link import Link, LinkLost, NotNow
from dueline.store.valkey.resp import command
from dueline.store.valkey.tls import StoreTls
from tests.kit.async_tests import LoopFactory
from tests.kit.waiting import turns


@pytest.fixture(params=[None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop_factory(request: pytest.FixtureRequest) -> LoopFactory | None:
    return request.param


CALL = b"$1\r\nX\r\n"


async def against(place: Path, pieces: list[bytes], calls: int, ask: Callable[[Link], Awaitable[Any]]) -> Any:
    """What `ask` finds at a server that waits for so many calls, answers with these pieces, one by one, and hangs up.
    redis-py's greetings are answered before."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = b""
        while asked.count(CALL) < calls:
            data = await reader.read(65536)
            if not data:
                break
            asked += data
            if CALL not in asked:
                writer.write(b"+OK\r\n" * data.count(b"*"))
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await turns()
        writer.close()

    server = await asyncio.start_unix_server(answer, place / "s")
    link = Link(f"unix://{place / 's'}?lib_name=&lib_version=")
    await link.start()
    try:
        return await ask(link)
    finally:
        await link.stop()
        server.close()


def outcome(error: BaseException | Any) -> Any:
    if isinstance(error, LinkLost):
        return "lost", error.written
    return (type(error), str(error)) if isinstance(error, Exception) else error


def all_of(calls: int) -> Callable[[Link], Awaitable[list[Any]]]:
    async def ask(link: Link) -> list[Any]:
        await link.call("", "PING")  # connect
        results = await asyncio.gather(*(link.call("", "X", n) for n in range(calls)), return_exceptions=True)
        return [outcome(result) for result in results]

    return ask


@pytest.mark.parametrize(
    "args",
    [
        ("EVALSHA", "f" * 40, 2, "{a}:m", "{a}:j", "", b"\x00\xff\r\n", "grün", 1.5, 2**53),
        ("PING",),
    ],
)
def test_a_command_has_the_bytes_that_redis_py_makes(args: tuple[Any, ...]) -> None:
    assert command(args) == b"".join(Connection().pack_command(*args))


async def test_replies_reach_their_calls_in_order_however_they_are_cut(tmp_path: Path) -> None:
    said = b"*3\r\n:1\r\n$4\r\n\x00\r\n\xff\r\n$-1\r\n" + b"+OK\r\n" + b"-NOSCRIPT No matching script.\r\n" + b":7\r\n"
    for size in (1, 7, len(said)):
        pieces = [said[at : at + size] for at in range(0, len(said), size)]
        place = tmp_path / str(size)
        place.mkdir()
        assert await against(place, pieces, 4, all_of(4)) == [
            [1, b"\x00\r\n\xff", None],
            b"OK",
            (NoScriptError, "No matching script."),
            7,
        ]


async def test_calls_without_a_reply_are_lost_when_the_store_hangs_up(tmp_path: Path) -> None:
    assert await against(tmp_path, [b"+OK\r\n$5\r\nhal"], 3, all_of(3)) == [b"OK", ("lost", True), ("lost", True)]


async def test_a_store_that_loads_answers_its_call_and_one_that_refuses_the_connection_loses_it(tmp_path: Path) -> None:
    loading = [b"-LOADING it is loading\r\n"]
    assert await against(tmp_path, loading, 1, all_of(1)) == [(NotNow, "it is loading")]
    refused = tmp_path / "refused"
    refused.mkdir()
    said = [b"+OK\r\n-NOAUTH Authentication required.\r\n+OK\r\n"]
    assert await against(refused, said, 3, all_of(3)) == [b"OK", ("lost", True), ("lost", True)]


@pytest.mark.parametrize("said", [b"+OK\r\n+twice\r\n", b"+OK\r\nHTTP/1.1 200\r\n"], ids=["too many", "no RESP"])
async def test_what_no_call_asked_for_ends_the_connection_and_the_next_call_has_a_new_one(
    said: bytes, tmp_path: Path
) -> None:
    async def ask(link: Link) -> Any:
        first = await link.call("", "X")
        assert link._only is not None
        return first, link._only.connection, await link.call("", "X")

    assert await against(tmp_path, [said], 1, ask) == (b"OK", None, b"OK")


async def test_calls_over_tls_are_answered(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            writer.write(b"$3\r\nTLS\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    tls = StoreTls(ca=str(tmp_path / "ca.pem"))
    link = Link(f"rediss://localhost:{port}?lib_name=&lib_version=", tls=tls)
    await link.start()
    found = [await link.call("", "X"), await link.call("", "X")]
    await link.stop()
    server.close()
    assert found == [b"TLS", b"TLS"]

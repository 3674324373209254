"""The fault proxy forwards untouched data, and breaks exactly what it should."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dueline.testing.clock import VirtualClock
from tests.kit.async_tests import async_fixture
from tools.faults.connection import Connection, NoAnswer, NotSent
from tools.faults.proxy import Cut, FaultProxy


class Upper:
    """A server that answers every line in upper case, and remembers the lines it got."""

    def __init__(self, path: Path) -> None:
        self.path, self.got = path, []
        self.lost = asyncio.Event()

    async def __aenter__(self):
        self.server = await asyncio.start_unix_server(self.answer, str(self.path))
        return self

    async def __aexit__(self, *_):
        self.server.close()

    async def answer(self, reader, writer):
        while line := await reader.readline():
            self.got.append(line)
            if line.endswith(b"\n"):
                writer.write(line.upper())
        self.lost.set()
        writer.close()


@async_fixture
async def upper(tmp_path: Path) -> AsyncIterator[Upper]:
    async with Upper(tmp_path / "up.sock") as upper:
        yield upper


@async_fixture
async def proxy(upper: Upper, tmp_path: Path) -> AsyncIterator[FaultProxy]:
    proxy = FaultProxy(upper.path, tmp_path / "proxy.sock")
    await proxy.start()
    yield proxy
    await proxy.stop()
    await proxy.stop()


async def dial(proxy: FaultProxy):
    return await asyncio.open_unix_connection(str(proxy.address))


async def ask(reader, writer, line: bytes) -> bytes:
    writer.write(line)
    return await reader.read(100)


async def test_data_passes_untouched_and_in_slices(upper, proxy) -> None:
    reader, writer = await dial(proxy)
    assert await ask(reader, writer, b"one\n") == b"ONE\n"
    proxy.up.slice_bytes = proxy.down.slice_bytes = 1
    proxy.down.latency_ms, proxy.down.jitter_ms, proxy.up.rate_bytes_per_s = 0.1, 0.1, 100_000
    writer.write(b"two three\n")
    assert await reader.readexactly(10) == b"TWO THREE\n"
    assert (upper.got, proxy.connections, proxy.cuts) == ([b"one\n", b"two three\n"], 1, 0)


@pytest.mark.parametrize("after", range(8))
async def test_an_answer_is_cut_after_the_counted_bytes_and_its_request_was_carried_out(
    after: int, upper, proxy
) -> None:
    reader, writer = await dial(proxy)
    other = await dial(proxy)
    cut = proxy.arm(Cut(b"mark", after))
    assert await ask(*other, b"plain\n") == b"PLAIN\n"
    writer.write(b"ma")
    await writer.drain()
    await asyncio.sleep(0.01)  # two pieces: the marker is split between them
    writer.write(b"rked 1\n")
    whole = b"MARKED 1\n"
    assert await reader.read() == whole[:after]
    await cut.fired.wait()
    assert upper.got == [b"plain\n", b"marked 1\n"]
    assert await ask(*other, b"mark again\n") == b"MARK AGAIN\n"
    assert (proxy.cuts, cut.answered_bytes) == (1, len(whole))


async def test_a_cut_beyond_the_answer_does_not_happen(proxy) -> None:
    connection = await dial(proxy)
    cut = proxy.arm(Cut(b"mark", 5))
    assert await ask(*connection, b"mark\n") == b"MARK\n"
    assert (cut.fired.is_set(), cut.answered_bytes) == (False, 5)


async def test_a_request_is_cut_before_the_server_has_it_whole(upper, proxy) -> None:
    reader, writer = await dial(proxy)
    cut = proxy.arm(Cut(b"mark", 3, up=True))
    writer.write(b"xx mark\n")
    assert await reader.read() == b""
    await cut.fired.wait()
    await upper.lost.wait()
    assert upper.got == [b"xx mar"]


async def test_a_black_hole_swallows_and_severing_ends_every_connection(upper, proxy) -> None:
    one, two = await dial(proxy), await dial(proxy)
    assert await ask(*one, b"a\n") == b"A\n"
    assert await ask(*two, b"b\n") == b"B\n"
    proxy.down.black_hole = True
    one[1].write(b"c\n")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(one[0].read(1), 0.05)
    assert proxy.sever() == 2
    assert (await one[0].read(), await two[0].read()) == (b"", b"")
    proxy.refusing = True
    assert await (await dial(proxy))[0].read() == b""
    proxy.heal()
    assert await ask(*await dial(proxy), b"d\n") == b"D\n"
    assert upper.got == [b"a\n", b"b\n", b"c\n", b"d\n"]


async def test_the_http_client_tells_not_sent_from_no_answer() -> None:
    async def hang_up(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    connection = Connection(*server.sockets[0].getsockname()[:2])
    with pytest.raises(NoAnswer):
        await connection.request("GET", "/")
    server.close()
    await server.wait_closed()
    with pytest.raises(NotSent):
        await connection.request("GET", "/")


def test_a_virtual_clock_moves_only_when_moved() -> None:
    clock = VirtualClock(1000)
    assert [clock(), clock.advance(5), clock.advance_to(900), clock.step(-105), clock.now_ms] == [
        1000,
        1005,
        1005,
        900,
        900,
    ]
    with pytest.raises(ValueError, match="step"):
        clock.advance(-1)


async def test_a_stall_keeps_data_back_until_it_is_over(proxy: FaultProxy) -> None:
    reader, writer = await dial(proxy)
    proxy.down.stalled = True
    answer = asyncio.create_task(ask(reader, writer, b"one\n"))
    await asyncio.wait([answer], timeout=0.1)
    assert not answer.done()
    proxy.heal()
    assert await answer == b"ONE\n"
    writer.close()

"""Calls without a time limit: they end with their connection, and nobody else makes them meanwhile."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from dueline.dialects.spring.courier import SpringCourier
from dueline.dialects.spring.groups import Groups
from dueline.dialects.spring.settings import SpringSettings
from dueline.engine.commands import Send
from dueline.engine.errors import StoreDown
from dueline.engine.job import BodyKind
from dueline.push.call import Call, CallFailed, Response
from dueline.push.discovery import Instance
from dueline.push.discovery.static import StaticResolver
from dueline.push.egress import Egress
from dueline.push.outgoing_calls import AddressInfo, plain_socket

from .egress_kit import Table, calling, failing, serving
from .push_kit import MINUTE, SECOND, PushKit, answer, running

LOOPBACK = Egress(["127.0.0.0/8"])
WORK_MS = 75 * SECOND
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\naccepted"
TWO_INSTANCES = {"a": [Instance("http://one:1", ("task1",)), Instance("http://two:2", ("task1",))]}


def give_spring_workers(kit: PushKit) -> list[str]:
    """Two instances of application "a", whose work takes 75 s each time; the URLs that were called."""
    begun: list[str] = []

    async def call(call: Call) -> Response:
        begun.append(call.url)
        limit_ms = WORK_MS if call.timeout_ms is None else min(call.timeout_ms, WORK_MS)
        over = asyncio.Event()
        kit.timer.call_later(limit_ms / 1000, over.set)
        await over.wait()
        if limit_ms < WORK_MS:
            raise CallFailed("timeout", "no complete answer in time")
        return answer()

    kit.target.call = call  # pyright: ignore[reportAttributeAccessIssue]
    for process in kit.processes:
        process.couriers["spring"] = SpringCourier(StaticResolver(TWO_INSTANCES))
    return begun


async def add(kit: PushKit, *ids: str) -> None:
    await Groups(kit.engine, SpringSettings()).serve("a-task1", nowhere=False)
    await kit.heard()
    for id in ids:
        await kit.engine.send("spring", "a-task1", Send(id, b"p", BodyKind.TEXT, retain_ms=100 * MINUTE))


async def states(kit: PushKit, *ids: str) -> list[str]:
    return [(await kit.engine.get("spring", "a-task1", id)).state.value for id in ids]


@pytest.mark.parametrize("processes", [1, 3])
async def test_a_spring_worker_that_takes_75_seconds_works_once_and_is_acknowledged(processes: int) -> None:
    async with running(processes=processes) as kit:
        begun = give_spring_workers(kit)
        await add(kit, "slow", "next")
        for _ in range(7 * 60):
            await kit.advance(SECOND)
        assert begun == ["http://one:1/hf/delay_queue/work"] * 2
        assert await states(kit, "slow", "next") == ["done", "done"]


async def test_it_is_called_again_when_the_connection_broke(kit: PushKit) -> None:
    give_spring_workers(kit)
    begun: list[str] = []

    async def call(call: Call) -> Response:
        begun.append(call.url)
        if len(begun) == 1:
            raise CallFailed("protocol", "the connection ended before the answer did")
        return answer()

    kit.target.call = call  # pyright: ignore[reportAttributeAccessIssue]
    await add(kit, "one")
    await kit.advance(SECOND)
    assert begun == ["http://one:1/hf/delay_queue/work", "http://two:2/hf/delay_queue/work"]
    assert await states(kit, "one") == ["done"]


async def test_it_is_called_again_by_another_server_when_the_calling_one_died() -> None:
    """To the others a server that died is one that extends its leases no more."""

    async def gone(*_: Any) -> Any:
        raise StoreDown

    async with running(processes=2) as kit:
        begun = give_spring_workers(kit)
        await add(kit, "one")
        await kit.advance(20 * SECOND)
        assert len(begun) == 1
        for process in kit.processes[:1]:
            process.engine.extend = gone  # pyright: ignore[reportAttributeAccessIssue]
        await kit.advance(60 * SECOND)
        assert len(begun) == 2
        await kit.advance(WORK_MS)
        assert await states(kit, "one") == ["done"]


async def test_an_answer_is_waited_for_as_long_as_the_connection_lives() -> None:
    """Longer than it may take to connect, which is what is bounded."""
    connected, answers = asyncio.Event(), asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        connected.set()
        await answers.wait()
        writer.write(OK)
        await writer.drain()

    async with serving(talk) as port, calling(LOOPBACK, reach_s=0.05) as outgoing:
        url = f"http://127.0.0.1:{port}/"
        calls = [asyncio.create_task(outgoing.call(Call("POST", url, timeout_ms=None))) for _ in range(2)]
        await connected.wait()
        done, _ = await asyncio.wait(calls, timeout=0.3)
        assert not done
        answers.set()
        first, _ = await asyncio.gather(*calls)
        assert first.excerpt == "accepted"


async def test_a_call_that_reaches_nobody_ends_although_it_has_no_time_limit() -> None:
    class Hangs(Table):
        async def addresses(self, host: str) -> Any:
            await asyncio.Event().wait()

    async with calling(Egress(), Hangs(), reach_s=0.05) as outgoing:
        assert (await failing(outgoing, Call("POST", "http://hangs.test/", timeout_ms=None))).kind == "connect"


async def test_a_broken_connection_ends_the_call() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    async with serving(talk) as port, calling(LOOPBACK) as outgoing:
        assert (await failing(outgoing, Call("POST", f"http://127.0.0.1:{port}/", timeout_ms=None))).kind == "protocol"


async def test_a_host_that_vanishes_is_noticed_by_probes_of_the_connection() -> None:
    made: list[socket.socket] = []

    def make(info: AddressInfo) -> socket.socket:
        made.append(plain_socket(info))
        return made[-1]

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        assert made[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        after_s, every_s, probes = (
            made[0].getsockopt(socket.IPPROTO_TCP, name)
            for name in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert after_s + every_s * probes <= 60
        writer.write(OK)
        await writer.drain()

    async with serving(talk) as port, calling(LOOPBACK, make_socket=make) as outgoing:
        assert (await outgoing.call(Call("POST", f"http://127.0.0.1:{port}/", timeout_ms=None))).status == 200

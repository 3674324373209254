"""How things end: clients that leave, servers that drain."""

from __future__ import annotations

import asyncio

import pytest

from dueline.server.front import Front, FrontLimits
from dueline.server.router import Router
from tests.kit.waiting import until

from .kit import OK, FrontKit, OpenKit, Probe, front_kit

PARK = b"GET /park HTTP/1.1\r\nHost: x\r\n\r\n"
PAGE = b"GET /page HTTP/1.1\r\nHost: x\r\n\r\n"
HOLD = b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_a_client_that_leaves_cancels_the_handler_it_is_parked_in(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    await client.send(PARK)
    await front_kit.probe.parked.wait()
    client.close()
    await front_kit.probe.cancelled.wait()
    await front_kit.empty()


async def test_a_client_that_resets_cancels_the_handler_it_is_parked_in(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    await client.send(PARK)
    await front_kit.probe.parked.wait()
    client.reset()
    await front_kit.probe.cancelled.wait()


async def test_a_parked_handler_is_cancelled_also_behind_other_requests(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    await client.send(OK + PARK + OK)
    assert (await client.answer()).status == 200
    await front_kit.probe.parked.wait()
    client.close()
    await front_kit.probe.cancelled.wait()
    assert [request.path for request in front_kit.probe.seen] == ["/echo", "/park"]


async def test_a_handler_that_does_not_park_runs_to_its_end_when_the_client_leaves(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    await client.send(HOLD)
    await front_kit.probe.parked.wait()
    client.reset()
    await front_kit.empty()
    front_kit.probe.release.set()
    await front_kit.probe.undelivered.wait()


async def test_an_answer_that_the_kernel_has_only_in_part_is_undelivered_when_the_client_vanishes(
    open_kit: OpenKit,
) -> None:
    async with open_kit(send_buffer_bytes=4096) as front_kit:
        client = await front_kit.client(buffer_bytes=4096)
        client.writer.transport.pause_reading()
        await client.send(PAGE)
        await until(lambda: front_kit.answered, every_s=0)
        client.reset()
        await front_kit.empty()
        assert front_kit.probe.undelivered.is_set()


async def test_an_answer_that_was_read_slowly_is_not_undelivered_when_the_client_vanishes(open_kit: OpenKit) -> None:
    async with open_kit(send_buffer_bytes=4096) as front_kit:
        client = await front_kit.client(buffer_bytes=4096)
        assert len((await client.ask(PAGE)).body) == 60_000
        client.reset()
        await front_kit.empty()
        assert not front_kit.probe.undelivered.is_set()


async def test_a_client_that_only_stops_writing_still_gets_its_answer(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    await client.send(HOLD + OK)
    await front_kit.probe.parked.wait()
    client.stop_writing()
    front_kit.probe.release.set()
    assert (await client.answer()).json() == {"held": True}
    assert (await client.answer()).status == 200
    assert await client.closed() == b""


async def test_a_drain_answers_what_was_received_and_closes_the_rest(front_kit: FrontKit) -> None:
    idle, busy = await front_kit.client(), await front_kit.client()
    assert (await idle.ask(OK)).status == 200
    await busy.send(HOLD)
    await front_kit.probe.parked.wait()
    drained = asyncio.create_task(front_kit.front.drain(10))
    assert await idle.closed() == b""
    front_kit.probe.release.set()
    answer = await busy.answer()
    assert (answer.json(), answer.headers["connection"]) == ({"held": True}, "close")
    assert await busy.closed() == b""
    await drained
    with pytest.raises(OSError):
        await front_kit.client()


async def test_before_a_drain_each_connection_is_closed_after_its_next_answer_and_new_ones_are_served(
    front_kit: FrontKit,
) -> None:
    idle, parked = await front_kit.client(), await front_kit.client()
    assert "connection" not in (await idle.ask(OK)).headers
    await parked.send(HOLD)
    await front_kit.probe.parked.wait()
    front_kit.front.close_after_answers()
    new = await front_kit.client()
    for client in (idle, new):
        assert (await client.ask(OK)).headers["connection"] == "close"
        assert await client.closed() == b""
    front_kit.probe.release.set()
    assert (await parked.answer()).headers["connection"] == "close"
    assert await parked.closed() == b""


async def test_a_drain_cuts_what_does_not_end_in_time(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    await client.send(PARK)
    await front_kit.probe.parked.wait()
    await front_kit.front.drain(0.05)
    assert front_kit.probe.cancelled.is_set() or await front_kit.probe.cancelled.wait()
    assert front_kit.front.connections == 0


async def test_a_front_may_be_drained_twice_and_before_it_was_started() -> None:
    front = Front(Router([Probe()]))
    await front.drain(1)
    await front.drain(1)


@pytest.mark.parametrize("loop_factory", [None], ids=["asyncio"])
async def test_the_front_also_runs_on_the_standard_loop() -> None:
    async with front_kit(FrontLimits()) as running:
        client = await running.client()
        assert (await client.ask(OK)).status == 200
        await client.send(PARK)
        await running.probe.parked.wait()
        client.reset()
        await running.probe.cancelled.wait()

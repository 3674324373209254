"""Requests that are sent ahead of their answers: bounded, in order, and never at the cost of others."""

from __future__ import annotations

import asyncio
import select

import pytest

from dueline.server.connection import MAX_AHEAD_BYTES, Connection
from dueline.server.front import FrontLimits
from dueline.server.pipelining import PLACES
from tests.kit.waiting import until

from .kit import OK, FrontKit, OpenKit, assert_error

POLL = b"GET /park HTTP/1.1\r\nHost: x\r\n\r\n"
HOLD = b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNK_BYTES = 256 * 1024  # what a loop reads at once
IMPATIENT = FrontLimits(ahead_timeout_s=0.1, linger_timeout_s=0.2)


def things(count: int, start: int = 0) -> bytes:
    return b"".join(b"GET /things/%d HTTP/1.1\r\nHost: x\r\n\r\n" % n for n in range(start, start + count))


def select_end(descriptor: int) -> bool:
    """Has the kernel seen the end of the other side?"""
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP)
    return bool(poll.poll(0))


def only(front_kit: FrontKit) -> Connection:
    [connection] = front_kit.front._connections
    return connection


@pytest.mark.parametrize("waiting", [POLL, HOLD], ids=["a parked poll", "a slow request"])
async def test_few_requests_are_parsed_behind_one_that_waits_and_few_bytes_are_kept(
    waiting: bytes, front_kit: FrontKit
) -> None:
    client = await front_kit.client()
    await client.send(waiting)
    await front_kit.probe.parked.wait()
    client.writer.write(OK * 400_000)
    connection = only(front_kit)
    await until(lambda: connection._reading_paused, every_s=0)
    assert 1 < len(connection._queue) <= 32
    assert connection._reader.ahead_bytes <= MAX_AHEAD_BYTES + CHUNK_BYTES
    assert front_kit.front.buffered_bytes >= connection._reader.ahead_bytes
    client.writer.transport.abort()
    front_kit.probe.release.set()
    await front_kit.empty()
    assert front_kit.front.buffered_bytes == 0


async def test_what_was_sent_ahead_is_answered_in_order_whatever_its_size(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    await client.send(HOLD)
    await front_kit.probe.parked.wait()
    body = b"x" * 9_000
    send = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    data = b"".join(things(50, at) + send for at in range(0, 1000, 50))
    writing = asyncio.ensure_future(client.send(data))
    front_kit.probe.release.set()
    assert (await client.answer()).json() == {"held": True}
    for at in range(0, 1000, 50):
        for n in range(at, at + 50):
            assert (await client.answer()).json()["params"] == [str(n)]
        assert (await client.answer()).json()["body"] == body.decode()
    await writing


async def test_a_poll_with_a_little_behind_it_waits_and_all_of_it_is_answered(open_kit: OpenKit) -> None:
    async with open_kit(IMPATIENT) as front_kit:
        client = await front_kit.client()
        await client.send(POLL + things(500))
        await front_kit.probe.parked.wait()
        await asyncio.wait([asyncio.ensure_future(front_kit.probe.cancelled.wait())], timeout=0.5)
        assert not front_kit.probe.cancelled.is_set()
        front_kit.probe.release.set()
        assert (await client.answer()).status == 200
        for n in range(500):
            assert (await client.answer()).json()["params"] == [str(n)]


@pytest.mark.parametrize("leave", ["close", "reset"])
@pytest.mark.parametrize("before", [b"", things(100)], ids=["alone", "behind others"])
async def test_the_end_of_a_client_is_noticed_behind_what_it_sent_ahead(
    leave: str, before: bytes, front_kit: FrontKit
) -> None:
    client = await front_kit.client()
    await client.send(before + POLL + things(500))
    await front_kit.probe.parked.wait()
    getattr(client, leave)()
    await asyncio.wait_for(front_kit.probe.cancelled.wait(), 5)


async def test_a_poll_whose_client_cannot_be_seen_to_leave_is_refused(open_kit: OpenKit) -> None:
    """The end of a connection stands behind all that is not read: nobody can tell whether the client is there."""

    async with open_kit(IMPATIENT) as front_kit:
        client = await front_kit.client()
        client.writer.write(POLL + OK * 400_000)
        assert_error(await client.answer(), 429, "rate_limited")
        assert front_kit.probe.cancelled.is_set()
        client.writer.transport.abort()
        await front_kit.empty()
        assert [request.path for request in front_kit.probe.seen] == ["/park"]


@pytest.mark.skipif(not hasattr(select, "POLLRDHUP"), reason="only Linux reports a disconnect behind unread bytes")
async def test_a_client_that_leaves_while_nothing_is_read_gets_no_job(open_kit: OpenKit) -> None:
    async with open_kit(FrontLimits(ahead_timeout_s=30)) as front_kit:
        client = await front_kit.client()
        client.writer.write(POLL + OK * (2 * MAX_AHEAD_BYTES // len(OK)))
        await front_kit.probe.parked.wait()
        connection = only(front_kit)
        await until(lambda: connection._reading_paused, every_s=0)
        await client.writer.drain()
        client.stop_writing()  # as the kernel shows a close; asyncio's TLS client would wait for an answer first
        assert connection._transport is not None
        async with asyncio.timeout(5):
            await until(lambda: select_end(connection._transport.get_extra_info("socket").fileno()))
            front_kit.probe.release.set()
            await front_kit.probe.undelivered.wait()


async def test_a_poll_is_not_begun_for_a_client_that_has_left(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    await client.send(HOLD + POLL)
    await front_kit.probe.parked.wait()
    front_kit.probe.parked.clear()
    connection = only(front_kit)
    client.stop_writing()
    await until(lambda: connection._ended, every_s=0)
    front_kit.probe.release.set()
    assert (await client.answer()).json() == {"held": True}
    assert await client.closed() == b""
    assert not front_kit.probe.parked.is_set()


async def test_all_that_is_sent_ahead_is_bounded_together(open_kit: OpenKit) -> None:
    limits = FrontLimits(max_buffered_bytes=149_000, linger_timeout_s=0.1)

    async with open_kit(limits) as front_kit:
        ahead = things(1, 1) + b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n\r\n" + b"x" * 50_000
        clients = [await front_kit.client() for _ in range(3)]

        def refused() -> bool:
            return any(connection._reader.deaf for connection in front_kit.front._connections)

        for client in clients:
            before = front_kit.front.buffered_bytes
            front_kit.probe.parked.clear()
            await client.send(HOLD)
            await front_kit.probe.parked.wait()
            await client.send(ahead)
            await until(lambda before=before: front_kit.front.buffered_bytes != before or refused(), every_s=0)
        await until(refused, every_s=0)
        assert front_kit.front.buffered_bytes <= limits.max_buffered_bytes
        front_kit.probe.release.set()
        for client, status in zip(clients, (200, 200, 429), strict=True):
            assert (await client.answer()).json() == {"held": True}
            assert (await client.answer()).status == status


async def test_others_are_answered_between_the_requests_of_a_client_that_sends_ahead(front_kit: FrontKit) -> None:
    greedy, modest = await front_kit.client(), await front_kit.client()
    await modest.ask(OK)
    greedy.writer.write(things(5000))
    await until(lambda: front_kit.probe.seen[1:], every_s=0)
    assert (await modest.ask(b"GET /echo?modest HTTP/1.1\r\nHost: x\r\n\r\n")).status == 200
    place = next(at for at, request in enumerate(front_kit.probe.seen) if request.query == "modest")
    assert place < 500


async def test_few_requests_that_were_sent_ahead_are_under_way_at_once(front_kit: FrontKit) -> None:
    places = front_kit.front.places
    clients = [await front_kit.client() for _ in range(PLACES + 5)]
    for client in clients:
        assert (await client.ask(OK + HOLD)).status == 200
    await until(lambda: len(places._waiting) >= 5, every_s=0)
    assert places._free == 0
    assert (await (await front_kit.client()).ask(OK)).status == 200  # whoever sends nothing ahead needs no place
    clients[0].reset()
    clients[-1].reset()  # one that has a place and one that waits for it
    front_kit.probe.release.set()
    for client in clients[1:-1]:
        assert (await client.answer()).json() == {"held": True}
    await front_kit.empty(but=len(clients) - 1)
    await until(lambda: places._free >= PLACES, every_s=0)
    assert not places._waiting


async def test_a_parked_poll_keeps_no_place(front_kit: FrontKit) -> None:
    for _ in range(PLACES + 5):
        assert (await (await front_kit.client()).ask(OK + POLL)).status == 200
    await until(lambda: sum(request.path == "/park" for request in front_kit.probe.seen) >= PLACES + 5, every_s=0)
    front_kit.clients[0].close()
    await front_kit.probe.cancelled.wait()
    assert front_kit.front.places._free == PLACES

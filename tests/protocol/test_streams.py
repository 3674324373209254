"""Answers that come in pieces: written as the client takes them, and ended with the client, the grant or the server."""

from __future__ import annotations

import asyncio

import pytest

from dueline.engine.errors import Unavailable
from dueline.server.front import FrontLimits

from .kit import OK, FrontKit, OpenKit
from .test_authentication import TOKEN, Guests


def asked(count: int, method: str = "GET") -> bytes:
    return f"{method} /pieces?{count} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


async def test_pieces_arrive_as_they_are_made_and_the_end_of_the_connection_is_their_end(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    await client.send(asked(3))
    answer = await client.answer()
    assert (answer.status, answer.headers["connection"]) == (200, "close")
    assert "content-length" not in answer.headers
    await front_kit.probe.parked.wait()
    front_kit.probe.release.set()
    body = await client.reader.read()
    assert body == b"0" * 100_000 + b"1" * 100_000 + b"2" * 100_000
    await front_kit.probe.undelivered.wait()
    assert front_kit.answered == [("pieces", "GET", 200)]


async def test_a_request_before_a_stream_is_answered_and_one_behind_it_is_not(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    front_kit.probe.release.set()
    await client.send(OK + asked(1) + OK)
    assert (await client.answer()).status == 200
    assert (await client.answer()).status == 200
    assert await client.reader.read() == b"0" * 100_000


async def test_head_gets_no_pieces(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    await client.send(asked(5, "HEAD"))
    assert (await client.answer(head_only=True)).status == 200
    assert await client.reader.read() == b""
    await front_kit.probe.undelivered.wait()
    assert [stream.taken for stream in front_kit.probe.streams] == [0]


async def test_a_client_that_leaves_ends_its_stream(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    await client.send(asked(5))
    await client.answer()
    await front_kit.probe.parked.wait()
    client.close()
    await front_kit.probe.cancelled.wait()
    await front_kit.probe.undelivered.wait()
    await front_kit.empty()


async def test_a_client_that_does_not_read_is_dropped_and_nothing_piles_up(open_kit: OpenKit) -> None:
    limits = FrontLimits(write_timeout_s=0.2)
    async with open_kit(limits, send_buffer_bytes=4096) as front_kit:
        client = await front_kit.client(buffer_bytes=4096)
        front_kit.probe.release.set()
        await client.send(asked(10_000))
        await asyncio.wait_for(front_kit.probe.undelivered.wait(), 30)
        await front_kit.empty()
        assert front_kit.probe.streams[0].taken < 100


@pytest.mark.parametrize("why", ["expired", "stopped"])
async def test_no_piece_is_written_after_the_end_of_its_grant(open_kit: OpenKit, why: str) -> None:
    """Nobody says when a token expires, or that this process was stopped and may have missed a revocation."""
    guests = Guests(TOKEN)
    async with open_kit(auth=guests) as front_kit:
        client = await front_kit.client()
        await client.send(asked(3).replace(b"Host: x", f"Host: x\r\nAuthorization: Bearer {TOKEN}".encode()))
        assert (await client.answer()).status == 200
        await front_kit.probe.parked.wait()
        if why == "expired":
            guests.tokens.clear()
        else:
            guests.error = Unavailable()
        front_kit.probe.release.set()
        assert await client.reader.read() == b""
        await front_kit.probe.undelivered.wait()
        await front_kit.empty()


async def test_draining_waits_for_the_end_of_a_stream(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    await client.send(asked(1))
    await client.answer()
    await front_kit.probe.parked.wait()
    draining = asyncio.ensure_future(front_kit.front.drain(30))
    front_kit.probe.release.set()
    assert len(await client.reader.read()) == 100_000
    await draining


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_old_clients_get_the_same(front_kit: FrontKit, version: str) -> None:
    client = await front_kit.client()
    front_kit.probe.release.set()
    await client.send(asked(2).replace(b"HTTP/1.1", f"HTTP/{version}".encode()))
    assert (await client.answer()).status == 200
    assert len(await client.reader.read()) == 200_000

"""Broken, oversized, slow and hostile clients: a clear refusal, nothing kept, nobody else disturbed."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from dueline.server.front import FrontLimits
from tests.kit.waiting import turns

from ..kit.raw_http import connect
from .kit import OK, FrontKit, OpenKit, assert_error, front_kit, private_tls

QUICK = FrontLimits(
    header_timeout_s=0.1, body_timeout_s=0.15, idle_timeout_s=0.2, write_timeout_s=0.2, linger_timeout_s=0.1
)
P = b"POST /echo HTTP/1.1\r\nHost: x\r\n"

BROKEN = {
    "length and coding": P + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding and length": P + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "two lengths": P + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "two equal lengths": P + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "signed length": P + b"Content-Length: +3\r\n\r\nabc",
    "negative length": P + b"Content-Length: -3\r\n\r\nabc",
    "length list": P + b"Content-Length: 3, 3\r\n\r\nabc",
    "hex length": P + b"Content-Length: 0x3\r\n\r\nabc",
    "huge length": P + b"Content-Length: " + b"9" * 40 + b"\r\n\r\nabc",
    "unknown coding": P + b"Transfer-Encoding: gzip\r\n\r\n",
    "coding before chunked": P + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "coding after chunked": P + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "chunked in old HTTP": b"POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "bad chunk size": P + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
    "bare LF chunks": P + b"Transfer-Encoding: chunked\r\n\r\n3\nabc\n0\n\n",
    "bare LF head": b"GET /echo HTTP/1.1\nHost: x\n\n",
    "folded header": b"GET /echo HTTP/1.1\r\nHost: x\r\n y: z\r\n\r\n",
    "space before colon": b"GET /echo HTTP/1.1\r\nHost : x\r\n\r\n",
    "NUL in a header": b"GET /echo HTTP/1.1\r\nHost: x\0\r\n\r\n",
    "NUL in the path": b"GET /ec\0ho HTTP/1.1\r\nHost: x\r\n\r\n",
    "NUL alone": b"\0",
    "bytes in the path": b"GET /\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n",
    "two hosts": b"GET /echo HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "HTTP/0.9": b"GET /echo\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/3.7": b"GET /echo HTTP/3.7\r\nHost: x\r\n\r\n",
    "unknown method": b"BREW /echo HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "too little": b"GET\r\n\r\n",
}


@pytest.mark.parametrize("request_bytes", BROKEN.values(), ids=BROKEN.keys())
async def test_what_is_not_http_is_refused_and_the_connection_ends(request_bytes: bytes, front_kit: FrontKit) -> None:
    client = await front_kit.client()
    assert_error(await client.ask(request_bytes), 400, "bad_request")
    assert await client.closed() == b""
    assert front_kit.probe.seen == []
    assert front_kit.answered == [("malformed", "-", 400)]


async def test_a_declared_body_over_the_limit_is_refused_before_it_arrives(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    await client.send(P + b"Content-Length: 4194305\r\n\r\n")
    assert_error(await client.answer(), 413, "body_too_large")
    assert front_kit.answered == [("echo", "POST", 413)]


async def test_a_body_at_the_limit_is_taken_and_one_byte_more_is_not(open_kit: OpenKit) -> None:
    limits = FrontLimits(max_body_bytes=1000)

    async with open_kit(limits) as front_kit:
        for chunked in (False, True):
            for size in (999, 1000, 1001):
                client = await front_kit.client()
                body = b"b" * size
                if chunked:
                    pieces = b"".join(
                        b"64\r\n" + body[at : at + 100].ljust(100, b"b") + b"\r\n" for at in range(0, 1000, 100)
                    )
                    extra = b"1\r\nb\r\n" if size > 1000 else b""
                    request = P + b"Transfer-Encoding: chunked\r\n\r\n" + pieces + extra + b"0\r\n\r\n"
                else:
                    request = P + b"Content-Length: %d\r\n\r\n" % size + body
                answer = await client.ask(request)
                if size > 1000:
                    assert_error(answer, 413, "body_too_large")
                else:
                    assert len(answer.json()["body"]) == (1000 if chunked else size)


async def test_an_endless_chunked_body_is_refused_when_it_passes_the_limit(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    await client.send(P + b"Transfer-Encoding: chunked\r\n\r\n")
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    assert_error(await client.press(chunk for _ in range(2000)), 413, "body_too_large")
    assert await client.closed() == b""
    assert front_kit.probe.seen == []


async def test_a_route_can_have_a_smaller_limit_of_its_own(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    assert (await client.ask(b"POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n0123456789")).status == 200
    answer = await client.ask(b"POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\n01234567890")
    assert_error(answer, 413, "body_too_large")


async def test_a_body_shorter_than_declared_never_reaches_a_handler(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    await client.send(P + b"Content-Length: 10\r\n\r\nabc")
    client.stop_writing()
    assert await client.closed() == b""
    assert front_kit.probe.seen == []


async def test_a_body_longer_than_declared_is_a_broken_next_request(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    await client.send(P + b"Content-Length: 3\r\n\r\nabcdef")
    assert (await client.answer()).json()["body"] == "abc"
    assert_error(await client.answer(), 400, "bad_request")


@pytest.mark.parametrize(
    ("head", "status", "code"),
    [
        (b"X-Big: " + b"a" * (1 << 20), 431, "headers_too_large"),
        (b"X" * (1 << 20), 431, "headers_too_large"),
        (b"\r\n".join(b"X-%d: y" % n for n in range(5000)), 431, "headers_too_large"),
        (b"\r\n".join(b"X-%d: %s" % (n, b"y" * 1000) for n in range(60)), 431, "headers_too_large"),
    ],
    ids=["1 MB value", "1 MB name", "5,000 headers", "60 headers of 1 KB"],
)
@pytest.mark.parametrize("piece", [1 << 20, 1000], ids=["at once", "in pieces"])
async def test_too_much_head_is_refused(head: bytes, status: int, code: str, piece: int, front_kit: FrontKit) -> None:
    client = await front_kit.client()
    request = b"GET /echo HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n\r\n"
    answer = await client.press(request[at : at + piece] for at in range(0, len(request), piece))
    assert_error(answer, status, code)
    assert front_kit.probe.seen == []


@pytest.mark.parametrize("piece", [1 << 20, 1000], ids=["at once", "in pieces"])
async def test_a_giant_url_is_refused(piece: int, front_kit: FrontKit) -> None:
    client = await front_kit.client()
    request = b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"
    for at in range(0, len(request), piece):
        await client.send(request[at : at + piece])
    assert_error(await client.answer(), 414, "url_too_long")


async def test_a_head_within_the_limits_is_taken_also_in_pieces(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    head = b"".join(b"X-%d: %s\r\n" % (n, b"y" * 300) for n in range(98))
    request = b"GET /echo HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n"
    for at in range(0, len(request), 777):
        await client.send(request[at : at + 777])
    assert len((await client.answer()).json()["headers"]) == 99


async def test_a_large_body_before_a_cut_head_does_not_count_against_the_head(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    await client.send(P + b"Content-Length: 200000\r\n\r\n" + b"b" * 200000 + OK[:20])
    assert (await client.answer()).status == 200
    assert (await client.ask(OK[20:])).status == 200


async def test_a_head_that_drips_is_cut_at_its_deadline(open_kit: OpenKit) -> None:
    async with open_kit(FrontLimits(header_timeout_s=0.1)) as front_kit:
        client = await front_kit.client()
        await client.send(OK[:10])
        assert_error(await client.answer(), 408, "request_timeout")
        assert await client.closed() == b""


async def test_dripping_bytes_do_not_move_the_deadline_of_a_head(open_kit: OpenKit) -> None:
    async with open_kit(QUICK) as front_kit:
        client = await front_kit.client()
        await client.send(b"GET /echo HTTP/1.1\r\nHost: x\r\n")

        async def drip() -> None:
            while True:
                await client.send(b"X-A: b\r\n")
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        assert_error(await client.answer(), 408, "request_timeout")
        dripping.cancel()


async def test_a_body_that_drips_is_cut_at_its_deadline(open_kit: OpenKit) -> None:
    async with open_kit(QUICK) as front_kit:
        client = await front_kit.client()
        await client.send(P + b"Content-Length: 100\r\n\r\nabc")
        assert_error(await client.answer(), 408, "request_timeout")
        assert await client.closed() == b""
        assert front_kit.probe.seen == []


async def test_an_idle_connection_is_closed_without_a_word(open_kit: OpenKit) -> None:
    async with open_kit(QUICK) as front_kit:
        fresh, used = await front_kit.client(), await front_kit.client()
        assert (await used.ask(OK)).status == 200
        assert (await fresh.closed(), await used.closed()) == (b"", b"")


async def test_line_ends_between_requests_do_not_keep_a_connection_alive(open_kit: OpenKit) -> None:
    async with open_kit(QUICK) as front_kit:
        client = await front_kit.client()

        async def drip() -> None:
            while True:
                await client.send(b"\r\n")
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        await client.closed()
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)


async def test_a_handler_that_takes_longer_than_every_deadline_is_not_cut(open_kit: OpenKit) -> None:
    async with open_kit(QUICK) as front_kit:
        client = await front_kit.client()
        await client.send(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
        await front_kit.probe.parked.wait()
        other = await front_kit.client()
        assert await other.closed() == b""  # its idle deadline came later than the held one's would have
        front_kit.probe.release.set()
        assert (await client.answer()).json() == {"held": True}
        assert (await client.ask(OK)).status == 200


async def test_more_connections_than_the_cap_are_refused(open_kit: OpenKit) -> None:
    async with open_kit(FrontLimits(max_connections=3)) as front_kit:
        inside = [await front_kit.client() for _ in range(3)]
        for client in inside:
            assert (await client.ask(OK)).status == 200
        outside = await front_kit.client()
        answer = await outside.ask(OK)
        assert_error(answer, 503, "too_many_connections")
        assert answer.headers["retry-after"] == "1"
        assert await outside.closed() == b""
        inside[0].close()
        await front_kit.empty(but=2)
        assert (await (await front_kit.client()).ask(OK)).status == 200


async def test_a_flood_of_silent_connections_is_let_go_and_others_are_served(open_kit: OpenKit) -> None:
    async with open_kit(QUICK) as front_kit:
        for number in range(300):
            client = await front_kit.client()
            if number % 2:
                await client.send(OK[:7])
        assert (await (await front_kit.client()).ask(OK)).status == 200
        await front_kit.empty()


async def test_a_client_that_does_not_read_is_cut_and_its_answer_counts_as_undelivered(open_kit: OpenKit) -> None:
    async with open_kit(QUICK) as front_kit:
        client = await front_kit.client()
        client.writer.transport.pause_reading()
        await client.send(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        await front_kit.probe.undelivered.wait()
        await front_kit.empty()


async def test_a_client_that_reads_slowly_enough_still_gets_everything(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    answer = await client.ask(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
    assert len(answer.body) == 32 << 20
    assert (await client.ask(OK)).status == 200
    assert not front_kit.probe.undelivered.is_set()


async def test_an_unexpected_error_is_a_500_without_details_and_the_connection_goes_on(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    answer = await client.ask(b"GET /broken HTTP/1.1\r\nHost: x\r\n\r\n")
    assert_error(answer, 500, "internal")
    assert b"secret" not in answer.body
    assert b"Traceback" not in answer.body
    assert (await client.ask(OK)).status == 200
    assert front_kit.answered == [("broken", "GET", 500), ("echo", "GET", 200)]


async def test_an_answer_with_a_line_end_in_a_header_is_never_written(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    answer = await client.ask(b"GET /injected HTTP/1.1\r\nHost: x\r\n\r\n")
    assert_error(answer, 500, "internal")
    assert "x-evil" not in answer.headers


async def test_a_client_that_first_sends_everything_still_reads_why_it_was_refused(open_kit: OpenKit) -> None:
    async with open_kit(FrontLimits(max_body_bytes=1000)) as front_kit:
        client = await front_kit.client()
        await client.send(P + b"Content-Length: 400000\r\n\r\n")
        # asyncio's TLS client stops sending as soon as the server says that it closes
        with contextlib.suppress(ConnectionError) if front_kit.tls else contextlib.nullcontext():
            for _ in range(100):
                await client.send(b"x" * 4000)
                await turns()
        assert_error(await client.answer(), 413, "body_too_large")


async def test_a_slow_reader_is_not_idle(open_kit: OpenKit) -> None:
    limits = FrontLimits(idle_timeout_s=0.1, write_timeout_s=15)

    async with open_kit(limits) as front_kit:
        client = await front_kit.client(reader_bytes=64 << 20)
        client.writer.transport.pause_reading()
        await client.send(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in range(3):  # each of these is idle for longer than the slow one may be
            assert await (await front_kit.client()).closed() == b""
        client.writer.transport.resume_reading()
        assert len((await client.answer()).body) == 32 << 20


async def test_a_client_that_sends_ahead_is_held_back(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    await client.send(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
    await front_kit.probe.parked.wait()
    request = P + b"Content-Length: 1000\r\n\r\n" + b"x" * 1000

    async def press() -> None:
        await client.send(request * 10_000)
        await client.send(request * 10_000)  # uvloop's TLS client takes the first 10 MB into its own buffers

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(press(), 0.5)
    [connection] = front_kit.front._connections
    assert len(connection._queue) < 1000


async def test_many_unfinished_bodies_together_are_bounded(open_kit: OpenKit) -> None:
    half = P + b"Content-Length: 100000\r\n\r\n" + b"x" * 50_000

    async with open_kit(FrontLimits(max_buffered_bytes=120_000, linger_timeout_s=0.1)) as front_kit:
        first, second, third = [await front_kit.client() for _ in range(3)]
        await first.send(half)
        await second.send(half)
        assert_error(await third.press([half, b"x" * 1000]), 429, "rate_limited")
        assert len((await first.ask(b"x" * 50_000)).json()["body"]) == 100_000
        assert len((await second.ask(b"x" * 50_000)).json()["body"]) == 100_000
        second.reset()
        await (await front_kit.client()).send(half)
        await front_kit.empty(but=2)
        for client in front_kit.clients:
            client.close()
        await front_kit.empty()
        assert front_kit.front.buffered_bytes == 0


async def test_waiting_behind_a_slow_answer_does_not_count_against_the_client(open_kit: OpenKit) -> None:
    async with open_kit(QUICK) as front_kit:
        client = await front_kit.client()
        await client.send(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
        await front_kit.probe.parked.wait()
        await client.send(OK * 40 + P + b"Content-Length: 4\r\n\r\nab")
        for _ in range(2):  # idle for longer than the head and the body may take
            assert await (await front_kit.client()).closed() == b""
        front_kit.probe.release.set()
        for _ in range(41):
            assert (await client.answer()).status == 200
        assert (await client.ask(b"cd")).json()["body"] == "abcd"


async def test_a_client_that_begins_no_tls_handshake_is_cut_at_the_deadline_of_a_head() -> None:
    async with front_kit(QUICK, tls=private_tls()) as running:
        silent, dripping = await connect(running.port), await connect(running.port)
        await dripping.send(b"\x16\x03\x01")
        assert (await silent.closed(), await dripping.closed()) == (b"", b"")
        assert (await (await running.client()).ask(OK)).status == 200


async def test_plain_http_to_a_port_with_tls_is_answered_with_a_hint() -> None:
    async with front_kit(tls=private_tls()) as running:
        client = await connect(running.port)
        assert_error(await client.ask(OK), 400, "tls_required")
        assert await client.closed() == b""
        assert running.probe.seen == []


async def test_a_drain_does_not_wait_for_handshakes() -> None:
    async with front_kit(tls=private_tls()) as running:
        silent = await connect(running.port)
        assert (await (await running.client()).ask(OK)).status == 200  # so the silent one has been accepted
        await running.front.drain(10)
        assert await silent.closed() == b""

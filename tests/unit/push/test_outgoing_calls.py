"""Calls against real loopback servers, most of them badly behaved. Every test runs on asyncio's loop and on uvloop."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from typing import Any

import pytest
import uvloop

from dueline.push.egress import Egress
from dueline.push.outgoing_calls import EXCERPT_BYTES, READ_BYTES, Call, CallFailed, OutgoingCalls, Response
from tests.kit.async_tests import LoopFactory

from .egress_kit import Recorder, Table, Talk, calling, failing, saying, serving

LOOPBACK = Egress(["127.0.0.0/8"])


@pytest.fixture(params=[None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop_factory(request: pytest.FixtureRequest) -> LoopFactory | None:
    return request.param


async def asked(talk: Talk, timeout_ms: int = 30_000, **options: Any) -> Response | CallFailed:
    """What a call to a server that talks like that comes to."""
    async with serving(talk) as port, calling(LOOPBACK, **options) as outgoing:
        try:
            return await outgoing.call(Call("POST", f"http://127.0.0.1:{port}/", body=b"{}", timeout_ms=timeout_ms))
        except CallFailed as failed:
            return failed


def failure(result: Response | CallFailed) -> tuple[str, str]:
    assert isinstance(result, CallFailed), result
    return result.kind, result.message.partition("/: ")[2]


async def request_of(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
    """A request as it came over the wire: its first line, its headers, its body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head[:-4].split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    body = await reader.readexactly(int(headers.get("Content-Length", "0")))
    return first, headers, body


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer every request of a connection with what it was."""
    connection = writer.get_extra_info("peername")[1]
    while True:
        first, headers, body = await request_of(reader)
        text = json.dumps([first, headers, body.decode(), connection]).encode()
        writer.write(
            b"HTTP/1.1 201 Created\r\nX-Two: 1\r\nx-two: 2\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text)
        )
        await writer.drain()


async def test_a_call_goes_out_as_it_was_written_and_its_answer_comes_back() -> None:
    async with serving(echo) as port, calling(LOOPBACK, user_agent="dueline/test") as outgoing:
        call = Call(
            "Patch",
            f"http://127.0.0.1:{port}/a%2Fb?x=%7e&y=1+2#part",
            (("Content-Type", "text/plain"), ("X-One", "ä"), ("Host", "evil"), ("Content-Length", "9999")),
            b"hello",
        )
        answer = await outgoing.call(call)
    first, headers, body, _ = json.loads(answer.excerpt)
    assert (answer.status, answer.headers["x-two"], first, body) == (
        201,
        "1, 2",
        "Patch /a%2Fb?x=%7e&y=1+2 HTTP/1.1",
        "hello",
    )
    assert headers == {
        "Host": f"127.0.0.1:{port}",
        "Content-Type": "text/plain",
        "X-One": "ä".encode().decode("latin-1"),
        "User-Agent": "dueline/test",
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "Content-Length": "5",
    }


async def test_a_call_without_a_body_has_none_and_one_of_four_mebibytes_arrives_whole() -> None:
    sizes: list[int] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            sizes.append(len((await request_of(reader))[2]))
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    async with serving(talk) as port, calling(LOOPBACK) as outgoing:
        for body in (b"", b"x" * (4 << 20)):
            await outgoing.call(Call("POST", f"http://127.0.0.1:{port}/", body=body))
    assert sizes == [0, 4 << 20]


async def test_calls_to_one_host_share_a_connection_and_calls_to_another_name_do_not() -> None:
    names = Table({"one.example": ["127.0.0.1"], "two.example": ["127.0.0.1"]})
    async with serving(echo) as port, calling(LOOPBACK, names) as outgoing:
        answers = [await outgoing.call(Call("POST", f"http://{n}.example:{port}/")) for n in ("one", "one", "two")]
    first, second, third = [json.loads(answer.excerpt)[3] for answer in answers]
    assert first == second != third


async def test_a_name_is_looked_up_once_for_calls_that_follow_each_other() -> None:
    names = Table({"one.example": ["127.0.0.1"]})
    async with (
        serving(saying(b"HTTP/1.1 204 X\r\nConnection: close\r\n\r\n")) as port,
        calling(LOOPBACK, names) as outgoing,
    ):
        for _ in range(2):
            await outgoing.call(Call("POST", f"http://one.example:{port}/"))
    assert names.asked == ["one.example"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_answer_and_nobody_goes_there(status: int) -> None:
    location = b"http://127.0.0.1:1/elsewhere"
    answer = await asked(saying(b"HTTP/1.1 %d X\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % (status, location)))
    assert (answer.status, answer.headers["location"]) == (status, location.decode())


async def through(status: int, method: str, other_origin: bool, hops: int) -> tuple[Response, list[list[Any]]]:
    """Make a call whose first answer is a redirect to the second server (or to another path). Returns what each server
    got."""
    seen: list[list[Any]] = []
    target = b""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, headers, body = await request_of(reader)
        secrets = sorted(name for name in headers if name in ("Authorization", "Cookie", "X-Kept"))
        seen.append([first.rpartition(" ")[0], secrets, body])
        if first.split(" ")[1] == "/start":
            writer.write(b"HTTP/1.1 %d X\r\nLocation: %b\r\nConnection: close\r\n\r\n" % (status, target))
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nend")
        await writer.drain()

    async with serving(talk) as one, serving(talk) as two, calling(LOOPBACK, follow_redirects=hops) as outgoing:
        target = f"http://127.0.0.1:{two}/end".encode() if other_origin else b"/end"
        headers = (("Authorization", "Bearer x"), ("Cookie", "a=b"), ("X-Kept", "1"))
        return await outgoing.call(Call(method, f"http://127.0.0.1:{one}/start", headers, b"data")), seen


ALL = ["Authorization", "Cookie", "X-Kept"]


@pytest.mark.parametrize("status", [307, 308])
async def test_a_followed_redirect_keeps_method_and_body_and_on_its_own_origin_the_secrets(status: int) -> None:
    answer, seen = await through(status, "POST", other_origin=False, hops=1)
    assert (answer.status, answer.excerpt) == (200, "end")
    assert seen == [["POST /start", ALL, b"data"], ["POST /end", ALL, b"data"]]


async def test_a_redirect_to_another_origin_does_not_get_the_secrets() -> None:
    answer, seen = await through(307, "POST", other_origin=True, hops=1)
    assert (answer.status, seen[1]) == (200, ["POST /end", ["X-Kept"], b"data"])


@pytest.mark.parametrize("status", [301, 302, 303])
async def test_a_redirect_that_would_turn_a_post_into_a_get_is_not_followed(status: int) -> None:
    answer, seen = await through(status, "POST", other_origin=False, hops=5)
    assert (answer.status, len(seen)) == (status, 1)


async def test_a_get_follows_every_redirect() -> None:
    answer, seen = await through(302, "GET", other_origin=False, hops=1)
    assert (answer.status, [first for first, _, _ in seen]) == (200, ["GET /start", "GET /end"])


async def test_redirects_are_followed_as_often_as_allowed_and_the_last_one_is_the_answer() -> None:
    calls = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        await request_of(reader)
        calls += 1
        writer.write(b"HTTP/1.1 307 X\r\nLocation: /again\r\nConnection: close\r\n\r\n")

    async with serving(talk) as port, calling(LOOPBACK, follow_redirects=3) as outgoing:
        answer = await outgoing.call(Call("POST", f"http://127.0.0.1:{port}/"))
    assert (answer.status, calls) == (307, 4)


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


def dripping(head: bytes, drop: bytes) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        while True:
            writer.write(drop)
            await writer.drain()
            await asyncio.sleep(0.01)

    return talk


@pytest.mark.parametrize(
    "talk",
    [
        silence,
        dripping(b"HTTP/1.1 200 OK\r\n", b"X-Drop: 1\r\n"),
        dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n", b"x"),
        dripping(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        dripping(b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["silence", "slow headers", "slow body", "slow chunks", "only 100 Continue"],
)
async def test_a_target_that_does_not_come_to_an_end_is_cut_off(talk: Talk) -> None:
    assert failure(await asked(talk, timeout_ms=300)) == ("timeout", "no complete answer in time")


def flooding(head: bytes, flood: bytes) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        while True:
            writer.write(flood)
            await writer.drain()

    return talk


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
BESIDE = "more than 65536 bytes in interim responses, chunk extensions and trailers"


@pytest.mark.parametrize(
    ("talk", "message"),
    [
        (flooding(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000), BESIDE),
        (flooding(b"", b"HTTP/1.1 103 Early Hints\r\nX: %b\r\n\r\n" % (b"x" * 4000)), BESIDE),
        (flooding(CHUNKED + b"1;", b"x" * 65536), "a line between the chunks of the response is too long"),
        (flooding(CHUNKED, b"1;%b\r\nx\r\n" % (b"x" * 1000)), BESIDE),
        (flooding(CHUNKED + b"0\r\n", b"X-Trailer: %b\r\n" % (b"x" * 900)), BESIDE),
    ],
    ids=["100 Continue", "early hints", "an extension", "many extensions", "trailers"],
)
async def test_a_target_that_never_stops_talking_beside_its_answer_is_cut_off_long_before_its_time(
    talk: Talk, message: str
) -> None:
    assert failure(await asked(talk, timeout_ms=3_600_000)) == ("protocol", message)


async def test_what_an_answer_may_weigh_is_counted_anew_for_each_on_a_connection() -> None:
    body = b"x" * READ_BYTES
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.add(writer.get_extra_info("peername")[1])
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)

    seen: set[int] = set()
    async with serving(talk) as port, calling(LOOPBACK) as outgoing:
        for _ in range(40):
            assert (await outgoing.call(Call("GET", f"http://127.0.0.1:{port}/"))).status == 200
    assert len(seen) == 1


async def test_a_giant_answer_is_cut_and_its_connection_closed() -> None:
    closed = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
        try:
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()
        except ConnectionError:
            closed.set()

    async with serving(talk) as port, calling(LOOPBACK) as outgoing:
        answer = await outgoing.call(Call("POST", f"http://127.0.0.1:{port}/"))
        await asyncio.wait_for(closed.wait(), 30)
        assert (answer.status, answer.excerpt) == (200, "x" * EXCERPT_BYTES)


async def test_an_answer_that_just_fits_is_read_whole_and_its_connection_used_again() -> None:
    peers: list[int] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await request_of(reader)
            peers.append(writer.get_extra_info("peername")[1])
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % READ_BYTES + b"x" * READ_BYTES)
            await writer.drain()

    async with serving(talk) as port, calling(LOOPBACK) as outgoing:
        for _ in range(2):
            await outgoing.call(Call("POST", f"http://127.0.0.1:{port}/"))
    first, second = peers
    assert first == second


async def test_a_packed_answer_is_never_unpacked() -> None:
    bomb = gzip.compress(b"\0" * (8 << 20))
    assert len(bomb) < READ_BYTES
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    answer = await asked(saying(head + bomb))
    assert (answer.status, answer.excerpt) == (200, f"({len(bomb)} bytes, packed)")


async def test_an_excerpt_is_text_whatever_came() -> None:
    head = b"HTTP/1.1 500 Oh\r\nX-Odd: \xff\r\nConnection: close\r\n\r\n"
    answer = await asked(saying(head + b"caf\xc3\xa9 \xff" + "€".encode() * 2000))
    assert answer.excerpt.startswith("café \ufffd€€")
    assert answer.excerpt.endswith("€")
    assert len(answer.excerpt.encode()) <= EXCERPT_BYTES + 4
    assert answer.headers["x-odd"] == "\ufffd"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (b"", "the connection ended before the answer did"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "the connection ended before the answer did"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "the connection ended before the answer did"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal",
            "the connection ended before the answer did",
        ),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n", "the response does not begin like HTTP/1.1"),
        (b"\x00\xff\xfe garbage \r\n\r\n", "the response does not begin like HTTP/1.1"),
        (b"HTTP/1.1 abc OK\r\n\r\n", "the response does not begin like HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "the response has a malformed header"),
        (
            b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
            "the head of the response has more than 65536 bytes",
        ),
        (b"HTTP/1.1 200 OK\r\n" + b"X: 1\r\n" * 1000 + b"\r\n", "the response has more than 500 headers"),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
            "the response changes the protocol",
        ),
    ],
    ids=lambda value: repr(value[:40]) if isinstance(value, bytes) else None,
)
async def test_what_is_no_whole_answer_is_a_failure_with_a_name(said: bytes, message: str) -> None:
    assert failure(await asked(saying(said))) == ("protocol", message)


async def test_a_reset_connection_is_a_failure_with_a_name() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        linger_nothing = b"\x01\0\0\0\0\0\0\0"
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_nothing)
        writer.transport.abort()

    assert failure(await asked(talk)) == ("protocol", "the connection ended before the answer did")


async def test_a_closed_port_and_a_silent_one_have_the_same_error() -> None:
    """A listener whose queue is full lets a connect hang, as a firewall that drops does."""

    closed = socket.create_server(("127.0.0.1", 0))
    closed_port = closed.getsockname()[1]
    closed.close()
    full = socket.create_server(("127.0.0.1", 0), backlog=0)
    address = full.getsockname()
    fillers = [socket.socket() for _ in range(4)]
    try:
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(address)
        results: list[tuple[str, str]] = []
        async with calling(LOOPBACK, connect_timeout_s=0.2) as outgoing:
            for port, timeout_ms in ((closed_port, 30_000), (address[1], 30_000), (address[1], 100)):
                results.append(
                    failure(await failing(outgoing, Call("GET", f"http://127.0.0.1:{port}/", timeout_ms=timeout_ms)))
                )
        assert results == [("connect", "cannot connect to 127.0.0.1")] * 3
    finally:
        for each in (full, *fillers):
            each.close()


async def test_a_name_without_an_address_has_an_error_of_its_own() -> None:
    async with calling(LOOPBACK) as outgoing:
        failed = await failing(outgoing, Call("POST", "http://nowhere.example/a?token=secret"))
    assert (failed.kind, failed.message) == (
        "resolve",
        "http://nowhere.example/a: nowhere.example has no address",
    )


@pytest.mark.parametrize(
    "call",
    [
        Call("POST", "http://127.0.0.1:1/", (("X-A", "1\r\nX-B: 2"),)),
        Call("POST", "http://127.0.0.1:1/", (("X-A\r\nX-B", "1"),)),
        Call("POST", "http://127.0.0.1:1/", (("X-A", "\0"),)),
        Call("POST", "http://127.0.0.1:1/", (("X-A", "\ud800"),)),
        Call("POST", "http://127.0.0.1:1/", (("", "1"),)),
        Call("POST / HTTP/1.1\r\nX: y\r\n\r\nGET", "http://127.0.0.1:1/"),
        Call("CONNECT", "http://127.0.0.1:1/"),
        Call("", "http://127.0.0.1:1/"),
    ],
)
async def test_a_call_that_cannot_be_written_is_not_connected(call: Call) -> None:
    recorder = Recorder()
    async with calling(LOOPBACK, make_socket=recorder) as outgoing:
        assert (*failure(await failing(outgoing, call)), recorder.sockets) == (
            "protocol",
            "the call cannot be written as HTTP",
            [],
        )


async def test_a_call_that_is_cancelled_stays_cancelled() -> None:
    reached = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        await asyncio.Event().wait()

    async with serving(talk) as port, calling(LOOPBACK) as outgoing:
        task = asyncio.create_task(outgoing.call(Call("POST", f"http://127.0.0.1:{port}/")))
        await reached.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


async def test_neither_proxies_nor_cookies_come_from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1/")
    monkeypatch.delenv("no_proxy", raising=False)

    seen: list[str] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            _, headers, _ = await request_of(reader)
            seen.append(headers.get("Cookie", "none"))
            writer.write(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b; Path=/\r\nContent-Length: 0\r\n\r\n")

    names = Table({"one.example": ["127.0.0.1"]})
    async with serving(talk) as port, calling(LOOPBACK, names) as outgoing:
        for _ in range(2):
            await outgoing.call(Call("POST", f"http://one.example:{port}/"))
    assert seen == ["none", "none"]


async def test_a_hanging_host_does_not_use_up_the_places_of_another() -> None:
    names = Table({"slow.example": ["127.0.0.1"], "fast.example": ["127.0.0.1"]})
    hanging_now = asyncio.Semaphore(0)

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hanging_now.release()
        await silence(reader, writer)

    async with (
        serving(hang) as slow,
        serving(saying(b"HTTP/1.1 204 X\r\n\r\n")) as fast,
        calling(LOOPBACK, names, max_per_host=2) as outgoing,
    ):
        call = Call("POST", f"http://slow.example:{slow}/", timeout_ms=60_000)
        hanging = [asyncio.create_task(failing(outgoing, call)) for _ in range(8)]
        for _ in range(2):
            await hanging_now.acquire()
        answer = await outgoing.call(Call("POST", f"http://fast.example:{fast}/", timeout_ms=10_000))
        await outgoing.stop()  # fails those that hang and those that wait for a place; it cancels nobody's task
        assert (answer.status, sorted([(await task).kind for task in hanging])) == (
            204,
            ["connect"] * 6 + ["protocol"] * 2,
        )


async def test_start_and_stop_can_be_called_twice_and_in_any_order() -> None:
    outgoing = OutgoingCalls(LOOPBACK, Table())
    await outgoing.stop()
    before = await failing(outgoing, Call("POST", "http://127.0.0.1:1/"))
    await outgoing.start()
    await outgoing.start()
    await outgoing.stop()
    await outgoing.stop()
    after = await failing(outgoing, Call("POST", "http://127.0.0.1:1/"))
    assert [before.message, after.message] == ["the server is stopping"] * 2


async def test_the_next_address_is_tried_when_one_fails_and_when_one_is_slow() -> None:
    full = socket.create_server(("127.0.0.2", 0), backlog=0)  # a connect to it hangs, once its queue is full
    port = full.getsockname()[1]
    fillers = [socket.socket() for _ in range(4)]
    server = await asyncio.start_server(saying(b"HTTP/1.1 204 X\r\n\r\n"), "127.0.0.1", port)
    names = Table({"slow.example": ["127.0.0.2", "127.0.0.1"], "shut.example": ["127.0.0.3", "127.0.0.1"]})
    try:
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.2", port))
        async with server, calling(LOOPBACK, names, connect_timeout_s=60) as outgoing:
            for name in names.names:
                assert (await outgoing.call(Call("POST", f"http://{name}:{port}/"))).status == 204
    finally:
        for each in (full, *fillers):
            each.close()


async def test_a_connection_that_was_closed_while_idle_is_replaced_if_the_call_may_be_repeated() -> None:
    """The server answers one request of each connection, and closes it when the second one comes."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(b"HTTP/1.1 204 X\r\n\r\n")
        await request_of(reader)

    async with serving(talk) as port, calling(LOOPBACK) as outgoing:
        url = f"http://127.0.0.1:{port}/"
        for _ in range(2):
            assert (await outgoing.call(Call("PUT", url))).status == 204
        assert (await failing(outgoing, Call("POST", url))).kind == "protocol"


async def test_the_answer_to_head_has_no_body_and_its_connection_is_used_again() -> None:
    peers: list[int] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await request_of(reader)
            peers.append(writer.get_extra_info("peername")[1])
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")

    async with serving(talk) as port, calling(LOOPBACK) as outgoing:
        for _ in range(2):
            assert (await outgoing.call(Call("HEAD", f"http://127.0.0.1:{port}/"))).excerpt == ""
    first, second = peers
    assert first == second


async def test_the_look_ups_of_a_namespace_are_limited_and_a_cached_name_is_not_looked_up() -> None:
    asked: list[str] = []

    def look_up(namespace: str) -> float:
        asked.append(namespace)
        return 2.5 if namespace == "busy" else 0.0

    names = Table({name: ["127.0.0.1"] for name in ("one.example", "two.example")})
    talk = saying(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
    async with serving(talk) as port, calling(LOOPBACK, names, look_up=look_up) as outgoing:
        call = Call("POST", f"http://one.example:{port}/", namespace="busy")
        failed = await failing(outgoing, call)
        assert (failed.kind, failed.wait_ms) == ("limited", 2500)
        other = Call("POST", f"http://one.example:{port}/", namespace="other")
        assert (await outgoing.call(other)).status == 204
        assert (await outgoing.call(call)).status == 204  # the name is known now
        assert (
            await failing(outgoing, Call("POST", f"http://two.example:{port}/", namespace="busy"))
        ).kind == "limited"
        assert asked == ["busy", "other", "busy"]


async def test_a_connection_of_one_namespace_is_not_used_by_another_whose_list_refuses_it() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await request_of(reader)
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    egress = Egress(["127.0.0.0/8"], namespaces={"narrow": ["127.0.0.9"]})
    names = Table({"one.example": ["127.0.0.1"]})
    async with serving(talk) as port, calling(egress, names) as outgoing:
        call = Call("POST", f"http://one.example:{port}/", namespace="wide")
        assert (await outgoing.call(call)).status == 204
        failed = await failing(outgoing, Call("POST", call.url, namespace="narrow"))
        assert failed.kind == "refused"
        assert "namespaces.narrow.push_allow" in failed.message

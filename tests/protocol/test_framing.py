"""Requests as bytes: however they are cut, joined or spelled, each gets its one answer, in order."""

from __future__ import annotations

import pytest

from .kit import OK, FrontKit, assert_error

POST = b"POST /echo?a=1 HTTP/1.1\r\nHost: x\r\nX-Kind: y\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3;ext=1\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: t\r\n\r\n"
)


@pytest.mark.parametrize("request_bytes", [POST, CHUNKED], ids=["content-length", "chunked"])
async def test_a_request_that_is_split_at_any_byte_is_answered_the_same(
    request_bytes: bytes, front_kit: FrontKit
) -> None:
    client = await front_kit.client()
    whole = (await client.ask(request_bytes)).json()
    assert whole["body"] == "hello"
    for cut in range(1, len(request_bytes)):
        await client.send(request_bytes[:cut])
        answer = await client.ask(request_bytes[cut:])
        assert answer.json() == whole


async def test_a_request_that_comes_byte_by_byte_is_answered(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    for place in range(len(POST)):
        await client.send(POST[place : place + 1])
    shown = (await client.answer()).json()
    assert (shown["method"], shown["path"], shown["query"], shown["body"]) == ("POST", "/echo", "a=1", "hello")
    assert shown["headers"]["x-kind"] == "y"


async def test_pipelined_requests_are_answered_in_order_also_when_the_first_takes_longest(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    await client.send(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n" + POST + OK + b"GET /nope HTTP/1.1\r\nHost: x\r\n\r\n")
    await front_kit.probe.parked.wait()
    assert front_kit.probe.seen == []
    front_kit.probe.release.set()
    assert (await client.answer()).json() == {"held": True}
    assert (await client.answer()).json()["body"] == "hello"
    assert (await client.answer()).json()["method"] == "GET"
    assert_error(await client.answer(), 404, "no_route")


async def test_hundreds_of_pipelined_requests_are_all_answered(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    client.writer.write(b"".join(b"GET /things/%d HTTP/1.1\r\nHost: x\r\n\r\n" % n for n in range(700)))
    for n in range(700):
        assert (await client.answer()).json()["params"] == [str(n)]


async def test_what_was_received_before_a_broken_request_is_still_answered(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    await client.send(OK + b"this is not HTTP\r\n\r\n" + OK)
    assert (await client.answer()).status == 200
    assert_error(await client.answer(), 400, "bad_request")
    assert await client.closed() == b""
    assert len(front_kit.probe.seen) == 1


async def test_head_is_answered_like_get_without_a_body(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    await client.send(b"HEAD /refused HTTP/1.1\r\nHost: x\r\n\r\n" + OK)
    head = await client.answer(head_only=True)
    assert head.status == 400
    assert int(head.headers["content-length"]) > 0
    assert (await client.answer()).json()["method"] == "GET"


async def test_connection_close_and_old_http_end_the_connection_after_the_answer(front_kit: FrontKit) -> None:
    for request in (
        b"GET /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" + OK,
        b"GET /echo HTTP/1.0\r\n\r\n",
    ):
        client = await front_kit.client()
        answer = await client.ask(request)
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await client.closed() == b""


async def test_old_http_stays_open_when_the_client_asks_for_it(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    for _ in range(2):
        answer = await client.ask(b"GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert (answer.status, answer.headers["connection"]) == (200, "keep-alive")


async def test_a_client_that_asks_first_gets_leave_to_send_its_body(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    await client.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert await client.reader.readexactly(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert (await client.ask(b"hi")).json()["body"] == "hi"


async def test_leave_to_send_comes_after_the_answers_that_are_still_due(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    await client.send(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
    await front_kit.probe.parked.wait()
    await client.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    front_kit.probe.release.set()
    assert (await client.answer()).json() == {"held": True}
    assert await client.reader.readexactly(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert (await client.ask(b"hi")).json()["body"] == "hi"


async def test_a_client_that_asks_first_is_refused_before_it_sends_too_much(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    await client.send(b"POST /small HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 11\r\n\r\n")
    assert_error(await client.answer(), 413, "body_too_large")


async def test_an_absolute_url_means_its_path(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    shown = (await client.ask(b"GET http://other:80/echo?q=1 HTTP/1.1\r\nHost: x\r\n\r\n")).json()
    assert (shown["path"], shown["query"]) == ("/echo", "q=1")


async def test_an_offer_to_change_the_protocol_is_ignored(front_kit: FrontKit) -> None:
    offer = b"Host: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"

    client = await front_kit.client()
    await client.send(b"POST /echo HTTP/1.1\r\n" + offer + b"Content-Length: 2\r\n\r\nhi" + OK)
    assert (await client.answer()).json()["body"] == "hi"
    assert (await client.answer()).json()["method"] == "GET"
    assert (await client.ask(b"GET /echo HTTP/1.1\r\n" + offer + b"\r\n")).status == 200
    assert (await client.ask(OK)).status == 200


async def test_an_answer_without_content_has_no_length(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    answer = await client.ask(b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.status == 204
    assert "content-length" not in answer.headers
    assert (await client.ask(OK)).status == 200


async def test_repeated_headers_are_joined_and_names_are_lower_case(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    shown = (await client.ask(b"GET /echo HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nx-a: 2\r\n\r\n")).json()
    assert shown["headers"] == {"host": "x", "x-a": "1, 2"}

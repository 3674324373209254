"""A head that came before is not parsed again. What is remembered must mean the same every time."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from dueline.dialects.http import Response, Route
from dueline.server.browser import BrowserRules
from dueline.server.front import FrontLimits
from tests.kit.waiting import until

from .kit import FrontKit, OpenKit, assert_error

HEAD = b"POST /echo HTTP/1.1\r\nHost: x\r\nX-Kind: y\r\nContent-Length: 5\r\n\r\n"


async def test_a_repeated_head_is_remembered_once_and_carries_its_own_body_each_time(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    for body in (b"hello", b"world", b"again"):
        shown = (await client.ask(HEAD + body)).json()
        assert (shown["body"], shown["headers"]["x-kind"]) == (body.decode(), "y")
    assert list(front_kit.front.heads.exact) == [HEAD]
    other = await front_kit.client()
    assert (await other.ask(HEAD + b"other")).json()["body"] == "other"


@pytest.mark.parametrize("cut", range(1, len(HEAD)))
async def test_the_second_half_of_a_request_is_never_taken_for_a_head(cut: int, front_kit: FrontKit) -> None:
    client = await front_kit.client()
    await client.send(HEAD[:cut])
    await until(lambda: not all(connection._reader.between for connection in front_kit.front._connections), every_s=0)
    assert (await client.ask(HEAD[cut:] + b"hello")).json()["body"] == "hello"
    assert HEAD[cut:] not in front_kit.front.heads.exact


async def test_what_is_unusual_is_parsed_every_time(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    chunked = b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    for _ in range(2):
        assert (await client.ask(chunked)).json()["body"] == "hello"
    assert front_kit.front.heads.exact == {}
    assert (await client.ask(HEAD.replace(b"x\r\n", b"x\r\nConnection: close\r\n") + b"hello")).status == 200
    assert front_kit.front.heads.exact == {}


async def test_a_known_head_with_another_length_of_body_is_read_on(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    assert (await client.ask(HEAD + b"hello")).status == 200
    await client.send(HEAD + b"wor")
    assert (await client.ask(b"ld")).json()["body"] == "world"
    await client.send(HEAD + b"hello" + HEAD + b"again")
    assert [(await client.answer()).json()["body"] for _ in range(2)] == ["hello", "again"]


async def test_a_head_is_known_between_requests_that_are_sent_ahead(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    await client.send(b"".join(HEAD + b"%05d" % n for n in range(100)))
    assert [(await client.answer()).json()["body"] for _ in range(100)] == [f"{n:05d}" for n in range(100)]
    assert list(front_kit.front.heads.exact) == [HEAD]


async def test_a_refused_head_is_not_remembered(front_kit: FrontKit) -> None:
    both = HEAD.replace(b"Content-Length", b"Transfer-Encoding: chunked\r\nContent-Length")
    for _ in range(2):
        assert_error(await (await front_kit.client()).ask(both + b"hello"), 400, "bad_request")
    assert front_kit.front.heads.exact == {}


async def test_a_known_head_says_nothing_about_the_same_request_of_a_foreign_page(open_kit: OpenKit) -> None:
    own = HEAD.replace(b"Host: x", b"Host: 127.0.0.1")
    foreign = own.replace(b"X-Kind: y", b"X-Kind: y\r\nOrigin: http://evil.example")

    async with open_kit(browser_rules=BrowserRules()) as front_kit:
        for _ in range(2):
            assert (await (await front_kit.client()).ask(own + b"hello")).status == 200
            for refused in (foreign, HEAD):
                assert_error(await (await front_kit.client()).ask(refused + b"hello"), 403, "forbidden")
        assert list(front_kit.front.heads.exact) == [own]
        assert len(front_kit.probe.seen) == 2


class Counting(BrowserRules):
    """Counts the heads that are parsed."""

    judged = 0

    def refusal(self, route: Route, headers: Mapping[bytes, bytes]) -> Response | None:
        self.judged += 1
        return super().refusal(route, headers)


async def test_a_known_head_is_not_judged_again(open_kit: OpenKit) -> None:
    rules = Counting(None)

    async with open_kit(browser_rules=rules) as front_kit:
        rules.judged = 0
        client = await front_kit.client()
        for _ in range(3):
            assert (await client.ask(HEAD + b"hello")).status == 200
        assert rules.judged == 1


def with_length(head: bytes, length: int) -> bytes:
    return head.replace(b": 5\r\n", b": %d\r\n" % length)


@pytest.mark.parametrize("name", [b"Content-Length", b"content-length"])
async def test_a_head_is_known_before_bodies_of_other_lengths(name: bytes, open_kit: OpenKit) -> None:
    rules = Counting(None)
    head = b"POST /echo HTTP/1.1\r\nHost: x\r\n%b: 5\r\nX-Kind: y\r\n\r\n" % name

    async with open_kit(browser_rules=rules) as front_kit:
        rules.judged = 0
        client = await front_kit.client()
        for length in (5, 1, 300, 5, 3000):
            shown = (await client.ask(with_length(head, length) + b"b" * length)).json()
            assert (shown["body"], shown["headers"]["content-length"]) == ("b" * length, str(length))
            assert shown["headers"]["x-kind"] == "y"
        assert rules.judged == 1


async def test_only_the_content_length_may_differ(open_kit: OpenKit) -> None:
    rules = Counting(None)
    other = HEAD.replace(b"X-Kind: y", b"X-Content-Length: 7")

    async with open_kit(browser_rules=rules) as front_kit:
        rules.judged = 0
        client = await front_kit.client()
        for head in (HEAD, other, other.replace(b": 7", b": 3"), HEAD.replace(b"/echo", b"/echo?a=1")):
            assert (await client.ask(head + b"hello")).status == 200
        assert rules.judged == 4


async def test_a_head_without_a_body_is_parsed_by_itself(open_kit: OpenKit) -> None:
    rules = Counting(None)

    async with open_kit(browser_rules=rules) as front_kit:
        rules.judged = 0
        client = await front_kit.client()
        assert (await client.ask(HEAD + b"hello")).status == 200
        for written in (b"0", b"005"):
            shown = (await client.ask(HEAD.replace(b": 5", b": " + written) + b"hello"[: int(written)])).json()
            assert len(shown["body"]) == int(written)
        assert rules.judged == 3


async def test_a_known_head_before_a_body_that_is_too_long_is_refused(open_kit: OpenKit) -> None:
    async with open_kit(limits=FrontLimits(max_body_bytes=100)) as front_kit:
        assert (await (await front_kit.client()).ask(HEAD + b"hello")).status == 200
        for _ in range(2):
            answer = await (await front_kit.client()).ask(with_length(HEAD, 101) + b"b" * 101)
            assert_error(answer, 413, "body_too_large")
        assert (await (await front_kit.client()).ask(with_length(HEAD, 100) + b"b" * 100)).status == 200


async def test_the_memory_of_heads_is_bounded(front_kit: FrontKit) -> None:
    client = await front_kit.client()
    for number in range(2100):
        assert (await client.ask(HEAD.replace(b": y", b": %d" % number) + b"hello")).status == 200
    assert len(front_kit.front.heads.exact) <= 2048
    assert len(front_kit.front.heads.templates) == 2100
    for number in range(2100, 8200):
        assert (await client.ask(HEAD.replace(b": y", b": %d" % number) + b"hello")).status == 200
    assert len(front_kit.front.heads.templates) <= 8192
    long = HEAD.replace(b": y", b": " + b"y" * 2000)
    assert (await client.ask(long + b"hello")).status == 200
    assert long not in front_kit.front.heads.exact
    assert not any(b"yyy" in key for key in front_kit.front.heads.templates)

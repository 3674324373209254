"""The client's HTTP as bytes: what is written, and what counts as an answer."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dueline.http1 import messages as http1
from dueline.http1.messages import BadResponse, Response, ResponseReader, request_bytes

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: 1\r\nx-a: 2\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nhel\r\n2;name=value\r\nlo\r\n0\r\nX-Trailer: 1\r\n\r\n"
)
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + LENGTH
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
CLOSING = b"HTTP/1.1 200 OK\r\nConnection: keep-alive, Close\r\nContent-Length: 0\r\n\r\n"
OLD = b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"
UNTIL_END = b"HTTP/1.1 200\r\n\r\nhello"

WHOLE = {
    LENGTH: Response(200, {"content-length": "5", "x-a": "1, 2"}, b"hello", True),
    CHUNKED: Response(201, {"transfer-encoding": "chunked"}, b"hello", True),
    INTERIM: Response(200, {"content-length": "5", "x-a": "1, 2"}, b"hello", True),
    EMPTY: Response(204, {}, b"", True),
    CLOSING: Response(200, {"connection": "keep-alive, Close", "content-length": "0"}, b"", False),
    OLD: Response(200, {"content-length": "2"}, b"ok", False),
}


def test_a_request_has_the_length_of_its_body() -> None:
    assert request_bytes("POST", "/v1/x", {"Host": "h"}, b"{}") == (
        b"POST /v1/x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}"
    )
    assert request_bytes("GET", "/", {"Host": "h"}, None) == b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


@pytest.mark.parametrize(("data", "response"), WHOLE.items(), ids=range(len(WHOLE)))
def test_an_answer_is_whole_with_its_last_byte_and_not_before(data: bytes, response: Response) -> None:
    reader = ResponseReader()
    for place in range(len(data) - 1):
        assert reader.feed(data[place : place + 1]) is None
    assert reader.feed(data[-1:]) == response


@given(st.sampled_from(sorted(WHOLE)), st.lists(st.integers(0, 200), max_size=6))
def test_how_an_answer_is_cut_into_pieces_does_not_matter(data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    reader = ResponseReader()
    found = [reader.feed(data[begin:end]) for begin, end in itertools.pairwise(edges)]
    assert [response for response in found if response is not None][:1] == [WHOLE[data]]


def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    reader = ResponseReader()
    assert reader.feed(UNTIL_END) is None
    assert reader.end() == Response(200, {}, b"hello", False)


@pytest.mark.parametrize("data", [LENGTH, CHUNKED, INTERIM, b"HTTP/1.1 200 OK\r\n"])
def test_an_answer_that_is_cut_is_no_answer(data: bytes) -> None:
    reader = ResponseReader()
    assert reader.feed(data[:-1]) is None
    assert reader.end() is None


def test_after_bytes_that_nobody_asked_for_the_connection_is_not_used_again() -> None:
    assert ResponseReader().feed(LENGTH + b"H") == Response(200, WHOLE[LENGTH].headers, b"hello", False)


@pytest.mark.parametrize(
    "data",
    [
        b"+OK\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 999 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 2000,
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * http1.MAX_HEAD_BYTES,
    ],
)
def test_an_answer_whose_end_is_in_doubt_is_refused(data: bytes) -> None:
    with pytest.raises(BadResponse):
        ResponseReader().feed(data)


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n",
    ],
)
def test_an_answer_without_end_is_refused(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "MAX_BODY_BYTES", 20)
    reader = ResponseReader()
    reader.feed(head + b"x" * 20)
    with pytest.raises(BadResponse, match="more than 20 bytes"):
        reader.feed(b"x")


@given(st.binary(max_size=300))
def test_no_bytes_make_the_reader_fail_otherwise(data: bytes) -> None:
    try:
        ResponseReader().feed(b"HTTP/1.1 200 OK\r\n" + data)
    except BadResponse:
        pass

"""However a stream of requests is cut into pieces, and whenever it is read on, the same requests come out of it."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest

from dueline.server.front import Front
from dueline.server.request_reader import Exchange, Reader
from dueline.server.router import Router

from .kit import Probe

P = b"POST /echo HTTP/1.1\r\nHost: x\r\n"
USUAL = [
    b"GET /echo HTTP/1.1\r\nHost: x\r\n\r\n",
    P + b"Content-Length: 5\r\n\r\nhello",
    P + b"Content-Length: 0\r\n\r\n",
    P + b"Content-Length: 8\r\n\r\n\r\n\r\n\r\n\r\n",
    P + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    P + b"Transfer-Encoding: chunked\r\n\r\n4\r\n\r\n\r\n\r\n0\r\nA: b\r\n\r\n",
]
UNUSUAL = [
    b"\r\n",
    b"GET /echo HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
    P + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc",
    P + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
    b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /echo HTTP/1.0\r\n\r\n",
    b"BREW / HTTP/1.1\r\n\r\n",
    b"POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n" + b"x" * 50,
]


def read(front: Front, data: bytes, cuts: list[int], draw: random.Random) -> list[Any]:
    """What comes out: the requests and refusals in their order. Now and then the queue is emptied."""
    queue: deque[Exchange] = deque()
    reader = Reader(front, queue, lambda: None)
    came: list[Any] = []

    def empty() -> None:
        while queue:
            assert len(queue) <= 32
            for exchange in queue:
                request, answer = exchange.request, exchange.answer
                came.append((request.method, request.path, request.body, exchange.keep_alive, answer and answer.status))
            queue.clear()
            reader.read_on()

    begin = 0
    for end in [*cuts, len(data)]:
        if not reader.deaf:
            reader.feed(data[begin:end])
        begin = end
        if draw.random() < 0.5:
            empty()
    empty()
    return came


@pytest.mark.parametrize("seed", range(20))
async def test_a_stream_means_the_same_however_it_is_cut(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(30):
        kinds = USUAL if draw.random() < 0.5 else USUAL + UNUSUAL
        data = b"".join(draw.choice(kinds) for _ in range(draw.choice((1, 2, 3, 8, 60))))
        if draw.random() < 0.2:
            at = draw.randrange(len(data))
            data = data[:at] + draw.randbytes(1) + data[at + 1 :]
        front = Front(Router([Probe()]))  # it knows the heads of the first time the second time
        whole = read(front, data, [], draw)
        cuts = sorted(draw.randrange(len(data) + 1) for _ in range(draw.choice((1, 3, 20))))
        assert read(front, data, cuts, draw) == whole, (data, cuts)
        assert read(Front(Router([Probe()])), data, list(range(1, len(data))), draw) == whole, data

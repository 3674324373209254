"""The calls of every job take the line: no coroutine, no task and no future for a request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from dueline.api.answers import Info
from dueline.dialects.contract import Dialect, DialectContext
from dueline.dialects.table import DIALECTS
from dueline.engine.engine import Engine
from dueline.engine.ids import new_id
from dueline.server.front import Front
from dueline.server.router import Router
from dueline.store.valkey.store import ValkeyStore
from tests.kit.async_tests import LoopFactory
from tests.kit.valkey import PrivateValkey

ROUNDS = 40
NAMESPACE_IDS = frozenset({"ouqiang"})


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts the tasks and futures that it makes."""

    def __init__(self) -> None:
        super().__init__()
        self.made = 0
        self.set_task_factory(self._new_task)

    def _new_task(self, loop: Any, work: Any, **options: Any) -> asyncio.Task[Any]:
        self.made += 1
        return asyncio.Task(work, loop=loop, **options)

    def create_future(self) -> asyncio.Future[Any]:
        self.made += 1
        return super().create_future()


@pytest.fixture
def loop_factory() -> LoopFactory:
    return CountingLoop


class Caller(asyncio.Protocol):
    """Sends one request after another from within `data_received`, so that it needs no task of its own."""

    def __init__(self, requests: Iterator[bytes]) -> None:
        self._requests = requests
        self._transport: asyncio.Transport | None = None
        self._data = b""
        self.answers: list[bytes] = []
        self.done = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._next()

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]) if found else 0
        if found and len(body) >= size:
            self.answers.append(body)
            self._data = b""
            self._next()

    def _next(self) -> None:
        assert self._transport is not None
        request = next(self._requests, None)
        if request is None:
            self.done.set()
        else:
            self._transport.write(request)


def post(path: str, body: bytes, kind: str = "application/json") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def part(text: bytes, name: bytes) -> bytes:
    """The text value of a name in JSON."""
    return text.partition(b'"%b":"' % name)[2].partition(b'"')[0]


def native(caller: list[Caller]) -> Iterator[bytes]:
    for number in range(ROUNDS):
        extra = (b"", b',"tags":["a"]', b',"ttl_ms":60000', b',"lease_ms":5000')[number % 4]
        yield post("/v1/topics/t/jobs", b'{"id":"%b","body":1%b}' % (new_id().encode(), extra))
        yield post("/v1/topics/t/pull", b'{"max":1,"lease_ms":%d}' % (10_000 + number % 2))
        pulled = caller[0].answers[-1]
        yield post(
            "/v1/topics/t/ack", b'{"jobs":[{"id":"%b","lease":"%b"}]}' % (part(pulled, b"id"), part(pulled, b"lease"))
        )


def chained(caller: list[Caller]) -> Iterator[bytes]:
    """The ack goes with the next pull, which gets no job here."""
    for _ in range(ROUNDS):
        yield post("/v1/topics/t/jobs", b'{"body":1}')
        yield post("/v1/topics/t/pull", b'{"max":1,"lease_ms":10000}')
        pulled = caller[0].answers[-1]
        ack = b'{"id":"%b","lease":"%b"}' % (part(pulled, b"id"), part(pulled, b"lease"))
        yield post("/v1/topics/t/pull", b'{"max":1,"ack":[%b]}' % ack)


def camellia(caller: list[Caller]) -> Iterator[bytes]:
    form = "application/x-www-form-urlencoded"
    for _ in range(ROUNDS):
        yield post("/camellia/delayQueue/sendMsg", b"topic=t&msg=m&delayMillis=0&msgId=" + new_id().encode(), form)
        yield post("/camellia/delayQueue/pullMsg", b"topic=t&ackTimeoutMillis=10000&batch=1", form)
        yield post(
            "/camellia/delayQueue/ackMsg", b"topic=t&ack=true&msgId=" + part(caller[0].answers[-1], b"msgId"), form
        )


@asynccontextmanager
async def listening(url: str) -> AsyncIterator[int]:
    store = ValkeyStore(url)
    await store.start()
    engine = Engine(store, namespace_ids=NAMESPACE_IDS)
    await engine.start()
    context = DialectContext(engine=engine, info=cast(Callable[[], Info], lambda: None))
    dialects: list[Dialect] = [spec.build(spec.settings(), context) for spec in DIALECTS]
    front = Front(Router(dialects))
    server = await asyncio.get_running_loop().create_server(front._protocol, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await front.drain(1)
        await engine.stop()
        await store.stop()


TALKS = [(native, b'"acked"'), (chained, b'"acked"'), (camellia, b'"success"')]


@pytest.mark.parametrize(("talk", "ends"), TALKS, ids=["native", "chained", "camellia"])
async def test_a_life_makes_no_task_and_no_future(talk: Callable[[list[Caller]], Iterator[bytes]], ends: bytes) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CountingLoop)
    with PrivateValkey() as valkey:
        async with listening(valkey.url) as port:
            made: list[int] = []
            for _ in range(2):  # the first time, topics are read and registered, and partitions opened
                callers: list[Caller] = []

                def protocol(callers: list[Caller] = callers) -> Caller:
                    callers.append(Caller(talk(callers)))
                    return callers[0]

                before = loop.made
                await loop.create_connection(protocol, "127.0.0.1", port)
                await callers[0].done.wait()
                made.append(loop.made - before)
                assert len(callers[0].answers) == 3 * ROUNDS
                assert all(ends in answer for answer in callers[0].answers[2::3]), callers[0].answers[:6]
    assert made[1] < ROUNDS / 2, "of 120 requests; a connect and a wait need some, too"

"""The cost of a refusal grows with its input, not with the square of it: one request must not stop the process.

Every route of every dialect gets every hostile body, and the reader every hostile byte stream, once small and once
8 times as large. Linear work takes 8 times the CPU, quadratic work 64 times. The bound lies between, far from both.
The large body is far below what the front accepts, the large URL four times what it accepts.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping

import pytest

from dueline.dialects.contract import DialectContext
from dueline.dialects.http import Request, Response, Route
from dueline.dialects.table import DIALECTS
from dueline.engine.engine import Engine
from dueline.engine.limits import Limits
from dueline.server.front import Front, FrontLimits
from dueline.server.request_reader import Exchange, Reader
from dueline.server.router import Router
from dueline.store.memory import MemoryStore
from dueline.testing.clock import VirtualClock
from tests.kit.waiting import turns

from ..unit.native.kit import START_MS, info, push_rules

TIMES = 8
SMALL = 32 * 1024
SMALL_URL = 4 * FrontLimits().max_url_bytes // TIMES
MOST_TIMES = 24  # linear: 8, quadratic: 64
NOTHING_S = 0.005  # for the large input: even if it were quadratic, the largest request would take a second
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"


def fill(part: bytes, size: int) -> bytes:
    return part * (size // len(part))


def numbered(form: bytes, size: int) -> bytes:
    """Pieces that are all different."""
    return b"".join(form % n for n in range(size // (len(form) + 3)))


BODIES: dict[str, Callable[[int], bytes]] = {
    "a lone surrogate behind every mark": lambda n: b'{"body":"\\ud800' + numbered(b"!lone%d", n) + b'"}',
    "lone surrogates": lambda n: b'{"body":"' + fill(b"\\ud800", n) + b'"}',
    "lone surrogates in many fields": lambda n: b"{" + numbered(b'"f%d":"\\ud800",', n) + b'"body":1}',
    "backslashes": lambda n: b'{"body":"\\udc00' + fill(b"\\\\", n) + b'"}',
    "a name that looks like a place": lambda n: b'{"' + fill(b" - at `$", n) + b'":1}',
    "a value that looks like a place": lambda n: b'{"body":1,"on_conflict":"' + fill(b" - at `$`", n) + b'"}',
    "spaces": lambda n: fill(b" ", n) + b"x",
    "spaces inside": lambda n: b'{"topic":"' + fill(b" ", n) + b'x","id":"' + fill(b"\\u00a0", n) + b'x"}',
    "open lists": lambda n: b'{"body":' + fill(b"[", n),
    "nested lists": lambda n: b'{"body":' + fill(b"[", n // 2) + fill(b"]", n // 2) + b"}",
    "empty lists": lambda n: b'{"body":' + fill(b"[" * 60 + b"]" * 60 + b" ", n)[:n] + b"}",
    "a list of lists": lambda n: b'{"body":[' + fill(b"[[]],", n) + b'1],"x":1}',
    "objects": lambda n: b"[" + fill(b'{"body":1},', n) + b"1]",
    "open strings": lambda n: b'{"body":' + fill(b'"\\"', n),
    "digits": lambda n: b'{"topic":"t","id":"i","delay":' + fill(b"9", n) + b',"body":' + fill(b"9", n) + b"}",
    "a number text": lambda n: b'{"topic":"t","id":"i","command":"add","delay":"' + fill(b"9", n) + b'x"}',
    "a fraction": lambda n: b'{"taskId":"t","taskType":"i","delayTime":0.' + fill(b"0", n) + b"1e9}",
    "many keys": lambda n: b"{" + numbered(b'"k%d":1,', n) + b'"z":1}',
    "one key": lambda n: b"{" + fill(b'"topic":"t",', n) + b'"z":1}',
    "commas": lambda n: b'{"topic":"' + numbered(b"t%d,", n) + b'"}',
    "many topics": lambda n: b'{"topics":[' + numbered(b'"t%d",', n) + b'"t"]}',
    "many ids": lambda n: b'{"ids":[' + numbered(b'"t%d",', n) + b'1],"jobs":[' + fill(b'{"id":"a"},', n) + b"1]}",
    "a ladder": lambda n: b'{"body":1,"retry":{"ladder":[' + fill(b'"1s",', n) + b'"x"]}}',
    "a duration": lambda n: b'{"body":1,"delay":"' + fill(b"1", n) + b'"}',
    "a time": lambda n: b'{"body":1,"at":"2030-01-01T08:00:00.' + fill(b"0", n) + b'"}',
    "headers": lambda n: b'{"body":1,"headers":{' + numbered(b'"h%d":"v",', n) + b'"h":1}}',
    "base64": lambda n: b'{"body_base64":"' + fill(b"AAAA", n) + b'!"}',
    "not UTF-8": lambda n: b'{"body":"' + fill(b"\xc3\xa9", n) + b'\xff"}',
    "pairs": lambda n: numbered(b"k%d=v&", n),
    "one name": lambda n: fill(b"topic=t&", n) + b"msg=m&delayMillis=x",
    "percent signs": lambda n: b"topic=" + fill(b"%", n),
    "escapes": lambda n: b"topic=t&delayMillis=" + fill(b"%20", n) + b"1&msg=" + fill(b"+", n),
    "a long number": lambda n: b"topic=t&msg=m&delayMillis=" + fill(b"9", n),
}
TEXTS = ("spaces", "commas", "pairs", "one name", "percent signs", "escapes", "digits", "a long number", "base64")
HEADERS: dict[str, Callable[[int], Mapping[str, str]]] = {
    "charset": lambda n: {"content-type": "application/json;" + "charset " * (n // 8) + "=x"},
    "spaces in a type": lambda n: {"content-type": "application/json" + " " * n + "x; charset" + " " * n},
    "a namespace": lambda n: {"content-type": JSON, "dueline-namespace": "n" * n},
}

UPGRADE = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
POST = b"POST /v1/topics/t/jobs HTTP/1.1\r\nHost: x\r\n"
STREAMS: dict[str, Callable[[int], bytes]] = {
    "requests": lambda n: fill(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", n),
    "requests that differ": lambda n: numbered(b"GET /v1/topics/t%d HTTP/1.1\r\nHost: x\r\n\r\n", n),
    "sends": lambda n: fill(POST + b"Content-Length: 10\r\n\r\n{'body':1}", n),
    "offers": lambda n: fill(UPGRADE, n),
    "one header": lambda n: b"GET / HTTP/1.1\r\nHost: " + fill(b"x", n),
    "headers": lambda n: b"GET / HTTP/1.1\r\n" + numbered(b"h%d: v\r\n", n) + b"\r\n",
    "a header many times": lambda n: b"GET / HTTP/1.1\r\n" + fill(b"a: b\r\n", n) + b"\r\n",
    "a URL": lambda n: b"GET /" + fill(b"a/", n) + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "line ends": lambda n: fill(b"\r\n", n),
    "small chunks": lambda n: POST + b"Transfer-Encoding: chunked\r\n\r\n" + fill(b"1\r\nx\r\n", n) + b"zz",
    "a chunk extension": lambda n: POST + b"Transfer-Encoding: chunked\r\n\r\n1;" + fill(b"x", n),
    "trailers": lambda n: POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + fill(b"t: v\r\n", n),
    "a body": lambda n: POST + b"Content-Length: %d\r\n\r\n" % (2 * n) + fill(b"\r\n\r\n", n),
}


class Server:
    """All dialects on the reference store, without a transport."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.store = MemoryStore(VirtualClock(START_MS))
        self.engine = Engine(self.store, Limits())
        context = DialectContext(self.engine, info, push_rules())
        self.router = Router([spec.build(spec.settings(), context) for spec in DIALECTS])
        self.runner.run(self.store.start())
        self.runner.run(self.engine.start())

    def close(self) -> None:
        self.runner.run(self.engine.stop())
        self.runner.run(self.store.stop())
        self.runner.close()

    def ask(
        self, route: Route, body: bytes, query: str, headers: Mapping[str, str], param: str = "x"
    ) -> Callable[[], float]:
        """How much CPU one request takes. Polls that would wait are given up."""
        path = "/".join(param if part.startswith("{") else part for part in route.pattern.split("/"))
        if route.pattern.endswith("*}"):
            path += "/".join(("", "post", param))
        method = "POST" if route.method == "*" else route.method

        async def respond() -> Response | None:
            found = self.router.find(method, path)
            request = Request(method, path, query, headers, body, found.params)
            answer = asyncio.ensure_future(self.router.respond(found, request))
            await turns(3)
            if not answer.done():
                answer.cancel()
                await asyncio.gather(answer, return_exceptions=True)
                return None
            return answer.result()

        def measure() -> float:
            begun_s = time.process_time()
            answer = self.runner.run(respond())
            spent_s = time.process_time() - begun_s
            assert answer is None or answer.status != 500 or route.pattern.startswith("/camellia"), answer
            return spent_s

        return measure


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    running = Server()
    gc.disable()  # its rounds cost more as there are more objects, whoever made them
    yield running
    gc.enable()
    running.close()


def assert_linear(cost: Callable[[int], Callable[[], float]], what: str, small_size: int = SMALL) -> None:
    """`cost(size)` gives what measures the CPU of an input of that size. A busy machine gets three tries."""
    large = cost(small_size * TIMES)
    spent_s = large()
    if spent_s < NOTHING_S:
        return
    small = cost(small_size)
    least_s = min(small() for _ in range(3))
    for _ in range(2):
        if spent_s <= MOST_TIMES * least_s:
            return
        spent_s = min(spent_s, large())
    assert spent_s <= MOST_TIMES * least_s, f"{what}: {least_s:.4f} s, {TIMES} times the input {spent_s:.4f} s"


@pytest.mark.parametrize("shape", BODIES)
def test_a_hostile_body_costs_no_more_than_its_size(server: Server, shape: str) -> None:
    for route in server.router.routes():
        if route.method in ("GET", "DELETE"):
            continue
        for kind in (JSON, FORM) if route.pattern.startswith("/camellia") else (JSON,):

            def cost(size: int, route: Route = route, kind: str = kind) -> Callable[[], float]:
                return server.ask(route, BODIES[shape](size), "ontime=1", {"content-type": kind})

            assert_linear(cost, f"{shape} to {route.method} {route.pattern}")


@pytest.mark.parametrize("shape", TEXTS)
def test_a_hostile_query_or_path_costs_no_more_than_its_size(server: Server, shape: str) -> None:
    for route in server.router.routes():

        def text(size: int) -> str:
            return BODIES[shape](size).decode("latin-1").replace("/", "_")

        def query(size: int, route: Route = route) -> Callable[[], float]:
            return server.ask(route, b"", "cursor=" + text(size), {})

        def ontime(size: int, route: Route = route) -> Callable[[], float]:
            return server.ask(route, b"", "ontime=" + text(size) + "&limit=" + text(size), {})

        def param(size: int, route: Route = route) -> Callable[[], float]:
            return server.ask(route, b"{}", "ontime=1", {"content-type": JSON}, text(size))

        for cost in (query, ontime, param):
            assert_linear(cost, f"{shape} as {cost.__name__} of {route.method} {route.pattern}", SMALL_URL)


@pytest.mark.parametrize("shape", HEADERS)
def test_a_hostile_header_costs_no_more_than_its_size(server: Server, shape: str) -> None:
    for route in server.router.routes():

        def cost(size: int, route: Route = route) -> Callable[[], float]:
            return server.ask(route, b'{"body":1}', "", HEADERS[shape](size))

        assert_linear(cost, f"{shape} to {route.method} {route.pattern}")


@pytest.mark.parametrize("piece", [64, 1 << 30], ids=["in small pieces", "at once"])
@pytest.mark.parametrize("shape", STREAMS)
def test_a_hostile_stream_costs_no_more_than_its_size(server: Server, shape: str, piece: int) -> None:
    def cost(size: int) -> Callable[[], float]:
        data = STREAMS[shape](size)

        async def read() -> float:
            queue: deque[Exchange] = deque()
            reader = Reader(Front(server.router, FrontLimits()), queue, lambda: None)
            begun_s = time.process_time()
            for at in range(0, len(data), piece):
                if reader.deaf:
                    break
                reader.feed(data[at : at + piece])
                while queue:  # it parses a few at a time
                    queue.clear()
                    reader.read_on()
            return time.process_time() - begun_s

        return lambda: server.runner.run(read())

    assert_linear(cost, shape)

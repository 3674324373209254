"""What tokens and limits cost: the server's CPU time per single send, with both and with neither, in turns.

A request without a token has a header of the same length. Both servers share one store. How many sends share a script
call depends on what else the machine does, and matters more than the limits; so the result is the median of the
differences of rounds that follow one another. It needs a quiet machine. The second line has no such noise: it is
measured inside one process, on the steps that tokens and limits add.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections import deque
from collections.abc import Callable

from dueline.config.settings import NamespaceLimits
from dueline.dialects.contract import Dialect
from dueline.dialects.http import Request, Response, Route, TokenPlace
from dueline.engine.engine import Engine
from dueline.engine.errors import DuelineError
from dueline.engine.timer import LoopTimer
from dueline.engine.token_cache import TokenCache
from dueline.engine.tokens import Tokens, TokenSpec
from dueline.rights import EVERYTHING, Right, TokenLimits
from dueline.server.authentication import OpenAccess
from dueline.server.exchange import Exchange
from dueline.server.front import Front
from dueline.server.pending_jobs import PendingJobs
from dueline.server.quotas import Quotas
from dueline.server.request_reader import Reader
from dueline.server.router import Router
from dueline.server.token_authenticator import TokenAuthenticator
from dueline.store.memory import MemoryStore

from ..broken import Broken
from ..loading import Orders, run
from ..report import Line, at_most, middle
from ..servers import Server, dueline, folder, server
from ..sizes import Sizes
from ..usage import cpu_s

ROUNDS = 40
ROUND_S = 0.5
STEPS = 20_000
ANSWER = Response(200)
NAMESPACE = NamespaceLimits(
    requests_per_s=1e6, max_connections=1000, max_polls=1000, max_pending_jobs=10**9, max_queued_jobs=100_000
)
TOKEN = TokenLimits(
    requests_per_s=1e6, max_connections=1000, max_polls=1000, max_pending_jobs=10**9, max_queued_jobs=100_000
)
CONFIG = """
[server]
auth = "tokens"

[namespaces."*"]
requests_per_s = 1000000
max_connections = 1000
max_polls = 1000
max_pending_jobs = 1000000000
max_queued_jobs = 100000
look_ups_per_s = 1000
"""
TOKEN_LIMITS = (
    *("--requests-per-s", "1000000", "--max-connections", "1000", "--max-polls", "1000"),
    *("--max-pending-jobs", "1000000000", "--max-queued-jobs", "100000", "--push-allow", "10.0.0.0/8"),
)


def limits(_: Sizes) -> list[Line]:
    with folder() as place, server(place / "data") as holder:
        config = place / "limits.toml"
        config.write_text(CONFIG)
        servers = {
            "off": Server(place / "off", store=holder.store_url),
            "on": Server(place / "on", store=holder.store_url, arguments=("--config", str(config))),
        }
        with_token = f"Authorization: Bearer {_token(holder.store_url)}"
        headers = {"off": f"X-Pad: {'x' * (len(with_token) - 7)}", "on": with_token}
        spent_us: dict[str, list[float]] = {name: [] for name in servers}
        try:
            for one in servers.values():
                one.start()
            for name, one in servers.items():
                _cpu_us(one, "warm", headers[name], 1.0)
            for round in range(ROUNDS):
                for name, one in servers.items():
                    spent_us[name].append(_cpu_us(one, f"{name}-{round}", headers[name], ROUND_S))
        finally:
            for one in servers.values():
                one.stop()
    more_us = [on - off for on, off in zip(spent_us["on"], spent_us["off"], strict=True)]
    note = (
        f"medians of {ROUNDS}: {middle(spent_us['on']):.1f} us with a token and all limits of both, "
        f"{middle(spent_us['off']):.1f} us with neither"
    )
    return [
        Line("CPU per send, added by tokens and limits", middle(more_us), "us", None, at_most(3.0), note, {**spent_us}),
        asyncio.run(_steps()),
    ]


async def _steps() -> Line:
    """What a known head and the counting of one job cost more."""
    spent_us: dict[bool, list[float]] = {False: [], True: []}
    steps = {is_on: await _step(is_on) for is_on in spent_us}
    for _ in range(ROUNDS):
        for is_on, step in steps.items():
            begun_s = time.thread_time()
            for _ in range(STEPS):
                step()
            spent_us[is_on].append((time.thread_time() - begun_s) / STEPS * 1e6)
    off_us = middle(spent_us[False])
    more_us = middle(spent_us[True]) - off_us
    note = f"from the bytes to a handler that stores nothing, {off_us:.2f} us without them"
    return Line("CPU of the steps that tokens and limits add", more_us, "us", None, at_most(3.0), note)


async def _step(is_on: bool) -> Callable[[], None]:
    """A function that takes one send from its bytes to its answer, without a store."""
    store = MemoryStore(lambda: 0)
    made = await Tokens(store, LoopTimer()).make(TokenSpec("bench", (Right.SEND,), "n", limits=TOKEN), EVERYTHING)
    cache = TokenCache(store, lease_s=3600)
    await cache.start()
    quotas = Quotas({"n": NAMESPACE} if is_on else {})
    pending = PendingJobs(Engine(store), quotas.max_pending_jobs, quotas.refuse_pending)
    router = Router([_Owner(pending)])
    auth = TokenAuthenticator(cache, store.now_ms) if is_on else OpenAccess()
    queue: deque[Exchange] = deque()
    reader = Reader(Front(router, auth=auth, quotas=quotas), queue, lambda: None)
    name = "Authorization: Bearer" if is_on else "X-Pad: instead of the token:"
    data = f"POST /send HTTP/1.1\r\nHost: x\r\n{name} {made.text}\r\nContent-Length: 5\r\n\r\nhello".encode()
    if (counting := pending.admit("n", 1)) is not None:
        await counting

    def step() -> None:
        reader.feed(data)
        exchange = queue.popleft()
        reader.read_on()
        try:
            router.respond(exchange.found, exchange.request, exchange.queue).send(None)
        except StopIteration as end:
            if exchange.answer is not None or end.value is not ANSWER:
                raise Broken("a send was refused") from None

    return step


class _Owner(Dialect):
    """A send that counts its job and stores nothing."""

    def __init__(self, pending: PendingJobs) -> None:
        self._pending = pending

    def routes(self) -> list[Route]:
        return [Route("POST", "/send", self._send, "send", Right.SEND, TokenPlace.HEADER)]

    def failed(self, request: Request, error: DuelineError) -> Response:
        return Response(429)

    async def _send(self, request: Request) -> Response:
        if request.grant is not EVERYTHING:
            self._pending.admit("n", 1, request.grant)
        return ANSWER


def _token(store_url: str) -> str:
    command = (*dueline(), "token", "create", "bench", "--right", "send", *TOKEN_LIMITS, "--url", store_url)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _cpu_us(one: Server, topic: str, header: str, seconds: float) -> float:
    """The CPU time of the server per send."""
    before_s = cpu_s(one.pid)
    done = run(Orders("send", port=one.port, topic=topic, header=header, seconds=seconds))
    return (cpu_s(one.pid) - before_s) / done.in_all * 1e6

"""What tokens and limits cost: the server's CPU time per single send, with both and with neither, in turns.

A request without a token has a header of the same length. Both servers share one store. How many sends share a script
call depends on what else the machine does, and matters more than the limits; so the result is the median of the
differences of rounds that follow one another. It needs a quiet machine. The second line has no such noise: it is
measured inside one process, on the steps that the limits add.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections import deque

from dueline.config.settings import NamespaceLimits
from dueline.dialects.contract import Dialect
from dueline.dialects.http import Request, Response, Route, TokenPlace
from dueline.engine.engine import Engine
from dueline.engine.errors import DuelineError
from dueline.engine.queue_limit import QueuedCall
from dueline.rights import Grant, Right, TokenLimits
from dueline.server.exchange import Exchange
from dueline.server.front import Front
from dueline.server.pending_jobs import PendingJobs
from dueline.server.quotas import Quotas
from dueline.server.request_reader import Reader
from dueline.server.router import Router
from dueline.store.memory import MemoryStore

from ..loading import Orders, run
from ..report import Line, at_most, middle
from ..servers import Server, dueline, folder, server
from ..sizes import Sizes
from ..usage import cpu_s

ROUNDS = 40
ROUND_S = 0.5
STEPS = 20_000
SEND = b"POST /send HTTP/1.1\r\nHost: x\r\nDueline-Namespace: n\r\nContent-Length: 5\r\n\r\nhello"
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
    """What a known head and a send cost more, each counted by a namespace with limits."""
    rows = {"n": NamespaceLimits(requests_per_s=10_000_000, max_connections=10, max_pending_jobs=10**9)}
    spent_us: dict[bool, list[float]] = {False: [], True: []}
    readers = {is_on: _reader(Quotas(rows if is_on else {})) for is_on in spent_us}
    for _ in range(ROUNDS):
        for is_on, (reader, queue) in readers.items():
            begun_s = time.thread_time()
            for _ in range(STEPS):
                reader.feed(SEND)
                queue.clear()
                reader.read_on()
            spent_us[is_on].append((time.thread_time() - begun_s) / STEPS * 1e6)
    engine = Engine(MemoryStore(lambda: 0))
    token = TokenLimits(max_pending_jobs=10**9, max_queued_jobs=10**6)
    quotas = Quotas(rows)
    pending = PendingJobs(engine, quotas.max_pending_jobs, quotas.refuse_pending)
    grant = Grant(frozenset({Right.SEND}), "n", token_id="t", limits=token)
    found = Router([_Owner()]).find("POST", "/send")
    quota = quotas.of(found, grant, "n")
    assert quota is not None
    first = pending.admit("n", 1, grant)
    assert first is not None
    await first
    begun_s = time.thread_time()
    for _ in range(STEPS):
        pending.admit("n", 1, grant)
        assert quota.queue is not None
        with QueuedCall(quota.queue) as call:
            call.hold(1)
    counted_us = (time.thread_time() - begun_s) / STEPS * 1e6
    head_us = middle(spent_us[True]) - middle(spent_us[False])
    note = (
        f"a known head {middle(spent_us[False]):.2f} us, with limits {head_us:.2f} us more; "
        f"counting a job for the namespace and the token {counted_us:.2f} us"
    )
    return Line("CPU of the steps that limits add", head_us + counted_us, "us", None, at_most(3.0), note)


async def _answer(_: Request) -> Response:
    return Response(200)


class _Owner(Dialect):
    def routes(self) -> list[Route]:
        return [Route("POST", "/send", _answer, "send", Right.SEND, TokenPlace.HEADER)]

    def failed(self, request: Request, error: DuelineError) -> Response:
        return Response(429)


def _reader(quotas: Quotas) -> tuple[Reader, deque[Exchange]]:
    """A reader that knows the head of SEND."""
    queue: deque[Exchange] = deque()
    reader = Reader(Front(Router([_Owner()]), quotas=quotas), queue, lambda: None)
    reader.feed(SEND)
    reader.read_on()
    return reader, queue


def _token(store_url: str) -> str:
    command = (*dueline(), "token", "create", "bench", "--right", "send", *TOKEN_LIMITS, "--url", store_url)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _cpu_us(one: Server, topic: str, header: str, seconds: float) -> float:
    """The CPU time of the server per send."""
    before_s = cpu_s(one.pid)
    done = run(Orders("send", port=one.port, topic=topic, header=header, seconds=seconds))
    return (cpu_s(one.pid) - before_s) / done.in_all * 1e6

"""What being watched costs: the CPU of server and store per send and per whole life, with each way of looking, against
the same without it, in turns within one run.

`history`: the history of jobs, which a server keeps by default. `metrics`: a scrape of `/metrics` every
second. `events`: somebody follows the event stream of all topics. First every server gets FILL jobs, so that the stream
of one that is followed is full: from then on each entry that comes pushes out others. One server process with its
embedded store per kind of server, 64 connections, everything on the same cores. CPU time hardly changes when others use
the machine; the ratio is what counts.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import msgspec

from dueline.http1.messages import request_bytes

from ..broken import Broken
from ..loading import Orders, run
from ..report import Line, middle
from ..servers import Server, server
from ..sizes import Sizes
from ..usage import cpu_s

WARM_S = 0.3
CONNECTIONS = 64
FILL = 250_000  # jobs: as events they have more than MAX_STREAM_BYTES
SCRAPE_S = 1.0
HEADERS = {"Host": "127.0.0.1", "Accept": "text/event-stream"}
WORKS = {"send": "a send", "life": "a whole life"}

Look = Callable[[Server, threading.Event], int]
"""Reads until the event is set. Returns how much it has read."""


def _scrape(one: Server, ended: threading.Event) -> int:
    client = one.client()
    pages = 1
    client.fetch("/metrics")
    while not ended.wait(SCRAPE_S):
        client.fetch("/metrics")
        pages += 1
    client.close()
    return pages


def _follow(one: Server, ended: threading.Event) -> int:
    """Reads the socket itself: a file of `http.client` cannot be read again after a wait without an event."""
    events = 0
    with socket.create_connection(("127.0.0.1", one.port)) as connection:
        connection.settimeout(0.2)
        connection.sendall(request_bytes("GET", "/v1/events", HEADERS, None))
        while not ended.is_set():
            with contextlib.suppress(TimeoutError):
                piece = connection.recv(1 << 20)
                if not piece:
                    raise Broken("the stream of events has ended")
                events += piece.count(b"\nevent: job\n")  # misses one that two pieces share
    return events


class Kind(msgspec.Struct, frozen=True):
    """One way of being watched: who looks, and the environment of the server."""

    name: str
    looks: tuple[Look, ...] = ()
    environment: Mapping[str, str] = {}

    @property
    def server(self) -> tuple[bool, tuple[tuple[str, str], ...]]:
        """Kinds with the same value share a server. One that is followed goes on recording for a minute."""
        return _follow in self.looks, tuple(sorted(self.environment.items()))


KINDS = (
    Kind("all off", environment={"DUELINE_LIMITS__MAX_HISTORY_BYTES": "0"}),
    Kind("history"),
    Kind("history and metrics", (_scrape,)),
    Kind("history and events", (_follow,)),
    Kind("all on", (_scrape, _follow)),
)


def _watched(one: Server, looks: tuple[Look, ...], work: Callable[[], float]) -> float:
    """The result of the work while somebody looks. Raises Broken if one of them saw nothing: it was not watched."""
    ended = threading.Event()
    with ThreadPoolExecutor(max(1, len(looks))) as threads:
        looking = [threads.submit(look, one, ended) for look in looks]
        try:
            result = work()
        finally:
            ended.set()
        seen = [look.result() for look in looking]
    if not all(seen):
        raise Broken(f"one of those who look has seen nothing: {seen}")
    return result


def seeing(sizes: Sizes) -> list[Line]:
    spent: dict[tuple[str, str], list[float]] = {(work, kind.name): [] for work in WORKS for kind in KINDS}
    with contextlib.ExitStack() as stack:
        servers = {
            key: stack.enter_context(server(environment=dict(key[1]))) for key in {kind.server for kind in KINDS}
        }
        for (follows, _), one in servers.items():
            _watched(one, (_follow,) if follows else (), lambda one=one: run(_fill(one)).seconds)
        for round in range(sizes.rounds):
            for work in WORKS:
                for kind in KINDS if round % 2 == 0 else reversed(KINDS):
                    one = servers[kind.server]
                    spent[work, kind.name].append(_cpu_us(one, work, kind, f"{work}-{round}", sizes.round_s))
    return [_line(work, kind, spent) for work in WORKS for kind in KINDS]


def _fill(one: Server) -> Orders:
    return Orders("bulk", port=one.port, topic="fill", connections=4).counting(FILL)


def _cpu_us(one: Server, work: str, kind: Kind, topic: str, seconds: float) -> float:
    store = one.store()
    store.settle()
    pids = (one.pid, int(store.info("server")["process_id"]))
    orders = Orders(work, port=one.port, topic=topic, connections=CONNECTIONS, warm_s=WARM_S).lasting(seconds)

    def worked() -> float:
        before_s = sum(map(cpu_s, pids))
        done = run(orders)
        return 1e6 * (sum(map(cpu_s, pids)) - before_s) / max(1, done.in_all)

    return _watched(one, kind.looks, worked)


def _line(work: str, kind: Kind, spent: dict[tuple[str, str], list[float]]) -> Line:
    base = spent[work, KINDS[0].name]
    mine = spent[work, kind.name]
    details = {"rounds_us": mine, "base_rounds_us": base}
    what = f"CPU of {WORKS[work]}: {kind.name}"
    return Line(what, middle(mine), "us", None if kind is KINDS[0] else middle(base), None, "server and store", details)

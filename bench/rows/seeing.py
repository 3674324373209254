"""What being watched costs: the CPU of server and store per send and per whole life, with each way of looking, against
the same without it, in turns within one run.

`history`: the history of jobs, which a server keeps unless it is told not to. `metrics`: a scrape of `/metrics` every
second. `events`: somebody follows the event stream of all topics. One server process with its embedded store per kind
of server, 64 connections, everything on the same cores. CPU time hardly changes when others use the machine; the ratio
is what counts.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Callable, Generator, Mapping

import msgspec

from ..loading import Orders, run
from ..report import Line, middle
from ..servers import Server, server
from ..sizes import Sizes
from ..usage import cpu_s

WARM_S = 0.3
CONNECTIONS = 64
SCRAPE_S = 1.0
WORKS = {"send": "a send", "life": "a whole life"}

Look = Callable[[Server, threading.Event], None]


def _scrape(one: Server, ended: threading.Event) -> None:
    client = one.client()
    while not ended.wait(SCRAPE_S):
        client.fetch("/metrics")
    client.close()


def _follow(one: Server, ended: threading.Event) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", one.port, timeout=1.0)
    connection.request("GET", "/v1/events", headers={"Accept": "text/event-stream"})
    answer = connection.getresponse()
    while not ended.is_set():
        with contextlib.suppress(TimeoutError):
            answer.read1(1 << 20)
    connection.close()


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


@contextlib.contextmanager
def _looking(one: Server, looks: tuple[Look, ...]) -> Generator[None]:
    ended = threading.Event()
    threads = [threading.Thread(target=look, args=(one, ended), daemon=True) for look in looks]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(5)


def seeing(sizes: Sizes) -> list[Line]:
    spent: dict[tuple[str, str], list[float]] = {(work, kind.name): [] for work in WORKS for kind in KINDS}
    with contextlib.ExitStack() as stack:
        servers = {
            key: stack.enter_context(server(environment=dict(key[1]))) for key in {kind.server for kind in KINDS}
        }
        for round in range(sizes.rounds):
            for work in WORKS:
                for kind in KINDS:
                    one = servers[kind.server]
                    spent[work, kind.name].append(_cpu_us(one, work, kind, f"{work}-{round}", sizes.round_s))
    return [_line(work, kind, spent) for work in WORKS for kind in KINDS]


def _cpu_us(one: Server, work: str, kind: Kind, topic: str, seconds: float) -> float:
    store = one.store()
    store.settle()
    pids = (one.pid, int(store.info("server")["process_id"]))
    orders = Orders(work, port=one.port, topic=topic, connections=CONNECTIONS, warm_s=WARM_S).lasting(seconds)
    with _looking(one, kind.looks):
        before_s = sum(map(cpu_s, pids))
        done = run(orders)
        return 1e6 * (sum(map(cpu_s, pids)) - before_s) / max(1, done.in_all)


def _line(work: str, kind: Kind, spent: dict[tuple[str, str], list[float]]) -> Line:
    base = spent[work, KINDS[0].name]
    mine = spent[work, kind.name]
    details = {"rounds_us": mine, "base_rounds_us": base}
    what = f"CPU of {WORKS[work]}: {kind.name}"
    return Line(what, middle(mine), "us", None if kind is KINDS[0] else middle(base), None, "server and store", details)

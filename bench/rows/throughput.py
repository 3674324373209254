"""Durable sends, whole lives and bulk sends over HTTP, compared with SET on the same store, in turns within one run.

One server process with its embedded store (`appendfsync always`), 64 connections, everything on the same two cores.
Each measurement has its own topic and directly follows a measurement of the base, so that a change in the machine's
speed affects both. The CPU time per job shows the bottleneck, and hardly changes when others use the machine.
"""

from __future__ import annotations

from ..base import Base
from ..loading import Orders, run
from ..report import Line, at_least, middle
from ..servers import Server, cpu_s, server
from ..sizes import Sizes

WARM_S = 0.3
CONNECTIONS = 64
BULK_CONNECTIONS = 16  # 1,600 jobs in flight, more than one script call takes

LINES = {
    "send": ("durable HTTP sends, one job each", 0.40, CONNECTIONS),
    "life": ("whole lives: send, pull, ack, one job each", 0.12, CONNECTIONS),
    "chained": ("whole lives: send, pull with the ack of the job before", 0.14, CONNECTIONS),
    "bulk": ("bulk sends, 100 jobs a call", 1.0, BULK_CONNECTIONS),
}


class _Found:
    """The rounds of one kind of work."""

    def __init__(self) -> None:
        self.per_s: list[float] = []
        self.base_per_s: list[float] = []
        self.cpu_us: dict[str, list[float]] = {"server": [], "store": [], "load": []}

    def measure(self, one: Server, store_pid: int, orders: Orders) -> None:
        server_s, store_s = cpu_s(one.pid), cpu_s(store_pid)
        done = run(orders)
        self.per_s.append(done.per_s)
        spent_s = {"server": cpu_s(one.pid) - server_s, "store": cpu_s(store_pid) - store_s, "load": done.cpu_s}
        for name, seconds in spent_s.items():
            self.cpu_us[name].append(1e6 * seconds / max(1, done.in_all))


def throughput(sizes: Sizes) -> list[Line]:
    found = {work: _Found() for work in LINES}
    with server() as one:
        base = Base(one.socket_path, sizes.round_s)
        store = one.store()
        store_pid = int(store.info("server")["process_id"])
        for round in range(sizes.rounds):
            for work, (_, _, connections) in LINES.items():
                store.settle()
                found[work].base_per_s.append(base.per_s())
                orders = Orders(work, port=one.port, topic=f"{work}-{round}", connections=connections, warm_s=WARM_S)
                found[work].measure(one, store_pid, orders.lasting(sizes.round_s))
    return [_line(work, found[work], base.name) for work in LINES]


def _line(work: str, found: _Found, base: str) -> Line:
    what, target, connections = LINES[work]
    cpu = {name: middle(values) for name, values in found.cpu_us.items()}
    note = f"base: SET, 64 connections, {base}; CPU us: " + ", ".join(f"{name} {us:.0f}" for name, us in cpu.items())
    details = {"rounds": found.per_s, "base_rounds": found.base_per_s, "connections": connections, "cpu_us": cpu}
    return Line(what, middle(found.per_s), "/s", middle(found.base_per_s), at_least(target), note, details)

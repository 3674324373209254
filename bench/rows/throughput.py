"""Durable sends, whole lives and bulk sends over HTTP, compared with SET on the same store, in turns within one run.

One server process with its embedded store (`appendfsync always`), 64 connections, everything on the same two cores.
Each measurement has its own topic and directly follows a measurement of the base, so that a change in the machine's
speed affects both. The base is SET over TCP, as our callers use it; over the unix socket it is faster, and noted.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..base import Base
from ..loading import Orders
from ..report import Line, at_least, middle
from ..servers import server
from ..sizes import Sizes
from ..usage import PARTS, Meter, Usage, median

WARM_S = 0.3
CONNECTIONS = 64
BULK_CONNECTIONS = 16  # 1,600 jobs in flight, more than one script call takes

LINES = {
    "send": ("durable HTTP sends, one job each", 0.45, CONNECTIONS),
    "life": ("whole lives: send, pull, ack, one job each", 0.14, CONNECTIONS),
    "chained": ("whole lives: send, pull with the ack of the job before", 0.14, CONNECTIONS),
    "bulk": ("bulk sends, 100 jobs a call", 1.0, BULK_CONNECTIONS),
}


def throughput(sizes: Sizes) -> list[Line]:
    found: dict[str, list[Usage]] = {work: [] for work in LINES}
    base_per_s: dict[str, list[float]] = {work: [] for work in LINES}
    socket_per_s: list[float] = []
    with server() as one:
        base = Base(sizes.round_s, port=one.open_store_port())
        by_socket = Base(sizes.round_s, socket=one.socket_path)
        meter = Meter(one)
        for round in range(sizes.rounds):
            socket_per_s.append(by_socket.per_s())
            for work, (_, _, connections) in LINES.items():
                base_per_s[work].append(base.per_s())
                orders = Orders(work, port=one.port, topic=f"{work}-{round}", connections=connections, warm_s=WARM_S)
                found[work].append(meter.run(orders.lasting(sizes.round_s)))
    all_base = [rate for rates in base_per_s.values() for rate in rates]
    note = f"{base.name}, {CONNECTIONS} connections; base: over TCP"
    return [
        *(_line(work, found[work], base_per_s[work], base.name) for work in LINES),
        Line("SET over the unix socket", middle(socket_per_s), "/s", middle(all_base), None, note),
    ]


def _line(work: str, rounds: Sequence[Usage], base_per_s: Sequence[float], base: str) -> Line:
    what, target, connections = LINES[work]
    used = median(rounds)
    spent = ", ".join(f"{part} {used.cpu_us[part]:.0f}" for part in PARTS)
    note = f"base: SET over TCP, {CONNECTIONS} connections, {base}; CPU us: {spent}"
    details = {
        "rounds": [one.per_s for one in rounds],
        "base_rounds": base_per_s,
        "connections": connections,
        "cpu_us": used.cpu_us,
    }
    return Line(what, used.per_s, "/s", middle(base_per_s), at_least(target), note, details)

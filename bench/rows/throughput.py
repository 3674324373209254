"""Durable sends, whole lives and bulk sends over HTTP, against SET on the same store, in turns inside one run.

One server process with its embedded store (`appendfsync always`), 64 connections, everything on the same two cores.
Each measurement has a topic of its own and stands right behind a measurement of the base, so that a machine that
changes its pace changes both.
"""

from __future__ import annotations

from ..base import Base
from ..loading import Orders, run
from ..report import Line, at_least, middle
from ..servers import server
from ..sizes import Sizes

WARM_S = 0.3
CONNECTIONS = 64
BULK_CONNECTIONS = 16  # 1,600 jobs are on their way, more than a script call takes

LINES = {
    "send": ("durable HTTP sends, one job each", 0.40, CONNECTIONS),
    "life": ("whole lives: send, pull, ack, one job each", 0.12, CONNECTIONS),
    "bulk": ("bulk sends, 100 jobs a call", 1.0, BULK_CONNECTIONS),
}


def throughput(sizes: Sizes) -> list[Line]:
    measured: dict[str, list[float]] = {work: [] for work in LINES}
    bases: dict[str, list[float]] = {work: [] for work in LINES}
    with server() as one:
        base = Base(one.socket_path, sizes.round_s)
        store = one.store()
        for round in range(sizes.rounds):
            for work, (_, _, connections) in LINES.items():
                store.settle()
                bases[work].append(base.per_s())
                orders = Orders(
                    work,
                    port=one.port,
                    topic=f"{work}-{round}",
                    connections=connections,
                    seconds=sizes.round_s,
                    warm_s=WARM_S,
                )
                measured[work].append(run(orders).per_s)
    note = f"base: SET, 64 connections, {base.name}"
    return [
        Line(
            what,
            middle(measured[work]),
            "/s",
            middle(bases[work]),
            at_least(target),
            note,
            {"rounds": measured[work], "base_rounds": bases[work], "connections": connections},
        )
        for work, (what, target, connections) in LINES.items()
    ]

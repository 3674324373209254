"""Far from saturation: what a whole life costs at 500 a second, when no two calls share a script call.

A few connections send, pull and ack one job each, at a steady rate, so that calls hardly overlap. A wake-up is a
voluntary context switch: a process has waited and goes on.
"""

from __future__ import annotations

from ..loading import Orders
from ..report import Line
from ..servers import server
from ..sizes import Sizes
from ..usage import Meter, median

PER_S = 500.0
CONNECTIONS = 8
WARM_LIVES = 200


def calm(sizes: Sizes) -> list[Line]:
    with server() as one:
        meter = Meter(one)
        orders = Orders("life", port=one.port, connections=CONNECTIONS, per_s=PER_S, count=WARM_LIVES)
        meter.run(orders)
        rounds = [meter.run(orders.counting(int(PER_S * sizes.calm_s))) for _ in range(sizes.cpu_rounds)]
    used = median(rounds)
    note = f"{used.per_s:.0f} lives/s of {PER_S:.0f}; load {used.cpu_us['load']:.0f} us"
    lines: list[Line] = []
    for part in ("server", "store"):
        details = {"rounds_us": [one.cpu_us[part] for one in rounds]}
        lines.append(
            Line(f"CPU of a life at {PER_S:.0f}/s, {part}", used.cpu_us[part], "us", note=note, details=details)
        )
    for part in ("server", "store"):
        lines.append(Line(f"wake-ups of a life at {PER_S:.0f}/s, {part}", used.wakeups[part], ""))
    return lines

"""What the first send to a new topic costs: one send each to one new topic after another, from 64 connections."""

from __future__ import annotations

from ..loading import Orders
from ..report import Line, at_most
from ..servers import server
from ..sizes import Sizes
from ..usage import Meter, median


def first_sends(sizes: Sizes) -> list[Line]:
    with server() as one:
        meter = Meter(one)
        calls = sizes.cpu_calls // 10
        rounds = [
            meter.run(Orders("topics", port=one.port, topic=f"new-{number}", count=calls))
            for number in range(sizes.cpu_rounds + 1)
        ][1:]  # the first one warms up
    used = median(rounds)
    note = f"server {used.cpu_us['server']:.0f} us, store {used.cpu_us['store']:.0f} us; {used.per_s:,.0f} /s"
    details = {"rounds_us": [one.product_us for one in rounds]}
    return [Line("CPU of the first send to a topic", used.product_us / 1000, "ms", None, at_most(0.3), note, details)]

"""CPU time of one send, pull, ack and whole life over HTTP, as shipped: one job a call, 64 connections, an fsync before
every answer. Server, store and load generator are counted apart, over a fixed number of calls.

With two or more products (`--product`), each has its own server, and they take turns in every round: A B, B A, ... The
first one is the base of the others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import msgspec

from ..loading import Orders, run
from ..report import Line, at_most
from ..servers import Server, folder, server
from ..sizes import Sizes
from ..usage import Meter, Usage, median

CONNECTIONS = 64
FILL_CONNECTIONS = 4
WORKS = ("send", "pull", "ack", "life")
TARGETS = {"send": (19, 12), "pull": (21, 13), "ack": (19, 14), "life": (60, 45)}
NAMES = {"send": "a send", "pull": "a pull", "ack": "an ack", "life": "a whole life"}
Rounds = dict[str, list[Usage]]


class Side:
    """One server, and its rounds by kind of call."""

    def __init__(self, one: Server, acks: str) -> None:
        self._meter = Meter(one)
        self._orders = Orders("send", port=one.port, connections=CONNECTIONS, acks=acks)
        self.rounds: Rounds = {work: [] for work in WORKS}

    def round(self, number: int, calls: int) -> None:
        """The first round, number 0, warms up and does not count."""
        calls = calls if number else calls // 4
        for work in WORKS:
            topic = f"cpu-{number}-{'pull' if work == 'ack' else work}"
            orders = msgspec.structs.replace(self._orders, topic=topic, count=calls)
            if work == "pull":
                bulk = msgspec.structs.replace(orders, work="bulk", connections=FILL_CONNECTIONS, delay_ms=(0, 0))
                run(bulk)
            count = calls // 2 if work == "life" else calls
            used = self._meter.run(msgspec.structs.replace(orders, work=work, count=count))
            if number:
                self.rounds[work].append(used)


def cpu(sizes: Sizes) -> list[Line]:
    products = sizes.products or ("",)
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(folder())
        sides = [
            Side(stack.enter_context(server(product=product)), str(place / f"acks-{number}"))
            for number, product in enumerate(products)
        ]
        for number in range(sizes.cpu_rounds + 1):
            for side in sides if number % 2 else sides[::-1]:
                side.round(number, sizes.cpu_calls)
    return [
        line
        for work in WORKS
        for product, side in zip(products, sides, strict=True)
        for line in _lines(work, product, side.rounds[work], None if side is sides[0] else sides[0].rounds[work])
    ]


def _lines(work: str, product: str, rounds: Sequence[Usage], first: Sequence[Usage] | None) -> list[Line]:
    used = median(rounds)
    where = f" [{product}]" if product else ""
    lines: list[Line] = []
    for part, target in zip(("server", "store"), TARGETS[work], strict=True):
        details = {"rounds_us": [one.cpu_us[part] for one in rounds], "per_s": used.per_s}
        base = None if first is None else median(first).cpu_us[part]
        note = f"load {used.cpu_us['load']:.1f} us; {used.per_s:,.0f} /s" if part == "server" else ""
        bound = at_most(target) if base is None else None
        lines.append(Line(f"CPU of {NAMES[work]}, {part}{where}", used.cpu_us[part], "us", base, bound, note, details))
    return lines

"""CPU time of one send, pull, ack and whole life over HTTP, as shipped: one job a call, 64 connections, an fsync before
every answer. Server, store and load generator are counted apart, over a fixed number of calls.

With two or more products (`--product`), each has its own server, and they take turns in every round: A B, B A, ... The
first one is the base of the others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ..calls import CallRounds
from ..report import Line, at_most
from ..servers import folder, server
from ..sizes import Sizes
from ..usage import Meter, Usage, median

TARGETS = {"send": (19, 12), "pull": (21, 13), "ack": (19, 14), "life": (60, 45), "chained": (60, 45)}
NAMES = {
    "send": "a send",
    "pull": "a pull",
    "ack": "an ack",
    "life": "a whole life",
    "chained": "a whole life, ack in the next pull",
}


def cpu(sizes: Sizes) -> list[Line]:
    products = sizes.products or ("",)
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(folder())
        servers = [stack.enter_context(server(product=product)) for product in products]
        sides = [CallRounds(Meter(one).run, one.port, place, list(TARGETS)) for one in servers]
        for number in range(sizes.cpu_rounds + 1):
            for side in sides if number % 2 else sides[::-1]:
                side.round(number, sizes.cpu_calls)
    return [
        line
        for work in TARGETS
        for product, side in zip(products, sides, strict=True)
        for line in _lines(work, product, side.used[work], None if side is sides[0] else sides[0].used[work])
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

"""Our own HTTP front end compared with library ones: the same application and store, single sends, in turns.

Our own front end is worth keeping only while it reaches at least 1.5 times the rate of the best library.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from dueline.testing.process import free_port

from ..loading import Orders, run
from ..report import Line, at_least, middle
from ..servers import Server, folder, server
from ..sizes import Sizes

WARM_S = 0.3


def library_fronts(port: int) -> dict[str, list[str]]:
    """The commands of the installed library front ends."""
    python = sys.executable
    fronts: dict[str, list[str]] = {}
    if importlib.util.find_spec("granian") is not None:
        for interface in ("rsgi", "asgi"):
            words = f"--host 127.0.0.1 --port {port} --workers 1 --loop uvloop --no-ws --http 1 --factory".split()
            target = f"bench.fronts:{interface}"
            fronts[f"granian {interface.upper()}"] = [
                python, "-m", "granian", "--interface", interface, *words, "--log-level", "warning", target,
            ]  # fmt: skip
    if importlib.util.find_spec("uvicorn") is not None:
        words = f"--host 127.0.0.1 --port {port} --loop uvloop --http httptools --no-access-log --factory".split()
        fronts["uvicorn ASGI"] = [
            python, "-m", "uvicorn", *words, "--log-level", "warning", "bench.fronts:asgi",
        ]  # fmt: skip
    return fronts


def transport(sizes: Sizes) -> list[Line]:
    names = list(library_fronts(0))
    if not names:
        return [Line("our HTTP front", 0, "/s", None, None, "not measured: neither granian nor uvicorn is installed")]
    with folder() as place, server(place / "data") as holder:
        fronts = {"own": Server(place / "own", store=holder.store_url)}
        for name in names:
            port = free_port()
            fronts[name] = Server(place / name.replace(" ", "-"), command=library_fronts(port)[name], port=port)
        os.environ["BENCH_STORE"] = holder.store_url
        found: dict[str, list[float]] = {name: [] for name in fronts}
        try:
            for front in fronts.values():
                front.start()
            store = holder.store()
            for round in range(sizes.rounds):
                for name, front in fronts.items():
                    store.settle()
                    found[name].append(_sends_per_s(front, f"front-{round}-{len(found[name])}", sizes.round_s))
        finally:
            for front in fronts.values():
                front.stop()
    rates = {name: middle(values) for name, values in found.items()}
    best = max(names, key=lambda name: rates[name])
    others = ", ".join(f"{name} {rates[name]:,.0f}" for name in names)
    details = {"rounds": found, "folder": Path(place).name}
    what = "our HTTP front, single sends"
    return [Line(what, rates["own"], "/s", rates[best], at_least(1.5), f"base: {best}, the best of {others}", details)]


def _sends_per_s(front: Server, topic: str, seconds: float) -> float:
    return run(Orders("send", port=front.port, topic=topic, seconds=seconds, warm_s=WARM_S)).per_s

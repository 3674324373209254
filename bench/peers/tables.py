"""The printed tables, the targets, and the file with all results."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from ..report import Line, RowResult, at_least, print_table, shown
from .contestants import Contestant
from .lateness import Lateness
from .sending import WAYS, Rates

AllRates = Mapping[str, Mapping[str, Rates]]  # by store, by contestant
DIRECT, HTTP = "dueline direct", "dueline http"


def show(
    contestants: Sequence[Contestant],
    versions: Mapping[str, Mapping[str, str]],
    rates: AllRates,
    late: Mapping[str, Lateness],
) -> None:
    console = Console()
    console = console if console.is_terminal else Console(width=160)
    console.print(_rates_table(contestants, versions, rates))
    console.print(_cpu_table(contestants, rates))
    if late:
        console.print(_lateness_table(late))
    lines = [line for store in rates for line in targets(store, rates[store])]
    if lines:
        print_table([RowResult("peers", lines)])


def targets(store: str, rates: Mapping[str, Rates]) -> list[Line]:
    """Dueline's rates compared with the best of the others. In bulk, each library is represented by its fastest way,
    because not all have a bulk call."""
    peers = {name: one for name, one in rates.items() if name not in (DIRECT, HTTP)}
    asked = [(DIRECT, "one", 1.0), (DIRECT, "fifty", 3.0), (HTTP, "bulk", 5.0)]
    found: list[Line] = []
    for ours, way, times in asked:
        if ours not in rates or not peers:
            continue
        per_s = {name: one.best_per_s if way == "bulk" else one.per_s(way) or 0.0 for name, one in peers.items()}
        best = max(per_s, key=lambda name: per_s[name])
        what = f"{ours}, {WAYS[way]}, {store}"
        measured = rates[ours].per_s(way) or 0.0
        found.append(Line(what, measured, "/s", per_s[best], at_least(times), f"base: {best}, the best of the others"))
    return found


def _rates_table(
    contestants: Sequence[Contestant], versions: Mapping[str, Mapping[str, str]], rates: AllRates
) -> Table:
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="delayed sends per second, one Python process")
    made.add_column("who", overflow="fold")
    for store in rates:
        for way in WAYS.values():
            made.add_column(f"{store}: {way}", justify="right")
    made.add_column("50 are", no_wrap=True)
    made.add_column("versions", overflow="fold")
    for one in contestants:
        figures = [shown(rates[store][one.name].per_s(way)) for store in rates for way in WAYS]
        named = ", ".join(f"{name} {version}" for name, version in versions[one.name].items())
        made.add_row(one.name, *figures, one.at_once, named)
    return made


def _cpu_table(contestants: Sequence[Contestant], rates: AllRates) -> Table:
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="CPU time of the sending process per job, us")
    made.add_column("who")
    for store in rates:
        for way in WAYS.values():
            made.add_column(f"{store}: {way}", justify="right")
    for one in contestants:
        made.add_row(one.name, *(shown(rates[store][one.name].cpu_us_of(way)) for store in rates for way in WAYS))
    return made


def _lateness_table(late: Mapping[str, Lateness]) -> Table:
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="how late a job starts in an idle worker, ms")
    made.add_column("who")
    for name in ("p50", "p99", "earliest", "started early", "missing", "jobs"):
        made.add_column(name, justify="right")
    for name, one in late.items():
        figures = [shown(one.at(share)) for share in (0.5, 0.99, 0.0)]
        made.add_row(name, *figures, str(one.early), str(one.missing), str(len(one.late_ms) + one.missing))
    return made


def write(
    folder: Path,
    facts: Mapping[str, Any],
    versions: Mapping[str, Mapping[str, str]],
    rates: AllRates,
    late: Mapping[str, Lateness],
) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-peers.json"
    lines = [line for store in rates for line in targets(store, rates[store])]
    value = {
        "machine": facts,
        "versions": versions,
        "sends_per_s": {
            store: {name: {way: one.per_s(way) for way in one.rounds} for name, one in by_name.items()}
            for store, by_name in rates.items()
        },
        "rounds": rates,
        "lateness": {
            name: {"p50_ms": one.at(0.5), "p99_ms": one.at(0.99), "early": one.early, "missing": one.missing,
                   "late_ms": one.late_ms}
            for name, one in late.items()
        },
        "targets": [{**msgspec.to_builtins(line), "ratio": line.ratio, "met": line.met} for line in lines],
    }  # fmt: skip
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    return path

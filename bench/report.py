"""The results of a row, and the table and file of all rows."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dueline.load_generator import nearest_rank

RESULTS = Path(__file__).with_name("results")


class Bound(Enum):
    """Which side of its target is good."""

    AT_LEAST = ">="
    AT_MOST = "<="
    BELOW = "<"


class Target(msgspec.Struct, frozen=True):
    """The bound that a result should meet."""

    bound: Bound
    value: float

    def met(self, figure: float) -> bool:
        if self.bound is Bound.AT_LEAST:
            return figure >= self.value
        return figure <= self.value if self.bound is Bound.AT_MOST else figure < self.value

    def __str__(self) -> str:
        return f"{self.bound.value} {shown(self.value)}"


class Line(msgspec.Struct, frozen=True):
    """One line of the table. With a base, the target applies to the ratio, otherwise to the measured value."""

    what: str
    measured: float
    unit: str
    base: float | None = None
    target: Target | None = None
    note: str = ""
    details: dict[str, Any] = {}

    @property
    def ratio(self) -> float | None:
        return self.measured / self.base if self.base else None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None if there is no target."""
        if self.target is None:
            return None
        return self.target.met(self.measured if self.base is None else self.ratio or 0.0)


class RowResult(msgspec.Struct, frozen=True):
    """A row that ran. `wrong` is set if a guarantee was violated (a job was early) or the row itself did not work."""

    row: str
    lines: Sequence[Line] = ()
    seconds: float = 0.0
    wrong: str = ""


def at_least(value: float) -> Target:
    return Target(Bound.AT_LEAST, value)


def at_most(value: float) -> Target:
    return Target(Bound.AT_MOST, value)


def below(value: float) -> Target:
    return Target(Bound.BELOW, value)


def shown(figure: float | None) -> str:
    """A number with three significant digits."""
    if figure is None:
        return "-"
    if figure == 0 or not math.isfinite(figure):
        return f"{figure:.0f}"
    digits = max(0, 2 - math.floor(math.log10(abs(figure))))
    return f"{figure:,.{digits}f}"


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share lies (nearest rank), as `dueline bench` computes it."""
    return nearest_rank(sorted(values), share)


def middle(values: Sequence[float]) -> float:
    return median(values) if values else 0.0


def table(results: Sequence[RowResult]) -> Table:
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    made.add_column("what", overflow="fold")
    for name in ("measured", "base", "ratio", "target"):
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column("met", no_wrap=True)
    made.add_column("note", overflow="fold")
    for result in results:
        for line in result.lines:
            met = "" if line.met is None else "[green]yes[/]" if line.met else "[yellow]no[/]"
            ratio = "-" if line.ratio is None else f"{line.ratio:.2f} x"
            target = "" if line.target is None else str(line.target) + ("" if line.base is None else " x")
            measured = f"{shown(line.measured)} {line.unit}".strip()
            made.add_row(escape(line.what), measured, shown(line.base), ratio, target, met, escape(line.note))
        if result.wrong:
            made.add_row(result.row, "", "", "", "", "[red]broke[/]", escape(result.wrong.strip().splitlines()[-1]))
    return made


def print_table(results: Sequence[RowResult]) -> None:
    console = Console()
    # Piped into a file or a log, the table must not be cut to 80 columns.
    console = console if console.is_terminal else Console(width=160)
    console.print(table(results))


def rows(results: Sequence[RowResult]) -> list[dict[str, Any]]:
    """The results as they are saved."""
    found: list[dict[str, Any]] = []
    for result in results:
        lines = [{**msgspec.to_builtins(line), "ratio": line.ratio, "met": line.met} for line in result.lines]
        found.append({"row": result.row, "seconds": result.seconds, "wrong": result.wrong, "lines": lines})
    return found


def write(results: Sequence[RowResult], facts: dict[str, Any], form: str, folder: Path = RESULTS) -> Path:
    """Save all results together with the facts about the machine."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.json"
    value = {"form": form, "machine": facts, "rows": rows(results)}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    return path

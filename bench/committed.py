"""The committed results: the last ones that were kept on purpose, one file for each form, row by row.

A run compares itself with them, and warns of each line whose CPU time grew. `--keep` replaces the rows that it ran; the
others stay, so that a long form can run in parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from .report import RESULTS, RowResult, rows

GROWN = 1.05
FACTS = ("time", "commit", "changed_files", "cpu", "cores_used", "load_before", "stolen_share", "fsync_ms", "python")

Row = Mapping[str, Any]


def path(form: str, folder: Path = RESULTS) -> Path:
    return folder / f"committed-{form}.json"


def load(form: str, folder: Path = RESULTS) -> dict[str, Row]:
    """The rows by name; none if nothing was kept."""
    file = path(form, folder)
    if not file.exists():
        return {}
    return {row["row"]: row for row in msgspec.json.decode(file.read_bytes())["rows"]}


def keep(results: Sequence[RowResult], facts: Mapping[str, Any], form: str, folder: Path = RESULTS) -> Path:
    """Replace the rows that worked."""
    kept = load(form, folder)
    machine = {name: facts[name] for name in FACTS if name in facts}
    for row in rows([result for result in results if not result.wrong]):
        kept[row["row"]] = {**row, "machine": machine}
    value = {"form": form, "rows": list(kept.values())}
    path(form, folder).write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    return path(form, folder)


def warnings(results: Sequence[RowResult], form: str, folder: Path = RESULTS) -> list[str]:
    """A sentence for each line whose CPU time grew by more than 5 %."""
    kept = load(form, folder)
    found: list[str] = []
    for row in rows(results):
        before = kept.get(row["row"])
        if before is None:
            continue
        old = dict(_cpu(before))
        for what, figure in _cpu(row):
            if what in old and figure > old[what] * GROWN:
                commit = before["machine"]["commit"][:10]
                found.append(f"{what}: {old[what]:.4g} -> {figure:.4g}, {figure / old[what] - 1:+.0%} since {commit}")
    return found


def _cpu(row: Row) -> Iterator[tuple[str, float]]:
    """Every CPU time of a row, with its name."""
    for line in row["lines"]:
        if line["what"].startswith("CPU"):
            yield line["what"], line["measured"]
        for part, figure in line["details"].get("cpu_us", {}).items():
            if part != "load":
                yield f"{line['what']}: CPU us of the {part}", figure

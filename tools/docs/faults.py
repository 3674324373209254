"""Puts the results of the long fault suite into docs/guarantees.md: `python -m tools.docs.faults`.

The results are docs/data/faults.jsonl, which `make test-faults-long` writes. The table stands between two comments.
"""

from __future__ import annotations

from pathlib import Path

from tools.faults.scenario import Scenario, read

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "guarantees.md"
DATA = DOCS / "data" / "faults.jsonl"
BEGIN = "<!-- made from data/faults.jsonl by `make docs`; do not edit by hand -->\n"
END = "<!-- end of the table -->\n"
_HEAD = """
| scenario | faults | calls | refused | unknown | lost | early | doubled | gap | other times |
|---|---|---|---|---|---|---|---|---|---|
"""


def page(text: str, scenarios: list[Scenario]) -> str:
    """The page with the table of these scenarios. Raises ValueError if it has no place for it."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("the page has no place for the table")
    rows = "".join(map(_row, sorted(scenarios, key=lambda one: one.name)))
    return f"{before}{BEGIN}{_HEAD}{rows}\n{END}{after}"


def _row(scenario: Scenario) -> str:
    cells = (
        scenario.name,
        scenario.faults,
        f"{scenario.operations:,}",
        f"{scenario.refused:,}",
        f"{scenario.unknowns:,}",
        *(scenario.lost, scenario.early, scenario.doubled),
        _time(scenario.gap_ms, scenario.gap_limit_ms),
        _other_times(scenario),
    )
    return f"| {' | '.join(map(str, cells))} |\n"


def _other_times(scenario: Scenario) -> str:
    times = (
        ("last wake-up", scenario.wake_ms, scenario.wake_limit_ms),
        ("slowest refusal", scenario.refusal_ms, scenario.refusal_limit_ms),
    )
    return "; ".join(f"{name} {_time(found, limit)}" for name, found, limit in times if found is not None)


def _time(found_ms: float, limit_ms: float | None) -> str:
    text = f"{found_ms:,.0f} ms"
    return text if limit_ms is None else f"{text} (at most {limit_ms:,.0f})"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(), read(DATA)))

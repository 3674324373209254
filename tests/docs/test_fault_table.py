"""The table of faults in docs/guarantees.md is what the fault suite wrote, and shows nothing broken."""

from __future__ import annotations

import pytest

from tools.docs.faults import BEGIN, DATA, END, PAGE, page
from tools.faults.scenario import Scenario, read


def test_the_table_is_made_from_the_results() -> None:
    assert PAGE.read_text() == page(PAGE.read_text(), read(DATA)), "run `make docs`"


def test_no_result_breaks_a_promise() -> None:
    scenarios = read(DATA)
    assert [scenario.line() for scenario in scenarios if scenario.failures()] == []
    assert any(scenario.control for scenario in scenarios), "without its control the suite shows nothing"


def test_a_row_shows_every_figure_and_what_was_wanted() -> None:
    one = Scenario(
        **{"name": "Paused", "seed": 1, "operations": 12_345, "faults": 10, "unknowns": 3, "refused": 2, "lost": 1},
        **{"gap_ms": 2345.6, "gap_limit_ms": 5000, "wake_ms": 20, "wake_limit_ms": 50},
    )
    found = page(f"# Page\n{BEGIN}old\n{END}rest\n", [one])
    row = "| Paused | 10 | 12,345 | 2 | 3 | 1 | 0 | 0 | 2,346 ms (at most 5,000) | last wake-up 20 ms (at most 50) |\n"
    assert (row in found, "old" in found, found.endswith("rest\n")) == (True, False, True)


def test_a_page_without_a_place_for_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no place"):
        page("# Page\n", [])

"""The results of the benchmark: what is kept, what is warned of, how growth is judged, and the pictures."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import committed, plots
from bench.report import Line, RowResult, at_least, at_most, rows
from bench.rows import ROWS
from bench.rows.growth import Point, falling, growth_line, linear, logarithmic

FACTS = {"time": "2026-01-02T03:04:05Z", "commit": "abcdef0123456789"}


def result(row: str, **figures: float) -> RowResult:
    return RowResult(row, [Line(f"CPU of {name}", figure, "us") for name, figure in figures.items()])


def test_only_a_line_whose_cpu_time_grew_by_more_than_5_percent_is_warned_of(tmp_path: Path) -> None:
    committed.keep([result("cpu", send=20.0, pull=10.0, ack=10.0)], FACTS, "short", tmp_path)
    found = committed.warnings([result("cpu", send=20.9, pull=10.6, life=99.0)], "short", tmp_path)
    assert found == ["CPU of pull: 10 -> 10.6, +6% since abcdef0123"]
    assert committed.warnings([result("cpu", pull=99.0)], "full", tmp_path) == []


def test_the_cpu_of_server_and_store_beside_a_rate_is_compared_too(tmp_path: Path) -> None:
    def lives(us: float) -> RowResult:
        line = Line("lives", 1000, "/s", details={"cpu_us": {"server": us, "store": 5.0, "load": us}})
        return RowResult("throughput", [line])

    committed.keep([lives(10.0)], FACTS, "short", tmp_path)
    assert committed.warnings([lives(12.0)], "short", tmp_path) == [
        "lives: CPU us of the server: 10 -> 12, +20% since abcdef0123"
    ]


def test_rows_that_ran_replace_the_kept_ones_and_a_broken_one_does_not(tmp_path: Path) -> None:
    committed.keep([result("cpu", send=1.0), result("push", call=2.0)], FACTS, "full", tmp_path)
    committed.keep([result("cpu", send=3.0), RowResult("push", wrong="it broke")], FACTS, "full", tmp_path)
    kept = committed.load("full", tmp_path)
    assert {name: row["lines"][0]["measured"] for name, row in kept.items()} == {"cpu": 3.0, "push": 2.0}


def points(*values: tuple[int, float]) -> list[Point]:
    return [Point(n, us / 2, us / 2) for n, us in values]


def test_a_curve_may_grow_with_the_logarithm_and_not_faster() -> None:
    assert logarithmic(points((10, 10), (100, 10), (1_000, 10))) < 1
    assert logarithmic(points((98, 10), (9_998, 20))) == pytest.approx(1.0)
    assert logarithmic(points((98, 10), (998, 10), (9_998, 40))) == pytest.approx(3.0)


def test_the_cost_of_a_byte_may_not_grow() -> None:
    assert linear(points((0, 10), (1_000, 90), (20_000, 30), (40_000, 50))) == pytest.approx(1.0)
    assert linear(points((0, 10), (20_000, 30), (40_000, 90))) == pytest.approx(2.0)


def test_the_cost_of_a_job_in_a_larger_batch_may_not_grow() -> None:
    assert falling(points((1, 30), (10, 15), (100, 12))) == pytest.approx(0.8)
    assert falling(points((1, 30), (10, 15), (100, 30))) == pytest.approx(2.0)


def test_every_kind_of_line_can_be_drawn() -> None:
    lines = [
        Line("met & more", 1.0, "us", None, at_most(2.0)),
        Line("missed", 1.0, "/s", 10.0, at_least(0.5)),
        Line("beside a base", 3.0, "/s", 2.0),
        Line("alone", 3.0, "s"),
    ]
    picture = ElementTree.fromstring(plots.bars(rows([RowResult("cpu", lines)])[0]["lines"]))
    bars = [bar.get("class") for bar in picture.iter("{http://www.w3.org/2000/svg}rect")]
    assert bars == ["good", "bad", "plain"]


def bar_widths(*lines: Line) -> list[float]:
    picture = ElementTree.fromstring(plots.bars(rows([RowResult("dashboard", lines)])[0]["lines"]))
    return [float(bar.get("width", "")) for bar in picture.iter("{http://www.w3.org/2000/svg}rect")]


def test_what_should_not_be_at_all_is_a_line_if_there_is_none_and_the_longest_bar_if_there_is() -> None:
    assert bar_widths(Line("none", 0.0, "", None, at_most(0)), Line("some", 3.0, "", None, at_most(0))) == [2.0, 300.0]


def test_a_curve_that_may_be_linear_is_drawn_straight() -> None:
    line = growth_line("a life by bytes of body", points((10, 10), (100, 100), (1_000, 1_000)), linear)
    picture = ElementTree.fromstring(plots.curves(rows([RowResult("growth", [line])])[0]["lines"]))
    curve = next(picture.iter("{http://www.w3.org/2000/svg}polyline")).get("points", "")
    heights = [float(point.split(",")[1]) for point in curve.split()]
    assert heights[1] == pytest.approx((heights[0] + heights[2]) / 2, abs=0.2)


def test_a_curve_has_a_line_for_the_server_and_one_for_the_store() -> None:
    line = growth_line("a send by topics", points((10, 10), (100, 12)), logarithmic)
    picture = ElementTree.fromstring(plots.curves(rows([RowResult("growth", [line])])[0]["lines"]))
    drawn = [curve.get("class") for curve in picture.iter("{http://www.w3.org/2000/svg}polyline")]
    assert drawn == ["server", "store"]


def test_every_row_is_named_in_the_docs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "benchmarks.md").read_text()
    assert [name for name in ROWS if f"| {name} |" not in page] == []

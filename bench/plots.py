"""One picture for each row of the committed results, in docs/images/.

    python -m bench.plots

A row is drawn as bars: how large each figure is beside its target, or beside its base if there is none. The growth row
is drawn as curves. The full form is drawn where it was kept, otherwise the short one. The pictures have no background
and two sets of colours, so that they can be read on light and dark pages.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from . import committed
from .report import shown

IMAGES = Path(__file__).parents[1] / "docs" / "images"
STYLE = """<style>
text { font: 13px sans-serif; fill: #333 } .small { font-size: 11px; fill: #666 } .end { text-anchor: end }
.good { fill: #2e8b57 } .bad { fill: #d2691e } .plain { fill: #5b7fa6 } .rule { stroke: #888; stroke-width: 1 }
polyline { fill: none; stroke-width: 2 } .server { stroke: #2f6db5 } .store { stroke: #d2691e }
text.server { fill: #2f6db5; stroke: none } text.store { fill: #d2691e; stroke: none }
@media (prefers-color-scheme: dark) { text { fill: #ddd } .small { fill: #aaa } .rule { stroke: #777 } }
</style>"""
LETTER_WIDTH, BAR_WIDTH, TEXT_WIDTH, STEP = 6.6, 300, 220, 26
MOST = 2.0  # times the target; longer bars are cut
CHART_WIDTH, CHART_HEIGHT = 415, 210

Line = dict[str, Any]


def main() -> int:
    rows = {**committed.load("short"), **committed.load("full"), **committed.load("peers")}
    if not rows:
        print("there are no committed results: python -m bench --keep", file=sys.stderr)
        return 1
    for name, row in rows.items():
        lines: list[Line] = row["lines"]
        made = curves(lines) if name == "growth" else bars(lines)
        when = f"{row['machine']['time'][:10]}, commit {row['machine']['commit'][:10]}"
        (IMAGES / f"bench-{name}.svg").write_text(made.replace("WHEN", escape(when)))
    print(f"{len(rows)} pictures written to {IMAGES}")
    return 0


def bars(lines: Sequence[Line]) -> str:
    """A bar for each line; the rule in the middle is its target or its base."""
    parts: list[str] = []
    names = 16 + math.ceil(LETTER_WIDTH * max((len(line["what"]) for line in lines), default=0))
    rule = names + BAR_WIDTH / MOST
    for number, line in enumerate(lines):
        y = 20 + number * STEP
        share, allowed = _share(line)
        parts.append(f'<text class="end" x="{names - 8}" y="{y + 14}">{escape(line["what"])}</text>')
        x = names
        if share is not None:
            width = max(2.0, min(share, MOST) / MOST * BAR_WIDTH)
            kind = {True: "good", False: "bad"}.get(line["met"], "plain")
            parts.append(f'<rect class="{kind}" x="{x}" y="{y + 3}" width="{width:.1f}" height="{STEP - 10}"/>')
            x = names + BAR_WIDTH
        text = f"{shown(line['measured'])} {line['unit']}{allowed}"
        parts.append(f'<text class="small" x="{x + 8}" y="{y + 14}">{escape(text)}</text>')
    bottom = 20 + len(lines) * STEP
    parts.append(f'<line class="rule" x1="{rule}" y1="16" x2="{rule}" y2="{bottom}"/>')
    parts.append(f'<text class="small" x="{rule + 4}" y="12">target, or base</text>')
    return _picture(names + BAR_WIDTH + TEXT_WIDTH, bottom + 24, parts)


def _share(line: Line) -> tuple[float | None, str]:
    """How large the figure is beside its target or base, and the words for it."""
    target, base = line["target"], line["base"]
    if target is not None:
        figure = line["measured"] if base is None else line["ratio"] or 0.0
        times = "" if base is None else f" = {figure:.2f} x"
        share = figure / target["value"] if target["value"] else MOST if figure else 0.0
        return share, f"{times} (target {target['bound']} {shown(target['value'])})"
    if base:
        return line["measured"] / base, f" (base {shown(base)})"
    return None, ""


def curves(lines: Sequence[Line]) -> str:
    """A chart for each line: microseconds of server and store over the number, which grows by its logarithm. Those of a
    curve that may be linear grow by their logarithm, too, so that it is straight."""
    parts: list[str] = []
    for number, line in enumerate(lines):
        left, top = 10 + number % 2 * CHART_WIDTH, 10 + number // 2 * (CHART_HEIGHT + 20)
        parts.append(f'<g transform="translate({left} {top})">{_chart(line)}</g>')
    rows = (len(lines) + 1) // 2
    return _picture(2 * CHART_WIDTH + 20, rows * (CHART_HEIGHT + 20) + 34, parts)


def _chart(line: Line) -> str:
    points: list[list[float]] = line["details"]["points"]
    all_us = [us for point in points for us in point[1:]]
    is_linear = line["details"].get("linear", False)
    least, most = min(all_us) if is_linear else 0.0, max(all_us)
    first, last = math.log(points[0][0]), math.log(points[-1][0])
    bottom, height, left, width = CHART_HEIGHT - 30, CHART_HEIGHT - 80, 60, CHART_WIDTH - 90

    def place(n: float, us: float) -> str:
        share = math.log(us / least) / math.log(most / least) if is_linear else us / most
        return f"{left + (math.log(n) - first) / (last - first) * width:.1f},{bottom - share * height:.1f}"

    title = line["what"].removeprefix("growth of ").partition(",")[0]
    verdict = f"{title}: {shown(line['measured'])} x (at most {shown(line['target']['value'])})"
    made = [f'<text x="{left - 50}" y="12">{escape(verdict)}</text>']
    made.append(f'<line class="rule" x1="{left}" y1="{bottom}" x2="{left + width}" y2="{bottom}"/>')
    made.append(f'<text class="small end" x="{left - 6}" y="{bottom - height + 4}">{shown(most)} us</text>')
    made.append(f'<text class="small end" x="{left - 6}" y="{bottom + 4}">{shown(least)}</text>')
    for n, *_ in points:
        x = place(n, most).split(",")[0]
        made.append(f'<text class="small" text-anchor="middle" x="{x}" y="{bottom + 16}">{_number(n)}</text>')
    for column, kind in enumerate(("server", "store"), 1):
        made.append(f'<polyline class="{kind}" points="{" ".join(place(p[0], p[column]) for p in points)}"/>')
        made.append(f'<text class="small {kind}" x="{left + 50 * (column - 1)}" y="30">{kind}</text>')
    return "".join(made)


def _number(n: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if n >= size:
            return f"{n / size:.3g}{letter}"
    return f"{n:.0f}"


def _picture(width: int, height: int, parts: Sequence[str]) -> str:
    when = f'<text class="small" x="8" y="{height - 6}">WHEN</text>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    return "\n".join([head, STYLE, *parts, when, "</svg>", ""])


if __name__ == "__main__":
    sys.exit(main())

"""Run the rows, print one table, and save all results.

Exit status: 0 whatever the results are, 1 if a row did not work or a job was early, 2 for an unknown row.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Sequence

import msgspec

from . import committed, machine, report
from .broken import Broken
from .report import RowResult
from .rows import COMPARING, ROWS, Row
from .servers import PRODUCT, folder
from .sizes import FORMS, Sizes


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure the targets; see docs/benchmarks.md.")
    parser.add_argument("--full", action="store_true", help="the sizes of the targets instead of the short form")
    parser.add_argument("--tiny", action="store_true", help="the smallest sizes, to see whether the rows work")
    parser.add_argument("--only", default="", metavar="ROW,...", help=f"some of: {', '.join(ROWS)}")
    parser.add_argument(
        "--product",
        action="append",
        default=[],
        metavar="CHECKOUT",
        help=f"run the server of another checkout; given twice, compare them in turns ({', '.join(sorted(COMPARING))})",
    )
    parser.add_argument("--keep", action="store_true", help="keep the results of these rows as the committed ones")
    asked = parser.parse_args()
    names: list[str] = [name for name in str(asked.only).split(",") if name] or list(ROWS)
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        parser.error(f"no such row: {', '.join(unknown)}; there are {', '.join(ROWS)}")
    form = "full" if asked.full else "tiny" if asked.tiny else "short"
    sizes = FORMS[form]
    products: list[str] = asked.product
    if len(products) > 1 and set(names) - COMPARING:
        parser.error(f"only {', '.join(sorted(COMPARING))} can compare products")
    if products:
        os.environ[PRODUCT] = products[0]
        sizes = msgspec.structs.replace(sizes, products=tuple(products))
    facts = machine.facts(machine.share_two_cores())
    facts["products"] = {product: machine.commit(product) for product in products}
    with folder() as place:
        facts["fsync_ms"] = machine.fsync_ms(place)
    print(
        f"{facts['cpu']}, cores {facts['cores_used']} of {facts['cores_of_machine']}, load {facts['load_before']:.1f}, "
        f"fsync {facts['fsync_ms']:.2f} ms, Python {facts['python']}, commit {facts['commit'][:10]}",
        flush=True,
    )
    stolen = machine.Stolen()
    results: list[RowResult] = []
    warnings: list[str] = []
    for name in names:
        result = _run(name, ROWS[name], sizes)
        results.append(result)
        facts["stolen_share"] = stolen.share()
        if not products:
            warnings += committed.warnings([result], form)
            if asked.keep:  # row by row, so that a long run that is cut off keeps what it has measured
                committed.keep([result], facts, form)
    report.print_table(results)
    print(f"the host of this machine kept {facts['stolen_share']:.1%} of its time for others")
    print(f"written to {report.write(results, facts, form)}")
    for warning in warnings:
        print(f"warning: {warning}")
    if asked.keep and not products:
        print(f"kept in {committed.path(form)}")
    _explain(results, facts["set_loader"])
    return 1 if any(result.wrong for result in results) else 0


def _run(name: str, row: Row, sizes: Sizes) -> RowResult:
    """Run one row. If it fails, the table shows why, and the other rows still run."""
    print(f"{name} ...", end=" ", flush=True)
    begun_s = time.monotonic()
    lines: Sequence[report.Line] = ()
    wrong = ""
    try:
        lines = row(sizes)
    except Broken as error:
        wrong = str(error)
    except Exception:
        wrong = traceback.format_exc(limit=-3)
    seconds = time.monotonic() - begun_s
    print(f"{'broke' if wrong else 'done'} in {seconds:.0f} s", flush=True)
    if wrong:
        print(wrong, file=sys.stderr, flush=True)
    return RowResult(name, lines, seconds, wrong)


def _explain(results: Sequence[RowResult], set_loader: str) -> None:
    if set_loader == "own" and any(result.row == "throughput" for result in results):
        print(
            "redis-benchmark is not on the PATH (Debian: apt-get install redis-tools): SET was measured with our own "
            "loader, which is slower, so the ratios to it read a little high."
        )


if __name__ == "__main__":
    sys.exit(main())

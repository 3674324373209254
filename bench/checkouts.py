"""The command of a program that counts the instructions of several checkouts: its options and its table."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Mapping

import msgspec

Counts = Mapping[str, Mapping[str, int]]
"""By checkout, and by what was counted."""


class Row(msgspec.Struct, frozen=True):
    """One line of the table. The ratio is to the first checkout."""

    what: str
    product: str
    instructions: int
    ratio: float


def parser(module: str, doc: str | None) -> argparse.ArgumentParser:
    """The options that all these programs have. `doc`: of the module."""
    made = argparse.ArgumentParser(prog=f"python -m {module}", description=(doc or "").splitlines()[0])
    made.add_argument("--product", action="append", default=[], help="a checkout; may be given several times")
    made.add_argument("--json", action="store_true", help="print the rows as JSON")
    return made


def has_valgrind() -> bool:
    """Whether valgrind is there. Otherwise this says what to install."""
    if shutil.which("valgrind") is not None and shutil.which("callgrind_control") is not None:
        return True
    print("valgrind is not on the PATH (Debian: apt-get install valgrind)", file=sys.stderr)
    return False


def show(counts: Counts, of: str, as_json: bool) -> None:
    """Print the table. `of`: whose instructions these are."""
    first = next(iter(counts.values()))
    rows = [
        Row(what, product, one[what], round(one[what] / first[what], 3))
        for what in first
        for product, one in counts.items()
    ]
    if as_json:
        print(json.dumps([msgspec.to_builtins(row) for row in rows], indent=2))
        return
    print(f"{'':<28}{'instructions':>13}{'ratio':>8}   (of {of})")
    for row in rows:
        print(f"{row.what:<28}{row.instructions:>13,}{row.ratio:>8.3f}   {row.product}")

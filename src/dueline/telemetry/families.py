"""Metrics as plain values: what one process counted, and how several processes' counts become one. No I/O.

    Family  name, kind, help, labels, how to merge;  samples: label values -> number, or counts + sum for a histogram

Each process makes a list of families (`gather`); the process that is scraped merges the lists and prints them once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Merge(StrEnum):
    """How processes' values of one series become one."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"  # of a time of start


class Buckets(msgspec.Struct):
    """Counts per bound (not cumulative), a last one for what is above all, and the sum of what was observed."""

    counts: list[int]
    total: float = 0.0


class Family(msgspec.Struct):
    """One metric. `numbers` or `buckets` is filled, by kind."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    merge: Merge = Merge.SUM
    bounds: tuple[float, ...] = ()
    numbers: dict[tuple[str, ...], float] = {}
    buckets: dict[tuple[str, ...], Buckets] = {}


class Histogram:
    """Observations on the hot path: one bisect and three additions."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


def counter(name: str, help: str, labels: Sequence[str], numbers: dict[tuple[str, ...], float]) -> Family:
    return Family(name, Kind.COUNTER, help, tuple(labels), numbers=numbers)


def gauge(
    name: str, help: str, numbers: dict[tuple[str, ...], float], labels: Sequence[str] = (), merge: Merge = Merge.SUM
) -> Family:
    return Family(name, Kind.GAUGE, help, tuple(labels), merge, numbers=numbers)


def merged(snapshots: Iterable[Sequence[Family]]) -> list[Family]:
    """One list of families from several processes' lists. The inputs stay as they are."""
    found: dict[str, Family] = {}
    for snapshot in snapshots:
        for family in snapshot:
            into = found.get(family.name)
            if into is None:
                into = found[family.name] = msgspec.structs.replace(family, numbers={}, buckets={})
            into.bounds = into.bounds or family.bounds  # a process that observed nothing yet knows none
            for labels, value in family.numbers.items():
                into.numbers[labels] = _join(family.merge, into.numbers.get(labels), value)
            for labels, buckets in family.buckets.items():
                old = into.buckets.get(labels)
                if old is None:
                    into.buckets[labels] = Buckets(list(buckets.counts), buckets.total)
                else:
                    old.counts = [a + b for a, b in zip(old.counts, buckets.counts, strict=True)]
                    old.total += buckets.total
    return list(found.values())


def _join(how: Merge, old: float | None, new: float) -> float:
    if old is None:
        return new
    if how is Merge.SUM:
        return old + new
    return max(old, new) if how is Merge.MAX else min(old, new)

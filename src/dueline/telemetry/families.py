"""Metrics as plain values: what one process counted, and how the counts of several processes are merged. No I/O.

    Family  name, kind, help, labels, how to merge;  samples: label values -> number, or counts + sum for a histogram

Each process builds a list of families (`gather`). The process that is scraped merges all lists into one page.
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
    """How the values of one series are merged over processes."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"  # for a start time


class Buckets(msgspec.Struct):
    """Counts per bound (not cumulative), one more for values above all bounds, and the sum of all observations."""

    counts: list[int]
    total: float = 0.0


class Family(msgspec.Struct):
    """One metric. Its kind decides whether `numbers` or `buckets` is filled."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    merge: Merge = Merge.SUM
    bounds: tuple[float, ...] = ()
    numbers: dict[tuple[str, ...], float] = {}
    buckets: dict[tuple[str, ...], Buckets] = {}


class Histogram:
    """A histogram for the hot path: an observation costs one bisect and three additions."""

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
    """Merge the lists of several processes into one. The inputs are not changed."""
    found: dict[str, Family] = {}
    for snapshot in snapshots:
        for family in snapshot:
            into = found.get(family.name)
            if into is None:
                into = found[family.name] = msgspec.structs.replace(family, numbers={}, buckets={})
            into.bounds = into.bounds or family.bounds  # a process without observations has no bounds
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

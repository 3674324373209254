"""What a metric is, and its samples: plain values that are merged over processes. No I/O.

    Metric        name, kind, help, labels: declared once, in `table` or by a dialect
    MetricGroup   metrics that belong together: one section of docs/metrics.md
    Samples       the values of one metric: label values -> number, or -> buckets for a histogram
    Histogram     counts the observations of one series on the hot path

Each process lists its samples. The process that is scraped merges the lists of all processes into one page.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

Labels = tuple[str, ...]


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Merge(StrEnum):
    """How the values of one series are merged over processes."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"


class Metric(msgspec.Struct, frozen=True):
    """One metric. `bounds`: the upper bounds of a histogram's buckets. `when`: the condition under which a scrape shows
    it; empty: always."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    merge: Merge = Merge.SUM
    bounds: tuple[float, ...] = ()
    when: str = ""

    def value(self, number: float) -> Samples:
        """The only sample of a metric without labels."""
        return Samples(self, {(): number})

    def samples(self, numbers: Mapping[tuple[str, ...], float]) -> Samples:
        return Samples(self, dict(numbers))

    def histograms(self, histograms: Mapping[tuple[str, ...], Histogram]) -> Samples:
        return Samples(
            self, buckets={labels: Buckets(list(one.counts), one.total) for labels, one in histograms.items()}
        )


class MetricGroup:
    """Its methods declare metrics. `about`: what the page says about all of them."""

    def __init__(self, title: str, about: str = "") -> None:
        self.title = title
        self.about = about
        self.metrics: list[Metric] = []

    def counter(
        self, name: str, help: str, labels: Sequence[str] = (), merge: Merge = Merge.SUM, when: str = ""
    ) -> Metric:
        return self._declare(Metric(name, Kind.COUNTER, help, tuple(labels), merge, when=when))

    def gauge(
        self, name: str, help: str, labels: Sequence[str] = (), merge: Merge = Merge.SUM, when: str = ""
    ) -> Metric:
        return self._declare(Metric(name, Kind.GAUGE, help, tuple(labels), merge, when=when))

    def histogram(self, name: str, help: str, labels: Sequence[str], bounds: Sequence[float]) -> Metric:
        return self._declare(Metric(name, Kind.HISTOGRAM, help, tuple(labels), bounds=tuple(bounds)))

    def _declare(self, metric: Metric) -> Metric:
        self.metrics.append(metric)
        return metric


class Buckets(msgspec.Struct):
    """Counts per bound (not cumulative), one more for values above all bounds, and the sum of all observations."""

    counts: list[int]
    total: float = 0.0


class Samples(msgspec.Struct):
    """The values of one metric. `buckets` is filled for a histogram, `numbers` for the others."""

    metric: Metric
    numbers: dict[tuple[str, ...], float] = {}
    buckets: dict[tuple[str, ...], Buckets] = {}


class Histogram:
    """An observation costs one bisect and three additions."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, metric: Metric) -> None:
        self.bounds = metric.bounds
        self.counts = [0] * (len(metric.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def add(self, other: Histogram) -> None:
        """Add the observations of another one of the same metric."""
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.total += other.total


def merge(snapshots: Iterable[Iterable[Samples]]) -> list[Samples]:
    """Merge the samples of several processes. The inputs are not changed."""
    found: dict[str, Samples] = {}
    for snapshot in snapshots:
        for samples in snapshot:
            _add(found.setdefault(samples.metric.name, Samples(samples.metric)), samples, lambda labels: labels)
    return list(found.values())


def renamed(samples: Samples, rename: Callable[[Labels], Labels]) -> Samples:
    """The samples under other label values. Those that get the same ones are merged."""
    into = Samples(samples.metric)
    _add(into, samples, rename)
    return into


def _add(into: Samples, samples: Samples, rename: Callable[[Labels], Labels]) -> None:
    for labels, value in samples.numbers.items():
        name = rename(labels)
        into.numbers[name] = _join(samples.metric.merge, into.numbers.get(name), value)
    for labels, buckets in samples.buckets.items():
        old = into.buckets.setdefault(rename(labels), Buckets([0] * len(buckets.counts)))
        old.counts = [a + b for a, b in zip(old.counts, buckets.counts, strict=True)]
        old.total += buckets.total


def _join(how: Merge, old: float | None, new: float) -> float:
    if old is None:
        return new
    if how is Merge.SUM:
        return old + new
    return max(old, new) if how is Merge.MAX else min(old, new)

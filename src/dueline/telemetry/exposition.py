"""Metric families in the formats that Prometheus reads, written by its own library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from .families import Buckets, Family, Kind


class _Families(Collector):
    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return _metrics(self._families)


def exposed(families: Sequence[Family], accept: str) -> tuple[bytes, str]:
    """The page and its content type, in the format that the scraper accepts."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def _metrics(families: Sequence[Family]) -> Iterator[Metric]:
    for family in families:
        if family.kind is Kind.COUNTER:
            metric = CounterMetricFamily(family.name, family.help, labels=family.labels)
            for labels, value in family.numbers.items():
                metric.add_metric(labels, value)
        elif family.kind is Kind.GAUGE:
            metric = GaugeMetricFamily(family.name, family.help, labels=family.labels)
            for labels, value in family.numbers.items():
                metric.add_metric(labels, value)
        else:
            metric = HistogramMetricFamily(family.name, family.help, labels=family.labels)
            for labels, buckets in family.buckets.items():
                metric.add_metric(labels, list(_cumulative(family.bounds, buckets)), buckets.total)
        yield metric


def _cumulative(bounds: Sequence[float], buckets: Buckets) -> Iterator[tuple[str, float]]:
    seen = 0
    for bound, count in zip(bounds, buckets.counts, strict=False):
        seen += count
        yield f"{float(bound)}", seen
    yield "+Inf", seen + buckets.counts[-1]

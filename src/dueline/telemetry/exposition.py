"""Samples in the formats that Prometheus reads. Its own library chooses the format, and writes all but plain text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from ..metrics.metric import Buckets, Kind, Samples
from ..metrics.plain_text import plain_text


class SampleCollector(Collector):
    """Samples in the form that prometheus-client reads."""

    def __init__(self, samples: Sequence[Samples]) -> None:
        self._samples = samples

    def collect(self) -> Iterable[Metric]:
        return map(_family, self._samples)


def exposition(samples: Sequence[Samples], accept: str) -> tuple[bytes, str]:
    """The page and its content type, in the format that the scraper accepts."""
    encode, content_type = choose_encoder(accept)
    if content_type.startswith("text/plain"):
        return plain_text(samples), content_type
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SampleCollector(samples))
    return encode(registry), content_type


def _family(samples: Samples) -> Metric:
    metric = samples.metric
    if metric.kind is Kind.HISTOGRAM:
        family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, buckets in samples.buckets.items():
            family.add_metric(labels, list(_cumulative(metric.bounds, buckets)), buckets.total)
        return family
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples.numbers.items():
        family.add_metric(labels, value)
    return family


def _cumulative(bounds: Sequence[float], buckets: Buckets) -> Iterator[tuple[str, float]]:
    seen = 0
    for bound, count in zip(bounds, buckets.counts, strict=False):
        seen += count
        yield f"{float(bound)}", seen
    yield "+Inf", seen + buckets.counts[-1]

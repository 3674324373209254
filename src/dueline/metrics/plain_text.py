"""Samples in Prometheus's text format, without its library: a worker has only the client's packages. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from .metric import Samples

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def plain_text(page: Sequence[Samples]) -> bytes:
    """The page."""
    return "".join(f"{line}\n" for samples in page for line in _lines(samples)).encode()


def _lines(samples: Samples) -> Iterator[str]:
    metric = samples.metric
    name = metric.name
    yield f"# HELP {name} {metric.help}"
    yield f"# TYPE {name} {metric.kind}"
    for values, number in samples.numbers.items():
        yield f"{name}{_labels(metric.labels, values)} {float(number)}"
    for values, buckets in samples.buckets.items():
        for bound, count in zip((*map(float, metric.bounds), "+Inf"), accumulate(buckets.counts), strict=True):
            yield f"{name}_bucket{_labels((*metric.labels, 'le'), (*values, str(bound)))} {float(count)}"
        yield f"{name}_count{_labels(metric.labels, values)} {float(sum(buckets.counts))}"
        yield f"{name}_sum{_labels(metric.labels, values)} {buckets.total}"


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    named = sorted(zip(names, values, strict=True))
    pairs = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in named)
    return f"{{{pairs}}}" if pairs else ""

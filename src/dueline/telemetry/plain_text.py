"""Families in Prometheus's text format, without its library: a worker has only the client's packages. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from .families import Family, Kind

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def plain_text(families: Sequence[Family]) -> bytes:
    """The page."""
    return "".join(f"{line}\n" for family in families for line in _lines(family)).encode()


def _lines(family: Family) -> Iterator[str]:
    name = f"{family.name}_total" if family.kind is Kind.COUNTER else family.name
    yield f"# HELP {name} {family.help}"
    yield f"# TYPE {name} {family.kind}"
    for values, number in family.numbers.items():
        yield f"{name}{_labels(family.labels, values)} {float(number)}"
    for values, buckets in family.buckets.items():
        for bound, count in zip((*map(float, family.bounds), "+Inf"), accumulate(buckets.counts), strict=True):
            yield f"{name}_bucket{_labels((*family.labels, 'le'), (*values, str(bound)))} {float(count)}"
        yield f"{name}_count{_labels(family.labels, values)} {float(sum(buckets.counts))}"
        yield f"{name}_sum{_labels(family.labels, values)} {buckets.total}"


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    named = sorted(zip(names, values, strict=True))
    pairs = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in named)
    return f"{{{pairs}}}" if pairs else ""

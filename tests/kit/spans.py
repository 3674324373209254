"""Spans of a test. OpenTelemetry has one tracer provider per process, for good: it samples only while a test asks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import SpanContext


class Switch(Sampler):
    on = False

    def should_sample(
        self,
        parent_context: Any,
        trace_id: int,
        name: str,
        kind: Any = None,
        attributes: Any = None,
        *_: Any,
        **__: Any,
    ) -> SamplingResult:
        return SamplingResult(Decision.RECORD_AND_SAMPLE if self.on else Decision.DROP, attributes)

    def get_description(self) -> str:
        return "switch"


class Spans:
    """What was recorded."""

    def __init__(self) -> None:
        self.switch = Switch()
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=self.switch)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        trace.set_tracer_provider(provider)

    @property
    def all(self) -> Sequence[ReadableSpan]:
        return self.exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.named(name)
        return span


_spans = cache(Spans)


@contextmanager
def recorded() -> Iterator[Spans]:
    """The spans from here on."""
    spans = _spans()
    spans.exporter.clear()
    spans.switch.on = True
    try:
        yield spans
    finally:
        spans.switch.on = False


def header(span: ReadableSpan) -> str:
    """The `traceparent` that names a span."""
    return _header(span.context)


def linked(span: ReadableSpan) -> list[str]:
    """The `traceparent` of every span that it links to."""
    return [_header(one.context) for one in span.links]


def _header(context: SpanContext) -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def about(span: ReadableSpan) -> dict[str, object]:
    """The attributes without those that are always the same."""
    attributes = dict(span.attributes or {})
    assert attributes.pop("messaging.system") == "dueline"
    return {name.removeprefix("messaging."): value for name, value in attributes.items()}

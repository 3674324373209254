"""OpenTelemetry spans of the clients and of the worker, by its API only. No I/O.

    send orders       PRODUCER    one `send` or one whole `send_many`; its context travels in the jobs' headers
    receive orders    CLIENT      a pull that brought jobs, or failed; linked to the sends of its jobs
    process orders    CONSUMER    one run of a job's handlers; a trace of its own, linked to the job's send
    ack orders, release orders    CLIENT

The sender's context is kept with the job as W3C `traceparent` and `tracestate`, and only if its span is recorded. A
consumer links to it instead of continuing the trace, because a delay of days must not be one trace.

A program that traces has loaded OpenTelemetry before its first call, so this module never does: without it, a call
costs one look into `sys.modules`. Loaded does not mean used, because redis-py imports it wherever it is installed. So
calls have spans only if OpenTelemetry has a tracer provider, which may also be set later. Asking OpenTelemetry for its
provider is slow, because it reads the environment each time. So it is asked only once a class of providers is loaded.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from .._version import __version__
from ..api.answers import LeasedJob, LeasedJobs, Outcomes, SentItem
from ..api.requests import NewJob
from .calls import Answer, Call
from .errors import DuelineApiError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, Tracer

T = TypeVar("T")

HEADERS = ("traceparent", "tracestate")

MAX_HEADERS, MAX_HEADERS_BYTES = 32, 8 * 1024  # of a job
MAX_CONTEXT_BYTES = 1024

_LOADED = "opentelemetry.trace"
_SETTLING = frozenset({"ack", "release"})
_PULLING = frozenset({"pull", "pull_topics"})


class _Otel:
    """What this module uses of OpenTelemetry."""

    def __init__(self) -> None:
        from opentelemetry import context, trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self.trace = trace
        self.context = context
        self.tracer: Tracer = trace.get_tracer("dueline", __version__)
        self.propagator = TraceContextTextMapPropagator()
        self._own_providers = sum(one.__module__ == trace.__name__ for one in trace.TracerProvider.__subclasses__())

    def has_provider(self) -> bool:
        trace = self.trace
        if len(trace.TracerProvider.__subclasses__()) == self._own_providers:
            return False
        return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)

    def span(
        self,
        operation: str,
        type: str,
        kind: SpanKind,
        topic: str | None,
        parent: Context | None = None,
        links: Sequence[Link] = (),
        start_ns: int | None = None,
    ) -> Span:
        """A started span; it is not the current one. `topic` None: several."""
        about = {"messaging.system": "dueline", "messaging.operation.name": operation, "messaging.operation.type": type}
        if topic is not None:
            about["messaging.destination.name"] = topic
        name = operation if topic is None else f"{operation} {topic}"
        return self.tracer.start_span(name, parent, kind, about, links, start_ns)

    def links(self, jobs: Sequence[LeasedJob]) -> list[Link]:
        """Links to the senders of these jobs."""
        found: list[Link] = []
        for job in jobs:
            if not job.headers:
                continue
            headers = {name.lower(): value for name, value in job.headers.items()}
            sender = self.trace.get_current_span(self.entered(headers)).get_span_context()
            if sender.is_valid:
                found.append(self.trace.Link(sender))
        return found

    def carrier(self, span: Span) -> dict[str, str]:
        """The headers that name the span; none if it is not recorded."""
        headers: dict[str, str] = {}
        if span.is_recording():
            self.propagator.inject(headers, self.trace.set_span_in_context(span))
        return headers

    def entered(self, carrier: Mapping[str, str]) -> Context:
        """A context inside the span that a carrier names."""
        return self.propagator.extract(carrier, self.context.Context())

    def fail(self, span: Span, kind: str, text: str | None = None) -> None:
        span.set_attribute("error.type", kind)
        span.set_status(self.trace.StatusCode.ERROR, text)


_otel = cache(_Otel)


def loaded() -> bool:
    """Whether this program has loaded OpenTelemetry."""
    return _LOADED in sys.modules


def _records() -> bool:
    """Whether spans go anywhere: OpenTelemetry is loaded and has a tracer provider."""
    return _LOADED in sys.modules and _otel().has_provider()


def with_headers(job: NewJob, carrier: Mapping[str, str]) -> NewJob:
    """The job with the context of its sender, unless its headers have one already."""
    own = job.headers or {}
    if not carrier or any(name.lower() == HEADERS[0] for name in own) or not _has_room(own):
        return job
    return msgspec.structs.replace(job, headers={**own, **carrier})


# --- calls of a client -----------------------------------------------------------------------------------------------


def span_of(call: Call[T]) -> CallSpan[T] | None:
    """The span of a call. None: it has none, or nobody traces."""
    if not _records():
        return None
    operation = call.operation
    if operation in _PULLING:
        return _Receive(call)
    if operation in _SETTLING:
        return _Settle(call)
    return _Send(call) if operation == "send" and isinstance(call.request, NewJob) else None


class CallSpan(Generic[T]):
    """The span of a call. On entry it gives the call to execute; `answered` takes the answer."""

    def __init__(self, call: Call[T]) -> None:
        self._otel = _otel()
        self._call = call
        self._span: Span | None = None

    def __enter__(self) -> Call[T]:
        return self._call

    def answered(self, answer: Answer[T]) -> Answer[T]:
        return answer

    def drop(self) -> None:
        """The call was not made after all: record nothing."""
        self._span = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._span is not None:
            if error is not None:
                self._otel.fail(self._span, *_named(error))
            self._span.end()


class _Send(CallSpan[T]):
    def __enter__(self) -> Call[T]:
        otel, call = self._otel, self._call
        self._span = span = otel.span("send", "send", otel.trace.SpanKind.PRODUCER, call.params[0])
        job: NewJob = call.request
        if job.id is not None:
            span.set_attribute("messaging.message.id", job.id)
        return msgspec.structs.replace(call, request=with_headers(job, otel.carrier(span)))


class _Settle(CallSpan[T]):
    def __enter__(self) -> Call[T]:
        otel, call = self._otel, self._call
        self._span = otel.span(call.operation, "settle", otel.trace.SpanKind.CLIENT, call.params[0])
        return call

    def answered(self, answer: Answer[T]) -> Answer[T]:
        if self._span is not None and isinstance(answer.value, Outcomes):
            _count(self._span, [one.id for one in answer.value.results])
            _refused(self._otel, self._span, answer.value.results)
        return answer


class _Receive(CallSpan[T]):
    """Made afterwards, because a pull that brings nothing has no span, and because links are given at the start."""

    def __enter__(self) -> Call[T]:
        self._begin_ns = time.time_ns()
        return self._call

    def answered(self, answer: Answer[T]) -> Answer[T]:
        if isinstance(answer.value, LeasedJobs) and answer.value.jobs:
            jobs = answer.value.jobs
            topics = {job.topic for job in jobs}
            self._span = self._started(topics.pop() if len(topics) == 1 else None, self._otel.links(jobs))
            _count(self._span, [job.id for job in jobs])
        return answer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, DuelineApiError):
            self._span = self._started(self._call.params[0] if self._call.params else None, [])
        super().__exit__(kind, error, trace)

    def _started(self, topic: str | None, links: list[Link]) -> Span:
        kind = self._otel.trace.SpanKind.CLIENT
        return self._otel.span("receive", "receive", kind, topic, links=links, start_ns=self._begin_ns)


class ManySends:
    """One span for all requests of a `send_many`. `carry` gives each job its context. `results`: of all requests."""

    def __init__(self, topic: str, results: list[SentItem]) -> None:
        self._topic = topic
        self._results = results
        self._span: Span | None = None

    def __enter__(self) -> Callable[[NewJob], NewJob]:
        if not _records():
            return _as_it_is
        otel = _otel()
        self._span = otel.span("send", "send", otel.trace.SpanKind.PRODUCER, self._topic)
        carrier = otel.carrier(self._span)
        return lambda job: with_headers(job, carrier)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._span is None:
            return
        self._span.set_attribute("messaging.batch.message_count", len(self._results))
        if error is not None:
            _otel().fail(self._span, *_named(error))
        else:
            _refused(_otel(), self._span, self._results)
        self._span.end()


# --- a worker --------------------------------------------------------------------------------------------------------


class HandlerSpan:
    """The span of one run of a job's handlers. It is the current one in the block; `ended` may end it before that."""

    def __init__(self, job: LeasedJob) -> None:
        self._job = job
        self._span: Span | None = None
        self._before: Any = None

    def __enter__(self) -> HandlerSpan:
        if not loaded():
            return self
        otel, job = _otel(), self._job
        root, kind = otel.context.Context(), otel.trace.SpanKind.CONSUMER
        self._span = span = otel.span("process", "process", kind, job.topic, root, otel.links([job]))
        span.set_attribute("messaging.message.id", job.id)
        self._before = otel.context.attach(otel.trace.set_span_in_context(span))
        return self

    def ended(self, failed: str | None = None, text: str | None = None) -> None:
        """The handlers have ended; `failed`: in which way, if they did not succeed."""
        if self._span is not None:
            if failed is not None:
                _otel().fail(self._span, failed, text)
            self._span.end()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._span is not None:
            _otel().context.detach(self._before)
            if self._span.is_recording():
                self.ended(None if error is None else _named(error)[0])


def current_carrier() -> dict[str, str]:
    """The headers that name the current span, for another process."""
    if not loaded():
        return {}
    otel = _otel()
    return otel.carrier(otel.trace.get_current_span())


def inside(carrier: Mapping[str, str]) -> AbstractContextManager[Any]:
    """A block inside the span of another process."""
    return _RemoteContext(carrier) if carrier and loaded() else nullcontext()


def trace_id() -> str | None:
    """The id of the current trace, for a log line."""
    if not loaded():
        return None
    here = _otel().trace.get_current_span().get_span_context()
    return f"{here.trace_id:032x}" if here.is_valid else None


class _RemoteContext:
    def __init__(self, carrier: Mapping[str, str]) -> None:
        self._carrier = carrier
        self._before: Any = None

    def __enter__(self) -> None:
        self._before = _otel().context.attach(_otel().entered(self._carrier))

    def __exit__(self, *_: object) -> None:
        _otel().context.detach(self._before)


def _has_room(headers: Mapping[str, str]) -> bool:
    """Whether two headers more stay within a server's default limits: a send must not be refused for being traced."""
    size = sum(len(name) + len(value.encode()) for name, value in headers.items())
    return len(headers) + len(HEADERS) <= MAX_HEADERS and size + MAX_CONTEXT_BYTES <= MAX_HEADERS_BYTES


def _as_it_is(job: NewJob) -> NewJob:
    return job


def _named(error: BaseException) -> tuple[str, str | None]:
    """The kind of an error (there are few kinds), and its text."""
    if isinstance(error, DuelineApiError):
        return error.code, error.message
    return type(error).__qualname__, None


def _count(span: Span, ids: Sequence[str]) -> None:
    span.set_attribute("messaging.batch.message_count", len(ids))
    if len(ids) == 1:
        span.set_attribute("messaging.message.id", ids[0])


def _refused(otel: _Otel, span: Span, results: Sequence[Any]) -> None:
    """The span failed if a job was refused."""
    error = next((one.error for one in results if one.error is not None), None)
    if error is not None:
        otel.fail(span, error.code, error.message)

"""Events over HTTP: one page of JSON per call, or one answer that does not end (server-sent events).

    id: 1763430000000-0-2                        the position after this event; Last-Event-ID continues there
    event: job                                   hello (first), job, topic, gap
    data: {"at_ms":1763430000000,"what":"sent","topic":"orders",...}

A comment and the current position are sent every BEAT_S, so that proxies keep the connection open and a listener that
filters can continue near the end of the stream.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec

from ...api import answers as a
from ...api import live_requests as lr
from ...api.reply import Reply
from ...engine.engine import Engine
from ...engine.errors import DuelineError
from ...engine.event import Event
from ...engine.event_feeds import Batch, EventMessage, Feed, Gap
from ...engine.job import Reason, State
from ..http import Response
from .wire import Caller

BEAT_S = 15.0
RETRY_S = 1.0  # while the store does not answer
STREAM_HEADERS = (("cache-control", "no-store"), ("x-accel-buffering", "no"))

_to_json = msgspec.json.Encoder().encode
_to_json_lines = msgspec.json.Encoder().encode_lines


class EventHandlers:
    """The handlers of the group "Events"."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def events(self, caller: Caller, request: lr.ListEvents) -> Reply:
        feed = await self._engine.feeds.open(caller.namespace, request.topic or (), request.after)
        try:
            if request.after is None:
                messages = [a.Event(event="hello", cursor=feed.id, at_ms=self._engine.store.now_ms())]
            else:
                wait_ms = min(request.wait_ms or 0, self._engine.limits.max_wait_ms)
                messages = [event_view(one) for one in await feed.next(wait_ms / 1000)]
            return Reply(a.EventPage(events=tuple(messages), next_cursor=feed.id))
        finally:
            feed.close()


class ServerSentEvents:
    """An answer that does not end (`http.Stream`)."""

    def __init__(self, engine: Engine, feed: Feed) -> None:
        self._engine = engine
        self._feed = feed

    def close(self) -> None:
        self._feed.close()

    async def pieces(self) -> AsyncGenerator[bytes]:
        feed = self._feed
        try:
            yield _written(b"hello", feed.id.encode(), _to_json({"at_ms": self._engine.store.now_ms()}))
            while not feed.ended:
                try:
                    batches = await feed.batches(BEAT_S)
                except DuelineError:
                    await self._engine.idle(int(RETRY_S * 1000))
                    continue
                if batches:
                    yield b"".join([batch.written(_batch) for batch in batches])
                elif not feed.ended:
                    yield b":\nid: %b\n\n" % feed.id.encode()
        except DuelineError:
            return  # the server stops


async def begin_events(engine: Engine, caller: Caller, request: lr.ListEvents, last_id: str | None) -> Response:
    """Raises a DuelineError if the stream cannot begin."""
    feed = await engine.feeds.open(caller.namespace, request.topic or (), request.after or last_id)
    stream = ServerSentEvents(engine, feed)
    return Response(200, content_type="text/event-stream", headers=STREAM_HEADERS, stream=stream)


def event_view(message: EventMessage) -> a.Event:
    """A message as a client gets it."""
    what = message.what
    if isinstance(what, Gap):
        return a.Event(event="gap", cursor=message.id or None, reason=what.reason)
    return a.Event(
        event="topic" if what.id is None else "job",
        cursor=message.id,
        at_ms=what.at_ms,
        what=what.what,
        topic=what.topic,
        id=what.id,
        attempt=what.attempt,
        state=what.state,
        reason=what.reason,
        error=what.error,
        by=what.by,
    )


class _Topic(msgspec.Struct, frozen=True, gc=False):
    """The data of an event of a topic."""

    at_ms: int
    what: str
    topic: str


class _Job(_Topic, frozen=True, gc=False):
    """The data of an event of a job."""

    id: str
    attempt: int | None
    state: State | None
    reason: Reason | None
    error: str | None
    by: str | None


def _data(event: Event) -> _Topic:
    if event.id is None:
        return _Topic(event.at_ms, event.what, event.topic)
    return _Job(
        event.at_ms,
        event.what,
        event.topic,
        event.id,
        event.attempt,
        event.state,
        event.reason,
        event.error,
        event.by,
    )


def _batch(batch: Batch) -> bytes:
    """JSON has no line breaks, so the data of each event is one line."""
    id, lines = batch.id.encode(), _to_json_lines(list(map(_data, batch.events))).split(b"\n")
    written = [
        b"id: %b-%d\nevent: %b\ndata: %b\n\n" % (id, number, b"topic" if event.id is None else b"job", line)
        for number, event, line in zip(batch.numbers, batch.events, lines, strict=False)  # an empty line is the last
    ]
    if batch.gap is not None and isinstance(batch.gap.what, Gap):
        reason = _to_json({"reason": batch.gap.what.reason})
        written.insert(0, _written(b"gap", batch.gap.id.encode(), reason))
    return b"".join(written)


def _written(kind: bytes, id: bytes, data: bytes) -> bytes:
    """One message."""
    head = b"id: %b\n" % id if id else b""
    return b"%bevent: %b\ndata: %b\n\n" % (head, kind, data)

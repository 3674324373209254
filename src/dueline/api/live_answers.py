"""The answers about what happens now: events and workers. No I/O."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from ..durations import datetime_of
from .schema_hints import one_of

EventKind = Annotated[str, one_of("hello", "job", "topic", "gap")]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to a job or to a topic. `hello` begins a stream. `gap`: earlier events may be missing, so read
    again; its `reason` is new, lost or trimmed.

    `what`, of a job: sent replaced appended delivered acked released dead cancelled edited fired revived purged; of a
    topic: created paused resumed policy push deleted. `cursor`: continue behind this event."""

    event: EventKind
    cursor: str | None = None
    at_ms: int | None = None
    what: str | None = None
    topic: str | None = None
    id: str | None = None
    attempt: int | None = None
    state: str | None = None
    reason: str | None = None
    error: str | None = None
    by: str | None = None

    @property
    def at(self) -> datetime | None:
        return None if self.at_ms is None else datetime_of(self.at_ms)


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    """Events, and where the next page begins. There is always a next one."""

    events: tuple[Event, ...]
    next_cursor: str

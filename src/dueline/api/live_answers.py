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
    topic: created paused resumed policy push deleted. `cursor`: continue after this event."""

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


class RunningJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a worker works on."""

    topic: str
    id: str
    since_ms: int


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as it last reported itself. `running` has at most 50 jobs. A worker is forgotten 60 s after its last
    report; `stopped`: it has stopped since."""

    name: str
    host: str
    pid: int
    version: str
    topics: tuple[str, ...]
    concurrency: int
    started_at_ms: int
    seen_at_ms: int
    running: tuple[RunningJob, ...] = ()
    stopped: bool = False


class Workers(msgspec.Struct, frozen=True, kw_only=True):
    """The workers of a namespace, by name; at most 1,000."""

    workers: tuple[Worker, ...]


class WorkerSeen(msgspec.Struct, frozen=True, kw_only=True):
    """When the next report is expected."""

    name: str
    beat_ms: int


class WorkerStopped(msgspec.Struct, frozen=True, kw_only=True):
    """The worker is shown as stopped."""

    name: str
    result: str


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    """Events, and where the next page begins. There is always a next one."""

    events: tuple[Event, ...]
    next_cursor: str

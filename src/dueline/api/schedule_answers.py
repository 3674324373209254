"""The answers about schedules. A handler makes them, HTTP encodes them, a client decodes them. No I/O."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from ..durations import datetime_of

Retry = dict[str, Any] | Literal["none"]

JOBS_STAY = "no further occurrence is sent; jobs that were already sent stay"


class JobTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """What each job carries, as it was written. A missing field: the topic's policy applies, then the default."""

    body: Raw | UnsetType = UNSET
    body_base64: Annotated[str, Meta(extra_json_schema={"contentEncoding": "base64"})] | UnsetType = UNSET
    lease_ms: int | UnsetType | None = UNSET
    ttl_ms: int | UnsetType | None = UNSET
    max_attempts: int | UnsetType | None = UNSET
    retry: Retry | UnsetType = UNSET
    tags: tuple[str, ...] = ()
    headers: dict[str, str] = {}


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it was when the server answered. `cron` or `every` is null.

    `version` grows with every change by a caller. `next_at_ms` null: there is no further occurrence, or it is paused.
    `last_at_ms` and `last_job`: the last occurrence that became a job; the job is sent half a second ahead.
    `last_error`: why the current occurrence has no job yet. `missed_count`: occurrences that passed without a job."""

    name: str
    topic: str
    cron: str | None = None
    tz: str | None = None
    every: str | None = None
    starts_at_ms: int | None = None
    ends_at_ms: int | None = None
    jitter_ms: int = 0
    misfire: Annotated[str, Meta(extra_json_schema={"enum": ["latest", "skip", "all"]})] = "latest"
    overlap: Annotated[str, Meta(extra_json_schema={"enum": ["allow", "skip"]})] = "allow"
    paused: bool = False
    owner: str | None = None
    job: JobTemplate
    version: int
    next_at_ms: int | None = None
    last_at_ms: int | None = None
    last_job: str | None = None
    last_error: str | None = None
    missed_count: int = 0

    @property
    def next_at(self) -> datetime | None:
        """The next occurrence in UTC."""
        return None if self.next_at_ms is None else datetime_of(self.next_at_ms)


class SchedulePaused(Schedule, frozen=True, kw_only=True):
    """The answer to a pause. `note` says what becomes of jobs that were already sent."""

    note: str = JOBS_STAY


class SchedulePage(msgspec.Struct, frozen=True):
    """One page of schedules. Even an empty page may have a cursor; null = this is the last page."""

    schedules: tuple[Schedule, ...]
    next_cursor: str | None = None


class ScheduleDeleted(msgspec.Struct, frozen=True):
    """The answer to the deletion of a schedule. `note` says what becomes of jobs that were already sent."""

    name: str
    result: Annotated[str, Meta(extra_json_schema={"enum": ["deleted"]})] = "deleted"
    note: str = JOBS_STAY


class NextOccurrences(msgspec.Struct, frozen=True):
    """The next occurrences, before jitter; fewer than asked for if the schedule ends. A paused schedule shows those
    that it would have."""

    next: tuple[int, ...]

"""A recurring schedule: what a caller writes, and what a caller reads. No I/O.

A schedule has occurrences: the times that its cron expression or its interval names (`occurrences`). Each of them
becomes exactly one job in the target topic (`schedules`).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from .commands import Send


class Misfire(StrEnum):
    """What becomes of the occurrences that passed while nothing ran, or while the schedule was paused."""

    LATEST = "latest"  # one job, for the last of them
    SKIP = "skip"  # none
    ALL = "all"  # one job each, in their order; the last 100 if there are more


class Overlap(StrEnum):
    """What becomes of an occurrence while the job of the last one is alive."""

    ALLOW = "allow"
    SKIP = "skip"


class Schedule(msgspec.Struct, frozen=True):
    """What a PUT writes. Exactly one of `cron` and `every_ms` is set. `job` is the template of the jobs: it has no id,
    no time and no merge key.

    `starts_at_ms`: no occurrence is earlier; the intervals of `every_ms` count from it, else from 1970.
    `ends_at_ms`: no occurrence is later. `jitter_ms`: each job is due up to this much after its occurrence. `owner`:
    the program that writes it, which may look for its own schedules; no rule depends on it."""

    topic: str
    job: Send
    cron: str | None = None
    tz: str = "UTC"
    every_ms: int | None = None
    starts_at_ms: int | None = None
    ends_at_ms: int | None = None
    jitter_ms: int = 0
    misfire: Misfire = Misfire.LATEST
    overlap: Overlap = Overlap.ALLOW
    paused: bool = False
    owner: str | None = None


class ScheduleView(msgspec.Struct, frozen=True):
    """A schedule as it is now. `version` grows with every change by a caller. `next_at_ms`: the next occurrence; None:
    there is none, or the schedule is paused. `last_at_ms` and `last_job`: the last occurrence that became a job, which
    is sent half a second ahead. `last_error`: why the current occurrence has no job yet. `missed_count`: occurrences
    that passed without a job."""

    name: str
    version: int
    schedule: Schedule
    next_at_ms: int | None
    last_at_ms: int | None
    last_job: str | None
    last_error: str | None
    missed_count: int

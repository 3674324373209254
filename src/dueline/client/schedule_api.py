"""The client methods on schedules: put_schedule schedules schedule delete_schedule next_occurrences
preview_schedule run_schedule pause_schedule resume_schedule. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack

from ..api import answers as r
from ..api.schedule_requests import NewTemplate, PutSchedule
from ..durations import datetime_of, duration_text
from . import schedule_calls as calls
from .calls import Call
from .method import Pages, Steps, method, pages
from .sending import Policy, body_fields, job_fields
from .times import Duration, Moment, duration_ms, moment_ms

Misfire = Literal["latest", "skip", "all"]
Overlap = Literal["allow", "skip"]


class When(TypedDict, total=False):
    """The occurrences of a schedule, and what happens to late ones. Give `cron` or `every`.

    `cron`: 5 fields, 6 with seconds first, or a name such as "@daily"; `tz` is its IANA time zone, default UTC.
    `every`: an interval, counted from `starts_at`, else from 1970. No occurrence is before `starts_at` or after
    `ends_at`. `jitter`: each job is due up to this long after its occurrence.

    `misfire`: what becomes of occurrences that passed while nothing ran: a job for the latest one (default), none
    ("skip"), or one each ("all", the last 100). `overlap`: "skip" sends no job while the last one's is alive."""

    cron: str | None
    tz: str | None
    every: Duration | None
    starts_at: Moment | None
    ends_at: Moment | None
    jitter: Duration | None
    misfire: Misfire | None
    overlap: Overlap | None


class DeclaredOptions(When, Policy, total=False):
    """What a worker can say about a schedule in its code."""


class ScheduleOptions(DeclaredOptions, total=False):
    """All options of a schedule: when its jobs are due, and how they are delivered. `owner`: the name of the program
    that writes it; a worker with this name may remove it (`prune`)."""

    paused: bool
    owner: str | None
    version: int | None


class ScheduleApi:
    """The methods on schedules that Client and AsyncClient share."""

    @method
    def put_schedule(
        self, name: str, topic: str, body: Any = None, **options: Unpack[ScheduleOptions]
    ) -> Call[r.Schedule]:
        """Make a schedule or replace it: each occurrence becomes one job in `topic`, with this `body`.

        Options: `cron` with `tz`, or `every`; `starts_at`, `ends_at`, `jitter`, `misfire`, `overlap` (see When);
        `lease`, `ttl`, `max_attempts`, `retry`, `tags`, `headers` of its jobs (see Policy); `paused`, `owner`. With
        `version` it raises VersionMismatch if the schedule has changed since; 0: if it exists."""
        return calls.put_schedule(name, put_request(topic, body, options))

    @pages
    def schedules(self, page: int = 500) -> Pages[r.Schedule]:
        """All schedules of the namespace."""
        return Pages(lambda cursor: calls.schedules(cursor, page), _schedules)

    @method
    def schedule(self, name: str) -> Call[r.Schedule]:
        """A schedule as it is now. Raises NotFound."""
        return calls.schedule(name)

    @method
    def delete_schedule(self, name: str) -> Call[r.ScheduleDeleted]:
        """Delete a schedule. Jobs that it has already sent stay. Raises NotFound."""
        return calls.delete_schedule(name)

    @method
    def next_occurrences(self, name: str, count: int = 10) -> Steps[list[datetime]]:
        """The next occurrences in UTC, at most 100; fewer if the schedule ends. Of a paused schedule, those
        that it would have."""
        found: r.NextOccurrences = yield calls.next_occurrences(name, count)
        return [datetime_of(at_ms) for at_ms in found.next]

    @method
    def preview_schedule(
        self, name: str, topic: str, body: Any = None, **options: Unpack[ScheduleOptions]
    ) -> Steps[list[datetime]]:
        """The next ten occurrences in UTC that `put_schedule` with the same arguments would give. Stores nothing, and
        refuses what `put_schedule` refuses."""
        found: r.NextOccurrences = yield calls.preview_schedule(name, put_request(topic, body, options))
        return [datetime_of(at_ms) for at_ms in found.next]

    @method
    def run_schedule(self, name: str) -> Call[r.Sent]:
        """Send a job of the schedule now. Its occurrences stay as they are. This is not retried after an unknown
        outcome."""
        return calls.run_schedule(name)

    @method
    def pause_schedule(self, name: str) -> Call[r.SchedulePaused]:
        """Stop a schedule until it is resumed. Jobs that it has already sent stay."""
        return calls.pause_schedule(name)

    @method
    def resume_schedule(self, name: str) -> Call[r.Schedule]:
        """Resume a schedule. `misfire` says what becomes of the occurrences that passed while it was paused."""
        return calls.resume_schedule(name)


_OPTIONS = frozenset({*ScheduleOptions.__annotations__, *When.__annotations__, *Policy.__annotations__})


def put_request(topic: str, body: Any, options: Mapping[str, Any]) -> PutSchedule:
    """The request of `put_schedule`. Raises TypeError or ValueError that names the option."""
    if not options.keys() <= _OPTIONS:
        raise TypeError(f"a schedule has no option {', '.join(sorted(options.keys() - _OPTIONS))}")
    policy = {name: value for name, value in options.items() if name in Policy.__annotations__ and value is not None}
    every, jitter = options.get("every"), options.get("jitter")
    return PutSchedule(
        topic=topic,
        job=NewTemplate(**body_fields(body), **job_fields(policy)),
        cron=options.get("cron"),
        tz=options.get("tz"),
        every=every if every is None or isinstance(every, str) else duration_text(duration_ms(every, "every")),
        starts_at_ms=_moment_ms(options, "starts_at"),
        ends_at_ms=_moment_ms(options, "ends_at"),
        jitter_ms=None if jitter is None else duration_ms(jitter, "jitter"),
        misfire=options.get("misfire"),
        overlap=options.get("overlap"),
        paused=options.get("paused") or None,
        owner=options.get("owner"),
        version=options.get("version"),
    )


def _moment_ms(options: Mapping[str, Any], name: str) -> int | None:
    value = options.get(name)
    return None if value is None else moment_ms(value, name)


def _schedules(page: r.SchedulePage) -> Sequence[r.Schedule]:
    return page.schedules

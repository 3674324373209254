"""The calls on schedules, as `calls` has those on everything else. No I/O."""

from __future__ import annotations

from ..api import answers as r
from ..api import requests as q
from ..api import schedule_requests as sr
from .calls import Call, given


def put_schedule(name: str, request: sr.PutSchedule | dict[str, object]) -> Call[r.Schedule]:
    """With a `version` it is not repeatable: a retry would be refused although the first try succeeded."""
    version = request.version if isinstance(request, sr.PutSchedule) else request.get("version")
    return Call("put_schedule", r.Schedule, (name,), request, repeatable=version is None)


def schedules(cursor: str | None = None, limit: int | None = None) -> Call[r.SchedulePage]:
    return Call("list_schedules", r.SchedulePage, (), sr.ListSchedules(**given(cursor=cursor, limit=limit)))


def schedule(name: str) -> Call[r.Schedule]:
    return Call("get_schedule", r.Schedule, (name,))


def delete_schedule(name: str) -> Call[r.ScheduleDeleted]:
    """Not repeatable: a retry would be answered with not_found although the first try succeeded."""
    return Call("delete_schedule", r.ScheduleDeleted, (name,), repeatable=False)


def next_occurrences(name: str, count: int = 10) -> Call[r.NextOccurrences]:
    return Call("next_occurrences", r.NextOccurrences, (name,), sr.ListOccurrences(count=count))


def preview_schedule(name: str, request: sr.PutSchedule | dict[str, object]) -> Call[r.NextOccurrences]:
    return Call("preview_schedule", r.NextOccurrences, (name,), request)


def run_schedule(name: str) -> Call[r.Sent]:
    """Not repeatable: a retry would send a second job."""
    return Call("run_schedule", r.Sent, (name,), q.Nothing(), repeatable=False)


def pause_schedule(name: str) -> Call[r.SchedulePaused]:
    return Call("pause_schedule", r.SchedulePaused, (name,), q.Nothing())


def resume_schedule(name: str) -> Call[r.Schedule]:
    return Call("resume_schedule", r.Schedule, (name,), q.Nothing())

"""One method per operation on schedules: from a request struct to a reply. The rules are in `engine.schedules`.

A token that is valid for some topics may see and change the schedules whose jobs go to them. Only the stored schedule
says which topic that is, so these checks are here and not in `access`.
"""

from __future__ import annotations

import base64

from msgspec import UNSET, Raw
from msgspec.structs import asdict

from ...api import answers as a
from ...api import schedule_requests as sr
from ...api.reply import Reply
from ...durations import duration_text
from ...engine.commands import Send
from ...engine.errors import DuelineError, NotFound, VersionMismatch
from ...engine.job import BodyKind
from ...engine.policy import duration_ms
from ...engine.schedule import Misfire, Overlap, Schedule, ScheduleView
from ...engine.schedules import STALE, Schedules
from ..http import check_topic
from . import decode, encode
from .own_headers import own_headers
from .wire import Caller, plain_name

PREVIEWED = 10
TEMPLATE_FIELDS = frozenset(sr.NewTemplate.__struct_fields__)


class ScheduleHandlers:
    """The handlers of the group "Schedules" in `api.OPERATIONS`. Each method is named after its operation."""

    def __init__(self, schedules: Schedules) -> None:
        self._schedules = schedules

    async def put_schedule(self, caller: Caller, request: sr.PutSchedule, name: str) -> Reply:
        plain_name(name, "name")
        check_topic(caller.grant, plain_name(request.topic, "topic"))
        schedule, version = schedule_of(request), request.version
        if not caller.grant.covers_all:
            seen = await self._version_seen(caller, name)
            if version not in (None, seen):
                raise VersionMismatch(STALE, "version", seen)
            version = seen  # nobody may move it between this look and the write
        try:
            view, new = await self._schedules.put(caller.namespace, name, schedule, version)
        except DuelineError as error:
            raise _in_template(error) from None
        return Reply(schedule_view(view), 201 if new else 200)

    async def list_schedules(self, caller: Caller, request: sr.ListSchedules) -> Reply:
        after = decode.cursor_bytes(request.cursor).decode(errors="replace")
        views, cursor = await self._schedules.list(caller.namespace, after, request.limit)
        shown = tuple(schedule_view(view) for view in views if caller.grant.covers(view.schedule.topic))
        return Reply(a.SchedulePage(shown, encode.cursor_text(None if cursor is None else cursor.encode())))

    async def get_schedule(self, caller: Caller, _: object, name: str) -> Reply:
        view = await self._schedules.get(caller.namespace, name)
        check_topic(caller.grant, view.schedule.topic)
        return Reply(schedule_view(view))

    async def delete_schedule(self, caller: Caller, _: object, name: str) -> Reply:
        await self._schedules.delete(caller.namespace, name, await self._allowed(caller, name))
        return Reply(a.ScheduleDeleted(name))

    async def next_occurrences(self, caller: Caller, request: sr.ListOccurrences, name: str) -> Reply:
        await self._allowed(caller, name)
        return Reply(a.NextOccurrences(tuple(await self._schedules.next(caller.namespace, name, request.count))))

    async def preview_schedule(self, caller: Caller, request: sr.PutSchedule, name: str) -> Reply:
        plain_name(name, "name")
        check_topic(caller.grant, plain_name(request.topic, "topic"))
        try:
            found = await self._schedules.preview(caller.namespace, name, schedule_of(request), PREVIEWED)
        except DuelineError as error:
            raise _in_template(error) from None
        return Reply(a.NextOccurrences(tuple(found)))

    async def run_schedule(self, caller: Caller, _: object, name: str) -> Reply:
        version = await self._allowed(caller, name)
        sent = encode.sent(await self._schedules.run(caller.namespace, name, version, caller.grant))
        return Reply(sent, 201 if sent.result == "created" else 200)

    async def pause_schedule(self, caller: Caller, _: object, name: str) -> Reply:
        version = await self._allowed(caller, name)
        view = schedule_view(await self._schedules.pause(caller.namespace, name, version))
        return Reply(a.SchedulePaused(**asdict(view)))

    async def resume_schedule(self, caller: Caller, _: object, name: str) -> Reply:
        version = await self._allowed(caller, name)
        return Reply(schedule_view(await self._schedules.resume(caller.namespace, name, version)))

    async def _allowed(self, caller: Caller, name: str) -> int | None:
        """Raises Forbidden if the caller's token is not valid for the topic of the schedule. Returns the version to
        change, so that nobody can move it to another topic in between; None: any."""
        return None if caller.grant.covers_all else (await self._seen(caller, name)).version

    async def _version_seen(self, caller: Caller, name: str) -> int:
        try:
            return (await self._seen(caller, name)).version
        except NotFound:
            return 0

    async def _seen(self, caller: Caller, name: str) -> ScheduleView:
        view = await self._schedules.get(caller.namespace, name)
        check_topic(caller.grant, view.schedule.topic)
        return view


def schedule_of(request: sr.PutSchedule) -> Schedule:
    """The engine's value of a request."""
    return Schedule(
        topic=request.topic,
        job=_template(request.job),
        cron=request.cron,
        tz="UTC" if request.tz is None else request.tz,
        every_ms=None if request.every is None else duration_ms(request.every, "every"),
        starts_at_ms=request.starts_at_ms,
        ends_at_ms=request.ends_at_ms,
        jitter_ms=request.jitter_ms or 0,
        misfire=Misfire.LATEST if request.misfire is None else Misfire(request.misfire),
        overlap=Overlap.ALLOW if request.overlap is None else Overlap(request.overlap),
        paused=bool(request.paused),
        owner=None if request.owner is None else plain_name(request.owner, "owner"),
    )


def schedule_view(view: ScheduleView) -> a.Schedule:
    """A schedule as a caller sees it."""
    schedule = view.schedule
    return a.Schedule(
        name=view.name,
        topic=schedule.topic,
        cron=schedule.cron,
        tz=None if schedule.cron is None else schedule.tz,
        every=None if schedule.every_ms is None else duration_text(schedule.every_ms),
        starts_at_ms=schedule.starts_at_ms,
        ends_at_ms=schedule.ends_at_ms,
        jitter_ms=schedule.jitter_ms,
        misfire=schedule.misfire.value,
        overlap=schedule.overlap.value,
        paused=schedule.paused,
        owner=schedule.owner,
        job=_template_view(schedule.job),
        version=view.version,
        next_at_ms=view.next_at_ms,
        last_at_ms=view.last_at_ms,
        last_job=view.last_job,
        last_error=view.last_error,
        missed_count=view.missed_count,
    )


def _template(job: sr.NewTemplate) -> Send:
    try:
        body, kind = decode.body_of(job)
        return Send(
            id=None,
            body=body,
            kind=kind,
            lease_ms=job.lease_ms,
            ttl_ms=job.ttl_ms,
            max_attempts=job.max_attempts,
            retry=UNSET if job.retry is None else decode.retry(job.retry),
            tags=job.tags or (),
            headers=own_headers(job.headers),
        )
    except DuelineError as error:
        raise _in_template(error) from None


def _template_view(job: Send) -> a.JobTemplate:
    is_json = job.kind is BodyKind.JSON
    return a.JobTemplate(
        body=Raw(job.body) if is_json else UNSET,
        body_base64=UNSET if is_json else base64.b64encode(job.body).decode(),
        lease_ms=job.lease_ms,
        ttl_ms=job.ttl_ms,
        max_attempts=job.max_attempts,
        retry=UNSET if job.retry is UNSET else encode.retry_view(job.retry) or UNSET,
        tags=job.tags,
        headers=dict(job.headers),
    )


def _in_template(error: DuelineError) -> DuelineError:
    """Name a field of the template by its place in the request."""
    first = (error.field or "").partition(".")[0].partition("[")[0]
    if first in TEMPLATE_FIELDS:
        error.field = f"job.{error.field}"
    return error

"""Recurring schedules: what callers do with them.

A change is one replace of the schedule's job, which names the version that it replaces. Then its version is written to
every partition of the target, before the call returns: a server that leased an older version can send nothing any more
(engine.fence). If this process dies in between, the server that leases the new version writes the fences before its
first send. A delete is such a change, too: it marks the job, and the loop removes it (engine.schedule_runner).
"""

from __future__ import annotations

import asyncio
import binascii
import random
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable
from contextlib import suppress
from weakref import WeakValueDictionary

from msgspec.structs import replace

from ..rights import EVERYTHING, Grant
from .checks import Checks, within
from .commands import Sent
from .control import TopicControl
from .errors import BadRequest, Conflict, DuelineError, IdExists, InvalidField, NotFound, VersionMismatch
from .job import LIVE, Job
from .job_calls import JobCalls
from .limits import INTERNAL_NAMESPACE, LAST_MS, check_name
from .occurrences import Occurrences
from .schedule import Schedule, ScheduleView
from .schedule_runner import ScheduleRunner
from .sender import Sender
from .sending import send_item
from .store import Code, OnConflict, Query, StalePolicy, Store
from .stored_schedule import (
    LEAD_MS,
    TAG,
    Progress,
    StoredSchedule,
    check_schedule_name,
    home_topic,
    item_of,
    known_progress,
    occurrences_of,
    turn_at_ms,
    unpack,
    unpack_progress,
)
from .topics import Topic, TopicConfig, Topics

TRIES = 20
MAX_NEXT = 100
STALE = "the schedule was changed since this version was read"
CHANGED = "other processes keep changing this schedule; nothing was done"
MAX_FENCED = 64  # topics of former versions whose fences may be missing

Change = Callable[[StoredSchedule, Progress, int], StoredSchedule]


class Schedules:
    """All calls on schedules. `runner` sends their jobs."""

    def __init__(
        self,
        store: Store,
        topics: Topics,
        control: TopicControl,
        jobs: JobCalls,
        sender: Sender,
        checks: Checks,
        runner: ScheduleRunner,
    ) -> None:
        self._store = store
        self._topics = topics
        self._control = control
        self._jobs = jobs
        self._sender = sender
        self._checks = checks
        self._runner = runner
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def put(
        self, namespace: str, name: str, schedule: Schedule, version: int | None
    ) -> tuple[ScheduleView, bool]:
        """Create or replace a schedule. Returns it, and whether it is new. Its first occurrence is later than this
        call, and than the last one that was sent ahead. `version`: replace only this version; 0: only create. Raises
        VersionMismatch with the current version."""
        check_schedule_name(namespace, name)
        Occurrences.of(schedule).check()
        await self._check(namespace, name, schedule)
        home = await self._home(namespace)
        async with self._alone(namespace, name):
            for _ in range(TRIES):
                job, old, progress = await self._found(home, name)
                is_new = old is None or old.deleted
                current = 0 if job is None or is_new else job.version
                if version not in (None, current):
                    raise VersionMismatch(STALE, "version", current)
                now_ms = self._store.now_ms()
                new = StoredSchedule(schedule, now_ms)
                if job is not None and old is not None:
                    fenced = _fenced(old, progress, job.version, schedule.topic)
                    from_version = job.version + 1
                    progress_from = from_version if is_new else old.progress_from
                    new = replace(new, fenced=fenced, progress_from=progress_from, errors_from=from_version)
                    progress = known_progress(new, progress)
                at_ms = turn_at_ms(schedule, _next_at_ms(new, progress))
                written = await self._write(namespace, home, name, new, at_ms, 0 if job is None else job.version)
                if written is not None:
                    return _view(name, written[0], new, progress, written[1]), is_new
        raise Conflict(CHANGED)

    async def get(self, namespace: str, name: str) -> ScheduleView:
        """Raises NotFound."""
        job, stored, progress = await self._existing(namespace, name)
        return _view(name, job.version, stored, progress)

    async def list(self, namespace: str, after: str, limit: int) -> tuple[list[ScheduleView], str | None]:
        """One page in the order of the store, and the cursor of the next one. A page may have fewer than `limit`
        schedules although others follow."""
        check_schedule_name(namespace, "any")
        try:
            cursor = b64decode(after.encode(), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise InvalidField("is not a cursor of this list", "cursor") from None
        home = await self._topics.get(INTERNAL_NAMESPACE, home_topic(namespace))
        page = await self._jobs.list(home, Query(tag=TAG, cursor=cursor, limit=limit, body=True))
        found = [_read(job) for job in page.jobs if job.state in LIVE]
        views = [_view(job.id, job.version, stored, progress) for job, stored, progress in found if not stored.deleted]
        return views, None if page.cursor is None else urlsafe_b64encode(page.cursor).decode()

    async def delete(self, namespace: str, name: str, version: int | None = None) -> None:
        """No occurrence follows. A job that was already sent stays. Raises NotFound. `version`, here and below: only if
        it has this version; else raises VersionMismatch."""
        await self._change(namespace, name, lambda old, progress, now_ms: replace(old, deleted=True), version)

    async def pause(self, namespace: str, name: str, version: int | None = None) -> ScheduleView:
        """Send nothing until it is resumed. A job that was already sent stays."""
        return await self._change(namespace, name, lambda old, progress, now_ms: _paused(old, True), version)

    async def resume(self, namespace: str, name: str, version: int | None = None) -> ScheduleView:
        """Go on; `misfire` says what becomes of the occurrences that have passed."""

        def resumed(old: StoredSchedule, progress: Progress, now_ms: int) -> StoredSchedule:
            return replace(_paused(old, False), missed_until_ms=now_ms) if old.schedule.paused else old

        return await self._change(namespace, name, resumed, version)

    async def run(self, namespace: str, name: str, version: int | None = None, grant: Grant = EVERYTHING) -> Sent:
        """Send one job of the schedule now, besides its occurrences. `grant`: of the caller."""
        _, stored, _ = await self._existing(namespace, name, version)
        schedule, at_ms = stored.schedule, self._store.now_ms()
        for tried in range(TRIES):
            command = replace(schedule.job, id=f"{name}@run-{at_ms}", on_conflict=OnConflict.REJECT)
            with suppress(IdExists):
                sent = await self._sender.send(namespace, schedule.topic, command, grant)
                if sent.result == "created":
                    return sent
            at_ms += random.randint(1, 2**tried)  # another run has this id: the steps grow until they miss each other
        raise Conflict("other callers run this schedule at the same moment; nothing was done")

    async def next(self, namespace: str, name: str, count: int) -> list[int]:
        """The next occurrences; of a paused schedule, those that it would have."""
        within(count, 1, MAX_NEXT, "count")
        _, stored, progress = await self._existing(namespace, name)
        after_ms = max(self._store.now_ms(), stored.from_ms, progress.decided_at_ms)
        return occurrences_of(stored.schedule).between(after_ms, LAST_MS, count)

    async def preview(self, namespace: str, name: str, schedule: Schedule, count: int) -> list[int]:
        """The next occurrences that a `put` of this schedule would give. Refuses what `put` refuses; stores nothing."""
        check_schedule_name(namespace, name)
        occurrences = Occurrences.of(schedule)
        occurrences.check()
        await self._check(namespace, name, schedule)
        return occurrences.between(self._store.now_ms(), LAST_MS, count)

    # -- reading

    async def _existing(
        self, namespace: str, name: str, version: int | None = None
    ) -> tuple[Job, StoredSchedule, Progress]:
        check_schedule_name(namespace, name)
        home = await self._topics.get(INTERNAL_NAMESPACE, home_topic(namespace))
        job, stored, progress = await self._found(home, name)
        if job is None or stored is None or stored.deleted:
            raise NotFound(f'there is no schedule "{name}"')
        if version not in (None, job.version):
            raise VersionMismatch(STALE, "version", job.version)
        return job, stored, progress

    async def _found(self, home: Topic, name: str) -> tuple[Job | None, StoredSchedule | None, Progress]:
        [job] = await self._store.read(home.partition_of(name), (name,))
        return (None, None, Progress()) if job is None or job.state not in LIVE else _read(job)

    # -- changing

    async def _check(self, namespace: str, name: str, schedule: Schedule) -> None:
        """Refuse a schedule whose jobs could not be sent."""
        check_name(schedule.topic, "topic")
        within(schedule.jitter_ms, 0, self._checks.limits.max_delay_ms - LEAD_MS, "jitter_ms")
        job = schedule.job
        for field in ("id", "delay_ms", "at_ms", "merge", "on_conflict"):
            if getattr(job, field) is not None:
                raise InvalidField("is set by the schedule: leave it out", f"job.{field}")
        topic = await self._topics.get(namespace, schedule.topic)
        try:
            send_item(replace(job, id=f"{name}@run-{LAST_MS}"), f"{name}@run-{LAST_MS}", topic, self._checks, _never)
        except DuelineError as error:
            error.field = "job" if error.field is None else f"job.{error.field}"
            raise

    async def _home(self, namespace: str) -> Topic:
        """The topic of a namespace's schedules. It has a config, so that every process learns of it (topic_changes) and
        no process removes it: versions never start over."""
        name = home_topic(namespace)
        home = await self._topics.get(INTERNAL_NAMESPACE, name)
        if not home.version:
            async with self._alone(namespace, ""):
                home = await self._topics.get(INTERNAL_NAMESPACE, name)
                if not home.version:
                    home, _ = await self._control.change(INTERNAL_NAMESPACE, name, _configured)
        return home

    async def _change(self, namespace: str, name: str, change: Change, version: int | None) -> ScheduleView:
        home = await self._home(namespace)
        async with self._alone(namespace, name):
            for _ in range(TRIES):
                job, old, progress = await self._existing(namespace, name, version)
                now_ms = self._store.now_ms()
                new = change(old, progress, now_ms)
                new = replace(new, fenced=_fenced(old, progress, job.version, old.schedule.topic))
                at_ms = now_ms if new.deleted else turn_at_ms(new.schedule, _next_at_ms(new, progress))
                written = await self._write(namespace, home, name, new, at_ms, job.version)
                if written is not None:
                    return _view(name, written[0], new, progress, written[1])
        raise Conflict(CHANGED)

    def _alone(self, namespace: str, name: str) -> asyncio.Lock:
        """A lock for changes of one schedule in this process, or (no name) for creating the topic of all schedules.
        Without it, most of many concurrent changes would conflict."""
        return self._locks.setdefault((namespace, name), asyncio.Lock())

    async def _write(
        self, namespace: str, home: Topic, name: str, new: StoredSchedule, at_ms: int, replaces: int
    ) -> tuple[int, int] | None:
        """Replace the schedule's job and write its fences. Returns its version, and the time after which its
        occurrences begin, as the fences say; None: it was changed in between.

        A partition may know a newer version than the store gives, if the store has lost it. Then the schedule is
        written again, until its version is the newest."""
        version = await self._replace(home, name, new, at_ms, replaces)
        if version is None:
            return None
        decided_ms = 0
        for _ in range(TRIES):
            newest, decided_ms = await self._runner.fence(namespace, name, new, version)
            if newest <= version:
                break
            while version <= newest:  # each write takes one number
                again = await self._replace(home, name, new, at_ms, version)
                if again is None:
                    return version, decided_ms  # changed in between: the other change is the newest
                version = again
        return version, decided_ms

    async def _replace(self, home: Topic, name: str, new: StoredSchedule, at_ms: int, replaces: int) -> int | None:
        item = item_of(name, new, at_ms, replaces)
        try:
            [result] = await self._store.send(home.partition_of(name), (item,), home.version)
        except StalePolicy:
            await self._control.tell_partitions(home.namespace, home.name)
            return None
        return None if result.code is Code.VERSION_MISMATCH else result.version


def _read(job: Job) -> tuple[Job, StoredSchedule, Progress]:
    stored = unpack(job.body)
    return job, stored, unpack_progress(stored, job.progress)


def _view(name: str, version: int, stored: StoredSchedule, progress: Progress, decided_ms: int = 0) -> ScheduleView:
    """`decided_ms`: up to here every occurrence was sent or skipped, even if the progress does not say so yet."""
    return ScheduleView(
        name=name,
        version=version,
        schedule=stored.schedule,
        next_at_ms=_next_at_ms(stored, progress, decided_ms),
        last_at_ms=progress.last_at_ms,
        last_job=progress.last_job,
        last_error=progress.error,
        missed_count=progress.missed,
    )


def _next_at_ms(stored: StoredSchedule, progress: Progress, decided_ms: int = 0) -> int | None:
    schedule, after_ms = stored.schedule, max(stored.from_ms, progress.decided_at_ms, decided_ms)
    try:
        return None if schedule.paused else occurrences_of(schedule).after(after_ms)
    except BadRequest:  # this server does not know its zone, for example: `last_error` says so
        return None


def _paused(old: StoredSchedule, paused: bool) -> StoredSchedule:
    return replace(old, schedule=replace(old.schedule, paused=paused))


def _fenced(old: StoredSchedule, progress: Progress, version: int, topic: str) -> tuple[str, ...]:
    """The topics to fence if `version` is replaced: its own, the new one, and those that may still lack its fence."""
    former = () if progress.version == version else old.fenced
    return tuple(dict.fromkeys((topic, old.schedule.topic, *former)))[:MAX_FENCED]


def _configured(config: TopicConfig, is_new: bool) -> TopicConfig:
    return replace(config)


def _never() -> int:
    return 0

"""The stored form of a schedule: the body and the progress of its job. No I/O.

A schedule is a job in the server's own namespace, in one topic per namespace of users. Its id is the schedule's name,
its version the schedule's version. Changes by callers write the body; the server that leases it writes the progress. It
is due a little before the next occurrence (`turn_at_ms`), so that the occurrence's job is there when its time comes.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from .commands import Send
from .errors import InvalidField
from .job import BodyKind
from .limits import INTERNAL_NAMESPACE, LAST_MS, MAX_ID_BYTES, check_name
from .occurrences import Occurrences
from .policy import AT_ONCE, JobPolicy, StoredRetry, stored_retry
from .schedule import Misfire, Overlap, Schedule
from .store import OnConflict, SendItem

HOME = "schedules:"  # the topic of a namespace's schedules is this and the name of the namespace
TAG = "schedule"  # lists schedules by name
LEASE_MS = 10_000  # if a server dies, another one takes over after this time
LEAD_MS = 500  # less than MIN_EVERY_MS: at most one occurrence is ahead
POLICY = JobPolicy(lease_ms=LEASE_MS, max_attempts=None, retain_ms=0, retry=AT_ONCE)
MAX_NAME_BYTES = MAX_ID_BYTES - len("@run-") - 15  # an occurrence's id has the name and a time in it


class StoredSchedule(msgspec.Struct, frozen=True):
    """`from_ms`: every occurrence is later. `missed_until_ms`: occurrences up to this time count as missed, because the
    schedule was paused. `fenced`: the topics to fence before the first send of this version. `progress_from`: progress
    of older versions is ignored. `errors_from`: errors of older versions are. `deleted`: only the fences are left to be
    written."""

    schedule: Schedule
    from_ms: int
    missed_until_ms: int = 0
    fenced: tuple[str, ...] = ()
    progress_from: int = 0
    errors_from: int = 0
    deleted: bool = False


class Progress(msgspec.Struct, frozen=True, array_like=True):
    """What became of the occurrences. `version`: of the schedule that wrote this. `decided_at_ms`: every occurrence up
    to here was sent or skipped; up to LEAD_MS ahead of the clock. `last_...`: the last one that was sent. `missed`: how
    many never became a job. `failures`: tries of the current one, of which the last was by `failed_version`."""

    version: int = 0
    decided_at_ms: int = 0
    last_at_ms: int | None = None
    last_job: str | None = None
    last_topic: str | None = None
    missed: int = 0
    failures: int = 0
    error: str | None = None
    failed_version: int = 0


class _Job(StoredRetry, frozen=True, omit_defaults=True):
    body: bytes = b""
    kind: BodyKind = BodyKind.JSON
    lease_ms: int | UnsetType | None = UNSET
    ttl_ms: int | UnsetType | None = UNSET
    max_attempts: int | UnsetType | None = UNSET
    tags: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()


class _Body(msgspec.Struct, frozen=True, omit_defaults=True):
    topic: str
    job: _Job
    from_ms: int
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
    missed_until_ms: int = 0
    fenced: tuple[str, ...] = ()
    progress_from: int = 0
    errors_from: int = 0
    deleted: bool = False


_SCHEDULE = tuple(name for name in Schedule.__struct_fields__ if name != "job")
_STATE = tuple(name for name in StoredSchedule.__struct_fields__ if name != "schedule")
_JOB = ("body", "kind", "lease_ms", "ttl_ms", "max_attempts", "tags", "headers")
_NO_JOB = Send(None, b"", BodyKind.JSON)
_body = msgspec.msgpack.Decoder(_Body).decode
_progress = msgspec.msgpack.Decoder(Progress).decode


def pack(stored: StoredSchedule) -> bytes:
    """The body of the schedule's job."""
    schedule, job = stored.schedule, stored.schedule.job
    retry = None if isinstance(job.retry, UnsetType) else job.retry
    return msgspec.msgpack.encode(
        _Body(
            **{name: getattr(schedule, name) for name in _SCHEDULE},
            **{name: getattr(stored, name) for name in _STATE},
            job=_Job(**{name: getattr(job, name) for name in _JOB}, **stored_retry(retry)),
        )
    )


def unpack(body: bytes | None) -> StoredSchedule:
    stored = _body(body or b"")
    retry = stored.job.retry
    job = Send(id=None, **{name: getattr(stored.job, name) for name in _JOB}, retry=UNSET if retry is None else retry)
    schedule = Schedule(job=job, **{name: getattr(stored, name) for name in _SCHEDULE})
    return StoredSchedule(schedule, **{name: getattr(stored, name) for name in _STATE})


def pack_progress(progress: Progress) -> bytes:
    return msgspec.msgpack.encode(progress)


def unpack_progress(stored: StoredSchedule, packed: bytes) -> Progress:
    return known_progress(stored, _progress(packed) if packed else Progress())


def known_progress(stored: StoredSchedule, progress: Progress) -> Progress:
    """What a schedule takes over of its progress: nothing that a deleted one of the same name has left, and no error of
    one that was replaced since."""
    if progress.version < stored.progress_from:
        return Progress()
    if progress.failed_version < stored.errors_from:
        return replace(progress, error=None)
    return progress


def item_of(name: str, stored: StoredSchedule, at_ms: int, replaces: int) -> SendItem:
    """The schedule's job, due at a time. `replaces`: the version that it replaces; 0: there must be none."""
    return SendItem(
        id=name,
        body=pack(stored),
        kind=BodyKind.BYTES,
        delay_ms=0,
        at_ms=at_ms,
        policy=POLICY,
        ttl_ms=None,
        on_live=OnConflict.REJECT,
        on_ended=OnConflict.REJECT,
        fingerprint=0,
        tags=(TAG,),
        replaces=replaces,
    )


def check_schedule_name(namespace: str, name: str) -> None:
    check_name(name, "name")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise InvalidField(f"must have at most {MAX_NAME_BYTES} bytes", "name")
    if namespace == INTERNAL_NAMESPACE:
        raise InvalidField("is reserved for the server", "namespace")


def home_topic(namespace: str) -> str:
    """The topic with the schedules of a namespace, in the server's own namespace."""
    home = f"{HOME}{namespace}"
    if len(home.encode()) > MAX_ID_BYTES:
        raise InvalidField(f"must have at most {MAX_ID_BYTES - len(HOME)} bytes if it has schedules", "namespace")
    return home


def namespace_of(topic: str) -> str | None:
    """The namespace whose schedules a topic of the server's own namespace has; None: it has none."""
    return topic.removeprefix(HOME) if topic.startswith(HOME) else None


def occurrences_of(schedule: Schedule) -> Occurrences:
    """The occurrences of a checked schedule."""
    times = (schedule.cron, schedule.tz, schedule.every_ms, schedule.starts_at_ms, schedule.ends_at_ms)
    return _occurrences(*times)


def lead_ms(schedule: Schedule) -> int:
    """How long before its occurrence a job is sent. With overlap `skip` the occurrence itself must be awaited: the last
    job may still end before it."""
    return 0 if schedule.overlap is Overlap.SKIP else LEAD_MS


def turn_at_ms(schedule: Schedule, next_ms: int | None) -> int:
    """When the schedule's job is due, so that its next occurrence is sent in time. None: there is no next one."""
    return LAST_MS if next_ms is None else next_ms - lead_ms(schedule)


@lru_cache(4096)
def _occurrences(
    cron: str | None, tz: str, every_ms: int | None, starts_at_ms: int | None, ends_at_ms: int | None
) -> Occurrences:
    return Occurrences.of(Schedule("", _NO_JOB, cron, tz, every_ms, starts_at_ms, ends_at_ms))


def fence_name(namespace: str, name: str) -> str:
    """What the schedule is called in the partitions of its target."""
    return f"{namespace}\0{name}"


def occurrence_id(name: str, at_ms: int) -> str:
    return f"{name}@{at_ms}"


def occurrence_send(namespace: str, name: str, schedule: Schedule, at_ms: int) -> Send:
    """The job of an occurrence, without its fence. It is due a little later if the schedule has a jitter; the same on
    every server."""
    due_ms = at_ms
    if schedule.jitter_ms:
        draw = blake2b(f"{fence_name(namespace, name)}@{at_ms}".encode(), digest_size=8).digest()
        due_ms += int.from_bytes(draw, "big") % (schedule.jitter_ms + 1)
    return replace(
        schedule.job,
        id=occurrence_id(name, at_ms),
        at_ms=due_ms,
        on_conflict=OnConflict.REJECT,
        on_ended=OnConflict.REJECT,
    )

"""One stored job, and its state at a given time. No I/O.

A record holds only what callers did. Everything that the passing of time does (ready, lease over, expired, exhausted,
gone) is derived by `look`. So nothing depends on clean-up.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from ...engine.history import Past
from ...engine.job import BodyKind, Item, Job, LeasedJob, Reason, State
from ...engine.lifecycle import judge
from ...engine.limits import LAST_MS, MAX_ERROR_BYTES
from ...engine.policy import JobPolicy


@dataclass(slots=True)
class Group:
    """The extra data of a merge group. `number` counts the groups as they are opened; edits keep it. `items` have
    their numbers and are in order. `item_ids` has the id of every item that was ever added, even if it has moved on."""

    key: str
    number: int
    cap_ms: int
    max_items: int
    max_bytes: int
    waits_when_full: bool = False
    open: bool = True
    items: list[tuple[int, Item]] = field(default_factory=list[tuple[int, Item]])
    item_ids: set[str] = field(default_factory=set[str])

    @property
    def bytes(self) -> int:
        return sum(len(item.body) for _, item in self.items)


@dataclass(slots=True)
class Record:
    """A job as last written. `time_ms`: the lease deadline if leased, else the time at which it may be delivered."""

    id: str
    topic: str
    body: bytes | None
    kind: BodyKind
    headers: bytes
    tags: tuple[str, ...]
    policy: JobPolicy
    ttl_ms: int | None
    fingerprint: int
    number: int
    created_at_ms: int
    updated_at_ms: int
    due_at_ms: int
    time_ms: int
    expires_at_ms: int | None
    deliveries: int = 0
    refunds: int = 0
    given: int = 0  # refunds by releases; a revive also refunds attempts, but is not counted here
    leased: bool = False
    token: str | None = None  # current until leased again, released, edited, replaced or ended
    ended: State | None = None
    reason: Reason | None = None
    ended_at_ms: int = 0
    last_error: str | None = None
    group: Group | None = None
    progress: bytes = b""
    past: list[Past] = field(default_factory=list[Past])  # engine.history
    started: bool = False  # it was leased, revived, or keeps the progress of another job
    edited_at_ms: int | None = None  # its last edit before it was started

    @property
    def attempts(self) -> int:
        return self.deliveries - self.refunds

    @property
    def exhausted(self) -> bool:
        return self.policy.max_attempts is not None and self.attempts >= self.policy.max_attempts

    def plan(self, due_at_ms: int, number: int, now_ms: int) -> None:
        """Schedule for a new due time. The ttl counts from it, and any lease ends."""
        self.due_at_ms = self.time_ms = due_at_ms
        self.expires_at_ms = None if self.ttl_ms is None else due_at_ms + self.ttl_ms
        self.number = number
        self.updated_at_ms = now_ms
        self.drop_lease()

    def drop_lease(self) -> None:
        self.leased = False
        self.token = None

    def fail(self, error: str | None) -> None:
        """Keep the last error, cut between characters to the store's limit."""
        if error is not None:
            self.last_error = error.encode()[:MAX_ERROR_BYTES].decode(errors="ignore")

    def end(self, state: State, reason: Reason | None, now_ms: int, token: str | None = None) -> None:
        """End the job now. Done and cancelled jobs become tombstones. `token`: the holder's, who may repeat the ack."""
        self.drop_lease()
        self.ended, self.reason, self.ended_at_ms, self.token = state, reason, now_ms, token
        self.updated_at_ms = now_ms
        if self.group is not None:
            self.group.open = False
        if state is not State.DEAD and not self.policy.keep_body:
            self.drop_body()

    def drop_body(self) -> None:
        """Leave a tombstone: the content is dropped, only the fact that the job existed is kept."""
        self.body, self.headers, self.tags, self.edited_at_ms = None, b"", (), None
        if self.group is not None:
            self.group.items = []

    @property
    def size(self) -> int:
        """Bytes of the body, or of all items."""
        return len(self.body or b"") if self.group is None else self.group.bytes

    def items(self) -> tuple[Item, ...] | None:
        """The items of a group; None for a tombstone and for any other job."""
        return None if self.group is None or self.body is None else tuple(item for _, item in self.group.items)


class Status(msgspec.Struct, frozen=True):
    """The state of a record at a moment. `at_ms`: since when (for scheduled and leased: until when)."""

    state: State
    reason: Reason | None
    at_ms: int
    retain_until_ms: int | None = None

    @property
    def live(self) -> bool:
        return self.retain_until_ms is None


def judged(record: Record, now_ms: int) -> Status:
    """The record's state at `now_ms`, even if its retention is over."""
    if record.ended is None:
        verdict = judge(
            leased=record.leased,
            time_ms=record.time_ms,
            attempts=record.attempts,
            max_attempts=record.policy.max_attempts,
            expires_at_ms=record.expires_at_ms,
            now_ms=now_ms,
        )
        if verdict.state is not State.DEAD:
            return Status(verdict.state, None, verdict.at_ms)
        state, reason, at_ms = verdict.state, verdict.reason, verdict.at_ms
    else:
        state, reason, at_ms = record.ended, record.reason, record.ended_at_ms
    policy = record.policy
    return Status(state, reason, at_ms, at_ms + (policy.dead_retain_ms if state is State.DEAD else policy.retain_ms))


def look(record: Record, now_ms: int) -> Status | None:
    """The record's state at `now_ms`. None: its retention is over, so for every caller it is gone."""
    status = judged(record, now_ms)
    return None if status.retain_until_ms is not None and status.retain_until_ms <= now_ms else status


def is_overdue(record: Record, status: Status, now_ms: int) -> bool:
    """Whether it is leased and its ttl has passed. It is not delivered again; only its holder can still ack it."""
    return status.state is State.LEASED and record.expires_at_ms is not None and record.expires_at_ms <= now_ms


def job_of(record: Record, status: Status, body: bool) -> Job:
    """The record as a Job."""
    ended_at_ms = None if status.live else status.at_ms
    return Job(
        id=record.id,
        topic=record.topic,
        state=status.state,
        reason=status.reason,
        body=record.body if body and record.group is None else None,
        kind=record.kind,
        headers=record.headers,
        tags=record.tags,
        due_at_ms=record.due_at_ms,
        created_at_ms=record.created_at_ms,
        updated_at_ms=record.updated_at_ms if ended_at_ms is None else ended_at_ms,
        ended_at_ms=ended_at_ms,
        deliveries=record.deliveries,
        refunds=record.refunds,
        policy=record.policy,
        expires_at_ms=record.expires_at_ms,
        lease_until_ms=record.time_ms if status.state is State.LEASED else None,
        retain_until_ms=status.retain_until_ms,
        version=record.number,
        last_error=record.last_error,
        merge_key=None if record.group is None else record.group.key,
        items=record.items() if body else None,
        ttl_ms=record.ttl_ms if record.body is not None else None,
        progress=record.progress,
    )


def leased_job_of(record: Record, token: str, late_ms: int) -> LeasedJob:
    """The record as a LeasedJob for its new holder."""
    return LeasedJob(
        id=record.id,
        topic=record.topic,
        body=record.body or b"",
        kind=record.kind,
        headers=record.headers,
        tags=record.tags,
        attempt=record.attempts,
        delivery=record.deliveries,
        max_attempts=record.policy.max_attempts,
        lease=token,
        lease_until_ms=record.time_ms,
        due_at_ms=record.due_at_ms,
        created_at_ms=record.created_at_ms,
        late_ms=late_ms,
        merge_key=None if record.group is None else record.group.key,
        items=record.items(),
        expires_at_ms=record.expires_at_ms,
        ttl_ms=record.ttl_ms,
        version=record.number,
        progress=record.progress,
    )


def servable_from_ms(record: Record, now_ms: int) -> int | None:
    """The time from which a pull could take it if nothing else happens; None: never."""
    status = look(record, now_ms)
    if status is None or not status.live:
        return None
    if record.leased and record.exhausted:
        return None
    if record.expires_at_ms is not None and record.expires_at_ms <= record.time_ms:
        return None
    return record.time_ms


def tidy_from_ms(record: Record) -> int | None:
    """When it will end or be removed without a call: by ttl, lease of the last attempt, or retention. None: never."""
    policy = record.policy
    if record.ended is not None:
        return record.ended_at_ms + (policy.dead_retain_ms if record.ended is State.DEAD else policy.retain_ms)
    if record.leased and record.exhausted:
        return record.time_ms
    if record.expires_at_ms is None:
        return None
    return max(record.expires_at_ms, record.time_ms) if record.leased else record.expires_at_ms


def due_ms(now_ms: int, delay_ms: int | None, at_ms: int | None) -> int:
    """A due time as stored: never before now, and never after the last representable day."""
    asked_ms = now_ms + (delay_ms or 0) if at_ms is None else at_ms
    return min(max(asked_ms, now_ms), LAST_MS)

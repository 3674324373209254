"""The job as every layer sees it. No I/O.

`ready` is not stored anywhere: a job is ready when it is not leased and its due time has come. All the
values here are frozen; layers exchange them and never change them.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

import msgspec

from .policy import JobPolicy


class State(StrEnum):
    """The six states of a job (`lifecycle` holds the moves between them)."""

    SCHEDULED = "scheduled"
    READY = "ready"
    LEASED = "leased"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"


LIVE = frozenset({State.SCHEDULED, State.READY, State.LEASED})
ENDED = frozenset({State.DONE, State.DEAD, State.CANCELLED})


class Reason(StrEnum):
    """Why a job is dead."""

    EXHAUSTED = "exhausted"
    EXPIRED = "expired"
    REJECTED = "rejected"
    CORRUPT = "corrupt"


class BodyKind(IntEnum):
    """How a body was sent, so that it is returned in the same form. The store keeps opaque bytes."""

    JSON = 0
    TEXT = 1
    BYTES = 2


class Item(msgspec.Struct, frozen=True):
    """One part of a merge group: the body of one send."""

    body: bytes
    kind: BodyKind
    id: str | None = None


class Partition(msgspec.Struct, frozen=True, cache_hash=True):
    """A part of a topic with its own keys in the store.

    `namespace_ids` is True in a namespace whose ids are unique over all its topics. There the keys belong to the
    namespace and are shared by all its topics.
    """

    namespace: str
    topic: str
    number: int = 0
    namespace_ids: bool = False


class Job(msgspec.Struct, frozen=True):
    """One job as the store sees it at one moment. Its state is derived from the record and that moment.

    `deliveries` only grows; `attempts` = deliveries minus refunds. Fields that do not apply are None.
    Tombstones (done, cancelled) have body None unless the policy keeps bodies.
    """

    id: str
    topic: str
    state: State
    reason: Reason | None
    body: bytes | None
    kind: BodyKind
    headers: bytes  # opaque to the store; empty = none
    tags: tuple[str, ...]
    due_at_ms: int
    created_at_ms: int
    updated_at_ms: int
    ended_at_ms: int | None
    deliveries: int
    refunds: int
    policy: JobPolicy
    expires_at_ms: int | None  # first due time + ttl; not moved by retries
    lease_until_ms: int | None
    retain_until_ms: int | None
    version: int
    last_error: str | None
    merge_key: str | None = None
    items: tuple[Item, ...] | None = None  # of a group, in send order; its body is empty
    ttl_ms: int | None = None  # unknown for a tombstone without a body
    intact: bool = True  # False: the body is damaged; it is shown as bytes and never delivered
    progress: bytes = b""  # what the last holder left for the next one (Release.progress)

    @property
    def attempts(self) -> int:
        return self.deliveries - self.refunds

    @property
    def first_due_at_ms(self) -> int:
        """The due time that the ttl counts from, not moved by retries. Without a ttl, the current due time."""
        return first_due_at_ms(self.due_at_ms, self.expires_at_ms, self.ttl_ms)


class LeasedJob(msgspec.Struct, frozen=True):
    """A job delivered to a consumer under a lease."""

    id: str
    topic: str
    body: bytes
    kind: BodyKind
    headers: bytes
    tags: tuple[str, ...]
    attempt: int
    delivery: int
    max_attempts: int | None
    lease: str
    lease_until_ms: int
    due_at_ms: int
    created_at_ms: int
    late_ms: int  # the store's time of the pull - the time the job became deliverable
    merge_key: str | None = None
    items: tuple[Item, ...] | None = None  # of a group, in send order; its body is empty
    expires_at_ms: int | None = None
    ttl_ms: int | None = None
    version: int = 0
    progress: bytes = b""  # what the last holder left for this one (Release.progress)

    @property
    def first_due_at_ms(self) -> int:
        """See Job.first_due_at_ms."""
        return first_due_at_ms(self.due_at_ms, self.expires_at_ms, self.ttl_ms)


def first_due_at_ms(due_at_ms: int, expires_at_ms: int | None, ttl_ms: int | None) -> int:
    return due_at_ms if expires_at_ms is None or ttl_ms is None else expires_at_ms - ttl_ms

"""The shapes of native answers: what the encoder writes and what OpenAPI shows. No I/O.

A field that does not apply is null, not absent. The exception are alternatives: exactly one of `body`, `body_base64`
and `items` is present (none in a list without bodies).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

State = Literal["scheduled", "ready", "leased", "done", "dead", "cancelled"]
Reason = Literal["exhausted", "expired", "rejected", "corrupt"]


class Refusal(msgspec.Struct, frozen=True):
    """Why a request failed. `field` is a JSON path. `done` (503 only): false = nothing was done, null = unknown."""

    code: str
    message: str
    field: str | None
    done: bool | UnsetType | None = UNSET


class ErrorAnswer(msgspec.Struct, frozen=True):
    """Every error. With an unknown outcome it contains the id of the job, so that the call can be repeated safely."""

    error: Refusal
    id: str | UnsetType | None = UNSET


class Sent(msgspec.Struct, frozen=True):
    """A job that has been stored."""

    id: str
    topic: str
    result: Literal["created", "kept", "replaced", "appended"]
    state: State
    due_at_ms: int
    version: int
    items_count: int | None  # of a merge group


class Failed(msgspec.Struct, frozen=True):
    """An item of a batch call that failed."""

    id: str | None
    error: Refusal


class Job(msgspec.Struct, frozen=True):
    """A job at the moment of the answer."""

    id: str
    topic: str
    state: State
    reason: Reason | None
    body: Any | UnsetType
    body_base64: bytes | UnsetType | None
    items: list[Any] | UnsetType | None
    due_at_ms: int
    created_at_ms: int
    updated_at_ms: int
    ended_at_ms: int | None
    attempts: int
    max_attempts: int | None
    lease_ms: int | None
    lease_until_ms: int | None
    expires_at_ms: int | None
    retain_until_ms: int | None
    retry: dict[str, Any] | Literal["none"] | None
    tags: tuple[str, ...]
    headers: dict[str, str]
    merge_key: str | None
    version: int
    last_error: str | None


class LeasedJob(msgspec.Struct, frozen=True):
    """A job under a lease. `lease` is the token for ack, release and extend."""

    id: str
    topic: str
    body: Any | UnsetType
    body_base64: bytes | UnsetType | None
    items: list[Any] | UnsetType | None
    attempt: int
    delivery: int
    max_attempts: int | None
    lease: str
    lease_until_ms: int
    due_at_ms: int
    created_at_ms: int
    tags: tuple[str, ...]
    headers: dict[str, str]
    merge_key: str | None


class LeasedJobs(msgspec.Struct, frozen=True):
    """The jobs of a pull; empty if nothing was due."""

    jobs: list[LeasedJob]


class Acked(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    result: Literal["acked"] = "acked"


class Released(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    result: Literal["released"] = "released"
    due_at_ms: int


class Died(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    result: Literal["dead"] = "dead"
    reason: Reason | None


class Extended(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    result: Literal["extended"] = "extended"
    lease_until_ms: int


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    result: Literal["cancelled"] = "cancelled"


class Revived(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    result: Literal["revived"] = "revived"
    due_at_ms: int


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    result: Literal["purged"] = "purged"


class Fired(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    result: Literal["fired"] = "fired"
    due_at_ms: int
    version: int


class JobPage(msgspec.Struct, frozen=True):
    """One page. Even an empty page may have a cursor; null = this is the last page."""

    jobs: list[Job]
    next_cursor: str | None


class ByReason(msgspec.Struct, frozen=True):
    exhausted: int = 0
    expired: int = 0
    rejected: int = 0
    corrupt: int = 0


class DeadPage(msgspec.Struct, frozen=True):
    """One page of dead jobs, and their total number."""

    jobs: list[Job]
    next_cursor: str | None
    by_reason: ByReason


class BulkCancelled(msgspec.Struct, frozen=True):
    """`complete` is present, and false, only if the time limit of one call was reached: call again to continue."""

    matched: int
    cancelled: int
    dry_run: bool
    complete: bool | UnsetType = UNSET


class BulkRevived(msgspec.Struct, frozen=True):
    """`complete` is present, and false, only if the time limit of one call was reached: call again to continue."""

    matched: int
    revived: int
    dry_run: bool
    complete: bool | UnsetType = UNSET


class BulkPurged(msgspec.Struct, frozen=True):
    """`complete` is present, and false, only if the time limit of one call was reached: call again to continue."""

    matched: int
    purged: int
    dry_run: bool
    complete: bool | UnsetType = UNSET


class Counts(msgspec.Struct, frozen=True):
    scheduled: int
    ready: int
    leased: int
    done: int
    dead: int
    cancelled: int


class MergePolicy(msgspec.Struct, frozen=True):
    """null = the default."""

    quiet_ms: int | None
    max_wait_ms: int | None
    max_items: int | None
    update: Literal["once", "always"] | None


class OnDead(msgspec.Struct, frozen=True):
    """Where dead jobs are forwarded: exactly one of the two is set."""

    topic: str | UnsetType = UNSET
    url: str | UnsetType = UNSET


class Policy(msgspec.Struct, frozen=True):
    """null = server default. `by_worker` lists the fields that a worker set; an operator set the others."""

    lease_ms: int | None
    max_attempts: int | None
    ttl_ms: int | None
    retain_ms: int | None
    dead_retain_ms: int | None
    retry: dict[str, Any] | Literal["none"] | None
    on_conflict: Literal["reject", "keep", "replace"] | None
    merge: MergePolicy | None
    spread_ms: int | None
    max_body_bytes: int | None
    on_dead: OnDead | None
    by_worker: list[str]


class Topic(msgspec.Struct, frozen=True):
    """A topic's metrics and policy. `version` changes with its policy, its pause and its push target."""

    topic: str
    counts: Counts
    next_due_at_ms: int | None
    oldest_ready_at_ms: int | None
    waiters: int
    paused: bool
    paused_until_ms: int | None
    partitions: int
    policy: Policy
    version: int
    push: bool


class TopicPage(msgspec.Struct, frozen=True):
    """One page of topics."""

    topics: list[Topic]
    next_cursor: str | None


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """The topic is gone."""

    topic: str
    result: Literal["deleted"] = "deleted"


class Namespace(msgspec.Struct, frozen=True):
    """A namespace that has a topic."""

    namespace: str


class NamespacePage(msgspec.Struct, frozen=True):
    """One page of namespaces."""

    namespaces: list[Namespace]
    next_cursor: str | None


class Paused(msgspec.Struct, frozen=True):
    topic: str
    paused: bool
    paused_until_ms: int | None


class InfoView(msgspec.Struct, frozen=True):
    """Data about the server. `namespace` is that of the request. `auth` "none": tokens are not checked."""

    version: str
    namespace: str
    durability: str
    store: str
    limits: dict[str, int]
    clock_offset_ms: int
    auth: str = "none"

"""The answers of the native API. A handler makes them, HTTP encodes them, a client decodes them. No I/O.

A client ignores unknown fields and accepts unknown states and results, so it works with newer servers. A server writes
every field: one that does not apply is null, not absent. There are two exceptions. Of `body`, `body_base64` and `items`
exactly one is present (none in a list without bodies). An `Outcome` and a `Bulk` have only the fields of their kind. A
JSON body is kept as raw text (`msgspec.Raw`) and is returned byte for byte.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from ..durations import datetime_of
from .access_answers import AuditEntry as AuditEntry
from .access_answers import AuditPage as AuditPage
from .access_answers import SecretToken as SecretToken
from .access_answers import Token as Token
from .access_answers import TokenPage as TokenPage
from .history_answers import History as History
from .history_answers import HistoryEntry as HistoryEntry
from .live_answers import Event as Event
from .live_answers import EventPage as EventPage
from .live_answers import Worker as Worker
from .live_answers import Workers as Workers
from .live_answers import WorkerSeen as WorkerSeen
from .live_answers import WorkerStopped as WorkerStopped
from .overview_answers import Charts as Charts
from .overview_answers import Forecast as Forecast
from .overview_answers import GroupPage as GroupPage
from .overview_answers import OpenGroup as OpenGroup
from .overview_answers import Series as Series
from .overview_answers import TopicForecast as TopicForecast
from .payload import Payload
from .schedule_answers import JobTemplate as JobTemplate
from .schedule_answers import NextOccurrences as NextOccurrences
from .schedule_answers import Schedule as Schedule
from .schedule_answers import ScheduleDeleted as ScheduleDeleted
from .schedule_answers import SchedulePage as SchedulePage
from .schedule_answers import SchedulePaused as SchedulePaused
from .schema_hints import one_of
from .server_info import Access as Access
from .server_info import Info as Info
from .server_info import LimitUse as LimitUse
from .server_info import Readiness as Readiness
from .server_info import Shard as Shard

State = Annotated[str, one_of("scheduled", "ready", "leased", "done", "dead", "cancelled")]
Reason = Annotated[str, one_of("exhausted", "expired", "rejected", "corrupt")]
TargetState = Annotated[str, one_of("ok", "open", "half_open", "paused")]
Base64 = Annotated[str, Meta(extra_json_schema={"contentEncoding": "base64"})]
Retry = dict[str, Any] | Literal["none"]


class Refusal(msgspec.Struct, frozen=True):
    """Why a call, or one item of it, was refused. `field` is a JSON path. `done` (503 only): false = nothing was done,
    null = unknown."""

    code: str
    message: str
    field: str | None = None
    done: bool | UnsetType | None = UNSET


class ErrorAnswer(msgspec.Struct, frozen=True):
    """Every error. With an unknown outcome it contains the id of the job, so that the call can be repeated safely. With
    a version that does not match it may contain the current one."""

    error: Refusal
    id: str | UnsetType | None = UNSET
    version: int | UnsetType = UNSET


class Job(Payload, msgspec.Struct, frozen=True, kw_only=True):
    """A job as it was when the server answered."""

    id: str
    topic: str
    state: State
    reason: Reason | None = None
    body: Raw | UnsetType = UNSET
    body_base64: Base64 | UnsetType | None = UNSET
    items: tuple[Raw, ...] | UnsetType | None = UNSET
    due_at_ms: int
    created_at_ms: int
    updated_at_ms: int = 0
    ended_at_ms: int | None = None
    attempts: int = 0
    max_attempts: int | None = None
    lease_ms: int | None = None
    lease_until_ms: int | None = None
    expires_at_ms: int | None = None
    retain_until_ms: int | None = None
    retry: Retry | None = None
    tags: tuple[str, ...] = ()
    headers: dict[str, str] = {}
    merge_key: str | None = None
    version: int = 0
    last_error: str | None = None


class LeasedJob(Payload, msgspec.Struct, frozen=True, kw_only=True):
    """A leased job. `lease` is the token that ack, release and extend need."""

    id: str
    topic: str
    body: Raw | UnsetType = UNSET
    body_base64: Base64 | UnsetType | None = UNSET
    items: tuple[Raw, ...] | UnsetType | None = UNSET
    attempt: int
    delivery: int
    max_attempts: int | None = None
    lease: str
    lease_until_ms: int
    due_at_ms: int
    created_at_ms: int
    tags: tuple[str, ...] = ()
    headers: dict[str, str] = {}
    merge_key: str | None = None


class LeasedJobs(msgspec.Struct, frozen=True, omit_defaults=True):
    """The jobs that a pull leased; empty when nothing was due. `acked`: the results of its acks, in their order."""

    jobs: tuple[LeasedJob, ...]
    acked: tuple[Outcome, ...] = ()


class Sent(msgspec.Struct, frozen=True):
    """A job that has been stored. result: created | kept | replaced | appended. `items_count`: merge groups only."""

    id: str
    topic: str
    result: Annotated[str, one_of("created", "kept", "replaced", "appended")]
    state: State
    due_at_ms: int
    version: int
    items_count: int | None = None

    @property
    def due_at(self) -> datetime:
        """The due time in UTC."""
        return datetime_of(self.due_at_ms)


class Failed(msgspec.Struct, frozen=True):
    """An item of a batch call that failed."""

    id: str | None
    error: Refusal


class SentItem(msgspec.Struct, frozen=True):
    """One item of send_many: either a result or an error."""

    id: str | None = None
    topic: str | None = None
    result: str | None = None
    state: str | None = None
    due_at_ms: int | None = None
    version: int | None = None
    error: Refusal | None = None
    items_count: int | None = None

    @property
    def ok(self) -> bool:
        """Whether the call succeeded for this job."""
        return self.error is None


class SentMany(msgspec.Struct, frozen=True):
    """Results in the order of the request, as a client decodes them. In JSON, nothing but its fields distinguishes a
    Sent from a Failed, so `SentItem` has the fields of both."""

    results: tuple[SentItem, ...]


class SentResults(msgspec.Struct, frozen=True):
    """Results in the order of the request, as a server writes them. A client reads them as `SentMany`."""

    results: list[Sent | Failed]


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happened to one job in an ack, release, extend, cancel, fire, revive or purge."""

    id: str
    result: str | None = None
    reason: Reason | None = None
    due_at_ms: int | None = None
    lease_until_ms: int | None = None
    version: int | None = None
    error: Refusal | None = None

    @property
    def ok(self) -> bool:
        """Whether the call succeeded for this job."""
        return self.error is None


class Outcomes(msgspec.Struct, frozen=True):
    """Results in the order of the request."""

    results: tuple[Outcome, ...]


class Bulk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a call by filter did. One of cancelled, revived and purged is set. `complete` is present, and false, only if
    the time limit of one call was reached: call again to continue."""

    matched: int
    cancelled: int | None = None
    revived: int | None = None
    purged: int | None = None
    dry_run: bool
    complete: bool = True

    @property
    def changed(self) -> int:
        return next((n for n in (self.cancelled, self.revived, self.purged) if n is not None), 0)


class JobPage(msgspec.Struct, frozen=True):
    """One page of jobs. Even an empty page may have a cursor; null = this is the last page."""

    jobs: tuple[Job, ...]
    next_cursor: str | None = None


class ByReason(msgspec.Struct, frozen=True):
    """Dead jobs of a topic by reason."""

    exhausted: int = 0
    expired: int = 0
    rejected: int = 0
    corrupt: int = 0


class DeadPage(msgspec.Struct, frozen=True):
    """One page of dead jobs, and their total number by reason."""

    jobs: tuple[Job, ...]
    next_cursor: str | None = None
    by_reason: ByReason = ByReason()


class Counts(msgspec.Struct, frozen=True):
    """Jobs of a topic by state."""

    scheduled: int = 0
    ready: int = 0
    leased: int = 0
    done: int = 0
    dead: int = 0
    cancelled: int = 0


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
    retry: Retry | None
    on_conflict: Literal["reject", "keep", "replace"] | None
    merge: MergePolicy | None
    spread_ms: int | None
    max_body_bytes: int | None
    on_dead: OnDead | None
    by_worker: list[str]


class Expansion(msgspec.Struct, frozen=True):
    """How far a topic's expansion is: its old partitions, and how many of the 1,024 cells of ids still have jobs there.
    Calls with ids of other cells go to the new partitions only."""

    old_partitions: int
    cells: int


class Topic(msgspec.Struct, frozen=True):
    """A topic's counts and policy. The policy is kept as the server wrote it; its `by_worker` names the fields that a
    worker set. `version` changes with the policy, the partitions, the paused flag and the push target. `expansion`:
    null unless partitions were added and old ones still hold jobs. `bands`, if they were asked for: how many scheduled
    jobs are due within each time of `bands_ms` and not within an earlier one, and all later ones. `done_per_s` and
    `late_p99_ms`: jobs that were acked, and how late 99 % of the deliveries were at most, in the last five full
    minutes, on all servers; null: not known, or nothing was delivered. `history_dropped`: entries of the jobs'
    histories that did not fit the budget."""

    topic: str
    counts: Counts
    next_due_at_ms: int | None = None
    oldest_ready_at_ms: int | None = None
    waiters: int = 0
    paused: bool = False
    paused_until_ms: int | None = None
    partitions: int = 1
    policy: dict[str, Any] = {}
    version: int | None = None
    push: bool = False
    expansion: Expansion | None = None
    bands: tuple[int, ...] | None = None
    done_per_s: float | None = None
    late_p99_ms: float | None = None
    history_dropped: int = 0


class TopicPage(msgspec.Struct, frozen=True):
    """One page of topics."""

    topics: tuple[Topic, ...]
    next_cursor: str | None = None


class TopicDeleted(msgspec.Struct, frozen=True):
    """The answer to the deletion of a topic."""

    topic: str
    result: Annotated[str, one_of("deleted")] = "deleted"


class Namespace(msgspec.Struct, frozen=True):
    """A namespace with at least one topic."""

    namespace: str


class NamespacePage(msgspec.Struct, frozen=True):
    """One page of namespaces."""

    namespaces: tuple[Namespace, ...]
    next_cursor: str | None = None


class Paused(msgspec.Struct, frozen=True):
    """The answer to pause and resume."""

    topic: str
    paused: bool
    paused_until_ms: int | None = None


class Breaker(msgspec.Struct, frozen=True):
    """After `failures` failed calls in a row, calls stop for `open_ms`."""

    failures: int
    open_ms: int


class Push(msgspec.Struct, frozen=True, kw_only=True):
    """A push target and its state. Secrets are shown as whsec_...last4; credentials in headers are masked the same way.

    `success` null: every 2xx. `rate_per_s` null: no limit. `breaker` null: none. `in_flight`: leased jobs of the topic.
    """

    url: str | None = None
    service: str | None = None
    method: str = "POST"
    headers: dict[str, str] = {}
    timeout_ms: int | None = None
    concurrency: int = 0
    rate_per_s: float | None = None
    success: tuple[int, ...] | None = None
    retry: Retry | None = None
    breaker: dict[str, Any] | None = None
    secrets: tuple[str, ...] = ()
    paused: bool = False
    state: TargetState
    in_flight: int = 0
    last_error: str | None = None


class PushRemoved(msgspec.Struct, frozen=True):
    """The answer to the removal of a push target."""

    topic: str
    result: Annotated[str, one_of("removed")] = "removed"


class Attempt(msgspec.Struct, frozen=True):
    """One call to a push target. `status` null: no answer came, see `error`. `excerpt`: the beginning of the answer of
    a failed call."""

    id: str
    attempt: int
    at_ms: int
    status: int | None = None
    duration_ms: int = 0
    error: str | None = None
    excerpt: str | None = None


class AttemptPage(msgspec.Struct, frozen=True):
    """One page of calls, newest first. Even an empty page may have a cursor; null = this is the last page."""

    attempts: tuple[Attempt, ...]
    next_cursor: str | None = None

"""Commands from a dialect to the engine: frozen values, free of wire formats. No I/O.

Where the foreign protocols disagree, the difference is a field here (`on_conflict`, `on_ended`, `lease_ms`,
`max_attempts`, `retain_ms`, `wait_ms` ...), filled by the dialect. There is no `if dialect` in the engine.
UNSET means "not given": the topic's policy applies, then the server default. None is an explicit "none". A job always
has a retry policy, so its explicit "none" is `policy.AT_ONCE`.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from .fence import Occurrence
from .job import BodyKind, State
from .policy import Retry, TopicPolicy
from .store import MergeUpdate, OnConflict


class MergeInto(msgspec.Struct, frozen=True):
    """Which group a send joins, and when that group is due. UNSET: the topic's policy applies, then the default."""

    key: str
    quiet_ms: int | UnsetType | None = UNSET
    max_wait_ms: int | UnsetType | None = UNSET
    max_items: int | UnsetType = UNSET
    update: MergeUpdate | UnsetType = UNSET
    item_id: str | None = None


class Send(msgspec.Struct, frozen=True):
    """Add a job. Give at most one of delay_ms and at_ms; neither, or a past time, means now. Without an id the engine
    makes one."""

    id: str | None
    body: bytes
    kind: BodyKind
    delay_ms: int | None = None
    at_ms: int | None = None
    lease_ms: int | UnsetType | None = UNSET
    ttl_ms: int | UnsetType | None = UNSET
    max_attempts: int | UnsetType | None = UNSET
    retry: Retry | UnsetType = UNSET
    on_conflict: OnConflict | None = None  # None: the topic's, else REJECT
    on_ended: OnConflict | None = None  # None: the same as on_conflict
    tags: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    retain_ms: int | None = None
    dead_retain_ms: int | None = None
    keep_body: bool = False
    merge: MergeInto | None = None  # join a group; excludes id and on_conflict
    max_body_bytes: int | None = None  # the protocol's own limit; the topic's policy takes precedence
    plain_id: bool = False  # the dialect has checked the id, by rules that are stricter than the engine's
    any_delay: bool = False  # the protocol has no maximum delay: later due times become the latest possible one
    on_overdue: OnConflict | None = None  # for a leased job whose ttl has passed; None: the same as on_conflict
    occurrence: Occurrence | None = None  # of a schedule (engine.schedule_runner)


class Sent(msgspec.Struct, frozen=True):
    """result: created | kept | replaced | appended."""

    id: str
    topic: str
    result: str
    state: State
    due_at_ms: int
    version: int
    items_count: int | None = None  # groups only


class Pull(msgspec.Struct, frozen=True):
    """Take due jobs of one or several topics, in order of priority. wait_ms 0 = do not wait. `fails_fast`: a waiting
    pull ends at the first store failure; otherwise it retries until its time is up. `by`: the consumer's name, for the
    history of the jobs."""

    namespace: str
    topics: tuple[str, ...]
    max: int = 1
    lease_ms: int | None = None
    wait_ms: int = 0
    fails_fast: bool = False
    by: str | None = None


class Patch(msgspec.Struct, frozen=True):
    """Reschedule or edit. UNSET = leave unchanged; `retry` None = use the topic's. `version`: apply only if the job
    still has this version."""

    id: str
    delay_ms: int | None = None
    at_ms: int | None = None
    body: bytes | None = None
    kind: BodyKind | None = None
    lease_ms: int | UnsetType | None = UNSET
    ttl_ms: int | UnsetType | None = UNSET
    max_attempts: int | UnsetType | None = UNSET
    retry: Retry | UnsetType | None = UNSET
    tags: tuple[str, ...] | UnsetType = UNSET
    headers: tuple[tuple[str, str], ...] | UnsetType = UNSET
    version: int | None = None


class Filter(msgspec.Struct, frozen=True):
    """Which jobs a bulk call affects. The cost is the number of jobs that the most selective condition matches."""

    state: State | None = None
    tag: str | None = None
    due_after_ms: int | None = None
    due_before_ms: int | None = None


class Bulk(msgspec.Struct, frozen=True):
    """What a bulk call did. `complete` False: it ran out of time (2 s); call again to continue."""

    matched: int
    changed: int
    dry_run: bool
    complete: bool = True


class ExpansionView(msgspec.Struct, frozen=True):
    """The progress of an expansion: the number of old partitions, and of cells whose jobs they still hold."""

    old_partitions: int
    cells: int


class TopicView(msgspec.Struct, frozen=True):
    """A topic's counts, summed over its partitions, and its policy. paused_until_ms None: not paused, or paused without
    an end."""

    topic: str
    scheduled: int
    ready: int
    leased: int
    done: int
    dead: int
    cancelled: int
    next_due_at_ms: int | None
    oldest_ready_at_ms: int | None
    waiters: int
    paused: bool
    paused_until_ms: int | None
    partitions: int
    policy: TopicPolicy
    version: int  # of the topic's config: its policy, pause and push target
    push: bool
    dead_by_reason: dict[str, int]
    bands: tuple[int, ...] = ()  # scheduled jobs by how soon they are due, if requested
    expansion: ExpansionView | None = None  # None: all jobs are in the current partitions
    history_dropped: int = 0


class TopicPatch(msgspec.Struct, frozen=True):
    """PUT of a topic: the whole policy. `partitions`: at least as many as the topic has. `version`: apply only if the
    config still has this version.

    `of_worker`: a worker sends this; it changes only fields that are unset or were set by a worker
    (policy.with_worker)."""

    policy: TopicPolicy
    partitions: int | None = None
    version: int | None = None
    of_worker: bool = False

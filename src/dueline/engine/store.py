"""The store's interface. No I/O here, no Redis types and no keys.

An operation on jobs is one atomic call on one partition; most take many jobs. What belongs to no partition has an
interface of its own: `directory` (topics), `pushes` (log and circuit breaker of push targets), `audit`, `charts`,
`tokens`, `workers` and `stream` (events). `hook` tells what the calls have changed.

Two implementations pass one contract suite: `store.memory` (the readable reference) and `store.valkey` (Lua).

Time. Every operation happens at one moment `now` of the store's clock. New due times, deadlines and retention count
from `now` rounded up to a millisecond; what has passed is judged by `now` rounded down. So nothing is ever early.

Repeats. An implementation may repeat a call whose answer was lost; the repeated call returns the first call's answer.

Order. Jobs become deliverable by due time, then by send order, even within one millisecond.

Tokens. A lease token is current until the job is leased again, released, edited, replaced or ended. With a current
token, ack, release and extend succeed even after the deadline. The exception is the last attempt: its job is dead at
the deadline. `token=None` is for dialects without tokens: ack then accepts any live state, release any lease. Repeating
the ack that ended a job, with the same token, returns OK while its tombstone is readable.

Refusals are return values, not exceptions: each item has its own `Code`. Exceptions (`Unavailable`, `UnknownOutcome`,
`StoreFull`, `ClockStep`) concern the whole call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from enum import IntEnum
from typing import Protocol

import msgspec

from .audit_log import AuditLog
from .bands import Bands, ForecastPart
from .chart_store import ChartStore
from .completion import Done
from .directory import Directory
from .event_stream import EventStream
from .fence import Fence, Occurrence
from .history import History
from .job import BodyKind, Job, LeasedJob, Partition, Reason, State
from .open_groups import GroupPage
from .outcomes import OutcomeHook
from .policy import JobPolicy
from .push_log import PushLog
from .store_events import Events
from .token_store import TokenStore
from .worker_store import WorkerStore


class Code(IntEnum):
    """What happened to one item. The scripts use the same numbers (store/lua/lib/codes.lua)."""

    OK = 0
    CREATED = 1
    KEPT = 2
    REPLACED = 3
    APPENDED = 4
    DEAD = 5  # release: no attempts left or discarded
    NOT_FOUND = 10
    ID_EXISTS = 11
    LEASE_LOST = 12
    JOB_LEASED = 13
    ALREADY_DONE = 14
    VERSION_MISMATCH = 15
    BROKEN = 16
    ELSEWHERE = 17  # namespaces with `namespace_ids`: the id is used in another topic
    MOVED = 18  # send: the partition is closed and does not hold the id; send to the current one


class OnConflict(IntEnum):
    """What a send does when its id is taken."""

    REJECT = 0  # an identical request (by fingerprint) returns KEPT, a different one is refused
    KEEP = 1
    REPLACE = 2


class Spare(IntEnum):
    """Which live jobs a cancel leaves alone."""

    NONE = 0
    LEASED = 1  # answered JOB_LEASED
    OVERDUE = 2  # a leased job whose ttl has passed counts as ended: ALREADY_DONE, and `forget` removes it


class MergeUpdate(IntEnum):
    """Whether the fixed time of a later send changes the due time of its group."""

    ONCE = 0  # the first send's time stays
    ALWAYS = 1  # the newest send's time applies


class Merge(msgspec.Struct, frozen=True):
    """Join the open group of `key`, or open one. Each send requests a due time for the group: now + `quiet_ms`, else
    the fixed time of its item under the rule `update`. The send that opens the group sets `max_wait_ms` (counted from
    the opening), `max_items`, policy, ttl, tags and headers. `item_id`: if a readable group of the key already has an
    item with this id, the item is not added again (KEPT).

    A failed group moves its items to the open group of its key if they fit. This happens when it fails (at its release,
    or when a pull finds its lease expired) while a group is open, or when a send opens one while it waits for its
    retry. The items of both are then in send order. The failed group ends as cancelled, and its release returns the due
    time of the open one."""

    key: str
    quiet_ms: int | None = None
    max_wait_ms: int | None = None
    max_items: int = 1000
    max_bytes: int = 256 * 1024  # of all items; an item that does not fit closes the group and opens another
    update: MergeUpdate = MergeUpdate.ONCE
    item_id: str | None = None
    waits_when_full: bool = False  # a full group is closed and waits for its due time; otherwise it is due at once


class SendItem(msgspec.Struct, frozen=True):
    """One job to store. at_ms applies if it is not None, else delay_ms.

    With `merge` it is an item of a group: `body` and `kind` are the item's, and `id` is for the group if it is new.
    With `occurrence` the partition's fence decides first (engine.fence), and an id that is taken is always refused.
    `replaces`: replace the live job with this version, and keep its progress; 0: there must be none. Otherwise nothing
    is done (VERSION_MISMATCH), whatever the conflict rules say."""

    id: str
    body: bytes
    kind: BodyKind
    delay_ms: int
    at_ms: int | None
    policy: JobPolicy
    ttl_ms: int | None
    on_live: OnConflict
    on_ended: OnConflict
    fingerprint: int  # 64 bits over the request as given (times, policy, tags, headers, body)
    tags: tuple[str, ...] = ()
    headers: bytes = b""
    merge: Merge | None = None
    on_overdue: OnConflict | None = None  # for a leased job whose ttl has passed; None: as on_live
    occurrence: Occurrence | None = None
    replaces: int | None = None


class SendOutcome(msgspec.Struct, frozen=True):
    """code: CREATED KEPT REPLACED APPENDED ID_EXISTS ELSEWHERE VERSION_MISMATCH MOVED. The other fields describe the
    job that now has the id. For a merge they include the group's id and its number of items. If a fence decided,
    `due_at_ms` and `version` are the fence's, and the state is DONE. VERSION_MISMATCH: `version` is the current one,
    0 = none. MOVED: `version` is the one that the partition was closed with, or a later policy version."""

    code: Code
    state: State
    due_at_ms: int
    version: int
    elsewhere: str | None = None
    group: str | None = None
    items_count: int = 0


class Credit(msgspec.Struct, frozen=True):
    """One waiter's request: up to `max` jobs, leased for lease_ms (None: the job's own, else the call's default)."""

    max: int
    lease_ms: int | None
    by: str | None = None  # its name, for the history of the jobs
    actor: str = ""  # for events: its name, else who makes the call (engine.outcomes)


class Pull(msgspec.Struct, frozen=True):
    """Take due jobs for several waiters at once, in order. `wait_ms` > 0: the caller waits on and wants wake-ups."""

    credits: tuple[Credit, ...]
    default_lease_ms: int
    wait_ms: int = 0


class PullOutcome(msgspec.Struct, frozen=True):
    """`jobs[i]` goes to the waiter whose credit covers position i. `next_ms`: the earliest time at which another pull
    could return a job (None: only after a wake-up). `more`: this call reached its bound; pull again at once. `on_duty`:
    this process serves the partition first; others wait a little longer (store.valkey). `policy_version`: the version
    of the topic's config that the partition has; 0: none."""

    jobs: list[LeasedJob]
    next_ms: int | None
    more: bool
    now_ms: int
    on_duty: bool = True
    deaths: tuple[Reason, ...] = ()
    leases_lost: int = 0  # how many of the jobs had a lease that expired
    policy_version: int = 0


class Ref(msgspec.Struct, frozen=True):
    """A job and, where the caller has one, its lease token."""

    id: str
    token: str | None = None


class Release(msgspec.Struct, frozen=True):
    """Give a leased job back: after delay_ms, or at at_ms; if both are None, the retry policy decides. `count` False:
    costs no attempt (at most 100 times for a job with max_attempts); with delay_ms 0 the job then returns to its old
    place in the order. `dead`: end it as REJECTED or CORRUPT instead. A release on the last attempt ends it as
    EXHAUSTED. `progress`: a small text that stays with the job for its next holder; None: leave it as it is."""

    id: str
    token: str | None
    delay_ms: int | None = None
    error: str | None = None
    count: bool = True
    dead: Reason | None = None
    jitter_draw: float = 0.0
    at_ms: int | None = None
    progress: bytes | None = None


class Extend(msgspec.Struct, frozen=True):
    """Keep the lease until now + lease_ms; never shortens it."""

    id: str
    token: str
    lease_ms: int


class Outcome(msgspec.Struct, frozen=True):
    """What ack, release, extend, cancel, edit, revive or purge did to a job. `at_ms`: its new due time or deadline."""

    code: Code
    at_ms: int = 0
    reason: Reason | None = None
    version: int = 0


class Edit(msgspec.Struct, frozen=True):
    """Change a scheduled or ready job; None = leave unchanged. Gives it a new version and a new place in the order.
    `at_ms` 0 = now (fire). `ttl_ms` counts from the (new) due time; 0 = none."""

    id: str
    version: int | None = None
    delay_ms: int | None = None
    at_ms: int | None = None
    body: bytes | None = None
    kind: BodyKind | None = None
    headers: bytes | None = None
    tags: tuple[str, ...] | None = None
    ttl_ms: int | None = None
    policy: JobPolicy | None = None  # the whole policy, computed by the engine from the job's own; only with `version`


class Query(msgspec.Struct, frozen=True):
    """One page of jobs. `state` None: all states. `cursor` b"" = from the beginning."""

    state: State | None = None
    tag: str | None = None
    merge_key: str | None = None  # live groups of this key, open or closed; excludes the other conditions
    due_after_ms: int | None = None
    due_before_ms: int | None = None
    cursor: bytes = b""
    limit: int = 50
    body: bool = False
    newest: bool = False  # the latest deaths first; only with the state DEAD, and without a tag


class Page(msgspec.Struct, frozen=True):
    """A page may be empty and still have a cursor, because one call inspects at most 500 entries."""

    jobs: list[Job]
    cursor: bytes | None
    now_ms: int


class Stats(msgspec.Struct, frozen=True):
    """Counts of one partition (no scans). `ready` may include jobs that died since the last clean-up (up to 10 s)."""

    scheduled: int
    ready: int
    leased: int
    done: int
    dead: int
    cancelled: int
    broken: int
    next_due_at_ms: int | None
    oldest_ready_at_ms: int | None
    paused_until_ms: int | None  # None: not paused; LAST_MS: until resumed
    waiting: bool  # some process has a waiter
    dead_by_reason: dict[str, int]
    now_ms: int
    bands: tuple[int, ...] = ()
    history_bytes: int = 0  # engine.history
    history_dropped: int = 0  # entries that did not fit, ever


class Control(msgspec.Struct, frozen=True):
    """Change a partition's copy of its topic's settings; None = leave unchanged. `pause_until_ms` 0 = resume.

    `closed`: whether the partition takes no new ids (engine.expansion). It still serves the jobs that it holds: it
    applies the conflict rules to their ids and adds items to their open groups. It answers MOVED to any other send, and
    also drops a done or cancelled job that the send would replace. Ignored if the partition has a newer policy version.
    With `namespace_ids` the topics of a partition share its ids, so it is closed for all of them, by a control of the
    topic "" with the version of the namespace's map; its other fields are ignored.
    """

    pause_until_ms: int | None = None
    max_in_flight: int | None = None  # 0 = no limit
    rate_per_s: float | None = None  # deliveries a second; 0 = no limit
    policy_version: int | None = None
    closed: bool | None = None  # needs `policy_version`


class Revive(msgspec.Struct, frozen=True):
    """Make dead jobs live again, with no attempts used. ids None: the `limit` oldest."""

    ids: tuple[str, ...] | None
    limit: int = 0
    delay_ms: int = 0
    max_attempts: int | None = None
    set_max_attempts: bool = False


class Purge(msgspec.Struct, frozen=True):
    """Delete ended jobs. ids None: the `limit` oldest dead ones."""

    ids: tuple[str, ...] | None
    limit: int = 0


class CleanOutcome(msgspec.Struct, frozen=True):
    """What one bounded clean-up step recorded. `next_ms`: when the next work is due, None = never; `more`: now."""

    expired: int
    exhausted: int
    purged: int
    dead_trimmed: int
    next_ms: int | None
    more: bool


class Store(Protocol):
    """All operations that the engine needs from a store."""

    @property
    def directory(self) -> Directory: ...
    @property
    def pushes(self) -> PushLog: ...
    @property
    def audit(self) -> AuditLog: ...
    @property
    def charts(self) -> ChartStore: ...
    @property
    def tokens(self) -> TokenStore: ...
    @property
    def stream(self) -> EventStream: ...
    @property
    def workers(self) -> WorkerStore: ...
    @property
    def hook(self) -> OutcomeHook: ...
    @property
    def events(self) -> Events | None: ...  # receives the callbacks; set by the engine
    @events.setter
    def events(self, events: Events | None) -> None: ...

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def now_ms(self) -> int: ...  # this process's estimate of the store's clock (no call)

    async def watch(self, partition: Partition) -> None:
        """Call `events.woken` for this partition from now on."""

    async def unwatch(self, partition: Partition) -> None: ...

    async def watch_topics(self) -> None: ...  # call `events.topic_changed` from now on

    def send(
        self, partition: Partition, items: Sequence[SendItem], policy_version: int = 0
    ) -> Awaitable[list[SendOutcome]]: ...
    def pull(self, partition: Partition, pull: Pull) -> Awaitable[PullOutcome]: ...
    def ack(self, partition: Partition, items: Sequence[Ref]) -> Awaitable[list[Outcome]]: ...
    # The same without a coroutine (engine.completion), for plain jobs.
    def post_send(self, partition: Partition, items: Sequence[SendItem], policy_version: int, done: Done) -> None: ...
    def post_pull(self, partition: Partition, pull: Pull, done: Done) -> None: ...
    def post_ack(self, partition: Partition, items: Sequence[Ref], done: Done) -> None: ...
    async def release(self, partition: Partition, items: Sequence[Release]) -> list[Outcome]: ...
    async def extend(self, partition: Partition, items: Sequence[Extend]) -> list[Outcome]: ...
    async def cancel(
        self, partition: Partition, ids: Sequence[str], forget: bool = False, spare: Spare = Spare.NONE
    ) -> list[Outcome]:
        """Returns OK even if the job was already cancelled, ALREADY_DONE if it is done or dead."""
        ...

    async def edit(self, partition: Partition, items: Sequence[Edit]) -> list[Outcome]: ...
    async def read(self, partition: Partition, ids: Sequence[str], body: bool = True) -> list[Job | None]: ...
    async def history(self, partition: Partition, id: str) -> History | None: ...  # None: there is no such job
    async def list(self, partition: Partition, query: Query) -> Page: ...
    async def groups(self, partition: Partition, cursor: bytes, limit: int) -> GroupPage:
        """Open merge groups, by the size of their key, then by key. Their items are not read."""
        ...

    async def stored_ids(self, partition: Partition, limit: int) -> frozenset[str] | None:
        """The ids of all jobs in a partition, in any state, even if only their clean-up is missing. None: there are
        more than `limit`. With `namespace_ids`: of all topics."""
        ...

    async def forecast(self, parts: Sequence[ForecastPart], edges_ms: Sequence[int]) -> Bands: ...
    async def stats(self, partition: Partition, edges_ms: Sequence[int] = (), from_now: bool = False) -> Stats:
        """`bands[i]`: the scheduled jobs due from edges_ms[i] on and before the next edge; the last has no end.
        With `from_now` the edges count from the first moment after now, otherwise they are times. At most 65."""
        ...

    async def control(self, partition: Partition, control: Control) -> None: ...
    async def fence(self, partition: Partition, fences: Sequence[Fence]) -> list[Fence]:
        """Write fences, and return them as they are now."""
        ...

    async def fences(self, partition: Partition, cursor: bytes = b"") -> tuple[list[Fence], bytes | None]:
        """One page of the partition's fences, and the cursor of the next one. A fence that exists from the
        first page to the last is on at least one page."""
        ...

    async def revive(self, partition: Partition, revive: Revive) -> list[tuple[str, Outcome]]: ...
    async def purge(self, partition: Partition, purge: Purge) -> list[tuple[str, Outcome]]: ...
    async def clean(self, partition: Partition, limit: int = 200) -> CleanOutcome: ...
    async def agenda_noted(self, partition: Partition, at_ms: int) -> None:
        """The directory now has a hint for this partition at that time. Completes `events.noted`."""

    async def retire(self, partition: Partition, topic_too: bool = False) -> bool:
        """Delete a partition's own data, if it has no jobs, fences, settings or waiters. Returns whether it did.

        `topic_too`: its topic is being deleted, so only jobs and fences prevent this. Pause, limits, policy version
        and the listed flag are dropped; waiters are still woken by the next send."""
        ...


class StalePolicy(Exception):
    """The send used an older policy than the partition has, or the partition dropped its topic because it was deleted.
    Nothing was done. Carries the partition's version, 0 if none."""

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.version = version

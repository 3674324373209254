"""The store's interface: fourteen whole operations on partitions. No I/O here, no redis type, no key.

Each operation is one atomic call on one partition (a topic in one partition) and takes many jobs. Two
implementations pass one contract suite: `store.memory` (the readable reference) and `store.valkey` (Lua).

Time. Every operation happens at one moment `now` of the store's clock. What begins is counted from the next whole
millisecond (due times, deadlines, retention), what is over is judged by the past one, so nothing is ever early.

Repeats. An implementation may repeat a call whose answer was lost; the repeat answers like the first call.

Order. Jobs become deliverable by due time, then by send order, also within one millisecond.

Tokens. A lease token is current until the job is leased again, released, edited, replaced or ended: with a current
token ack, release and extend succeed also after the deadline, except on the last attempt, whose job is dead at its
deadline. `token=None` (dialects without tokens) means: whoever holds it, in any live state for ack; leased for release.
An ack with the token of the ack that ended the job answers OK again while its tombstone is readable.

Refusals are answers, not exceptions: each item has its own `Code`. Exceptions (`Unavailable`, `UnknownOutcome`,
`StoreFull`, `ClockStep`) are about the whole call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from enum import IntEnum
from typing import Protocol

import msgspec

from .job import BodyKind, Job, LeasedJob, Partition, Reason, State
from .policy import JobPolicy
from .push_log import PushLog


class Code(IntEnum):
    """What happened to one item. The numbers are those of the scripts (store/lua/lib/codes.lua)."""

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
    ELSEWHERE = 17  # namespaces with `namespace_ids`: the id lives in another topic


class OnConflict(IntEnum):
    """What a send does when its id is taken."""

    REJECT = 0  # the same request again (fingerprint) is kept, another one is refused
    KEEP = 1
    REPLACE = 2


class Spare(IntEnum):
    """What a cancel leaves as it is, beside what has ended."""

    NONE = 0
    LEASED = 1  # answered JOB_LEASED
    OVERDUE = 2  # a leased job whose ttl is over counts as ended: ALREADY_DONE, and `forget` removes it


class MergeUpdate(IntEnum):
    """What a fixed time of a later send does to the time of its group."""

    ONCE = 0  # the first send's time stays
    ALWAYS = 1  # the newest one counts


class Merge(msgspec.Struct, frozen=True):
    """Join the open group of `key`, or open one. Each send brings its own wish for the time: `quiet_ms` (from now on),
    else the fixed time of its item, under the rule `update`. `max_wait_ms` (counted from the opening) and `max_items`
    are the opening send's; so are policy, ttl, tags and headers. `item_id`: an item that the key has already, in any
    group that is still readable, is not added again (KEPT).

    A group that fails while an open one of its key is there (at its release, or when a pull finds its over lease), or
    that waits for its retry when a send opens one, gives its items to that one if they fit. All stand there in send
    order; the giver ends as cancelled, and its release answers with the taker's due time."""

    key: str
    quiet_ms: int | None = None
    max_wait_ms: int | None = None
    max_items: int = 1000
    max_bytes: int = 256 * 1024  # of all items; an item that does not fit closes the group and opens the next one
    update: MergeUpdate = MergeUpdate.ONCE
    item_id: str | None = None
    waits_when_full: bool = False  # a full group takes no more and waits for its time; else it is due at once


class SendItem(msgspec.Struct, frozen=True):
    """One job to store. Exactly one of delay_ms / at_ms counts: at_ms when it is not None.

    With `merge` it is an item: `body` and `kind` are the item's, `id` is that of the group if one has to be opened.
    """

    id: str
    body: bytes
    kind: BodyKind
    delay_ms: int
    at_ms: int | None
    policy: JobPolicy
    ttl_ms: int | None
    on_live: OnConflict
    on_ended: OnConflict
    fingerprint: int  # 64 bits over the request as written (times, policy, tags, headers, body)
    tags: tuple[str, ...] = ()
    headers: bytes = b""
    merge: Merge | None = None
    on_overdue: OnConflict | None = None  # a leased job whose ttl is over; None: as on_live


class SendOutcome(msgspec.Struct, frozen=True):
    """code: CREATED KEPT REPLACED APPENDED ID_EXISTS ELSEWHERE. The rest describes the job that is there now.
    Of a merge also the group's id and the number of its items."""

    code: Code
    state: State
    due_at_ms: int
    version: int
    elsewhere: str | None = None
    group: str | None = None
    items_count: int = 0


class Credit(msgspec.Struct, frozen=True):
    """One waiter's wish: up to `max` jobs, leased for lease_ms (None: the job's own, else the call's default)."""

    max: int
    lease_ms: int | None


class Pull(msgspec.Struct, frozen=True):
    """Take due jobs for several waiters at once, in their order. `wait_ms` > 0: somebody waits on (wake-ups wanted)."""

    credits: tuple[Credit, ...]
    default_lease_ms: int
    wait_ms: int = 0


class PullOutcome(msgspec.Struct, frozen=True):
    """`jobs[i]` goes to the waiter whose credit covers place i. `next_ms`: the first moment at which another pull could
    give something (None: only a wake-up can change that). `more`: the bound ended this call, pull again at once.
    `on_duty`: this process serves the partition first; others wait a little longer (store.valkey)."""

    jobs: list[LeasedJob]
    next_ms: int | None
    more: bool
    now_ms: int
    on_duty: bool = True
    deaths: tuple[Reason, ...] = ()
    leases_lost: int = 0  # of the jobs: how many had an over lease before


class Ref(msgspec.Struct, frozen=True):
    """A job and, where the caller has one, its lease token."""

    id: str
    token: str | None = None


class Release(msgspec.Struct, frozen=True):
    """Give back. delay_ms None: the retry policy decides. `count` False: costs no attempt (at most 100 times a job);
    with delay_ms 0 the job then goes back to the place it had.
    `dead`: end it as REJECTED or CORRUPT instead. A release on the last counted attempt ends it as EXHAUSTED."""

    id: str
    token: str | None
    delay_ms: int | None = None
    error: str | None = None
    count: bool = True
    dead: Reason | None = None
    jitter_draw: float = 0.0


class Extend(msgspec.Struct, frozen=True):
    """Keep the lease until now + lease_ms; never shortens it."""

    id: str
    token: str
    lease_ms: int


class Outcome(msgspec.Struct, frozen=True):
    """Result of ack, release, extend, cancel, edit, revive, purge. `at_ms`: the new due time or deadline if any."""

    code: Code
    at_ms: int = 0
    reason: Reason | None = None
    version: int = 0


class Edit(msgspec.Struct, frozen=True):
    """Change a scheduled or ready job; None = leave it. Gives it a new version (and place in the order).
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
    policy: JobPolicy | None = None  # the whole policy, made by the engine from the job's own; only with `version`


class Query(msgspec.Struct, frozen=True):
    """One page of jobs. `state` None: every job that is there. `cursor` b"" = from the beginning."""

    state: State | None = None
    tag: str | None = None
    merge_key: str | None = None  # live groups of this key, open or closed; excludes the other conditions
    due_after_ms: int | None = None
    due_before_ms: int | None = None
    cursor: bytes = b""
    limit: int = 50
    body: bool = False


class Page(msgspec.Struct, frozen=True):
    """A page may be empty and still have a cursor: at most 500 entries are inspected a call."""

    jobs: list[Job]
    cursor: bytes | None
    now_ms: int


class Stats(msgspec.Struct, frozen=True):
    """Counts of one partition (no scans). `ready` may count a dead one for up to the clean-up grain (10 s)."""

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


class Control(msgspec.Struct, frozen=True):
    """Set what a partition knows about its topic; None = leave it. `pause_until_ms` 0 = resume."""

    pause_until_ms: int | None = None
    max_in_flight: int | None = None  # 0 = no limit
    rate_per_s: float | None = None  # deliveries a second; 0 = no limit
    policy_version: int | None = None


class Revive(msgspec.Struct, frozen=True):
    """Bring dead jobs back, attempts from 0. ids None: the `limit` oldest."""

    ids: tuple[str, ...] | None
    limit: int = 0
    delay_ms: int = 0
    max_attempts: int | None = None
    set_max_attempts: bool = False


class Purge(msgspec.Struct, frozen=True):
    """Forget ended jobs. ids None: the `limit` oldest dead ones."""

    ids: tuple[str, ...] | None
    limit: int = 0


class CleanOutcome(msgspec.Struct, frozen=True):
    """What one bounded clean-up step wrote down. `next_ms`: when the next work comes, None = none; `more`: at once."""

    expired: int
    exhausted: int
    purged: int
    dead_trimmed: int
    next_ms: int | None
    more: bool


class TopicEntry(msgspec.Struct, frozen=True):
    """A topic in the directory. `config` is the engine's own (policy, partitions, pause); version 0 = none."""

    namespace: str
    topic: str
    seen_ms: int
    version: int
    config: bytes


class Hint(msgspec.Struct, frozen=True):
    """Somewhere to tidy: a partition and a time."""

    partition: Partition
    at_ms: int


class Events(Protocol):
    """What a store tells its engine, from inside the event loop."""

    def woken(self, partition: Partition) -> None:
        """Something became deliverable earlier than the last `next_ms` said, or a wake-up may have been missed."""

    def noted(self, partition: Partition, at_ms: int) -> None:
        """There is clean-up work on this partition at that time which the directory does not know yet."""

    def unlisted(self, partition: Partition) -> None:
        """A call changed a partition that no directory entry is known for: register its topic."""

    def policy_changed(self, partition: Partition, version: int) -> None:
        """The partition knows a newer policy version than the call carried."""


DIRECTORY_PAGE = 100  # topics that one call shows


class Directory(Protocol):
    """Operation 14: what is known across partitions. Each method is one atomic call."""

    async def register(self, topics: Sequence[tuple[str, str]]) -> None:
        """List topics. Each registration, and each write of a config, gives a topic a later `seen_ms` than it had."""
        ...

    async def topic(self, namespace: str, topic: str) -> TopicEntry | None: ...
    async def topics(self, namespace: str | None, after: str, limit: int) -> list[TopicEntry]:
        """Topics by name, after `after`; at most DIRECTORY_PAGE a call."""
        ...

    async def set_config(
        self, namespace: str, topic: str, config: bytes, expected_version: int | None
    ) -> TopicEntry | None:
        """Write a topic's config, giving it the next version: one that no config had before, also not one of a topic
        that was removed. None: the version was not the expected one."""
        ...

    async def remove(self, namespace: str, topic: str, seen_ms: int, version: int = 0) -> bool:
        """Forget a topic, if nobody registered it since `seen_ms` and its config has this version (0: it has none)."""
        ...

    async def idle_topics(self, before_ms: int, limit: int) -> list[TopicEntry]: ...
    async def note(self, hints: Sequence[Hint]) -> None: ...
    async def take(self, limit: int, hold_ms: int) -> tuple[list[Hint], int | None]:
        """Due hints, each moved hold_ms ahead so that nobody else takes it meanwhile; and the time of the next one."""
        ...

    async def finish(self, taken: Sequence[Hint]) -> None:
        """Remove hints that were tidied (a later hint of the same partition is another entry)."""
        ...


class Store(Protocol):
    """Everything the engine may ask of a store."""

    @property
    def directory(self) -> Directory: ...
    @property
    def pushes(self) -> PushLog: ...
    @property
    def events(self) -> Events | None:
        """Whom to tell; set by the engine."""
        ...

    @events.setter
    def events(self, events: Events | None) -> None: ...

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def now_ms(self) -> int:
        """The store's clock as this process knows it (no call)."""
        ...

    async def watch(self, partition: Partition) -> None:
        """From now on `events.woken` is called for this partition."""
        ...

    async def unwatch(self, partition: Partition) -> None: ...

    def send(
        self, partition: Partition, items: Sequence[SendItem], policy_version: int = 0
    ) -> Awaitable[list[SendOutcome]]: ...
    async def pull(self, partition: Partition, pull: Pull) -> PullOutcome: ...
    def ack(self, partition: Partition, items: Sequence[Ref]) -> Awaitable[list[Outcome]]: ...
    async def release(self, partition: Partition, items: Sequence[Release]) -> list[Outcome]: ...
    async def extend(self, partition: Partition, items: Sequence[Extend]) -> list[Outcome]: ...
    async def cancel(
        self, partition: Partition, ids: Sequence[str], forget: bool = False, spare: Spare = Spare.NONE
    ) -> list[Outcome]:
        """OK also when it was cancelled before; ALREADY_DONE when done or dead."""
        ...

    async def edit(self, partition: Partition, items: Sequence[Edit]) -> list[Outcome]: ...
    async def read(self, partition: Partition, ids: Sequence[str], body: bool = True) -> list[Job | None]: ...
    async def list(self, partition: Partition, query: Query) -> Page: ...
    async def stats(self, partition: Partition, bands_ms: Sequence[int] = ()) -> Stats: ...
    async def control(self, partition: Partition, control: Control) -> None: ...
    async def revive(self, partition: Partition, revive: Revive) -> list[tuple[str, Outcome]]: ...
    async def purge(self, partition: Partition, purge: Purge) -> list[tuple[str, Outcome]]: ...
    async def clean(self, partition: Partition, limit: int = 200) -> CleanOutcome: ...
    async def agenda_noted(self, partition: Partition, at_ms: int) -> None:
        """The directory now has a hint for this partition at that time (second half of `events.noted`)."""
        ...

    async def retire(self, partition: Partition, topic_too: bool = False) -> bool:
        """Drop everything a partition keeps about itself if it holds no job, no pause, no policy and nobody waits.

        `topic_too`: its topic is being deleted, so it forgets pause, limits, policy version and that it is listed;
        whoever waits there is still woken by the next send. False: it holds jobs."""
        ...


class StalePolicy(Exception):
    """The send used an older topic policy than the partition knows, or one of a topic that the partition has forgotten
    because it was deleted; nothing was done. Carries the version that the partition knows, 0 if none."""

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.version = version

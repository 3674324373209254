"""One store under test: its clock, a partition of its own, and every operation in the fewest words.

    async with kit:
        await kit.send("a", delay_ms=1000)
        kit.clock.advance(1000)
        leased = await kit.pull_one()

Kinds: `memory`; `valkey` (unix socket); `cluster` (three primaries); `cluster with replicas` (one each) and `sentinel`
(a primary with two), both at `replicated`; `redis` (Debian's); `stressed`, a valkey whose every changing call is sent
twice, the second answer being used, and which is tidied after every move of the clock. None of it may show.
"""

from __future__ import annotations

import asyncio
import importlib
import uuid
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any
from zlib import crc32

from dueline.engine.directory import TopicChange
from dueline.engine.fence import Occurrence
from dueline.engine.history import History
from dueline.engine.job import BodyKind, Job, LeasedJob, Partition, State
from dueline.engine.policy import AT_ONCE, JobPolicy
from dueline.engine.store import (
    Code,
    Control,
    Credit,
    Edit,
    Extend,
    Merge,
    OnConflict,
    Outcome,
    Pull,
    PullOutcome,
    Purge,
    Query,
    Ref,
    Release,
    Revive,
    SendItem,
    SendOutcome,
    Stats,
    Store,
)
from dueline.store.memory import MemoryStore
from dueline.testing.clock import VirtualClock

SIGNAL_WITHIN_S = 5.0
KINDS = ("memory", "valkey", "stressed", "cluster")
SLOW_KINDS = ("cluster with replicas", "sentinel", "redis")
REPLICATED_KINDS = ("cluster with replicas", "sentinel")  # at the level that is the default there


class Recorder:
    """What the store reported to its engine."""

    def __init__(self) -> None:
        self.woken_partitions: list[Partition] = []
        self.notes: list[tuple[Partition, int]] = []
        self.unlisted_partitions: list[Partition] = []
        self.topic_changes: list[TopicChange | None] = []
        self._signal = asyncio.Event()

    def woken(self, partition: Partition) -> None:
        self.woken_partitions.append(partition)
        self._signal.set()

    def noted(self, partition: Partition, at_ms: int) -> None:
        self.notes.append((partition, at_ms))

    def unlisted(self, partition: Partition) -> None:
        self.unlisted_partitions.append(partition)

    def topic_changed(self, change: TopicChange | None) -> None:
        self.topic_changes.append(change)
        self._signal.set()

    def forget_wakes(self) -> None:
        self.woken_partitions.clear()
        self._signal.clear()

    def clear_signal(self) -> None:
        """Wait for the next one, and keep the wake-ups that came."""
        self._signal.clear()

    async def next_wake(self) -> None:
        """Returns when a wake-up has come since the last `forget_wakes`; fails when none comes."""
        await asyncio.wait_for(self._signal.wait(), SIGNAL_WITHIN_S)


def item(
    id: str,
    *,
    body: bytes = b"body",
    kind: BodyKind = BodyKind.TEXT,
    delay_ms: int = 0,
    at_ms: int | None = None,
    policy: JobPolicy | None = None,
    ttl_ms: int | None = None,
    on_live: OnConflict = OnConflict.REJECT,
    on_ended: OnConflict | None = None,
    on_overdue: OnConflict | None = None,
    fingerprint: int | None = None,
    tags: tuple[str, ...] = (),
    headers: bytes = b"",
    merge: Merge | None = None,
    occurrence: Occurrence | None = None,
    replaces: int | None = None,
    **numbers: Any,
) -> SendItem:
    """A send. Further words (`max_attempts=2`) belong to its policy, which retries at once unless it says `retry`; the
    fingerprint is made from all that is said."""
    policy = JobPolicy(**{"retry": AT_ONCE, **numbers}) if policy is None else policy
    if fingerprint is None:
        fingerprint = crc32(repr((body, kind, delay_ms, at_ms, policy, ttl_ms, tags, headers)).encode())
    return SendItem(
        id=id,
        body=body,
        kind=kind,
        delay_ms=delay_ms,
        at_ms=at_ms,
        policy=policy,
        ttl_ms=ttl_ms,
        on_live=on_live,
        on_ended=on_live if on_ended is None else on_ended,
        on_overdue=on_overdue,
        fingerprint=fingerprint,
        tags=tags,
        headers=headers,
        merge=merge,
        occurrence=occurrence,
        replaces=replaces,
    )


def valkey_store(url: str, clock: VirtualClock | None, **options: Any) -> Any:
    """The production store. Imported late: a store that cannot be imported fails its tests, not the collection."""
    return importlib.import_module("dueline.store.valkey.store").ValkeyStore(url, clock=clock, **options)


class StoreKit:
    """A started store of one kind, with a topic that no other test uses."""

    def __init__(self, kind: str, make: Callable[[VirtualClock], Store]) -> None:
        self.kind = kind
        self.clock = VirtualClock()
        self.partition = Partition("ns", f"t-{uuid.uuid4().hex}")
        self.store: Store
        self.events: Recorder
        self._make = make

    async def __aenter__(self) -> StoreKit:
        self.events = Recorder()
        self.store = self._make(self.clock)
        self.store.events = self.events
        if self.kind == "stressed":
            self.stress()
        await self.store.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.store.stop()

    def stress(self) -> None:
        """From now on every changing call is repeated."""
        store: Any = self.store
        store.repeat_changes(1)

    def calm(self) -> None:
        """For what a repeat need not answer: values that go into metrics only."""
        if self.kind == "stressed":
            store: Any = self.store
            store.repeat_changes(0)

    async def advance(self, ms: int) -> None:
        """Move the clock; a stressed store is tidied too, which nobody may notice."""
        self.clock.advance(ms)
        if self.kind == "stressed":
            await self.clean()

    async def send(self, id: str, **words: Any) -> SendOutcome:
        return (await self.store.send(self.partition, [item(id, **words)]))[0]

    async def send_many(self, items: Sequence[SendItem]) -> list[SendOutcome]:
        return await self.store.send(self.partition, items)

    async def pulled(
        self,
        max: int = 1000,
        *,
        lease_ms: int | None = None,
        default_lease_ms: int = 30_000,
        wait_ms: int = 0,
        by: str | None = None,
    ) -> PullOutcome:
        """One pull, as the store answers it."""
        return await self.store.pull(self.partition, Pull((Credit(max, lease_ms, by),), default_lease_ms, wait_ms))

    async def pull(self, max: int = 1000, *, lease_ms: int | None = None) -> list[LeasedJob]:
        """Everything that can be had now up to `max`, over as many calls as the bounds ask for."""
        jobs: list[LeasedJob] = []
        while len(jobs) < max:
            pulled = await self.pulled(max - len(jobs), lease_ms=lease_ms)
            jobs += pulled.jobs
            at_once = bool(pulled.jobs) and pulled.next_ms is not None and pulled.next_ms <= pulled.now_ms
            if not pulled.more and not at_once:
                break
        return jobs

    async def pull_ids(self, max: int = 1000, *, lease_ms: int | None = None) -> list[str]:
        return [leased.id for leased in await self.pull(max, lease_ms=lease_ms)]

    async def pull_one(self, *, lease_ms: int | None = None) -> LeasedJob:
        (leased,) = await self.pull(1, lease_ms=lease_ms)
        return leased

    async def ack(self, id: str, token: str | None = None) -> Code:
        return (await self.store.ack(self.partition, [Ref(id, token)]))[0].code

    async def release(self, id: str, token: str | None = None, **words: Any) -> Outcome:
        return (await self.store.release(self.partition, [Release(id, token, **words)]))[0]

    async def extend(self, id: str, token: str, lease_ms: int) -> Outcome:
        return (await self.store.extend(self.partition, [Extend(id, token, lease_ms)]))[0]

    async def cancel(self, id: str, **words: Any) -> Code:
        return (await self.store.cancel(self.partition, [id], **words))[0].code

    async def edit(self, id: str, **words: Any) -> Outcome:
        return (await self.store.edit(self.partition, [Edit(id, **words)]))[0]

    async def fire(self, id: str) -> Outcome:
        return await self.edit(id, at_ms=0)

    async def revive(self, *ids: str, **words: Any) -> list[tuple[str, Outcome]]:
        return await self.store.revive(self.partition, Revive(ids, **words))

    async def purge(self, *ids: str) -> list[tuple[str, Code]]:
        return [(id, done.code) for id, done in await self.store.purge(self.partition, Purge(ids))]

    async def control(self, **words: Any) -> None:
        await self.store.control(self.partition, Control(**words))

    async def read(self, id: str, *, body: bool = True) -> Job | None:
        return (await self.store.read(self.partition, [id], body))[0]

    async def job(self, id: str) -> Job:
        job = await self.read(id)
        assert job is not None, f"no job {id!r}"
        return job

    async def state(self, id: str) -> State | None:
        job = await self.read(id)
        return None if job is None else job.state

    async def history(self, id: str) -> History | None:
        return await self.store.history(self.partition, id)

    async def listed(self, *, after: bytes = b"", **words: Any) -> list[Job]:
        """All pages of a query, or those after a cursor."""
        jobs: list[Job] = []
        cursor: bytes | None = after
        while cursor is not None:
            page = await self.store.list(self.partition, Query(cursor=cursor, **words))
            jobs += page.jobs
            cursor = page.cursor
        return jobs

    async def listed_ids(self, **words: Any) -> list[str]:
        return [job.id for job in await self.listed(**words)]

    async def stats(self, edges_ms: Sequence[int] = (), from_now: bool = False) -> Stats:
        return await self.store.stats(self.partition, edges_ms, from_now)

    async def clean(self) -> None:
        """Tidy until nothing is left to write down now."""
        while (await self.store.clean(self.partition)).more:
            pass

    async def make_dead(self, id: str, **words: Any) -> None:
        """Send a job and use up its one attempt."""
        await self.send(id, **{"max_attempts": 1, **words})
        leased = next(leased for leased in await self.pull() if leased.id == id)
        assert (await self.release(id, leased.lease, error="no luck")).code is Code.DEAD


def another(kit: StoreKit) -> StoreKit:
    """A second process on the same store, partition and clock. In memory there is only one: it shares the store
    itself."""
    store: Any = kit.store
    other = StoreKit("memory", lambda _: store) if kit.kind == "memory" else valkey_kit(kit.kind, store.url)
    other.clock, other.partition = kit.clock, kit.partition
    return other


def memory_kit() -> StoreKit:
    return StoreKit("memory", MemoryStore)


def valkey_kit(kind: str, url: str, **options: Any) -> StoreKit:
    """A kit on a running server. `options` go to the store's constructor."""
    if kind in REPLICATED_KINDS:
        witness = importlib.import_module("dueline.store.valkey.witness")
        options = {"replication": witness.Replication(), **options}
    return StoreKit(kind, lambda clock: valkey_store(url, clock, **options))

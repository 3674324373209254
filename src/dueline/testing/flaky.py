"""A store with injected faults: it refuses calls, answers late, and loses answers, driven by a seed.

    refused    Unavailable: certainly not done
    lost       done, but the answer is lost: UnknownOutcome
    late       the answer is delayed (in the loop's time, so in virtual time on a virtual loop)

It wraps a real store, so the effects are real: a lost pull leaves its jobs leased until their leases expire. The same
seed and the same calls give the same faults.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from ..engine.audit_log import AuditLog
from ..engine.bands import Bands, ForecastPart
from ..engine.chart_store import ChartStore
from ..engine.directory import Directory
from ..engine.errors import StoreDown, UnknownOutcome
from ..engine.event_stream import EventStream
from ..engine.fence import Fence
from ..engine.history import History
from ..engine.job import Job, Partition
from ..engine.open_groups import GroupPage
from ..engine.outcomes import OutcomeHook
from ..engine.posts import PostedByTask
from ..engine.push_log import PushLog
from ..engine.store import (
    CleanOutcome,
    Control,
    Edit,
    Extend,
    Outcome,
    Page,
    Pull,
    PullOutcome,
    Purge,
    Query,
    Ref,
    Release,
    Revive,
    SendItem,
    SendOutcome,
    Spare,
    Stats,
    Store,
)
from ..engine.store_events import Events
from ..engine.token_store import TokenStore
from ..engine.worker_store import WorkerStore

T = TypeVar("T")


class Trouble(msgspec.Struct, frozen=True):
    """How much goes wrong: shares of the calls (0 to 1), and the longest delay of a late one."""

    seed: int = 0
    refused: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    late_ms: int = 2_000

    def __post_init__(self) -> None:
        for name in ("refused", "lost", "late"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: must be between 0 and 1, as a share of the calls")


class FlakyStore(PostedByTask):
    """An `engine.store.Store` that wraps another one. Calls on jobs may fail; the directory, the log and the tokens
    always work.

    `calm` turns the faults off, `stir` turns them on again."""

    def __init__(self, store: Store, trouble: Trouble) -> None:
        self.inner = store
        self.trouble = trouble
        self.counts = {"refused": 0, "lost": 0, "late": 0}
        self._dice = random.Random(trouble.seed)
        self._calm = False

    def calm(self) -> None:
        """Turn the faults off."""
        self._calm = True

    def stir(self) -> None:
        """Turn the faults on."""
        self._calm = False

    async def _through(self, call: Callable[[], Awaitable[T]]) -> T:
        if self._calm:
            return await call()
        refused, late, lost, share = (self._dice.random() for _ in range(4))
        if late < self.trouble.late:
            self.counts["late"] += 1
            await asyncio.sleep(share * self.trouble.late_ms / 1000)
        if refused < self.trouble.refused:
            self.counts["refused"] += 1
            raise StoreDown("the flaky store refused this call")
        result = await call()
        if lost < self.trouble.lost:
            self.counts["lost"] += 1
            raise UnknownOutcome("the flaky store lost the answer")
        return result

    # -- calls on jobs: may fail

    async def send(self, partition: Partition, items: Sequence[SendItem], policy_version: int = 0) -> list[SendOutcome]:
        return await self._through(lambda: self.inner.send(partition, items, policy_version))

    async def pull(self, partition: Partition, pull: Pull) -> PullOutcome:
        return await self._through(lambda: self.inner.pull(partition, pull))

    async def ack(self, partition: Partition, items: Sequence[Ref]) -> list[Outcome]:
        return await self._through(lambda: self.inner.ack(partition, items))

    async def release(self, partition: Partition, items: Sequence[Release]) -> list[Outcome]:
        return await self._through(lambda: self.inner.release(partition, items))

    async def extend(self, partition: Partition, items: Sequence[Extend]) -> list[Outcome]:
        return await self._through(lambda: self.inner.extend(partition, items))

    async def cancel(
        self, partition: Partition, ids: Sequence[str], forget: bool = False, spare: Spare = Spare.NONE
    ) -> list[Outcome]:
        return await self._through(lambda: self.inner.cancel(partition, ids, forget, spare))

    async def edit(self, partition: Partition, items: Sequence[Edit]) -> list[Outcome]:
        return await self._through(lambda: self.inner.edit(partition, items))

    async def revive(self, partition: Partition, revive: Revive) -> list[tuple[str, Outcome]]:
        return await self._through(lambda: self.inner.revive(partition, revive))

    async def purge(self, partition: Partition, purge: Purge) -> list[tuple[str, Outcome]]:
        return await self._through(lambda: self.inner.purge(partition, purge))

    async def read(self, partition: Partition, ids: Sequence[str], body: bool = True) -> list[Job | None]:
        return await self._through(lambda: self.inner.read(partition, ids, body))

    async def history(self, partition: Partition, id: str) -> History | None:
        return await self._through(lambda: self.inner.history(partition, id))

    async def list(self, partition: Partition, query: Query) -> Page:
        return await self._through(lambda: self.inner.list(partition, query))

    async def fence(self, partition: Partition, fences: Sequence[Fence]) -> list[Fence]:
        return await self._through(lambda: self.inner.fence(partition, fences))

    # -- the rest: passed through

    @property
    def directory(self) -> Directory:
        return self.inner.directory

    @property
    def pushes(self) -> PushLog:
        return self.inner.pushes

    @property
    def audit(self) -> AuditLog:
        return self.inner.audit

    @property
    def charts(self) -> ChartStore:
        return self.inner.charts

    @property
    def tokens(self) -> TokenStore:
        return self.inner.tokens

    @property
    def stream(self) -> EventStream:
        return self.inner.stream

    @property
    def workers(self) -> WorkerStore:
        return self.inner.workers

    @property
    def hook(self) -> OutcomeHook:
        return self.inner.hook

    @property
    def events(self) -> Events | None:
        return self.inner.events

    @events.setter
    def events(self, events: Events | None) -> None:
        self.inner.events = events

    async def start(self) -> None:
        await self.inner.start()

    async def stop(self) -> None:
        await self.inner.stop()

    def now_ms(self) -> int:
        return self.inner.now_ms()

    async def watch(self, partition: Partition) -> None:
        await self.inner.watch(partition)

    async def unwatch(self, partition: Partition) -> None:
        await self.inner.unwatch(partition)

    async def watch_topics(self) -> None:
        await self.inner.watch_topics()

    async def groups(self, partition: Partition, cursor: bytes, limit: int) -> GroupPage:
        return await self._through(lambda: self.inner.groups(partition, cursor, limit))

    async def stored_ids(self, partition: Partition, limit: int) -> frozenset[str] | None:
        return await self._through(lambda: self.inner.stored_ids(partition, limit))

    async def stats(self, partition: Partition, edges_ms: Sequence[int] = (), from_now: bool = False) -> Stats:
        return await self.inner.stats(partition, edges_ms, from_now)

    async def forecast(self, parts: Sequence[ForecastPart], edges_ms: Sequence[int]) -> Bands:
        return await self.inner.forecast(parts, edges_ms)

    async def control(self, partition: Partition, control: Control) -> None:
        await self.inner.control(partition, control)

    async def fences(self, partition: Partition, cursor: bytes = b"") -> tuple[list[Fence], bytes | None]:
        return await self.inner.fences(partition, cursor)

    async def clean(self, partition: Partition, limit: int = 200) -> CleanOutcome:
        return await self.inner.clean(partition, limit)

    async def agenda_noted(self, partition: Partition, at_ms: int) -> None:
        await self.inner.agenda_noted(partition, at_ms)

    async def retire(self, partition: Partition, topic_too: bool = False) -> bool:
        return await self.inner.retire(partition, topic_too)

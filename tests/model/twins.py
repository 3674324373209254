"""The reference and the real store side by side: every call goes to both, and every answer must be the same.

Tokens are opaque and differ; a `Lease` pairs them. What time decides alone is compared after every call by reading
every id. Clean-up runs on the real store only: nobody may notice.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from dueline.engine.bands import Bands, ForecastPart
from dueline.engine.job import Job, LeasedJob, Partition, State
from dueline.engine.open_groups import OpenGroup
from dueline.engine.store import (
    Code,
    Control,
    Edit,
    Extend,
    Outcome,
    Pull,
    PullOutcome,
    Purge,
    Query,
    Ref,
    Release,
    Revive,
    SendItem,
    Spare,
    StalePolicy,
    Stats,
    Store,
)
from dueline.store.memory import MemoryStore
from dueline.store.valkey import fsck
from dueline.store.valkey.reader import StoreReader
from dueline.testing.clock import VirtualClock
from tests.kit.store import Recorder, valkey_store

IDS = ("a", "0123456789abcdef0123456789abcdef", "")
NEVER = "no-such-lease"
_topics = itertools.count()


class Lease(msgspec.Struct, frozen=True):
    """One delivery: the token that each store gave for it."""

    id: str
    model: str
    real: str


class SharedStore:
    """The store that all examples of a machine share, with its event loop. `patch` breaks a script on purpose."""

    def __init__(
        self,
        url: str,
        patch: Callable[[str, str], str] | None = None,
        *,
        sleepers: int = 0,
        namespace_ids: bool = False,
    ) -> None:
        self.url = url
        self.namespace_ids = namespace_ids
        self.clock = VirtualClock()
        self.loop = asyncio.new_event_loop()
        self.reader = StoreReader(url)
        self.real: Any = valkey_store(url, self.clock, lua_patch=patch)
        self.sleepers: list[Any] = [valkey_store(url, self.clock, lua_patch=patch) for _ in range(sleepers)]

    def run(self, work: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(work)

    def start(self) -> None:
        for store in (self.real, *self.sleepers):
            store.events = Recorder()
            self.run(store.start())

    def stop(self) -> None:
        for store in (self.real, *self.sleepers):
            self.run(store.stop())
        self.run(self.reader.stop())
        self.loop.close()


class Twins:
    """A fresh partition in both stores."""

    def __init__(self, shared: SharedStore) -> None:
        shared.clock.__init__()
        self.shared, self.clock, self.run = shared, shared.clock, shared.run
        self.model = MemoryStore(shared.clock)
        self.real: Any = shared.real
        name = f"t{next(_topics)}-{id(shared)}"
        self.partition = Partition(
            f"model {name}" if shared.namespace_ids else "model", name, namespace_ids=shared.namespace_ids
        )
        self.leases: list[Lease] = []
        self.groups: list[str] = []  # ids that merge groups have, had, or would have had
        self.policy_version = 0
        self.repeat(False)

    def repeat(self, every_call: bool) -> None:
        """From now on the real stores send every changing call twice and use the second answer; or no longer."""
        self.repeats = every_call
        for store in (self.real, *self.shared.sleepers):
            store.repeat_changes(int(every_call))

    def both(self, call: Callable[[Store], Awaitable[Any]]) -> Any:
        """One call on both stores; the answers must be equal, also when they are refusals of the whole call."""

        async def answer(store: Store) -> Any:
            try:
                return await call(store)
            except StalePolicy as stale:
                return ("stale policy", stale.version)

        expected, got = self.run(answer(self.model)), self.run(answer(self.real))
        assert _plain(got) == _plain(expected), f"real {got}, model {expected}"
        return expected

    def paired(self, call: Callable[[Store, Callable[[Lease | None], str | None]], Awaitable[Any]]) -> Any:
        """One call that names leases: each store gets its own tokens."""

        def of_model(lease: Lease | None) -> str | None:
            return None if lease is None else lease.model

        def of_real(lease: Lease | None) -> str | None:
            return None if lease is None else lease.real

        return self.both(lambda store: call(store, of_model if store is self.model else of_real))

    def new_group(self) -> str:
        """An id for the group that a send may open: every second one is stored packed."""
        number = len(self.groups)
        self.groups.append(f"{number:032x}" if number % 2 else f"g{number}")
        return self.groups[-1]

    def send(self, items: Sequence[SendItem], policy_version: int | None = None) -> Any:
        version = self.policy_version if policy_version is None else policy_version
        return self.both(lambda store: store.send(self.partition, items, version))

    def pull(self, pull: Pull, real: Any = None) -> PullOutcome:
        """The same jobs in the same order. The real next time may be early, never late; it is past only for a job."""
        expected: PullOutcome = self.run(self.model.pull(self.partition, pull))
        got: PullOutcome = self.run((real or self.real).pull(self.partition, pull))
        assert [self._bare(leased) for leased in got.jobs] == [self._bare(leased) for leased in expected.jobs]
        assert got.now_ms == expected.now_ms
        assert got.more == expected.more or self.repeats, "these jobs are small and few"
        if not self.repeats:
            assert got.leases_lost == expected.leases_lost
        if expected.next_ms is not None:
            assert got.next_ms is not None, f"told to sleep for ever, but {expected.next_ms} could be served"
            assert got.next_ms <= expected.next_ms
        wanted = sum(credit.max for credit in pull.credits)
        if len(got.jobs) < wanted and not got.more:
            assert got.next_ms is None or got.next_ms > got.now_ms, "told to come back at once for nothing"
        for model, real in zip(expected.jobs, got.jobs, strict=True):
            self.leases.append(Lease(model.id, model.lease, real.lease))
        return got

    def _bare(self, leased: LeasedJob) -> LeasedJob:
        return replace(leased, lease="", late_ms=0 if self.repeats else leased.late_ms)

    def ack(self, refs: Sequence[tuple[str, Lease | None]]) -> None:
        self.paired(lambda store, token: store.ack(self.partition, [Ref(id, token(lease)) for id, lease in refs]))

    def release(self, id: str, lease: Lease | None, **words: Any) -> None:
        self.paired(lambda store, token: store.release(self.partition, [Release(id, token(lease), **words)]))

    def extend(self, id: str, lease: Lease, lease_ms: int) -> None:
        self.paired(lambda store, token: store.extend(self.partition, [Extend(id, token(lease) or NEVER, lease_ms)]))

    def cancel(self, ids: Sequence[str], forget: bool, spare: Spare = Spare.NONE) -> None:
        self.both(lambda store: store.cancel(self.partition, ids, forget, spare))

    def edit(self, edits: Sequence[Edit]) -> None:
        self.both(lambda store: store.edit(self.partition, edits))

    def revive(self, revive: Revive) -> None:
        self.both(lambda store: store.revive(self.partition, revive))

    def purge(self, ids: tuple[str, ...]) -> None:
        self.both(lambda store: store.purge(self.partition, Purge(ids)))

    def control(self, **words: Any) -> None:
        self.both(lambda store: store.control(self.partition, Control(**words)))

    def close(self, closed: bool) -> None:
        """Close the partition, or open it again; with `namespace_ids` for all topics."""
        whole = replace(self.partition, topic="") if self.partition.namespace_ids else self.partition
        self.both(lambda store: store.control(whole, Control(policy_version=self.policy_version, closed=closed)))
        if whole is not self.partition:
            self.control(policy_version=self.policy_version)  # else every later send is one of an unknown policy

    def clean(self) -> None:
        """On the real store only: clean-up writes down what is true, so the model needs none."""
        while self.run(self.real.clean(self.partition)).more:
            pass

    def retire(self, topic_too: bool) -> None:
        """After clean-up both agree whether anything is left; versions begin anew in both."""
        self.clean()
        if self.both(lambda store: store.retire(self.partition, topic_too)) and topic_too:
            self.policy_version = 0

    def jobs(self) -> list[Job | None]:
        return self.both(lambda store: store.read(self.partition, (*IDS, *self.groups)))

    def histories(self) -> None:
        for id in (*IDS, *self.groups):
            self.both(lambda store, id=id: store.history(self.partition, id))

    def listed(self, query: Query) -> None:
        """All pages of a query, in one order."""
        self.both(lambda store: self._listed(store, query))

    def check_figures(self) -> None:
        """I10: after clean-up the counts are those of the jobs that are there, and lists have exactly these jobs."""
        self.clean()
        self.both(lambda store: self._figures(store))
        self.both(lambda store: self._forecast(store))
        self.histories()
        for state in (None, *State):
            self.both(lambda store, state=state: self._listed(store, Query(state=state, limit=3)))
        self.both(lambda store: self._listed(store, Query(state=State.DEAD, limit=3, newest=True)))
        self.both(lambda store: self._listed(store, Query(tag="t", limit=2)))
        self.both(lambda store: self._open_groups(store))

    def check_structure(self) -> None:
        """I11: each live id in exactly one index, no index entry without its record, no record without its entries."""
        contents = self.run(fsck._read(self.shared.reader, "dueline", self.partition))
        assert fsck.check(self.partition, contents) == []

    async def _figures(self, store: Store) -> Stats:
        return replace(await store.stats(self.partition, [0, 10, 100], True), waiting=False)

    async def _forecast(self, store: Store) -> Bands:
        now_ms = self.clock.now_ms
        return await store.forecast([ForecastPart(self.partition)], [now_ms, now_ms + 10, now_ms + 100])

    async def _open_groups(self, store: Store) -> list[OpenGroup]:
        groups: list[OpenGroup] = []
        cursor: bytes | None = b""
        while cursor is not None:
            page = await store.groups(self.partition, cursor, 2)
            groups += page.groups
            cursor = page.cursor
        return groups

    async def _listed(self, store: Store, query: Query) -> list[Job]:
        """All pages. Only waiting jobs have a promised order; the others are compared as a set."""
        jobs: list[Job] = []
        cursor: bytes | None = b""
        while cursor is not None:
            page = await store.list(self.partition, replace(query, cursor=cursor))
            jobs += page.jobs
            cursor = page.cursor
        ordered = (query.state in (State.SCHEDULED, State.READY) and query.tag is None) or query.merge_key is not None
        # Lost leases stand in another index than waiting jobs.
        over = query.merge_key is None and any(job.deliveries for job in jobs)
        return jobs if ordered and not over else sorted(jobs, key=lambda job: job.id)


def _plain(answer: Any) -> Any:
    """Refusals are compared by their code alone: what else they carry is not promised."""
    if isinstance(answer, Outcome) and answer.code >= Code.NOT_FOUND:
        return answer.code
    if isinstance(answer, list | tuple):
        return [_plain(one) for one in answer]
    return answer

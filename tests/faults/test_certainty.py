"""What a caller learns about a call whose answer came late or never: done once, certainly not done, or unknown."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.exceptions import OutOfMemoryError

from dueline.engine.errors import ClockStep, RateLimited, StoreDown, StoreFull, UnknownOutcome
from dueline.engine.job import BodyKind, Partition
from dueline.engine.limits import Limits
from dueline.engine.policy import JobPolicy
from dueline.engine.store import Code, Credit, OnConflict, Pull, Ref, SendItem
from dueline.store.valkey.clock import StoreClock
from dueline.store.valkey.link import LinkLost
from tests.kit.tapped_store import TappedStore
from tests.kit.valkey import PrivateValkey

PARTITION = Partition("default", "sure")
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateValkey]:
    with PrivateValkey() as server:
        yield server


def item(id: str, **policy: Any) -> SendItem:
    job_policy = JobPolicy(**policy)
    return SendItem(id, b"x", BodyKind.TEXT, 0, None, job_policy, None, OnConflict.REJECT, OnConflict.REJECT, 7)


def earlier(expected: bytes, by_ms: int) -> bytes:
    """The second argument of a script (lua/lib/time.lua), of a caller that expects an earlier time."""
    return struct.pack(">d", struct.unpack_from(">d", expected)[0] - by_ms) + expected[8:]


class Skew:
    """How far the clock of this process is ahead of what the store expects."""

    def __init__(self) -> None:
        self.ms = 0

    def clock(self) -> StoreClock:
        return StoreClock(monotonic=lambda: time.monotonic() + self.ms / 1000)


class Late:
    """The next script call of a store is done but its answer is lost; its repeat runs `late_ms` after it was sent."""

    def __init__(self, store: TappedStore, late_ms: int, then: Exception | None = None) -> None:
        self.calls = 0
        self._through = store.link.call
        self._store = store
        self._late_ms = late_ms
        self._then = then
        store.link.call = self  # type: ignore[method-assign]

    async def __call__(self, key: str, *args: Any) -> Any:
        if args[0] not in ("EVALSHA", "EVAL"):
            return await self._through(key, *args)
        self.calls += 1
        if self.calls == 1:
            await self._through(key, *args)
            raise LinkLost("the store was silent", written=True)
        if self.calls == 2 and self._then is not None:
            raise self._then
        if self.calls == 2 and self._late_ms:
            # The repeat waits in front of a store that stalls: its expectation is old when it runs.
            changed = list(args)
            place = 3 + int(args[2]) + 1
            changed[place] = earlier(changed[place], self._late_ms)
            return await self._through(key, *changed)
        return await self._through(key, *args)


@asynccontextmanager
async def started(server: PrivateValkey, prefix: str, **options: Any) -> AsyncIterator[TappedStore]:
    store = TappedStore(server.url, prefix=prefix, **options)
    await store.start()
    try:
        yield store
    finally:
        await store.stop()


async def test_a_pull_whose_repeat_comes_late_is_not_done_twice(server: PrivateValkey) -> None:
    async with started(server, "late-pull") as store:
        await store.send(PARTITION, [item(f"j{n}", max_attempts=1) for n in range(3)])
        late = Late(store, 13_000)
        pulled = await store.pull(PARTITION, Pull((Credit(1, None),), 5_000))
        assert [job.id for job in pulled.jobs] == ["j0"]
        assert late.calls >= 2
        stats = await store.stats(PARTITION)
        assert (stats.ready, stats.leased) == (2, 1)


async def test_an_ack_whose_repeat_comes_late_learns_that_it_was_done(server: PrivateValkey) -> None:
    async with started(server, "late-ack") as store:
        await store.send(PARTITION, [item("a", retain_ms=0)])
        [leased] = (await store.pull(PARTITION, Pull((Credit(1, None),), 5_000))).jobs
        Late(store, 13_000)
        assert [done.code for done in await store.ack(PARTITION, [Ref("a", leased.lease)])] == [Code.OK]


@pytest.mark.parametrize("jobs", [1, 2], ids=["single send", "send"])
async def test_an_answer_from_memory_that_comes_late_is_no_step_of_the_clock(server: PrivateValkey, jobs: int) -> None:
    """Both scripts that remember an answer. The store's clock must pass the tolerance between the two tries."""
    async with started(server, f"late-answer-{jobs}", store_clock=StoreClock(tolerance_ms=250)) as store:
        for id in ("first", "second"):  # now the server has both scripts
            await store.send(PARTITION, [item(id)])
        Late(store, 0)
        through, lost = store.link.call, False

        async def lost_later(key: str, *args: Any) -> Any:
            nonlocal lost
            try:
                return await through(key, *args)
            except LinkLost:
                lost = True
                await store.link.through("", "BLPOP", "nothing", "0.5")  # half a second of the store's time
                raise

        store.link.call = lost_later  # type: ignore[method-assign]
        sent = await store.send(PARTITION, [item(f"late-{n}") for n in range(jobs)])
        assert [outcome.code for outcome in sent] == [Code.CREATED] * jobs
        assert (lost, store.clock.steps, store.clock.stepped) == (True, 0, False)


@pytest.mark.parametrize("refusal", [OutOfMemoryError("OOM command not allowed"), ClockStep()], ids=["full", "step"])
async def test_a_refusal_after_a_lost_answer_is_unknown_and_never_certainly_not_done(
    server: PrivateValkey, refusal: Exception
) -> None:
    skew = Skew()
    async with started(server, f"refused-{type(refusal).__name__}", store_clock=skew.clock()) as store:
        if isinstance(refusal, ClockStep):
            await store.read(PARTITION, ["a"])  # now it knows the time
            Late(store, 0)
            skew.ms = HOUR_MS
            with pytest.raises(ClockStep):
                await store.send(PARTITION, [item("a")])
            skew.ms = 0
            assert await store.read(PARTITION, ["a"]) == [None]
            return
        await store.send(PARTITION, [item("before")])  # now a send is one script call
        Late(store, 0, refusal)
        with pytest.raises(UnknownOutcome):
            await store.send(PARTITION, [item("a")])
        [job] = await store.read(PARTITION, ["a"])
        assert job is not None


async def test_a_refusal_of_the_first_try_is_certain(server: PrivateValkey) -> None:
    async with started(server, "first-try") as store:
        through = store.link.call

        async def full(key: str, *args: Any) -> Any:
            raise OutOfMemoryError("OOM command not allowed")

        store.link.call = full  # type: ignore[method-assign]
        with pytest.raises(StoreFull):
            await store.send(PARTITION, [item("a")])
        store.link.call = through  # type: ignore[method-assign]
        assert await store.read(PARTITION, ["a"]) == [None]


async def test_a_clock_that_jumped_changes_nothing(server: PrivateValkey) -> None:
    skew = Skew()
    async with started(server, "jumped", store_clock=skew.clock()) as store:
        await store.send(PARTITION, [item("kept")])
        for step_ms in (HOUR_MS, -HOUR_MS):
            skew.ms = step_ms
            for call in (store.send(PARTITION, [item("new")]), store.pull(PARTITION, Pull((Credit(1, None),), 1_000))):
                with pytest.raises(ClockStep):
                    await call
            skew.ms = 0
        assert store.clock.steps >= 1
        stats = await store.stats(PARTITION)
        assert (stats.ready, stats.leased) == (1, 0)
        assert [job.id for job in (await store.pull(PARTITION, Pull((Credit(5, None),), 1_000))).jobs] == ["kept"]


async def test_a_way_that_takes_too_long_for_the_clock_is_given_up_when_patience_ends(server: PrivateValkey) -> None:
    """Each try is refused by the guard of the clock because it was long on its way: certainly not done."""

    async with started(server, "slow-way", patience_s=0.2) as store:
        await store.send(PARTITION, [item("before")])
        through, calls = store.link.call, 0

        async def late(key: str, *args: Any) -> Any:
            nonlocal calls
            if args[0] == "EVALSHA":
                calls += 1
                place = 3 + int(args[2]) + 1
                args = (*args[:place], earlier(args[place], 5_000), *args[place + 1 :])
                store.clock.observe = lambda *_: True  # type: ignore[method-assign]
            return await through(key, *args)

        store.link.call = late  # type: ignore[method-assign]
        with pytest.raises(StoreDown, match="does not answer in time"):
            await asyncio.wait_for(store.send(PARTITION, [item("a")]), 20)
        assert calls > 1, "it was tried again"
        store.link.call = through  # type: ignore[method-assign]
        assert await store.read(PARTITION, ["a"]) == [None]


async def test_a_call_in_parts_is_unknown_when_only_some_parts_were_done(server: PrivateValkey) -> None:
    async with started(server, "parts", patience_s=0.2) as store:
        await store.send(PARTITION, [item("before")])  # now a send is one script call
        through = store.link.call
        calls = 0

        async def second_fails(key: str, *args: Any) -> Any:
            nonlocal calls
            calls += args[0] in ("EVAL", "EVALSHA")
            if calls > 1:
                raise LinkLost("gone", written=False)
            return await through(key, *args)

        store.link.call = second_fails  # type: ignore[method-assign]
        with pytest.raises(UnknownOutcome):
            await store.send(PARTITION, [item("a"), item("a")])
        store.link.call = through  # type: ignore[method-assign]
        [job] = await store.read(PARTITION, ["a"])
        assert job is not None

        async def down(key: str, *args: Any) -> Any:
            raise LinkLost("gone", written=False)

        store.link.call = down  # type: ignore[method-assign]
        with pytest.raises(StoreDown):
            await store.send(PARTITION, [item("b"), item("b")])


async def test_a_call_in_parts_has_room_for_all_of_them_or_is_refused_whole(server: PrivateValkey) -> None:
    async with started(server, "room", limits=Limits(max_queued_jobs=1)) as store:
        first = asyncio.ensure_future(store.send(PARTITION, [item("x")]))
        with pytest.raises(RateLimited):
            await store.send(PARTITION, [item("a"), item("a")])
        await first
        assert await store.read(PARTITION, ["a"]) == [None]
        results = await store.send(PARTITION, [item("a"), item("a")])
        assert [one.code for one in results] == [Code.CREATED, Code.KEPT]

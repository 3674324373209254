"""Ids without a topic, exhaustively: two callers on one id in every order of their script calls.

Scripts are atomic, so all that can happen is an order of calls. Each run replays one order; a gate in front of every
call decides who is next, and the next run takes another way at the last fork until all are done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from dueline.engine.job import BodyKind, Partition
from dueline.engine.policy import JobPolicy
from dueline.engine.store import Credit, OnConflict, Pull, Ref, SendItem
from dueline.store.valkey.fsck import fsck
from dueline.store.valkey.store import ValkeyStore
from tests.kit.orders import next_order
from tests.kit.tapped_store import TappedStore
from tests.kit.valkey import PrivateValkey

A, B, ANYWHERE = (Partition("jobs", topic, 0, True) for topic in ("a", "b", ""))
Call = Callable[[ValkeyStore], Awaitable[Any]]


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateValkey]:
    with PrivateValkey() as server:
        yield server


class Gate:
    """One caller: its own store (process), whose every call waits to be let through."""

    def __init__(self, url: str, prefix: str) -> None:
        self.store = TappedStore(url, prefix=prefix, clock=lambda: 1_700_000_000_000)
        self.waiting: asyncio.Future[None] | None = None
        self.changed = asyncio.Event()
        self.task: asyncio.Task[Any] | None = None

    async def start(self, call: Call) -> None:
        await self.store.start()
        through = self.store.link.call

        async def gated(*args: Any) -> Any:
            self.waiting = asyncio.get_running_loop().create_future()
            self.changed.set()
            await self.waiting
            self.waiting = None
            return await through(*args)

        self.store.link.call = gated  # type: ignore[method-assign]
        self.task = asyncio.ensure_future(call(self.store))
        self.task.add_done_callback(lambda _: self.changed.set())

    async def settled(self) -> bool:
        """True: it waits for its turn. False: it is done."""
        assert self.task is not None
        while not self.task.done():
            if self.waiting is not None and not self.waiting.done():
                return True
            self.changed.clear()
            await self.changed.wait()
        return False

    def step(self) -> None:
        assert self.waiting is not None
        self.waiting.set_result(None)


async def run_once(url: str, prefix: str, before: Call, calls: tuple[Call, Call], ways: list[int]) -> list[int]:
    """One order. `ways` are the choices at the forks so far; returns them with the defaults that were taken after."""
    plain = ValkeyStore(url, prefix=prefix, clock=lambda: 1_700_000_000_000)
    await plain.start()
    await before(plain)
    gates = [Gate(url, prefix) for _ in calls]
    for gate, call in zip(gates, calls, strict=True):
        await gate.start(call)
    taken: list[int] = []
    while True:
        ready = [gate for gate in gates if await gate.settled()]
        if not ready:
            break
        choice = 0
        if len(ready) == 2:
            choice = ways[len(taken)] if len(taken) < len(ways) else 0
            taken.append(choice)
        ready[choice].step()
    for gate in gates:
        assert gate.task is not None
        await gate.task
        await gate.store.stop()
    await plain.stop()
    return taken


async def every_order(url: str, name: str, before: Call, calls: tuple[Call, Call], judge: Callable[[Any], None]) -> int:
    ways: list[int] | None = []
    runs = 0
    while ways is not None:
        prefix = f"{name}-{runs}"
        taken = await run_once(url, prefix, before, calls, ways)
        store = ValkeyStore(url, prefix=prefix, clock=lambda: 1_700_000_000_000)
        await store.start()
        [job] = await store.read(ANYWHERE, ["1"])
        counts = [await store.stats(partition) for partition in (A, B)]
        live = sum(one.scheduled + one.ready + one.leased for one in counts)
        assert live == (job is not None), f"order {taken}: {live} live jobs, by its id {job}"
        report = await fsck(url, prefix)
        assert report.findings == [], f"order {taken}: {[str(one) for one in report.findings]}"
        judge(job)
        await store.stop()
        runs += 1
        ways = next_order(taken)
    return runs


def push(partition: Partition, delay_ms: int = 1_000) -> Call:
    item = SendItem(
        "1", partition.topic.encode(), BodyKind.TEXT, delay_ms, None, JobPolicy(max_attempts=None, retain_ms=0), None,
        OnConflict.REPLACE, OnConflict.REPLACE, 7, ("tag",),
    )  # fmt: skip
    return lambda store: store.send(partition, [item])


def push_and_pull(partition: Partition) -> Call:
    """Before the callers meet: the job is leased by a consumer."""

    async def call(store: ValkeyStore) -> None:
        await push(partition, delay_ms=0)(store)
        pulled = await store.pull(partition, Pull((Credit(1, 60_000),), 60_000))
        assert [job.id for job in pulled.jobs] == ["1"]

    return call


async def delete(store: ValkeyStore) -> None:
    await store.cancel(ANYWHERE, ["1"], forget=True)


async def finish(store: ValkeyStore) -> None:
    await store.ack(ANYWHERE, [Ref("1")])


async def nothing(store: ValkeyStore) -> None:
    return None


def one_live(job: Any) -> None:
    assert job is not None
    assert job.body.decode() == job.topic


def any_end(job: Any) -> None:
    assert job is None or job.body.decode() == job.topic


@pytest.mark.parametrize(
    ("name", "before", "calls", "judge"),
    [
        ("two-pushes", nothing, (push(A), push(B)), one_live),
        ("two-pushes-over-one", push(A), (push(A), push(B)), one_live),
        ("two-moves", push(A), (push(B), push(B)), one_live),
        ("push-and-delete", push(A), (push(B), delete), any_end),
        ("push-and-finish", push(A), (push(B), finish), any_end),
        ("delete-and-finish", push(A), (delete, finish), any_end),
        ("two-pushes-over-a-leased-one", push_and_pull(A), (push(A), push(B)), one_live),
        ("two-moves-of-a-leased-one", push_and_pull(A), (push(B), push(B)), one_live),
        ("push-and-delete-of-a-leased-one", push_and_pull(A), (push(B), delete), any_end),
        ("push-and-finish-of-a-leased-one", push_and_pull(A), (push(B), finish), any_end),
        ("delete-and-finish-of-a-leased-one", push_and_pull(A), (delete, finish), any_end),
    ],
)
async def test_every_order_ends_with_at_most_one_live_job_that_its_id_finds(
    server: PrivateValkey, name: str, before: Call, calls: tuple[Call, Call], judge: Callable[[Any], None]
) -> None:
    runs = await every_order(server.url, name, before, calls, judge)
    assert runs >= 2, "the calls never met"

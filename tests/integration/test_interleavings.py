"""Ids without a topic, exhaustively: two callers on one id in every order of their script calls.

Scripts are atomic, so all that can happen is an order of calls (tests/kit/gates.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dueline.engine.job import BodyKind, Partition
from dueline.engine.policy import JobPolicy
from dueline.engine.store import Credit, OnConflict, Pull, Ref, SendItem
from dueline.store.valkey.fsck import fsck
from dueline.store.valkey.store import ValkeyStore
from tests.kit.gates import NOW_MS, Call, Gate, run_in_order
from tests.kit.orders import next_order
from tests.kit.valkey import PrivateValkey

A, B, ANYWHERE = (Partition("jobs", topic, 0, True) for topic in ("a", "b", ""))


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateValkey]:
    with PrivateValkey() as server:
        yield server


async def meet(store: ValkeyStore) -> None:
    """Send to both topics, so that the process knows their partitions: that would be three more calls later."""
    for partition in (A, B):
        await push(partition, id="met")(store)
        await store.cancel(partition, ["met"], forget=True)


async def run_once(url: str, prefix: str, before: Call, calls: tuple[Call, Call], ways: list[int]) -> list[int]:
    """One order of the calls (kit.gates)."""
    plain = ValkeyStore(url, prefix=prefix, clock=lambda: NOW_MS)
    await plain.start()
    await before(plain)
    gates = [Gate(url, prefix) for _ in calls]
    for gate, call in zip(gates, calls, strict=True):
        await gate.start(meet, call)
    taken = await run_in_order(gates, ways)
    await plain.stop()
    return taken


async def every_order(url: str, name: str, before: Call, calls: tuple[Call, Call], judge: Callable[[Any], None]) -> int:
    ways: list[int] | None = []
    runs = 0
    while ways is not None:
        prefix = f"{name}-{runs}"
        taken = await run_once(url, prefix, before, calls, ways)
        store = ValkeyStore(url, prefix=prefix, clock=lambda: NOW_MS)
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


def push(partition: Partition, delay_ms: int = 1_000, id: str = "1") -> Call:
    item = SendItem(
        id, partition.topic.encode(), BodyKind.TEXT, delay_ms, None, JobPolicy(max_attempts=None, retain_ms=0), None,
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

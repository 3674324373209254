"""A topic with a policy is deleted while another process sends to it, in many orders of their calls.

The sender knows the topic's config, or meets the topic for the first time. The deleter may die after any of its steps.
Whatever the order: the job is there, whoever comes next finds it by its id and by a pull, its topic is listed, and the
topic has either the policy that it had or none.

There are thousands of orders, 90 ms each, so a sample is tried.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from dueline.engine.commands import Pull, Send, TopicPatch
from dueline.engine.directory import TopicEntry
from dueline.engine.engine import Engine
from dueline.engine.errors import TopicNotEmpty
from dueline.engine.ids import partition_of
from dueline.engine.job import BodyKind
from dueline.engine.policy import TopicPolicy
from dueline.store.valkey.fsck import fsck
from dueline.store.valkey.store import ValkeyStore
from tests.integration.test_interleavings import run_once
from tests.kit.tapped_store import TappedStore
from tests.kit.valkey import PrivateValkey

pytestmark = pytest.mark.slow

NS, TOPIC = "ns", "mail"
JOB = next(f"job-{number}" for number in range(100) if partition_of(f"job-{number}", 2) == 1)
LEASE_MS = 77_000
SAMPLE = 40
MOST_FORKS = 40

Worker = Callable[[TappedStore], Awaitable[None]]


class Killed(Exception):
    """The process ends here."""


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateValkey]:
    with PrivateValkey() as server:
        asyncio.run(run_once(server.url, "warm", made(2), (delete, send_knowing), []))
        yield server


KNOWN: dict[str, TopicEntry] = {}  # by the prefix of a run: what both processes have read


def made(partitions: int) -> Worker:
    async def work(store: TappedStore) -> None:
        await Engine(store).set_topic(NS, TOPIC, TopicPatch(TopicPolicy(lease_ms=LEASE_MS), partitions))
        entry = await store.directory.topic(NS, TOPIC)
        assert entry is not None
        KNOWN[store.prefix] = entry

    return work


def one_at_a_time(store: TappedStore) -> None:
    """Calls of several partitions run side by side; here one at a time, because a gate holds one call of a process."""
    lock, gated = asyncio.Lock(), store.link.call

    async def call(*args: Any) -> Any:
        async with lock:
            return await gated(*args)

    store.link.call = call  # type: ignore[method-assign]


async def delete(store: TappedStore) -> None:
    """The calls that change something; what is looked at before is only for the answer."""
    one_at_a_time(store)
    engine, entry = Engine(store), KNOWN[store.prefix]
    await engine._deletion._remove(entry, engine._topics.apply((NS, TOPIC), entry))


def delete_and_die(after: int) -> Worker:
    """Dead after its `after` changing calls."""

    async def work(store: TappedStore) -> None:
        left = after

        def mortal(call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
            async def counted(*args: Any) -> Any:
                nonlocal left
                if left == 0:
                    raise Killed
                left -= 1
                return await call(*args)

            return counted

        store.retire = mortal(store.retire)  # type: ignore[method-assign]
        store.directory.remove = mortal(store.directory.remove)  # type: ignore[method-assign]
        try:
            await delete(store)
        except Killed:
            pass

    return work


async def send(engine: Engine) -> None:
    await engine.send(NS, TOPIC, Send(JOB, b"1", BodyKind.TEXT))
    await engine._registrar.stop()


async def send_knowing(store: TappedStore) -> None:
    """By a process that has the config and has registered the topic."""
    one_at_a_time(store)
    engine = Engine(store)
    topic = engine._topics.apply((NS, TOPIC), KNOWN[store.prefix])
    topic.registered_until_s = float("inf")
    await send(engine)


async def send_anew(store: TappedStore) -> None:
    one_at_a_time(store)
    await send(Engine(store))


async def judge(url: str, prefix: str, partitions: int, taken: list[int]) -> None:
    store = ValkeyStore(url, prefix=prefix, clock=lambda: 1_700_000_000_000)
    await store.start()
    report = await fsck(url, prefix)
    assert report.findings == [], f"order {taken}: {[str(one) for one in report.findings]}"
    assert await store.directory.topic(NS, TOPIC) is not None, f"order {taken}: the topic is not listed"
    engine = Engine(store)
    job = await engine.get(NS, TOPIC, JOB)
    view = await engine.topic(NS, TOPIC)
    assert (view.partitions, view.policy.lease_ms) in ((1, None), (partitions, LEASE_MS)), f"order {taken}"
    with pytest.raises(TopicNotEmpty):
        await engine.delete_topic(NS, TOPIC)
    leased = await engine.pull(Pull(NS, (TOPIC,), 10, None, 0))
    assert [one.id for one in leased] == [job.id], f"order {taken}: not delivered"
    await engine.stop()
    await store.stop()


async def in_many_orders(url: str, prefix: str, partitions: int, deleter: Worker, sender: Worker) -> int:
    """Run a sample of all orders; how many were different."""
    choices, seen = random.Random(prefix), set[tuple[int, ...]]()
    for run in range(SAMPLE):
        one = f"{prefix}-{run}"
        ways = [choices.randint(0, 1) for _ in range(MOST_FORKS if run else 0)]
        taken = await run_once(url, one, made(partitions), (deleter, sender), ways)
        await judge(url, one, partitions, taken)
        seen.add(tuple(taken))
    return len(seen)


@pytest.mark.parametrize("sender", [send_knowing, send_anew])
@pytest.mark.parametrize(("partitions", "lives"), [(1, None), (1, 1), (1, 2), (2, None), (2, 2)])
async def test_a_send_beside_the_deletion_of_its_topic_is_kept_found_and_listed(
    server: PrivateValkey, partitions: int, lives: int | None, sender: Worker
) -> None:
    deleter = delete if lives is None else delete_and_die(lives)
    prefix = f"{sender.__name__}-{partitions}-{lives}"
    orders = await in_many_orders(server.url, prefix, partitions, deleter, sender)
    assert orders >= 2, "the calls never met"

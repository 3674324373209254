"""A topic leaves the directory while a send brings it back, in many orders of two processes' store calls.

There are up to 24,310 orders, so each run takes some by chance, with a fixed seed; DUELINE_ALL_ORDERS=1 takes them all.

The remover looks for idle topics, retires the partition and takes the topic off the list; it may die when that is
done. The sender is an engine that registers the topic first, or one that still believes it listed, or one that dies
after its send. Whatever the order: the job is there, and its topic is listed or is reported as unlisted at the
partition's next change.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from dueline.engine.commands import Send
from dueline.engine.directory import TopicEntry
from dueline.engine.engine import Engine
from dueline.engine.job import BodyKind, Partition
from dueline.store.valkey.fsck import fsck
from dueline.store.valkey.store import ValkeyStore
from tests.integration.test_interleavings import Call, run_once
from tests.kit.orders import next_order
from tests.kit.store import Recorder, item
from tests.kit.valkey import PrivateValkey

pytestmark = pytest.mark.slow

PARTITION = Partition("ns", "mail")
NOW_MS = 1_700_000_000_000  # the time of the gated processes
LONG_AGO_MS = NOW_MS - 3_600_000
SOME = 200  # orders per test
MOST_FORKS = 40


class Killed(Exception):
    """The process ends here."""


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateValkey]:
    with PrivateValkey() as server:
        asyncio.run(warmed(server.url))
        yield server


async def at_ms(url: str, prefix: str, now_ms: int, work: Call) -> None:
    store = ValkeyStore(url, prefix=prefix, clock=lambda: now_ms)
    await store.start()
    try:
        await work(store)
    finally:
        await store.stop()


async def warmed(url: str) -> None:
    """Both ways once, so that the store has every script: a call is then one call, in each run."""

    async def work(store: ValkeyStore) -> None:
        await used(store)
        await remove(store)
        await sent_anew(store)

    await at_ms(url, "warm", NOW_MS, work)


# --- before -----------------------------------------------------------------------------------------------------------


async def used(store: ValkeyStore) -> None:
    """Long ago the topic was registered, got a job, and lost it: an idle partition that knows it is listed."""

    async def work(store: ValkeyStore) -> None:
        store.events = Recorder()
        await store.directory.register([(PARTITION.namespace, PARTITION.topic)])
        await store.send(PARTITION, [item("old", retain_ms=0)])
        await store.directory.register([(PARTITION.namespace, PARTITION.topic)])
        await store.cancel(PARTITION, ["old"], forget=True)

    await at_ms(store.url, store.prefix, LONG_AGO_MS, work)


async def only_listed(store: ValkeyStore) -> None:
    """Long ago it was registered; the send never came."""
    register: Call = lambda store: store.directory.register([(PARTITION.namespace, PARTITION.topic)])  # noqa: E731
    await at_ms(store.url, store.prefix, LONG_AGO_MS, register)


# --- the remover ------------------------------------------------------------------------------------------------------


async def remove(store: ValkeyStore) -> None:
    await Engine(store)._registrar.remove_idle()


async def remove_and_die(store: ValkeyStore) -> None:
    through = store.directory.remove

    async def last_call(*args: Any) -> bool:
        await through(*args)
        raise Killed

    store.directory.remove = last_call  # type: ignore[method-assign]
    try:
        await remove(store)
    except Killed:
        pass


# --- the sender -------------------------------------------------------------------------------------------------------


async def sent_anew(store: ValkeyStore) -> None:
    """By a process that meets the topic for the first time; with what `unlisted` asked for."""
    engine = Engine(store)
    await engine.send(PARTITION.namespace, PARTITION.topic, Send("new", b"1", BodyKind.TEXT, delay_ms=1_000))
    await engine._registrar.stop()


async def sent_believing(store: ValkeyStore) -> None:
    """By a process that registered it, and was stopped so long that the others count it as unused."""
    engine = Engine(store)
    entry = TopicEntry(PARTITION.namespace, PARTITION.topic, LONG_AGO_MS, 0, b"")
    topic = engine._topics.apply((PARTITION.namespace, PARTITION.topic), entry)
    topic.registered_until_s = math.inf
    await engine.send(PARTITION.namespace, PARTITION.topic, Send("new", b"1", BodyKind.TEXT, delay_ms=1_000))
    await engine._registrar.stop()


async def sent_and_died(store: ValkeyStore) -> None:
    """By a process that ends before it can do what `unlisted` asks for."""
    await store.send(PARTITION, [item("new", delay_ms=1_000)])


# --- after ------------------------------------------------------------------------------------------------------------


async def judge(store: ValkeyStore, taken: list[int], must_be_listed: bool) -> None:
    [job] = await store.read(PARTITION, ["new"])
    assert job is not None, f"order {taken}: the job is gone"
    report = await fsck(store.url, store.prefix)
    assert report.findings == [], f"order {taken}: {[str(one) for one in report.findings]}"
    listed = await store.directory.topic(PARTITION.namespace, PARTITION.topic) is not None
    if not listed and not must_be_listed:
        store.events = recorder = Recorder()
        await store.send(PARTITION, [item("next", delay_ms=1_000)])
        listed = recorder.unlisted_partitions == [PARTITION]
    assert listed, f"order {taken}: the topic is not listed"


async def run_orders(url: str, prefix: str, before: Call, calls: tuple[Call, Call], must_be_listed: bool) -> int:
    """Run all orders, the last fork first, or some by chance; how many different ones."""
    dice = None if "DUELINE_ALL_ORDERS" in os.environ else random.Random(prefix)
    ways: list[int] | None = []
    seen: set[tuple[int, ...]] = set()
    runs = 0
    while ways is not None and (dice is None or runs < SOME):
        one = f"{prefix}-{runs}"
        taken = await run_once(url, one, before, calls, ways)
        assert taken == (ways + [0] * len(taken))[: len(taken)], "the same choices led elsewhere"
        await at_ms(url, one, NOW_MS, lambda store, taken=taken: judge(store, taken, must_be_listed))
        runs += 1
        seen.add(tuple(taken))
        ways = next_order(taken) if dice is None else [dice.randrange(2) for _ in range(MOST_FORKS)]
    return len(seen)


Worker = Callable[[ValkeyStore], Awaitable[None]]


@pytest.mark.parametrize("before", [used, only_listed])
@pytest.mark.parametrize("remover", [remove, remove_and_die])
@pytest.mark.parametrize("sender", [sent_anew, sent_believing, sent_and_died])
async def test_a_send_beside_the_removal_of_its_topic_is_kept_and_listed(
    server: PrivateValkey, before: Worker, remover: Worker, sender: Worker
) -> None:
    prefix = "-".join(one.__name__ for one in (before, remover, sender))
    runs = await run_orders(server.url, prefix, before, (remover, sender), sender is not sent_and_died)
    assert runs >= 4, "the calls never met"

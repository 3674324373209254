"""Wake-ups across processes: a parked poll hears of a send anywhere, whatever happened to the subscription before.

A wake-up may be lost only with its connection, and then every partition of it is woken once. Here nobody polls: a
partition that is not woken stays asleep, and the test fails on its time limit.
"""

from __future__ import annotations

import asyncio
import uuid

import pytest
import redis

from dueline.engine.directory import TopicChange
from dueline.engine.job import Partition
from dueline.engine.store import Credit, Pull
from dueline.store.valkey.store import ValkeyStore

from ..kit.store import item
from ..kit.valkey import PrivateValkey


class WakeupRecorder:
    """Notes which partitions were woken."""

    def __init__(self) -> None:
        self.heard: dict[Partition, asyncio.Event] = {}

    def of(self, partition: Partition) -> asyncio.Event:
        return self.heard.setdefault(partition, asyncio.Event())

    def woken(self, partition: Partition) -> None:
        self.of(partition).set()

    def noted(self, partition: Partition, at_ms: int) -> None: ...
    def unlisted(self, partition: Partition) -> None: ...
    def topic_changed(self, change: TopicChange | None) -> None: ...


def partitions(n: int) -> list[Partition]:
    return [Partition("default", f"{uuid.uuid4().hex}-{i}") for i in range(n)]


async def wait_on(store: ValkeyStore, partition: Partition) -> None:
    """What an engine does for its first waiter: subscribe, then pull, then sleep."""
    await store.watch(partition)
    assert (await store.pull(partition, Pull((Credit(1, None),), 30_000, wait_ms=60_000))).jobs == []


@pytest.mark.parametrize("apart", range(0, 16, 3))
async def test_partitions_that_are_first_watched_at_the_same_moment_are_all_woken(
    apart: int, private_valkey: PrivateValkey
) -> None:
    """`apart`: how many turns of the event loop lie between them, so that each step of connecting is interrupted."""

    async def watch_later(store: ValkeyStore, partition: Partition, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        await wait_on(store, partition)

    for _ in range(4):
        listener, sender = ValkeyStore(private_valkey.url), ValkeyStore(private_valkey.url)
        recorder = listener.events = WakeupRecorder()
        await listener.start()
        await sender.start()
        watched = partitions(4)
        await asyncio.gather(*(watch_later(listener, partition, apart * i) for i, partition in enumerate(watched)))
        for partition in watched:
            await sender.send(partition, [item("a")])
        async with asyncio.timeout(5):
            await asyncio.gather(*(recorder.of(partition).wait() for partition in watched))
        await listener.stop()
        await sender.stop()


async def test_after_its_subscription_was_killed_every_waiting_partition_is_woken_and_hears_again(
    private_valkey: PrivateValkey,
) -> None:
    listener, sender = ValkeyStore(private_valkey.url), ValkeyStore(private_valkey.url)
    recorder = listener.events = WakeupRecorder()
    await listener.start()
    await sender.start()
    watched = partitions(4)
    for partition in watched:
        await wait_on(listener, partition)
    for turn in range(3):
        recorder.heard.clear()
        # While nobody listens, a send is published to nobody: the partitions must be woken by the new subscription.
        assert redis.from_url(private_valkey.url).client_kill_filter(_type="pubsub") >= 1
        await sender.send(watched[0], [item(f"lost-{turn}", delay_ms=60_000)])
        async with asyncio.timeout(8):
            await asyncio.gather(*(recorder.of(partition).wait() for partition in watched))
        recorder.heard.clear()
        await sender.send(watched[1], [item(f"heard-{turn}")])
        async with asyncio.timeout(5):
            await recorder.of(watched[1]).wait()
        await listener.pull(watched[1], Pull((Credit(10, None),), 30_000, wait_ms=60_000))
    await listener.stop()
    await sender.stop()

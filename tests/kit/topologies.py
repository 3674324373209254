"""Jobs on a store whose primaries change: partitions on chosen nodes, sends that go on, polls that are parked."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dueline.engine.errors import Unavailable
from dueline.engine.job import Partition
from dueline.engine.store import Credit, Pull
from dueline.store.valkey.keys import partition_keys
from dueline.store.valkey.store import ValkeyStore

from .store import Recorder, item
from .valkey import PrivateCluster, PrivateValkey

WITHIN_S = 30.0


@asynccontextmanager
async def started(url: str) -> AsyncIterator[tuple[ValkeyStore, Recorder]]:
    """A store as a process has it, on the real clock."""
    store = ValkeyStore(url)
    events = store.events = Recorder()
    await store.start()
    try:
        yield store, events
    finally:
        await store.stop()


def partitions_on(cluster: PrivateCluster, node: PrivateValkey, count: int) -> list[Partition]:
    """Unused partitions whose slots this node serves."""
    found: list[Partition] = []
    while len(found) < count:
        partition = Partition("ns", f"t-{uuid.uuid4().hex}")
        if cluster.primary_of(partition_keys("dueline", partition).channel) is node:
            found.append(partition)
    return found


def slot_of(cluster: PrivateCluster, partition: Partition) -> int:
    return int(cluster.nodes[0].ask("CLUSTER", "KEYSLOT", partition_keys("dueline", partition).channel))


async def park(store: ValkeyStore, partitions: list[Partition]) -> None:
    """Wait on each partition as a long poll does: subscribe, then pull."""
    for partition in partitions:
        await store.watch(partition)
        await store.pull(partition, Pull((Credit(1, None),), 30_000, 60_000))


async def send_until_accepted(store: ValkeyStore, partition: Partition, id: str) -> list[str]:
    """Send a job again and again, under one id, until the store accepts it. Returns the codes of the refusals."""
    codes: list[str] = []
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                await store.send(partition, [item(id)])
                return codes
            except Unavailable as error:
                codes.append(error.code)


async def woken(events: Recorder, partitions: list[Partition]) -> None:
    """Returns when each of these has been woken since the last `forget_wakes`."""
    async with asyncio.timeout(WITHIN_S):
        while not set(partitions) <= set(events.woken_partitions):
            await events.next_wake()
            events.clear_signal()

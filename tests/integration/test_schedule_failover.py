"""The primary that holds schedules is killed: another one takes over, and each occurrence is still one job."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

import pytest

from dueline.engine.commands import Send, TopicPatch
from dueline.engine.job import BodyKind, Partition
from dueline.engine.limits import INTERNAL_NAMESPACE
from dueline.engine.policy import TopicPolicy
from dueline.engine.schedule import Misfire, Schedule
from dueline.engine.stored_schedule import home_topic
from dueline.store.valkey.fsck import fsck
from dueline.store.valkey.keys import partition_keys
from tests.kit.fixtures import private_sentinels, replicated_cluster
from tests.kit.occurrences import Consumer, all_reach, consuming, engine_on, ids_until, views_of
from tests.kit.valkey import PrivateCluster, PrivateSentinels, PrivateValkey
from tests.kit.waiting import until

__all__ = ["private_sentinels", "replicated_cluster"]

pytestmark = pytest.mark.slow

TOPIC = "t"
EVERY_MS = 1000
NAMES = [f"s{number}" for number in range(10)]
# `all`: on a slow machine, the failover may take longer than what counts as no outage.
EVERY = Schedule(TOPIC, Send(None, b"1", BodyKind.JSON), every_ms=EVERY_MS, misfire=Misfire.ALL)


async def test_sentinels_replace_the_primary_of_schedules(private_sentinels: PrivateSentinels) -> None:
    namespace = f"n{uuid.uuid4().hex}"
    node = private_sentinels.primary()
    await _killed_between_occurrences(
        private_sentinels, namespace, node, lambda: private_sentinels.primary() is not node
    )


async def test_a_cluster_replaces_the_primary_of_schedules(replicated_cluster: PrivateCluster) -> None:
    """It is the primary that has the schedules. The partitions of their target are on all shards."""
    namespace = f"n{uuid.uuid4().hex}"
    home = partition_keys("dueline", Partition(INTERNAL_NAMESPACE, home_topic(namespace)))
    node = replicated_cluster.primary_of(home.channel)
    others = [other for other in replicated_cluster.nodes if other is not node]
    await _killed_between_occurrences(
        replicated_cluster,
        namespace,
        node,
        lambda: sum(other.ask("ROLE")[0] == "master" for other in others) == 3,
    )


async def _killed_between_occurrences(
    nodes: PrivateSentinels | PrivateCluster, namespace: str, node: PrivateValkey, is_replaced: Callable[[], bool]
) -> None:
    """Two servers run the schedules, and a third process consumes their jobs. The killed node is started again once it
    has been replaced: on the Cluster it is then the only replica, and nothing is answered without one."""
    url = nodes.url
    async with (
        engine_on(url, serves=True, replicated=True),
        engine_on(url, serves=True, replicated=True),
        engine_on(url, serves=False, replicated=True) as engine,
    ):
        await engine.set_topic(namespace, TOPIC, TopicPatch(TopicPolicy(retain_ms=0), partitions=6))
        first = [(await engine.schedules.put(namespace, name, EVERY, None))[0] for name in NAMES]
        consumer = Consumer(engine, namespace, TOPIC)
        async with consuming(consumer):
            await all_reach(engine, namespace, engine.store.now_ms())
            await asyncio.to_thread(node.kill)
            try:
                await until(lambda: asyncio.to_thread(is_replaced))
            finally:
                node.start()  # in this thread, because a process dies with the thread that started it
            await asyncio.to_thread(nodes.wait_until_whole)
            whole_ms = engine.store.now_ms()
            await all_reach(engine, namespace, whole_ms)
            expected = ids_until(first, EVERY_MS, whole_ms)
            await until(lambda: expected <= consumer.came)
            last = await views_of(engine, namespace)
        assert len(expected) > 2 * len(NAMES)
        unexpected = consumer.came - ids_until(first, EVERY_MS, consumer.last_ms)
        assert (unexpected, consumer.doubled, consumer.early) == (set(), [], [])
        assert [view.missed_count for view in last] == [0] * len(NAMES)
    assert (await fsck(url)).findings == []

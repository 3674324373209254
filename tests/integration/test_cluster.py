"""A Cluster in use: jobs on all shards, slots that move under parked polls, a shard that is down."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import redis

from dueline.client.errors import IdExists
from dueline.engine.job import Partition
from dueline.engine.store import Credit, Pull
from dueline.integrations.mounted import MountedServer
from dueline.store.valkey.fsck import fsck
from dueline.store.valkey.keys import partition_keys
from dueline.testing.client_history import History
from dueline.testing.server import PrivateServer
from tests.kit.fixtures import partial_cluster, private_cluster
from tests.kit.slots import move_slot
from tests.kit.store import item
from tests.kit.topologies import park, partitions_on, slot_of, started, woken
from tests.kit.valkey import PrivateCluster, PrivateValkey
from tests.kit.waiting import until

__all__ = ["partial_cluster", "private_cluster"]

STANDARD = {"DUELINE_STORE__DURABILITY": "standard"}  # a Cluster without replicas


async def test_jobs_live_on_all_shards_and_fsck_reads_them_all(private_cluster: PrivateCluster) -> None:
    async with started(private_cluster.url) as (store, _):
        before = await fsck(private_cluster.url)
        for node in private_cluster.nodes:
            for partition in partitions_on(private_cluster, node, 2):
                await store.directory.register([(partition.namespace, partition.topic)])
                await store.send(partition, [item("a"), item("b")])
        after = await fsck(private_cluster.url)
        assert after.findings == []
        assert (after.partitions - before.partitions, after.jobs - before.jobs) == (6, 12)
        with redis.Redis(port=private_cluster.nodes[2].port) as client:
            (key,) = (partition_keys("dueline", partition).keys[3],)  # damage the last one
            [(member, score)] = client.zrange(key, 0, 0, withscores=True)
            client.zrem(key, member)
        damaged = await fsck(private_cluster.url)
        assert [str(one) for one in damaged.findings] == [f"ns/{partition.topic}/0 job a: is missing in the schedule"]
        with redis.Redis(port=private_cluster.nodes[2].port) as client:
            client.zadd(key, {member: score})
        assert (await fsck(private_cluster.url)).findings == []


def test_the_testing_kit_and_shared_partitions_work_on_a_cluster(
    private_cluster: PrivateCluster, tmp_path: Path
) -> None:
    """The ids of this namespace are unique over all topics; its partitions lie on all shards."""
    topics, history = ("kit-a", "kit-b"), History()
    args = ("--store", private_cluster.url)
    with PrivateServer(tmp_path, args=args, env=STANDARD) as server, server.client("ouqiang") as plain:
        client = history.watch(plain)
        for number in range(20):
            client.send(topics[number % 2], number, id=f"old-{number}")
        view = plain.set_topic(topics[0], partitions=6)
        assert (view.partitions, plain.topic(topics[1]).partitions) == (6, 6)
        for number in range(60):
            client.send(topics[number % 2], number, id=f"new-{number}")
        with pytest.raises(IdExists):
            plain.send(topics[1], "other", id="old-0")
        acked = 0
        while acked < 80:
            for topic in topics:
                for job in client.pull(topic, max=20, lease="60s", wait="1s"):
                    client.ack(job)
                    acked += 1
        report = history.report()
    assert (report.violations, report.deliveries) == ((), 80)


async def test_polls_of_a_slot_that_moves_are_pulled_once_and_then_woken_by_sends(
    private_cluster: PrivateCluster,
) -> None:
    first, second, _ = private_cluster.nodes
    moving, staying = partitions_on(private_cluster, first, 2)
    async with started(private_cluster.url) as (store, events), started(private_cluster.url) as (other, _):
        await park(store, [moving, staying])
        events.forget_wakes()
        slot = slot_of(private_cluster, moving)
        await asyncio.to_thread(move_slot, private_cluster, slot, second)
        try:
            await woken(events, [moving])
            assert staying not in events.woken_partitions, "only what moved is pulled"
            for partition in (moving, staying):
                events.forget_wakes()
                await other.send(partition, [item("x")])
                await woken(events, [partition])
            [job] = (await store.pull(moving, Pull((Credit(1, None),), 30_000))).jobs
            assert job.id == "x"
        finally:
            await asyncio.to_thread(move_slot, private_cluster, slot, first)


async def test_calls_while_a_slot_moves_key_by_key_are_done_or_refused_cleanly(private_cluster: PrivateCluster) -> None:
    first, second, _ = private_cluster.nodes
    [partition] = partitions_on(private_cluster, first, 1)
    slot = slot_of(private_cluster, partition)
    async with started(private_cluster.url) as (store, _):
        await store.directory.register([(partition.namespace, partition.topic)])
        sent = 0

        async def send() -> None:
            nonlocal sent
            while not moved.done():
                await store.send(partition, [item(f"j{sent}")])
                sent += 1

        def move() -> None:
            for _ in range(5):
                move_slot(private_cluster, slot, second)
                move_slot(private_cluster, slot, first)

        moved = asyncio.ensure_future(asyncio.to_thread(move))
        await send()
        await moved
        stats = await store.stats(partition)
        assert (stats.ready, sent > 0) == (sent, True)
        assert (await fsck(private_cluster.url)).findings == []


@pytest.mark.slow
async def test_a_shard_that_is_down_is_named_and_the_others_serve(partial_cluster: PrivateCluster) -> None:
    home = partial_cluster.primary_of("dueline:{directory}:topics")
    lost = next(node for node in partial_cluster.nodes if node is not home)
    [on_lost] = [one.topic for one in partitions_of(partial_cluster, lost)]
    [on_home] = [one.topic for one in partitions_of(partial_cluster, home)]
    server = MountedServer(store=partial_cluster.url, env=STANDARD, insecure=True)
    await server.start()
    try:
        app = server._app
        assert app is not None
        store, health = app.store, app.health
        await store.send(Partition("default", on_home), [item("a")])
        await store.send(Partition("default", on_lost), [item("a")])
        lost.kill()
        await until(health.warnings)
        [warning] = health.warnings()
        assert (warning.code, f"127.0.0.1:{lost.port}" in warning.message) == ("shard_down", True)
        assert health.reasons() == []
        await store.send(Partition("default", on_home), [item("b")])
        with pytest.raises(Exception) as refused:
            await store.send(Partition("default", on_lost), [item("b")])
        assert getattr(refused.value, "code", refused.value) == "store_down"
        lost.start()
        await until(lambda: not health.warnings())
        await store.send(Partition("default", on_lost), [item("b")])
    finally:
        await server.stop()


def partitions_of(cluster: PrivateCluster, node: PrivateValkey) -> list[Partition]:
    """One unused partition of the default namespace on this node."""
    number = 0
    while True:
        partition = Partition("default", f"topic-{number}")
        if cluster.primary_of(partition_keys("dueline", partition).channel) is node:
            return [partition]
        number += 1

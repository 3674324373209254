"""A topic that gets partitions, on a real store: what is stored where, and what fsck says about it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from dueline.engine.commands import ExpansionView, Pull, Send, TopicPatch
from dueline.engine.engine import Engine
from dueline.engine.job import BodyKind, Partition
from dueline.engine.limits import MAX_STORED_IDS
from dueline.engine.policy import TopicPolicy
from dueline.engine.store import Code, Control, Ref
from dueline.store.valkey.fsck import fsck
from dueline.store.valkey.store import ValkeyStore
from tests.kit.fixtures import private_cluster
from tests.kit.store import item
from tests.kit.valkey import PrivateCluster, PrivateValkey

__all__ = ["private_cluster"]

NS = "ns"
POLICY = TopicPolicy(retain_ms=0)


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateValkey]:
    with PrivateValkey() as server:
        yield server


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[tuple[ValkeyStore, Engine]]:
    store = ValkeyStore(url)
    await store.start()
    engine = Engine(store)
    try:
        yield store, engine
    finally:
        await engine.stop()
        await store.stop()


def job(id: str) -> Send:
    return Send(id, b"1", BodyKind.TEXT)


async def expand(engine: Engine, topic: str, partitions: int) -> ExpansionView | None:
    return (await engine.set_topic(NS, topic, TopicPatch(POLICY, partitions=partitions)))[0].expansion


async def finish(engine: Engine, topic: str) -> list[str]:
    """Pull and ack all; the ids in the order of delivery."""
    ids: list[str] = []
    while leased := await engine.pull(Pull(NS, (topic,), 500, None, 0)):
        done = await engine.ack(NS, topic, [Ref(one.id, one.lease) for one in leased])
        assert {one.code for one in done} == {Code.OK}
        ids += [one.id for one in leased]
    return ids


async def whole_life(url: str, topic: str) -> None:
    async with opened(url) as (store, engine):
        await engine.set_topic(NS, topic, TopicPatch(POLICY))
        old = [f"old-{number}" for number in range(30)]
        new = [f"new-{number}" for number in range(60)]
        for id in old:
            await engine.send(NS, topic, job(id))
        assert await expand(engine, topic, 8) is not None
        async with opened(url) as (_, other):
            for id in [*old, *new]:
                assert (await other.send(NS, topic, job(id))).result == ("kept" if id in old else "created")
        assert await store.stored_ids(Partition(NS, topic, 0), MAX_STORED_IDS) == frozenset(old)
        places = [await store.stored_ids(Partition(NS, topic, number), MAX_STORED_IDS) or () for number in range(1, 9)]
        assert sorted(id for ids in places for id in ids) == sorted(new)
        assert all(places), "each of the new partitions has jobs"
        assert (await fsck(url)).findings == []
        assert sorted(await finish(engine, topic)) == sorted([*old, *new])
        view = await engine.topic(NS, topic)
        assert (view.partitions, view.expansion) == (8, None)
        await engine.send(NS, topic, job("old-1"))
        assert await expand(engine, topic, 16) is not None
        assert await finish(engine, topic) == ["old-1"]
        await engine.delete_topic(NS, topic)
        await engine.send(NS, topic, job("old-1"))
        assert (await engine.topic(NS, topic)).partitions == 1
        assert await finish(engine, topic) == ["old-1"]


async def test_a_topic_is_expanded_twice_deleted_and_made_again(server: PrivateValkey) -> None:
    await whole_life(server.url, "life")


async def test_the_partitions_of_a_topic_lie_on_several_shards(private_cluster: PrivateCluster) -> None:
    await whole_life(private_cluster.url, "life")
    tags = [f"dueline:{{{NS}/life/{number}}}:m" for number in range(9)]
    assert len({private_cluster.primary_of(tag).port for tag in tags}) > 1


async def test_fsck_names_a_partition_whose_jobs_nobody_would_pull(server: PrivateValkey) -> None:
    async with opened(server.url) as (store, engine):
        await engine.set_topic(NS, "stray", TopicPatch(POLICY))
        await engine.send(NS, "stray", job("a"))
        await engine._registrar.stop()
        await finish(engine, "stray")
        assert await expand(engine, "stray", 4) is None
        partition = Partition(NS, "stray", 0)
        await store.control(partition, Control(policy_version=1_000, closed=False))
        [sent] = await store.send(partition, [item("b")], 1_000)
        assert sent.code is Code.CREATED
        findings = [str(one) for one in (await fsck(server.url)).findings]
        assert findings == ["ns/stray/0: holds jobs, but its topic does not use it any more"]
        await store.cancel(partition, ["b"], forget=True)


async def test_a_partition_names_its_ids_only_if_they_are_not_too_many(server: PrivateValkey) -> None:
    async with opened(server.url) as (store, _):
        partition = Partition(NS, "many", 0)
        await store.send(partition, [item(f"{number}") for number in range(20)])
        assert await store.stored_ids(partition, 20) == frozenset(map(str, range(20)))
        assert await store.stored_ids(partition, 19) is None
        assert await store.stored_ids(Partition(NS, "none", 0), 19) == frozenset()

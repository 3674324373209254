"""Primaries that die or hang, on Sentinel and on a Cluster: sends continue, parked polls are woken, nothing is a 500,
and no clock step is seen."""

from __future__ import annotations

import asyncio
import re
import uuid

import pytest

from dueline.engine.errors import Unavailable, UnknownOutcome
from dueline.engine.job import Partition
from dueline.engine.store import Code, Credit, Pull
from dueline.integrations.mounted import MountedServer
from dueline.store.valkey.acceptance import accept, find_missing
from dueline.store.valkey.reader import StoreReader
from dueline.store.valkey.store import ValkeyStore
from dueline.store.valkey.witness import Replication
from tests.kit.fixtures import private_sentinels, replicated_cluster
from tests.kit.store import Recorder, item
from tests.kit.topologies import park, partitions_on, send_until_accepted, started, woken
from tests.kit.valkey import PrivateCluster, PrivateSentinels, PrivateValkey

__all__ = ["private_sentinels", "replicated_cluster"]

pytestmark = pytest.mark.slow

POLLS = 20
CLEAN = {"store_down", "unknown_outcome"}


async def hurt(
    node: PrivateValkey, how: str, store: ValkeyStore, events: Recorder, other: ValkeyStore, partitions: list[Partition]
) -> None:
    """Park polls in one process, hurt the primary, and send from another one until all are accepted."""
    await park(store, partitions)
    events.forget_wakes()
    await asyncio.to_thread(node.kill if how == "killed" else node.pause)
    refusals = await asyncio.gather(*(send_until_accepted(other, one, "x") for one in partitions))
    await woken(events, partitions)
    assert {code for codes in refusals for code in codes} <= CLEAN
    for partition in partitions:
        [job] = (await store.pull(partition, Pull((Credit(1, None),), 30_000))).jobs
        assert job.id == "x"
    assert (store.clock.steps, other.clock.steps) == (0, 0)


def heal(node: PrivateValkey, how: str) -> None:
    """In the main thread, because a process dies with the thread that started it."""
    if how == "killed":
        node.start()
    else:
        node.resume()


@pytest.mark.parametrize("how", ["killed", "paused"])
async def test_sentinels_replace_a_primary(private_sentinels: PrivateSentinels, how: str) -> None:
    """With passwords on the nodes and on the sentinels."""
    partitions = [Partition("ns", uuid.uuid4().hex) for _ in range(POLLS)]
    node = private_sentinels.primary()
    async with started(private_sentinels.url) as (store, events), started(private_sentinels.url) as (other, _):
        try:
            await hurt(node, how, store, events, other, partitions)
        finally:
            heal(node, how)
        await asyncio.to_thread(private_sentinels.wait_until_whole)
        await other.send(partitions[0], [item("after")])  # the old primary is back, as a replica


@pytest.mark.parametrize("how", ["killed", "paused"])
async def test_a_cluster_replaces_a_primary(replicated_cluster: PrivateCluster, how: str) -> None:
    node = next(node for node in replicated_cluster.nodes if node.ask("ROLE")[0] == "master")
    partitions = partitions_on(replicated_cluster, node, POLLS)
    async with started(replicated_cluster.url) as (store, events), started(replicated_cluster.url) as (other, _):
        try:
            await hurt(node, how, store, events, other, partitions)
        finally:
            heal(node, how)
        await asyncio.to_thread(replicated_cluster.wait_until_whole)
        await other.send(partitions[0], [item("after")])


async def sent_or_replaced(store: ValkeyStore, partition: Partition, id: str) -> set[str]:
    """Send until the store accepts the job or says that data is lost. Returns the codes of the refusals."""
    codes: set[str] = set()
    async with asyncio.timeout(30):
        while "store_replaced" not in codes:
            try:
                await store.send(partition, [item(id)])
                break
            except Unavailable as error:
                codes.add(error.code)
    return codes


async def test_a_failover_by_hand_loses_nothing_unnoticed(private_sentinels: PrivateSentinels) -> None:
    """The old primary takes sends until the sentinels have told it. At the level `standard` they are answered and lost,
    and then the next send is refused."""
    partition = Partition("ns", uuid.uuid4().hex)
    async with started(private_sentinels.url) as (store, _):
        await store.send(partition, [item("before")])
        old = private_sentinels.primary()
        private_sentinels.sentinels[0].ask("SENTINEL", "FAILOVER", "jobs", password="theirs")
        answered, codes = ["before"], set[str]()
        while private_sentinels.primary() is old and "store_replaced" not in codes:
            id = f"j{len(answered)}"
            codes |= await sent_or_replaced(store, partition, id)
            answered += [] if "store_replaced" in codes else [id]
        await asyncio.to_thread(private_sentinels.wait_until_whole)
        codes |= await sent_or_replaced(store, partition, "after")
        assert private_sentinels.primary() is not old
        assert codes <= CLEAN | {"store_replaced"}
        lost = [id for id in answered if await store.read(partition, [id]) == [None]]
        assert bool(lost) == ("store_replaced" in codes), lost
        assert store.clock.steps == 0


async def test_a_server_on_sentinels_with_passwords_is_ready(private_sentinels: PrivateSentinels) -> None:
    """The password of the sentinels is a setting; the URL has that of the nodes."""
    url, _, option = private_sentinels.url.partition("?")
    assert option == "sentinel_password=theirs"
    server = MountedServer(store=url, env={"DUELINE_STORE__SENTINEL_PASSWORD": "theirs"}, insecure=True)
    await server.start()
    try:
        app = server._app
        assert app is not None
        await app.store.send(Partition("default", uuid.uuid4().hex), [item("a")])
        assert (app.health.reasons(), app.info().durability) == ([], "replicated")
        assert re.fullmatch(
            r"redis\+sentinel://(127\.0\.0\.1:\d+,?){3}/jobs, valkey [\d.]+, appendonly no, appendfsync everysec",
            app.store_text(),
        )
    finally:
        await server.stop()


@pytest.mark.parametrize("degraded", ["refuse", "accept"])
async def test_without_a_replica_replicated_sends_are_unknown_unless_that_is_accepted(
    private_sentinels: PrivateSentinels, degraded: str
) -> None:
    """The control: as soon as a replica answers again, the same send succeeds."""
    partition = Partition("ns", uuid.uuid4().hex)
    replication = Replication(accept=degraded == "accept")
    store = ValkeyStore(private_sentinels.url, replication=replication, patience_s=1.0)
    await store.start()
    primary = private_sentinels.primary()
    replicas = [node for node in private_sentinels.nodes if node is not primary]
    try:
        await store.send(partition, [item("before")])
        for replica in replicas:
            replica.pause()
        if degraded == "refuse":
            with pytest.raises(UnknownOutcome, match="no replica has it"):
                await store.send(partition, [item("x")])
            with pytest.raises(UnknownOutcome, match="no replica has it"):
                await store.pull(partition, Pull((Credit(1, None),), 30_000))
        else:
            await store.send(partition, [item("x")])
        assert await store.read(partition, ["before"]) != [None]  # reading works
    finally:
        for replica in replicas:
            replica.resume()
    await asyncio.to_thread(private_sentinels.wait_until_whole)
    [sent] = await store.send(partition, [item("x")])
    assert (sent.code, replication.uncovered) == (Code.KEPT, 1 if degraded == "accept" else 0)
    await store.stop()


@pytest.mark.parametrize("level", ["replicated", "standard"])
async def test_no_replicated_answer_is_lost_with_its_primary(private_sentinels: PrivateSentinels, level: str) -> None:
    """The replicas stand still, and more is sent than the sockets to them can hold; then the primary dies. `standard`
    is the control: it answers what is lost then, and refuses sends until the loss is accepted."""
    partition = Partition("ns", uuid.uuid4().hex)
    primary = private_sentinels.primary()
    replicas = [node for node in private_sentinels.nodes if node is not primary]
    replication = Replication() if level == "replicated" else None
    store = ValkeyStore(private_sentinels.url, replication=replication, patience_s=1.0)
    await store.start()
    answered: list[str] = []

    async def send(id: str) -> None:
        try:
            await store.send(partition, [item(id, body=b"x" * 500_000)])
            answered.append(id)
        except Unavailable:
            pass  # unknown: it counts as not answered

    try:
        await asyncio.gather(*(send(f"before-{n}") for n in range(5)))
        assert len(answered) == 5
        for replica in replicas:
            replica.pause()
        for i in range(10):
            await asyncio.gather(*(send(f"during-{i}-{n}") for n in range(10)))
        assert len(answered) == (5 if level == "replicated" else 105)
        primary.kill()
    finally:
        for replica in replicas:
            replica.resume()
    codes = await sent_or_replaced(store, partition, "after")
    assert codes <= CLEAN | ({"store_replaced"} if level == "standard" else set())
    assert ("store_replaced" in codes) == (level == "standard")
    if level == "standard":
        reader = StoreReader(private_sentinels.url)
        missing = await find_missing(reader, "dueline")
        assert [one for one in missing.partitions if one.partition == partition and one.had == 105 > one.number]
        assert not missing.is_directory_lost
        await accept(reader, "dueline", missing, store.directory.register)
        await reader.stop()
        await send_until_accepted(store, partition, "after")
    primary.start()
    await asyncio.to_thread(private_sentinels.wait_until_whole)
    found = [await store.read(partition, [id], False) for id in answered]
    lost = [id for id, [job] in zip(answered, found, strict=True) if job is None]
    assert bool(lost) == (level == "standard"), lost
    await store.stop()

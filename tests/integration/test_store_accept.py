"""`dueline store accept STORE_URL`: it says what a store has lost, and servers go on without a restart."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest
from typer.testing import Result

from dueline.engine.errors import StoreReplaced
from dueline.engine.job import Partition
from dueline.engine.store import Code
from dueline.integrations.mounted import MountedServer
from dueline.server.app import App
from dueline.store.valkey.fsck import fsck
from dueline.store.valkey.keys import directory_keys, meta_key, partition_keys
from dueline.store.valkey.store import ValkeyStore
from tests.integration.serve_kit import typed
from tests.kit.async_tests import async_fixture
from tests.kit.copies import Copy, erase
from tests.kit.fixtures import private_valkey
from tests.kit.store import item
from tests.kit.topologies import partitions_on, started
from tests.kit.valkey import PrivateCluster, PrivateValkey, running_stores
from tests.kit.waiting import until

__all__ = ["private_valkey"]

ORDERS, SMS, KEPT = (Partition("default", topic) for topic in ("orders", "sms", "kept"))


@async_fixture
async def store(private_valkey: PrivateValkey) -> AsyncIterator[ValkeyStore]:
    """A process that knows three partitions with five jobs each."""
    store = ValkeyStore(private_valkey.url, prefix=f"t{uuid.uuid4().hex}")
    await store.start()
    for partition in (ORDERS, SMS, KEPT):
        await store.directory.register([(partition.namespace, partition.topic)])
        await store.send(partition, [item(f"j{number}") for number in range(5)])
    yield store
    await store.stop()
    erase(private_valkey.url, store.prefix)


async def accept(store: ValkeyStore, *words: str) -> Result:
    command = ("store", "accept", store.url, "--prefix", store.prefix, *words)
    return await asyncio.to_thread(typed, *command, NO_COLOR="1", COLUMNS="200")


async def is_refused(store: ValkeyStore, partition: Partition) -> bool:
    try:
        await store.send(partition, [item(uuid.uuid4().hex)])
    except StoreReplaced:
        return True
    return False


async def test_it_names_each_loss_and_servers_go_on(private_valkey: PrivateValkey, store: ValkeyStore) -> None:
    copy = Copy(private_valkey, store.prefix)
    await store.send(ORDERS, [item(f"lost{number}") for number in range(3)])
    copy.put_back()
    private_valkey.ask("DEL", *partition_keys(store.prefix, SMS).keys)
    assert [await is_refused(store, one) for one in (ORDERS, SMS, KEPT)] == [True, True, False]

    unasked = await accept(store)
    assert unasked.exit_code == 2
    assert "Accept that these jobs are lost?" in unasked.stderr
    assert [await is_refused(store, one) for one in (ORDERS, SMS)] == [True, True]

    done = await accept(store, "--yes")
    assert (done.exit_code, done.stdout) == (0, "accepted: 2 partitions. Servers continue within 5 seconds\n")
    assert "default/orders/0: it had send number 8, now 5" in done.stderr
    assert "default/sms/0: it had send number 5, the directory knows it, and it is gone" in done.stderr
    assert [await is_refused(store, one) for one in (ORDERS, SMS, KEPT)] == [False] * 3
    assert store.epochs.losses == {}
    assert await store.read(ORDERS, ["j0"]) != [None]
    assert (await fsck(store.url, store.prefix)).findings == []


async def test_its_json_has_the_numbers(private_valkey: PrivateValkey, store: ValkeyStore) -> None:
    private_valkey.ask("DEL", *partition_keys(store.prefix, SMS).keys)
    assert await is_refused(store, SMS)
    done = await accept(store, "--yes", "-o", "json")
    lost = {"namespace": "default", "topic": "sms", "partition": 0, "had_number": 5, "number": 0}
    assert msgspec.json.decode(done.stdout) == {"directory_lost": False, "partitions": [lost]}


@pytest.mark.parametrize("noticed", [True, False], ids=["noticed", "not yet noticed"])
async def test_an_emptied_store_begins_anew(private_valkey: PrivateValkey, store: ValkeyStore, noticed: bool) -> None:
    """Whether the server has left its mark in the store already or not."""
    erase(private_valkey.url, store.prefix)
    if noticed:
        assert await is_refused(store, ORDERS)
    assert (await accept(store, "--yes")).exit_code == 0
    assert [await is_refused(store, one) for one in (ORDERS, SMS)] == [False, False]
    [sent] = await store.send(ORDERS, [item("second")])
    assert sent.version == 2


async def test_a_store_that_another_process_began_anew_is_adopted_when_it_is_accepted(
    private_valkey: PrivateValkey, store: ValkeyStore
) -> None:
    erase(private_valkey.url, store.prefix)
    other = ValkeyStore(private_valkey.url, prefix=store.prefix)
    await other.start()  # before anybody has noticed
    await other.send(ORDERS, [item("new")])
    assert await is_refused(store, ORDERS)
    assert "Nothing is missing here" in (await accept(store)).stderr
    assert (await accept(store, "--yes")).exit_code == 0
    assert [await is_refused(one, ORDERS) for one in (store, other)] == [False, False]
    await other.stop()


async def test_a_directory_that_is_lost_alone_is_made_again(private_valkey: PrivateValkey, store: ValkeyStore) -> None:
    entry = await store.directory.set_config("default", "kept", b'{"policy":{"max_attempts":3}}', None)
    assert entry is not None
    private_valkey.ask("HSET", partition_keys(store.prefix, KEPT).keys[0], "pv", 7)
    for key in private_valkey.ask("KEYS", f"{store.prefix}:{{directory}}:*"):
        private_valkey.ask("DEL", key)
    assert await is_refused(store, Partition("default", "new"))
    done = await accept(store, "--yes")
    assert (done.exit_code, "3 topics that hold data are listed again" in done.stderr) == (0, True)
    assert [one.topic for one in await store.directory.topics("default", "", 10)] == ["kept", "orders", "sms"]
    assert [await is_refused(store, one) for one in (ORDERS, SMS)] == [False, False]
    again = await store.directory.set_config("default", "kept", b"{}", None)
    assert again is not None
    assert again.version == 8


async def test_wrong_words_and_wrong_stores_are_refused(private_valkey: PrivateValkey, store: ValkeyStore) -> None:
    both = await accept(store, "--data", "/tmp")
    assert (both.exit_code, "not both" in both.stderr) == (2, True)
    private_valkey.ask("HSET", meta_key(store.prefix), "version", "99")
    assert "data of version 99" in (await accept(store, "--yes")).stderr
    away = await asyncio.to_thread(typed, "store", "accept", "redis://127.0.0.1:1/0", "--yes")
    assert away.exit_code == 1


async def state(app: App) -> tuple[list[str], list[str], str]:
    """Reasons and warnings of /readyz, and the metric."""
    page, _ = await app.metrics("")
    [line] = [line for line in page.decode().splitlines() if line.startswith("dueline_store_replaced ")]
    return [one.code for one in app.health.reasons()], [one.code for one in app.health.warnings()], line.split()[1]


async def test_a_server_tells_of_it_until_it_is_accepted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dueline.store")
    with PrivateValkey() as server:
        async with MountedServer(store=server.url, env={}) as mounted:
            app = mounted._app
            assert app is not None
            store = app.store
            for partition in (ORDERS, SMS):
                await store.send(partition, [item("a")])
            assert await state(app) == ([], [], "0.0")

            server.ask("DEL", *partition_keys("dueline", SMS).keys)
            assert [await is_refused(store, one) for one in (SMS, SMS, ORDERS)] == [True, True, False]
            assert await state(app) == ([], ["store_replaced"], "1.0")  # the other topics are served
            [warning] = app.health.warnings()
            assert (
                "default/sms/0 does not have the data that this server knows: it had send number 1" in warning.message
            )
            assert f"dueline store accept {server.url}" in warning.message
            assert (await accept(store, "--yes")).exit_code == 0
            await app.access.check()  # what the health check does, without any send
            assert await state(app) == ([], [], "0.0")

            server.ask("FLUSHALL")
            assert await is_refused(store, ORDERS)
            assert await state(app) == (["store_replaced"], [], "1.0")
            assert (await accept(store, "--yes")).exit_code == 0
            assert await until(app.health.reasons, lambda reasons: not reasons) == []  # by the next check
            assert await state(app) == ([], [], "0.0")
            assert await is_refused(store, ORDERS) is False
    lines = [str(record.msg).partition("=")[0].rpartition(" ")[0] for record in caplog.records]
    assert lines == [
        "sends are refused, because data is missing",
        "sends are accepted again",
        "the store does not have its data any more",
        "the data of the store is back, or its loss was accepted",
    ]


@pytest.fixture(scope="module")
def cluster() -> Iterator[PrivateCluster]:
    """Of this module alone, because its shards are emptied."""
    with running_stores(PrivateCluster()) as cluster:
        yield cluster


@pytest.mark.parametrize("which", ["of the directory", "another"])
async def test_an_emptied_shard_is_noticed_by_all_processes_and_accepted(cluster: PrivateCluster, which: str) -> None:
    """`old` has used the partitions, `idle` runs and never did, `fresh` is started afterwards."""
    home = cluster.primary_of(directory_keys("dueline")[0])
    shard = home if which == "of the directory" else next(node for node in cluster.nodes if node is not home)
    elsewhere = next(node for node in cluster.nodes if node not in (home, shard))
    lost, second, third = partitions_on(cluster, shard, 3)
    [safe] = partitions_on(cluster, elsewhere, 1)
    async with started(cluster.url) as (old, _), started(cluster.url) as (idle, _):
        for partition in (lost, second, third, safe):
            await old.directory.register([(partition.namespace, partition.topic)])
            await old.send(partition, [item("a"), item("b")])
        await idle.send(safe, [item("c")])
        shard.ask("FLUSHALL")

        assert [await is_refused(one, lost) for one in (old, idle)] == [True, True]
        if shard is home:
            with pytest.raises(StoreReplaced):
                async with started(cluster.url):
                    pass
            assert [await is_refused(one, safe) for one in (old, idle)] == [True, True]  # nothing lists its topic
        else:
            async with started(cluster.url) as (fresh, _):
                assert [await is_refused(fresh, one) for one in (lost, safe)] == [True, False]
            assert [await is_refused(one, safe) for one in (old, idle)] == [False, False]

        assert (await accept(old, "--yes")).exit_code == 0
        async with started(cluster.url) as (fresh, _):
            for partition in (lost, second, third, safe):
                assert [await is_refused(one, partition) for one in (old, idle, fresh)] == [False] * 3
        assert await old.read(safe, ["a"]) != [None]
        topics = [one.topic for one in await old.directory.topics("ns", "", 100)]
        assert safe.topic in topics
        for store in (old, idle):
            await store.check()
            assert store.epochs.losses == {}


async def test_a_process_that_starts_after_the_directory_was_emptied_notices_it_alone(cluster: PrivateCluster) -> None:
    """No other process runs. Copies of the store's epoch on other shards tell it."""
    async with started(cluster.url) as (store, _):
        pass
    cluster.primary_of(directory_keys("dueline")[0]).ask("FLUSHALL")
    with pytest.raises(StoreReplaced, match="its directory was emptied"):
        async with started(cluster.url):
            pass
    assert (await accept(store, "--yes")).exit_code == 0
    async with started(cluster.url) as (store, _):
        [sent] = await store.send(Partition("ns", uuid.uuid4().hex), [item("a")])
        assert sent.code is Code.CREATED

"""A store that loses data under running servers: emptied, put back to an older state, or partly gone.

Each test has a prefix of its own on one Valkey. `old` is a process that has used the partition, `idle` one that runs
and never did, and a third one is started afterwards.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from dueline.engine.errors import StoreDown, StoreReplaced
from dueline.engine.job import Partition, Reason
from dueline.engine.store import Code, Credit, Edit, Merge, Pull, Ref, Release, Revive
from dueline.store.valkey.fsck import fsck
from dueline.store.valkey.keys import epoch_keys, partition_keys, partition_name
from dueline.store.valkey.store import ValkeyStore
from tests.kit.async_tests import async_fixture
from tests.kit.copies import Copy, erase
from tests.kit.fixtures import private_valkey
from tests.kit.store import item
from tests.kit.tapped_store import TappedStore
from tests.kit.valkey import PrivateValkey

__all__ = ["private_valkey"]

PARTITION = Partition("ns", "orders")
OTHER = Partition("ns", "other")


@dataclass
class Processes:
    """`old` has sent ten jobs, `idle` none."""

    server: PrivateValkey
    prefix: str
    old: ValkeyStore
    idle: ValkeyStore

    def key(self, letter: str, partition: Partition = PARTITION) -> str:
        return partition_keys(self.prefix, partition).keys["mjrsladgk".index(letter)]

    def ask(self, *words: str | int) -> object:
        return self.server.ask(*words)

    def lose(self, partition: Partition = PARTITION) -> None:
        """The partition is gone, as if its shard had been emptied; the directory is not."""
        self.ask("DEL", *partition_keys(self.prefix, partition).keys)

    @asynccontextmanager
    async def fresh(self) -> AsyncGenerator[ValkeyStore]:
        """A process that is started now."""
        store = ValkeyStore(self.server.url, prefix=self.prefix)
        await store.start()
        try:
            yield store
        finally:
            await store.stop()


@async_fixture
async def processes(private_valkey: PrivateValkey) -> AsyncIterator[Processes]:
    prefix = f"t{uuid.uuid4().hex}"
    old, idle = (ValkeyStore(private_valkey.url, prefix=prefix) for _ in range(2))
    await old.start()
    await idle.start()
    for number in range(10):
        await old.send(PARTITION, [item(f"j{number}")])
    yield Processes(private_valkey, prefix, old, idle)
    await old.stop()
    await idle.stop()
    erase(private_valkey.url, prefix)


async def refused(store: ValkeyStore, partition: Partition = PARTITION, id: str = "late") -> str:
    """The message of a send that must be refused and must leave no job."""
    with pytest.raises(StoreReplaced) as raised:
        await store.send(partition, [item(id)])
    assert (raised.value.code, raised.value.done) == ("store_replaced", False)
    assert await store.read(partition, [id]) == [None]
    return raised.value.message


async def test_an_emptied_store_is_refused_by_the_first_send_of_every_process(processes: Processes) -> None:
    erase(processes.server.url, processes.prefix)
    for store in (processes.old, processes.idle):
        message = await refused(store)
        assert "it was emptied, or it is another store" in message
        assert f"dueline store accept unix://{processes.server.url[7:]} --prefix {processes.prefix}" in message
    with pytest.raises(StoreReplaced):
        async with processes.fresh():
            pass
    assert processes.ask("KEYS", f"{processes.prefix}:*:j") == []


async def test_an_emptied_store_answers_consumers_as_before(processes: Processes) -> None:
    [job] = (await processes.old.pull(PARTITION, Pull((Credit(1, None),), 30_000))).jobs
    erase(processes.server.url, processes.prefix)
    await refused(processes.old)
    assert (await processes.old.pull(PARTITION, Pull((Credit(1, None),), 30_000, 1000))).jobs == []
    assert [one.code for one in await processes.old.ack(PARTITION, [Ref(job.id, job.lease)])] == [Code.NOT_FOUND]
    await refused(processes.old)  # the pull that waits has not opened the partition


async def test_a_health_check_notices_an_emptied_store_without_any_send(processes: Processes) -> None:
    erase(processes.server.url, processes.prefix)
    with pytest.raises(StoreReplaced):
        await processes.idle.check()
    assert list(processes.idle.epochs.losses) == [None]
    await refused(processes.idle, OTHER)


async def test_a_lost_partition_is_refused_by_every_process_and_the_others_serve(processes: Processes) -> None:
    await processes.old.send(OTHER, [item("a")])
    processes.lose()
    assert "the partition ns/orders/0 does not have the data" in await refused(processes.old)
    assert "it had send number 10 and is gone" in await refused(processes.old)
    assert "it is gone" in await refused(processes.idle)
    async with processes.fresh() as fresh:
        assert "it is gone" in await refused(fresh)
        await fresh.send(OTHER, [item("b")])
    await processes.old.send(OTHER, [item("c")])


async def test_merging_sends_and_batches_are_refused_too(processes: Processes) -> None:
    processes.lose()
    for some in ([item("a"), item("b")], [item("g", merge=Merge("key", quiet_ms=1000))], [item("c", tags=("x",))]):
        with pytest.raises(StoreReplaced):
            await processes.old.send(PARTITION, some)
    assert processes.ask("KEYS", f"{processes.prefix}:*orders*") == []


@pytest.mark.parametrize("topic", ["orders", "second"])
async def test_a_lost_partition_of_a_namespace_with_its_own_ids_is_refused(processes: Processes, topic: str) -> None:
    """Its topics share the records, and each is noticed."""
    both = [Partition("ids", name, 0, True) for name in ("orders", "second")]
    for partition in both:
        await processes.old.send(partition, [item(f"first-{partition.topic}")])
    for partition in both:
        processes.lose(partition)
    asked = Partition("ids", topic, 0, True)
    assert "it had send number 1 and is gone" in await refused(processes.old, asked)
    assert "it is gone" in await refused(processes.idle, asked)


async def test_lost_sends_are_noticed_by_the_next_send_and_then_by_every_process(processes: Processes) -> None:
    """As after a failover to a replica that had not received everything."""
    await processes.idle.send(PARTITION, [item("low")])
    copy = Copy(processes.server, processes.prefix)
    for number in range(5):
        await processes.old.send(PARTITION, [item(f"lost{number}")])
    copy.put_back()
    await processes.idle.send(PARTITION, [item("unnoticed")])  # it never saw more
    assert "it had send number 16, now 12" in await refused(processes.old)
    assert "it had send number 16, now 12" in await refused(processes.idle)
    async with processes.fresh() as fresh:
        assert "it had send number 16, now 12" in await refused(fresh)
    assert await processes.old.read(PARTITION, ["low"]) != [None]
    assert len((await processes.old.pull(PARTITION, Pull((Credit(50, None),), 30_000))).jobs) == 12


@pytest.mark.parametrize("change", ["edit", "revive"])
async def test_changes_that_take_numbers_do_not_hide_lost_sends(processes: Processes, change: str) -> None:
    """They are done, because they answer for what is there; the next send is refused all the same."""
    ids = [f"j{number}" for number in range(10)]
    if change == "revive":
        pulled = await processes.old.pull(PARTITION, Pull((Credit(10, None),), 30_000))
        dead = [Release(job.id, job.lease, dead=Reason.REJECTED) for job in pulled.jobs]
        await processes.old.release(PARTITION, dead)
    copy = Copy(processes.server, processes.prefix)
    for number in range(5):
        await processes.old.send(PARTITION, [item(f"lost{number}")])
    copy.put_back()
    if change == "edit":
        codes = [one.code for one in await processes.old.edit(PARTITION, [Edit(id, delay_ms=0) for id in ids])]
    else:
        codes = [one.code for _, one in await processes.old.revive(PARTITION, Revive(tuple(ids)))]
    assert codes == [Code.OK] * 10
    assert "it has lost sends up to number 15" in await refused(processes.old)
    assert "it has lost sends up to number 15" in await refused(processes.idle)


async def test_a_lost_edit_is_noticed_like_a_lost_send(processes: Processes) -> None:
    copy = Copy(processes.server, processes.prefix)
    await processes.old.edit(PARTITION, [Edit("j1", delay_ms=0)])
    copy.put_back()
    assert "it had send number 11, now 10" in await refused(processes.old)


async def test_when_the_data_is_back_sends_are_accepted_without_a_command(processes: Processes) -> None:
    """As after a second failover, to the node that has everything."""
    stale = Copy(processes.server, processes.prefix)
    await processes.old.send(PARTITION, [item("more")])
    whole = Copy(processes.server, processes.prefix)
    stale.put_back()
    await refused(processes.old)
    whole.put_back()
    await processes.old.check()
    assert not processes.old.epochs.losses
    [sent] = await processes.old.send(PARTITION, [item("late")])
    assert sent.version == 12


async def test_a_partition_that_an_older_state_does_not_have_is_noticed(processes: Processes) -> None:
    """Neither the partition nor the directory has a trace of it."""
    copy = Copy(processes.server, processes.prefix)
    await processes.old.send(OTHER, [item("a")])
    copy.put_back()
    assert "it had send number 1 and is gone" in await refused(processes.old, OTHER)


async def test_the_state_before_a_partition_was_opened_again_is_noticed(processes: Processes) -> None:
    await processes.old.send(OTHER, [item("a")])
    copy = Copy(processes.server, processes.prefix)
    await processes.old.cancel(OTHER, ["a"], forget=True)
    assert await processes.old.retire(OTHER)
    await processes.old.send(OTHER, [item("b")])
    copy.put_back()
    assert "it has older data" in await refused(processes.old, OTHER)


async def test_data_of_another_store_is_refused(processes: Processes) -> None:
    processes.ask("HSET", processes.key("m"), "ep", "0123456789abcdef.1")
    for store in (processes.old, processes.idle):
        assert "its data is that of another store" in await refused(store)


async def test_a_store_of_before_epochs_is_adopted(processes: Processes) -> None:
    processes.ask("HDEL", processes.key("m"), "ep")
    processes.ask("DEL", *epoch_keys(processes.prefix)[1:3])
    [sent] = await processes.idle.send(PARTITION, [item("a")])
    assert (sent.code, sent.version) == (Code.CREATED, 11)
    processes.lose()
    assert "is gone" in await refused(processes.idle)


async def test_a_retired_partition_is_opened_again_by_a_process_that_knew_it(processes: Processes) -> None:
    await processes.idle.send(PARTITION, [item("x")])
    await processes.old.cancel(PARTITION, ["x", *(f"j{number}" for number in range(10))], forget=True)
    assert await processes.old.retire(PARTITION)
    assert [(await processes.idle.send(PARTITION, [item(id)]))[0].version for id in "ab"] == [1, 2]
    [sent] = await processes.old.send(PARTITION, [item("c")])
    assert (sent.version, processes.old.epochs.losses, processes.idle.epochs.losses) == (3, {}, {})


async def test_a_deleted_topic_with_a_waiting_pull_is_known_again_after_the_next_send(processes: Processes) -> None:
    """Its partition is kept for the wake-up, and its jobs must not be in a partition that nobody could miss."""
    await processes.idle.send(OTHER, [item("a")])
    await processes.old.cancel(OTHER, ["a"], forget=True)
    await processes.idle.pull(OTHER, Pull((Credit(1, None),), 30_000, 60_000))
    assert await processes.old.retire(OTHER, True)
    await processes.idle.send(OTHER, [item("b")])
    processes.lose(OTHER)
    for store in (processes.old, processes.idle):
        assert "is gone" in await refused(store, OTHER)


async def test_clean_up_does_not_hide_that_a_partition_was_lost(processes: Processes) -> None:
    """An unused topic is removed when its partition is empty; one that was lost looks empty."""
    processes.lose()
    assert await processes.idle.retire(PARTITION) is False
    assert list(processes.idle.epochs.losses) == [PARTITION]
    async with processes.fresh() as fresh:
        await refused(fresh)
        with pytest.raises(StoreReplaced):
            await fresh.retire(PARTITION, True)


@pytest.mark.parametrize("died_after", [1, 2, 3])
async def test_a_process_that_dies_while_it_opens_a_partition_leaves_it_usable(
    processes: Processes, died_after: int
) -> None:
    """Its calls: refused send, epoch, partition, confirmation, send."""
    store = TappedStore(processes.server.url, prefix=processes.prefix, patience_s=0.1)
    await store.start()
    calls = 0

    async def call(key: str, *words: object) -> object:
        nonlocal calls
        if "EVAL" in str(words[0]):
            calls += 1
            if calls > died_after + 1:
                raise ConnectionError("the process has died")
        return await store.link.through(key, *words)

    store.link.call = call
    with pytest.raises((ConnectionError, StoreDown)):
        await store.send(OTHER, [item("a")])
    await store.stop()
    await processes.idle.send(OTHER, [item("a")])
    await processes.old.send(OTHER, [item("b")])
    entry = processes.ask("HGET", epoch_keys(processes.prefix)[1], partition_name(OTHER).decode())
    assert entry == processes.ask("HGET", processes.key("m", OTHER), "ep")
    processes.lose(OTHER)
    async with processes.fresh() as fresh:
        await refused(fresh, OTHER)


async def test_many_processes_open_one_partition_at_once(processes: Processes) -> None:
    stores = [ValkeyStore(processes.server.url, prefix=processes.prefix) for _ in range(8)]
    for store in stores:
        await store.start()
    try:
        sends = [store.send(OTHER, [item(f"{n}-{i}") for i in range(3)]) for n, store in enumerate(stores)]
        sent = await asyncio.gather(*sends)
        assert sorted(one.version for some in sent for one in some) == list(range(1, 25))
        assert [store.epochs.losses for store in stores] == [{}] * 8
    finally:
        for store in stores:
            await store.stop()


async def test_the_first_send_alone_pays_for_the_opening(processes: Processes) -> None:
    store = TappedStore(processes.server.url, prefix=processes.prefix)
    await store.start()
    calls = 0

    async def call(key: str, *words: object) -> object:
        nonlocal calls
        calls += 1
        return await store.link.through(key, *words)

    async def cost(id: str, partition: Partition) -> int:
        nonlocal calls
        calls = 0
        await store.send(partition, [item(id)])
        return calls

    for id in ("loaded", "more"):  # from here on the server has every script
        await processes.old.send(OTHER, [item(id)])
    store.link.call = call
    new = Partition("ns", "new")
    assert [await cost(id, new) for id in "abc"] == [5, 1, 1]
    assert [await cost(id, OTHER) for id in "abc"] == [3, 1, 1]
    await store.stop()


async def test_sends_from_threads_are_refused_too(processes: Processes) -> None:
    direct = processes.old.single_sends()
    assert direct is not None
    try:
        sent = await asyncio.to_thread(direct.send, PARTITION, item("a"), 0)
        assert sent is not None
        assert sent.version == 11
        copy = Copy(processes.server, processes.prefix)
        sent = await asyncio.to_thread(direct.send, PARTITION, item("b"), 0)
        copy.put_back()
        assert await asyncio.to_thread(direct.send, PARTITION, item("c"), 0) is None  # left to the other way
        assert "it had send number 12, now 11" in await refused(processes.old)
        erase(processes.server.url, processes.prefix)
        assert await asyncio.to_thread(direct.send, PARTITION, item("d"), 0) is None
    finally:
        direct.close()


async def test_fsck_names_what_is_missing(processes: Processes) -> None:
    await processes.old.directory.register([("ns", "orders"), ("ns", "other")])
    await processes.old.send(OTHER, [item("a")])
    assert (await fsck(processes.server.url, processes.prefix)).findings == []
    copy = Copy(processes.server, processes.prefix)
    await processes.old.send(OTHER, [item("b")])
    copy.put_back()
    await refused(processes.old, OTHER)
    processes.lose()
    report = await fsck(processes.server.url, processes.prefix)
    assert sorted(map(str, report.findings)) == [
        "ns/orders/0: the directory knows it, and it is gone",
        "ns/other/0: it had send number 2, now 1; sends are refused",
    ]

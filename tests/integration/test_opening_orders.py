"""Partitions that are opened and retired by two processes, in many orders of their calls: no job is lost, nobody takes
it for lost data, and the directory knows the partition afterwards. There are too many orders to try all."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from dueline.engine.job import Partition
from dueline.store.valkey.keys import epoch_keys, partition_keys, partition_name
from dueline.store.valkey.store import ValkeyStore
from tests.kit.gates import NOW_MS, Call, Gate, run_in_order
from tests.kit.store import item
from tests.kit.valkey import PrivateValkey

PARTITION = Partition("ns", "orders")
ORDERS = 25


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateValkey]:
    with PrivateValkey() as server:
        yield server


def send(id: str) -> Call:
    return lambda store: store.send(PARTITION, [item(id)])


async def retire(store: ValkeyStore) -> None:
    await store.retire(PARTITION)


async def nothing(store: ValkeyStore) -> None:
    return None


async def look(store: ValkeyStore) -> None:
    """The process knows that the topic is new, so its first send opens the partition."""
    assert await store.directory.topic(PARTITION.namespace, PARTITION.topic) is None


async def use(store: ValkeyStore) -> None:
    """The process knows the partition, which is empty again."""
    await store.send(PARTITION, [item("used")])
    await store.cancel(PARTITION, ["used"], forget=True)


def known_epochs(server: PrivateValkey, prefix: str) -> tuple[object, object]:
    """The epoch in the directory and in the partition."""
    entry = server.ask("HGET", epoch_keys(prefix)[1], partition_name(PARTITION).decode())
    return entry, server.ask("HGET", partition_keys(prefix, PARTITION).keys[0], "ep")


@pytest.mark.parametrize(
    ("name", "before", "calls", "sent"),
    [
        ("two-openings", nothing, (send("a"), send("b")), ["a", "b"]),
        ("opening-and-retiring", nothing, (send("a"), retire), ["a"]),
        ("two-first-sends", look, (send("a"), send("b")), ["a", "b"]),
        ("first-send-and-retiring", look, (send("a"), retire), ["a"]),
        ("send-and-retiring", use, (send("a"), retire), ["a"]),
        ("two-retirings", use, (retire, retire), []),
    ],
)
async def test_no_order_of_opening_and_retiring_loses_a_job(
    server: PrivateValkey, name: str, before: Call, calls: tuple[Call, Call], sent: list[str]
) -> None:
    dice = random.Random(name)
    for run in range(ORDERS):
        prefix = f"{name}-{run}"
        gates = [Gate(server.url, prefix) for _ in calls]
        for gate, call in zip(gates, calls, strict=True):
            await gate.start(before, call)
        taken = await run_in_order(gates, [dice.randrange(2) for _ in range(100)])
        assert [gate.store.epochs.losses for gate in gates] == [{}, {}], f"order {taken}"
        entry, epoch = known_epochs(server, prefix)
        assert entry == epoch, f"order {taken}"
        after = ValkeyStore(server.url, prefix=prefix, clock=lambda: NOW_MS)
        await after.start()
        assert [job is not None for job in await after.read(PARTITION, sent)] == [True] * len(sent), f"order {taken}"
        await after.send(PARTITION, [item("after")])
        entry, epoch = known_epochs(server, prefix)
        assert entry == epoch is not None, f"order {taken}"
        await after.stop()


@pytest.mark.parametrize("calls", range(4))
@pytest.mark.parametrize("other", [nothing, retire])
async def test_a_process_that_dies_during_its_first_send_leaves_a_partition_that_others_can_use(
    server: PrivateValkey, calls: int, other: Call
) -> None:
    """It dies after the first calls of three: the epoch, the send that opens the partition, the confirmation."""
    prefix = f"dies-after-{calls}-{other.__name__}"  # type: ignore[attr-defined]
    warm = ValkeyStore(server.url, prefix=f"{prefix}-warm", clock=lambda: NOW_MS)
    await warm.start()  # the server knows the scripts from now on, so each is one call
    await look(warm)
    await warm.send(PARTITION, [item("a")])
    await warm.stop()
    gate = Gate(server.url, prefix)
    await gate.start(look, send("a"))
    for _ in range(calls):
        assert await gate.settled()
        gate.step()
    assert await gate.settled() is (calls < 3)
    assert gate.task is not None
    gate.task.cancel()
    after = ValkeyStore(server.url, prefix=prefix, clock=lambda: NOW_MS)
    await after.start()
    await other(after)
    await after.send(PARTITION, [item("b")])
    assert after.epochs.losses == {}
    assert [job is not None for job in await after.read(PARTITION, ["a", "b"])] == [calls > 1, True]
    entry, epoch = known_epochs(server, prefix)
    assert entry == epoch is not None
    await after.stop()

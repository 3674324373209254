"""How merge groups stand in the real store: nothing is left of one that is gone, and damage is found, not delivered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dueline.engine.job import Partition, Reason, State
from dueline.engine.store import Code, OnConflict
from dueline.store.valkey import fsck
from dueline.store.valkey.keys import LETTERS, partition_keys
from dueline.store.valkey.reader import StoreReader
from tests.kit.store import StoreKit, item

from .test_merge import bodies, merging, put

# The reference keeps no keys; a Cluster keeps the same ones.
pytestmark = pytest.mark.parametrize("kit", ["valkey", "stressed"], indirect=True)


async def command(kit: StoreKit, letter: str, name: str, *words: Any) -> Any:
    store: Any = kit.store
    key = partition_keys(store.prefix, kit.partition).keys[LETTERS.index(letter)]
    return await store.plain(key, name, key, *words)


async def findings(kit: StoreKit, partition: Partition | None = None) -> list[str]:
    """What fsck says of the partition, without its name."""
    partition = kit.partition if partition is None else partition
    store: Any = kit.store
    reader = StoreReader(store.url)
    try:
        contents = await fsck._read(reader, store.prefix, partition)
    finally:
        await reader.stop()
    return sorted(f"{one.id}: {one.what}" for one in fsck.check(partition, contents))


async def test_nothing_is_left_of_groups_that_are_gone(kit: StoreKit) -> None:
    for id in ("acked", "cancelled", "dead", "forgotten", "expired"):
        words = {"max_attempts": 1} if id == "dead" else {"ttl_ms": 5, "delay_ms": 1} if id == "expired" else {}
        for n in range(3):
            await put(kit, f"{n}", id, group=id, item_id=f"{n}", retain_ms=50, dead_retain_ms=50, tags=("t",), **words)
    leased = {leased.id: leased for leased in await kit.pull()}
    await kit.ack("acked", leased["acked"].lease)
    await kit.release("dead", leased["dead"].lease)
    await kit.cancel("cancelled")
    await kit.cancel("forgotten", forget=True)
    assert await findings(kit) == []
    await kit.advance(60)
    await kit.clean()
    assert await command(kit, "g", "HLEN") == 0
    assert await command(kit, "k", "ZCARD") == 0
    assert await findings(kit) == []


async def test_nothing_is_left_of_a_group_that_gave_its_items(kit: StoreKit) -> None:
    await put(kit, "1", group="old", item_id="x", retain_ms=10)
    leased = await kit.pull_one()
    await put(kit, "2", group="new", delay_ms=500, retain_ms=0)
    await kit.release("old", leased.lease)
    assert await findings(kit) == []
    await kit.advance(500)
    await kit.clean()
    leased = await kit.pull_one()
    assert await kit.ack("new", leased.lease) is Code.OK
    assert await command(kit, "g", "HLEN") == 0


ITEM = b"n\x00\x01g"


async def change_a_byte(kit: StoreKit) -> None:
    stored = await command(kit, "g", "HGET", ITEM)
    await command(kit, "g", "HSET", ITEM, stored[:-1] + b"!")


async def drop_an_item(kit: StoreKit) -> None:
    await command(kit, "g", "HDEL", ITEM)


async def cut_an_item(kit: StoreKit) -> None:
    await command(kit, "g", "HSET", ITEM, b"short")


async def drop_the_count(kit: StoreKit) -> None:
    await command(kit, "g", "HDEL", b"mg")


@pytest.mark.parametrize(
    "damage", [change_a_byte, drop_an_item, cut_an_item, drop_the_count], ids=lambda damage: damage.__name__
)
async def test_a_group_that_is_not_what_was_stored_is_dead_and_stops_nobody(
    kit: StoreKit, damage: Callable[[StoreKit], Awaitable[None]]
) -> None:
    await put(kit, "1", group="g", item_id="x")
    await put(kit, "2")
    await put(kit, "3", "other", group="good")
    await damage(kit)
    assert await findings(kit) != []
    pulled = await kit.pulled()
    assert ([bodies(leased) for leased in pulled.jobs], pulled.deaths) == ([["3"]], (Reason.CORRUPT,))
    job = await kit.job("g")
    assert (job.state, job.reason) == (State.DEAD, Reason.CORRUPT)
    assert (await put(kit, "4", group="h")).code is Code.CREATED
    await kit.purge("g")
    assert await kit.read("g") is None


async def test_damaged_groups_neither_give_nor_take(kit: StoreKit) -> None:
    await put(kit, "1", group="g")
    leased = await kit.pull_one()
    await put(kit, "2", group="new", delay_ms=500)
    await drop_an_item(kit)
    assert (await kit.release("g", leased.lease, delay_ms=5)).code is Code.OK
    assert await kit.state("g") is State.SCHEDULED
    assert bodies(await kit.job("new")) == ["2"]
    leased = await put(kit, "1", "other", group="leased", max_items=1)
    assert leased.state is State.READY
    leased = next(leased for leased in await kit.pull() if leased.id == "leased")
    await put(kit, "2", "other", group="torn", delay_ms=500)
    await command(kit, "g", "HDEL", b"n\x00\x01torn")
    assert (await kit.release("leased", leased.lease, delay_ms=5)).code is Code.OK
    assert bodies(await kit.job("leased")) == ["1"]


async def test_a_group_that_is_replaced_from_another_topic_leaves_nothing_in_its_own(kit: StoreKit) -> None:
    partitions = [Partition(kit.partition.topic, topic, 0, True) for topic in "ab"]
    for sends in ([merging("1", group="g", item_id="x", tags=("t",))], [merging("1", "open", group="h", delay_ms=9)]):
        await kit.store.send(partitions[0], sends)
    await kit.store.send(partitions[1], [item("g", on_live=OnConflict.REPLACE), item("h", on_live=OnConflict.REPLACE)])
    assert [await findings(kit, partition) for partition in partitions] == [[], []]


async def test_fsck_names_what_is_wrong_with_groups(kit: StoreKit) -> None:
    await put(kit, "1", group="g", item_id="x", delay_ms=500)
    await put(kit, "2")
    assert await findings(kit) == []

    async def finds(what: str, *changes: tuple[Any, ...]) -> None:
        before = {field: await command(kit, "g", "HGET", field) for _, field, *_ in changes}
        for change in changes:
            await command(kit, "g", *change)
        assert await findings(kit) == [what]
        for field, value in before.items():
            await command(kit, "g", *(("HDEL", field) if value is None else ("HSET", field, value)))
        assert await findings(kit) == []

    meta = await command(kit, "g", "HGET", b"mg")
    one, two = [await command(kit, "g", "HGET", b"n\x00" + bytes((place,)) + b"g") for place in (1, 2)]
    await finds("g: its item 2 is missing", ("HDEL", b"n\x00\x02g"))
    await finds("g: its item 2 does not match its checksum", ("HSET", b"n\x00\x02g", two + b"!"))
    await finds("g: is not a group, but has stored items", ("HSET", b"n\x00\x03g", two))
    await finds("h: is not a group, but has stored items", ("HSET", b"mh", meta))
    await finds("g: its items have 2 bytes, but its record has 9", ("HSET", b"mg", meta[:5] + b"\x09" + meta[6:]))
    await finds("g: its items are not in send order", ("HSET", b"n\x00\x01g", two), ("HSET", b"n\x00\x02g", one))
    await finds("h: is not a group of the key 'other', but is recorded as its open one", ("HSET", b"kother", b"h"))
    await finds("g: does not have the item 'y' that is recorded for it", ("HSET", b"i\x00\x03keyy", b"g"))
    await kit.fire("g")
    await kit.pull_one()
    await finds("g: was pulled or has ended, but is recorded as the open group of its key", ("HSET", b"kkey", b"g"))
    await command(kit, "k", "ZREM", b"\x01\x00\x03key\x00\x00\x00\x00\x01g")
    assert await findings(kit) == ["g: is missing in the tags and groups"]


async def test_clean_up_takes_few_large_groups_at_a_time_and_all_in_the_end(kit: StoreKit) -> None:
    kit.calm()  # every clean-up here is one step
    for key in "abc":
        await kit.send_many([merging(f"{n}", key, group=key, item_id=f"{n}", ttl_ms=5) for n in range(700)])
    kit.clock.advance(5)
    steps = 0
    await kit.clean()  # dead, with their items
    kit.clock.advance(31 * 86_400_000)
    while (await kit.store.clean(kit.partition)).more:
        steps += 1
    assert steps == 1
    assert await command(kit, "g", "HLEN") == 0
    assert await findings(kit) == []

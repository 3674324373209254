"""How merge groups stand in the real store: nothing is left of one that is gone, and damage is found, not delivered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis.asyncio as redis

from dueline.engine.job import Partition, Reason, State
from dueline.engine.store import Code, OnConflict
from dueline.store.valkey import fsck
from dueline.store.valkey.keys import LETTERS, partition_keys
from tests.kit.bed import Bed, item

from .test_merge import bodies, merging, put

# The reference keeps no keys; a Cluster keeps the same ones.
pytestmark = pytest.mark.parametrize("bed", ["valkey", "stressed"], indirect=True)


async def command(bed: Bed, letter: str, name: str, *words: Any) -> Any:
    store: Any = bed.store
    key = partition_keys(store.prefix, bed.partition).keys[LETTERS.index(letter)]
    return await store.plain(key, name, key, *words)


async def findings(bed: Bed, partition: Partition | None = None) -> list[str]:
    """What fsck says of the partition, without its name."""
    partition = bed.partition if partition is None else partition
    store: Any = bed.store
    client: Any = redis.Redis.from_url(store.url, protocol=2)
    try:
        contents = await fsck._read(client, store.prefix, partition)
    finally:
        await client.aclose()
    return sorted(f"{one.id}: {one.what}" for one in fsck.check(partition, contents))


async def test_nothing_is_left_of_groups_that_are_gone(bed: Bed) -> None:
    for id in ("acked", "cancelled", "dead", "forgotten", "expired"):
        words = {"max_attempts": 1} if id == "dead" else {"ttl_ms": 5, "delay_ms": 1} if id == "expired" else {}
        for n in range(3):
            await put(bed, f"{n}", id, group=id, item_id=f"{n}", retain_ms=50, dead_retain_ms=50, tags=("t",), **words)
    held = {held.id: held for held in await bed.pull()}
    await bed.ack("acked", held["acked"].lease)
    await bed.release("dead", held["dead"].lease)
    await bed.cancel("cancelled")
    await bed.cancel("forgotten", forget=True)
    assert await findings(bed) == []
    await bed.advance(60)
    await bed.clean()
    assert await command(bed, "g", "HLEN") == 0
    assert await command(bed, "k", "ZCARD") == 0
    assert await findings(bed) == []


async def test_nothing_is_left_of_a_group_that_gave_its_items(bed: Bed) -> None:
    await put(bed, "1", group="old", item_id="x", retain_ms=10)
    held = await bed.pull_one()
    await put(bed, "2", group="new", delay_ms=500, retain_ms=0)
    await bed.release("old", held.lease)
    assert await findings(bed) == []
    await bed.advance(500)
    await bed.clean()
    held = await bed.pull_one()
    assert await bed.ack("new", held.lease) is Code.OK
    assert await command(bed, "g", "HLEN") == 0


ITEM = b"n\x00\x01g"


async def change_a_byte(bed: Bed) -> None:
    stored = await command(bed, "g", "HGET", ITEM)
    await command(bed, "g", "HSET", ITEM, stored[:-1] + b"!")


async def drop_an_item(bed: Bed) -> None:
    await command(bed, "g", "HDEL", ITEM)


async def cut_an_item(bed: Bed) -> None:
    await command(bed, "g", "HSET", ITEM, b"short")


async def drop_the_count(bed: Bed) -> None:
    await command(bed, "g", "HDEL", b"mg")


@pytest.mark.parametrize(
    "damage", [change_a_byte, drop_an_item, cut_an_item, drop_the_count], ids=lambda damage: damage.__name__
)
async def test_a_group_that_is_not_what_was_stored_is_dead_and_stops_nobody(
    bed: Bed, damage: Callable[[Bed], Awaitable[None]]
) -> None:
    await put(bed, "1", group="g", item_id="x")
    await put(bed, "2")
    await put(bed, "3", "other", group="good")
    await damage(bed)
    assert await findings(bed) != []
    pulled = await bed.pulled()
    assert ([bodies(held) for held in pulled.jobs], pulled.deaths) == ([["3"]], (Reason.CORRUPT,))
    job = await bed.job("g")
    assert (job.state, job.reason) == (State.DEAD, Reason.CORRUPT)
    assert (await put(bed, "4", group="h")).code is Code.CREATED
    await bed.purge("g")
    assert await bed.read("g") is None


async def test_damaged_groups_neither_give_nor_take(bed: Bed) -> None:
    await put(bed, "1", group="g")
    held = await bed.pull_one()
    await put(bed, "2", group="new", delay_ms=500)
    await drop_an_item(bed)
    assert (await bed.release("g", held.lease, delay_ms=5)).code is Code.OK
    assert await bed.state("g") is State.SCHEDULED
    assert bodies(await bed.job("new")) == ["2"]
    held = await put(bed, "1", "other", group="held", max_items=1)
    assert held.state is State.READY
    held = next(held for held in await bed.pull() if held.id == "held")
    await put(bed, "2", "other", group="torn", delay_ms=500)
    await command(bed, "g", "HDEL", b"n\x00\x01torn")
    assert (await bed.release("held", held.lease, delay_ms=5)).code is Code.OK
    assert bodies(await bed.job("held")) == ["1"]


async def test_a_group_that_is_replaced_from_another_topic_leaves_nothing_in_its_own(bed: Bed) -> None:
    partitions = [Partition(bed.partition.topic, topic, 0, True) for topic in "ab"]
    for sends in ([merging("1", group="g", item_id="x", tags=("t",))], [merging("1", "open", group="h", delay_ms=9)]):
        await bed.store.send(partitions[0], sends)
    await bed.store.send(partitions[1], [item("g", on_live=OnConflict.REPLACE), item("h", on_live=OnConflict.REPLACE)])
    assert [await findings(bed, partition) for partition in partitions] == [[], []]


async def test_fsck_names_what_is_wrong_with_groups(bed: Bed) -> None:
    await put(bed, "1", group="g", item_id="x", delay_ms=500)
    await put(bed, "2")
    assert await findings(bed) == []

    async def finds(what: str, *changes: tuple[Any, ...]) -> None:
        before = {field: await command(bed, "g", "HGET", field) for _, field, *_ in changes}
        for change in changes:
            await command(bed, "g", *change)
        assert await findings(bed) == [what]
        for field, value in before.items():
            await command(bed, "g", *(("HDEL", field) if value is None else ("HSET", field, value)))
        assert await findings(bed) == []

    meta = await command(bed, "g", "HGET", b"mg")
    one, two = [await command(bed, "g", "HGET", b"n\x00" + bytes((place,)) + b"g") for place in (1, 2)]
    await finds("g: its item 2 is missing", ("HDEL", b"n\x00\x02g"))
    await finds("g: its item 2 does not match its checksum", ("HSET", b"n\x00\x02g", two + b"!"))
    await finds("g: is not a group, but has stored items", ("HSET", b"n\x00\x03g", two))
    await finds("h: is not a group, but has stored items", ("HSET", b"mh", meta))
    await finds("g: its items have 2 bytes, it says 9", ("HSET", b"mg", meta[:5] + b"\x09" + meta[6:]))
    await finds("g: its items are not in send order", ("HSET", b"n\x00\x01g", two), ("HSET", b"n\x00\x02g", one))
    await finds("h: is not a group of the key 'other', but is recorded as its open one", ("HSET", b"kother", b"h"))
    await finds("g: does not have the item 'y' that is recorded for it", ("HSET", b"i\x00\x03keyy", b"g"))
    await bed.fire("g")
    await bed.pull_one()
    await finds("g: was pulled or has ended, but is recorded as the open group of its key", ("HSET", b"kkey", b"g"))
    await command(bed, "k", "ZREM", b"\x01\x00\x03key\x00\x00\x00\x00\x01g")
    assert await findings(bed) == ["g: is missing in the tags and groups"]


async def test_clean_up_takes_few_large_groups_at_a_time_and_all_in_the_end(bed: Bed) -> None:
    bed.calm()  # every clean-up here is one step
    for key in "abc":
        await bed.send_many([merging(f"{n}", key, group=key, item_id=f"{n}", ttl_ms=5) for n in range(700)])
    bed.clock.advance(5)
    steps = 0
    await bed.clean()  # dead, with their items
    bed.clock.advance(31 * 86_400_000)
    while (await bed.store.clean(bed.partition)).more:
        steps += 1
    assert steps == 1
    assert await command(bed, "g", "HLEN") == 0
    assert await findings(bed) == []

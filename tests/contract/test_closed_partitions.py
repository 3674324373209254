"""A closed partition: it serves the jobs that it holds, and takes no new ones (engine.expansion)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from dueline.engine.job import State
from dueline.engine.store import Code, Merge, OnConflict, SendItem, SendOutcome, StalePolicy
from tests.kit.store import StoreKit, item

VERSION = 7
_numbers = itertools.count()


async def close(kit: StoreKit, version: int = VERSION) -> None:
    await kit.control(policy_version=version, closed=True)


async def send(kit: StoreKit, id: str, version: int = VERSION, **words: Any) -> SendOutcome:
    return (await kit.store.send(kit.partition, [item(id, **words)], version))[0]


def merging(body: str, key: str = "key", **words: Any) -> SendItem:
    return item(f"group-{next(_numbers)}", body=body.encode(), merge=Merge(key, **words), delay_ms=1_000)


MOVED = SendOutcome(Code.MOVED, State.READY, 0, VERSION)


@pytest.mark.parametrize("words", [{}, {"tags": ("a",)}, {"ttl_ms": 5_000}, {"at_ms": 1}])
async def test_a_closed_partition_takes_no_new_id(words: dict[str, Any], kit: StoreKit) -> None:
    await kit.send("held")
    await close(kit)
    assert await send(kit, "new", **words) == MOVED
    assert (await kit.read("new"), (await kit.stats()).ready) == (None, 1)


async def test_a_batch_gets_an_answer_per_job(kit: StoreKit) -> None:
    await kit.send("held")
    await close(kit)
    sent = await kit.store.send(kit.partition, [item("new"), item("held"), item("other")], VERSION)
    assert [one.code for one in sent] == [Code.MOVED, Code.KEPT, Code.MOVED]


async def test_a_sender_with_an_older_config_is_told_so_before_anything_else(kit: StoreKit) -> None:
    await kit.send("held")
    await close(kit)
    for id in ("held", "new"):
        with pytest.raises(StalePolicy) as stale:
            await send(kit, id, version=VERSION - 1)
        assert stale.value.version == VERSION


async def test_the_conflict_rules_hold_for_the_ids_that_it_holds(kit: StoreKit) -> None:
    await kit.send("a")
    await kit.send("b")
    await close(kit)
    assert (await send(kit, "a")).code is Code.KEPT
    assert (await send(kit, "a", body=b"other")).code is Code.ID_EXISTS
    assert (await send(kit, "a", body=b"other", on_live=OnConflict.KEEP)).code is Code.KEPT
    assert (await send(kit, "b", body=b"other", on_live=OnConflict.REPLACE)).code is Code.REPLACED
    assert {leased.id: leased.body for leased in await kit.pull()} == {"a": b"body", "b": b"other"}


async def test_every_call_by_id_works_on_what_it_holds(kit: StoreKit) -> None:
    await kit.make_dead("dead")
    for id in ("acked", "released"):
        await kit.send(id)
    for id in ("cancelled", "edited"):
        await kit.send(id, delay_ms=1_000)
    leased = {one.id: one.lease for one in await kit.pull()}
    await close(kit)
    assert await kit.ack("acked", leased["acked"]) is Code.OK
    assert (await kit.release("released", leased["released"])).code is Code.OK
    assert await kit.cancel("cancelled") is Code.OK
    assert (await kit.edit("edited", body=b"new", delay_ms=0)).code is Code.OK
    assert [done.code for _, done in await kit.revive("dead")] == [Code.OK]
    assert sorted(await kit.pull_ids()) == ["dead", "edited", "released"]


async def test_an_ended_job_that_would_be_replaced_leaves(kit: StoreKit) -> None:
    for id in ("done", "cancelled"):
        await kit.send(id, retain_ms=60_000)
    await kit.ack("done")
    await kit.cancel("cancelled")
    await close(kit)
    for id in ("done", "cancelled"):
        assert (await send(kit, id, body=b"x", on_ended=OnConflict.REJECT)).code is Code.ID_EXISTS
        assert await send(kit, id, on_ended=OnConflict.REPLACE) == MOVED
        assert await send(kit, id) == MOVED
        assert await kit.read(id) is None
    after = await kit.stats()
    assert (after.done, after.cancelled) == (0, 0)


async def test_a_dead_job_is_replaced_where_it_is(kit: StoreKit) -> None:
    await kit.make_dead("dead")
    await close(kit)
    assert (await send(kit, "dead", on_ended=OnConflict.REPLACE)).code is Code.REPLACED
    assert await kit.pull_ids() == ["dead"]


async def test_an_id_whose_retention_is_over_is_new(kit: StoreKit) -> None:
    await kit.send("a", retain_ms=1_000)
    await kit.ack("a")
    await close(kit)
    await kit.advance(1_000)
    assert await send(kit, "a") == MOVED
    assert (await kit.stats()).done == 0


async def test_an_open_group_goes_on_until_it_closes(kit: StoreKit) -> None:
    async def put(body: str, key: str = "key", **words: Any) -> SendOutcome:
        return (await kit.store.send(kit.partition, [merging(body, key, **words)], VERSION))[0]

    await kit.control(policy_version=VERSION)
    await put("1", item_id="one", max_items=3)
    await close(kit)
    assert await put("x", key="other") == MOVED
    assert (await put("1", item_id="one")).code is Code.KEPT
    assert (await put("2", max_items=3)).items_count == 2
    await kit.advance(1_000)
    leased = await kit.pull_one()
    assert [one.body for one in leased.items or ()] == [b"1", b"2"]
    assert await put("3") == MOVED
    assert (await put("1", item_id="one")).code is Code.KEPT, "the item was added, and its group is readable"


async def test_an_item_that_does_not_fit_closes_its_group_and_goes_on(kit: StoreKit) -> None:
    await kit.control(policy_version=VERSION)
    [opened] = await kit.store.send(kit.partition, [merging("12345", max_bytes=6)], VERSION)
    await close(kit)
    for _ in range(2):
        [moved] = await kit.store.send(kit.partition, [merging("67", max_bytes=6)], VERSION)
        assert moved == MOVED
    [more] = await kit.store.send(kit.partition, [merging("6", max_bytes=6)], VERSION)
    assert more == MOVED, "the group is closed"
    assert await kit.pull_ids() == [opened.group]


async def test_only_a_config_that_is_as_new_opens_a_partition_again(kit: StoreKit) -> None:
    await close(kit)
    await kit.control(policy_version=VERSION - 1, closed=False)
    assert await send(kit, "a") == MOVED
    await kit.control(policy_version=VERSION)
    assert await send(kit, "a") == MOVED, "a change of other settings leaves it closed"
    await kit.control(policy_version=VERSION, closed=False)
    assert (await send(kit, "a")).code is Code.CREATED
    await kit.control(policy_version=VERSION - 1, closed=True)
    assert (await send(kit, "b")).code is Code.CREATED


async def test_closing_wakes_those_who_wait(kit: StoreKit) -> None:
    await kit.store.watch(kit.partition)
    await kit.pulled(wait_ms=60_000)
    kit.events.forget_wakes()
    await close(kit)
    await kit.events.next_wake()
    assert kit.events.woken_partitions == [kit.partition]


@pytest.mark.parametrize("wait_ms", [0, 60_000])
async def test_a_partition_that_drops_its_topic_is_open_again(wait_ms: int, kit: StoreKit) -> None:
    await kit.pulled(wait_ms=wait_ms)
    await close(kit)
    assert await kit.store.retire(kit.partition, True)
    assert (await send(kit, "a", version=0)).code is Code.CREATED

"""A partition that a namespace with `namespace_ids` has closed: for all of its topics, even for new ones."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from dueline.engine.job import Partition, State
from dueline.engine.store import Code, Control, Credit, Merge, OnConflict, Pull, Ref, SendItem, SendOutcome, StalePolicy
from tests.kit.store import StoreKit, item

VERSION = 7
MOVED = SendOutcome(Code.MOVED, State.READY, 0, VERSION)
_numbers = itertools.count()


def place(kit: StoreKit, topic: str = "", number: int = 0) -> Partition:
    """Each test has a namespace of its own, because the stores are shared."""
    return Partition(kit.partition.topic, topic, number, True)


async def close(kit: StoreKit, version: int = VERSION, closed: bool = True) -> None:
    await kit.store.control(place(kit), Control(policy_version=version, closed=closed))


async def send(kit: StoreKit, topic: str, id: str, version: int = 0, **words: Any) -> SendOutcome:
    return (await kit.store.send(place(kit, topic), [item(id, **words)], version))[0]


def merging(key: str = "key", **words: Any) -> SendItem:
    return item(f"group-{next(_numbers)}", body=b"1", merge=Merge(key, **words), delay_ms=1_000)


async def pulled(kit: StoreKit, topic: str) -> list[str]:
    found = await kit.store.pull(place(kit, topic), Pull((Credit(10, None),), 1_000))
    return sorted(job.id for job in found.jobs)


@pytest.mark.parametrize("words", [{}, {"tags": ("a",)}, {"ttl_ms": 5_000}])
async def test_no_topic_takes_a_new_id_not_even_a_topic_that_is_new_there(words: dict[str, Any], kit: StoreKit) -> None:
    await send(kit, "known", "held")
    await close(kit)
    for topic in ("known", "new"):
        assert await send(kit, topic, "other", **words) == MOVED
        assert await send(kit, topic, "other", version=3, **words) == MOVED, "it need not know the topic's policy"
        [merged] = await kit.store.send(place(kit, topic), [merging()], 0)
        assert merged == MOVED
    assert await kit.store.stored_ids(place(kit), 100) == {"held"}
    assert await pulled(kit, "known") == ["held"]


async def test_it_closes_before_its_first_job(kit: StoreKit) -> None:
    await close(kit)
    assert await send(kit, "a", "1") == MOVED
    assert await kit.store.stored_ids(place(kit), 100) == frozenset()
    assert (await kit.store.send(place(kit, "a", 1), [item("1")]))[0].code is Code.CREATED, "only this one is closed"


async def test_a_batch_gets_an_answer_per_job(kit: StoreKit) -> None:
    await send(kit, "a", "held")
    await close(kit)
    sent = await kit.store.send(place(kit, "a"), [item("new"), item("held"), item("other")])
    assert [one.code for one in sent] == [Code.MOVED, Code.KEPT, Code.MOVED]


async def test_the_conflict_rules_hold_for_the_ids_of_all_topics(kit: StoreKit) -> None:
    for id in ("1", "2"):
        await send(kit, "a", id)
    await close(kit)
    assert (await send(kit, "a", "1")).code is Code.KEPT
    refused = await send(kit, "b", "1")
    assert (refused.code, refused.elsewhere) == (Code.ELSEWHERE, "a")
    assert (await send(kit, "b", "2", on_live=OnConflict.REPLACE)).code is Code.REPLACED
    assert (await pulled(kit, "a"), await pulled(kit, "b")) == (["1"], ["2"])
    [done] = await kit.store.ack(place(kit), [Ref("2")])
    assert done.code is Code.OK


@pytest.mark.parametrize("topic", ["a", "b"])
async def test_an_ended_job_that_would_be_replaced_leaves(topic: str, kit: StoreKit) -> None:
    for id in ("done", "cancelled"):
        await send(kit, "a", id, retain_ms=60_000)
    await kit.store.ack(place(kit), [Ref("done")])
    await kit.store.cancel(place(kit), ["cancelled"])
    await close(kit)
    for id in ("done", "cancelled"):
        assert await send(kit, topic, id, on_ended=OnConflict.REPLACE) == MOVED
    assert await kit.store.stored_ids(place(kit), 100) == frozenset()
    after = await kit.store.stats(place(kit, "a"))
    assert (after.done, after.cancelled) == (0, 0)


@pytest.mark.parametrize("topic", ["a", "b"])
async def test_an_id_whose_retention_is_over_is_new(topic: str, kit: StoreKit) -> None:
    await send(kit, "a", "1", retain_ms=1_000)
    await kit.store.ack(place(kit), [Ref("1")])
    await close(kit)
    await kit.advance(1_000)
    assert await send(kit, topic, "1", on_ended=OnConflict.REPLACE) == MOVED
    assert (await kit.store.stats(place(kit, "a"))).done == 0


async def test_an_open_group_goes_on_until_it_closes(kit: StoreKit) -> None:
    await kit.store.send(place(kit, "a"), [merging()])
    await close(kit)
    [more] = await kit.store.send(place(kit, "a"), [merging()])
    assert (more.code, more.items_count) == (Code.APPENDED, 2)
    [other] = await kit.store.send(place(kit, "b"), [merging()])
    assert other == MOVED


async def test_a_topic_that_leaves_does_not_open_it(kit: StoreKit) -> None:
    await send(kit, "a", "1", retain_ms=0)
    await kit.store.ack(place(kit), [Ref("1")])
    await close(kit)
    assert await kit.store.retire(place(kit, "a"), True)
    assert await send(kit, "a", "1") == MOVED


async def test_only_a_map_that_is_as_new_opens_it_again(kit: StoreKit) -> None:
    await close(kit)
    await close(kit, VERSION - 1, closed=False)
    assert await send(kit, "a", "1") == MOVED
    await close(kit, VERSION, closed=False)
    assert (await send(kit, "a", "1")).code is Code.CREATED
    await close(kit, VERSION + 1)
    assert (await send(kit, "a", "2")).version == VERSION + 1


async def test_a_sender_with_an_older_policy_is_still_told_so(kit: StoreKit) -> None:
    await kit.store.control(place(kit, "a"), Control(policy_version=5))
    await close(kit)
    with pytest.raises(StalePolicy) as stale:
        await send(kit, "a", "1", version=4)
    assert stale.value.version == 5

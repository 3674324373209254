"""Merge groups in namespaces with `namespace_ids`: keys belong to a topic, ids to the whole namespace."""

from __future__ import annotations

from typing import Any

from dueline.engine.job import Partition, State
from dueline.engine.store import Code, Credit, OnConflict, Pull, Query, Ref, Release
from tests.kit.store import StoreKit, item

from .test_merge import bodies, merging


def namespace_ids(kit: StoreKit, topic: str) -> Partition:
    return Partition(kit.partition.topic, topic, 0, True)  # a namespace of its own


async def put(kit: StoreKit, topic: str, body: str, **words: Any) -> Any:
    return (await kit.store.send(namespace_ids(kit, topic), [merging(body, **words)]))[0]


async def pull(kit: StoreKit, topic: str) -> list[Any]:
    return (await kit.store.pull(namespace_ids(kit, topic), Pull((Credit(10, 100),), 1_000))).jobs


async def keys_of(kit: StoreKit, topic: str) -> list[str]:
    return [job.id for job in (await kit.store.list(namespace_ids(kit, topic), Query(merge_key="key"))).jobs]


async def test_one_key_in_two_topics_is_two_groups(kit: StoreKit) -> None:
    for topic in "ab":
        for body in "12":
            await put(kit, topic, body + topic, group=f"g{topic}", item_id=body)
    assert [bodies(leased) for topic in "ab" for leased in await pull(kit, topic)] == [["1a", "2a"], ["1b", "2b"]]


async def test_a_group_is_found_by_its_id_alone(kit: StoreKit) -> None:
    await put(kit, "a", "1", group="g")
    [job] = await kit.store.read(namespace_ids(kit, ""), ["g"])
    assert job is not None
    assert (job.topic, job.merge_key, bodies(job)) == ("a", "key", ["1"])
    [done] = await kit.store.ack(namespace_ids(kit, ""), [Ref("g")])
    assert done.code is Code.OK
    assert (await put(kit, "a", "2")).code is Code.CREATED


async def test_a_group_fails_into_the_open_one_of_its_topic(kit: StoreKit) -> None:
    await put(kit, "a", "1", group="old")
    [leased] = await pull(kit, "a")
    await put(kit, "a", "2", group="new", delay_ms=500)
    [done] = await kit.store.release(namespace_ids(kit, ""), [Release("old", leased.lease)])
    assert done.code is Code.OK
    [job] = await kit.store.read(namespace_ids(kit, "a"), ["new"])
    assert job is not None
    assert bodies(job) == ["1", "2"]


async def test_a_plain_send_of_another_topic_that_replaces_a_group_leaves_nothing_of_it(kit: StoreKit) -> None:
    await put(kit, "a", "1", group="g", item_id="x", delay_ms=500)
    [replaced] = await kit.store.send(namespace_ids(kit, "b"), [item("g", on_live=OnConflict.REPLACE)])
    assert replaced.code is Code.REPLACED
    assert await keys_of(kit, "a") == []
    again = await put(kit, "a", "2", group="h", item_id="x")
    assert (again.code, again.items_count) == (Code.CREATED, 1)
    assert [leased.body for leased in await pull(kit, "b")] == [b"body"]


async def test_a_tombstone_of_a_group_can_be_replaced_from_another_topic(kit: StoreKit) -> None:
    await put(kit, "a", "1", group="g", item_id="x")
    await kit.store.ack(namespace_ids(kit, "a"), [Ref("g")])
    [replaced] = await kit.store.send(namespace_ids(kit, "b"), [item("g", on_live=OnConflict.REPLACE)])
    assert replaced.code is Code.REPLACED
    assert (await put(kit, "a", "2", item_id="x")).code is Code.CREATED


async def test_a_group_is_not_opened_under_an_id_of_another_topic_until_that_is_gone(kit: StoreKit) -> None:
    await kit.store.send(namespace_ids(kit, "b"), [item("g", retain_ms=100)])
    refused = await put(kit, "a", "1", group="g")
    assert (refused.code, refused.state, refused.elsewhere) == (Code.ELSEWHERE, State.READY, "b")
    await kit.store.cancel(namespace_ids(kit, "b"), ["g"])
    refused = await put(kit, "a", "1", group="g")
    assert (refused.code, refused.state, refused.elsewhere) == (Code.ELSEWHERE, State.CANCELLED, "b")
    await kit.advance(100)
    sent = await put(kit, "a", "1", group="g")
    assert (sent.code, sent.group, sent.items_count) == (Code.CREATED, "g", 1)
    assert [bodies(leased) for leased in await pull(kit, "a")] == [["1"]]
    assert (await kit.store.stats(namespace_ids(kit, "b"))).cancelled == 0

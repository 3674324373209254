"""The directory across partitions: topics, configs, hints; and partitions that retire."""

from __future__ import annotations

import asyncio

import pytest

from dueline.engine.directory import CHANGES, Hint, TopicEntry
from dueline.engine.job import Partition
from dueline.engine.limits import LAST_MS
from dueline.engine.store import Code, Control, Merge, StalePolicy
from tests.kit.store import StoreKit, another, item


def names(entries: list[TopicEntry]) -> list[str]:
    return [entry.topic for entry in entries]


async def test_a_registered_topic_is_known_and_listed(kit: StoreKit) -> None:
    space = kit.partition.topic
    directory = kit.store.directory
    assert await directory.topic(space, "a") is None
    await directory.register([(space, "b"), (space, "a"), (space, "c"), (space + "x", "other")])
    assert await directory.topic(space, "a") == TopicEntry(space, "a", kit.clock.now_ms, 0, b"")
    assert names(await directory.topics(space, "", 10)) == ["a", "b", "c"]
    assert names(await directory.topics(space, "", 2)) == ["a", "b"]
    assert names(await directory.topics(space, "b", 10)) == ["c"]
    assert names(await directory.topics(space + "y", "", 10)) == []


async def test_odd_topic_names_are_listed_as_they_are(kit: StoreKit) -> None:
    space, directory = kit.partition.topic, kit.store.directory
    odd = sorted(["a/1", "x}y", "%2F", "ü", "a b", "A", "a\x01b"])
    await directory.register([(space, name) for name in odd])
    assert names(await directory.topics(space, "", 100)) == odd


async def test_all_namespaces_are_listed_when_none_is_named(kit: StoreKit) -> None:
    space, directory = kit.partition.topic, kit.store.directory
    await directory.register([(space, "a"), (space + "2", "b")])
    found = {(entry.namespace, entry.topic) for entry in await directory.topics(None, "", 10_000)}
    assert {(space, "a"), (space + "2", "b")} <= found


async def test_registering_again_renews_the_time_and_keeps_the_config(kit: StoreKit) -> None:
    space, directory = kit.partition.topic, kit.store.directory
    written = await directory.set_config(space, "a", b"cfg", None)
    assert written is not None
    await kit.advance(1_000)
    await directory.register([(space, "a")])
    assert await directory.topic(space, "a") == TopicEntry(space, "a", kit.clock.now_ms, written.version, b"cfg")


async def test_a_config_is_written_only_over_the_version_that_was_read(kit: StoreKit) -> None:
    space, directory = kit.partition.topic, kit.store.directory
    first = await directory.set_config(space, "a", b"\x00one", 0)
    assert first is not None
    assert first == TopicEntry(space, "a", kit.clock.now_ms, first.version, b"\x00one")
    assert await directory.set_config(space, "a", b"two", 0) is None
    assert await directory.topic(space, "a") == first
    second = await directory.set_config(space, "a", b"two", first.version)
    assert second is not None
    assert (second.version, second.config) == (first.version + 1, b"two")
    third = await directory.set_config(space, "a", b"three", None)
    assert third is not None
    assert (third.version, third.config) == (first.version + 2, b"three")


async def test_an_idle_topic_is_removed_unless_somebody_came_back(kit: StoreKit) -> None:
    space, directory = kit.partition.topic, kit.store.directory
    await directory.register([(space, "idle"), (space, "used")])
    await kit.advance(10_000)
    await directory.register([(space, "fresh")])
    idle = [
        entry for entry in await directory.idle_topics(kit.clock.now_ms - 5_000, 10_000) if entry.namespace == space
    ]
    assert sorted(names(idle)) == ["idle", "used"]
    await kit.advance(1)
    await directory.register([(space, "used")])
    removed = {entry.topic: await directory.remove(space, entry.topic, entry.seen_ms) for entry in idle}
    assert removed == {"idle": True, "used": False}
    assert names(await directory.topics(space, "", 10)) == ["fresh", "used"]
    assert await directory.topic(space, "idle") is None


async def test_a_topic_with_a_config_is_never_removed(kit: StoreKit) -> None:
    space, directory = kit.partition.topic, kit.store.directory
    entry = await directory.set_config(space, "a", b"cfg", None)
    assert entry is not None
    assert await directory.remove(space, "a", entry.seen_ms + 1_000) is False
    assert names(await directory.topics(space, "", 10)) == ["a"]


async def mine(kit: StoreKit, limit: int = 10_000) -> list[Hint]:
    """Due hints of this test's partition; what other tests left is put back by their hold."""
    taken, _ = await kit.store.directory.take(limit, 30_000)
    return [hint for hint in taken if hint.partition.topic == kit.partition.topic]


async def test_a_due_hint_is_taken_by_one_and_comes_back_if_he_dies(kit: StoreKit) -> None:
    directory = kit.store.directory
    kit.clock.advance(86_400_000)
    hint = Hint(kit.partition, kit.clock.now_ms + 10)
    later = Hint(kit.partition, kit.clock.now_ms + 5_000_000)
    await directory.note([hint, later])
    assert await mine(kit) == []
    await kit.advance(10)
    assert await mine(kit) == [hint]
    assert await mine(kit) == []
    await kit.advance(30_000)
    assert await mine(kit) == [hint]
    await directory.finish([hint])
    await kit.advance(60_000)
    assert await mine(kit) == []
    await kit.advance(5_000_000)
    assert await mine(kit) == [later]
    await directory.finish([later])


async def test_the_directory_says_when_the_next_hint_is_due(kit: StoreKit) -> None:
    directory = kit.store.directory
    kit.clock.advance(2 * 86_400_000)
    await mine(kit)
    hint = Hint(kit.partition, kit.clock.now_ms + 10)
    await directory.note([hint])
    _, next_ms = await directory.take(1, 30_000)
    assert next_ms == hint.at_ms
    await kit.advance(10)
    assert await mine(kit) == [hint]
    await directory.finish([hint])


async def test_partitions_of_all_shapes_come_back_in_hints(kit: StoreKit) -> None:
    directory = kit.store.directory
    kit.clock.advance(3 * 86_400_000)
    partitions = [
        Partition(kit.partition.topic, "a/b", 0),
        Partition(kit.partition.topic, "a", 3),
        Partition(kit.partition.topic + "/x", "{a}%", 17, namespace_ids=True),
        Partition(kit.partition.topic, "ü~ |", 1),
    ]
    hints = [Hint(partition, kit.clock.now_ms) for partition in partitions]
    await directory.note(hints)
    taken, _ = await directory.take(10_000, 30_000)
    assert {hint.partition for hint in taken if hint.partition.namespace.startswith(kit.partition.topic)} == set(
        partitions
    )
    await directory.finish(hints)


async def test_a_change_of_an_unlisted_partition_says_so(kit: StoreKit) -> None:
    await kit.send("a")
    assert kit.partition in kit.events.unlisted_partitions


async def test_an_empty_partition_retires_and_comes_back_with_the_next_send(kit: StoreKit) -> None:
    await kit.send("a", retain_ms=0)
    assert await kit.store.retire(kit.partition) is False
    await kit.ack("a")
    assert await kit.store.retire(kit.partition) is True
    assert await kit.store.retire(kit.partition) is True
    await kit.send("a")
    assert await kit.pull_ids() == ["a"]


@pytest.mark.parametrize("hours", [0, 2])
async def test_a_process_that_knew_a_partition_before_it_retired_sends_to_the_new_one(
    kit: StoreKit, hours: int
) -> None:
    """It does not take it for lost data, however long ago that was."""
    async with another(kit) as other:
        for process in (kit, other):
            await process.send("a", retain_ms=0)
            await process.ack("a")
        assert await kit.store.retire(kit.partition) is True
        await kit.advance(hours * 3_600_000)
        assert [(await process.send(id)).code for process, id in ((other, "b"), (kit, "c"))] == [Code.CREATED] * 2
        assert await kit.pull_ids() == ["b", "c"]


async def test_a_partition_with_a_tombstone_a_dead_job_or_a_lease_does_not_retire(kit: StoreKit) -> None:
    await kit.send_many([item("done", retain_ms=100), item("leased", retain_ms=0)])
    await kit.ack("done")
    leased = await kit.pull_one()
    assert await kit.store.retire(kit.partition) is False
    await kit.advance(100)
    await kit.clean()
    assert await kit.store.retire(kit.partition) is False
    await kit.release("leased", leased.lease, dead=None)
    await kit.cancel("leased")
    assert await kit.store.retire(kit.partition) is True


async def test_a_partition_that_is_paused_or_knows_a_policy_does_not_retire(kit: StoreKit) -> None:
    await kit.control(pause_until_ms=LAST_MS)
    assert await kit.store.retire(kit.partition) is False
    await kit.control(pause_until_ms=0)
    assert await kit.store.retire(kit.partition) is True
    await kit.control(policy_version=1)
    assert await kit.store.retire(kit.partition) is False


async def test_a_partition_that_somebody_waits_on_does_not_retire(kit: StoreKit) -> None:
    await kit.pulled(wait_ms=1_000)
    assert await kit.store.retire(kit.partition) is False
    await kit.advance(3_600_000)
    assert await kit.store.retire(kit.partition) is True


async def test_a_topic_is_removed_with_the_version_of_its_config_only(kit: StoreKit) -> None:
    space, directory = kit.partition.topic, kit.store.directory
    await directory.set_config(space, "a", b"one", None)
    entry = await directory.set_config(space, "a", b"two", None)
    assert entry is not None
    for version in (0, entry.version - 1, entry.version + 1):
        assert await directory.remove(space, "a", entry.seen_ms, version) is False
    assert await directory.remove(space, "a", entry.seen_ms, entry.version) is True
    assert await directory.topic(space, "a") is None
    assert names(await directory.topics(space, "", 10)) == []


async def test_a_topic_that_is_used_in_the_same_millisecond_is_not_removed(kit: StoreKit) -> None:
    space, directory = kit.partition.topic, kit.store.directory
    entry = await directory.set_config(space, "a", b"one", None)
    assert entry is not None
    await directory.register([(space, "a")])
    assert await directory.remove(space, "a", entry.seen_ms, entry.version) is False
    again = await directory.topic(space, "a")
    assert again is not None
    assert again.seen_ms > entry.seen_ms
    assert await directory.remove(space, "a", again.seen_ms, entry.version) is True


async def test_a_topic_that_is_made_again_has_a_version_that_none_had_before(kit: StoreKit) -> None:
    space, directory = kit.partition.topic, kit.store.directory
    for _ in range(3):
        entry = await directory.set_config(space, "a", b"old", None)
        assert entry is not None
    assert await directory.remove(space, "a", entry.seen_ms, entry.version) is True
    await directory.register([(space, "a")])
    listed = await directory.topic(space, "a")
    assert listed is not None
    assert (listed.version, listed.config) == (0, b"")
    made = await directory.set_config(space, "a", b"new", 0)
    assert made is not None
    assert (made.version > entry.version, made.config) == (True, b"new")


async def test_a_partition_forgets_its_deleted_topic_and_refuses_what_was_sent_by_its_policy(kit: StoreKit) -> None:
    await kit.control(policy_version=3, pause_until_ms=LAST_MS, max_in_flight=1, rate_per_s=1.0)
    await kit.store.send(kit.partition, [item("a", retain_ms=0)], 3)
    assert await kit.store.retire(kit.partition, True) is False
    await kit.store.cancel(kit.partition, ["a"], forget=True)
    assert await kit.store.retire(kit.partition) is False
    assert await kit.store.retire(kit.partition, True) is True
    for merge in (None, Merge("k")):
        with pytest.raises(StalePolicy) as caught:
            await kit.store.send(kit.partition, [item("b", merge=merge)], 3)
        assert caught.value.version == 0
    for id in ("b", "c", "d"):  # the second by the script for single sends
        assert [one.code for one in await kit.store.send(kit.partition, [item(id)])] == [Code.CREATED]
        with pytest.raises(StalePolicy):
            await kit.store.send(kit.partition, [item("e")], 3)
    assert await kit.pull_ids(3) == ["b", "c", "d"]


async def test_who_waits_on_a_partition_is_woken_by_the_first_send_after_its_topic_was_deleted(kit: StoreKit) -> None:
    await kit.control(policy_version=3)
    await kit.store.watch(kit.partition)
    await kit.pulled(wait_ms=60_000)
    assert await kit.store.retire(kit.partition) is False
    assert await kit.store.retire(kit.partition, True) is True
    with pytest.raises(StalePolicy):
        await kit.store.send(kit.partition, [item("a")], 3)
    kit.events.forget_wakes()
    await kit.store.send(kit.partition, [item("a")])
    await kit.events.next_wake()


async def announced(kit: StoreKit, space: str, number: int) -> list[tuple[str, int]]:
    """Topic and version of the announcements of this namespace, once there are so many."""
    async with asyncio.timeout(5):
        while True:
            kit.events.forget_wakes()
            found = [change for change in kit.events.topic_changes if change is not None and change.namespace == space]
            if len(found) >= number:
                numbers = [change.number for change in found]
                assert numbers == sorted(set(numbers))
                return [(change.topic, change.version) for change in found]
            await kit.events.next_wake()


async def test_each_config_and_each_removal_is_announced_and_counted(kit: StoreKit) -> None:
    space, directory = kit.partition.topic, kit.store.directory
    await kit.store.watch_topics()
    before = await directory.topic(*CHANGES)
    first = await directory.set_config(space, "a", b"one", 0)
    second = await directory.set_config(space, "a", b"two", None)
    assert first is not None
    assert second is not None
    await directory.register([(space, "a b")])
    entry = await directory.topic(space, "a b")
    assert entry is not None
    assert await directory.set_config(space, "a", b"no", 0) is None
    assert not await directory.remove(space, "a", second.seen_ms, first.version)
    assert await directory.remove(space, "a b", entry.seen_ms)
    assert await directory.remove(space, "a", second.seen_ms, second.version)
    assert await announced(kit, space, 4) == [
        ("a", first.version),
        ("a", second.version),
        ("a b", 0),
        ("a", 0),
    ]
    after = await directory.topic(*CHANGES)
    assert after is not None
    assert after.version - (0 if before is None else before.version) == 4


async def test_a_pull_says_which_version_its_partition_has(kit: StoreKit) -> None:
    assert (await kit.pulled()).policy_version == 0
    await kit.send("a")
    await kit.store.control(kit.partition, Control(policy_version=7))
    pulled = await kit.pulled()
    assert ([job.id for job in pulled.jobs], pulled.policy_version) == (["a"], 7)
    assert (await kit.pulled(wait_ms=1_000)).policy_version == 7

"""The directory across partitions: topics, configs, hints; and partitions that retire."""

from __future__ import annotations

import asyncio

import pytest

from dueline.engine.directory import CHANGES, Hint, TopicEntry
from dueline.engine.job import Partition
from dueline.engine.limits import LAST_MS
from dueline.engine.store import Code, Control, Merge, StalePolicy
from tests.kit.bed import Bed, item


def names(entries: list[TopicEntry]) -> list[str]:
    return [entry.topic for entry in entries]


async def test_a_registered_topic_is_known_and_listed(bed: Bed) -> None:
    space = bed.partition.topic
    directory = bed.store.directory
    assert await directory.topic(space, "a") is None
    await directory.register([(space, "b"), (space, "a"), (space, "c"), (space + "x", "other")])
    assert await directory.topic(space, "a") == TopicEntry(space, "a", bed.clock.now_ms, 0, b"")
    assert names(await directory.topics(space, "", 10)) == ["a", "b", "c"]
    assert names(await directory.topics(space, "", 2)) == ["a", "b"]
    assert names(await directory.topics(space, "b", 10)) == ["c"]
    assert names(await directory.topics(space + "y", "", 10)) == []


async def test_odd_topic_names_are_listed_as_they_are(bed: Bed) -> None:
    space, directory = bed.partition.topic, bed.store.directory
    odd = sorted(["a/1", "x}y", "%2F", "ü", "a b", "A", "a\x01b"])
    await directory.register([(space, name) for name in odd])
    assert names(await directory.topics(space, "", 100)) == odd


async def test_all_namespaces_are_listed_when_none_is_named(bed: Bed) -> None:
    space, directory = bed.partition.topic, bed.store.directory
    await directory.register([(space, "a"), (space + "2", "b")])
    found = {(entry.namespace, entry.topic) for entry in await directory.topics(None, "", 10_000)}
    assert {(space, "a"), (space + "2", "b")} <= found


async def test_registering_again_renews_the_time_and_keeps_the_config(bed: Bed) -> None:
    space, directory = bed.partition.topic, bed.store.directory
    written = await directory.set_config(space, "a", b"cfg", None)
    assert written is not None
    await bed.advance(1_000)
    await directory.register([(space, "a")])
    assert await directory.topic(space, "a") == TopicEntry(space, "a", bed.clock.now_ms, written.version, b"cfg")


async def test_a_config_is_written_only_over_the_version_that_was_read(bed: Bed) -> None:
    space, directory = bed.partition.topic, bed.store.directory
    first = await directory.set_config(space, "a", b"\x00one", 0)
    assert first is not None
    assert first == TopicEntry(space, "a", bed.clock.now_ms, first.version, b"\x00one")
    assert await directory.set_config(space, "a", b"two", 0) is None
    assert await directory.topic(space, "a") == first
    second = await directory.set_config(space, "a", b"two", first.version)
    assert second is not None
    assert (second.version, second.config) == (first.version + 1, b"two")
    third = await directory.set_config(space, "a", b"three", None)
    assert third is not None
    assert (third.version, third.config) == (first.version + 2, b"three")


async def test_an_idle_topic_is_removed_unless_somebody_came_back(bed: Bed) -> None:
    space, directory = bed.partition.topic, bed.store.directory
    await directory.register([(space, "idle"), (space, "used")])
    await bed.advance(10_000)
    await directory.register([(space, "fresh")])
    idle = [
        entry for entry in await directory.idle_topics(bed.clock.now_ms - 5_000, 10_000) if entry.namespace == space
    ]
    assert sorted(names(idle)) == ["idle", "used"]
    await bed.advance(1)
    await directory.register([(space, "used")])
    removed = {entry.topic: await directory.remove(space, entry.topic, entry.seen_ms) for entry in idle}
    assert removed == {"idle": True, "used": False}
    assert names(await directory.topics(space, "", 10)) == ["fresh", "used"]
    assert await directory.topic(space, "idle") is None


async def test_a_topic_with_a_config_is_never_removed(bed: Bed) -> None:
    space, directory = bed.partition.topic, bed.store.directory
    entry = await directory.set_config(space, "a", b"cfg", None)
    assert entry is not None
    assert await directory.remove(space, "a", entry.seen_ms + 1_000) is False
    assert names(await directory.topics(space, "", 10)) == ["a"]


async def mine(bed: Bed, limit: int = 10_000) -> list[Hint]:
    """Due hints of this test's partition; what other tests left is put back by their hold."""
    taken, _ = await bed.store.directory.take(limit, 30_000)
    return [hint for hint in taken if hint.partition.topic == bed.partition.topic]


async def test_a_due_hint_is_taken_by_one_and_comes_back_if_he_dies(bed: Bed) -> None:
    directory = bed.store.directory
    bed.clock.advance(86_400_000)
    hint = Hint(bed.partition, bed.clock.now_ms + 10)
    later = Hint(bed.partition, bed.clock.now_ms + 5_000_000)
    await directory.note([hint, later])
    assert await mine(bed) == []
    await bed.advance(10)
    assert await mine(bed) == [hint]
    assert await mine(bed) == []
    await bed.advance(30_000)
    assert await mine(bed) == [hint]
    await directory.finish([hint])
    await bed.advance(60_000)
    assert await mine(bed) == []
    await bed.advance(5_000_000)
    assert await mine(bed) == [later]
    await directory.finish([later])


async def test_the_directory_says_when_the_next_hint_is_due(bed: Bed) -> None:
    directory = bed.store.directory
    bed.clock.advance(2 * 86_400_000)
    await mine(bed)
    hint = Hint(bed.partition, bed.clock.now_ms + 10)
    await directory.note([hint])
    _, next_ms = await directory.take(1, 30_000)
    assert next_ms == hint.at_ms
    await bed.advance(10)
    assert await mine(bed) == [hint]
    await directory.finish([hint])


async def test_partitions_of_all_shapes_come_back_in_hints(bed: Bed) -> None:
    directory = bed.store.directory
    bed.clock.advance(3 * 86_400_000)
    partitions = [
        Partition(bed.partition.topic, "a/b", 0),
        Partition(bed.partition.topic, "a", 3),
        Partition(bed.partition.topic + "/x", "{a}%", 17, namespace_ids=True),
        Partition(bed.partition.topic, "ü~ |", 1),
    ]
    hints = [Hint(partition, bed.clock.now_ms) for partition in partitions]
    await directory.note(hints)
    taken, _ = await directory.take(10_000, 30_000)
    assert {hint.partition for hint in taken if hint.partition.namespace.startswith(bed.partition.topic)} == set(
        partitions
    )
    await directory.finish(hints)


async def test_a_change_of_an_unlisted_partition_says_so(bed: Bed) -> None:
    await bed.send("a")
    assert bed.partition in bed.events.unlisted_partitions


async def test_an_empty_partition_retires_and_comes_back_with_the_next_send(bed: Bed) -> None:
    await bed.send("a", retain_ms=0)
    assert await bed.store.retire(bed.partition) is False
    await bed.ack("a")
    assert await bed.store.retire(bed.partition) is True
    assert await bed.store.retire(bed.partition) is True
    await bed.send("a")
    assert await bed.pull_ids() == ["a"]


async def test_a_partition_with_a_tombstone_a_dead_job_or_a_lease_does_not_retire(bed: Bed) -> None:
    await bed.send_many([item("done", retain_ms=100), item("leased", retain_ms=0)])
    await bed.ack("done")
    held = await bed.pull_one()
    assert await bed.store.retire(bed.partition) is False
    await bed.advance(100)
    await bed.clean()
    assert await bed.store.retire(bed.partition) is False
    await bed.release("leased", held.lease, dead=None)
    await bed.cancel("leased")
    assert await bed.store.retire(bed.partition) is True


async def test_a_partition_that_is_paused_or_knows_a_policy_does_not_retire(bed: Bed) -> None:
    await bed.control(pause_until_ms=LAST_MS)
    assert await bed.store.retire(bed.partition) is False
    await bed.control(pause_until_ms=0)
    assert await bed.store.retire(bed.partition) is True
    await bed.control(policy_version=1)
    assert await bed.store.retire(bed.partition) is False


async def test_a_partition_that_somebody_waits_on_does_not_retire(bed: Bed) -> None:
    await bed.pulled(wait_ms=1_000)
    assert await bed.store.retire(bed.partition) is False
    await bed.advance(3_600_000)
    assert await bed.store.retire(bed.partition) is True


async def test_a_topic_is_removed_with_the_version_of_its_config_only(bed: Bed) -> None:
    space, directory = bed.partition.topic, bed.store.directory
    await directory.set_config(space, "a", b"one", None)
    entry = await directory.set_config(space, "a", b"two", None)
    assert entry is not None
    for version in (0, entry.version - 1, entry.version + 1):
        assert await directory.remove(space, "a", entry.seen_ms, version) is False
    assert await directory.remove(space, "a", entry.seen_ms, entry.version) is True
    assert await directory.topic(space, "a") is None
    assert names(await directory.topics(space, "", 10)) == []


async def test_a_topic_that_is_used_in_the_same_millisecond_is_not_removed(bed: Bed) -> None:
    space, directory = bed.partition.topic, bed.store.directory
    entry = await directory.set_config(space, "a", b"one", None)
    assert entry is not None
    await directory.register([(space, "a")])
    assert await directory.remove(space, "a", entry.seen_ms, entry.version) is False
    again = await directory.topic(space, "a")
    assert again is not None
    assert again.seen_ms > entry.seen_ms
    assert await directory.remove(space, "a", again.seen_ms, entry.version) is True


async def test_a_topic_that_is_made_again_has_a_version_that_none_had_before(bed: Bed) -> None:
    space, directory = bed.partition.topic, bed.store.directory
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


async def test_a_partition_forgets_its_deleted_topic_and_refuses_what_was_sent_by_its_policy(bed: Bed) -> None:
    await bed.control(policy_version=3, pause_until_ms=LAST_MS, max_in_flight=1, rate_per_s=1.0)
    await bed.store.send(bed.partition, [item("a", retain_ms=0)], 3)
    assert await bed.store.retire(bed.partition, True) is False
    await bed.store.cancel(bed.partition, ["a"], forget=True)
    assert await bed.store.retire(bed.partition) is False
    assert await bed.store.retire(bed.partition, True) is True
    for merge in (None, Merge("k")):
        with pytest.raises(StalePolicy) as caught:
            await bed.store.send(bed.partition, [item("b", merge=merge)], 3)
        assert caught.value.version == 0
    for id in ("b", "c", "d"):  # the second by the script for single sends
        assert [one.code for one in await bed.store.send(bed.partition, [item(id)])] == [Code.CREATED]
        with pytest.raises(StalePolicy):
            await bed.store.send(bed.partition, [item("e")], 3)
    assert await bed.pull_ids(3) == ["b", "c", "d"]


async def test_who_waits_on_a_partition_is_woken_by_the_first_send_after_its_topic_was_deleted(bed: Bed) -> None:
    await bed.control(policy_version=3)
    await bed.store.watch(bed.partition)
    await bed.pulled(wait_ms=60_000)
    assert await bed.store.retire(bed.partition) is False
    assert await bed.store.retire(bed.partition, True) is True
    with pytest.raises(StalePolicy):
        await bed.store.send(bed.partition, [item("a")], 3)
    bed.events.forget_wakes()
    await bed.store.send(bed.partition, [item("a")])
    await bed.events.next_wake()


async def announced(bed: Bed, space: str, number: int) -> list[tuple[str, int]]:
    """Topic and version of the announcements of this namespace, once there are so many."""
    async with asyncio.timeout(5):
        while True:
            bed.events.forget_wakes()
            found = [change for change in bed.events.topic_changes if change is not None and change.namespace == space]
            if len(found) >= number:
                numbers = [change.number for change in found]
                assert numbers == sorted(set(numbers))
                return [(change.topic, change.version) for change in found]
            await bed.events.next_wake()


async def test_each_config_and_each_removal_is_announced_and_counted(bed: Bed) -> None:
    space, directory = bed.partition.topic, bed.store.directory
    await bed.store.watch_topics()
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
    assert await announced(bed, space, 4) == [
        ("a", first.version),
        ("a", second.version),
        ("a b", 0),
        ("a", 0),
    ]
    after = await directory.topic(*CHANGES)
    assert after is not None
    assert after.version - (0 if before is None else before.version) == 4


async def test_a_pull_says_which_version_its_partition_has(bed: Bed) -> None:
    assert (await bed.pulled()).policy_version == 0
    await bed.send("a")
    await bed.store.control(bed.partition, Control(policy_version=7))
    pulled = await bed.pulled()
    assert ([job.id for job in pulled.jobs], pulled.policy_version) == (["a"], 7)
    assert (await bed.pulled(wait_ms=1_000)).policy_version == 7

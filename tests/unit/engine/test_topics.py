"""Topics: config, pause, views, and what other processes learn about them."""

from __future__ import annotations

import pytest
from engine_kit import NS, EngineKit, settled

from dueline.engine.commands import Send, TopicPatch
from dueline.engine.directory import TopicEntry
from dueline.engine.engine import Engine
from dueline.engine.errors import InvalidField, NotFound, StoreDown
from dueline.engine.ids import partition_of
from dueline.engine.job import BodyKind, Partition, Reason
from dueline.engine.limits import LAST_MS
from dueline.engine.partition_map import PartitionMap
from dueline.engine.policy import AT_ONCE, Backoff, Ladder, MergePolicy, TopicPolicy
from dueline.engine.store import Control, Release
from dueline.engine.topics import TopicConfig, pack_config, unpack_config

FULL = TopicPolicy(
    lease_ms=1,
    max_attempts=2,
    ttl_ms=3,
    retain_ms=4,
    dead_retain_ms=5,
    retry=Backoff(6, 2.5, 70, 0.5),
    on_conflict="keep",
    spread_ms=8,
    max_body_bytes=9,
    merge=MergePolicy(10, 11, 12, "always"),
)


@pytest.mark.parametrize("policy", [TopicPolicy(), FULL, TopicPolicy(retry=Ladder((1, 2))), TopicPolicy(retry=AT_ONCE)])
def test_a_config_comes_back_as_it_was_stored(policy: TopicPolicy) -> None:
    config = TopicConfig(policy, PartitionMap(1, 16, 1), LAST_MS)
    assert unpack_config(pack_config(config)) == config
    assert unpack_config(b"") == TopicConfig()


async def test_setting_a_topic_shows_it_and_says_whether_it_is_new(kit: EngineKit) -> None:
    view, is_new = await kit.engine.set_topic(NS, "mail", TopicPatch(FULL, partitions=3))
    assert (view.policy, view.partitions, is_new) == (FULL, 3, True)
    view, is_new = await kit.engine.set_topic(NS, "mail", TopicPatch(TopicPolicy(), partitions=3))
    assert (view.policy, view.partitions, is_new) == (TopicPolicy(), 3, False)
    with pytest.raises(InvalidField, match="can only grow") as refused:
        await kit.engine.set_topic(NS, "mail", TopicPatch(TopicPolicy(), partitions=2))
    assert refused.value.field == "partitions"


async def test_an_operators_value_wins_even_when_it_comes_between_a_workers_look_and_its_write(kit: EngineKit) -> None:
    directory = kit.store.directory
    look, operator = directory.topic, Engine(kit.store, timer=kit.timer)

    async def look_and_lose(namespace: str, topic: str) -> TopicEntry | None:
        entry = await look(namespace, topic)
        directory.topic = look
        await operator.set_topic(NS, "mail", TopicPatch(TopicPolicy(max_attempts=7)))
        return entry

    directory.topic = look_and_lose
    wanted = TopicPatch(TopicPolicy(max_attempts=5, ttl_ms=9), of_worker=True)
    view, _ = await kit.engine.set_topic(NS, "mail", wanted)
    assert view.policy == TopicPolicy(max_attempts=7, ttl_ms=9, by_worker=frozenset({"ttl_ms"}))
    await operator.stop()


async def test_a_worker_that_changes_nothing_still_completes_what_a_dead_writer_left_undone(kit: EngineKit) -> None:
    other = Engine(kit.store, timer=kit.timer)
    await other.send(NS, "mail", Send("before", b"1", BodyKind.JSON))
    config = TopicConfig(TopicPolicy(max_attempts=3, by_worker=frozenset({"max_attempts"})))
    await kit.store.directory.set_config(NS, "mail", pack_config(config), 0)  # and its writer dies here
    await kit.engine.set_topic(NS, "mail", TopicPatch(TopicPolicy(max_attempts=3), of_worker=True))
    await other.send(NS, "mail", Send("after", b"1", BodyKind.JSON))
    assert (await other.get(NS, "mail", "after")).policy.max_attempts == 3
    await other.stop()


async def test_a_view_sums_the_partitions(kit: EngineKit) -> None:
    await kit.engine.set_topic(NS, "namespace_ids", TopicPatch(TopicPolicy(), partitions=4))
    for number in range(20):
        await kit.send("namespace_ids", f"r{number}")
        await kit.send("namespace_ids", f"s{number}", 1_000 + number)
    jobs = await kit.pull("namespace_ids", max=5)
    dead = [Release(job.id, job.lease, dead=Reason.REJECTED) for job in jobs[:2]]
    await kit.engine.release(NS, "namespace_ids", dead)
    await kit.engine.cancel(NS, "namespace_ids", ["s0"])
    await kit.advance(3)
    view = await kit.engine.topic(NS, "namespace_ids")
    counts = (view.scheduled, view.ready, view.leased, view.done, view.dead, view.cancelled)
    assert counts == (19, 15, 3, 0, 2, 1)
    assert view.dead_by_reason["rejected"] == 2
    assert view.next_due_at_ms == kit.timer.start_ms + 1_001
    assert view.oldest_ready_at_ms == kit.timer.start_ms


async def test_waiters_are_counted_while_they_wait_and_not_after(kit: EngineKit) -> None:
    await kit.send("mail", "later", 60_000)
    pulls = [kit.pull("mail", wait_ms=1_000) for _ in range(2)]
    await settled()
    assert (await kit.engine.topic(NS, "mail")).waiters == 2
    await kit.advance(1_000)
    assert [await pull for pull in pulls] == [[], []]
    assert (await kit.engine.topic(NS, "mail")).waiters == 0


async def test_waiters_of_another_process_are_shown_as_one(kit: EngineKit) -> None:
    other = Engine(kit.store, timer=kit.timer)
    kit.store.events = kit.engine
    await kit.send("mail", "later", 60_000)
    pulls = [kit.pull("mail", wait_ms=1_000) for _ in range(2)]
    await settled()
    assert (await other.topic(NS, "mail")).waiters == 1
    for pull in pulls:
        pull.cancel()


async def test_topics_are_listed_by_name_in_pages(kit: EngineKit) -> None:
    for name in ("b", "a", "c"):
        await kit.send(name, "job")
    first, cursor = await kit.engine.topics(NS, "", 2)
    assert ([view.topic for view in first], cursor) == (["a", "b"], "b")
    rest, cursor = await kit.engine.topics(NS, "b", 2)
    assert ([view.topic for view in rest], cursor) == (["c"], None)
    assert await kit.engine.topics("other", "", 2) == ([], None)


async def test_a_pause_holds_all_partitions_and_says_until_when(kit: EngineKit) -> None:
    await kit.engine.set_topic(NS, "namespace_ids", TopicPatch(TopicPolicy(), partitions=4))
    for number in range(10):
        await kit.send("namespace_ids", f"job{number}")
    until_ms = kit.clock.now_ms + 1_000
    await kit.engine.pause(NS, "namespace_ids", until_ms)
    assert await kit.pull("namespace_ids", max=10) == []
    view = await kit.engine.topic(NS, "namespace_ids")
    assert (view.paused, view.paused_until_ms) == (True, until_ms)
    await kit.advance(1_000)
    view = await kit.engine.topic(NS, "namespace_ids")
    assert (view.paused, view.paused_until_ms) == (False, None)
    await kit.engine.pause(NS, "namespace_ids", None)
    view = await kit.engine.topic(NS, "namespace_ids")
    assert (view.paused, view.paused_until_ms) == (True, None)
    await kit.engine.resume(NS, "namespace_ids")
    await kit.engine.resume(NS, "namespace_ids")
    assert len(await kit.pull("namespace_ids", max=10)) == 10


async def test_a_new_policy_keeps_the_pause(kit: EngineKit) -> None:
    await kit.send("mail", "a")
    await kit.engine.pause(NS, "mail", None)
    view, _ = await kit.engine.set_topic(NS, "mail", TopicPatch(FULL))
    assert view.paused
    assert await kit.pull("mail") == []


async def test_a_pause_that_was_cut_short_is_completed_by_the_next_look(kit: EngineKit) -> None:
    await kit.engine.set_topic(NS, "namespace_ids", TopicPatch(TopicPolicy(), partitions=2))
    for number in range(100):
        await kit.send("namespace_ids", f"job{number}")
    real = kit.store.control

    async def failing(partition: Partition, control: Control) -> None:
        if partition.number == 1:
            raise StoreDown
        await real(partition, control)

    kit.store.control = failing  # type: ignore[method-assign]
    with pytest.raises(StoreDown):
        await kit.engine.pause(NS, "namespace_ids", None)
    kit.store.control = real  # type: ignore[method-assign]
    before = await kit.pull("namespace_ids", max=1)
    assert len(before) == 1
    assert (await kit.engine.topic(NS, "namespace_ids")).paused
    assert await kit.pull("namespace_ids", max=100) == []


async def test_two_processes_that_change_a_topic_at_once_both_get_their_way(kit: EngineKit) -> None:
    await kit.send("mail", "a")
    real = kit.store.directory.set_config
    other = Engine(kit.store, timer=kit.timer)
    raced = False

    async def racing(namespace: str, topic: str, config: bytes, expected_version: int | None) -> TopicEntry | None:
        nonlocal raced
        if not raced:
            raced = True
            await other.pause(NS, "mail", None)
        return await real(namespace, topic, config, expected_version)

    kit.store.directory.set_config = racing  # type: ignore[method-assign]
    view, _ = await kit.engine.set_topic(NS, "mail", TopicPatch(FULL))
    assert (view.paused, view.policy) == (True, FULL)


async def test_a_process_that_looked_for_a_topic_before_it_existed_finds_its_jobs(kit: EngineKit) -> None:
    early = Engine(kit.store, timer=kit.timer)
    job_id = next(f"job{n}" for n in range(100) if partition_of(f"job{n}", 4) == 3)
    with pytest.raises(NotFound):
        await early.get(NS, "new", job_id)
    await kit.engine.set_topic(NS, "new", TopicPatch(TopicPolicy(), partitions=4))
    await kit.send("new", job_id)
    assert (await early.get(NS, "new", job_id)).id == job_id


@pytest.mark.parametrize(("limit", "sizes"), [(500, [250]), (250, [250, 0]), (200, [200, 50]), (100, [100, 100, 50])])
async def test_a_page_of_topics_has_as_many_as_it_was_asked_for(limit: int, sizes: list[int], kit: EngineKit) -> None:
    names = [f"t{number:03}" for number in range(250)]
    await kit.store.directory.register([(NS, name) for name in names])
    found: list[list[str]] = []
    after: str | None = ""
    while after is not None:
        views, after = await kit.engine.topics(NS, after, limit)
        found.append([view.topic for view in views])
    assert ([len(page) for page in found], [name for page in found for name in page]) == (sizes, names)

"""What a process learns of topics that another one changes: by announcement, and when announcements are lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from engine_kit import NS, RecordingStore, ids, settled

from dueline.engine.commands import Pull, Send, TopicPatch
from dueline.engine.directory import CHANGES, TopicEntry
from dueline.engine.engine import Engine
from dueline.engine.errors import StoreDown
from dueline.engine.ids import partition_of
from dueline.engine.job import BodyKind, LeasedJob
from dueline.engine.policy import OnDead, TopicPolicy
from dueline.engine.push_target import PushTarget
from dueline.engine.topic_changes import ROUND_S
from dueline.engine.topics import TopicConfig
from dueline.testing.clock import VirtualClock
from dueline.testing.timer import VirtualTimer
from tests.kit.async_tests import async_fixture
from tests.kit.events import SharedEvents

TARGET = PushTarget(url="https://example.test/hook")
ROUND_MS = int(ROUND_S * 1000)


class Configs:
    """A listener that keeps the last config of each topic."""

    def __init__(self) -> None:
        self.of: dict[str, TopicConfig | None] = {}

    def topic_changed(self, namespace: str, topic: str, version: int, config: TopicConfig | None) -> None:
        self.of[topic] = config


class CountingStore(RecordingStore):
    """Counts the reads of the directory."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.reads: list[str] = []
        self.down = False
        topic, topics = self.directory.topic, self.directory.topics

        async def read(namespace: str, name: str) -> TopicEntry | None:
            self.reads.append("counter" if (namespace, name) == CHANGES else name)
            return await topic(namespace, name)

        async def read_page(namespace: str | None, after: str, limit: int) -> list[TopicEntry]:
            self.reads.append("page")
            if self.down:
                raise StoreDown
            return await topics(namespace, after, limit)

        self.directory.topic, self.directory.topics = read, read_page


class TwoProcesses:
    """Two engines on one store. `other` changes topics; `engine` and `configs` must learn of it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.timer = VirtualTimer(self.clock)
        self.store = CountingStore(self.clock)
        self.engine, self.other = Engine(self.store, timer=self.timer), Engine(self.store, timer=self.timer)
        self.events = self.store.events = SharedEvents(self.engine, self.other)
        self.configs = Configs()

    async def advance(self, by_ms: int) -> None:
        await self.timer.advance(by_ms)

    def lose_announcements(self, lost: bool = True) -> None:
        self.events.deaf = {self.engine} if lost else set()

    async def set(self, topic: str, partitions: int | None = None, **policy: Any) -> None:
        await self.other.set_topic(NS, topic, TopicPatch(TopicPolicy(**policy), partitions=partitions))
        await settled()

    async def leased(self, topic: str) -> LeasedJob:
        [job] = await self.engine.pull(Pull(NS, (topic,), 1))
        await settled()
        return job


@async_fixture
async def two() -> AsyncIterator[TwoProcesses]:
    two = TwoProcesses()
    two.engine.follow_topics(two.configs)
    await settled()
    try:
        yield two
    finally:
        await two.engine.stop()
        await two.other.stop()


async def send(engine: Engine, topic: str, *names: str) -> None:
    for name in names:
        await engine.send(NS, topic, Send(name, b"1", BodyKind.JSON))


async def test_a_new_policy_is_used_by_the_next_pull_of_another_process(two: TwoProcesses) -> None:
    await send(two.engine, "mail", "a", "b")
    await two.leased("mail")
    await two.set("mail", lease_ms=5_000)
    assert (await two.leased("mail")).lease_until_ms - two.clock.now_ms == 5_000


async def test_a_pull_that_waits_gets_jobs_of_partitions_that_its_topic_gets_meanwhile(two: TwoProcesses) -> None:
    await two.set("mail")
    waiting = asyncio.ensure_future(two.engine.pull(Pull(NS, ("mail",), 1, None, 60_000)))
    await settled()
    await two.other.delete_topic(NS, "mail")
    await two.set("mail", partitions=4)
    await send(two.other, "mail", next(f"{n}" for n in range(100) if partition_of(f"{n}", 4) == 3))
    await settled()
    assert waiting.done()


async def test_targets_policies_and_deletions_of_another_process_reach_the_listeners(two: TwoProcesses) -> None:
    await two.other.set_push(NS, "t", TARGET)
    await two.set("dead", on_dead=OnDead("x"))
    await settled()
    found = {name: config for name, config in two.configs.of.items() if config is not None}
    assert (found["t"].push, found["dead"].policy.on_dead) == (TARGET, OnDead("x"))
    await two.other.delete_topic(NS, "t")
    await settled()
    assert two.configs.of["t"] is None


async def test_a_change_costs_another_process_one_read_of_its_topic(two: TwoProcesses) -> None:
    for number in range(5):
        await two.set(f"t{number}")
    two.store.reads.clear()
    entry = await two.store.directory.topic(NS, "t0")
    assert entry is not None
    await two.store.directory.set_config(NS, "t0", b'{"policy":{"lease_ms":1}}', entry.version)
    await settled()
    assert two.store.reads == ["t0", "t0"]  # the first read is the test's own


async def test_a_lost_announcement_is_noticed_by_the_answer_to_the_next_pull(two: TwoProcesses) -> None:
    await send(two.engine, "mail", "a", "b", "c")
    await two.leased("mail")
    two.lose_announcements()
    await two.set("mail", lease_ms=5_000)
    await two.advance(1_000)  # a topic is not read twice within a second
    await two.leased("mail")
    assert (await two.leased("mail")).lease_until_ms - two.clock.now_ms == 5_000


async def test_a_pull_whose_partition_missed_the_change_reads_the_topic_at_most_once_a_second(
    two: TwoProcesses,
) -> None:
    await send(two.engine, "mail", *map(str, range(20)))
    await two.store.directory.set_config(NS, "mail", b'{"policy":{"lease_ms":1}}', None)  # its writer died
    await settled()
    two.store.reads.clear()
    for _ in range(20):
        await two.leased("mail")
    assert len(two.store.reads) <= 1


async def test_lost_announcements_are_made_up_for_within_30_seconds(two: TwoProcesses) -> None:
    await two.other.set_push(NS, "deleted", TARGET)
    await settled()
    two.lose_announcements()
    await two.other.set_push(NS, "t", TARGET)
    await two.set("dead", on_dead=OnDead("x"))
    await two.other.delete_topic(NS, "deleted")
    await settled()
    assert list(two.configs.of) == ["deleted"]
    await two.advance(ROUND_MS)
    assert two.configs.of["t"] is not None
    assert two.configs.of["dead"] is not None
    assert two.configs.of["deleted"] is None


async def test_a_gap_in_the_numbers_is_made_up_for_at_once(two: TwoProcesses) -> None:
    two.lose_announcements()
    await two.other.set_push(NS, "lost", TARGET)
    two.lose_announcements(False)
    await two.other.set_push(NS, "heard", TARGET)
    await settled()
    assert set(two.configs.of) == {"lost", "heard"}


async def test_after_a_reconnect_topics_are_read_only_if_something_was_missed(two: TwoProcesses) -> None:
    await two.other.set_push(NS, "t", TARGET)
    await settled()
    two.store.reads.clear()
    two.engine.topic_changed(None)
    await settled()
    assert two.store.reads == ["counter"]
    two.lose_announcements()
    await two.other.set_push(NS, "lost", TARGET)
    two.engine.topic_changed(None)
    await settled()
    assert two.configs.of["lost"] is not None


async def test_topics_that_could_not_be_read_are_read_again(two: TwoProcesses) -> None:
    two.lose_announcements()
    await two.other.set_push(NS, "t", TARGET)
    two.store.down = True
    await two.advance(ROUND_MS)
    assert two.configs.of == {}
    two.store.down = False
    await two.advance(2_000)
    assert two.configs.of["t"] is not None


async def test_an_idle_process_reads_one_number_in_30_seconds(two: TwoProcesses) -> None:
    await two.other.set_push(NS, "t", TARGET)
    await settled()
    two.store.reads.clear()
    await two.advance(10 * ROUND_MS)
    assert two.store.reads == ["counter"] * 10


async def test_a_config_that_is_read_late_does_not_undo_a_newer_one(two: TwoProcesses) -> None:
    changes = two.engine._changes  # pyright: ignore[reportPrivateUsage]
    paused = TopicConfig(paused_until_ms=1)
    changes.tell((NS, "t"), 7, paused)
    changes.tell((NS, "t"), 6, TopicConfig())
    assert two.configs.of == {"t": paused}


async def test_a_topic_that_is_deleted_and_made_again_with_more_partitions_is_found_by_the_other_process(
    two: TwoProcesses,
) -> None:
    await two.set("t")
    await send(two.engine, "t", "a")
    await two.other.cancel(NS, "t", ["a"])
    await two.other.delete_topic(NS, "t")
    await two.set("t", partitions=4)
    names = [str(number) for number in range(8)]
    await send(two.other, "t", *names)
    assert sorted(ids(await two.engine.pull(Pull(NS, ("t",), 8)))) == names

"""A topic is expanded under load, in many random orders of all store calls: no id is ever in two partitions, and
nothing that was answered is lost.

Each process has an engine of its own on one reference store. Every call waits a random while before and after it. The
processes hear nothing of each other, except by what the store answers. The ones that expand may die at any call.

A namespace with `namespace_ids` is expanded in the same way: its two topics share the ids and the partitions.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any
from zlib import crc32

import pytest
from engine_kit import NS, VirtualTimer
from msgspec.structs import replace

from dueline.engine.commands import Pull, Send, TopicPatch
from dueline.engine.engine import Engine
from dueline.engine.errors import Expanding, InvalidField, NotFound, StoreDown
from dueline.engine.job import BodyKind, Partition
from dueline.engine.policy import TopicPolicy
from dueline.engine.posts import PostedByTask
from dueline.engine.store import Code, Control, OnConflict, Ref, SendOutcome
from dueline.store.memory import MemoryStore
from dueline.testing.clock import VirtualClock

IDS = [f"id-{number}" for number in range(30)]
OPERATIONS = ("send", "pull", "ack", "cancel", "read", "control", "stored_ids", "stats", "retire")
DIRECTORY = ("register", "topic", "set_config")


class Hesitant(PostedByTask):
    """One process's way to a store. `lives`: how many calls it makes before it dies."""

    def __init__(
        self, inner: Any, dice: random.Random, lives: int | None = None, count: Callable[[], None] | None = None
    ) -> None:
        self.events: Any = None
        self._inner = inner
        self._dice = dice
        self._lives = lives
        self._count = count or self._live
        if hasattr(inner, "directory"):
            self.directory = Hesitant(inner.directory, dice, count=self._count)

    def _live(self) -> None:
        if self._lives is not None:
            self._lives -= 1
            if self._lives < 0:
                raise StoreDown("this process is dead")

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return partial(self._call, found) if name in OPERATIONS + DIRECTORY else found

    async def _call(self, call: Callable[..., Any], *args: Any) -> Any:
        for _ in range(self._dice.choice((0, 0, 1, 2, 5))):
            await asyncio.sleep(0)
        self._count()
        made = call(*args)
        result = await made if inspect.isawaitable(made) else made
        for _ in range(self._dice.choice((0, 0, 1, 3))):
            await asyncio.sleep(0)
        self._count()
        return result


class Watched(MemoryStore):
    """After every change, each id must be in one partition at most."""

    async def send(self, partition: Partition, items: Any, policy_version: int = 0) -> list[SendOutcome]:
        results = await super().send(partition, items, policy_version)
        sets = {id(one.record_set): one.record_set for one in self._partitions.values()}
        held = Counter(name for one in sets.values() for name in one.records)
        assert all(count == 1 for count in held.values()), f"in two partitions: {held.most_common(3)}"
        return results


class NeverCloses(Watched):
    async def control(self, partition: Partition, control: Control) -> None:
        await super().control(partition, replace(control, closed=False))


class ClosesForOneTopic(Watched):
    """A partition of a namespace that is closed only for topics that it knows already."""

    async def send(self, partition: Partition, items: Any, policy_version: int = 0) -> list[SendOutcome]:
        records = self._state(partition).record_set
        before, records.closed = records.closed, None if partition.topic == "u" else records.closed
        try:
            return await super().send(partition, items, policy_version)
        finally:
            records.closed = before


class ForgetsItsIds(Watched):
    """A closed partition that says MOVED also for the ids that it holds."""

    async def send(self, partition: Partition, items: Any, policy_version: int = 0) -> list[SendOutcome]:
        results = await super().send(partition, items, policy_version)
        closed = self._state(partition).closed is not None
        return [replace(one, code=Code.MOVED) for one in results] if closed else results


class Run:
    """The processes of one seed. `sent`: ids that were certainly stored. `created`: those whose send said so."""

    def __init__(self, seed: int, store: type[Watched] = Watched, shared: bool = False) -> None:
        self.shared = shared
        self.topics = ("t", "u") if shared else ("t",)
        self.dice = random.Random(seed)
        # Without retention the old partitions are empty at some time, and expansions end. Then no id is used twice.
        self.ends = seed % 2 == 1
        self.ids = itertools.count()
        self.policy = TopicPolicy(retain_ms=0 if self.ends else 600_000, on_conflict="keep")
        self.clock = VirtualClock()
        self.timer = VirtualTimer(self.clock)
        self.store = store(self.clock)
        self.sent: set[str] = set()
        self.created: set[str] = set()
        self.delivered: list[str] = []
        self.expanded = 0

    def engine(self, lives: int | None = None) -> Engine:
        store: Any = Hesitant(self.store, self.dice, lives)
        return Engine(store, timer=self.timer, namespace_ids=frozenset({NS} if self.shared else ()))

    def topic(self, id: str) -> str:
        return self.topics[crc32(id.encode()) // 7 % len(self.topics)]

    async def send(self, engine: Engine) -> None:
        for _ in range(12):
            if self.sent and self.dice.random() < 0.3:
                await engine.topic(
                    NS, self.topic(next(iter(self.sent)))
                )  # so it knows the newest map, and what the old partitions hold
            id = f"new-{next(self.ids)}" if self.ends else self.dice.choice(IDS)
            command = Send(id, b"1", BodyKind.TEXT, on_ended=OnConflict.KEEP)
            if self.dice.random() < 0.3:
                await engine.send_many(NS, self.topic(id), [command, Send(None, b"1", BodyKind.TEXT)])
            else:
                sent = await engine.send(NS, self.topic(id), command)
                if sent.result == "created":
                    assert id not in self.created, f"{id} was made twice"
                    self.created.add(id)
            self.sent.add(id)

    async def consume(self, engine: Engine) -> None:
        for _ in range(8):
            leased = await engine.pull(Pull(NS, self.topics, 3, None, 0))
            for one in leased:
                assert one.id not in self.delivered, f"{one.id} was delivered twice"
                self.delivered.append(one.id)
            for one in leased:
                refs = [Ref(one.id, one.lease)]
                if self.shared and self.dice.random() < 0.5:
                    done = await engine.ack_by_id(NS, [one.id])
                else:
                    done = await engine.ack(NS, one.topic, refs)
                assert [end.code for end in done] == [Code.OK]

    async def expand(self, engine: Engine, partitions: int) -> None:
        try:
            await engine.set_topic(NS, self.dice.choice(self.topics), TopicPatch(self.policy, partitions=partitions))
            self.expanded += 1
        except (StoreDown, Expanding, InvalidField):  # it died; an expansion is under way; others added more
            pass

    async def expand_more(self, engine: Engine) -> None:
        for partitions in (4, 6, 7, 9, 12):
            for _ in range(self.dice.randint(0, 120)):
                await asyncio.sleep(0)
            for number in range(40):
                for topic in self.topics:
                    await self.store.clean(Partition(NS, topic, number, self.shared))
            await self.expand(engine, partitions)

    async def run(self) -> None:
        first = self.engine()
        if self.ends or self.dice.random() < 0.5:
            for topic in self.topics:
                await first.set_topic(NS, topic, TopicPatch(self.policy))
        await self.send(first)
        engines = [first, *(self.engine() for _ in range(3))]
        for engine in engines[1:3]:
            await engine.send(NS, self.topic(IDS[0]), Send(IDS[0], b"1", BodyKind.TEXT, on_conflict=OnConflict.KEEP))
        await asyncio.gather(
            *(self.send(engine) for engine in engines),
            *(self.consume(engine) for engine in engines),
            self.expand(self.engine(self.dice.choice((None, *range(1, 20)))), 4),
            self.expand(self.engine(self.dice.choice((None, *range(1, 20)))), 4),
            self.expand_more(engines[3]),
        )
        await self.judge(self.engine())

    async def judge(self, engine: Engine) -> None:
        for id in self.sent - (set(self.delivered) if self.ends else set()):
            assert (await engine.get(NS, self.topic(id), id)).id == id
            assert not self.shared or (await engine.get_by_id(NS, id)).id == id
        while leased := await engine.pull(Pull(NS, self.topics, 100, None, 0)):
            self.delivered += [one.id for one in leased]
        assert self.sent <= set(self.delivered), f"never delivered: {self.sent - set(self.delivered)}"
        assert len(self.delivered) == len(set(self.delivered)), "delivered twice"


async def run_all(seeds: range, store: type[Watched] = Watched, shared: bool = False) -> int:
    """Returns how many expansions ended so that another one could begin."""
    ended = 0
    for seed in seeds:
        run = Run(seed, store, shared)
        await run.run()
        ended += run.expanded > 2
    return ended


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in (50, 100, 150))])
async def test_no_id_is_in_two_partitions_and_nothing_is_lost(first: int, shared: bool) -> None:
    assert await run_all(range(first, first + 50), shared=shared) > 0, "no expansion ended while the topic was used"


@pytest.mark.parametrize(
    ("store", "shared"),
    [
        (NeverCloses, False),
        (ForgetsItsIds, False),
        (NeverCloses, True),
        (ForgetsItsIds, True),
        (ClosesForOneTopic, True),
    ],
)
async def test_a_store_that_breaks_the_rule_is_found_out(store: type[Watched], shared: bool) -> None:
    with pytest.raises((AssertionError, NotFound)):
        await run_all(range(200), store, shared)

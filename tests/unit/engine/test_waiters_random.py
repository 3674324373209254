"""Random programmes of senders, holders and waiters: nobody sleeps past the moment at which it could be served."""

from __future__ import annotations

import asyncio
import random

import pytest
from engine_kit import NS, EngineKit, settled

from dueline.engine.commands import TopicPatch
from dueline.engine.job import LeasedJob
from dueline.engine.policy import TopicPolicy
from dueline.engine.store import Code, Ref, Release
from tests.kit.waiting import turns

TOPICS = ("a", "b", "c")


class RandomRun:
    """One run: what was sent, who waits, who holds what."""

    def __init__(self, kit: EngineKit, seed: int) -> None:
        self.kit = kit
        self.random = random.Random(seed)
        self.pulls: list[tuple[asyncio.Task[list[LeasedJob]], tuple[str, ...], int]] = []
        self.leased: list[LeasedJob] = []
        self.sent = 0
        self.acked = 0

    async def step(self) -> None:
        choice = self.random.choices(
            (self.send, self.wait, self.leave, self.finish, self.give, self.pause, self.pass_time),
            (6, 6, 3, 3, 2, 1, 4),
        )[0]
        await choice()
        if self.random.random() < 0.6:
            await turns(self.random.randrange(8))
        else:
            await self._settle_and_check()

    async def hesitate(self) -> None:
        await turns(self.random.randrange(5))

    async def _settle_and_check(self) -> None:
        for _ in range(8):
            await settled()
        for entry in [entry for entry in self.pulls if entry[0].done()]:
            self.pulls.remove(entry)
            if not entry[0].cancelled():
                jobs = entry[0].result()
                assert len(jobs) <= entry[2]
                self.leased += jobs
        await self.check()

    async def send(self) -> None:
        self.sent += 1
        delay_ms = self.random.choice((0, 0, 1, 5, 50, 500))
        await self.kit.send(self.random.choice(TOPICS), f"job{self.sent}", delay_ms, max_attempts=None)

    async def wait(self) -> None:
        topics = tuple(self.random.sample(TOPICS, self.random.randint(1, 3)))
        most = self.random.choice((1, 1, 2, 5))
        lease_ms = self.random.choice((None, 20, 300))
        wait_ms = self.random.choice((0, 40, 1_000, 1_000))
        self.pulls.append((self.kit.pull(*topics, max=most, lease_ms=lease_ms, wait_ms=wait_ms), topics, most))

    async def leave(self) -> None:
        if self.pulls:
            self.random.choice(self.pulls)[0].cancel()

    def _take_leased(self) -> LeasedJob | None:
        return self.leased.pop(self.random.randrange(len(self.leased))) if self.leased else None

    async def finish(self) -> None:
        if job := self._take_leased():
            [done] = await self.kit.engine.ack(NS, job.topic, [Ref(job.id, job.lease)])
            self.acked += done.code is Code.OK

    async def give(self) -> None:
        if job := self._take_leased():
            delay_ms = self.random.choice((0, 10, 200))
            await self.kit.engine.release(NS, job.topic, [Release(job.id, job.lease, delay_ms=delay_ms)])

    async def pause(self) -> None:
        topic = self.random.choice(TOPICS)
        if self.random.random() < 0.5:
            await self.kit.engine.pause(NS, topic, self.kit.clock.now_ms + self.random.choice((10, 100)))
        else:
            await self.kit.engine.resume(NS, topic)

    async def pass_time(self) -> None:
        await self.kit.advance(self.random.choice((1, 1, 5, 30, 100)))
        await settled()

    async def check(self) -> None:
        views = {name: await self.kit.engine.topic(NS, name) for name in TOPICS}
        for pull, topics, _ in self.pulls:
            if not pull.done():
                waiting_for = {name: views[name].ready for name in topics if not views[name].paused}
                assert sum(waiting_for.values()) == 0
        live = {job.lease for job in self.leased if job.lease_until_ms > self.kit.clock.now_ms}
        assert sum(view.leased for view in views.values()) == len(live)
        assert self.kit.engine.waiters == len(self.pulls)


@pytest.mark.parametrize("seed", range(12))
async def test_every_waiter_is_served_as_soon_as_it_can_be_and_nothing_is_leased_to_nobody(
    seed: int, kit: EngineKit
) -> None:
    for name, partitions in zip(TOPICS, (1, 3, 1), strict=True):
        await kit.engine.set_topic(NS, name, TopicPatch(TopicPolicy(lease_ms=200), partitions=partitions))
    run = RandomRun(kit, seed)
    kit.store.hesitate = run.hesitate
    for _ in range(200):
        await run.step()
    for name in TOPICS:
        await kit.engine.resume(NS, name)
    await kit.advance(2_000)
    views = [await kit.engine.topic(NS, name) for name in TOPICS]
    assert kit.engine.waiters == 0
    assert sum(view.scheduled + view.ready + view.leased for view in views) == run.sent - run.acked

"""A due storm on the virtual clock: many jobs of one topic become due in one second. How late are they, and why?

    python -m bench.due_storm [--jobs N] [--shards N] [--spread-ms N] [--consumers N] [--job-us N]

Everything but the store's speed is real: the engine's waiters, alarms and wake-ups run as in a server, on a virtual
clock. The store is a heap of due times, which takes no time of its own. Instead each call occupies it for the time that
the same call takes on a real one (CALL_US, and `--job-us` from `python -m bench --only scale`), one call after the
other. The jobs spread evenly over the shards, and shards do not wait for each other, so one of them is simulated.
Consumers take up to 100 jobs per pull, ack them at once, and pull again.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import random
from collections import Counter
from collections.abc import Sequence
from typing import cast

import msgspec

from dueline.engine.commands import Pull as PullCommand
from dueline.engine.commands import Send, TopicPatch
from dueline.engine.engine import Engine
from dueline.engine.job import BodyKind, LeasedJob, Partition, State
from dueline.engine.limits import BATCH_JOBS, Limits
from dueline.engine.policy import TopicPolicy
from dueline.engine.store import Code, Outcome, Pull, PullOutcome, Ref, SendItem, SendOutcome
from dueline.engine.timer import Timer
from dueline.load_generator import nearest_rank
from dueline.store.memory import MemoryStore
from dueline.testing.clock import VirtualClock
from dueline.testing.timer import VirtualTimer, settled

CALL_US = 30.0  # of the store, for a call of any size
JOB_US = 20.0  # and for each job: half of it when it is pulled, half when it is acked
JOBS_PER_PULL = 100
JOBS_PER_SEND = 500
LEAD_MS = 60_000  # from the sends to the storm
STORM_MS = 1_000
LEASE_MS = 600_000


class Found(msgspec.Struct, frozen=True):
    """What a storm did. Times in ms; `calls` of the store by kind."""

    jobs: int
    quiet_calls: int
    calls: Counter[str]
    empty_pulls: int
    drained_s: float
    late_ms: Sequence[int]

    def late(self, share: float) -> float:
        return nearest_rank(self.late_ms, share)


class StormStore(MemoryStore):
    """One partition whose calls occupy it for a while, one after the other. It holds no more than the due times of its
    jobs, because the reference model looks at every job in every call."""

    def __init__(self, clock: VirtualClock, timer: Timer, job_us: float) -> None:
        super().__init__(clock)
        self._job_us = job_us
        self.calls: Counter[str] = Counter()
        self.empty_pulls = 0
        self._now_ms = clock
        self._timer = timer
        self._free_s = 0.0
        self._due: list[tuple[int, str]] = []  # a heap

    async def send(self, partition: Partition, items: Sequence[SendItem], policy_version: int = 0) -> list[SendOutcome]:
        for item in items:
            heapq.heappush(self._due, (item.at_ms or 0, item.id))
        return [SendOutcome(Code.CREATED, State.SCHEDULED, item.at_ms or 0, 1) for item in items]

    async def pull(self, partition: Partition, pull: Pull) -> PullOutcome:
        self.calls["pull"] += 1
        await self._occupy(CALL_US)
        now_ms, most = self._now_ms(), min(BATCH_JOBS, sum(credit.max for credit in pull.credits))
        jobs: list[LeasedJob] = []
        while self._due and self._due[0][0] <= now_ms and len(jobs) < most:
            due_ms, id = heapq.heappop(self._due)
            jobs.append(_leased(id, due_ms, now_ms))
        self.empty_pulls += not jobs
        await self._occupy(self._job_us / 2 * len(jobs))
        return PullOutcome(jobs, self._due[0][0] if self._due else None, False, now_ms)

    async def ack(self, partition: Partition, items: Sequence[Ref]) -> list[Outcome]:
        self.calls["ack"] += 1
        await self._occupy(CALL_US + self._job_us / 2 * len(items))
        return [Outcome(Code.OK) for _ in items]

    async def _occupy(self, cost_us: float) -> None:
        now_s = self._timer.time()
        self._free_s = max(self._free_s, now_s) + cost_us / 1e6
        done = asyncio.get_running_loop().create_future()
        self._timer.call_later(self._free_s - now_s, lambda: done.set_result(None))
        await done


def _leased(id: str, due_ms: int, now_ms: int) -> LeasedJob:
    until_ms, late_ms = now_ms + LEASE_MS, now_ms - due_ms
    return LeasedJob(id, "t", b"", BodyKind.TEXT, b"", (), 1, 1, None, id, until_ms, due_ms, 0, late_ms)


async def storm(jobs: int, spread_ms: int, consumers: int, job_us: float = JOB_US, seed: int = 0) -> Found:
    """Let this many jobs of one partition become due in one second, each up to `spread_ms` later."""
    random.seed(seed)  # the engine draws the spread
    clock = VirtualClock()
    timer = VirtualTimer(clock)
    store = StormStore(clock, timer, job_us)
    engine = Engine(store, Limits(), timer=timer)
    await engine.start()
    await engine.set_topic("n", "t", TopicPatch(policy=TopicPolicy(spread_ms=spread_ms or None)))
    begin_ms = clock.now_ms + LEAD_MS
    for first in range(0, jobs, JOBS_PER_SEND):
        batch = range(first, min(first + JOBS_PER_SEND, jobs))
        jobs_here = [Send(str(n), b"", BodyKind.TEXT, at_ms=begin_ms + STORM_MS * n // jobs) for n in batch]
        await engine.send_many("n", "t", jobs_here)
    late_ms: list[int] = []
    last_ms = begin_ms

    async def consume() -> None:
        nonlocal last_ms
        while len(late_ms) < jobs:
            leased = await engine.pull(PullCommand("n", ("t",), JOBS_PER_PULL, LEASE_MS, 300_000))
            late_ms.extend(clock.now_ms - job.due_at_ms for job in leased)
            if leased:
                await engine.ack("n", "t", [Ref(job.id, job.lease) for job in leased])
                last_ms = clock.now_ms

    tasks = [asyncio.create_task(consume()) for _ in range(consumers)]
    await timer.advance(LEAD_MS // 2)
    parked = store.calls["pull"]
    await timer.advance(LEAD_MS // 2 - 1)
    quiet_calls = store.calls["pull"] - parked
    store.calls.clear()
    store.empty_pulls = 0
    while len(late_ms) < jobs:
        await timer.advance(1_000)
    await timer.advance(60_000)
    await engine.stop()
    await settled()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    drained_s = (last_ms - begin_ms) / 1000
    return Found(jobs, quiet_calls, store.calls, store.empty_pulls, drained_s, sorted(late_ms))


def shown(found: Found, shards: int, spread_ms: int) -> str:
    pulls = found.calls["pull"]
    return (
        f"{found.jobs * shards:,} jobs on {shards} shards, spread {spread_ms:,} ms: done in {found.drained_s:.1f} s; "
        f"late p50 {found.late(0.5):,.0f} p99 {found.late(0.99):,.0f} max {found.late(1.0):,.0f} ms; "
        f"per shard {pulls:,} pulls ({found.jobs / pulls:.0f} jobs each, {found.empty_pulls} empty), "
        f"{found.calls['ack']:,} acks, {found.quiet_calls} calls while nothing was due"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=cast(str, __doc__).splitlines()[0])
    parser.add_argument("--jobs", type=int, default=10_000_000, help="in the whole storm")
    parser.add_argument("--shards", type=int, default=100)
    parser.add_argument("--spread-ms", type=int, default=0)
    parser.add_argument("--consumers", type=int, default=50, help="of each shard")
    parser.add_argument("--job-us", type=float, default=JOB_US, help="the store's time per job, pull and ack together")
    asked = parser.parse_args()
    found = asyncio.run(storm(asked.jobs // asked.shards, asked.spread_ms, asked.consumers, asked.job_us))
    print(shown(found, asked.shards, asked.spread_ms))


if __name__ == "__main__":
    main()

"""Schedules over a simulated time, while every server is gone after a few store calls.

    .venv/bin/python -m tools.faults.schedule_year --schedules 1000 --days 366

One server at a time works on a store in memory, in virtual time. It is cut off at one of its store calls: the first one
at its first call, the next one at a later one, and so on, in turn before the call takes effect and before its answer
arrives. Then the next server begins. A job is gone as soon as it is sent, so its id protects nothing: only fences do.
Every occurrence must become one job, which is due at the occurrence; if it was sent later, when it was sent.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from dueline.engine.commands import Send, TopicPatch
from dueline.engine.engine import Engine
from dueline.engine.job import BodyKind, Partition
from dueline.engine.limits import INTERNAL_NAMESPACE
from dueline.engine.occurrences import Occurrences
from dueline.engine.policy import TopicPolicy
from dueline.engine.schedule import Misfire, Overlap, Schedule
from dueline.engine.store import Code, SendItem, SendOutcome
from dueline.store.memory import MemoryStore
from dueline.testing.clock import VirtualClock
from dueline.testing.timer import VirtualTimer, settled

from .cut_store import CutStore

DAY_MS = 86_400_000
SELDOM_S = 400 * 86_400.0
PARTITIONS = 3
PER_NAMESPACE = 100
ZONES = ("Europe/Madrid", "America/New_York", "Australia/Sydney", "Australia/Lord_Howe", "Asia/Kolkata", "UTC")
SHOWN_DAYS = 10
STRIDE = 37  # lives end at another call each time, short and long ones mixed


class Result(msgspec.Struct):
    """What came of a run. `early` and `late`: jobs that are due before and after the time that they should be.
    `ahead`: jobs that were sent before their occurrence. `calls`: how often a server was cut off at each kind of
    call."""

    occurrences: int
    missed: int
    doubled: int
    early: int
    late: int
    unexpected: int
    ahead: int
    lives: int
    seconds: float
    calls: dict[str, int]

    @property
    def is_right(self) -> bool:
        return not (self.missed or self.doubled or self.early or self.late or self.unexpected)


class _Watched(MemoryStore):
    """Notes every job of a user at the moment it is sent, and removes it. As controls of the check, without fences
    (`fenced` False), or with due times that are wrong by `shift_ms`."""

    def __init__(self, clock: VirtualClock, fenced: bool, shift_ms: int) -> None:
        super().__init__(clock)
        self.sent: list[tuple[str, str, int, int]] = []  # namespace, id, due, now
        self._fenced = fenced
        self._shift_ms = shift_ms

    async def send(self, partition: Partition, items: Sequence[SendItem], policy_version: int = 0) -> list[SendOutcome]:
        if not self._fenced:
            items = [replace(item, occurrence=None) for item in items]
        if self._shift_ms and partition.namespace != INTERNAL_NAMESPACE:
            items = [replace(item, at_ms=(item.at_ms or 0) + self._shift_ms) for item in items]
        results = await super().send(partition, items, policy_version)
        if partition.namespace != INTERNAL_NAMESPACE:
            for item, result in zip(items, results, strict=True):
                if result.code is Code.CREATED:
                    self.sent.append((partition.namespace, item.id, result.due_at_ms, self.now_ms()))
                    await self.cancel(partition, [item.id], forget=True)
        return results


def some_schedules(number: int, seed: int) -> dict[tuple[str, str], Schedule]:
    """Schedules that come daily to yearly, many of them in the hours in which clocks change. By namespace and name."""
    dice = random.Random(seed)
    found: dict[tuple[str, str], Schedule] = {}
    for place in range(number):
        minute, hour = dice.choice((0, 30)), dice.choice((0, 1, 1, 2, 2, 2, 3, 9, 23))
        times = dice.choices(
            (
                {"cron": f"{minute} {hour} * * *"},
                {"cron": f"{minute} */12 * * *"},
                {"cron": f"{minute} {hour} * * {dice.choice(('MON', 'SUN', 'SUN', 'FRI#1'))}"},
                {"cron": f"{minute} {hour} {dice.choice(('1', 'L', '29'))} * *"},
                {"cron": f"{minute} {hour} 1 1 *"},
                {"every_ms": dice.choice((1, 7, 30)) * DAY_MS},
            ),
            (8, 2, 50, 20, 5, 15),
        )[0]
        tz = dice.choice(ZONES) if "cron" in times else "UTC"
        found[f"n{place // PER_NAMESPACE}", f"s{place}"] = Schedule(
            "t",
            Send(None, b"1", BodyKind.JSON),
            tz=tz,
            misfire=dice.choice((Misfire.LATEST, Misfire.ALL)),
            overlap=dice.choice((Overlap.ALLOW, Overlap.ALLOW, Overlap.ALLOW, Overlap.SKIP)),
            **times,  # pyright: ignore[reportArgumentType]
        )
    return found


class Simulation:
    """One run. `most_calls`: the longest life of a server."""

    def __init__(
        self,
        schedules: dict[tuple[str, str], Schedule],
        start_ms: int,
        most_calls: int,
        fenced: bool = True,
        shift_ms: int = 0,
    ) -> None:
        self.schedules = schedules
        self.clock = VirtualClock(start_ms)
        self.timer = VirtualTimer(self.clock)
        self.store = _Watched(self.clock, fenced, shift_ms)
        self.lives = 0
        self.shows = False  # prints how far it is
        self.cut: Counter[str] = Counter()
        self._most_calls = most_calls

    async def run(self, days: int) -> Result:
        begun_s = time.perf_counter()
        start_ms = self.clock.now_ms
        await self._write()
        lives = asyncio.ensure_future(self._live())
        for day in range(1, days + 1):
            await self.timer.advance(DAY_MS)
            if lives.done():
                lives.result()
            if self.shows and day % SHOWN_DAYS == 0:
                seconds = time.perf_counter() - begun_s
                print(f"  day {day}: {len(self.store.sent)} jobs, {self.lives} servers, {seconds:.0f} s", flush=True)
        await self.timer.advance(600_000)  # what is still leased
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        return self._checked(start_ms, start_ms + days * DAY_MS, time.perf_counter() - begun_s)

    async def _write(self) -> None:
        engine = Engine(self.store, timer=self.timer, round_s=SELDOM_S, idle_ms=int(SELDOM_S * 1000))
        for namespace in {namespace for namespace, _ in self.schedules}:
            await engine.set_topic(namespace, "t", TopicPatch(TopicPolicy(), partitions=PARTITIONS))
        for (namespace, name), schedule in self.schedules.items():
            await engine.schedules.put(namespace, name, schedule, None)
        await settled()

    async def _live(self) -> None:
        """One server after the other, for ever."""
        while True:
            at = self.lives // 2 * STRIDE % self._most_calls + 1
            store: Any = CutStore(self.store, at, done=self.lives % 2 == 1)
            engine = Engine(store, timer=store.timer(self.timer), round_s=SELDOM_S, idle_ms=int(SELDOM_S * 1000))
            await engine.start()
            await store.gone.wait()
            self.cut[f"{store.calls[-1]}, {'its answer' if store.done else 'before it'}"] += 1
            self.lives += 1

    def _checked(self, start_ms: int, end_ms: int, seconds: float) -> Result:
        expected = {
            (namespace, f"{name}@{at_ms}"): at_ms
            for (namespace, name), schedule in self.schedules.items()
            for at_ms in Occurrences.of(schedule).between(start_ms, end_ms, 1_000_000)
        }
        came = Counter((namespace, id) for namespace, id, _, _ in self.store.sent if _at_ms(id) <= end_ms)
        times = [(_at_ms(id), due_ms, now_ms) for _, id, due_ms, now_ms in self.store.sent]
        return Result(
            occurrences=len(expected),
            missed=len(expected.keys() - came.keys()),
            doubled=sum(number - 1 for number in came.values()),
            early=sum(due_ms < at_ms for at_ms, due_ms, _ in times),
            late=sum(due_ms > max(at_ms, now_ms) for at_ms, due_ms, now_ms in times),
            unexpected=len(came.keys() - expected.keys()),
            ahead=sum(now_ms < at_ms for at_ms, _, now_ms in times),
            lives=self.lives,
            seconds=seconds,
            calls=dict(self.cut),
        )


def _at_ms(id: str) -> int:
    return int(id.rpartition("@")[2])


def midnight(year: int, month: int, day: int) -> int:
    return int(datetime(year, month, day, tzinfo=UTC).timestamp()) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--days", type=int, default=366)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most-calls", type=int, default=97, help="the longest life of a server")
    words = parser.parse_args()
    schedules = some_schedules(words.schedules, words.seed)
    simulation = Simulation(schedules, midnight(2026, 1, 1), words.most_calls)
    simulation.shows = True
    result = asyncio.run(simulation.run(words.days))
    for call, number in sorted(result.calls.items()):
        print(f"  cut off at {call}: {number}")
    print(
        f"{words.schedules} schedules, {words.days} days, {result.occurrences} occurrences, {result.lives} servers: "
        f"{result.missed} missed, {result.doubled} doubled, {result.early} early, {result.late} due late, "
        f"{result.unexpected} unexpected; {result.ahead} jobs were sent ahead ({result.seconds:.0f} s)"
    )
    raise SystemExit(not result.is_right)


if __name__ == "__main__":
    main()

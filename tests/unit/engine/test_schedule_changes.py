"""Random changes of one schedule, most of them in the half second before an occurrence, while servers are cut off,
sends stand still and topics get more partitions. Jobs are gone as soon as they are sent: ids protect nothing."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from msgspec.structs import replace
from schedule_kit import NS, START_MS, BlockingStore, ScheduleKit, every, template

from dueline.engine.commands import TopicPatch
from dueline.engine.engine import Engine
from dueline.engine.errors import DuelineError
from dueline.engine.job import Partition
from dueline.engine.limits import INTERNAL_NAMESPACE
from dueline.engine.policy import TopicPolicy
from dueline.engine.schedule import Misfire, Overlap, Schedule
from dueline.engine.store import Code, SendItem, SendOutcome
from dueline.engine.stored_schedule import LEAD_MS, occurrences_of
from dueline.testing.clock import VirtualClock
from dueline.testing.timer import settled

TOPICS = ("t", "u", "v")
OFFSETS_MS = (-501, -500, -499, -300, -100, -1, 0, 1, 100)  # from an occurrence to a change
SETTLED_MS = 45_000  # longer than any job is late here: some leases, and a send that stands still


@dataclass(frozen=True)
class _Job:
    topic: str
    at_ms: int
    due_ms: int
    sent_ms: int
    number: int  # of the put that made it


@dataclass(frozen=True)
class _Change:
    """`allowed`: the lowest number of a put whose jobs may be sent from this place in `sent` on; None: none may."""

    place: int
    allowed: int | None


class _Recorder(BlockingStore):
    """`fenced` False: a control, which sends without fences."""

    def __init__(self, clock: VirtualClock, fenced: bool) -> None:
        super().__init__(clock)
        self.sent: list[_Job] = []
        self._fenced = fenced

    async def send(self, partition: Partition, items: Sequence[SendItem], policy_version: int = 0) -> list[SendOutcome]:
        is_job = partition.namespace != INTERNAL_NAMESPACE
        if is_job and not self._fenced:
            items = [replace(item, occurrence=None) for item in items]
        results = await super().send(partition, items, policy_version)
        for item, result in zip(items, results, strict=True):
            if is_job and result.code is Code.CREATED:
                at_ms = int(item.id.partition("@")[2])
                self.sent.append(_Job(partition.topic, at_ms, result.due_at_ms, self.now_ms(), int(item.body)))
                await self.cancel(partition, [item.id], forget=True)
        return results


class _Run:
    """One random sequence."""

    def __init__(self, seed: int, fenced: bool = True) -> None:
        self.dice = random.Random(seed)
        self.kit = ScheduleKit(lambda clock: _Recorder(clock, fenced))
        self.every_s = self.dice.choice((1, 2, 10))
        self.puts: list[tuple[Schedule, int]] = []  # with the time of the answer
        self.ends_ms: list[int] = []  # when the next change began
        self.changes = [_Change(0, 0)]
        self.partitions = dict.fromkeys(TOPICS, 1)
        self.is_unsure = False  # the server of a change is gone: nobody knows whether it was done

    @property
    def sent(self) -> list[_Job]:
        assert isinstance(self.kit.memory, _Recorder)
        return self.kit.memory.sent

    async def run(self) -> None:
        await self.kit.serve()
        for topic in TOPICS:
            await self.kit.engine.set_topic(NS, topic, TopicPatch(TopicPolicy(retain_ms=0)))
        for _ in range(self.dice.randint(3, 14)):
            await self._wait()
            await self.dice.choices((self._trouble, self._expand, self._change), (20, 15, 65))[0]()
        self.ends_ms.append(self.kit.clock.now_ms + 2 * SETTLED_MS)
        await self.kit.serve()
        await self.kit.advance(2 * SETTLED_MS / 1000)
        await self.kit.stop()

    async def _wait(self) -> None:
        now_ms, step_ms = self.kit.clock.now_ms, self.every_s * 1000
        next_ms = (now_ms // step_ms + 1) * step_ms + self.dice.choice(OFFSETS_MS)
        to_ms = self.dice.choices((next_ms, now_ms + 1, now_ms + self.dice.choice((12_000, 70_000))), (75, 15, 10))[0]
        await self.kit.advance(max(to_ms - now_ms, 0) / 1000)

    def _server(self) -> Engine:
        return self.dice.choice([engine for store, engine in self.kit.servers if not store.gone.is_set()])

    async def _trouble(self) -> None:
        """A server is cut off, or the next send stands still. Another server is there."""
        store = self.kit.store
        await self.kit.serve()
        if self.dice.random() < 0.5:
            store.stop_in(self.dice.choice(("pull", "send", "release", "fence")), done=self.dice.random() < 0.5)
            return
        self.kit.memory.blocked_topic = self.dice.choice(TOPICS)
        self.kit.memory.go_on = asyncio.Event()
        self.kit.timer.call_later(self.dice.choice((0.1, 0.6, 3, 15)), self.kit.memory.go_on.set)

    async def _expand(self) -> None:
        topic = self.dice.choice(TOPICS)
        self.partitions[topic] += 2
        patch = TopicPatch(TopicPolicy(retain_ms=0), partitions=self.partitions[topic])
        expanding = asyncio.ensure_future(self._server().set_topic(NS, topic, patch))
        await settled()
        if expanding.done() and isinstance(error := expanding.exception(), DuelineError):
            assert error.code == "expanding"

    async def _change(self) -> None:
        what = self.dice.choice(("put", "put", "put", "pause", "resume", "delete"))
        schedules, begun_ms, place = self._server().schedules, self.kit.clock.now_ms, [0]
        if what in ("put", "resume"):
            self.changes.append(_Change(len(self.sent), 0))
        schedule = self._some_schedule()
        call = schedules.put(NS, "a", schedule, None) if what == "put" else getattr(schedules, what)(NS, "a")
        changing = asyncio.ensure_future(call)
        changing.add_done_callback(lambda _: place.append(len(self.sent)))
        await settled()
        if not changing.done():
            self.is_unsure = True
        elif (error := changing.exception()) is not None:
            assert getattr(error, "code", error) == "not_found"
            return
        if len(self.ends_ms) < len(self.puts):
            self.ends_ms.append(begun_ms)
        if what == "put":
            self.puts.append((schedule, self.kit.clock.now_ms))
            self.changes.append(_Change(place[-1], len(self.puts) - 1))
        elif what != "resume":
            self.changes.append(_Change(place[-1], None))

    def _some_schedule(self) -> Schedule:
        choice, number = self.dice.choice, len(self.puts)
        return every(
            self.every_s,
            choice(TOPICS),
            job=template(b"%d" % number),
            starts_at_ms=choice((None, None, START_MS + choice((100, 250, 900)))),
            jitter_ms=choice((0, 0, 300, 1500)),
            misfire=choice(tuple(Misfire)),
            overlap=choice((Overlap.ALLOW, Overlap.ALLOW, Overlap.SKIP)),
        )

    # -- what is wrong

    def wrong(self) -> list[str]:
        found = [f"doubled {at_ms}" for at_ms, times in Counter(job.at_ms for job in self.sent).items() if times > 1]
        for job in self.sent:
            schedule, _ = self.puts[job.number]
            if not job.at_ms <= job.due_ms <= max(job.at_ms, job.sent_ms) + schedule.jitter_ms:
                found.append(f"wrong due time: {job}")
            if job.sent_ms < job.at_ms - (0 if schedule.overlap is Overlap.SKIP else LEAD_MS):
                found.append(f"sent too far ahead: {job}")
            if job.topic != schedule.topic or occurrences_of(schedule).after(job.at_ms - 1) != job.at_ms:
                found.append(f"not an occurrence: {job}")
        return found if self.is_unsure else [*found, *self._sent_after_a_change(), *self._lost()]

    def _sent_after_a_change(self) -> list[str]:
        found: list[str] = []
        for change, after in zip(self.changes, [*self.changes[1:], _Change(len(self.sent), 0)], strict=True):
            for job in self.sent[change.place : after.place]:
                if change.allowed is None or job.number < change.allowed:
                    found.append(f"sent after a change: {job}")
        return found

    def _lost(self) -> list[str]:
        sent = {job.at_ms for job in self.sent}
        return [
            f"lost {at_ms} of put {number}"
            for number, ((schedule, from_ms), until_ms) in enumerate(zip(self.puts, self.ends_ms, strict=False))
            for at_ms in occurrences_of(schedule).between(from_ms, until_ms - SETTLED_MS, 1000)
            if at_ms not in sent and not self._overtaken(at_ms, number, from_ms)
        ]

    def _overtaken(self, at_ms: int, number: int, from_ms: int) -> bool:
        """A former version, with other times, had sent a later occurrence ahead."""
        return any(job.number < number and from_ms < job.at_ms and at_ms < job.at_ms for job in self.sent)


@pytest.mark.parametrize("first", range(0, 100, 25))
async def test_changes_at_any_moment_double_hurry_and_lose_nothing(first: int) -> None:
    for seed in range(first, first + 25):
        run = _Run(seed)
        await run.run()
        assert run.wrong() == [], seed


@pytest.mark.slow
async def test_many_changes_at_any_moment_double_hurry_and_lose_nothing() -> None:
    for seed in range(1000, 3000):
        run = _Run(seed)
        await run.run()
        assert run.wrong() == [], seed


async def test_without_fences_the_same_changes_are_found_to_double() -> None:
    found: set[str] = set()
    for seed in range(60):
        run = _Run(seed, fenced=False)
        await run.run()
        found |= {words.split()[0] for words in run.wrong()}
    assert {"doubled", "sent"} <= found

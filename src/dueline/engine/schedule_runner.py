"""Sends the jobs of schedules: a consumer of the topics that hold them, like any other.

A schedule is due LEAD_MS before its next occurrence (with overlap `skip` at it, because the last job may still end
before that). The job is sent at once, with the occurrence as its due time: the store delivers it as punctually as
any other job, and never earlier. A turn decides one occurrence:

    leased
      |-- deleted -------------- write the fences; remove it, if a job was sent ahead not before that one is due
      |-- new version ---------- write the fences; take over what the version before has sent or skipped
      v
    time to send? -------------- no ----------------------------------------------+
      |-- some were missed ----- write that into the fences, count them           |
      |-- nothing is left ------ (misfire `skip`) --------------------------------+
      |-- the last job lives --- (overlap `skip`) write that into the fences -----+
      v                                                                           v
    send ----------------------- created, or kept: it was sent before ----------> release to the next occurrence
      |-- kept, the fence is later: it was skipped -----------------------------> the same
      +-- refused, or no answer ------------------------------------------------> release after a back-off

Nothing here is remembered. A server that dies before its release leaves a lease that ends; the next one does the same
turn again. What was sent already is KEPT by the fence of its partition, so any number of servers may run this loop, and
a server that was stopped in the middle can do no harm when it continues: its send is KEPT or refused, and its release
comes too late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence

from msgspec.structs import replace

from .checks import cut_error
from .commands import Pull, Send
from .completion import poll
from .errors import BadRequest, DuelineError, NotFound, VersionMismatch
from .fence import Fence, Occurrence
from .job import LIVE, Job, LeasedJob, Partition
from .job_calls import JobCalls
from .limits import BATCH_JOBS, INTERNAL_NAMESPACE
from .metrics import ScheduleMetrics
from .misfire import Due, due
from .rounds import Rounds
from .schedule import Overlap, Schedule
from .sender import Sender
from .store import Code, Ref, Release, Store
from .stored_schedule import (
    LEAD_MS,
    LEASE_MS,
    StoredSchedule,
    fence_name,
    lead_ms,
    namespace_of,
    occurrence_id,
    occurrence_send,
    occurrences_of,
    pack_progress,
    turn_at_ms,
    unpack,
    unpack_progress,
)
from .timer import Timer
from .topics import Topic, TopicConfig, Topics
from .waiters import Waiters

WAIT_MS = 3_600_000
FIRST_BACK_OFF_MS, LAST_BACK_OFF_MS = LEAD_MS, 60_000  # what is refused ahead is tried again when its time comes
NEWER = "a partition knows a newer version of this schedule: write the schedule again"


class Turn:
    """One leased schedule, and what this server found out about it."""

    def __init__(self, namespace: str, partition: Partition, job: LeasedJob) -> None:
        self.namespace = namespace
        self.partition = partition
        self.lease = job.lease
        self.name = job.id
        self.version = job.version
        self.stored = unpack(job.body)
        self.progress = unpack_progress(self.stored, job.progress)
        self.missed = self.skipped = 0
        self.delay_ms: int | None = None  # try again after this time; None: at the next occurrence

    @property
    def schedule(self) -> Schedule:
        return self.stored.schedule

    @property
    def decided_at_ms(self) -> int:
        return max(self.stored.from_ms, self.progress.decided_at_ms)

    @property
    def is_new(self) -> bool:
        """Nothing was decided with this version yet, so its fences may be missing."""
        return self.progress.version != self.version

    @property
    def next_at_ms(self) -> int | None:
        return None if self.schedule.paused else occurrences_of(self.schedule).after(self.decided_at_ms)

    def send(self, at_ms: int) -> Send:
        """The job of an occurrence."""
        occurrence = Occurrence(fence_name(self.namespace, self.name), self.version, at_ms)
        return replace(occurrence_send(self.namespace, self.name, self.schedule, at_ms), occurrence=occurrence)

    def decide(self, at_ms: int, missed: int = 0) -> None:
        """Every occurrence up to here was sent or skipped."""
        self.progress = replace(
            self.progress,
            version=self.version,
            decided_at_ms=max(at_ms, self.progress.decided_at_ms),
            missed=self.progress.missed + missed,
            failures=0,
            error=None,
        )

    def sent(self, at_ms: int, id: str, topic: str) -> None:
        self.decide(at_ms)
        self.progress = replace(self.progress, last_at_ms=at_ms, last_job=id, last_topic=topic)

    def skip(self, at_ms: int) -> None:
        """The last job was still alive."""
        self.decide(at_ms, 1)
        self.skipped += 1

    def catch_up(self, at_ms: int) -> None:
        """A fence has this time. If it is an occurrence, that became a job; all others up to there were skipped. A skip
        writes a time next to an occurrence. Any other time is an occurrence of an older version with other times, which
        was sent ahead: the occurrences of this version begin after it."""
        if at_ms <= self.decided_at_ms:
            return
        occurrences = occurrences_of(self.schedule)
        near_ms = occurrences.after(at_ms - 2)
        missed = 0
        if near_ms is not None and near_ms <= at_ms + 1:
            missed = occurrences.last(self.decided_at_ms, at_ms - 1)[1]
        self.decide(at_ms, missed)
        self.missed += missed
        if near_ms == at_ms:
            self.sent(at_ms, occurrence_id(self.name, at_ms), self.schedule.topic)

    def failed(self, error: str) -> None:
        failures = self.progress.failures
        self.delay_ms = min(FIRST_BACK_OFF_MS * 2 ** min(failures, 10), LAST_BACK_OFF_MS)
        self.progress = replace(
            self.progress, failures=failures + 1, error=cut_error(error), failed_version=self.version
        )


class ScheduleRunner:
    """`start`, then the config of a topic with schedules (engine.topic_changes) begins a loop for that topic."""

    def __init__(
        self,
        store: Store,
        topics: Topics,
        waiters: Waiters,
        jobs: JobCalls,
        sender: Sender,
        metrics: ScheduleMetrics,
        timer: Timer,
    ) -> None:
        self._store = store
        self._topics = topics
        self._waiters = waiters
        self._jobs = jobs
        self._sender = sender
        self._metrics = metrics
        self._timer = timer
        self._loops: dict[str, Rounds] = {}
        self._running = False

    def start(self) -> None:
        self._running = True

    async def stop(self) -> None:
        """Finish the schedules in progress, then end. Drain the waiters first, because the loops wait there."""
        self._running = False
        loops = list(self._loops.values())
        for loop in loops:
            loop.end()
        for loop in loops:
            await loop.stop()

    def topic_changed(self, namespace: str, topic: str, version: int, config: TopicConfig | None) -> None:
        owner = namespace_of(topic) if namespace == INTERNAL_NAMESPACE and config is not None else None
        if owner is not None and self._running and owner not in self._loops:
            loop = self._loops[owner] = Rounds(
                lambda: self._round(owner, topic), self._timer, f"running the schedules of {owner} failed"
            )
            loop.start()

    async def fence(self, namespace: str, name: str, stored: StoredSchedule, version: int) -> tuple[int, int]:
        """Write this version of a schedule to every partition to which an older version may still send, so that it no
        longer can. Returns the newest version that any of these partitions has, and the time up to which older versions
        have sent or skipped all occurrences."""
        fences = await self._fence_topics(namespace, name, stored, version)
        return max((fence.version for fence in fences), default=version), _last_ms(fences)

    # -- the loop

    async def _round(self, namespace: str, topic: str) -> float:
        home = await self._topics.get(INTERNAL_NAMESPACE, topic)
        command = Pull(INTERNAL_NAMESPACE, (topic,), BATCH_JOBS, LEASE_MS, WAIT_MS)
        leased: list[LeasedJob] = await poll(self._waiters.post, [home], command)
        turns = [Turn(namespace, home.partition_of(one.id), one) for one in leased]
        for outcome in await asyncio.gather(*self._steps(turns), return_exceptions=True):
            # A store that does not answer ends the round; the leases end by themselves.
            if isinstance(outcome, BaseException):
                raise outcome
        return 0.0

    def _steps(self, turns: Sequence[Turn]) -> Iterator[Coroutine[None, None, None]]:
        """The work of a round. Schedules that only have to send go first, with one call for all of a topic."""
        ready: dict[tuple[Partition, str], list[tuple[Turn, int]]] = {}
        others: list[Turn] = []
        for turn in turns:
            at_ms = self._ready_at_ms(turn)
            if at_ms is None:
                others.append(turn)
            else:
                ready.setdefault((turn.partition, turn.schedule.topic), []).append((turn, at_ms))
        yield from map(self._send_and_release, ready.values())
        yield from map(self._turn, others)

    def _ready_at_ms(self, turn: Turn) -> int | None:
        """The occurrence to send, if nothing else is to be done or asked before."""
        schedule = turn.schedule
        if turn.stored.deleted or turn.is_new or schedule.paused or schedule.overlap is Overlap.SKIP:
            return None
        try:
            found = self._due(turn)
        except BadRequest:
            return None
        return None if found.skipped else found.at_ms

    async def _send_and_release(self, some: Sequence[tuple[Turn, int]]) -> None:
        await self._send(some)
        await self._release([turn for turn, _ in some])

    async def _turn(self, turn: Turn) -> None:
        if turn.stored.deleted:
            await self._remove(turn)
            return
        try:
            await self._decide(turn)
        except BadRequest as error:  # this server does not know its zone, for example; the others go on
            turn.failed(f"{error.code}: {error.field} {error.message}")
        await self._release([turn])

    async def _remove(self, turn: Turn) -> None:
        """A schedule of the same name that is written before the last occurrence comes must learn that it was sent."""
        last_ms = _last_ms(await self._fence_topics(turn.namespace, turn.name, turn.stored, turn.version))
        if last_ms > self._store.now_ms():
            await self._store.release(turn.partition, (Release(turn.name, turn.lease, at_ms=last_ms, count=False),))
        else:
            await self._store.ack(turn.partition, (Ref(turn.name, turn.lease),))

    async def _release(self, turns: Sequence[Turn]) -> None:
        """Write down what became of schedules of one partition, and when they are due again."""
        releases = [
            Release(
                turn.name,
                turn.lease,
                delay_ms=turn.delay_ms,
                at_ms=turn_at_ms(turn.schedule, turn.next_at_ms) if turn.delay_ms is None else None,
                count=False,
                progress=pack_progress(turn.progress),
            )
            for turn in turns
        ]
        for turn, released in zip(turns, await self._store.release(turns[0].partition, releases), strict=True):
            if released.code is Code.OK:
                self._metrics.failed += turn.delay_ms is not None
                self._metrics.missed += turn.missed
                self._metrics.skipped += turn.skipped

    async def _decide(self, turn: Turn) -> None:
        """Decide at most one occurrence, after those that were missed."""
        schedule, stored = turn.schedule, turn.stored
        if turn.is_new:
            fences = await self._fence_topics(turn.namespace, turn.name, stored, turn.version)
            await self._take_over(turn, _last_ms(fences))
        if schedule.paused:
            return
        found = self._due(turn)
        if found.skipped:
            # A server that is gone may have decided some of them, and left no record but the fence.
            turn.catch_up(_last_ms(await self._fence_all(turn)))
            found = self._due(turn)
        if found.skipped:
            await self._fence_all(turn, found.skipped_to_ms)
            turn.decide(found.skipped_to_ms, found.skipped)
            turn.missed += found.skipped
        if found.at_ms is None:
            return
        if schedule.overlap is Overlap.SKIP and await self._last_lives(turn):
            await self._fence_all(turn, found.at_ms + 1)
            turn.skip(found.at_ms)
            return
        await self._send([(turn, found.at_ms)])

    def _due(self, turn: Turn) -> Due:
        schedule = turn.schedule
        occurrences, now_ms = occurrences_of(schedule), self._store.now_ms()
        missed_until_ms = turn.stored.missed_until_ms
        return due(occurrences, schedule.misfire, turn.decided_at_ms, now_ms, missed_until_ms, lead_ms(schedule))

    async def _take_over(self, turn: Turn, at_ms: int) -> None:
        """Go on after what an older version did, up to the time in the fences. Its holder may have sent a job, and lost
        its lease to the change before it could write that down. Then the job itself shows it, and in which topic."""
        id = occurrence_id(turn.name, at_ms)
        is_first = turn.progress.version < turn.stored.progress_from  # the older one was deleted: nothing is taken over
        is_known = at_ms <= turn.progress.decided_at_ms
        turn.catch_up(at_ms)
        if not is_first and not is_known:
            for topic in turn.stored.fenced:
                if await self._job(turn.namespace, topic, id) is not None:
                    turn.sent(at_ms, id, topic)
        turn.decide(at_ms)

    async def _send(self, some: Sequence[tuple[Turn, int]]) -> None:
        """Send occurrences of schedules that have one topic."""
        commands = [turn.send(at_ms) for turn, at_ms in some]
        first = some[0][0]
        answers = await self._sender.send_occurrences(first.namespace, first.schedule.topic, commands)
        for (turn, at_ms), command, answer in zip(some, commands, answers, strict=True):
            if isinstance(answer, DuelineError):  # if it may have been sent all the same, the next try finds out
                newer = isinstance(answer, VersionMismatch)
                turn.failed(NEWER if newer else f"{answer.code}: {answer.message}")
            elif isinstance(answer, BaseException):
                raise answer
            elif answer.result == "kept" and answer.due_at_ms > at_ms:  # the fence is later: it was skipped
                turn.skip(at_ms)
            else:
                turn.sent(at_ms, answer.id, turn.schedule.topic)
                if answer.result == "created":
                    self._metrics.count_fired(max(self._store.now_ms() - (command.at_ms or 0), 0))

    async def _last_lives(self, turn: Turn) -> bool:
        """Whether the job of the last occurrence is not finished yet."""
        id, name = turn.progress.last_job, turn.progress.last_topic
        if id is None or name is None:
            return False
        job = await self._job(turn.namespace, name, id)
        return job is not None and job.state in LIVE

    async def _job(self, namespace: str, topic: str, id: str) -> Job | None:
        try:
            return await self._jobs.get(await self._topics.get(namespace, topic), id)
        except NotFound:
            return None

    # -- fences

    async def _fence_all(self, turn: Turn, at_ms: int = 0) -> list[Fence]:
        """Make sure that nobody sends the occurrences up to here. Returns the fences as they are now."""
        topic = await self._topics.fresh(turn.namespace, turn.schedule.topic)
        fence = Fence(fence_name(turn.namespace, turn.name), turn.version, at_ms)
        written = await asyncio.gather(*(self._store.fence(partition, (fence,)) for partition in topic.partitions))
        return [one for some in written for one in some]

    async def _fence_topics(self, namespace: str, name: str, stored: StoredSchedule, version: int) -> list[Fence]:
        """Write the fences of a new version, and return them as they are now. A topic to which it no longer
        sends gets a fence that expires."""
        found: list[Fence] = []
        for topic in stored.fenced:
            gone = stored.deleted or topic != stored.schedule.topic
            fence = Fence(fence_name(namespace, name), version, 0, gone)
            done: set[Partition] = set()
            # The topic may get more partitions meanwhile; they copy the fences that were there before.
            while missing := set(_ever(await self._topics.fresh(namespace, topic))) - done:
                for written in await asyncio.gather(*(self._store.fence(one, (fence,)) for one in missing)):
                    found += written
                done |= missing
        return found


def _last_ms(fences: Sequence[Fence]) -> int:
    return max((fence.at_ms for fence in fences), default=0)


def _ever(topic: Topic) -> Sequence[Partition]:
    """All partitions that the topic has or had. One that is no longer used still has its fences, until they end."""
    return topic.numbered(topic.map.ever)

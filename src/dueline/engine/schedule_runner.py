"""Sends the jobs of schedules: a consumer of the topics that hold them, like any other.

    pull due schedules --> one occurrence each: fences of a new version, skip what was missed, send --> release to the
         ^                                                                                              next occurrence
         +------------------------------------------------------------------------------------------------------+

Nothing here is remembered. A server that dies before its release leaves a lease that ends; the next one does the same
step again. What was sent already is KEPT by the fence of its partition, so any number of servers may run this loop, and
a server that was stopped in the middle can do no harm when it goes on: its send is KEPT or refused, its release loses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from .checks import cut_error
from .errors import BadRequest, DuelineError, NotFound, VersionMismatch
from .fence import Fence, Occurrence
from .job import LIVE, Job, LeasedJob, Partition, State
from .job_calls import JobCalls
from .limits import BATCH_JOBS, INTERNAL_NAMESPACE, LAST_MS
from .metrics import ScheduleMetrics
from .misfire import due
from .rounds import Rounds
from .schedule import Overlap, Schedule
from .sender import Sender
from .store import Code, Ref, Release, Store
from .stored_schedule import (
    LEASE_MS,
    StoredSchedule,
    fence_name,
    namespace_of,
    occurrence_id,
    occurrence_send,
    occurrences_of,
    pack_progress,
    unpack,
    unpack_progress,
)
from .timer import Timer
from .topics import Topic, TopicConfig, Topics
from .waiters import Waiters

WAIT_MS = 3_600_000
FIRST_BACK_OFF_MS, LAST_BACK_OFF_MS = 1_000, 60_000
NEWER = "a partition knows a newer version of this schedule: write the schedule again"


class Turn:
    """One leased schedule, and what this server found out about it."""

    def __init__(self, namespace: str, job: Job) -> None:
        self.namespace = namespace
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

    def failed(self, error: str) -> None:
        failures = self.progress.failures
        self.delay_ms = min(FIRST_BACK_OFF_MS * 2 ** min(failures, 10), LAST_BACK_OFF_MS)
        self.progress = replace(self.progress, failures=failures + 1, error=cut_error(error))


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
        """End after the current schedules. The waiters must be drained, because the loops wait there."""
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
                lambda: self._round(owner, topic), self._timer, f"the schedules of {owner} failed"
            )
            loop.start()

    async def fence(self, namespace: str, name: str, stored: StoredSchedule, version: int) -> int:
        """Write a version to every partition that an older one may send to. Returns the newest version that one of them
        knows."""
        fences = await self._fence_topics(namespace, name, stored, version)
        return max((fence.version for fence in fences), default=version)

    # -- the loop

    async def _round(self, namespace: str, topic: str) -> float:
        home = await self._topics.get(INTERNAL_NAMESPACE, topic)
        leased = await self._waiters.pull([home], BATCH_JOBS, LEASE_MS, WAIT_MS)
        by_partition: dict[Partition, list[LeasedJob]] = {}
        for one in leased:
            by_partition.setdefault(home.partition_of(one.id), []).append(one)
        for partition, some in by_partition.items():
            jobs = await self._store.read(partition, [one.id for one in some])
            turns = (self._turn(namespace, partition, *pair) for pair in zip(some, jobs, strict=True))
            for outcome in await asyncio.gather(*turns, return_exceptions=True):
                # A store that does not answer ends the round; the leases end by themselves.
                if isinstance(outcome, BaseException):
                    raise outcome
        return 0.0

    async def _turn(self, namespace: str, partition: Partition, leased: LeasedJob, job: Job | None) -> None:
        if job is None or job.state is not State.LEASED:
            return  # it was changed after the pull, which ended the lease
        turn = Turn(namespace, job)
        if turn.stored.deleted:
            await self._fence_topics(namespace, turn.name, turn.stored, turn.version)
            await self._store.ack(partition, (Ref(turn.name, leased.lease),))
            return
        next_ms = None
        try:
            await self._decide(turn)
            next_ms = None if turn.schedule.paused else occurrences_of(turn.schedule).after(turn.decided_at_ms)
        except BadRequest as error:  # this server does not know its zone, for example; the others go on
            turn.failed(f"{error.code}: {error.field} {error.message}")
            self._metrics.failed += 1
        release = Release(
            turn.name,
            leased.lease,
            delay_ms=turn.delay_ms,
            at_ms=None if turn.delay_ms is not None else LAST_MS if next_ms is None else next_ms,
            count=False,
            progress=pack_progress(turn.progress),
        )
        [released] = await self._store.release(partition, (release,))
        if released.code is Code.OK:
            self._metrics.missed += turn.missed
            self._metrics.skipped += turn.skipped

    async def _decide(self, turn: Turn) -> None:
        """Decide at most one occurrence, after those that were missed."""
        schedule, stored = turn.schedule, turn.stored
        if turn.progress.version != turn.version:
            fences = await self._fence_topics(turn.namespace, turn.name, stored, turn.version)
            await self._take_over(turn, max((fence.at_ms for fence in fences), default=0))
        if schedule.paused:
            return
        now_ms = self._store.now_ms()
        found = due(occurrences_of(schedule), schedule.misfire, turn.decided_at_ms, now_ms, stored.missed_until_ms)
        if found.skipped:
            await self._skip(turn, found.skipped_to_ms)
            turn.decide(found.skipped_to_ms, found.skipped)
            turn.missed += found.skipped
        if found.at_ms is None:
            return
        if schedule.overlap is Overlap.SKIP and await self._last_lives(turn):
            await self._skip(turn, found.at_ms)
            turn.decide(found.at_ms, 1)
            turn.skipped += 1
            return
        await self._send(turn, found.at_ms)

    async def _take_over(self, turn: Turn, at_ms: int) -> None:
        """Go on after what an older version did. Its holder may have sent a job, and lost its lease to the change
        before it could write that down: then the job itself shows it."""
        id = occurrence_id(turn.name, at_ms)
        is_first = turn.progress.version < turn.stored.progress_from  # the older one was deleted: nothing is taken over
        if at_ms > turn.progress.decided_at_ms and not is_first:
            for topic in turn.stored.fenced:
                if await self._job(turn.namespace, topic, id) is not None:
                    turn.sent(at_ms, id, topic)
        turn.decide(at_ms)

    async def _send(self, turn: Turn, at_ms: int) -> None:
        occurrence = Occurrence(fence_name(turn.namespace, turn.name), turn.version, at_ms)
        command = replace(occurrence_send(turn.namespace, turn.name, turn.schedule, at_ms), occurrence=occurrence)
        try:
            sent = await self._sender.send(turn.namespace, turn.schedule.topic, command)
        except DuelineError as error:  # if it may have been sent all the same, the next try finds out
            turn.failed(NEWER if isinstance(error, VersionMismatch) else f"{error.code}: {error.message}")
            self._metrics.failed += 1
        else:
            turn.sent(at_ms, sent.id, turn.schedule.topic)
            if sent.result == "created":
                self._metrics.count_fired(max(self._store.now_ms() - at_ms, 0))

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

    async def _skip(self, turn: Turn, at_ms: int) -> None:
        """Make sure that nobody sends the occurrences up to here."""
        topic = await self._topics.fresh(turn.namespace, turn.schedule.topic)
        fence = Fence(fence_name(turn.namespace, turn.name), turn.version, at_ms)
        await asyncio.gather(*(self._store.fence(partition, (fence,)) for partition in topic.partitions))

    async def _fence_topics(self, namespace: str, name: str, stored: StoredSchedule, version: int) -> list[Fence]:
        """Write the fences of a new version, and return them as they are now. Topics that it does not send to get a
        fence that ends."""
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


def _ever(topic: Topic) -> Sequence[Partition]:
    """All partitions that the topic has or had: one that is no longer used keeps its fences, too, until they end."""
    return topic.numbered(topic.map.ever)

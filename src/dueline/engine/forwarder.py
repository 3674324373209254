"""Sends dead jobs on where their topic's policy says so (on_dead): one small loop, no tick per topic.

The list of the dead is the list of what is to be done: nothing else is kept. A job is first sent on, under an id that
follows from its death, and then purged; whoever finds it again in between changes nothing (engine.on_dead). So it does
not matter who does it, nor how often.

    a death seen by this process (release, pull, clean-up)        its topic, at once
    start, and whenever some process changed an on_dead (mark)    every topic that has one
    every 30 s                                                    a few of those, in turn: deaths whose process died

The mark is a directory entry whose version counts the changes: looking at it is one command for all topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from .errors import DuelineError, Unavailable
from .job import Job, Partition, State
from .limits import INTERNAL_NAMESPACE
from .on_dead import ON_DEAD_TOPIC, goes_on, sent_on
from .policy import OnDead
from .rounds import Rounds
from .sender import Sender
from .store import Code, Purge, Query, Store
from .timer import Timer
from .topics import Topic, Topics, unpack_config

MARK = (INTERNAL_NAMESPACE, "on-dead")
ROUND_S = 30.0
LOOKS = 10  # topics looked at in a round without having heard of a death
BATCH = 20
PAGE = 100

Key = tuple[str, str]


class Forwarder:
    """start, stop, and `run_once`, which does what is to be done and says how long it may sleep.

    `carry` makes sure that the topic ON_DEAD_TOPIC of a namespace has its target. `sender` must have room for the
    headers that are added (engine.on_dead.roomy).
    """

    def __init__(
        self,
        store: Store,
        topics: Topics,
        sender: Sender,
        carry: Callable[[str], Awaitable[None]],
        timer: Timer,
        round_s: float = ROUND_S,
    ) -> None:
        self._store = store
        self._topics = topics
        self._sender = sender
        self._carry = carry
        self._timer = timer
        self._round_s = round_s
        self._wanted: dict[Key, None] = {}
        self._stuck: dict[Key, float] = {}  # jobs that no send takes: until when deaths there are no news
        self._all: list[Key] = []
        self._turn = 0
        self._mark: int | None = None
        self._round_at_s = 0.0
        self._rounds = Rounds(self.run_once, timer, "sending dead jobs on failed")

    def died(self, namespace: str, topic: str) -> None:
        """A job of this topic was found dead. Costs nothing when the topic is known to have no on_dead."""
        known = self._topics.known(namespace, topic)
        if known is not None and known.listed and known.config.policy.on_dead is None:
            return
        if self._stuck.get((namespace, topic), 0.0) > self._timer.time():
            return
        self._wanted[namespace, topic] = None
        self._rounds.wake()

    async def changed(self, namespace: str, topic: str) -> None:
        """This process changed the on_dead of a topic: others hear of it by the mark."""
        self._stuck.pop((namespace, topic), None)
        self._wanted[namespace, topic] = None
        self._rounds.wake()
        await self._store.directory.set_config(*MARK, b"", None)

    def start(self) -> None:
        self._rounds.start()

    async def stop(self) -> None:
        """End after the batch that is under way. What is left is found by whoever runs next."""
        await self._rounds.stop()

    async def run_once(self) -> float:
        """Look at the topics that are wanted, and at some of all when it is time; the seconds until the next look."""
        if self._timer.time() >= self._round_at_s:
            await self._begin_round()
            self._round_at_s = self._timer.time() + self._round_s
        while self._wanted and not self._rounds.stopping:
            key = next(iter(self._wanted))
            del self._wanted[key]  # first: a death that comes meanwhile is another reason to look
            try:
                await self._forward_topic(key)
            except Exception:
                self._wanted[key] = None
                raise
        return max(0.0, self._round_at_s - self._timer.time())

    async def _begin_round(self) -> None:
        entry = await self._store.directory.topic(*MARK)
        version = 0 if entry is None else entry.version
        if version != self._mark:
            self._all = await self._find_all()
            self._mark = version
            self._wanted.update(dict.fromkeys(self._all))
            return
        for _ in range(min(LOOKS, len(self._all))):
            self._turn = (self._turn + 1) % len(self._all)
            self._wanted[self._all[self._turn]] = None

    async def _find_all(self) -> list[Key]:
        found: list[Key] = []
        after = ""
        while not self._rounds.stopping:
            entries = await self._store.directory.topics(None, after, PAGE)
            for entry in entries:
                after = f"{entry.namespace}\0{entry.topic}"
                if entry.config and unpack_config(entry.config).policy.on_dead is not None:
                    found.append((entry.namespace, entry.topic))
            if len(entries) < PAGE:
                break
        return found

    async def _forward_topic(self, key: Key) -> None:
        """Send on everything that is dead there now."""
        topic = await self._topics.get(*key)
        on_dead = topic.config.policy.on_dead
        if on_dead is None:
            return
        left = False
        for partition in topic.partitions:
            left |= await self._forward_partition(topic, partition, on_dead)
        if left:
            self._stuck[key] = self._timer.time() + ROUND_S
        else:
            self._stuck.pop(key, None)

    async def _forward_partition(self, topic: Topic, partition: Partition, on_dead: OnDead) -> bool:
        """Batch by batch. True: some jobs could not be sent on and stay dead where they are."""
        left = False
        cursor: bytes | None = b""
        while cursor is not None and not self._rounds.stopping:
            page = await self._store.list(partition, Query(state=State.DEAD, cursor=cursor, limit=BATCH, body=True))
            cursor = page.cursor
            movable = [job for job in page.jobs if goes_on(job)]
            if movable and on_dead.url is not None:
                await self._carry(topic.namespace)
            sent = await self._send(topic.namespace, movable, on_dead)
            left |= len(sent) < len(page.jobs)
            if sent:
                purged = await self._store.purge(partition, Purge(tuple(sent)))
                topic.count("purged", sum(1 for _, done in purged if done.code is Code.OK))
        return left

    async def _send(self, namespace: str, jobs: Sequence[Job], on_dead: OnDead) -> list[str]:
        """The ids of those that are certainly there now. A store that does not answer ends the look; what a topic does
        not take (a body larger than it allows) stays."""
        name = ON_DEAD_TOPIC if on_dead.topic is None else on_dead.topic
        sends = (self._sender.send(namespace, name, sent_on(namespace, job, on_dead)) for job in jobs)
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Unavailable) or (
                isinstance(outcome, BaseException) and not isinstance(outcome, DuelineError)
            ):
                raise outcome
        return [job.id for job, outcome in zip(jobs, outcomes, strict=True) if not isinstance(outcome, BaseException)]

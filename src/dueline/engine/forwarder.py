"""Forwards dead jobs of topics whose policy has `on_dead`: one small loop, no timer per topic.

The list of dead jobs is the to-do list; nothing else is stored. A job is first forwarded, under an id derived from its
death, and then purged. Forwarding it again in between has no effect, because that id is taken (engine.on_dead). So any
process may do it, any number of times.

    when                                                      which topics are checked
    this process sees a death (release, pull, clean-up)       its topic, at once
    any process changes a topic with an on_dead               that topic
    at start, and when changes were missed                    every topic that has one (engine.topic_changes)
    every 30 s                                                a few of those, in turn, in case a process died
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from .errors import DuelineError, Unavailable
from .job import Job, Partition, State
from .on_dead import ON_DEAD_TOPIC, can_forward, forwarded
from .policy import OnDead
from .rounds import Rounds
from .sender import Sender
from .store import Code, Purge, Query, Store
from .timer import Timer
from .topics import Topic, TopicConfig, Topics

ROUND_S = 30.0
LOOKS = 10  # topics checked per round although no death was reported
BATCH = 20

Key = tuple[str, str]


class Forwarder:
    """The forwarding loop. `run_once` does what is due and returns how long the loop may sleep.

    `carry` ensures that the topic ON_DEAD_TOPIC of a namespace has its target. The limits of `sender` must leave room
    for the added headers (engine.on_dead.forwarding_limits).
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
        self._stuck: dict[Key, float] = {}  # topics with refused jobs: ignore deaths until this time
        self._all: dict[Key, None] = {}  # topics with an on_dead, the next to be checked first
        self._round_at_s = 0.0
        self._rounds = Rounds(self.run_once, timer, "forwarding dead jobs failed")

    def died(self, namespace: str, topic: str) -> None:
        """A job of this topic was found dead. Costs nothing when the topic is known to have no on_dead."""
        known = self._topics.known(namespace, topic)
        if known is not None and known.listed and known.config.policy.on_dead is None:
            return
        if self._stuck.get((namespace, topic), 0.0) > self._timer.time():
            return
        self._wanted[namespace, topic] = None
        self._rounds.wake()

    def topic_changed(self, namespace: str, topic: str, version: int, config: TopicConfig | None) -> None:
        """A topic got this config (engine.topic_changes)."""
        key = (namespace, topic)
        if config is None or config.policy.on_dead is None:
            self._all.pop(key, None)
            return
        self._stuck.pop(key, None)
        self._all[key] = self._wanted[key] = None
        self._rounds.wake()

    def start(self) -> None:
        self._rounds.start()

    async def stop(self) -> None:
        """End after the current batch. Remaining jobs are found by the next process that runs this loop."""
        await self._rounds.stop()

    async def run_once(self) -> float:
        """Check the topics that are due, and from time to time some of the others. Returns the seconds until the next
        round."""
        if self._timer.time() >= self._round_at_s:
            self._begin_round()
            self._round_at_s = self._timer.time() + self._round_s
        while self._wanted and not self._rounds.stopping:
            key = next(iter(self._wanted))
            del self._wanted[key]  # before the work, so that a death during it queues the topic again
            try:
                await self._forward_topic(key)
            except Exception:
                self._wanted[key] = None
                raise
        return max(0.0, self._round_at_s - self._timer.time())

    def _begin_round(self) -> None:
        for key in list(self._all)[:LOOKS]:
            del self._all[key]
            self._all[key] = self._wanted[key] = None

    async def _forward_topic(self, key: Key) -> None:
        """Forward all jobs of the topic that are dead now."""
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
        """Forward batch by batch. True: some jobs could not be forwarded and stay where they are."""
        left = False
        cursor: bytes | None = b""
        while cursor is not None and not self._rounds.stopping:
            page = await self._store.list(partition, Query(state=State.DEAD, cursor=cursor, limit=BATCH, body=True))
            cursor = page.cursor
            movable = [job for job in page.jobs if can_forward(job)]
            if movable and on_dead.url is not None:
                await self._carry(topic.namespace)
            sent = await self._send(topic.namespace, movable, on_dead)
            left |= len(sent) < len(page.jobs)
            if sent:
                purged = await self._store.purge(partition, Purge(tuple(sent)))
                topic.count("purged", sum(1 for _, done in purged if done.code is Code.OK))
        return left

    async def _send(self, namespace: str, jobs: Sequence[Job], on_dead: OnDead) -> list[str]:
        """Forward jobs and return the ids of those that certainly arrived. A store failure ends the round. A job that
        the topic refuses (for example because its body is too large) stays where it is."""
        name = ON_DEAD_TOPIC if on_dead.topic is None else on_dead.topic
        sends = (self._sender.send(namespace, name, forwarded(namespace, job, on_dead)) for job in jobs)
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Unavailable) or (
                isinstance(outcome, BaseException) and not isinstance(outcome, DuelineError)
            ):
                raise outcome
        return [job.id for job, outcome in zip(jobs, outcomes, strict=True) if not isinstance(outcome, BaseException)]

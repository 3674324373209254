"""Pulls: check the command, find its topics, wait for jobs, and give back what was not delivered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from .checks import Checks
from .commands import Pull
from .completion import Done, PendingCall, leave, poll
from .job import LeasedJob
from .topics import Topic, Topics
from .waiters import Waiters


class Puller:
    """Turns a pull command into leased jobs."""

    def __init__(self, topics: Topics, waiters: Waiters, checks: Checks) -> None:
        self._topics = topics
        self._waiters = waiters
        self._checks = checks
        self._drained = asyncio.Event()

    def post(self, command: Pull, done: Done) -> PendingCall:
        """Lease due jobs; wait up to wait_ms for the first. `done` gets the jobs or an error; an error may also be
        raised. If the call is cancelled, jobs that it already has are released without costing an attempt. A task
        does the whole call if a topic must be read first."""
        self._checks.pull(command)
        topics: list[Topic] = []
        for name in command.topics:
            topic = self._topics.known(command.namespace, name)
            if topic is None or not topic.listed:
                return leave(self._pull(command), done)
            topics.append(topic)
        return self._wait(command, topics, done)

    async def _pull(self, command: Pull) -> list[LeasedJob]:
        topics = [await self._topics.get(command.namespace, name) for name in command.topics]
        return await poll(self._wait, command, topics)

    def _wait(self, command: Pull, topics: Sequence[Topic], done: Done) -> PendingCall:
        if len(topics) > 1:  # one alone never has too many
            self._checks.pull_partitions(sum([len(topic.partitions) for topic in topics]))
        return self._waiters.post(topics, command, done)

    async def idle(self, wait_ms: int) -> None:
        """Wait like a pull that gets no job: until the time is up or the engine drains."""
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._drained.wait()
        except TimeoutError:
            pass

    def drain(self) -> None:
        """End what waits in `idle`."""
        self._drained.set()

    async def give_back(self, namespace: str, jobs: Sequence[LeasedJob]) -> None:
        """Release jobs that nobody will work on, without costing an attempt."""
        by_topic: dict[str, list[LeasedJob]] = {}
        for job in jobs:
            by_topic.setdefault(job.topic, []).append(job)
        for name, some in by_topic.items():
            await self._waiters.give_back(await self._topics.get(namespace, name), some)

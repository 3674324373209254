"""Pulls: check the command, find its topics, and wait for jobs."""

from __future__ import annotations

from collections.abc import Sequence

from .checks import Checks
from .commands import Pull
from .completion import Begun, Done, leave, poll
from .job import LeasedJob
from .topics import Topic, Topics
from .waiters import Waiters


class Puller:
    """Turns a pull command into leased jobs."""

    def __init__(self, topics: Topics, waiters: Waiters, checks: Checks) -> None:
        self._topics = topics
        self._waiters = waiters
        self._checks = checks

    def post(self, command: Pull, done: Done) -> Begun:
        """Due jobs under a lease; waits up to wait_ms. `done` gets them, or the error, which may also be raised. Jobs
        already pulled for a call that is cancelled are released without costing an attempt. If a topic must be
        read first, a task does this and the rest."""
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

    def _wait(self, command: Pull, topics: Sequence[Topic], done: Done) -> Begun:
        self._checks.pull_partitions(sum([len(topic.partitions) for topic in topics]))
        return self._waiters.post(
            topics, command.max, command.lease_ms, command.wait_ms, command.fails_fast, command.by, done
        )

"""A hundred long polls that are parked while something happens to their shard, and the time until the last is woken."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

from dueline.api.answers import LeasedJob
from dueline.testing.history import Outcome
from tests.kit.waiting import until
from tools.faults.connection import Connection
from tools.faults.recording_client import Job, RecordingClient

from .under_load import LoadedServers

WAIT_MS = 60_000
LEASE_MS = 60_000


class ParkedPolls:
    """One poll per topic, parked at the first server. `wake` sends a job to each topic through the second one."""

    def __init__(self, running: LoadedServers, topics: Sequence[str]) -> None:
        self._running = running
        self._topics = topics
        self._consumers = [running.client(f"poll-{topic}", 0, 90.0) for topic in topics]
        self._senders = [running.client(f"send-{topic}", 1, 10.0) for topic in topics]
        self._probe = running.client(f"probe-{topics[0]}", 0, 10.0)
        self._polls: list[asyncio.Task[tuple[list[LeasedJob] | None, int]]] = []

    async def park(self) -> None:
        """Return when all are parked."""
        http = Connection(*self._running.servers[0].address)
        for topic in self._topics:  # a topic that exists says how many polls it has
            assert (await http.request("PUT", f"/v1/topics/{topic}", b"{}")).status == 201
        pairs = zip(self._consumers, self._topics, strict=True)
        self._polls = [asyncio.create_task(self._poll(client, topic)) for client, topic in pairs]
        for topic in self._topics:
            await until(
                lambda path=f"/v1/topics/{topic}": http.request("GET", path),
                lambda answer: answer.status == 200 and answer.json()["waiters"] > 0,
            )
        http.close()

    async def wake(self, probed: str) -> float:
        """Send to all topics until each send is accepted, and to the topic `probed`, of the same shard, through the
        polls' own server. Returns the longest time in ms of a poll: from the moment when its job is accepted and its
        server has accepted the probe, to its answer. Every job is acked.

        This process holds the history of all calls. A collection of garbage would be its own pause, not that of a
        server, so it waits until the answers are there."""
        gc.disable()
        try:
            slowest_ns = await self._woken(probed)
        finally:
            gc.enable()
        for client in (*self._senders, *self._consumers, self._probe):
            await client.close()
        return slowest_ns / 1e6

    async def _woken(self, probed: str) -> int:
        sends = [self._send(client, topic) for client, topic in zip(self._senders, self._topics, strict=True)]
        returned_ns, *accepted_ns = await asyncio.gather(self._send(self._probe, probed), *sends)
        slowest_ns = 0
        for client, topic, poll, sent_ns in zip(self._consumers, self._topics, self._polls, accepted_ns, strict=True):
            jobs, answered_ns = await poll
            slowest_ns = max(slowest_ns, answered_ns - max(sent_ns, returned_ns))
            if not jobs:
                self._running.others.append(f"the poll of {topic} got no job: it was not woken")
            else:
                await client.ack(jobs)
        return slowest_ns

    async def _poll(self, client: RecordingClient, topic: str) -> tuple[list[LeasedJob] | None, int]:
        jobs = await client.pull(topic, lease_ms=LEASE_MS, wait_ms=WAIT_MS)
        return jobs, self._running.recorder.now_ns()

    async def _send(self, client: RecordingClient, topic: str) -> int:
        job = Job(f"{client.name}", b'"wake"')
        async with asyncio.timeout(WAIT_MS / 1000):
            while True:
                [verdict] = await client.send(topic, [job])
                if verdict.outcome is Outcome.OK:
                    return self._running.recorder.now_ns()
                await asyncio.sleep(0.01)

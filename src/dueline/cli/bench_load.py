"""The three measurements against a running server. Each processes a number of jobs and returns its results.

    send        how many jobs per second are accepted
    roundtrip   each connection repeatedly sends, pulls and acks one job
    lateness    jobs with spread due times and waiting long polls: how late jobs arrive, and whether any is early

Whether a job is early does not depend on two clocks. It is early if it arrives less than its delay after its send
began, both measured on this process's monotonic clock.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from msgspec import Raw

from ..api import answers as r
from ..client import Lease, NewJob, calls
from .bench_target import Target, TargetConnection

Progress = Callable[[int], None]
LEAD_MS = 1_000  # between the first send and the first due time of a lateness run
PULL_MAX = 100
POLL_MS = 2_000


class Plan(msgspec.Struct, frozen=True):
    """How many jobs to send, over how many connections, with which bodies."""

    topic: str
    jobs: int
    connections: int
    body_bytes: int
    batch: int = 1
    rate_per_s: int = 1000


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The results. Times are those of one step (a call, a round trip, a lateness), in milliseconds."""

    bench: str
    topic: str
    connections: int
    body_bytes: int
    jobs: int
    refused: int
    seconds: float
    jobs_per_s: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float
    early: int | None = None
    duplicates: int | None = None
    lost: int | None = None


class Tally:
    """The running counts of a measurement."""

    def __init__(self, progress: Progress) -> None:
        self.times_ms: list[float] = []
        self.done = 0
        self.refused = 0
        self._progress = progress

    def add(self, jobs: int, took_ms: float) -> None:
        self.done += jobs
        self.times_ms.append(took_ms)
        self._progress(self.done + self.refused)

    def refuse(self, jobs: int) -> None:
        self.refused += jobs
        self._progress(self.done + self.refused)


def nearest_rank(sorted_ms: Sequence[float], part: float) -> float:
    """The smallest value that is at least as large as `part` of all values; 0 if there are none."""
    if not sorted_ms:
        return 0.0
    rank = max(1, -(-len(sorted_ms) * round(part * 1000) // 1000))
    return sorted_ms[min(rank, len(sorted_ms)) - 1]


def measured(bench: str, plan: Plan, tally: Tally, seconds: float) -> Measured:
    ordered = sorted(tally.times_ms)
    return Measured(
        bench=bench,
        topic=plan.topic,
        connections=plan.connections,
        body_bytes=plan.body_bytes,
        jobs=tally.done,
        refused=tally.refused,
        seconds=round(seconds, 3),
        jobs_per_s=round(tally.done / seconds, 1) if seconds else 0.0,
        p50_ms=round(nearest_rank(ordered, 0.50), 3),
        p90_ms=round(nearest_rank(ordered, 0.90), 3),
        p99_ms=round(nearest_rank(ordered, 0.99), 3),
        max_ms=round(ordered[-1], 3) if ordered else 0.0,
    )


async def run_send(target: Target, plan: Plan, progress: Progress) -> Measured:
    """Send jobs that are due in an hour, so that only sending is measured."""
    tally = Tally(progress)
    left = iter(range(0, plan.jobs, plan.batch))
    body = body_of(plan.body_bytes)

    async def sender(connection: TargetConnection) -> None:
        for first in left:
            many = [_job(body, 3_600_000) for _ in range(min(plan.batch, plan.jobs - first))]
            call = calls.send(plan.topic, many[0]) if plan.batch == 1 else calls.send_many(plan.topic, many)
            begun = time.perf_counter()
            status, _ = await connection.ask(target.request(call))
            if 200 <= status < 300:
                tally.add(len(many), (time.perf_counter() - begun) * 1000)
            else:
                tally.refuse(len(many))

    seconds = await _on_connections(target, plan.connections, sender)
    return measured("send", plan, tally, seconds)


async def run_roundtrip(target: Target, plan: Plan, progress: Progress) -> Measured:
    """Every connection repeatedly sends one job, pulls one (its own or another's) and acks it."""
    tally = Tally(progress)
    left = iter(range(plan.jobs))
    body = body_of(plan.body_bytes)
    pull = target.request(calls.pull([plan.topic], 1, 30_000, POLL_MS))

    async def worker(connection: TargetConnection) -> None:
        for _ in left:
            begun = time.perf_counter()
            status, _raw = await connection.ask(target.request(calls.send(plan.topic, _job(body, 0))))
            if status != 201:
                tally.refuse(1)
                continue
            status, raw = await connection.ask(pull)
            leased = msgspec.json.decode(raw, type=r.LeasedJobs).jobs if status == 200 else ()
            if not leased:
                tally.refuse(1)
                continue
            ack = calls.ack(plan.topic, [Lease(job.id, job.lease) for job in leased])
            status, _raw = await connection.ask(target.request(ack))
            if status == 200:
                tally.add(1, (time.perf_counter() - begun) * 1000)
            else:
                tally.refuse(1)

    seconds = await _on_connections(target, plan.connections, worker)
    return measured("roundtrip", plan, tally, seconds)


class LatenessRun:
    """Sends jobs with due times `1/rate` apart, receives them by long poll, and compares due times with arrivals."""

    def __init__(self, target: Target, plan: Plan, progress: Progress) -> None:
        self._target, self._plan = target, plan
        self._tally = Tally(progress)
        self._not_before_ns: dict[str, int] = {}
        self._seen: set[str] = set()
        self._sent = 0
        self._sending = True
        self._last_due_ms = 0
        self._last_s = 0.0
        self._early = self._duplicates = 0

    async def run(self) -> Measured:
        begun = time.perf_counter()
        polls = [asyncio.create_task(self._connected(self._poll)) for _ in range(self._plan.connections)]
        try:
            await self._connected(self._send_all)
            self._sending = False
            await asyncio.gather(*polls)
        finally:
            for poll in polls:
                poll.cancel()
            await asyncio.gather(*polls, return_exceptions=True)
        found = measured("lateness", self._plan, self._tally, max(self._last_s - begun, 0.0))
        lost = self._sent - len(self._seen)
        return msgspec.structs.replace(found, early=self._early, duplicates=self._duplicates, lost=lost)

    async def _connected(self, work: Callable[[TargetConnection], Awaitable[None]]) -> None:
        connection = await self._target.connect()
        try:
            await work(connection)
        finally:
            connection.close()

    async def _send_all(self, connection: TargetConnection) -> None:
        """Send all jobs, in batches that stay ahead of the due times by at least the lead."""
        plan, body = self._plan, body_of(self._plan.body_bytes)
        origin = time.perf_counter()
        for first in range(0, plan.jobs, 100):
            due_s = [number / plan.rate_per_s for number in range(first, min(first + 100, plan.jobs))]
            ahead_s = due_s[0] - (time.perf_counter() - origin)
            if ahead_s > 2 * LEAD_MS / 1000:
                await asyncio.sleep(ahead_s - 2 * LEAD_MS / 1000)
            passed_ms = (time.perf_counter() - origin) * 1000
            jobs = [_job(body, max(0, round(LEAD_MS + at * 1000 - passed_ms))) for at in due_s]
            begun_ns = time.monotonic_ns()
            for job in jobs:
                self._not_before_ns[job.id or ""] = begun_ns + (job.delay_ms or 0) * 1_000_000
            status, raw = await connection.ask(self._target.request(calls.send_many(plan.topic, jobs)))
            if not 200 <= status < 300:
                self._tally.refuse(len(jobs))
                continue
            results = msgspec.json.decode(raw, type=r.SentMany).results
            taken = [item for item in results if item.error is None]
            self._sent += len(taken)
            self._last_due_ms = max([self._last_due_ms, *(item.due_at_ms or 0 for item in taken)])

    async def _poll(self, connection: TargetConnection) -> None:
        """Pull and ack until every accepted job has arrived, or until none arrives long after the last due time."""
        pull = self._target.request(calls.pull([self._plan.topic], PULL_MAX, 30_000, POLL_MS))
        while self._sending or len(self._seen) < self._sent:
            status, raw = await connection.ask(pull)
            at_ns, at_ms = time.monotonic_ns(), time.time_ns() / 1e6
            leased = msgspec.json.decode(raw, type=r.LeasedJobs).jobs if status == 200 else ()
            if not leased and not self._sending and at_ms > self._last_due_ms + 2 * POLL_MS:
                return
            for job in leased:
                self._arrived(job, at_ns, at_ms)
            if leased:
                ack = calls.ack(self._plan.topic, [Lease(job.id, job.lease) for job in leased])
                await connection.ask(self._target.request(ack))

    def _arrived(self, job: r.LeasedJob, at_ns: int, at_ms: float) -> None:
        if job.id in self._seen:
            self._duplicates += 1
            return
        self._seen.add(job.id)
        self._last_s = time.perf_counter()
        self._early += at_ns < self._not_before_ns.get(job.id, 0)
        self._tally.add(1, at_ms - job.due_at_ms)


async def _on_connections(
    target: Target, connections: int, work: Callable[[TargetConnection], Awaitable[None]]
) -> float:
    """Run `work` on every connection concurrently. Returns the seconds it took, without the time to connect."""
    opened = [await target.connect() for _ in range(connections)]
    try:
        begun = time.perf_counter()
        await asyncio.gather(*(work(connection) for connection in opened))
        return time.perf_counter() - begun
    finally:
        for connection in opened:
            connection.close()


def body_of(size_bytes: int) -> Raw:
    """A JSON string of exactly this many bytes, including its two quotes."""
    return Raw(b'"' + b"x" * max(size_bytes - 2, 0) + b'"')


def _job(body: Raw, delay_ms: int) -> NewJob:
    return NewJob(id=secrets.token_hex(16), body=body, delay_ms=delay_ms)

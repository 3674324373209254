"""The three measurements against a server or a store. Each processes a number of jobs and returns its results.

    send        how many jobs per second are accepted
    roundtrip   each connection repeatedly sends, pulls and acks one job
    lateness    jobs with spread due times and waiting long polls: how late jobs arrive, and whether any is early

`load_generator` has the requests of a connection. This module has the asyncio driver, the pace of due times, and the
results.

Whether a job is early does not depend on two clocks. It is early if it arrives less than its delay after its send
began, both measured on this process's monotonic clock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from ..api import answers as r
from ..load_generator import (
    WAIT_MS,
    Conversation,
    Tally,
    consumes,
    lives,
    nearest_rank,
    new_ids,
    same_jobs,
    sends,
    text_body,
)
from .bench_target import Target, TargetConnection

Progress = Callable[[int], None]
HOUR_MS = 3_600_000
LEAD_MS = 1_000  # between the first send and the first due time of a lateness run
JOBS_PER_CALL = 100


class Plan(msgspec.Struct, frozen=True):
    """How many jobs to send, over how many connections, with which bodies."""

    topic: str
    jobs: int
    connections: int
    body_bytes: int
    batch: int = 1
    rate_per_s: int = 1000


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
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


class TimedTally(Tally):
    """A tally that keeps the time of every step and reports progress."""

    def __init__(self, jobs: int, progress: Progress) -> None:
        super().__init__(jobs)
        self.times_ms: list[float] = []
        self._progress = progress

    def finish(self, jobs: int, begun_s: float) -> None:
        self.add(jobs, (time.perf_counter() - begun_s) * 1000)

    def add(self, jobs: int, took_ms: float) -> None:
        self.done += jobs
        self.times_ms.append(took_ms)
        self._progress(self.done + self.refused)

    def refuse(self, jobs: int, status: int, text: bytes) -> None:
        super().refuse(jobs, status, text)
        self._progress(self.done + self.refused)


def measured(bench: str, plan: Plan, tally: TimedTally, seconds: float) -> Measurement:
    ordered = sorted(tally.times_ms)
    return Measurement(
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


async def run_send(target: Target, plan: Plan, progress: Progress) -> Measurement:
    """Send jobs that are due in an hour, so that only sending is measured."""
    tally, new_jobs = TimedTally(plan.jobs, progress), same_jobs(plan.body_bytes, lambda: HOUR_MS)
    seconds = await _on_connections(target, plan, lambda: sends(new_jobs, tally, plan.batch))
    return measured("send", plan, tally, seconds)


async def run_roundtrip(target: Target, plan: Plan, progress: Progress) -> Measurement:
    """Every connection repeatedly sends one job, pulls one (its own or another's) and acks it."""
    tally, new_jobs = TimedTally(plan.jobs, progress), same_jobs(plan.body_bytes, lambda: 0)
    seconds = await _on_connections(target, plan, lambda: lives(new_jobs, tally, WAIT_MS, patience_s=0.0))
    return measured("roundtrip", plan, tally, seconds)


class LatenessRun:
    """Sends jobs with due times `1/rate` apart, receives them by long poll, and compares due times with arrivals."""

    def __init__(self, target: Target, plan: Plan, progress: Progress) -> None:
        self._target, self._plan = target, plan
        self._tally = TimedTally(plan.jobs, progress)
        self._not_before_ns: dict[str, int] = {}
        self._seen: set[str] = set()
        self._sent = 0
        self._sending = True
        self._last_due_ms = 0
        self._last_ms = self._last_s = 0.0  # when the last job arrived
        self._early = self._duplicates = 0

    async def run(self) -> Measurement:
        begun = time.perf_counter()
        sender, *others = [await self._target.connect() for _ in range(self._plan.connections + 1)]
        polls = [asyncio.create_task(self._poll(connection)) for connection in others]
        try:
            await self._send_all(sender)
            self._sending = False
            await asyncio.gather(*polls)
        finally:
            for poll in polls:
                poll.cancel()
            await asyncio.gather(*polls, return_exceptions=True)
            for connection in (sender, *others):
                connection.close()
        found = measured("lateness", self._plan, self._tally, max(self._last_s - begun, 0.0))
        lost = self._sent - len(self._seen)
        return msgspec.structs.replace(found, early=self._early, duplicates=self._duplicates, lost=lost)

    async def _send_all(self, connection: TargetConnection) -> None:
        """Send all jobs, in batches that stay ahead of the due times by at least the lead."""
        plan, body, next_id = self._plan, Raw(text_body(self._plan.body_bytes)), new_ids()
        origin = time.perf_counter()
        for first in range(0, plan.jobs, JOBS_PER_CALL):
            due_s = [number / plan.rate_per_s for number in range(first, min(first + JOBS_PER_CALL, plan.jobs))]
            ahead_s = due_s[0] - (time.perf_counter() - origin)
            if ahead_s > 2 * LEAD_MS / 1000:
                await asyncio.sleep(ahead_s - 2 * LEAD_MS / 1000)
            passed_ms = (time.perf_counter() - origin) * 1000
            delays_ms = {f"{next_id():032x}": max(0, round(LEAD_MS + at * 1000 - passed_ms)) for at in due_s}
            begun_ns = time.monotonic_ns()
            self._not_before_ns |= {id: begun_ns + delay_ms * 1_000_000 for id, delay_ms in delays_ms.items()}
            jobs = [{"id": id, "delay_ms": delay_ms, "body": body} for id, delay_ms in delays_ms.items()]
            status, text = await connection.ask(plan.topic, "send", msgspec.json.encode(jobs))
            if not 200 <= status < 300:
                self._tally.refuse(len(jobs), status, text)
                continue
            results = msgspec.json.decode(text, type=r.SentMany).results
            taken = [item for item in results if item.error is None]
            self._sent += len(taken)
            self._last_due_ms = max([self._last_due_ms, *(item.due_at_ms or 0 for item in taken)])

    async def _poll(self, connection: TargetConnection) -> None:
        talk = consumes(self._tally, JOBS_PER_CALL, self._expects_more, self._arrived)
        await _converse(connection, self._plan.topic, talk)

    def _expects_more(self) -> bool:
        """True until every accepted job has arrived, or none arrives for long after the last due time."""
        is_late = time.time() * 1000 > max(self._last_due_ms, self._last_ms) + 2 * WAIT_MS
        return self._sending or (len(self._seen) < self._sent and not is_late)

    def _arrived(self, jobs: list[Any], at_ns: int, monotonic_ns: int) -> None:
        self._last_ms, self._last_s = at_ns / 1e6, time.perf_counter()
        for job in jobs:
            id = job["id"]
            if id in self._seen:
                self._duplicates += 1
                continue
            self._seen.add(id)
            self._early += monotonic_ns < self._not_before_ns.get(id, 0)
            self._tally.add(1, self._last_ms - job["due_at_ms"])


async def _converse(connection: TargetConnection, topic: str, talk: Conversation) -> None:
    """Ask what the conversation yields, until it ends."""
    request = next(talk, None)
    while request is not None:
        answer = await connection.ask(topic, *request)
        try:
            request = talk.send(answer)
        except StopIteration:
            return


async def _on_connections(target: Target, plan: Plan, talk: Callable[[], Conversation]) -> float:
    """Hold a conversation on every connection at once. Returns the seconds it took, without the time to connect."""
    opened = [await target.connect() for _ in range(plan.connections)]
    try:
        begun = time.perf_counter()
        await asyncio.gather(*(_converse(connection, plan.topic, talk()) for connection in opened))
        return time.perf_counter() - begun
    finally:
        for connection in opened:
            connection.close()

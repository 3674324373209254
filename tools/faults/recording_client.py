"""A client of the native API that records everything it does: one history event per job and call.

It is the SDK's client without retries, so nothing is hidden: an unknown outcome stays `info` in the history, and the
caller decides whether to try again. A 500 answer is a bug of the server, and so is an answer that belongs to another
call; both are kept in `bugs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dueline.api.answers import LeasedJob, Outcomes, SentMany
from dueline.client import AsyncClient, Lease, NewJob, Patience, calls
from dueline.client.calls import Call
from dueline.client.errors import DuelineApiError, NotFound
from dueline.testing import history as h
from dueline.testing.history import Outcome

ONE_TRY = Patience(deadline_s=0.0)


class Job(msgspec.Struct, frozen=True):
    """One job to send. The body is JSON text. With `at_ms` it is due at that time on the store's clock, which the
    history cannot compare with its own, so such a job is never reported as early."""

    id: str
    body: bytes
    delay_ms: int = 0
    max_attempts: int | None = 10
    at_ms: int | None = None


class Verdict(msgspec.Struct, frozen=True):
    """The outcome of one item."""

    outcome: Outcome
    code: str = ""
    result: str = ""


class RecordingClient:
    """One client with one operation at a time. `close` may be called at any moment."""

    def __init__(self, name: str, host: str, port: int, recorder: h.Recorder, timeout_s: float = 4.0) -> None:
        self.name = name
        self.recorder = recorder
        self.bugs: list[str] = []
        self._client = AsyncClient(f"http://{host}:{port}", timeout_s=timeout_s, patience=ONE_TRY)

    async def close(self) -> None:
        await self._client.close()

    async def send(self, topic: str, jobs: Sequence[Job]) -> list[Verdict]:
        """Send one job as an object, several as an array."""
        items = [_new_job(job) for job in jobs]
        call = calls.send(topic, items[0]) if len(items) == 1 else calls.send_many(topic, items)
        begin_ns = self.recorder.now_ns()
        verdicts = await self._verdicts(call, [job.id for job in jobs])
        for job, verdict in zip(jobs, verdicts, strict=True):
            self.recorder.add(
                h.Send(
                    **self._common(topic, job.id, begin_ns, verdict),
                    delay_ms=job.delay_ms,
                    digest=h.digest_of(job.body),
                    result=verdict.result,
                    max_attempts=job.max_attempts,
                )
            )
        return verdicts

    async def pull(self, topic: str, *, max: int = 1, lease_ms: int = 1000, wait_ms: int = 0) -> list[LeasedJob] | None:
        """Pull; None if it did not succeed."""
        call = calls.pull([topic], max, lease_ms, wait_ms)
        begin_ns = self.recorder.now_ns()
        try:
            jobs = (await self._client.call(call)).value.jobs
        except DuelineApiError as error:
            self.recorder.add(h.Pull(**self._common(topic, "", begin_ns, self._failed(call, error))))
            return None
        if not jobs:
            self.recorder.add(h.Pull(**self._common(topic, "", begin_ns, Verdict(Outcome.OK))))
        for job in jobs:
            self.recorder.add(
                h.Deliver(
                    **self._common(topic, job.id, begin_ns, Verdict(Outcome.OK)),
                    lease=job.lease,
                    lease_ms=lease_ms,
                    delivery=job.delivery,
                    attempt=job.attempt,
                    digest=h.digest_of(job.data or b""),
                )
            )
        return list(jobs)

    async def ack(self, jobs: Sequence[LeasedJob]) -> list[Verdict]:
        begin_ns = self.recorder.now_ns()
        call = calls.ack(jobs[0].topic, [Lease(job.id, job.lease) for job in jobs])
        verdicts = await self._verdicts(call, [job.id for job in jobs])
        for job, verdict in zip(jobs, verdicts, strict=True):
            self.recorder.add(h.Ack(**self._common(job.topic, job.id, begin_ns, verdict), lease=job.lease))
        return verdicts

    async def release(self, job: LeasedJob, delay_ms: int = 0, *, count: bool = True) -> Verdict:
        begin_ns = self.recorder.now_ns()
        call = calls.release(job.topic, Lease(job.id, job.lease), delay_ms, count=count)
        [verdict] = await self._verdicts(call, [job.id])
        common = self._common(job.topic, job.id, begin_ns, verdict)
        self.recorder.add(h.Release(**common, lease=job.lease, delay_ms=delay_ms, count=count, result=verdict.result))
        return verdict

    async def extend(self, job: LeasedJob, lease_ms: int) -> Verdict:
        begin_ns = self.recorder.now_ns()
        [verdict] = await self._verdicts(calls.extend(job.topic, Lease(job.id, job.lease), lease_ms), [job.id])
        common = self._common(job.topic, job.id, begin_ns, verdict)
        self.recorder.add(h.Extend(**common, lease=job.lease, lease_ms=lease_ms))
        return verdict

    async def cancel(self, topic: str, id: str) -> Verdict:
        begin_ns = self.recorder.now_ns()
        [verdict] = await self._verdicts(calls.cancel(topic, id), [id])
        self.recorder.add(h.Cancel(**self._common(topic, id, begin_ns, verdict)))
        return verdict

    async def live(self, topic: str) -> int | None:
        """How many jobs of the topic have not ended; None if the server does not answer."""
        try:
            counts = (await self._client.topic(topic)).counts
        except NotFound:
            return 0
        except DuelineApiError:
            return None
        return counts.scheduled + counts.ready + counts.leased

    async def dump(self, topic: str) -> h.Final:
        """Everything the server has about the topic's jobs. Raises DuelineApiError if it cannot be read completely."""
        jobs = self._client.list_jobs(topic)
        return {(topic, job.id): h.FinalJob(job.state, job.attempts, job.reason) async for job in jobs}

    async def _verdicts(self, call: Call[Any], ids: Sequence[str]) -> list[Verdict]:
        """One verdict per item, each checked to be about the requested item."""
        try:
            value = (await self._client.call(call)).value
        except DuelineApiError as error:
            return [self._failed(call, error)] * len(ids)
        results = value.results if isinstance(value, Outcomes | SentMany) else (value,)
        if [result.id for result in results] != list(ids):
            self.bugs.append(f"asked about {ids}, the answer is about {[result.id for result in results]}")
        return [_verdict(result) for result in results]

    def _failed(self, call: Call[Any], error: DuelineApiError) -> Verdict:
        if error.status == 500:
            self.bugs.append(f"{call.operation} {call.params}: {error}")
        return Verdict(h.outcome_of(error), error.code)

    def _common(self, topic: str, id: str, begin_ns: int, verdict: Verdict) -> h.Common:
        return self.recorder.common(self.name, topic, id, begin_ns, verdict.outcome, verdict.code)


def _verdict(result: Any) -> Verdict:
    """Only `unknown_outcome` leaves open whether an item was done; every other refusal means that it was not."""
    error = getattr(result, "error", None)
    if error is None:
        return Verdict(Outcome.OK, result=result.result or "")
    return Verdict(Outcome.INFO if error.code == "unknown_outcome" else Outcome.FAIL, error.code)


def _new_job(job: Job) -> NewJob:
    delay_ms = job.delay_ms if job.at_ms is None else None
    body = msgspec.Raw(job.body)
    return NewJob(id=job.id, body=body, delay_ms=delay_ms, at_ms=job.at_ms, max_attempts=job.max_attempts)

"""A client of the native API that records everything it does: one history event per job and call.

It never retries and hides nothing: an unknown outcome stays `info` in the history, and the caller decides whether to
try again. A 500 answer is a bug of the server, and so is an answer that belongs to another call; both are kept in
`bugs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

import msgspec

from dueline.testing import history as h
from dueline.testing.history import Outcome
from tools.faults.connection import Answer, Connection, NoAnswer, NotSent


class Job(msgspec.Struct, frozen=True):
    """One job to send. The body is JSON text. With `at_ms` it is due at that time on the store's clock, which the
    history cannot compare with its own, so such a job is never reported as early."""

    id: str
    body: bytes
    delay_ms: int = 0
    max_attempts: int | None = 10
    at_ms: int | None = None


class Lease(msgspec.Struct, frozen=True):
    """A leased job. Its lease is certainly valid until `held_until_ns` (on our clock)."""

    topic: str
    id: str
    lease: str
    delivery: int
    attempt: int
    held_until_ns: int


class Verdict(msgspec.Struct, frozen=True):
    """The outcome of one item."""

    outcome: Outcome
    code: str = ""
    result: str = ""


class _Refusal(msgspec.Struct):
    code: str


class _Result(msgspec.Struct):
    id: str = ""
    result: str = ""
    error: _Refusal | None = None


class _Many(msgspec.Struct):
    results: list[_Result] | None = None
    error: _Refusal | None = None


class _Held(msgspec.Struct):
    id: str
    body: msgspec.Raw
    lease: str
    delivery: int
    attempt: int


class _Pulled(msgspec.Struct):
    jobs: list[_Held]


class _Listed(msgspec.Struct):
    id: str
    state: str
    attempts: int
    reason: str | None = None


class _Page(msgspec.Struct):
    jobs: list[_Listed]
    next_cursor: str | None = None


class _Counts(msgspec.Struct):
    counts: dict[str, int]


class RecordingClient:
    """One client with one connection and one operation at a time. `close` may be called at any moment."""

    def __init__(self, name: str, host: str, port: int, recorder: h.Recorder, timeout_s: float = 4.0) -> None:
        self.name = name
        self.recorder = recorder
        self.timeout_s = timeout_s
        self.bugs: list[str] = []
        self._connection = Connection(host, port)

    def close(self) -> None:
        self._connection.close()

    async def send(self, topic: str, jobs: Sequence[Job]) -> list[Verdict]:
        """Send one job as an object, several as an array."""
        items = [_item(job) for job in jobs]
        body = items[0] if len(items) == 1 else b"[" + b",".join(items) + b"]"
        begin_ns = self.recorder.now_ns()
        verdicts = self._verdicts(await self._call("POST", f"/v1/topics/{topic}/jobs", body), [j.id for j in jobs])
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

    async def pull(self, topic: str, *, max: int = 1, lease_ms: int = 1000, wait_ms: int = 0) -> list[Lease] | None:
        """Pull; None if it did not succeed."""
        wish = msgspec.json.encode({"max": max, "lease_ms": lease_ms, "wait_ms": wait_ms})
        begin_ns = self.recorder.now_ns()
        answer = await self._call("POST", f"/v1/topics/{topic}/pull", wish, wait_ms / 1000)
        if isinstance(answer, Verdict) or answer.status != 200:
            self.recorder.add(h.Pull(**self._common(topic, "", begin_ns, self._verdicts(answer, [""])[0])))
            return None
        jobs = msgspec.json.decode(answer.body, type=_Pulled).jobs
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
                    digest=h.digest_of(bytes(job.body)),
                )
            )
        until_ns = begin_ns + lease_ms * 1_000_000
        return [Lease(topic, j.id, j.lease, j.delivery, j.attempt, until_ns) for j in jobs]

    async def ack(self, leases: Sequence[Lease]) -> list[Verdict]:
        begin_ns = self.recorder.now_ns()
        verdicts = await self._change("ack", leases, [{"id": g.id, "lease": g.lease} for g in leases])
        for lease, verdict in zip(leases, verdicts, strict=True):
            self.recorder.add(h.Ack(**self._common(lease.topic, lease.id, begin_ns, verdict), lease=lease.lease))
        return verdicts

    async def release(self, lease: Lease, delay_ms: int = 0, *, count: bool = True) -> Verdict:
        begin_ns = self.recorder.now_ns()
        item = {"id": lease.id, "lease": lease.lease, "delay_ms": delay_ms, "count": count}
        [verdict] = await self._change("release", [lease], [item])
        self.recorder.add(
            h.Release(
                **self._common(lease.topic, lease.id, begin_ns, verdict),
                lease=lease.lease,
                delay_ms=delay_ms,
                count=count,
                result=verdict.result,
            )
        )
        return verdict

    async def extend(self, lease: Lease, lease_ms: int) -> Verdict:
        begin_ns = self.recorder.now_ns()
        [verdict] = await self._change(
            "extend", [lease], [{"id": lease.id, "lease": lease.lease, "lease_ms": lease_ms}]
        )
        common = self._common(lease.topic, lease.id, begin_ns, verdict)
        self.recorder.add(h.Extend(**common, lease=lease.lease, lease_ms=lease_ms))
        return verdict

    async def cancel(self, topic: str, id: str) -> Verdict:
        begin_ns = self.recorder.now_ns()
        [verdict] = self._verdicts(await self._call("DELETE", f"/v1/topics/{topic}/jobs/{id}", b""), [id])
        self.recorder.add(h.Cancel(**self._common(topic, id, begin_ns, verdict)))
        return verdict

    async def live(self, topic: str) -> int | None:
        """How many jobs of the topic have not ended; None if the server does not answer."""
        answer = await self._call("GET", f"/v1/topics/{topic}", b"")
        if isinstance(answer, Verdict) or answer.status not in (200, 404):
            return None
        if answer.status == 404:
            return 0
        counts = msgspec.json.decode(answer.body, type=_Counts).counts
        return counts["scheduled"] + counts["ready"] + counts["leased"]

    async def dump(self, topic: str) -> h.Final:
        """Everything the server has about the topic's jobs. Raises NoAnswer if it cannot be read completely."""
        final: h.Final = {}
        cursor: str | None = None
        while True:
            query = urlencode({"limit": 500} | ({"cursor": cursor} if cursor else {}))
            answer = await self._call("GET", f"/v1/topics/{topic}/jobs?{query}", b"")
            if isinstance(answer, Verdict) or answer.status != 200:
                raise NoAnswer(f"no dump of {topic}: {answer}")
            page = msgspec.json.decode(answer.body, type=_Page)
            final |= {(topic, j.id): h.Kept(j.state, j.attempts, j.reason) for j in page.jobs}
            cursor = page.next_cursor
            if cursor is None:
                return final

    async def _change(self, verb: str, leases: Sequence[Lease], items: Sequence[Mapping[str, object]]) -> list[Verdict]:
        body = msgspec.json.encode({"jobs": items})
        answer = await self._call("POST", f"/v1/topics/{leases[0].topic}/{verb}", body)
        return self._verdicts(answer, [lease.id for lease in leases])

    async def _call(self, method: str, path: str, body: bytes, wait_s: float = 0.0) -> Answer | Verdict:
        try:
            answer = await self._connection.request(method, path, body, self.timeout_s + wait_s)
        except NotSent as error:
            return Verdict(Outcome.FAIL, f"not sent: {error}")
        except NoAnswer as error:
            return Verdict(Outcome.INFO, f"no answer: {error}")
        if answer.status == 500:
            self.bugs.append(f"{method} {path}: {answer.body[:300].decode(errors='replace')}")
        return answer

    def _verdicts(self, answer: Answer | Verdict, ids: Sequence[str]) -> list[Verdict]:
        """One verdict per item, each checked to be about the requested item."""
        if isinstance(answer, Verdict):
            return [answer] * len(ids)
        if answer.status in (500, 502, 504):
            return [Verdict(Outcome.INFO, str(answer.status))] * len(ids)
        many = msgspec.json.decode(answer.body, type=_Many)
        if many.results is None and many.error is not None:
            return [_refused(many.error.code)] * len(ids)
        results = many.results
        if results is None:
            results = [msgspec.json.decode(answer.body, type=_Result)]
        if [result.id for result in results] != list(ids):
            self.bugs.append(f"asked about {ids}, the answer is about {[result.id for result in results]}")
        return [_verdict(result) for result in results]

    def _common(self, topic: str, id: str, begin_ns: int, verdict: Verdict) -> h.Common:
        return {
            "topic": topic,
            "id": id,
            "invoke_ns": begin_ns,
            "complete_ns": self.recorder.now_ns(),
            "outcome": verdict.outcome,
            "client": self.name,
            "code": verdict.code,
        }


def _verdict(result: _Result) -> Verdict:
    if result.error is not None:
        return _refused(result.error.code)
    return Verdict(Outcome.OK, result=result.result)


def _refused(code: str) -> Verdict:
    """Only `unknown_outcome` leaves open whether the call was done; every other refusal means that it was not."""
    return Verdict(Outcome.INFO if code == "unknown_outcome" else Outcome.FAIL, code)


def _item(job: Job) -> bytes:
    due = {"delay_ms": job.delay_ms} if job.at_ms is None else {"at_ms": job.at_ms}
    rest = {"id": job.id, "max_attempts": job.max_attempts, **due}
    return msgspec.json.encode({**rest, "body": msgspec.Raw(job.body)})

"""A queue over a client: that of a server (worker.http), or of an API in this process (worker.direct)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack, cast

from ..api.answers import Job, LeasedJob, LeasedJobs, Outcome, Schedule, Sent, SentItem
from ..api.live_requests import PutWorker
from ..api.requests import Lease, NewJob
from ..api.schedule_requests import PutSchedule
from ..client import calls, schedule_calls
from ..client.async_client import AsyncClient
from ..client.bulk import on_leases
from ..client.calls import Call, Leased
from ..client.sending import Policy, SendOptions, job_fields, job_of
from ..client.times import Duration, Moment


class ClientQueue:
    """The queue that `client` reaches. `url` and `namespace`: where another process finds it."""

    def __init__(self, client: AsyncClient, url: str | None = None, namespace: str | None = None) -> None:
        self._client = client
        self._url = url
        self._namespace = namespace

    @property
    def url(self) -> str | None:
        return self._url

    @property
    def namespace(self) -> str | None:
        return self._namespace

    async def start(self) -> None:
        """Connections are opened when they are needed."""

    async def close(self) -> None:
        await self._client.close()

    async def send(self, topic: str, body: Any = None, **options: Unpack[SendOptions]) -> Sent:
        return (await self._client.call(calls.send(topic, job_of(body, options)))).value

    async def send_many(self, topic: str, jobs: Iterable[NewJob]) -> list[SentItem]:
        return await self._client.send_many(topic, jobs)

    async def get(self, topic: str, id: str) -> Job:
        return await self._client.get(topic, id)

    async def cancel(self, topic: str, id: str, missing_ok: bool = False) -> Outcome:
        return await self._client.cancel(topic, id, missing_ok)

    async def reschedule(self, topic: str, id: str, delay: Duration | None = None, at: Moment | None = None) -> Job:
        return await self._client.reschedule(topic, id, delay, at)

    async def pull(
        self,
        topics: Sequence[str],
        max: int = 1,
        lease_ms: int | None = None,
        wait_ms: int = 0,
        by: str | None = None,
    ) -> Sequence[LeasedJob]:
        return (await self._pulled(calls.pull(topics, max, lease_ms, wait_ms, by))).jobs

    async def ack_and_pull(
        self,
        topic: str,
        jobs: Sequence[LeasedJob | Leased],
        max: int = 1,
        lease_ms: int | None = None,
        by: str | None = None,
    ) -> LeasedJobs:
        leases = [Lease(job.id, job.lease) for job in jobs]
        return await self._pulled(calls.pull([topic], max, lease_ms, 0, by, leases))

    async def _pulled(self, call: Call[LeasedJobs]) -> LeasedJobs:
        return (await self._client.call(call)).value

    async def ack(self, jobs: Sequence[LeasedJob | Leased]) -> list[Outcome]:
        return await self._client.ack_many(jobs)

    async def release(
        self,
        jobs: Sequence[LeasedJob | Leased],
        delay_ms: int | None = None,
        error: str | None = None,
        count: bool = True,
        discard: bool = False,
    ) -> list[Outcome]:
        return await self._client.do(
            on_leases(jobs, lambda topic, part: calls.release_many(topic, part, delay_ms, error, count, discard))
        )

    async def extend(self, jobs: Sequence[LeasedJob | Leased], lease_ms: int) -> list[Outcome]:
        return await self._client.do(on_leases(jobs, lambda topic, part: calls.extend_many(topic, part, lease_ms)))

    async def report_worker(self, name: str, report: PutWorker) -> None:
        await self._client.call(calls.put_worker(name, report))

    async def report_stopped(self, name: str) -> None:
        await self._client.call(calls.stop_worker(name))

    async def propose_policy(self, topic: str, policy: Policy) -> Mapping[str, Any]:
        shown = await self._client.set_topic(topic, **cast("dict[str, Any]", policy), set_by="worker")
        return {name: shown.policy.get(name) for name in job_fields(policy)}

    async def schedule(self, name: str) -> Schedule:
        return await self._client.schedule(name)

    async def schedules(self) -> list[Schedule]:
        return [one async for one in self._client.schedules()]

    async def put_schedule(self, name: str, request: PutSchedule) -> Schedule:
        return (await self._client.call(schedule_calls.put_schedule(name, request))).value

    async def delete_schedule(self, name: str) -> None:
        await self._client.delete_schedule(name)

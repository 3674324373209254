"""A queue over HTTP. `AsyncClient` makes the calls, `parked` the waiting pulls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack, cast

from ..client import calls
from ..client.address import address_of
from ..client.async_client import AsyncClient
from ..client.calls import Leased, NewJob
from ..client.client import DEFAULT_TIMEOUT_S
from ..client.patience import Patience
from ..client.results import Job, LeasedJob, Outcome, Sent, SentItem
from ..client.sending import Policy, SendOptions, job_fields
from ..client.times import Duration, Moment
from .parked import parked_pulls


class HttpQueue:
    """One namespace of the server at `url`."""

    def __init__(
        self,
        url: str,
        namespace: str | None = None,
        token: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        patience: Patience = Patience(),
    ) -> None:
        address = address_of(url, namespace, token)
        self._url = address.url
        self._namespace = address.namespace
        self._client = AsyncClient(url, namespace, token, timeout_s, patience)
        self._pulls = parked_pulls(self._client, address, timeout_s, patience)

    @property
    def url(self) -> str | None:
        return self._url

    @property
    def namespace(self) -> str | None:
        return self._namespace

    async def start(self) -> None:
        """Connections are opened when they are needed."""

    async def close(self) -> None:
        self._pulls.close()
        await self._client.close()

    async def send(self, topic: str, body: Any = None, **options: Unpack[SendOptions]) -> Sent:
        return await self._client.send(topic, body, **options)

    async def send_many(self, topic: str, jobs: Iterable[NewJob]) -> list[SentItem]:
        return await self._client.send_many(topic, jobs)

    async def get(self, topic: str, id: str) -> Job:
        return await self._client.get(topic, id)

    async def cancel(self, topic: str, id: str, missing_ok: bool = False) -> Outcome:
        return await self._client.cancel(topic, id, missing_ok)

    async def reschedule(self, topic: str, id: str, delay: Duration | None = None, at: Moment | None = None) -> Job:
        return await self._client.reschedule(topic, id, delay, at)

    async def pull(
        self, topics: Sequence[str], max: int = 1, lease_ms: int | None = None, wait_ms: int = 0
    ) -> Sequence[LeasedJob]:
        return await self._pulls.pull(calls.pull(topics, max, lease_ms, wait_ms))

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
        delay = None if delay_ms is None else f"{delay_ms}ms"
        return await self._client.release_many(jobs, delay, error, count, discard)

    async def extend(self, jobs: Sequence[LeasedJob | Leased], lease_ms: int) -> list[Outcome]:
        return await self._client.extend_many(jobs, f"{lease_ms}ms")

    async def propose_policy(self, topic: str, policy: Policy) -> Mapping[str, Any]:
        shown = await self._client.set_topic(topic, **cast("dict[str, Any]", policy), set_by="worker")
        return {name: shown.policy.get(name) for name in job_fields(policy)}

"""The leases of a worker's running jobs: renewed by `dueline.lease_renewal`, and extended by handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ..api.answers import LeasedJob, Outcome
from ..client.calls import refusal_error
from ..client.errors import DuelineApiError
from ..lease_renewal import LeaseRenewal, LeaseRenewals
from .queue import Queue

LOST = ("lease_lost", "not_found", "already_done")

Do = Callable[[Callable[[Queue], Coroutine[Any, Any, None]]], None]


class JobLease(LeaseRenewal[LeasedJob]):
    """The lease of one running job, as its handler sees it (`context.HandlerLease`)."""

    __slots__ = ("_leases", "lease_until_ms")

    def __init__(self, job: LeasedJob, leases: Leases) -> None:
        super().__init__(job, leases.lease_ms)
        self.lease_until_ms = job.lease_until_ms
        self._leases = leases

    @property
    def stopping(self) -> bool:
        return self._leases.stopping()

    async def extend(self, lease_ms: int | None) -> None:
        if asyncio.get_running_loop() is not self._leases.loop:  # a coroutine that runs in a thread, with its own loop
            await asyncio.to_thread(self.extend_blocking, lease_ms)
            return
        [outcome] = await self._leases.extend([self], lease_ms or self.lease_ms)
        if outcome.error is not None:
            raise refusal_error(outcome.error, outcome.id)

    def extend_blocking(self, lease_ms: int | None) -> None:
        do = self._leases.do
        if do is not None:
            do(lambda _: self.extend(lease_ms))
        else:
            asyncio.run_coroutine_threadsafe(self.extend(lease_ms), self._leases.loop).result()


class Leases(LeaseRenewals[JobLease]):
    """The leases of all running jobs. `stopping`: whether the worker is stopping. `do`: how a thread waits for an
    operation on the queue, if a host provides that (worker.host)."""

    def __init__(
        self, queue: Queue, lease_ms: int, stopping: Callable[[], bool] = lambda: False, do: Do | None = None
    ) -> None:
        self.lease_ms = lease_ms
        self.stopping = stopping
        self.do = do
        self.loop = asyncio.get_running_loop()
        self._queue = queue
        super().__init__(lambda leases: self.extend(leases, lease_ms), DuelineApiError, self.loop)

    async def extend(self, leases: Sequence[JobLease], lease_ms: int) -> list[Outcome]:
        outcomes = await self._queue.extend([lease.job for lease in leases], lease_ms)
        for lease, outcome in zip(leases, outcomes, strict=True):
            if outcome.error is None:
                lease.lease_until_ms = outcome.lease_until_ms or lease.lease_until_ms
            elif outcome.error.code in LOST:
                lease.lose()
        return outcomes

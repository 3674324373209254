"""Renews the leases of a worker's running jobs.

While a handler runs, its lease is renewed at a third of its length; leases that are due for renewal share one call.
A lease can still be lost: the job was cancelled or replaced, or the queue was unavailable for so long that another
consumer got the job. The code that runs the job is then notified, and its outcome is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ..api.answers import LeasedJob, Outcome
from ..client.calls import refusal_error
from ..client.errors import DuelineApiError
from .queue import Queue

LOST = ("lease_lost", "not_found", "already_done")
LEAST_REST_S = 0.02

log = logging.getLogger("dueline.worker")

Do = Callable[[Callable[[Queue], Coroutine[Any, Any, None]]], None]


class LeaseRenewal:
    """The lease renewal of one running job. `lost` is set when the lease is lost."""

    def __init__(self, job: LeasedJob, renew_at_s: float, leases: Leases, loop: asyncio.AbstractEventLoop) -> None:
        self.job = job
        self.renew_at_s = renew_at_s
        self.lease_until_ms = job.lease_until_ms
        self.lost: asyncio.Future[None] = loop.create_future()
        self._leases = leases
        self._loop = loop

    @property
    def stopping(self) -> bool:
        return self._leases.stopping()

    async def extend(self, lease_ms: int | None) -> None:
        if asyncio.get_running_loop() is not self._loop:  # a coroutine that runs in a thread, with a loop of its own
            await asyncio.to_thread(self.extend_blocking, lease_ms)
            return
        [outcome] = await self._leases.extend([self], lease_ms or self._leases.lease_ms)
        if outcome.error is not None:
            raise refusal_error(outcome.error, outcome.id)

    def extend_blocking(self, lease_ms: int | None) -> None:
        do = self._leases.do
        if do is not None:
            do(lambda _: self.extend(lease_ms))
        else:
            asyncio.run_coroutine_threadsafe(self.extend(lease_ms), self._loop).result()

    def lose(self) -> None:
        if not self.lost.done():
            self.lost.set_result(None)


class Leases:
    """The leases of all running jobs, by token. Idle while there are none. `stopping`: whether the worker is stopping.
    `do`: how a thread waits for an operation on the queue, if a host provides that (worker.host)."""

    def __init__(
        self, queue: Queue, lease_ms: int, stopping: Callable[[], bool] = lambda: False, do: Do | None = None
    ) -> None:
        self.lease_ms = lease_ms
        self.stopping = stopping
        self.do = do
        self._queue = queue
        self._held: dict[str, LeaseRenewal] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None

    def take(self, job: LeasedJob) -> LeaseRenewal:
        loop = asyncio.get_running_loop()
        hold = LeaseRenewal(job, loop.time() + self.lease_ms / 3000, self, loop)
        self._held[job.lease] = hold
        self._arm()
        return hold

    def drop(self, hold: LeaseRenewal) -> None:
        """Stop renewing this lease."""
        self._held.pop(hold.job.lease, None)

    async def stop(self) -> None:
        """Stop renewing leases."""
        if self._alarm is not None:
            self._alarm.cancel()
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        self._held.clear()

    async def extend(self, holds: Sequence[LeaseRenewal], lease_ms: int) -> list[Outcome]:
        outcomes = await self._queue.extend([hold.job for hold in holds], lease_ms)
        for hold, outcome in zip(holds, outcomes, strict=True):
            if outcome.error is None:
                hold.lease_until_ms = outcome.lease_until_ms or hold.lease_until_ms
            elif outcome.error.code in LOST:
                hold.lose()
        return outcomes

    def _arm(self) -> None:
        """Set a timer for the next renewal. All leases have the same length, so the oldest comes first."""
        if self._alarm is not None or (self._renewing is not None and not self._renewing.done()):
            return
        first = min((hold.renew_at_s for hold in self._held.values() if not hold.lost.done()), default=None)
        if first is not None:
            loop = asyncio.get_running_loop()
            self._alarm = loop.call_later(max(first - loop.time(), LEAST_REST_S), self._rang)

    def _rang(self) -> None:
        self._alarm = None
        if self._held:
            self._renewing = asyncio.get_running_loop().create_task(self._renew())
            self._renewing.add_done_callback(lambda _: self._arm())

    async def _renew(self) -> None:
        """Renew leases that are due, or nearly due, so that leases taken together stay in one call."""
        now_s = asyncio.get_running_loop().time()
        soon_s = now_s + self.lease_ms / 12_000
        due = [hold for hold in self._held.values() if not hold.lost.done() and hold.renew_at_s <= soon_s]
        if not due:
            return
        for hold in due:
            hold.renew_at_s = now_s + self.lease_ms / 3000
        try:
            await self.extend(due, self.lease_ms)
        except DuelineApiError:
            pass  # the queue is unavailable; a token stays valid until another consumer gets the job
        except Exception:
            log.exception("leases could not be extended")

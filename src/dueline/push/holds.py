"""Lease renewal for the jobs of one topic that are being pushed.

While a call runs, its lease is renewed after every third of its length; one store call renews all that are due. A lease
may still be lost, if the job was cancelled or replaced or the store was down for too long. It is then marked as lost,
and the result of the call is discarded, because another consumer may have the job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ..engine.errors import DuelineError
from ..engine.job import LeasedJob
from ..engine.store import Code, Extend, Outcome
from ..engine.timer import Handle, Timer

BATCH = 500
LEAST_REST_S = 0.05

Extender = Callable[[Sequence[Extend]], Awaitable[list[Outcome]]]


class LeaseRenewal:
    """The lease of one job that this process is pushing."""

    __slots__ = ("job", "lease_ms", "lost", "renew_at_s")

    def __init__(self, job: LeasedJob, lease_ms: int, renew_at_s: float) -> None:
        self.job = job
        self.lease_ms = lease_ms
        self.renew_at_s = renew_at_s
        self.lost = False


class LeaseRenewals:
    """The leased jobs, by their tokens. No timer runs while there are none."""

    def __init__(self, extend: Extender, timer: Timer) -> None:
        self._extend = extend
        self._timer = timer
        self._held: dict[str, LeaseRenewal] = {}
        self._alarm: Handle | None = None
        self._extending: asyncio.Task[None] | None = None

    def take(self, job: LeasedJob, lease_ms: int) -> LeaseRenewal:
        hold = LeaseRenewal(job, lease_ms, self._timer.time() + lease_ms / 3000)
        self._held[job.lease] = hold
        self._arm()
        return hold

    def drop(self, hold: LeaseRenewal) -> None:
        """Stop renewing this lease."""
        self._held.pop(hold.job.lease, None)
        if not self._held and self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _arm(self) -> None:
        if self._alarm is None and self._extending is None and self._held:
            first_s = min(hold.renew_at_s for hold in self._held.values() if not hold.lost) if self._living() else None
            if first_s is not None:
                rest_s = max(first_s - self._timer.time(), LEAST_REST_S)
                self._alarm = self._timer.call_later(rest_s, self._rang)

    def _living(self) -> bool:
        return any(not hold.lost for hold in self._held.values())

    def _rang(self) -> None:
        self._alarm = None
        self._extending = asyncio.get_running_loop().create_task(self._renew())

    async def _renew(self) -> None:
        """Renew the leases that are due now or soon, so that jobs pulled together are renewed in one call."""
        now_s = self._timer.time()
        due = [
            hold
            for hold in self._held.values()
            if not hold.lost and hold.renew_at_s <= now_s + hold.lease_ms / 12_000 + 1e-6
        ]
        try:
            for start in range(0, len(due), BATCH):
                await self._renew_some([hold for hold in due[start : start + BATCH] if hold.job.lease in self._held])
        finally:
            self._extending = None
            self._arm()

    async def _renew_some(self, holds: Sequence[LeaseRenewal]) -> None:
        if not holds:
            return
        now_s = self._timer.time()
        for hold in holds:
            hold.renew_at_s = now_s + hold.lease_ms / 3000
        try:
            done = await self._extend([Extend(hold.job.id, hold.job.lease, hold.lease_ms) for hold in holds])
        except DuelineError:
            return  # the store is down; the lease allows two more tries
        for hold, one in zip(holds, done, strict=True):
            hold.lost = one.code is not Code.OK

"""Lease renewal: keeps the leases of the jobs in this process's hands, and reports each outcome to the store.

A lease is renewed after every third of its length. Leases that are due, or nearly due, share one call. While the store
is unavailable a lease is tried again after another third; its token stays valid until another consumer gets the job.

A lease can still be lost: the job was cancelled or replaced, or the store was unavailable for so long that another
consumer got the job. It is then no longer renewed, and the outcome of its job must be dropped.

Used by the push dispatcher on the engine and by the worker on any queue. Standard library only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from .engine.timer import Handle, Timer

BATCH = 500
LEAST_REST_S = 0.05
FIRST_BACK_OFF_S, LAST_BACK_OFF_S = 0.1, 5.0


class _HasLease(Protocol):
    @property
    def lease(self) -> str: ...


J = TypeVar("J", bound=_HasLease)
T = TypeVar("T")


class LeaseRenewal(Generic[J]):
    """The lease of one job in this process's hands."""

    __slots__ = ("_lost", "is_lost", "job", "lease_ms", "renew_at_s")

    def __init__(self, job: J, lease_ms: int) -> None:
        self.job = job
        self.lease_ms = lease_ms
        self.renew_at_s = 0.0
        self.is_lost = False
        self._lost: asyncio.Future[None] | None = None

    @property
    def lost(self) -> asyncio.Future[None]:
        """Done as soon as the lease is lost. To be used in the event loop that renews it."""
        if self._lost is None:
            self._lost = asyncio.get_running_loop().create_future()
            if self.is_lost:
                self._lost.set_result(None)
        return self._lost

    def lose(self) -> None:
        self.is_lost = True
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(None)


R = TypeVar("R", bound=LeaseRenewal[Any])


class LeaseRenewals(Generic[R]):
    """Renews leases from `add` to `remove`. `stop` may be called twice, or before the first `add`.

    `extend` renews these leases in the store, and calls `lose` on those that are lost. It may raise `unavailable`; any
    other exception is a bug and goes to the event loop's exception handler. After either, renewals continue.
    """

    def __init__(
        self, extend: Callable[[Sequence[R]], Awaitable[object]], unavailable: type[Exception], timer: Timer
    ) -> None:
        self._extend = extend
        self._unavailable = unavailable
        self._timer = timer
        self._leases: dict[str, R] = {}
        self._alarm: Handle | None = None
        self._alarm_at_s = 0.0
        self._renewing: asyncio.Task[None] | None = None

    def add(self, renewal: R) -> R:
        renewal.renew_at_s = self._timer.time() + renewal.lease_ms / 3000
        self._leases[renewal.job.lease] = renewal
        self._wake_at(renewal.renew_at_s)
        return renewal

    def remove(self, renewal: R) -> None:
        """Stop renewing this lease. The alarm stays, because the next job usually needs it."""
        self._leases.pop(renewal.job.lease, None)

    async def stop(self) -> None:
        """Stop renewing; a renewal in progress is cancelled."""
        self._leases.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait({self._renewing})

    def _wake_at(self, at_s: float) -> None:
        if self._renewing is not None:
            return  # its end sets the next alarm
        if self._alarm is not None:
            if self._alarm_at_s <= at_s:
                return
            self._alarm.cancel()
        self._alarm_at_s = at_s
        self._alarm = self._timer.call_later(max(at_s - self._timer.time(), LEAST_REST_S), self._wake)

    def _wake_for_next(self) -> None:
        first_s = min((lease.renew_at_s for lease in self._leases.values() if not lease.is_lost), default=None)
        if first_s is not None:
            self._wake_at(first_s)

    def _wake(self) -> None:
        """Renew the leases that are due now or soon, so that jobs pulled together stay in one call."""
        self._alarm = None
        now_s = self._timer.time() + 1e-6
        due = [
            lease
            for lease in self._leases.values()
            if not lease.is_lost and lease.renew_at_s <= now_s + lease.lease_ms / 12_000
        ]
        if due:
            self._renewing = asyncio.get_running_loop().create_task(self._renew(due))
        else:
            self._wake_for_next()

    async def _renew(self, due: Sequence[R]) -> None:
        try:
            for start in range(0, len(due), BATCH):
                batch = [lease for lease in due[start : start + BATCH] if lease.job.lease in self._leases]
                if batch:
                    await self._renew_batch(batch)
        finally:
            self._renewing = None
            self._wake_for_next()

    async def _renew_batch(self, batch: Sequence[R]) -> None:
        now_s = self._timer.time()
        for lease in batch:
            lease.renew_at_s = now_s + lease.lease_ms / 3000
        try:
            await self._extend(batch)
        except self._unavailable:
            pass  # tried again after another third
        except Exception as error:
            context = {"message": "leases could not be renewed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)


async def until_accepted(
    renewal: LeaseRenewal[Any],
    report: Callable[[], Awaitable[T]],
    unavailable: tuple[type[Exception], ...],
    hurried: asyncio.Event,
    timer: Timer,
    failed: Callable[[Exception], None] = lambda _: None,
) -> T | None:
    """Repeat a report about a leased job until the store has accepted it; its token makes that safe.

    Gives up and returns None when the lease is lost, or at the next failure after `hurried` was set: the lease will
    expire. `failed` is called after each try that raised `unavailable`. Any other exception is the caller's."""
    rest_s = FIRST_BACK_OFF_S
    while not renewal.is_lost:
        try:
            return await report()
        except unavailable as error:
            failed(error)
        if hurried.is_set():
            return None
        await _rest(renewal, hurried, timer, rest_s)
        rest_s = min(rest_s * 2, LAST_BACK_OFF_S)
    return None


async def _rest(renewal: LeaseRenewal[Any], hurried: asyncio.Event, timer: Timer, rest_s: float) -> None:
    """Wait for `rest_s`, but no longer than until the lease is lost or the stop hurries."""
    over = asyncio.Event()
    handle = timer.call_later(rest_s, over.set)
    waits = [asyncio.ensure_future(event.wait()) for event in (over, hurried)]
    try:
        await asyncio.wait({*waits, renewal.lost}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        handle.cancel()
        for wait in waits:
            wait.cancel()

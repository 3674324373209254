"""Reports verdicts on jobs to the queue, and retries until the queue has received them.

Acks are gathered (`worker.acks`). While the queue is unavailable, the lease is still renewed, and its
token makes repeated reports safe; once the lease is lost, the report is dropped. If the queue rejects a report, such as
a delay of a hundred years, the job is released as failed with the reason. Otherwise it would stay leased until the
lease expires, and then fail in the same way again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from ..api.answers import LeasedJob, Outcome
from ..client.errors import DuelineApiError, InvalidRequest, RateLimited, StoreFull, Unavailable
from ..lease_renewal import until_accepted
from .acks import Acks
from .leases import JobLease
from .outcomes import Ending, Verdict, bounded
from .queue import Queue

UNAVAILABLE = (Unavailable, RateLimited, StoreFull)
_WORDS = {Ending.SNOOZED: "snooze", Ending.FAILED: "retry", Ending.DISCARDED: "discard"}

log = logging.getLogger("dueline.worker")


class Settler:
    """Reports verdicts. `hurried` is set when a stopping worker no longer waits."""

    def __init__(self, queue: Queue, acks: Acks, hurried: asyncio.Event) -> None:
        self._queue = queue
        self._acks = acks
        self._hurried = hurried
        self._timer = asyncio.get_running_loop()

    async def settle(self, lease: JobLease, verdict: Verdict) -> None:
        """Ack or release the job, as the verdict says. If that is refused, release it by its retry policy."""
        job, ending = lease.job, verdict.ending
        if ending is Ending.DONE:
            await self._report(lease, "ack", lambda: self._acks.add(job))
            return
        count, discard = ending is not Ending.SNOOZED, ending is Ending.DISCARDED
        error = None if verdict.error is None else bounded(verdict.error)
        refused = await self._report(
            lease, "release", lambda: self._release(job, verdict.delay_ms, error, count=count, discard=discard)
        )
        if refused is not None:
            field = "" if refused.field is None else refused.field.rpartition(".")[2] + " "
            why = f"the handler's {_WORDS[ending]} was refused: {field}{refused.message}"
            why = why if error is None else bounded(f"{error}\n{why}")
            await self._report(lease, "release", lambda: self._release(job, None, why, count=True, discard=discard))

    async def give_back(self, lease: JobLease) -> None:
        """Release the job at once, to its old place in the order, without counting an attempt."""
        await self._report(lease, "release", lambda: self._release(lease.job, 0, None, count=False, discard=False))

    async def give_all_back(self, leases: Sequence[JobLease]) -> None:
        """`give_back` of several jobs: in one call, or one by one if that fails."""
        try:
            outcomes = await self._queue.release([lease.job for lease in leases], 0, None, False, False)
        except DuelineApiError:
            await asyncio.gather(*map(self.give_back, leases))
            return
        for lease, outcome in zip(leases, outcomes, strict=True):
            self._check("release", lease.job, outcome)

    async def _report(
        self, lease: JobLease, what: str, report: Callable[[], Awaitable[Outcome]]
    ) -> InvalidRequest | None:
        """Repeat a report until the queue has received it or it is pointless. Returns the error if it was rejected."""
        job = lease.job

        def failed(error: Exception) -> None:
            log.warning("cannot %s %s %s yet: %s", what, job.topic, job.id, error)

        try:
            outcome = await until_accepted(lease, report, UNAVAILABLE, self._hurried, self._timer, failed)
        except DuelineApiError as refused:
            log.error("cannot %s %s %s: %s", what, job.topic, job.id, refused)
            return refused if isinstance(refused, InvalidRequest) else None
        if outcome is not None:
            self._check(what, job, outcome)
        return None

    def _check(self, what: str, job: LeasedJob, outcome: Outcome) -> None:
        if outcome.error is not None:
            log.warning("%s of %s %s: %s (it may be delivered again)", what, job.topic, job.id, outcome.error.message)
        elif outcome.result == "dead":
            log.warning("%s %s is dead (%s)", job.topic, job.id, outcome.reason)

    async def _release(
        self, job: LeasedJob, delay_ms: int | None, error: str | None, *, count: bool, discard: bool
    ) -> Outcome:
        try:
            outcomes = await self._queue.release([job], delay_ms, error, count, discard)
        except ValueError as wrong:  # the client itself rejects values that it cannot encode
            raise InvalidRequest("invalid_field", str(wrong)) from wrong
        [outcome] = outcomes
        return outcome

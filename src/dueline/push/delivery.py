"""One attempt to push one job: make its calls in order, then tell the store the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..engine.engine import Engine
from ..engine.job import LeasedJob, Reason
from ..engine.push_log import Attempt, masked
from ..engine.push_target import PushTopic
from ..engine.store import Ref, Release
from .call import Call, CallFailed
from .courier import NO_INSTANCE, Courier, Outcome, Undeliverable, Verdict
from .hosts import Hosts, host_of, may_return, wait_ms

if TYPE_CHECKING:
    from .dispatcher import Caller

AttemptReport = Callable[[Attempt, str | None], None]
BreakerReport = Callable[[int, str], None]  # failures in a row, and of which host; 0: the breaker has closed


class Delivery:
    """The calls of one job. `report` is called after each one, with the kind of failure if there was no response."""

    def __init__(
        self,
        push_topic: PushTopic,
        job: LeasedJob,
        courier: Courier,
        caller: Caller,
        hosts: Hosts,
        report: AttemptReport,
        breaker: BreakerReport,
    ) -> None:
        self._pushing = push_topic
        self._job = job
        self._courier = courier
        self._caller = caller
        self._hosts = hosts
        self._report = report
        self._breaker = breaker

    async def run(self, now_ms: Callable[[], int]) -> Verdict:
        """Make the calls until one ends as anything but RETRY, or none is left. Returns the last verdict."""
        verdict = NO_INSTANCE
        try:
            calls = await self._courier.calls(self._pushing, self._job)
        except Undeliverable as error:
            return Verdict(Outcome.DEAD, str(error))
        for call in calls:
            verdict = await (self._at_host(call, now_ms) if self._courier.many_targets else self._call(call, now_ms))
            if verdict.outcome is not Outcome.RETRY:
                break
        return verdict

    async def _at_host(self, call: Call, now_ms: Callable[[], int]) -> Verdict:
        """Make the call if its host has a free slot."""
        host, target = host_of(call.url), self._pushing.target
        returns = self._job.delivery - self._job.attempt
        if may_return(returns):
            busy_ms = await self._hosts.enter(host, max(1, target.concurrency // 2), target.breaker, now_ms())
            if busy_ms is not None:
                return Verdict(Outcome.NO_INSTANCE, delay_ms=max(busy_ms, wait_ms(returns)))
        else:
            self._hosts.enter_anyway(host)  # no free returns are left, and an attempt without a call must not count
        status: int | None = None
        try:
            verdict, status = await self._called(call, now_ms)
            return verdict
        finally:
            failures = self._hosts.leave(host, is_well(status), target.breaker, now_ms())
            if failures is not None:
                self._breaker(failures, host)

    async def _call(self, call: Call, now_ms: Callable[[], int]) -> Verdict:
        verdict, _ = await self._called(call, now_ms)
        return verdict

    async def _called(self, call: Call, now_ms: Callable[[], int]) -> tuple[Verdict, int | None]:
        """The verdict and the response's status; status 0 when there was no response, None when no call was made."""
        at_ms = now_ms()
        failure: str | None = None
        status, excerpt = 0, ""
        try:
            answer = await self._caller.call(replace(call, namespace=self._pushing.namespace))
        except CallFailed as failed:
            returns = self._job.delivery - self._job.attempt
            if failed.kind == "limited" and may_return(returns):
                return Verdict(Outcome.NO_INSTANCE, delay_ms=max(failed.wait_ms, wait_ms(returns))), None
            failure, duration_ms = failed.kind, failed.duration_ms
            verdict = Verdict(Outcome.RETRY, failed.message)
        else:
            verdict = self._courier.judge(self._pushing, answer, now_ms())
            status, duration_ms, excerpt = answer.status, answer.duration_ms, answer.excerpt
        done = verdict.outcome is Outcome.DONE
        if verdict.error is not None:
            verdict = replace(verdict, error=masked(verdict.error))
        attempt = Attempt(
            self._job.id,
            self._job.attempt,
            at_ms,
            status,
            duration_ms,
            # For the breaker: a target that refuses a job for good is healthy.
            ok=verdict.outcome in (Outcome.DONE, Outcome.DEAD),
            error=None if done else verdict.error,
            excerpt=None if done or not excerpt else masked(excerpt),
        )
        self._report(attempt, failure)
        return verdict, status


def is_well(status: int | None) -> bool | None:
    """What a call shows about its host: True if it responds, False if it does not or is overloaded, None if unknown."""
    if status is None:
        return None
    return 0 < status < 500 and status not in (408, 429)


async def settle(engine: Engine, topic: tuple[str, str], job: LeasedJob, verdict: Verdict) -> None:
    """Apply the verdict in the store. If the lease was lost, nothing changes."""
    if verdict.outcome is Outcome.DONE:
        await engine.ack(*topic, (Ref(job.id, job.lease),))
        return
    if verdict.outcome is Outcome.NO_INSTANCE:
        release = Release(job.id, job.lease, delay_ms=verdict.delay_ms or 0, count=False)
    else:
        dead = Reason.REJECTED if verdict.outcome is Outcome.DEAD else None
        release = Release(job.id, job.lease, verdict.delay_ms, verdict.error, dead=dead)
    await engine.release(*topic, (release,))

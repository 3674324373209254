"""Couriers decide which calls deliver a job: the interface between the dispatcher and the kinds of targets.

    LeasedJob --courier.calls--> calls, in the order to try them --OutgoingCalls--> answer --courier.judge--> verdict

A target names its courier (`PushTarget.courier`): "http" calls the target's URL or service, "carried" calls the URL
that the job carries. A dialect whose protocol defines its own call has its own courier. A courier decides which URL to
call with which content, and what a response means. The dispatcher decides when to pull and how many jobs to push at
once; it also owns the leases, the breaker and the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from ..engine.job import LeasedJob
from ..engine.push_target import PushTopic
from .call import Call, Response


class Outcome(StrEnum):
    """How one attempt to push a job ended."""

    DONE = "done"  # ack
    RETRY = "retry"  # again at the next step of the retry ladder, or after delay_ms
    DEAD = "dead"  # the target refuses the job for good: dead (rejected)
    NO_INSTANCE = "no instance"  # no call could be made: released without costing an attempt


class Verdict(msgspec.Struct, frozen=True):
    """What happens to the job next. `error` is kept with the job and in the log. A RETRY whose `delay_ms` is None
    follows the job's own retry policy. NO_INSTANCE with None means that no instance is available at all; the topic then
    waits until one is."""

    outcome: Outcome
    error: str | None = None
    delay_ms: int | None = None


DONE = Verdict(Outcome.DONE)
NO_INSTANCE = Verdict(Outcome.NO_INSTANCE)


class Undeliverable(Exception):
    """The job has no usable target and never will: it becomes dead (rejected). The message is kept with the job."""


class Courier(Protocol):
    """One kind of target. `many_targets` is set when the jobs of one topic go to different hosts; limits and the
    breaker then apply per host (push.hosts), not per topic."""

    @property
    def many_targets(self) -> bool: ...

    async def has_instance(self, push_topic: PushTopic) -> bool:
        """Whether an instance is available. Polled every second, but only after `calls` returned nothing for a job.
        Until it returns True, nothing is pulled while a job waits."""
        ...

    async def calls(self, push_topic: PushTopic, job: LeasedJob) -> Sequence[Call]:
        """The calls for this job, to be tried in order until one ends as DONE or DEAD. Empty when no instance is
        available: the job is released without costing an attempt (at most 100 times per job). Raises Undeliverable."""
        ...

    def why_unavailable(self, push_topic: PushTopic) -> str:
        """Why no instance is available, for the log, with the settings that could change it."""
        ...

    def judge(self, push_topic: PushTopic, answer: Response, now_ms: int) -> Verdict:
        """What a response means. A call without a response (CallFailed) is always a RETRY."""
        ...

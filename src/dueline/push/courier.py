"""Who makes the calls of a job: the seam between the dispatcher and the kinds of targets.

    LeasedJob --courier.calls--> calls, in the order to try them --Outgoing--> answer --courier.judge--> verdict

A target names its courier (`PushTarget.courier`): "http" calls the target's URL or service, "carried" what the job
itself carries; a dialect whose protocol has a call of its own brings its own. A courier decides whom to call and with
what, and what an answer means. When to pull, how many at once, leases, the breaker and the log are the dispatcher's.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from ..engine.job import LeasedJob
from ..engine.push_target import Pushing
from .call import Answer, Call


class Outcome(StrEnum):
    """How a try to push a job ended."""

    DONE = "done"  # ack
    RETRY = "retry"  # the next rung, or after delay_ms
    DEAD = "dead"  # the target wants it never again: dead (rejected)
    NOBODY = "nobody"  # no call could be made: given back, costs no attempt


class Verdict(msgspec.Struct, frozen=True):
    """What becomes of the job. `error` is kept with the job and in the log. `delay_ms` of a RETRY: None, the job's own
    retry policy decides; of NOBODY: None, nobody at all is there, and the topic waits until somebody is."""

    outcome: Outcome
    error: str | None = None
    delay_ms: int | None = None


DONE = Verdict(Outcome.DONE)
NOBODY = Verdict(Outcome.NOBODY)


class Undeliverable(Exception):
    """This job says nothing that could be called, and never will: it is dead (rejected). The text is kept with it."""


class Courier(Protocol):
    """One kind of target. `many_targets`: the jobs of one topic go to different hosts, so that limits and the breaker
    are kept per host (push.hosts) and not for the topic."""

    @property
    def many_targets(self) -> bool: ...

    async def somebody(self, pushing: Pushing) -> bool:
        """Is there somebody to call? Asked every second after a job found nobody (`calls` was empty), and only
        then; until it says True nothing is pulled while a job waits."""
        ...

    async def calls(self, pushing: Pushing, job: LeasedJob) -> Sequence[Call]:
        """The calls of this job, to be tried in order until one is done or wants the job dead. Empty: nobody there;
        the job is given back and costs no attempt (at most 100 times a job). Raises Undeliverable."""
        ...

    def nobody(self, pushing: Pushing) -> str:
        """Why there is nobody to call, for the log, with the settings that could change it."""
        ...

    def judge(self, pushing: Pushing, answer: Answer, now_ms: int) -> Verdict:
        """What an answer means. A call that got none (CallFailed) is a RETRY."""
        ...

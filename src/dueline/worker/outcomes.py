"""How a handler's run ends, and how a handler chooses its ending. No I/O.

    returns                      acked: done, never delivered again
    raises                       released by the job's retry policy; the exception and its place are its last error
    Retry(delay="5m")            released, due again after the delay (none: by the retry policy); costs an attempt
    Snooze("1h")                 released, due again after the delay; costs no attempt (at most 100 times a job)
    Discard("no such order")     dead (rejected): kept aside, listed, can be revived
    (the body has another type)  dead (rejected) at the first attempt, by UnfitBody; the handler is not called

Retry, Snooze and Discard may be raised or returned. If a topic has several handlers, the worst ending counts for the
job: discarded before failed before snoozed before done.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any

import msgspec

from ..client.times import Duration, duration_ms
from .frames import own_frame, trace_text

MAX_ERROR_BYTES = 1024
_CUT = "...\n"


class Retry(Exception):
    """Retry this job after `delay`, or as its retry policy says. This counts as an attempt."""

    def __init__(self, reason: str | None = None, *, delay: Duration | None = None) -> None:
        super().__init__(reason or "the handler asked for a retry")
        self.reason = reason
        self.delay_ms = None if delay is None else duration_ms(delay)


class Snooze(Exception):
    """Deliver this job again after `delay`. This does not count as an attempt, up to 100 times per job."""

    def __init__(self, delay: Duration, reason: str | None = None) -> None:
        super().__init__(reason or "the handler snoozed the job")
        self.reason = reason
        self.delay_ms = duration_ms(delay)


class Discard(Exception):
    """Give this job up. It is dead at once (reason `rejected`), but can still be inspected and revived."""

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason or "the handler discarded the job")
        self.reason = reason


class UnfitBody(Discard):
    """The body does not have the type that the handler asks for. It is not retried, because the next attempt would get
    the same body. In a merge group, a retry would also pass the unfit item on to the next group."""


class TimedOut(Exception):
    """A handler did not end within its timeout."""


class ChildDied(Exception):
    """The process that ran a handler ended before the handler did."""


class Ending(IntEnum):
    """How one run ended. Higher values outweigh lower ones."""

    DONE = 0
    SNOOZED = 1
    FAILED = 2
    DISCARDED = 3


class Verdict(msgspec.Struct, frozen=True):
    """What happens to a job. `delay_ms` None: the retry policy decides. `exception`: the exception, if it was raised in
    this process."""

    ending: Ending = Ending.DONE
    delay_ms: int | None = None
    error: str | None = None
    exception: BaseException | None = None


DONE = Verdict()


def verdict_of(result: Any) -> Verdict:
    """The verdict for a returned value or a raised exception."""
    if not isinstance(result, BaseException):
        return DONE
    if isinstance(result, Snooze):
        return Verdict(Ending.SNOOZED, result.delay_ms, result.reason, result)
    if isinstance(result, Retry):
        return Verdict(Ending.FAILED, result.delay_ms, _reason(result), result)
    if isinstance(result, Discard):
        return Verdict(Ending.DISCARDED, None, _reason(result), result)
    return Verdict(Ending.FAILED, None, error_text(result), result)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict that counts when several handlers ran: the worst, and the first of several equal ones."""
    return max(verdicts, key=lambda one: one.ending, default=DONE)


def error_text(error: BaseException) -> str:
    """At most 1 KiB of UTF-8: the last frame of the user's own code, then the end of the traceback with the exception
    and its message."""
    if isinstance(error, TimedOut | ChildDied):
        return bounded(str(error))
    frame = own_frame(error)
    return bounded(trace_text(error), "" if frame is None else f"{frame}\n")


def bounded(text: str, head: str = "") -> str:
    """`head` and the end of a text, at most 1 KiB of UTF-8 together."""
    first, packed = head.encode(errors="replace")[: MAX_ERROR_BYTES // 2], text.encode(errors="replace")
    room = MAX_ERROR_BYTES - len(first)
    if len(packed) > room:
        packed = _CUT.encode() + packed[len(packed) - room + len(_CUT) :]
    return (first + packed).decode(errors="ignore")


def summary(error: str | None) -> str:
    """An error text in one line: the place in the user's own code, and the exception."""
    lines = (error or "").splitlines() or [""]
    return lines[0] if len(lines) == 1 else f"{lines[0]}: {lines[-1]}"


def _reason(raised: Retry | Discard) -> str:
    """The reason as text; with `raise Retry(...) from error`, the traceback of that error."""
    cause = raised.__cause__
    if cause is None:
        return bounded(str(raised))
    return bounded(f"{error_text(cause)}\n{raised}" if raised.reason else error_text(cause))

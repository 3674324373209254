"""When a call is tried again, as data and one small state. No clock, no I/O but a line in the log.

Tried again is a call that was certainly not done (503 store_down, loading, draining; 429; no connection), and a call
that may have been done but may be done twice (`Call.repeatable`). An id is made before the first try, so every try of a
send means the same job; ack, release and extend carry a lease token, so a try that comes late changes nothing.

A refusal that follows a try of unknown outcome is unknown too: a release that was done and whose answer was lost says
`lease_lost` when it is repeated. It is raised as UnknownOutcome, never as "certainly not done".
"""

from __future__ import annotations

import logging
from random import random
from typing import Any, TypeVar

import msgspec

from . import results as r
from .address import log
from .calls import Answer, Call
from .errors import DuelineApiError, IdExists, InvalidRequest, RateLimited, Unavailable, UnknownOutcome, Unreachable

T = TypeVar("T")

DEADLINE_S = 30.0


class Patience(msgspec.Struct, frozen=True):
    """How patient a client is.

    `deadline_s`: a call ends within this time, over all tries; a pull may also wait its own time. 0: one try only.
    Waits double from `first_s` to `most_s`, each drawn from [wait * (1 - jitter), wait]; after a Retry-After they come
    on top of it. `unreachable` False: a refused connection is final."""

    deadline_s: float = DEADLINE_S
    first_s: float = 0.1
    most_s: float = 5.0
    jitter: float = 0.5
    unreachable: bool = True


class Tries:
    """The tries of one call. The shell says how much time has passed since it began."""

    def __init__(self, patience: Patience, call: Call[Any], timeout_s: float) -> None:
        self._patience = patience
        self._call = call
        self._held_s = call.wait_ms / 1000
        self._timeout_s = timeout_s + self._held_s
        self._failed = 0
        self._begun_s = 0.0  # when the try began that is under way
        self._unknown: DuelineApiError | None = None

    def timeout_s(self, elapsed_s: float) -> float:
        """How long the next try may take."""
        if self._failed == 0:
            return self._timeout_s
        return min(self._timeout_s, max(self._deadline_s - elapsed_s, 0.001))

    @property
    def _deadline_s(self) -> float:
        return self._patience.deadline_s + self._held_s

    def wait_s(self, error: DuelineApiError, elapsed_s: float, draw: float | None = None) -> float:
        """A try failed: the time to wait before the next one. Raises what the caller shall see when there is none.

        There is none that would begin after the deadline, nor one that would be refused after it, if the server needs
        as long again: it would only end as a timeout that hides the reason."""
        self._failed += 1
        is_unknown = isinstance(error, UnknownOutcome)
        wait_s = self._backoff_s(random() if draw is None else draw) + (error.retry_after_s or 0.0)
        needed_s = wait_s if is_unknown else wait_s + elapsed_s - self._begun_s
        if not self._may_follow(error) or elapsed_s + needed_s >= self._deadline_s:
            raise self._final(self._counted(error, elapsed_s))
        if is_unknown:
            self._unknown = self._unknown or error
        if self._failed == 1:
            level = logging.INFO if isinstance(error, RateLimited) else logging.WARNING
            log.log(level, "%s; trying again for up to %.3g s", error, self._deadline_s - elapsed_s)
        self._begun_s = elapsed_s + wait_s
        return wait_s

    def answered(self, answer: Answer[T]) -> Answer[T]:
        """The answer of the last try, in which a refused item is unknown when an earlier try was."""
        value: Any = answer.value
        if self._unknown is None or not isinstance(value, r.Outcomes):
            return answer
        items = tuple(_unsure(item) for item in value.results)
        return msgspec.structs.replace(answer, value=r.Outcomes(items))

    def _may_follow(self, error: DuelineApiError) -> bool:
        if isinstance(error, UnknownOutcome):
            return self._call.repeatable
        if isinstance(error, Unreachable):
            return self._patience.unreachable
        return isinstance(error, Unavailable | RateLimited)

    def _counted(self, error: DuelineApiError, elapsed_s: float) -> DuelineApiError:
        """The error of the last try, with how long it was tried in all."""
        if self._failed > 1:
            error.message = f"{error.message.rstrip('.')}, after {self._failed} tries in {elapsed_s:.1f} s"
            error.args = (error.message,)
        return error

    def _final(self, error: DuelineApiError) -> DuelineApiError:
        """The error as it is, or as unknown when an earlier try may have done what this one did not."""
        certain = isinstance(error, IdExists | InvalidRequest)  # an earlier try met the same refusal
        if self._unknown is None or certain or isinstance(error, UnknownOutcome) or self._call.method == "GET":
            return error
        return _unknown(self._unknown, error)

    def _backoff_s(self, draw: float) -> float:
        patience = self._patience
        wait_s = min(patience.first_s * 2.0 ** min(self._failed - 1, 60), patience.most_s)
        return wait_s * (1.0 - patience.jitter * draw)


def _unknown(earlier: DuelineApiError, last: DuelineApiError) -> UnknownOutcome:
    """What is left to say when an earlier try may have been done and the last one was not."""
    message = f"an earlier try may have been done ({earlier.message}); the last one was not: {last.message}"
    error = UnknownOutcome("unknown_outcome", message, last.field, last.status, last.id or earlier.id)
    error.__cause__ = last
    return error


def _unsure(item: r.Outcome) -> r.Outcome:
    if item.error is None or item.error.code == "unknown_outcome":
        return item
    message = f"an earlier try may have been done; the last one was refused: {item.error.message}"
    return msgspec.structs.replace(item, error=r.Refusal("unknown_outcome", message, item.error.field))

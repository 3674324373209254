"""When to retry a call. Holds a policy and the state of one call; no clock, and no I/O except a log line.

A call is retried if it was certainly not executed (503 store_down, loading, draining; 429; no connection), or if it may
have been executed but is idempotent (`Call.repeatable`). An id is generated before the first try, so all tries of a
send refer to the same job. Ack, release and extend carry a lease token, so a late try changes nothing.

With several servers (`servers`), a try that failed because of its server is repeated at once at the next address. When
all of them have failed, the client waits before it asks them again.

If a try of unknown outcome is followed by a refusal, the outcome is still unknown: when the answer to a successful
release is lost, its retry is refused with `lease_lost`. Such a refusal is raised as UnknownOutcome.
"""

from __future__ import annotations

import logging
from random import random
from typing import Any, TypeVar

import msgspec

from ..api import answers as r
from ..api.operations import BY_NAME
from .address import log
from .calls import Answer, Call
from .errors import DuelineApiError, IdExists, InvalidRequest, RateLimited, Unavailable, UnknownOutcome, Unreachable

T = TypeVar("T")

DEADLINE_S = 30.0


class Patience(msgspec.Struct, frozen=True):
    """How long and how often a client retries.

    `deadline_s`: the time limit of a call over all its tries; a pull adds its own wait. 0: a single try.
    Waits double from `first_s` to `most_s`, each drawn from [wait * (1 - jitter), wait]; they are added to a
    Retry-After. `unreachable` False: when no server can be reached, the call is not retried."""

    deadline_s: float = DEADLINE_S
    first_s: float = 0.1
    most_s: float = 5.0
    jitter: float = 0.5
    unreachable: bool = True


class Tries:
    """The tries of one call, at one of `servers` addresses each. The caller passes in the time that has elapsed since
    the call began."""

    def __init__(self, patience: Patience, call: Call[Any], timeout_s: float, servers: int = 1) -> None:
        self._patience = patience
        self._call = call
        self._held_s = call.wait_ms / 1000
        self._timeout_s = timeout_s + self._held_s
        self._servers = servers
        self._failed = 0
        self._failed_here = 0  # tries since the last wait
        self._waits = 0
        self._begun_s = 0.0  # when the current try began
        self._unknown: DuelineApiError | None = None

    def timeout_s(self, elapsed_s: float) -> float:
        """How long the next try may take."""
        if self._failed == 0:
            return self._timeout_s
        return min(self._timeout_s, max(self._deadline_s - elapsed_s, 0.001))

    @property
    def _deadline_s(self) -> float:
        """0 stays 0, even for a pull that waits: a single try."""
        return self._patience.deadline_s + self._held_s if self._patience.deadline_s > 0 else 0.0

    def wait_s(self, error: DuelineApiError, elapsed_s: float, draw: float | None = None) -> float:
        """The time to wait before the next try, after a try has failed. Raises the final error if there is no next try.

        There is no next try if it would begin after the deadline, or if it would fail after the deadline should the
        server take as long as last time. Such a try would only time out and hide the real reason."""
        self._failed += 1
        self._failed_here += 1
        is_unknown = isinstance(error, UnknownOutcome)
        moves = isinstance(error, Unavailable) and self._failed_here < self._servers
        wait_s, needed_s = 0.0, 0.0
        if not moves:
            wait_s = self._backoff_s(random() if draw is None else draw) + (error.retry_after_s or 0.0)
            needed_s = wait_s if is_unknown else wait_s + elapsed_s - self._begun_s
        if not self._may_follow(error, moves) or elapsed_s + needed_s >= self._deadline_s:
            raise self._final(self._with_tries(error, elapsed_s))
        if is_unknown:
            self._unknown = self._unknown or error
        log.debug("try %d failed and is repeated in %.3g s: %s", self._failed, wait_s, error)
        if not moves:
            self._wait(error, elapsed_s)
        self._begun_s = elapsed_s + wait_s
        return wait_s

    def _wait(self, error: DuelineApiError, elapsed_s: float) -> None:
        """Begin a wait, after which all servers may be asked again. The first one is logged."""
        if self._waits == 0:
            level = logging.INFO if isinstance(error, RateLimited) else logging.WARNING
            log.log(level, "%s; trying again for up to %.3g s", error, self._deadline_s - elapsed_s)
        self._waits += 1
        self._failed_here = 0

    def answered(self, answer: Answer[T]) -> Answer[T]:
        """The answer of the last try. If an earlier try had an unknown outcome, so have the refused items."""
        value: Any = answer.value
        if self._unknown is None or not isinstance(value, r.Outcomes):
            return answer
        items = tuple(_unsure(item) for item in value.results)
        return msgspec.structs.replace(answer, value=r.Outcomes(items))

    def _may_follow(self, error: DuelineApiError, moves: bool) -> bool:
        if isinstance(error, UnknownOutcome):
            return self._call.repeatable
        if isinstance(error, Unreachable):
            return moves or self._patience.unreachable
        return isinstance(error, Unavailable | RateLimited)

    def _with_tries(self, error: DuelineApiError, elapsed_s: float) -> DuelineApiError:
        """The error of the last try, with the number of tries and their total time."""
        if self._failed > 1:
            error.message = f"{error.message.rstrip('.')}, after {self._failed} tries in {elapsed_s:.1f} s"
            error.args = (error.message,)
        return error

    def _final(self, error: DuelineApiError) -> DuelineApiError:
        """The error unchanged, or UnknownOutcome if an earlier try may have been executed."""
        certain = isinstance(error, IdExists | InvalidRequest)  # an earlier try met the same refusal
        reads = BY_NAME[self._call.operation].method == "GET"
        if self._unknown is None or certain or reads or isinstance(error, UnknownOutcome):
            return error
        return _unknown(self._unknown, error)

    def _backoff_s(self, draw: float) -> float:
        patience = self._patience
        wait_s = min(patience.first_s * 2.0 ** min(self._waits, 60), patience.most_s)
        return wait_s * (1.0 - patience.jitter * draw)


def _unknown(earlier: DuelineApiError, last: DuelineApiError) -> UnknownOutcome:
    """The error when an earlier try may have been executed and the last one was not."""
    message = f"an earlier try may have succeeded ({earlier.message}); the last one failed: {last.message}"
    error = UnknownOutcome("unknown_outcome", message, last.field, last.status, last.id or earlier.id)
    error.__cause__ = last
    return error


def _unsure(item: r.Outcome) -> r.Outcome:
    if item.error is None or item.error.code == "unknown_outcome":
        return item
    message = f"an earlier try may have succeeded; the last one was refused: {item.error.message}"
    return msgspec.structs.replace(item, error=r.Refusal("unknown_outcome", message, item.error.field))

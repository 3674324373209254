"""The log and circuit breaker of a topic's push target: the store interface that push uses. No I/O here.

All processes share one log. A process that calls a target reports the outcome and gets back the combined state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ..redaction import redacted


class Attempt(msgspec.Struct, frozen=True):
    """One call of a push target, as logged. `status` 0: no response. `excerpt`: the first 1 KiB of the response, for
    failed calls only."""

    id: str
    attempt: int
    at_ms: int
    status: int
    duration_ms: int
    ok: bool
    error: str | None = None
    excerpt: str | None = None


def masked(text: str | None) -> str | None:
    """An error or excerpt without secrets: a target may repeat what it was sent, and everyone who may read the topic
    may read the log."""
    return text and redacted(text)


class TargetState(msgspec.Struct, frozen=True):
    """The state of a push target over all processes. `failures`: failed calls in a row. The breaker is open until
    `open_until_ms`; from then until the next report it is half open."""

    failures: int = 0
    open_until_ms: int = 0
    last_error: str | None = None


class PushLog(Protocol):
    """The log of a topic's push target. Each method is one atomic call."""

    async def report(
        self, namespace: str, topic: str, attempts: Sequence[Attempt], breaker_failures: int, breaker_open_ms: int
    ) -> TargetState:
        """Append to the log (the newest 2,000 are kept) and update the breaker in order: a success closes it, and
        `breaker_failures` failures in a row open it for breaker_open_ms. breaker_failures 0: there is no breaker."""
        ...

    async def state(self, namespace: str, topic: str) -> TargetState: ...
    async def attempts(
        self, namespace: str, topic: str, id: str | None, cursor: bytes, limit: int
    ) -> tuple[list[Attempt], bytes | None]:
        """Attempts for one job or for all, newest first."""
        ...

    async def reset(self, namespace: str, topic: str) -> None:
        """Delete the log and the breaker, because the target was removed or replaced."""
        ...

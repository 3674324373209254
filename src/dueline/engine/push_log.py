"""What happened at a topic's push target, and its breaker: the part of the store that push asks. No I/O here.

One log for all processes: whoever calls a target reports it, and hears what all of them together saw.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec


class Attempt(msgspec.Struct, frozen=True):
    """One call of a push target, as its log keeps it. `status` 0: no answer came. `excerpt`: the beginning of what was
    answered, at most 1 KiB, of failed calls only."""

    id: str
    attempt: int
    at_ms: int
    status: int
    duration_ms: int
    ok: bool
    error: str | None = None
    excerpt: str | None = None


class TargetState(msgspec.Struct, frozen=True):
    """A push target as all processes together saw it. `failures`: calls that failed one after the other. The breaker is
    open until `open_until_ms`; from then until the next report it is half open."""

    failures: int = 0
    open_until_ms: int = 0
    last_error: str | None = None


class PushLog(Protocol):
    """Operation 15: what happened at a topic's push target. Each method is one atomic call, on the topic's own slot."""

    async def report(
        self, namespace: str, topic: str, attempts: Sequence[Attempt], breaker_failures: int, breaker_open_ms: int
    ) -> TargetState:
        """Append to the log (the newest 2,000 are kept) and count, in order, for the breaker: a success closes it,
        `breaker_failures` failures in a row open it for breaker_open_ms (0 failures: there is no breaker)."""
        ...

    async def state(self, namespace: str, topic: str) -> TargetState: ...
    async def attempts(
        self, namespace: str, topic: str, id: str | None, cursor: bytes, limit: int
    ) -> tuple[list[Attempt], bytes | None]:
        """The newest first, of one job or of all."""
        ...

    async def reset(self, namespace: str, topic: str) -> None:
        """Forget the log and the breaker: the target was removed or replaced."""
        ...

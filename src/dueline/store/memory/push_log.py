"""The log of attempts and the breaker of each push target, as plain values."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...engine.push_log import Attempt, TargetState
from ..push_log_limits import KEPT, PAGE, bounded, pack_cursor, unpack_cursor


@dataclass(slots=True)
class _Target:
    """`log` has the newest attempt last; `number` is the newest attempt's and never repeats."""

    log: deque[Attempt] = field(default_factory=lambda: deque[Attempt](maxlen=KEPT))
    number: int = 0
    failures: int = 0
    open_until_ms: int = 0
    last_error: str | None = None

    @property
    def state(self) -> TargetState:
        return TargetState(self.failures, self.open_until_ms, self.last_error)

    def count(self, attempt: Attempt, breaker_failures: int, breaker_open_ms: int, now_ms: int) -> None:
        self.log.append(attempt)
        self.number += 1
        if attempt.ok:
            self.failures = self.open_until_ms = 0
            return
        self.failures += 1
        self.last_error = attempt.error
        # While the breaker is open, calls in flight may still fail. They do not keep it open for longer.
        if breaker_failures and self.failures >= breaker_failures and self.open_until_ms <= now_ms:
            self.open_until_ms = now_ms + breaker_open_ms


class MemoryPushLog:
    """Implements `engine.push_log.PushLog` as a dict of targets."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._targets: dict[tuple[str, str], _Target] = {}

    async def report(
        self, namespace: str, topic: str, attempts: Sequence[Attempt], breaker_failures: int, breaker_open_ms: int
    ) -> TargetState:
        if not attempts:
            return await self.state(namespace, topic)
        target = self._targets.setdefault((namespace, topic), _Target())
        for attempt in attempts:
            target.count(bounded(attempt), breaker_failures, breaker_open_ms, self._clock())
        if not breaker_failures:
            target.open_until_ms = 0
        return target.state

    async def state(self, namespace: str, topic: str) -> TargetState:
        return self._targets.get((namespace, topic), _Target()).state

    async def attempts(
        self, namespace: str, topic: str, id: str | None, cursor: bytes, limit: int
    ) -> tuple[list[Attempt], bytes | None]:
        below, target = unpack_cursor(cursor), self._targets.get((namespace, topic), _Target())
        found: list[Attempt] = []
        oldest = target.number - len(target.log) + 1
        for number in range(min(below - 1, target.number) if below else target.number, oldest - 1, -1):
            attempt = target.log[number - oldest]
            if id is None or attempt.id == id:
                found.append(attempt)
            if len(found) == min(limit, PAGE):
                return found, pack_cursor(number) if number > oldest else None
        return found, None

    async def reset(self, namespace: str, topic: str) -> None:
        self._targets.pop((namespace, topic), None)

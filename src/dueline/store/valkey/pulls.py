"""Pulls: one call in flight per partition."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from ...engine.completion import Done, through
from ...engine.history import history_budget
from ...engine.job import LeasedJob, Partition, Reason
from ...engine.outcomes import OutcomeHook
from ...engine.store import Outcome, Pull, PullOutcome, Release
from . import outcome_reports, pulled_jobs, requests
from .calls import Calls
from .id_lookup import IdLookup

_EXPIRED, _EXHAUSTED, _CORRUPT = (Reason.EXPIRED,), (Reason.EXHAUSTED,), (Reason.CORRUPT,)
DAMAGED = "the stored body does not match its checksum"


class Pulls:
    """`release` makes jobs dead whose stored body is damaged. `lookup` remembers where jobs were pulled from."""

    def __init__(
        self,
        calls: Calls,
        hook: OutcomeHook,
        history_bytes: int,
        release: Callable[[Partition, Sequence[Release]], Awaitable[list[Outcome]]],
        lookup: IdLookup,
    ) -> None:
        self._lookup = lookup
        self._calls = calls
        self._hook = hook
        self._history_bytes = history_bytes
        self._release = release
        self._waiting: dict[Partition, deque[tuple[Pull, Done]]] = {}  # behind a call in flight

    def post(self, partition: Partition, pull: Pull, done: Done) -> None:
        """Store.post_pull."""
        waiting = self._waiting.get(partition)
        if waiting is None:
            self._waiting[partition] = deque()
            self._run(partition, pull, done)
        else:
            waiting.append((pull, done))

    def _run(self, partition: Partition, pull: Pull, done: Done) -> None:
        base = os.urandom(8)

        def read(reply: tuple[int, int, list[int], bytes]) -> PullOutcome | Coroutine[Any, Any, PullOutcome]:
            now_ms, extra, n, blob = reply
            jobs, corrupt = pulled_jobs.decode(n, blob, partition.topic, base, now_ms)
            if partition.namespace_ids:
                self._lookup.pulled(partition, jobs)
            if (heard := self._hook.outcomes) is not None:
                outcome_reports.report_pull(heard, partition, pull.credits, jobs, n, blob)
            deaths = _EXPIRED * n[3] + _EXHAUSTED * n[4] + _CORRUPT * len(corrupt)
            next_ms, more = None if n[0] < 0 else n[0], bool(n[1]) or bool(corrupt)
            outcome = PullOutcome(jobs, next_ms, more, now_ms, not extra & 2, deaths, n[2], n[5])
            return self._without(partition, corrupt, outcome) if corrupt else outcome

        answered = through(read, done)

        def on_reply(reply: Any) -> None:
            waiting = self._waiting[partition]
            if waiting:
                self._run(partition, *waiting.popleft())
            else:
                del self._waiting[partition]
            answered(reply)

        encoded = requests.pull(pull, base, history_budget(self._history_bytes, partition))
        self._calls.post_change("pull", partition, *encoded, "", on_reply)

    async def _without(self, partition: Partition, corrupt: Sequence[LeasedJob], outcome: PullOutcome) -> PullOutcome:
        """End the damaged jobs of a pull."""
        dead = [Release(job.id, job.lease, dead=Reason.CORRUPT, error=DAMAGED) for job in corrupt]
        await self._release(partition, dead)
        return outcome

"""Limits on the pending jobs of a namespace: scheduled, ready and leased, over all servers.

    pending = what the last count found in the store + what this process has sent since

A count reads the numbers of every topic of the namespace. It happens only when there are sends, at most once a second,
and takes at most a twentieth of the time. While less than half of the limit is used, it happens every few seconds. A
send is never refused by an old count: it waits for a new one first. The limit can be exceeded by what all servers
accept between two counts.

A token may have a limit, too: it sends only while the namespace has fewer pending jobs than that, whoever sent them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic

from ..engine.engine import Engine
from ..engine.errors import DuelineError
from ..rights import EVERYTHING, Grant

FRESH_S = 1.0
FAR_S = 4.0  # a count is used for this much longer while less than half of the limit is used
REST = 20  # times as long as a count takes, before the next one
PAGE = 500
MAX_NAMESPACES = 4096


class _Count:
    """The pending jobs of one namespace. `max_jobs` None: only tokens have limits there."""

    __slots__ = ("counting", "fresh_until_s", "max_jobs", "namespace", "sent", "stored")

    def __init__(self, namespace: str, max_jobs: int | None) -> None:
        self.namespace = namespace
        self.max_jobs = max_jobs
        self.stored = 0
        self.sent = 0  # by this process, since the last count began
        self.fresh_until_s = -1.0  # never counted
        self.counting: asyncio.Task[None] | None = None


class PendingJobs:
    """A `SendLimit` of the engine. `max_of`: the limit of a namespace, if it has one. `refuse` makes the error; its
    last argument is the caller if the limit is that of its token. `clock` is for tests."""

    def __init__(
        self,
        engine: Engine,
        max_of: Callable[[str], int | None],
        refuse: Callable[[str, int, Grant | None], DuelineError],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._engine = engine
        self._max_of = max_of
        self._refuse = refuse
        self._clock = clock
        self._counts: dict[str, _Count] = {}

    def admit(self, namespace: str, jobs: int, grant: Grant = EVERYTHING) -> Awaitable[None] | None:
        """Count these sends. Raises QuotaExceeded, at once or when what it returns is awaited."""
        count = self._counts.get(namespace)
        token_max = None if grant.limits is None else grant.limits.max_pending_jobs
        if count is None:
            max_jobs = self._max_of(namespace)
            if max_jobs is None and token_max is None:
                return None
            count = self._new(namespace, max_jobs)
        max_jobs, of_token = count.max_jobs, None
        if token_max is not None and (max_jobs is None or token_max < max_jobs):
            max_jobs, of_token = token_max, grant
        if max_jobs is None:
            count.sent += jobs
            return None
        pending = count.stored + count.sent + jobs
        if pending <= max_jobs and count.fresh_until_s >= 0:
            count.sent += jobs
            old_s = self._clock() - count.fresh_until_s
            if old_s >= 0 and (old_s >= FAR_S or pending * 2 > max_jobs):
                self._begin(count)
            return None
        if self._clock() < count.fresh_until_s:
            raise self._refuse(namespace, max_jobs, of_token)
        return self._admit_later(count, jobs, max_jobs, of_token)

    def in_use(self) -> dict[str, int]:
        """The pending jobs of every namespace that was counted."""
        return {name: one.stored + one.sent for name, one in self._counts.items()}

    async def stop(self) -> None:
        tasks = [one.counting for one in self._counts.values() if one.counting is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _admit_later(self, count: _Count, jobs: int, max_jobs: int, of_token: Grant | None) -> None:
        await asyncio.shield(self._begin(count))
        if count.stored + count.sent + jobs > max_jobs:
            raise self._refuse(count.namespace, max_jobs, of_token)
        count.sent += jobs

    def _new(self, namespace: str, max_jobs: int | None) -> _Count:
        if len(self._counts) >= MAX_NAMESPACES:  # forget the oldest; it is counted again when it is used
            for name, one in list(self._counts.items()):
                if one.counting is None:
                    del self._counts[name]
                    break
        count = self._counts[namespace] = _Count(namespace, max_jobs)
        return count

    def _begin(self, count: _Count) -> asyncio.Task[None]:
        if count.counting is None:
            count.counting = asyncio.get_running_loop().create_task(self._count(count))
        return count.counting

    async def _count(self, count: _Count) -> None:
        """Read the store. If it does not answer, the old number stays: the sends themselves are refused then."""
        begun_s, sent = self._clock(), count.sent
        try:
            count.stored = await self._stored(count.namespace)
            count.sent -= sent
        except DuelineError:
            pass
        finally:
            count.counting = None
            ended_s = self._clock()
            count.fresh_until_s = ended_s + max(FRESH_S, REST * (ended_s - begun_s))

    async def _stored(self, namespace: str) -> int:
        total, after = 0, ""
        while True:
            views, cursor = await self._engine.topics(namespace, after, PAGE)
            total += sum(view.scheduled + view.ready + view.leased for view in views)
            if cursor is None:
                return total
            after = cursor

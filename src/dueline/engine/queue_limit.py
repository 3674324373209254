"""A limit on the jobs of calls that are not done yet, in this process. No I/O.

of a namespace    the jobs that wait for a script call, over all its topics    store.valkey.batching
of a token        the jobs of its calls, from the request to the answer        QueuedCall
"""

from __future__ import annotations

from collections.abc import Callable


class QueueLimit:
    """Shared by all calls of one namespace or token. `full` returns the error of a call that does not fit."""

    __slots__ = ("_full", "_max_jobs", "jobs")

    def __init__(self, max_jobs: int, full: Callable[[], Exception]) -> None:
        self._max_jobs = max_jobs
        self._full = full
        self.jobs = 0

    def check(self, jobs: int) -> None:
        """Raises unless so many more may wait. An empty queue accepts any call."""
        if self.jobs and self.jobs + jobs > self._max_jobs:
            raise self._full()


class QueuedCall:
    """The jobs of one call count until it is left. Raises QuotaExceeded."""

    __slots__ = ("_jobs", "_limit")

    def __init__(self, limit: QueueLimit, jobs: int = 0) -> None:
        if jobs:
            limit.check(jobs)
            limit.jobs += jobs
        self._limit = limit
        self._jobs = jobs

    def hold(self, jobs: int) -> None:
        """The call is about so many jobs. It may be called again, when that is known better. Raises QuotaExceeded."""
        self._limit.jobs -= self._jobs
        self._jobs = 0
        self._limit.check(jobs)
        self._limit.jobs += jobs
        self._jobs = jobs

    def __enter__(self) -> QueuedCall:
        return self

    def __exit__(self, *_: object) -> None:
        self._limit.jobs -= self._jobs
        self._jobs = 0

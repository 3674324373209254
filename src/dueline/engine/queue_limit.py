"""A limit on the jobs of calls that are not done yet, in this process. No I/O.

of a namespace    the jobs that wait for a script call, over all its topics    store.valkey.batching
of a token        the jobs of its calls, from the request to the answer        server.router
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
        """Raises unless this many more jobs may wait. An empty queue accepts any call."""
        if self.jobs and self.jobs + jobs > self._max_jobs:
            raise self._full()

    def hold(self, jobs: int, held: int = 0) -> int:
        """Count `jobs` for a call, instead of the `held` that it counted for until now. Returns `jobs`. Raises like
        `check`; the call then still counts for `held`. When the call ends, the caller subtracts the
        count from `self.jobs`."""
        others = self.jobs - held
        if others and others + jobs > self._max_jobs:
            raise self._full()
        self.jobs = others + jobs
        return jobs

"""A limit on the jobs of one namespace that wait for a script call, over all its topics in this process. No I/O."""

from __future__ import annotations

from collections.abc import Callable


class NamespaceQueue:
    """Shared by the batchers of one namespace. `full` returns the error of a call that does not fit."""

    __slots__ = ("_full", "_max_jobs", "jobs")

    def __init__(self, max_jobs: int, full: Callable[[], Exception]) -> None:
        self._max_jobs = max_jobs
        self._full = full
        self.jobs = 0

    def check(self, jobs: int) -> None:
        """Raises unless so many more may wait. An empty queue accepts any call."""
        if self.jobs and self.jobs + jobs > self._max_jobs:
            raise self._full()

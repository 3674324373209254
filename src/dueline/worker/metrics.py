"""A worker's metrics: jobs by how they ended, running jobs, and how long handlers took."""

from __future__ import annotations

from ..metrics import table
from ..metrics.metric import Histogram
from ..metrics.plain_text import plain_text


class WorkerMetrics:
    """The metrics of one worker, by topic. Its handlers limit the number of topics."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[str, ...], float] = {}
        self._in_flight: dict[tuple[str, ...], float] = {}
        self._durations: dict[tuple[str, ...], Histogram] = {}

    def begun(self, topic: str) -> None:
        """A job has started."""
        self._in_flight[(topic,)] = self._in_flight.get((topic,), 0) + 1

    def ended(self, topic: str, outcome: str, seconds: float) -> None:
        """The handlers of a job have ended."""
        self._in_flight[(topic,)] -= 1
        self._jobs[topic, outcome] = self._jobs.get((topic, outcome), 0) + 1
        self._durations.setdefault((topic,), Histogram(table.WORKER_JOB_DURATION)).observe(seconds)

    def page(self) -> bytes:
        """The metrics in Prometheus's text format."""
        return plain_text(
            [
                table.WORKER_JOBS.samples(self._jobs),
                table.WORKER_JOBS_IN_FLIGHT.samples(self._in_flight),
                table.WORKER_JOB_DURATION.histograms(self._durations),
            ]
        )

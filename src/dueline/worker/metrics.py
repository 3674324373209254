"""A worker's metrics: jobs by how they ended, running jobs, and how long handlers took."""

from __future__ import annotations

from ..telemetry.families import Histogram, counter, gauge
from ..telemetry.metrics import durations
from ..telemetry.plain_text import plain_text

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)


class WorkerMetrics:
    """The metrics of one worker, by topic. Its handlers limit the number of topics."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[str, ...], float] = {}
        self._in_flight: dict[tuple[str, ...], float] = {}
        self._durations: dict[str, Histogram] = {}

    def begun(self, topic: str) -> None:
        """A job has started."""
        self._in_flight[(topic,)] = self._in_flight.get((topic,), 0) + 1

    def ended(self, topic: str, outcome: str, seconds: float) -> None:
        """The handlers of a job have ended."""
        self._in_flight[(topic,)] -= 1
        self._jobs[topic, outcome] = self._jobs.get((topic, outcome), 0) + 1
        self._durations.setdefault(topic, Histogram(BOUNDS_S)).observe(seconds)

    def page(self) -> bytes:
        """The metrics in Prometheus's text format."""
        ended = "Jobs whose handlers have ended: done, failed, snoozed, discarded, lost (the lease), given_back."
        return plain_text(
            [
                counter("dueline_worker_jobs", ended, ("topic", "outcome"), self._jobs),
                gauge("dueline_worker_jobs_in_flight", "Jobs in hand.", self._in_flight, ("topic",)),
                durations("dueline_worker_job_duration_seconds", "One run of a job.", "topic", self._durations),
            ]
        )

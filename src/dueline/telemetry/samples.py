"""The samples of a process: the engine's, those of topics in the store, the build, the process itself.

Labels are bounded: topics by the engine (200, the rest as "other"), routes by the router, scripts by the store.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence

from .._version import __version__
from ..engine.commands import TopicView
from ..engine.metrics import EngineMetrics, ScheduleMetrics, TopicMetrics
from ..metrics import table
from ..metrics.metric import Buckets, Samples

BANDS_MS = (60_000, 600_000, 3_600_000, 86_400_000, 604_800_000)  # what `of_topics` expects in the views
BANDS = ("1m", "10m", "1h", "1d", "7d", "later")
_COUNTERS = {
    "pulled": table.JOBS_PULLED,
    "acked": table.JOBS_ACKED,
    "released": table.JOBS_RELEASED,
    "extended": table.JOBS_EXTENDED,
    "leases_lost": table.LEASES_LOST,
    "cancelled": table.JOBS_CANCELLED,
    "revived": table.JOBS_REVIVED,
    "purged": table.JOBS_PURGED,
    "dead_trimmed": table.JOBS_DEAD_TRIMMED,
}


def of_engine(metrics: EngineMetrics, waiters: int) -> list[Samples]:
    """What this process sent, delivered and ended, by topic."""
    topics = metrics.topics
    late = {key: Buckets(list(value.late), value.late_sum_ms / 1000) for key, value in topics.items()}
    return [
        table.JOBS_SENT.samples(_by(topics, "sent")),
        table.JOBS_DEAD.samples(_by(topics, "dead")),
        *(
            metric.samples({key: getattr(value, name) for key, value in topics.items()})
            for name, metric in _COUNTERS.items()
        ),
        Samples(table.DELIVERY_LATENESS, buckets=late),
        Samples(table.JOB_ATTEMPTS, buckets=_attempts(topics)),
        table.LONGPOLL_WAITERS.value(waiters),
        *_of_schedules(metrics.schedules),
    ]


def _of_schedules(schedules: ScheduleMetrics) -> list[Samples]:
    results = {"fired": schedules.fired, "missed": schedules.missed, "skipped": schedules.skipped}
    return [
        table.SCHEDULE_OCCURRENCES.samples({(result,): number for result, number in results.items()}),
        table.SCHEDULE_LATENESS.histograms({(): schedules.late}),
        table.SCHEDULE_FAILURES.value(schedules.failed),
    ]


def of_topics(namespaced: Sequence[tuple[str, TopicView]], now_ms: int) -> list[Samples]:
    """The jobs in the store, by topic. Only the scraped process reads them, so they are not summed over processes."""
    jobs: dict[tuple[str, ...], float] = {}
    oldest: dict[tuple[str, ...], float] = {}
    next_due: dict[tuple[str, ...], float] = {}
    by_delay: dict[tuple[str, ...], float] = {}
    dropped: dict[tuple[str, ...], float] = {}
    for namespace, view in namespaced:
        key = (namespace, view.topic)
        dropped[key] = view.history_dropped
        for state in ("scheduled", "ready", "leased", "dead"):
            jobs[(*key, state)] = getattr(view, state)
        for band, count in zip(BANDS, view.bands, strict=False):
            by_delay[(*key, band)] = count
        if view.oldest_ready_at_ms is not None:
            oldest[key] = max(0, now_ms - view.oldest_ready_at_ms) / 1000
        if view.next_due_at_ms is not None:
            next_due[key] = (view.next_due_at_ms - now_ms) / 1000
    return [
        table.JOBS.samples(jobs),
        table.OLDEST_READY_AGE.samples(oldest),
        table.NEXT_DUE.samples(next_due),
        table.SCHEDULED_BY_DELAY.samples(by_delay),
        table.HISTORY_DROPPED.samples(dropped),
    ]


def of_build(store: str, durability: str) -> Samples:
    """Version, store and durability level."""
    return table.BUILD_INFO.samples({(__version__, platform.python_version(), store, durability): 1})


def of_process() -> list[Samples]:
    """CPU, memory, descriptors and garbage collection of this process, from the Prometheus library's collectors.
    The first scrape loads that library, because many servers are never scraped."""
    from prometheus_client import GCCollector, ProcessCollector
    from prometheus_client.registry import CollectorRegistry

    collected = (*ProcessCollector(registry=None).collect(), *GCCollector(CollectorRegistry()).collect())
    families = {family.name: family for family in collected}
    return [
        metric.samples({tuple(one.labels[label] for label in metric.labels): one.value for one in family.samples})
        for metric in table.PROCESS.metrics
        if (family := families.get(metric.name.removesuffix("_total"))) is not None
    ]


def _attempts(topics: dict[tuple[str, str], TopicMetrics]) -> dict[tuple[str, ...], Buckets]:
    """By namespace: one more histogram per topic would be a third of the page."""
    found: dict[tuple[str, ...], Buckets] = {}
    for (namespace, _), value in topics.items():
        if (sums := found.get((namespace,))) is None:
            found[(namespace,)] = Buckets(list(value.attempts), value.attempts_sum)
        else:
            counts = [one + other for one, other in zip(sums.counts, value.attempts, strict=True)]
            found[(namespace,)] = Buckets(counts, sums.total + value.attempts_sum)
    return found


def _by(topics: dict[tuple[str, str], TopicMetrics], name: str) -> dict[tuple[str, ...], float]:
    return {(*key, word): count for key, value in topics.items() for word, count in getattr(value, name).items()}

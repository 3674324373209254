"""The metrics of a process as families: the engine's, those of topics in the store, the build, the process itself.

Labels are bounded: topics by the engine (200, the rest as "other"), routes by the router, scripts by the store.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence

from prometheus_client import GCCollector, ProcessCollector
from prometheus_client.registry import CollectorRegistry

from .._version import __version__
from ..engine.commands import TopicView
from ..engine.metrics import LATE_BOUNDS_S, EngineMetrics, TopicMetrics
from .families import Buckets, Family, Kind, Merge, counter, gauge

_TOPIC = ("namespace", "topic")


def of_engine(figures: EngineMetrics, waiters: int) -> list[Family]:
    """What this process sent, delivered and ended, by topic."""
    topics = figures.topics
    plain = {
        "pulled": "Deliveries.",
        "acked": "Jobs finished by an ack.",
        "released": "Leased jobs that consumers gave back.",
        "extended": "Leases extended.",
        "cancelled": "Jobs withdrawn.",
        "revived": "Dead jobs brought back.",
        "purged": "Ended jobs removed by a call.",
        "dead_trimmed": "Dead jobs removed because their retention was over.",
    }
    families = [
        counter("dueline_jobs_sent", "Sends, by result.", (*_TOPIC, "result"), _by(topics, "sent")),
        counter("dueline_jobs_dead", "Jobs that died, by reason.", (*_TOPIC, "reason"), _by(topics, "dead")),
        counter(
            "dueline_leases_lost",
            "Leases that expired without an ack, counted at the next delivery.",
            _TOPIC,
            {key: value.leases_lost for key, value in topics.items()},
        ),
    ]
    families += [
        counter(f"dueline_jobs_{name}", help, _TOPIC, {key: getattr(value, name) for key, value in topics.items()})
        for name, help in plain.items()
    ]
    late = {key: Buckets(list(value.late), value.late_sum_ms / 1000) for key, value in topics.items()}
    families.append(
        Family(
            "dueline_delivery_lateness_seconds",
            Kind.HISTOGRAM,
            "Time from due to delivered, on the store's clock.",
            _TOPIC,
            bounds=LATE_BOUNDS_S,
            buckets=late,
        )
    )
    families.append(gauge("dueline_longpoll_waiters", "Pulls that are waiting for a job.", {(): waiters}))
    return families


def of_topics(namespaced: Sequence[tuple[str, TopicView]], now_ms: int) -> list[Family]:
    """The jobs in the store, by topic. Only the process that is scraped reads them; they are never summed."""
    states = ("scheduled", "ready", "leased", "dead")
    return [
        gauge(
            "dueline_jobs",
            "Jobs in the store, by state.",
            {(ns, view.topic, state): getattr(view, state) for ns, view in namespaced for state in states},
            (*_TOPIC, "state"),
            Merge.MAX,
        ),
        gauge(
            "dueline_oldest_ready_age_seconds",
            "How long the oldest ready job has been due.",
            {
                (ns, view.topic): max(0, now_ms - view.oldest_ready_at_ms) / 1000
                for ns, view in namespaced
                if view.oldest_ready_at_ms is not None
            },
            _TOPIC,
            Merge.MAX,
        ),
        gauge(
            "dueline_next_due_seconds",
            "Time until the next job is due.",
            {
                (ns, view.topic): (view.next_due_at_ms - now_ms) / 1000
                for ns, view in namespaced
                if view.next_due_at_ms is not None
            },
            _TOPIC,
            Merge.MAX,
        ),
    ]


def of_build(store: str, durability: str) -> Family:
    """Version, store and durability level."""
    labels = ("version", "python", "store", "durability")
    values = (__version__, platform.python_version(), store, durability)
    return gauge("dueline_build_info", "Version, store and durability level.", {values: 1}, labels, Merge.MAX)


def of_process() -> list[Family]:
    """CPU, memory, descriptors and garbage collection of this process, from the Prometheus library's collectors."""
    registry = CollectorRegistry(auto_describe=False)
    found: list[Family] = []
    for metric in (*ProcessCollector(registry=None).collect(), *GCCollector(registry).collect()):
        names = tuple(metric.samples[0].labels) if metric.samples else ()
        kind = Kind.COUNTER if metric.type == "counter" else Kind.GAUGE
        merge = Merge.MIN if metric.name == "process_start_time_seconds" else Merge.SUM
        numbers = {tuple(sample.labels[name] for name in names): sample.value for sample in metric.samples}
        found.append(Family(metric.name, kind, metric.documentation, names, merge, numbers=numbers))
    return found


def _by(topics: dict[tuple[str, str], TopicMetrics], name: str) -> dict[tuple[str, ...], float]:
    return {(*key, word): count for key, value in topics.items() for word, count in getattr(value, name).items()}

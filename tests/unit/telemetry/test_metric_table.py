"""The table of metrics: names that Prometheus users expect, and a worker that exports exactly its part."""

from __future__ import annotations

import re

from prometheus_client import GCCollector, ProcessCollector
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

from dueline.metrics.metric import Kind
from dueline.metrics.table import PROCESS, SERVER_GROUPS, WORKER
from dueline.worker.metrics import WorkerMetrics
from tools.docs.metrics import dialect_groups

OWN = [metric for group in (*SERVER_GROUPS, WORKER) for metric in group.metrics]
ALL = [*OWN, *(metric for group in dialect_groups() for metric in group.metrics)]


def test_no_two_metrics_have_the_same_name() -> None:
    names = [metric.name for metric in ALL]
    assert sorted(names) == sorted(set(names))


def test_names_follow_the_rules_of_prometheus() -> None:
    pattern = re.compile(r"(dueline|process|python)_[a-z]+(_[a-z]+)*")
    assert [metric.name for metric in OWN if not pattern.fullmatch(metric.name)] == []
    assert [metric.name for metric in ALL if (metric.kind is Kind.COUNTER) != metric.name.endswith("_total")] == []


def test_every_help_text_is_a_sentence() -> None:
    assert [metric.name for metric in ALL if not re.fullmatch(r"[A-Z0-9].*\.", metric.help)] == []


def test_the_buckets_of_a_histogram_rise() -> None:
    for metric in ALL:
        assert list(metric.bounds) == sorted(set(metric.bounds))
        assert bool(metric.bounds) == (metric.kind is Kind.HISTOGRAM)


def test_the_table_has_every_metric_that_the_library_measures_of_a_process() -> None:
    collected = (*ProcessCollector(registry=None).collect(), *GCCollector(CollectorRegistry()).collect())
    names = {family.name + ("_total" if family.type == "counter" else "") for family in collected}
    assert names == {metric.name for metric in PROCESS.metrics}


def test_a_worker_exports_every_metric_of_its_group_and_no_other() -> None:
    metrics = WorkerMetrics()
    metrics.begun("t")
    metrics.ended("t", "done", 0.1)
    exported = {
        (family.name + ("_total" if family.type == "counter" else ""), family.type, family.documentation): {
            label for sample in family.samples for label in sample.labels if label != "le"
        }
        for family in text_string_to_metric_families(metrics.page().decode())
    }
    assert exported == {(one.name, one.kind, one.help): set(one.labels) for one in WORKER.metrics}

"""Generates the page of metrics from their table: `python -m tools.docs.metrics > docs/metrics.md`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from textwrap import fill

import dueline.dialects
from dueline.engine.metrics import MAX_TOPICS
from dueline.metrics.metric import Kind, Metric, MetricGroup
from dueline.metrics.table import SERVER_GROUPS, WORKER

_HEAD = f"""# Metrics

Made from the table of metrics (`python -m tools.docs.metrics`); do not edit by hand.

`GET /metrics` of a server is for Prometheus: in its text format or, if the scraper asks for it, as
OpenMetrics. Every address that the server listens on has this page. If the server has several
processes (`server.workers`), one scrape covers all of them. Counters count from the start of the
server: if one of its processes dies, they keep what it had counted, and only the metrics that begin
with `process_` or `python_` lose its share. Metrics from the store are missing until the store has
answered once.

- `namespace`, `topic`: at most {MAX_TOPICS} topics have series of their own, over all processes; the
  others are counted together under the name `other`.
- `route`: the name of a route, never a path. All unknown paths share one name, and so do all
  unknown methods.
"""
_MISSING = """
## What is not measured

- How long a job was ready before it was delivered: that is `dueline_delivery_lateness_seconds`. A
  job is ready from the moment it is due, or due again; no sweep moves it.
- How long consumers hold a lease: an ack would have to read when the lease began, in the script
  that every job runs. Workers have `dueline_worker_job_duration_seconds`, push targets have
  `dueline_push_duration_seconds`.
- Repairs: nothing sweeps over jobs to mend them. `dueline fsck` finds what is wrong.
- Traces of single observations (exemplars): spans carry the ids of jobs and topics instead
  ([tracing](tracing.md)).
- Native histograms: the text formats that a scrape gets have none.
- More histograms per topic: each one adds 18 lines per topic, and the buckets of a single one can
  be half of a large page.
"""
_DIALECTS = """
## Metrics of other protocols

A dialect can bring metrics under the names that the original's dashboards query. A server
shows them on `/metrics` only while that dialect is enabled.
"""


def dialect_groups() -> list[MetricGroup]:
    """The metrics of each dialect that has a module `metrics`."""
    found = sorted(Path(dueline.dialects.__path__[0]).glob("*/metrics.py"))
    return [import_module(f"dueline.dialects.{path.parent.name}.metrics").METRICS for path in found]


def page() -> str:
    """The whole page."""
    own = [f"\n## {group.title}\n{_section(group)}" for group in (*SERVER_GROUPS, WORKER)]
    foreign = [f"\n### [{group.title}](dialects/{group.title}.md)\n{_section(group)}" for group in dialect_groups()]
    return "".join([_HEAD, *own, _MISSING, _DIALECTS, *foreign])


def _section(group: MetricGroup) -> str:
    about = f"\n{fill(group.about, 100, break_on_hyphens=False)}\n" if group.about else ""
    rows = "".join(map(_row, group.metrics))
    buckets = "".join(_buckets(metric) for metric in group.metrics if metric.kind is Kind.HISTOGRAM)
    return f"{about}\n| metric | type | labels | meaning |\n|---|---|---|---|\n{rows}{buckets}"


def _row(metric: Metric) -> str:
    labels = " ".join(f"`{label}`" for label in metric.labels)
    meaning = f"{metric.help} Only {metric.when}." if metric.when else metric.help
    return f"| `{metric.name}` | {metric.kind} | {labels} | {meaning} |\n"


def _buckets(metric: Metric) -> str:
    bounds = " ".join(f"{bound:g}" for bound in metric.bounds)
    return f"\nBuckets of `{metric.name}`:\n{bounds}\n"


if __name__ == "__main__":
    print(page(), end="")

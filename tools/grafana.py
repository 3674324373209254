"""Makes the Grafana dashboard `deploy/grafana/dueline.json`: `python -m tools.grafana > deploy/grafana/dueline.json`.

A row is a title and its panels; a panel is a title, a unit and its queries. Queries end with the filter of the
dashboard's variables, so that one dashboard serves every installation without edits.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from dueline.metrics.metric import Merge
from dueline.metrics.table import SERVER_GROUPS

SERVER = 'job=~"$job",instance=~"$instance"'
TOPIC = SERVER + ',namespace=~"$namespace",topic=~"$topic"'
WIDTH, HEIGHT = 24, 8  # of the grid, and of a panel
METRICS = {metric.name: metric for group in SERVER_GROUPS for metric in group.metrics}


@dataclass(frozen=True)
class Panel:
    """`queries`: legend -> PromQL. `stat`: one number instead of a chart."""

    title: str
    unit: str
    queries: dict[str, str]
    width: int = 8
    stat: bool = False
    about: str = ""


def within(metric: str) -> str:
    """The filter of the variables that a metric has labels for."""
    return TOPIC if "topic" in METRICS[metric].labels else SERVER


def rate(metric: str, by: str = "", more: str = "") -> str:
    """Events per second, summed by labels. `more`: a further filter."""
    return f"sum by ({by}) (rate({metric}{{{within(metric)}{more}}}[$__rate_interval]))"


def quantile(of: float, metric: str, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({of}, sum by ({labels}) (rate({metric}_bucket{{{within(metric)}}}[$__rate_interval])))"


def gauge(metric: str, how: str = "max", by: str = "", more: str = "") -> str:
    """A gauge over all servers. What every server reads from the same store counts once."""
    found = f"{metric}{{{within(metric)}{more}}}"
    if METRICS[metric].merge is Merge.MAX and how == "sum":
        found = f"max without (instance) ({found})"
    return f"{how} by ({by}) ({found})"


EACH = "{{namespace}}/{{topic}}"
ROWS: dict[str, list[Panel]] = {
    "Overview": [
        Panel("Ready", "bool_yes_no", {"": gauge("dueline_ready", "min")}, 4, True, "Whether every server is ready."),
        Panel("Pending", "short", {"": gauge("dueline_jobs", "sum", more=',state!="dead"')}, 4, True),
        Panel("Dead letters", "short", {"": gauge("dueline_jobs", "sum", more=',state="dead"')}, 4, True),
        Panel("Oldest ready job", "s", {"": gauge("dueline_oldest_ready_age_seconds")}, 4, True),
        Panel("Waiting consumers", "short", {"": gauge("dueline_longpoll_waiters", "sum")}, 4, True),
        Panel("Lateness p99", "s", {"": quantile(0.99, "dueline_delivery_lateness_seconds")}, 4, True),
        Panel(
            "Jobs per second",
            "ops",
            {
                "sent": rate("dueline_jobs_sent_total", more=',result!="refused"'),
                "delivered": rate("dueline_jobs_pulled_total"),
                "acked": rate("dueline_jobs_acked_total"),
                "released": rate("dueline_jobs_released_total"),
                "dead": rate("dueline_jobs_dead_total"),
            },
            12,
        ),
        Panel("Jobs by state", "short", {"{{state}}": gauge("dueline_jobs", "sum", "state")}, 12),
    ],
    "Topics": [
        Panel("Sends per second", "ops", {EACH: rate("dueline_jobs_sent_total", "namespace, topic")}),
        Panel("Deliveries per second", "ops", {EACH: rate("dueline_jobs_pulled_total", "namespace, topic")}),
        Panel("Oldest ready job", "s", {EACH: gauge("dueline_oldest_ready_age_seconds", "max", "namespace, topic")}),
    ],
    "Lateness": [
        Panel(
            "Time from due to delivered",
            "s",
            {f"p{p}": quantile(p / 100, "dueline_delivery_lateness_seconds") for p in (50, 90, 99)},
            12,
        ),
        Panel("p99 by topic", "s", {EACH: quantile(0.99, "dueline_delivery_lateness_seconds", "namespace, topic")}, 12),
    ],
    "Retries and dead letters": [
        Panel("Released per second", "ops", {EACH: rate("dueline_jobs_released_total", "namespace, topic")}),
        Panel("Leases lost per second", "ops", {EACH: rate("dueline_leases_lost_total", "namespace, topic")}),
        Panel("Dead per second, by reason", "ops", {"{{reason}}": rate("dueline_jobs_dead_total", "reason")}),
    ],
    "Push and schedules": [
        Panel(
            "Calls per second",
            "ops",
            {"{{topic}} {{code_class}}": rate("dueline_push_requests_total", "topic, code_class")},
        ),
        Panel("Time of a call, p99", "s", {EACH: quantile(0.99, "dueline_push_duration_seconds", "namespace, topic")}),
        Panel(
            "Occurrences of schedules per second",
            "ops",
            {
                "{{result}}": rate("dueline_schedule_occurrences_total", "result"),
                "failed": rate("dueline_schedule_failures_total"),
            },
        ),
    ],
    "Server": [
        Panel("Requests per second", "reqps", {"{{code}}": rate("dueline_http_requests_total", "code")}),
        Panel(
            "Time of a request, p99",
            "s",
            {"{{route}}": quantile(0.99, "dueline_http_request_duration_seconds", "route")},
        ),
        Panel("Refused by limits per second", "ops", {"{{limit}}": rate("dueline_limit_refused_total", "limit")}),
    ],
    "Store and durability": [
        Panel("Up", "bool_yes_no", {"": gauge("dueline_store_up", "min")}, 4, True),
        Panel("Replicas", "short", {"": gauge("dueline_store_replicas", "min")}, 4, True),
        Panel("Guards that hold", "short", {"": gauge("dueline_store_guard", "sum")}, 4, True),
        Panel(
            "Memory",
            "bytes",
            {"used": gauge("dueline_store_memory_bytes"), "limit": gauge("dueline_store_maxmemory_bytes")},
            6,
        ),
        Panel("Free disk", "bytes", {"{{instance}}": gauge("dueline_store_disk_free_bytes", "min", "instance")}, 6),
        Panel(
            "Script call, p99",
            "s",
            {"{{script}}": quantile(0.99, "dueline_store_call_duration_seconds", "script")},
            12,
        ),
        Panel("Guards", "short", {"{{guard}} {{shard}}": gauge("dueline_store_guard", "max", "guard, shard")}, 12),
    ],
    "Process": [
        Panel("CPU cores", "short", {"{{instance}}": rate("process_cpu_seconds_total", "instance")}),
        Panel("Resident memory", "bytes", {"{{instance}}": gauge("process_resident_memory_bytes", "sum", "instance")}),
        Panel("Clock offset", "s", {"{{instance}}": gauge("dueline_clock_offset_seconds", "max", "instance")}),
    ],
}

VARIABLES = {
    "job": "label_values(dueline_build_info, job)",
    "instance": 'label_values(dueline_build_info{job=~"$job"}, instance)',
    "namespace": f"label_values(dueline_jobs{{{SERVER}}}, namespace)",
    "topic": f'label_values(dueline_jobs{{{SERVER},namespace=~"$namespace"}}, topic)',
}
SOURCE = {"type": "prometheus", "uid": "$datasource"}


def dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        panels.append({"type": "row", "title": title, "gridPos": _place(0, y, WIDTH, 1), "panels": []})
        x, y, tall = 0, y + 1, 0
        for panel in row:
            height = HEIGHT // 2 if panel.stat else HEIGHT
            if x + panel.width > WIDTH:
                x, y, tall = 0, y + tall, 0
            panels.append(_panel(panel, _place(x, y, panel.width, height)))
            x, tall = x + panel.width, max(tall, height)
        y += tall
    for number, panel in enumerate(panels, start=1):
        panel["id"] = number
    return {
        "title": "Dueline",
        "uid": "dueline",
        "tags": ["dueline"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_source(), *(_variable(name, query) for name, query in VARIABLES.items())]},
        "panels": panels,
    }


def _panel(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + n), "expr": query, "legendFormat": legend or "__auto", "datasource": SOURCE}
        for n, (legend, query) in enumerate(panel.queries.items())
    ]
    return {
        "type": "stat" if panel.stat else "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {} if panel.stat else {"tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": targets,
    }


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _source() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "sort": 1,
    }


if __name__ == "__main__":
    print(json.dumps(dashboard(), indent=1))

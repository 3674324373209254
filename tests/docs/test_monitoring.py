"""The files for Prometheus and Grafana in `deploy`: they name only metrics and labels that exist, and every alert is
tested by promtool."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dueline.metrics import table
from dueline.metrics.metric import Kind
from tools.grafana import METRICS, dashboard

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = DEPLOY / "grafana" / "dueline.json"
RULES = DEPLOY / "prometheus" / "dueline.rules.yml"
TESTS = DEPLOY / "prometheus" / "dueline.rules.test.yml"
ADDED = {"job", "instance", "le"}  # labels that Prometheus adds
SERIES = METRICS | {f"{name}_bucket": metric for name, metric in METRICS.items() if metric.kind is Kind.HISTOGRAM}
NAME = re.compile(r"\b(?:dueline|process|python)_[a-z0-9_]+\b")
FILTERED = re.compile(r"\b((?:dueline|process)_[a-z0-9_]+)\{([^}]*)\}")


def queries() -> list[str]:
    """Every query of the dashboard."""
    found = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]
    return found + [one["query"]["query"] for one in dashboard()["templating"]["list"] if one["type"] == "query"]


def expressions() -> list[str]:
    """Every expression of the alert rules."""
    return re.findall(r"expr: (?:>-\n)?((?:.+\n)+?) +(?:for|labels):", RULES.read_text())


def test_the_dashboard_is_the_one_that_its_generator_makes() -> None:
    assert json.loads(DASHBOARD.read_text()) == dashboard(), (
        "run: python -m tools.grafana > deploy/grafana/dueline.json"
    )


def test_no_panel_overlaps_another() -> None:
    taken = [
        (x, y)
        for panel in dashboard()["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24


def test_dashboard_and_rules_name_only_metrics_and_labels_that_exist() -> None:
    asked = [*queries(), *expressions()]
    assert {name for query in asked for name in NAME.findall(query)} - set(SERIES) == set()
    unknown = {
        (name, label)
        for query in asked
        for name, filters in FILTERED.findall(query)
        for label in re.findall(r"([a-z_]+)(?:=~|!=|=)", filters)
        if label not in {*SERIES[name].labels, *ADDED}
    }
    assert unknown == set()


def test_the_pages_name_only_metrics_that_exist() -> None:
    pages = DEPLOY.parent.joinpath("docs").glob("[!t]*.md")  # those on testing name fixtures
    named = {name for page in pages for name in re.findall(r"`(dueline_[a-z0-9_]+)[`{]", page.read_text())}
    assert named - set(SERIES) - {metric.name for metric in table.WORKER.metrics} == set()


def test_every_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    alerts = set(re.findall(r"alert: (\w+)", RULES.read_text()))
    assert len(alerts) == len(expressions()) > 10
    tests = TESTS.read_text()
    assert set(re.findall(r'alertname="(\w+)"', tests)) == alerts
    assert set(re.findall(r"alertname: (\w+), exp_alerts: \[\]", tests)) == alerts


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is missing (Debian: it is in prometheus)")
def test_promtool_accepts_the_rules_and_their_tests() -> None:
    for command in (["check", "rules", str(RULES)], ["test", "rules", str(TESTS)]):
        done = subprocess.run(["promtool", *command], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr

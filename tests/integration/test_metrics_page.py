"""What a running server exports is what the table of metrics says, in both directions."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from dueline.metrics.metric import Metric
from dueline.metrics.table import EMBEDDED, SERVER_GROUPS, TLS
from tools.docs.metrics import dialect_groups
from tools.faults.connection import Connection
from tools.faults.server_process import ServerProcess

from ..kit.valkey import PrivateValkey

OWN = [metric for group in SERVER_GROUPS for metric in group.metrics if metric.when != TLS]  # those: test_tls
FOREIGN = {group.title: group.metrics for group in dialect_groups()}


def declared(*metrics: Metric) -> dict[str, tuple[str, str]]:
    return {metric.name: (metric.kind, metric.help) for metric in metrics}


def exported(page: str) -> dict[str, tuple[str, str]]:
    """The type and the help of each metric on a page, by the name that Prometheus stores."""
    families = text_string_to_metric_families(page)
    return {one.name + ("_total" if one.type == "counter" else ""): (one.type, one.documentation) for one in families}


def labels(page: str) -> dict[str, set[str]]:
    """The label names on a page, by metric."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(page):
        name = family.name + ("_total" if family.type == "counter" else "")
        for sample in family.samples:
            found.setdefault(name, set()).update(sample.labels.keys() - {"le"})
    return found


async def scrape(data: Path, store_url: str | None = None, **env: str) -> str:
    """The metrics page of a server that has sent, delivered and acked a job."""
    server = ServerProcess(data, store_url=store_url, env=env)
    await server.start()
    connection = Connection(*server.address)
    try:
        await connection.request("POST", "/v1/topics/t/jobs", b'{"body":1}')
        await connection.request("POST", "/v1/topics/t/jobs", b'{"body":2,"delay":"1h"}')
        [job] = (await connection.request("POST", "/v1/topics/t/pull", b"{}")).json()["jobs"]
        assert job["body"] == 1
        return (await connection.request("GET", "/metrics")).body.decode()
    finally:
        connection.close()
        await server.stop()


async def test_a_server_exports_every_metric_of_the_table_and_no_other(tmp_path: Path) -> None:
    page = await scrape(tmp_path / "data")
    metrics = [*OWN, *(metric for group in FOREIGN.values() for metric in group)]
    assert exported(page) == declared(*metrics)
    shown = labels(page)
    assert shown == {metric.name: set(metric.labels) for metric in metrics if metric.name in shown}
    assert {metric.name for metric in OWN if not metric.labels} <= shown.keys()


async def test_metrics_of_an_embedded_store_and_of_a_dialect_are_exported_only_with_these(tmp_path: Path) -> None:
    disabled = {f"DUELINE_DIALECTS__{dialect.upper()}__ENABLED": "false" for dialect in FOREIGN}
    with PrivateValkey() as store:
        page = await scrape(tmp_path / "data", store.url, **disabled)
    assert exported(page) == declared(*(metric for metric in OWN if metric.when != EMBEDDED))

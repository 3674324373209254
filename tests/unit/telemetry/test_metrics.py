"""Metrics as plain values: counted, merged over processes, written in the form that Prometheus reads."""

from __future__ import annotations

import asyncio
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from dueline.engine.metrics import EngineMetrics
from dueline.telemetry import gather
from dueline.telemetry.exposition import exposed
from dueline.telemetry.families import Buckets, Family, Kind, Merge, counter, gauge, merged
from dueline.telemetry.metrics import CallMetrics, HttpMetrics
from dueline.telemetry.plain_text import CONTENT_TYPE, plain_text
from dueline.telemetry.siblings import Siblings


def parsed(families: list[Family]) -> dict[str, float]:
    """What a scraper reads: series -> value."""
    page, _ = exposed(families, "text/plain")
    return {
        sample.name + "".join(f" {k}={v}" for k, v in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def test_counts_add_up_and_what_belongs_to_the_store_does_not() -> None:
    def one(count: float, up: float, memory: float, begun: float) -> list[Family]:
        return [
            counter("sends", "Sends.", ("topic",), {("a",): count}),
            gauge("up", "Up.", {(): up}, merge=Merge.MIN),
            gauge("memory", "Memory.", {(): memory}, merge=Merge.MAX),
            gauge("begun", "Start.", {(): begun}, merge=Merge.MIN),
            Family("late", Kind.HISTOGRAM, "Late.", (), bounds=(1.0, 2.0), buckets={(): Buckets([1, 0, 2], 9.5)}),
        ]

    assert parsed(merged([one(2, 1, 70, 5), one(3, 0, 60, 4)])) == {
        "sends_total topic=a": 5,
        "up": 0,
        "memory": 70,
        "begun": 4,
        "late_bucket le=1.0": 2,
        "late_bucket le=2.0": 2,
        "late_bucket le=+Inf": 6,
        "late_count": 6,
        "late_sum": 19,
    }


def test_a_process_that_observed_nothing_yet_does_not_spoil_the_others_histogram() -> None:
    busy = HttpMetrics()
    busy.answered("send", "POST", 201, 0.004)
    idle = HttpMetrics()
    page = parsed(merged([idle.families(), busy.families()]))
    assert page["dueline_http_request_duration_seconds_bucket le=0.005 route=send"] == 1
    assert page["dueline_http_request_duration_seconds_count route=send"] == 1


def test_merging_changes_none_of_the_snapshots() -> None:
    first = [counter("n", "N.", (), {(): 1})]
    merged([first, first])
    assert first[0].numbers == {(): 1}


def test_requests_are_counted_by_route_and_methods_that_clients_invent_are_one() -> None:
    figures = HttpMetrics()
    for method in ("POST", "POST", "BREW", "X" * 100):
        figures.answered("send", method, 200, 0.1)
    assert {series: value for series, value in parsed(figures.families()).items() if "requests" in series} == {
        "dueline_http_requests_total code=200 method=POST route=send": 2,
        "dueline_http_requests_total code=200 method=other route=send": 2,
    }


def test_store_calls_are_timed_by_script() -> None:
    calls = CallMetrics()
    calls.called("send", 0.0002)
    calls.called("send", 0.0004)
    page = parsed(calls.families())
    assert page["dueline_store_call_duration_seconds_bucket le=0.00025 script=send"] == 1
    assert page["dueline_store_call_duration_seconds_count script=send"] == 2


def test_at_most_200_topics_have_series_of_their_own() -> None:
    figures = EngineMetrics()
    for n in range(300):
        figures.of("default", f"topic-{n}").acked += 1
    page = parsed(gather.of_engine(figures, 0))
    acked = [series for series in page if series.startswith("dueline_jobs_acked_total")]
    assert len(acked) == 201
    assert page["dueline_jobs_acked_total namespace=other topic=other"] == 100


def test_the_process_shows_itself() -> None:
    names = {family.name for family in gather.of_process()}
    assert {"process_resident_memory_bytes", "process_cpu_seconds", "process_open_fds"} <= names


def test_the_scraper_chooses_the_format() -> None:
    families = [counter("n", "N.", (), {(): 1})]
    plain, plain_type = exposed(families, "")
    modern, modern_type = exposed(families, "application/openmetrics-text; version=1.0.0")
    assert (plain_type.split(";")[0], b"# EOF" in plain) == ("text/plain", False)
    assert (modern_type.split(";")[0], b"# EOF" in modern) == ("application/openmetrics-text", True)


def test_siblings_tell_each_other_and_a_dead_one_is_left_out(tmp_path: Path) -> None:
    async def run() -> list[list[str]]:
        all = [Siblings(tmp_path, n, lambda n=n: [counter(f"n{n}", "N.", ("a",), {("b",): n})]) for n in range(3)]
        for one in all:
            await one.start()
        (tmp_path / "worker-9.sock").touch()  # left by a worker that was killed
        heard = [await one.others() for one in all]
        for one in all:
            await one.stop()
        return [[family.name for snapshot in snapshots for family in snapshot] for snapshots in heard]

    assert asyncio.run(run()) == [["n1", "n2"], ["n0", "n2"], ["n0", "n1"]]
    assert [path.name for path in tmp_path.iterdir()] == ["worker-9.sock"]


def test_a_server_without_workers_has_no_siblings() -> None:
    async def run() -> list[list[Family]]:
        alone = Siblings(None, 0, list)
        await alone.start()
        await alone.stop()
        return await alone.others()

    assert asyncio.run(run()) == []


def test_the_plain_text_of_a_worker_is_what_the_library_writes() -> None:
    families = [
        counter("sends", "Sends.", ("topic", "outcome"), {("a", "done"): 2, ('b"\\\n', "failed"): 0.5}),
        gauge("up", "Up.", {(): 1}),
        Family("late", Kind.HISTOGRAM, "Late.", ("t",), bounds=(1, 2.5), buckets={("x",): Buckets([1, 0, 2], 9.5)}),
        counter("nothing", "Nothing.", ("topic",), {}),
    ]
    page, kind = exposed(families, "text/plain")
    assert plain_text(families).decode() == page.decode()
    assert kind == CONTENT_TYPE

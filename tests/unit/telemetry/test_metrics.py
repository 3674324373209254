"""Metrics as plain values: counted, merged over processes, written in the form that Prometheus reads."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from dueline.engine.commands import TopicView
from dueline.engine.job import BodyKind, LeasedJob
from dueline.engine.metrics import OTHER, EngineMetrics
from dueline.engine.policy import TopicPolicy
from dueline.metrics import table
from dueline.metrics.metric import Buckets, Kind, Merge, Metric, Samples, merge
from dueline.metrics.plain_text import CONTENT_TYPE, plain_text
from dueline.telemetry.call_metrics import CallMetrics, HttpMetrics
from dueline.telemetry.exposition import SampleCollector, exposition
from dueline.telemetry.samples import of_engine, of_process, of_topics
from dueline.telemetry.siblings import Siblings
from dueline.telemetry.topic_places import TopicPlaces

SENDS = Metric("sends_total", Kind.COUNTER, "Sends.", ("topic",))
UP = Metric("up", Kind.GAUGE, "Up.")
LATE = Metric("late", Kind.HISTOGRAM, "Late.", bounds=(1.0, 2.0))


def parsed(samples: list[Samples]) -> dict[str, float]:
    """What a scraper reads: series -> value."""
    page, _ = exposition(samples, "text/plain")
    return {
        sample.name + "".join(f" {k}={v}" for k, v in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def test_counts_add_up_and_what_belongs_to_the_store_does_not() -> None:
    def one(count: float, up: float, memory: float) -> list[Samples]:
        return [
            SENDS.samples({("a",): count}),
            Metric("up", Kind.GAUGE, "Up.", merge=Merge.MIN).value(up),
            Metric("memory", Kind.GAUGE, "Memory.", merge=Merge.MAX).value(memory),
            Samples(LATE, buckets={(): Buckets([1, 0, 2], 9.5)}),
        ]

    assert parsed(merge([one(2, 1, 70), one(3, 0, 60)])) == {
        "sends_total topic=a": 5,
        "up": 0,
        "memory": 70,
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
    page = parsed(merge([idle.samples(), busy.samples()]))
    assert page["dueline_http_request_duration_seconds_bucket le=0.005 route=send"] == 1
    assert page["dueline_http_request_duration_seconds_count route=send"] == 1


def test_merging_changes_none_of_the_snapshots() -> None:
    first = [SENDS.samples({("a",): 1}), Samples(LATE, buckets={(): Buckets([1, 0, 2], 9.5)})]
    merge([first, first])
    assert (first[0].numbers, first[1].buckets) == ({("a",): 1}, {(): Buckets([1, 0, 2], 9.5)})


def test_requests_are_counted_by_route_and_methods_that_clients_invent_are_one() -> None:
    metrics = HttpMetrics()
    for method in ("POST", "POST", "BREW", "X" * 100):
        metrics.answered("send", method, 200, 0.1)
    assert {series: value for series, value in parsed(metrics.samples()).items() if "requests" in series} == {
        "dueline_http_requests_total code=200 method=POST route=send": 2,
        "dueline_http_requests_total code=200 method=other route=send": 2,
    }


def test_store_calls_are_timed_by_script() -> None:
    calls = CallMetrics()
    calls.called("send", 0.0002)
    calls.called("send", 0.0004)
    page = parsed(calls.samples())
    assert page["dueline_store_call_duration_seconds_bucket le=0.00025 script=send"] == 1
    assert page["dueline_store_call_duration_seconds_count script=send"] == 2


def test_at_most_200_topics_have_series_of_their_own() -> None:
    metrics = EngineMetrics()
    for n in range(300):
        metrics.of("default", f"topic-{n}").acked += 1
    page = parsed(of_engine(metrics, 0))
    acked = [series for series in page if series.startswith("dueline_jobs_acked_total")]
    assert len(acked) == 201
    assert page["dueline_jobs_acked_total namespace=other topic=other"] == 100


def leased(attempt: int) -> LeasedJob:
    return LeasedJob("a", "t", b"", BodyKind.JSON, b"", (), attempt, attempt, None, "x", 0, 0, 0, 0)


def test_deliveries_are_counted_by_attempt_summed_over_the_topics_of_a_namespace() -> None:
    metrics = EngineMetrics()
    for topic, attempts in (("a", (1, 1, 4)), ("b", (1, 60))):
        metrics.of("default", topic).count_pulled([leased(attempt) for attempt in attempts], (), 0)
    page = parsed(of_engine(metrics, 0))
    name = "dueline_job_attempts"
    shown = {
        series.removeprefix(f"{name}_").removesuffix(" namespace=default"): value
        for series, value in page.items()
        if series.startswith(name)
    }
    assert shown == {
        **{f"bucket le={le}": count for le, count in (("1.0", 3), ("2.0", 3), ("3.0", 3), ("5.0", 4), ("10.0", 4))},
        **{f"bucket le={le}": count for le, count in (("20.0", 4), ("50.0", 4), ("+Inf", 5))},
        **{"count": 5, "sum": 67},
    }


def test_scheduled_jobs_are_shown_by_the_time_until_they_are_due() -> None:
    counts = (21, 0, 0, 0, 0, 0, None, None, 0)
    view = TopicView("orders", *counts, False, None, 1, TopicPolicy(), 1, False, {}, (1, 2, 3, 4, 5, 6))
    page = parsed(of_topics([("default", view)], 0))
    prefix, suffix = "dueline_scheduled_by_delay band=", " namespace=default topic=orders"
    bands = {one.removeprefix(prefix).removesuffix(suffix): n for one, n in page.items() if one.startswith(prefix)}
    assert bands == {"1m": 1, "10m": 2, "1h": 3, "1d": 4, "7d": 5, "later": 6}


def test_entries_of_histories_that_did_not_fit_are_shown() -> None:
    counts = (0, 0, 0, 0, 0, 0, None, None, 0)
    view = TopicView("orders", *counts, False, None, 1, TopicPolicy(), 1, False, {}, history_dropped=7)
    page = parsed(of_topics([("default", view)], 0))
    assert page["dueline_history_dropped_total namespace=default topic=orders"] == 7


def test_the_process_shows_itself() -> None:
    assert [samples.metric for samples in of_process()] == table.PROCESS.metrics


def test_the_scraper_chooses_the_format() -> None:
    samples = [SENDS.samples({("a",): 1})]
    plain, plain_type = exposition(samples, "")
    modern, modern_type = exposition(samples, "application/openmetrics-text; version=1.0.0")
    assert (plain_type.split(";")[0], b"# EOF" in plain) == ("text/plain", False)
    assert (modern_type.split(";")[0], b"# EOF" in modern) == ("application/openmetrics-text", True)


class Process:
    """A worker process of a test: `sent` is its only counter. The gauge `up` is about a living process."""

    def __init__(self, folder: Path | None, index: int, pid: int, sent: int = 0) -> None:
        self.sent = sent
        self.siblings = Siblings(folder, index, self.snapshot, self.snapshot, pid)

    def snapshot(self) -> list[Samples]:
        return [SENDS.samples({("t",): self.sent}), UP.value(1)]

    async def scraped(self) -> tuple[float, float]:
        """What a scrape of this process shows: sends, and processes that are up."""
        page = parsed(merge(await self.siblings.all()))
        return page["sends_total topic=t"], page["up"]


async def test_every_process_shows_the_sum_over_all(tmp_path: Path) -> None:
    processes = [Process(tmp_path, index, 100 + index, sent=10**index) for index in range(3)]
    for one in processes:
        await one.siblings.start()
    shown = [await one.scraped() for one in processes]
    for one in processes:
        await one.siblings.stop()
    assert shown == [(111, 3)] * 3
    assert [path.suffix for path in tmp_path.iterdir()] == [".counts"] * 3


async def test_the_counts_of_a_killed_process_stay_and_its_successor_inherits_them(tmp_path: Path) -> None:
    first, second = Process(tmp_path, 0, 100, sent=1), Process(tmp_path, 1, 101, sent=10)
    for one in (first, second):
        await one.siblings.start()
    second.sent = 30
    assert await first.scraped() == (31, 2)
    killed = sorted(path.read_bytes() for path in tmp_path.glob("worker-1-101.counts"))
    await second.siblings.stop()
    (tmp_path / "worker-1-101.sock").touch()  # as kill -9 leaves it
    assert await first.scraped() == (31, 1)
    third = Process(tmp_path, 1, 102, sent=100)
    await third.siblings.start()
    assert [await one.scraped() for one in (first, third)] == [(131, 2)] * 2
    (tmp_path / "worker-1-101.counts").write_bytes(killed[0])  # not removed yet while another process is scraped
    assert [await one.scraped() for one in (first, third)] == [(131, 2)] * 2
    await third.siblings.stop()
    fourth = Process(tmp_path, 1, 103, sent=1000)
    await fourth.siblings.start()
    assert await first.scraped() == (1131, 2)
    for one in (first, fourth):
        await one.siblings.stop()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["worker-0-100.counts", "worker-1-103.counts"]


async def test_processes_and_their_successors_share_the_places_of_topics(tmp_path: Path) -> None:
    def process(index: int, pid: int, *topics: str) -> Siblings:
        def snapshot() -> list[Samples]:
            keys = [("ns", topic) for topic in topics]
            return [
                table.JOBS_SENT.samples({(*key, "created"): 1 for key in (*keys, OTHER)}),
                Samples(table.DELIVERY_LATENESS, buckets={key: Buckets([1] + [0] * 15, 0.5) for key in keys}),
            ]

        return Siblings(tmp_path, index, snapshot, snapshot, pid, most_topics=3)

    async def scraped(siblings: Siblings) -> list[dict[str, float]]:
        """By topic: sends, and deliveries."""
        sent, late = await siblings.page()
        delivered: dict[str, float] = {labels[1]: sum(one.counts) for labels, one in late.buckets.items()}
        return [{labels[1]: number for labels, number in sent.numbers.items()}, delivered]

    first, second = process(0, 100, "d", "e"), process(1, 101, "e", "f")
    await first.start()
    await second.start()
    for one in (first, second):
        assert await scraped(one) == [{"d": 1, "e": 2, "f": 1, "other": 2}, {"d": 1, "e": 2, "f": 1}]
    await second.stop()
    third = process(1, 102, "a", "b")
    await third.start()
    for one in (first, third):
        assert await scraped(one) == [{"d": 1, "e": 2, "f": 1, "other": 5}, {"d": 1, "e": 2, "f": 1, "other": 2}]
    await third.stop()
    (tmp_path / "worker-1-102.counts").unlink()
    assert await scraped(first) == [{"d": 1, "e": 1, "other": 1}, {"d": 1, "e": 1}]
    fourth = process(1, 103, "a", "b")
    await fourth.start()
    expected = [{"a": 1, "d": 1, "e": 1, "other": 3}, {"a": 1, "d": 1, "e": 1, "other": 1}]
    assert [await scraped(one) for one in (first, fourth)] == [expected] * 2
    await first.stop()
    await fourth.stop()


def test_a_topic_that_was_only_inherited_has_a_place_too(tmp_path: Path) -> None:
    def folded(*topics: str, whole: bool) -> list[str]:
        [page] = TopicPlaces(tmp_path, 2).fold(
            [table.JOBS_ACKED.samples({("ns", one): 1 for one in topics})], whole=whole
        )
        return sorted(topic for _, topic in page.numbers)

    assert folded("c", "d", whole=False) == ["c", "d"]
    assert folded("a", "b", "c", "d", whole=True) == ["c", "d", "other"]
    assert folded("a", "c", whole=True) == ["a", "c"]
    assert folded("b", "d", "c", whole=False) == ["c", "other"]


async def test_a_server_without_workers_has_no_siblings() -> None:
    alone = Process(None, 0, 100, sent=7)
    await alone.siblings.start()
    assert await alone.scraped() == (7, 1)
    await alone.siblings.stop()


def test_our_plain_text_is_what_the_library_writes() -> None:
    outcomes = Metric("sends_total", Kind.COUNTER, "Sends.", ("topic", "outcome"))
    late = Metric("late", Kind.HISTOGRAM, "Late.", ("t", "a"), bounds=(1, 2.5))
    alone = Metric("alone", Kind.HISTOGRAM, "Alone.", (), bounds=(1, 2.5))
    samples = [
        outcomes.samples({("a", "done"): 2, ('b"\\\n', "failed"): 0.5}),
        Metric("up", Kind.GAUGE, "Up.").value(1),
        Samples(late, buckets={("x", 'y"'): Buckets([1, 0, 2], 9.5)}),
        Samples(alone, buckets={(): Buckets([0, 0, 1], 3)}),
        Metric("nothing_total", Kind.COUNTER, "Nothing.", ("topic",)).samples({}),
    ]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SampleCollector(samples))
    assert plain_text(samples).decode() == generate_latest(registry).decode()
    assert exposition(samples, "text/plain") == (plain_text(samples), CONTENT_TYPE)

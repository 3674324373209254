"""What a process pushed, as a scraper reads it."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from dueline.engine.push_log import Attempt
from dueline.metrics.metric import Samples, merge
from dueline.telemetry.exposition import exposition
from dueline.telemetry.push_metrics import AT_SEND, PushMetrics

LABELS = ("namespace", "topic", "code_class", "reason", "le")


def call(metrics: PushMetrics, topic: str, status: int = 200, failure: str | None = None, ms: int = 20) -> None:
    metrics.called("ns", topic, Attempt("a", 1, 1, status, ms, status == 200), failure)


def parsed(samples: list[Samples], word: str) -> dict[str, float]:
    """The series of one metric: label values -> value."""
    page, _ = exposition(samples, "text/plain")
    return {
        " ".join(sample.labels[name] for name in LABELS if name in sample.labels): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
        if sample.name == word
    }


def test_calls_are_counted_by_topic_and_class_of_the_answer() -> None:
    metrics = PushMetrics()
    for status in (200, 204, 404, 503):
        call(metrics, "t", status)
    call(metrics, "t", 0, "timeout")
    call(metrics, "t", 0)
    call(metrics, "u")
    assert parsed(metrics.samples(), "dueline_push_requests_total") == {
        "ns t 2xx": 2,
        "ns t 4xx": 1,
        "ns t 5xx": 1,
        "ns t timeout": 1,
        "ns t none": 1,
        "ns u 2xx": 1,
    }


def test_durations_are_in_seconds() -> None:
    metrics = PushMetrics()
    for ms in (1, 20, 70_000):
        call(metrics, "t", ms=ms)
    samples = metrics.samples()
    assert parsed(samples, "dueline_push_duration_seconds_sum") == {"ns t": 70.021}
    buckets = parsed(samples, "dueline_push_duration_seconds_bucket")
    assert (buckets["ns t 0.001"], buckets["ns t 0.025"], buckets["ns t 60.0"], buckets["ns t +Inf"]) == (1, 2, 2, 3)


def test_what_the_egress_rule_forbade_is_counted_where_it_was_seen() -> None:
    metrics = PushMetrics()
    metrics.denied(AT_SEND)
    call(metrics, "t", 0, "refused")
    call(metrics, "t", 0, "connect")
    assert parsed(metrics.samples(), "dueline_push_denied_total") == {"send": 1, "connect": 1}


def test_of_several_processes_calls_add_up_and_a_pause_does_not() -> None:
    processes = [PushMetrics(), PushMetrics()]
    for metrics in processes:
        call(metrics, "t")
        metrics.in_flight("ns", "t", 3)
        metrics.paused("ns", "t", True)
        metrics.paused("ns", "u", False)
    samples = merge([metrics.samples() for metrics in processes])
    assert parsed(samples, "dueline_push_requests_total") == {"ns t 2xx": 2}
    assert parsed(samples, "dueline_push_inflight") == {"ns t": 6}
    assert parsed(samples, "dueline_push_target_paused") == {"ns t": 1, "ns u": 0}


def test_at_most_200_topics_have_series_of_their_own_and_the_rest_is_not_lost() -> None:
    metrics = PushMetrics()
    for number in range(300):
        metrics.in_flight("ns", f"t{number}", 2)
        metrics.paused("ns", f"t{number}", True)
        if number % 2 or number >= 250:
            call(metrics, f"t{number}")
    samples = metrics.samples()
    for name, rest in (
        ("dueline_push_requests_total", 0),
        ("dueline_push_inflight", 200),
        ("dueline_push_target_paused", 1),
    ):
        found = parsed(samples, name)
        assert len([labels for labels in found if not labels.startswith("other")]) <= 200, name
        assert sum(value for labels, value in found.items() if labels.startswith("other")) == rest, name
    for number in range(300):
        call(metrics, f"t{number}")
    found = parsed(metrics.samples(), "dueline_push_requests_total")
    assert (len(found), sum(found.values())) == (201, 300 + 175)


def test_a_topic_that_is_pushed_no_more_leaves_its_place() -> None:
    metrics = PushMetrics()
    for number in range(200):
        call(metrics, f"t{number}")
    metrics.in_flight("ns", "t0", 1)
    metrics.paused("ns", "t0", True)
    metrics.gone("ns", "t0")
    metrics.gone("ns", "never")
    call(metrics, "new")
    samples = metrics.samples()
    found = parsed(samples, "dueline_push_requests_total")
    assert ("ns t0 2xx" in found, found["ns new 2xx"], len(found)) == (False, 1, 200)
    assert parsed(samples, "dueline_push_inflight") == parsed(samples, "dueline_push_target_paused") == {}

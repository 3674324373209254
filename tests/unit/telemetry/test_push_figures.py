"""What a process pushed, as a scraper reads it."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from dueline.engine.push_log import Attempt
from dueline.telemetry.exposition import exposed
from dueline.telemetry.families import Family, merged
from dueline.telemetry.push_metrics import AT_SEND, PushMetrics

LABELS = ("namespace", "topic", "code_class", "reason", "le")


def call(figures: PushMetrics, topic: str, status: int = 200, failure: str | None = None, ms: int = 20) -> None:
    figures.called("ns", topic, Attempt("a", 1, 1, status, ms, status == 200), failure)


def parsed(families: list[Family], word: str) -> dict[str, float]:
    """The series of one metric: label values -> value."""
    page, _ = exposed(families, "text/plain")
    return {
        " ".join(sample.labels[name] for name in LABELS if name in sample.labels): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
        if sample.name == word
    }


def test_calls_are_counted_by_topic_and_class_of_the_answer() -> None:
    figures = PushMetrics()
    for status in (200, 204, 404, 503):
        call(figures, "t", status)
    call(figures, "t", 0, "timeout")
    call(figures, "t", 0)
    call(figures, "u")
    assert parsed(figures.families(), "dueline_push_requests_total") == {
        "ns t 2xx": 2,
        "ns t 4xx": 1,
        "ns t 5xx": 1,
        "ns t timeout": 1,
        "ns t none": 1,
        "ns u 2xx": 1,
    }


def test_durations_are_in_seconds() -> None:
    figures = PushMetrics()
    for ms in (1, 20, 70_000):
        call(figures, "t", ms=ms)
    families = figures.families()
    assert parsed(families, "dueline_push_duration_seconds_sum") == {"ns t": 70.021}
    buckets = parsed(families, "dueline_push_duration_seconds_bucket")
    assert (buckets["ns t 0.001"], buckets["ns t 0.025"], buckets["ns t 60.0"], buckets["ns t +Inf"]) == (1, 2, 2, 3)


def test_what_the_egress_rule_forbade_is_counted_where_it_was_seen() -> None:
    figures = PushMetrics()
    figures.denied(AT_SEND)
    call(figures, "t", 0, "refused")
    call(figures, "t", 0, "connect")
    assert parsed(figures.families(), "dueline_push_denied_total") == {"send": 1, "connect": 1}


def test_of_several_processes_calls_add_up_and_a_pause_does_not() -> None:
    processes = [PushMetrics(), PushMetrics()]
    for figures in processes:
        call(figures, "t")
        figures.in_flight("ns", "t", 3)
        figures.paused("ns", "t", True)
        figures.paused("ns", "u", False)
    families = merged([figures.families() for figures in processes])
    assert parsed(families, "dueline_push_requests_total") == {"ns t 2xx": 2}
    assert parsed(families, "dueline_push_inflight") == {"ns t": 6}
    assert parsed(families, "dueline_push_target_paused") == {"ns t": 1, "ns u": 0}


def test_at_most_200_topics_have_series_of_their_own_and_the_rest_is_not_lost() -> None:
    figures = PushMetrics()
    for number in range(300):
        figures.in_flight("ns", f"t{number}", 2)
        figures.paused("ns", f"t{number}", True)
        if number % 2 or number >= 250:
            call(figures, f"t{number}")
    families = figures.families()
    for name, rest in (
        ("dueline_push_requests_total", 0),
        ("dueline_push_inflight", 200),
        ("dueline_push_target_paused", 1),
    ):
        found = parsed(families, name)
        assert len([labels for labels in found if not labels.startswith("other")]) <= 200, name
        assert sum(value for labels, value in found.items() if labels.startswith("other")) == rest, name
    for number in range(300):
        call(figures, f"t{number}")
    found = parsed(figures.families(), "dueline_push_requests_total")
    assert (len(found), sum(found.values())) == (201, 300 + 175)


def test_a_topic_that_is_pushed_no_more_leaves_its_place() -> None:
    figures = PushMetrics()
    for number in range(200):
        call(figures, f"t{number}")
    figures.in_flight("ns", "t0", 1)
    figures.paused("ns", "t0", True)
    figures.gone("ns", "t0")
    figures.gone("ns", "never")
    call(figures, "new")
    families = figures.families()
    found = parsed(families, "dueline_push_requests_total")
    assert ("ns t0 2xx" in found, found["ns new 2xx"], len(found)) == (False, 1, 200)
    assert parsed(families, "dueline_push_inflight") == parsed(families, "dueline_push_target_paused") == {}

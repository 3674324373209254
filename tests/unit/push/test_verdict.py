"""What answers mean, and what a call says."""

from __future__ import annotations

import pytest

from dueline.engine.headers import pack_headers
from dueline.engine.job import BodyKind, Item, LeasedJob
from dueline.engine.push_target import PushTarget, PushTopic
from dueline.push.courier import DONE, Outcome, Verdict
from dueline.push.delivery import is_well
from dueline.push.http_couriers import body_of, headers_of
from dueline.push.verdict import judged, retry_after_ms

from .push_kit import answer

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


def leased_job(**words: object) -> LeasedJob:
    fields: dict[str, object] = {
        "id": "j",
        "topic": "t",
        "body": b'{"a":1}',
        "kind": BodyKind.JSON,
        "headers": b"",
        "tags": (),
        "attempt": 2,
        "delivery": 3,
        "max_attempts": 10,
        "lease": "token",
        "lease_until_ms": 9,
        "due_at_ms": 5,
        "created_at_ms": 4,
        "late_ms": 0,
    }
    return LeasedJob(**{**fields, **words})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("status", "success", "outcome"),
    [
        (200, (), Outcome.DONE),
        (299, (), Outcome.DONE),
        (199, (), Outcome.RETRY),
        (300, (), Outcome.RETRY),
        (302, (), Outcome.RETRY),
        (400, (), Outcome.RETRY),
        (404, (), Outcome.RETRY),
        (410, (), Outcome.DEAD),
        (410, (410,), Outcome.DONE),
        (429, (), Outcome.RETRY),
        (500, (), Outcome.RETRY),
        (201, (200,), Outcome.RETRY),
        (200, (200,), Outcome.DONE),
    ],
)
def test_a_status_means_done_dead_or_again(status: int, success: tuple[int, ...], outcome: Outcome) -> None:
    assert judged(success, answer(status), NOW_MS).outcome is outcome


def test_an_abort_header_counts_on_a_failure_and_its_text_is_kept() -> None:
    assert judged((), answer(200, dueline_abort="x"), NOW_MS) == DONE
    verdict = judged((), answer(503, dueline_abort="no such customer", retry_after="5"), NOW_MS)
    assert verdict == Verdict(Outcome.DEAD, "answered 503, Dueline-Abort: no such customer")


@pytest.mark.parametrize(
    ("text", "delay_ms"),
    [
        (None, None),
        ("0", None),
        ("1", 1_000),
        (" 120 ", 120_000),
        ("86400", DAY_MS),
        ("86401", DAY_MS),
        ("9" * 4000, DAY_MS),
        ("-1", None),
        ("1.5", None),
        ("٣", None),
        ("soon", None),
        ("", None),
        ("Tue, 14 Nov 2023 22:13:30 GMT", 10_000),
        ("Tuesday, 14-Nov-23 22:13:30 GMT", 10_000),
        ("Tue Nov 14 22:13:30 2023", 10_000),
        ("Tue, 14 Nov 2023 22:13:30 +0000", 10_000),
        ("Mon, 13 Nov 2023 22:13:30 GMT", None),
        ("Fri, 14 Nov 2053 22:13:30 GMT", DAY_MS),
        ("Fri, 14 Nov 99999 22:13:30 GMT", None),
        ("Fri, 99 Nov 2023 22:13:30 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date_to_come_and_nonsense_is_none(text: str | None, delay_ms: int | None) -> None:
    assert retry_after_ms(text, NOW_MS) == delay_ms


@pytest.mark.parametrize(
    ("status", "well"), [(None, None), (0, False), (200, True), (404, True), (408, False), (429, False), (500, False)]
)
def test_what_a_call_says_about_its_host(status: int | None, well: bool | None) -> None:
    assert is_well(status) is well


def test_a_group_goes_as_one_json_array_in_its_order() -> None:
    items = (
        Item(b'{"n": 1}', BodyKind.JSON),
        Item('say "hä"'.encode(), BodyKind.TEXT),
        Item(b"\x00\xff", BodyKind.BYTES),
    )
    group = leased_job(body=b"", items=items, merge_key="k")
    assert body_of(group) == ('[{"n": 1},"say \\"hä\\"",{"body_base64":"AP8="}]'.encode(), "application/json")
    verbatim = leased_job(body=b"", items=items[:2], merge_key="k")
    assert body_of(verbatim, verbatim=True) == ('[{"n": 1},say "hä"]'.encode(), "application/json")


def test_the_headers_say_whose_call_it_is_and_nobody_can_forge_them() -> None:
    job = leased_job(
        id="größe 1%",
        headers=pack_headers(
            (
                ("X-Own", "job"),
                ("X-Both", "job"),
                ("Authorization", "job"),
                ("Dueline-Topic", "forged"),
                ("webhook-id", "forged"),
                ("Host", "forged"),
            )
        ),
    )
    target = PushTarget(url="https://x.test", headers=(("X-Both", "target"), ("Authorization", "target")))
    headers = headers_of(PushTopic("ns", "t", 1, target), job, "application/json", b"body", NOW_MS)
    assert [name for name, _ in headers if name.lower() == "webhook-signature"] == []
    assert [(name, value) for name, value in headers if name != "webhook-id"] == [
        ("X-Both", "target"),
        ("Authorization", "target"),
        ("X-Own", "job"),
        ("Content-Type", "application/json"),
        ("Dueline-Topic", "t"),
        ("Dueline-Job-Id", "gr%C3%B6%C3%9Fe%201%25"),
        ("Dueline-Attempt", "2"),
        ("Dueline-Delivery", "3"),
        ("Dueline-Due-At-Ms", "5"),
        ("webhook-timestamp", "1700000000"),
    ]


def test_a_content_type_of_the_job_or_of_the_target_counts() -> None:
    job = leased_job(headers=pack_headers((("content-type", "application/cloudevents+json"),)))
    push_topic = PushTopic("ns", "t", 1, PushTarget(url="https://x.test"))
    headers = dict(headers_of(push_topic, job, "application/json", b"", NOW_MS))
    assert headers["content-type"] == "application/cloudevents+json"
    assert "Content-Type" not in headers

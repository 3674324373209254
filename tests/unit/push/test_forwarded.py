"""Which headers go out."""

from __future__ import annotations

import pytest

from dueline.engine.errors import BadRequest, InvalidField, TooManyItems
from dueline.push.header_rules import check_target_headers, forwarded, travels

FRAMING = [
    "Host",
    "Content-Length",
    "Transfer-Encoding",
    "Connection",
    "Keep-Alive",
    "Proxy-Connection",
    "Proxy-Authorization",
    "Proxy-Authenticate",
    "TE",
    "Trailer",
    "Upgrade",
    "Expect",
    "HTTP2-Settings",
]


@pytest.mark.parametrize("name", [*FRAMING, *(name.lower() for name in FRAMING), "Webhook-Id", "dueline-attempt"])
def test_a_target_cannot_set_what_frames_the_message_or_is_ours(name: str) -> None:
    with pytest.raises(InvalidField) as refused:
        check_target_headers([("X-Fine", "1"), (name, "1")])
    assert refused.value.field == f"headers.{name}"


@pytest.mark.parametrize("value", ["a\r\nX-B: c", "a\nb", "a\rb", "a\0b", "\x7f", "\ud800"])
def test_a_target_cannot_break_a_header_in_two(value: str) -> None:
    with pytest.raises(InvalidField) as refused:
        check_target_headers([("X-A", value)])
    assert refused.value.field == "headers.X-A"


@pytest.mark.parametrize("name", ["", "X A", "X:A", "X-Ä", "X\r\nY", "X\0"])
def test_a_name_that_is_no_token_is_refused(name: str) -> None:
    with pytest.raises(InvalidField) as refused:
        check_target_headers([(name, "1")])
    assert refused.value.field in (f"headers.{name}", "headers")


@pytest.mark.parametrize(
    ("headers", "error", "field"),
    [
        ([(f"X-{n}", "1") for n in range(33)], TooManyItems, "headers"),
        ([("X-Big", "x" * 8192)], InvalidField, "headers"),
        ([("X-A", "1"), ("x-a", "2")], InvalidField, "headers.x-a"),
    ],
)
def test_too_many_too_large_and_twice_are_refused(
    headers: list[tuple[str, str]], error: type[BadRequest], field: str
) -> None:
    with pytest.raises(error) as refused:
        check_target_headers(headers)
    assert refused.value.field == field


def test_a_target_has_its_own_secrets() -> None:
    headers = (("Authorization", "Bearer x"), ("Cookie", "a=b"), ("X-Api-Key", "é\tk"), ("User-Agent", "me"))
    assert check_target_headers(headers) == headers
    assert check_target_headers([(f"X-{n}", "1") for n in range(32)])


@pytest.mark.parametrize(
    "name", ["X-Order", "x-request-id", "Traceparent", "tracestate", "Content-Type", "ce-type", "Dueline-Dead-Reason"]
)
def test_what_is_made_for_travelling_travels(name: str) -> None:
    assert travels(name)


@pytest.mark.parametrize(
    "name",
    [
        *FRAMING,
        "Authorization",
        "Cookie",
        "Set-Cookie",
        "Origin",
        "Referer",
        "Forwarded",
        "Via",
        "Range",
        "Accept-Encoding",
        "User-Agent",
        "webhook-signature",
        "Dueline-Url",
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Real-IP",
        "X-HTTP-Method-Override",
        "X-Original-URL",
        "Metadata-Flavor",
        "X-aws-ec2-metadata-token",
    ],
)
def test_what_a_receiver_trusts_a_sender_by_stays_at_home(name: str) -> None:
    assert not travels(name)


def test_a_call_has_the_headers_of_its_target_and_those_of_the_job_that_travel() -> None:
    target = (("Authorization", "Bearer target"), ("X-Env", "prod"))
    job = (
        ("authorization", "Bearer job"),
        ("x-env", "job"),
        ("X-Order", "7"),
        ("x-order", "8"),
        ("Host", "evil"),
        ("X-Broken", "1\r\nX-Injected: 2"),
        ("Traceparent", "00-1-2-01"),
    )
    assert forwarded(job, target) == (*target, ("X-Order", "7"), ("Traceparent", "00-1-2-01"))
    assert forwarded(()) == ()

"""How jobs look to a person."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from dueline import Job, LeasedJob


def leased_job(**payload: Any) -> LeasedJob:
    return LeasedJob(
        id="a", topic="t", attempt=1, delivery=1, lease="l", lease_until_ms=9, due_at_ms=7, created_at_ms=6, **payload
    )


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        ({"body": Raw(b'{"order":7}')}, 'body={"order":7}'),
        ({"body_base64": "AAE="}, r"body=b'\x00\x01'"),
        ({"items": (Raw(b"1"), Raw(b'"b"'))}, 'items=[1,"b"]'),
        ({"body": Raw('"é"'.encode())}, 'body="é"'),
        ({"body": Raw(b'"a\n\x1b"')}, r'body="a\n\x1b"'),
        ({"body": Raw(b'"\xff"')}, r'body="\xff"'),
    ],
)
def test_a_job_shows_its_body(payload: dict[str, Any], shown: str) -> None:
    assert repr(leased_job(**payload)) == (
        f"LeasedJob(id='a', topic='t', {shown}, attempt=1, delivery=1, lease='l', lease_until_ms=9, due_at_ms=7, "
        "created_at_ms=6)"
    )


def test_a_long_body_is_cut_and_its_size_is_shown() -> None:
    text = repr(leased_job(body=Raw(b'"' + b"x" * 1_000_000 + b'"')))
    assert 'body="' + "x" * 199 + "... (1000002 bytes)," in text
    assert len(text) < 500


def test_a_job_without_a_body_shows_none() -> None:
    job = Job(id="a", topic="t", state="done", due_at_ms=7, created_at_ms=6, tags=("x",))
    assert repr(job) == "Job(id='a', topic='t', state='done', due_at_ms=7, created_at_ms=6, tags=('x',))"

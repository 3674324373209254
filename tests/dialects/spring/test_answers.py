"""Every refusal as Spring Boot's error object: status, word, reason, path; and when to come again."""

from __future__ import annotations

import json

import pytest

from dueline.dialects.http import Request
from dueline.dialects.spring.encode import failed
from dueline.engine import errors

from .kit import refused

REQUEST = Request("POST", "/job/add", "", {}, b"")


@pytest.mark.parametrize(
    ("error", "status", "word", "again"),
    [
        (errors.BadJson("m"), 400, "Bad Request", None),
        (errors.Unauthorized("m"), 401, "Unauthorized", None),
        (errors.Forbidden("m"), 403, "Forbidden", None),
        (errors.NoRoute("m"), 404, "Not Found", None),
        (errors.MethodNotAllowed("m"), 405, "Method Not Allowed", None),
        (errors.Conflict("m"), 409, "Conflict", None),
        (errors.BodyTooLarge("m"), 413, "Payload Too Large", None),
        (errors.UnsupportedMediaType("m"), 415, "Unsupported Media Type", None),
        (errors.RateLimited("m"), 429, "Too Many Requests", None),
        (errors.StoreDown("m"), 503, "Service Unavailable", "1"),
        (errors.Loading("m"), 503, "Service Unavailable", "1"),
        (errors.Draining("m"), 503, "Service Unavailable", "1"),
        (errors.UnknownOutcome("m"), 503, "Service Unavailable", "1"),
        (errors.StoreFull("m"), 507, "Insufficient Storage", None),
    ],
)
def test_a_refusal_is_an_error_object(error: errors.DuelineError, status: int, word: str, again: str | None) -> None:
    answer = failed(REQUEST, error)
    assert (answer.status, json.loads(answer.body), answer.content_type, dict(answer.headers).get("retry-after")) == (
        status,
        refused(status, word, "m"),
        "application/json",
        again,
    )

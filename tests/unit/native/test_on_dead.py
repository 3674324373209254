"""Where a topic's dead jobs go, in the native API: bytes in, bytes out."""

from __future__ import annotations

from typing import Any

import pytest

from dueline.testing.timer import settled

from .kit import Api, assert_error

T = "/v1/topics/t"


@pytest.mark.parametrize("on_dead", [{"topic": "failed"}, {"url": "https://example.com/dead"}])
def test_it_is_shown_as_it_was_set(api: Api, on_dead: dict[str, str]) -> None:
    assert api.put(T, {"on_dead": on_dead}).json["policy"]["on_dead"] == on_dead
    assert api.get(T).json["policy"]["on_dead"] == on_dead
    assert api.put(T, {"on_dead": {"topic": None, "url": None, **on_dead}}).json["policy"]["on_dead"] == on_dead
    assert api.put(T, {"on_dead": None}).json["policy"]["on_dead"] is None


@pytest.mark.parametrize(
    ("asked", "code", "field"),
    [
        ({"on_dead": {}}, "invalid_field", "on_dead"),
        ({"on_dead": {"topic": "x", "url": "https://example.com"}}, "invalid_field", "on_dead"),
        ({"on_dead": "failed"}, "invalid_field", "on_dead"),
        ({"on_dead": {"topic": "t"}}, "invalid_field", "on_dead.topic"),
        ({"on_dead": {"topic": "a b"}}, "invalid_field", "on_dead.topic"),
        ({"on_dead": {"topic": "dueline.on-dead"}}, "invalid_field", "on_dead.topic"),
        ({"on_dead": {"url": "ftp://example.com"}}, "invalid_field", "on_dead.url"),
        ({"on_dead": {"url": "https://example.com/" + "x" * 2048}}, "invalid_field", "on_dead.url"),
        ({"on_dead": {"queue": "x"}}, "unknown_field", "on_dead.queue"),
        ({"on_dead": {"topic": "x"}, "dead_retain_ms": 1000}, "invalid_field", "dead_retain_ms"),
    ],
)
def test_what_cannot_be_is_refused_and_sets_nothing(api: Api, asked: Any, code: str, field: str) -> None:
    assert_error(api.put(T, asked), 400, code, field)
    assert_error(api.get(T), 404, "not_found")


def test_a_discarded_job_is_found_in_the_other_topic(api: Api) -> None:
    api.put(T, {"on_dead": {"topic": "x"}})
    lease = api.lease("a", tags=["red"], headers={"X-Trace": "7"})
    api.post(T + "/release", {"jobs": [{"id": "a", "lease": lease, "discard": True, "error": "no"}]})
    api.run(settled())
    [job] = api.post("/v1/topics/x/pull", {}).json["jobs"]
    assert (job["body"], job["tags"]) == ({"n": 1}, ["red"])
    assert job["headers"] == {
        "X-Trace": "7",
        "Dueline-Dead-Topic": "t",
        "Dueline-Dead-Id": "a",
        "Dueline-Dead-Hops": "1",
        "Dueline-Dead-Reason": "rejected",
        "Dueline-Dead-Error": "no",
    }
    assert api.get(T + "/dead").json["jobs"] == []

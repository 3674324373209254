"""Merge groups in the native API: requests in, answers out, byte for byte."""

from __future__ import annotations

from typing import Any

import pytest

from dueline.engine.errors import UnknownOutcome

from .kit import JOB_FIELDS, LEASED_FIELDS, START_MS, Api, Reply, assert_error, assert_refusal
from .test_topics import DEFAULTS

T = "/v1/topics/t"
JOBS = T + "/jobs"


def add(api: Api, body: Any, key: str = "k", time: dict[str, Any] | None = None, **merge: Any) -> Reply:
    return api.post(JOBS, {"body": body, "merge": {"key": key, **merge}, **(time or {})})


def test_the_send_that_opens_a_group_is_created_and_the_next_ones_are_appended(api: Api) -> None:
    opened = add(api, 1, quiet_ms=500)
    group = opened.json["id"]
    expected = {
        "id": group,
        "topic": "t",
        "result": "created",
        "state": "scheduled",
        "due_at_ms": START_MS + 500,
        "version": opened.json["version"],
        "items_count": 1,
    }
    assert opened == (201, expected)
    assert add(api, 2, quiet_ms=700, item_id="i2") == (
        200,
        {**expected, "result": "appended", "due_at_ms": START_MS + 700, "items_count": 2},
    )
    kept = {**expected, "result": "kept", "due_at_ms": START_MS + 700, "items_count": 2}
    assert add(api, "not this", quiet_ms=900, item_id="i2") == (200, kept)


def test_items_come_back_as_they_were_sent(api: Api) -> None:
    """JSON byte for byte, text as a string, bytes as an object with their base64."""
    for body in (b'{"a" : 1.50,"\\u00e9":[ ]}', b'"x"', b"null", b"18446744073709551615"):
        assert api.raw("POST", JOBS, b'{"delay":"5s","merge":{"key":"k"},"body":' + body + b"}").status in (200, 201)
    group = api.post(JOBS, {"body_base64": "AP8=", "merge": {"key": "k"}}).json["id"]
    items = b'"items":[{"a" : 1.50,"\\u00e9":[ ]},"x",null,18446744073709551615,{"body_base64":"AP8="}]'
    read = api.job(group)
    assert items in read.body
    assert set(read.json) == JOB_FIELDS | {"items"}
    assert (read.json["merge_key"], read.json["state"]) == ("k", "scheduled")
    assert "items" not in api.get(JOBS).json["jobs"][0]
    assert items in api.get(JOBS + "?body=1").body
    assert items in api.get(JOBS + "?merge_key=k&body=1").body
    api.clock.advance(5_000)
    leased = api.post(T + "/pull", {"max": 10})
    [job] = leased.json["jobs"]
    assert items in leased.body
    assert set(job) == LEASED_FIELDS | {"items"}
    assert (job["id"], job["merge_key"], job["attempt"]) == (group, "k", 1)
    api.post(T + "/release", {"jobs": [{"id": group, "lease": job["lease"], "discard": True}]})
    assert items in api.get(T + "/dead").body


def test_a_group_that_is_done_has_no_items_any_more(api: Api) -> None:
    group = add(api, 1).json["id"]
    [job] = api.pull()
    api.post(T + "/ack", {"jobs": [{"id": group, "lease": job["lease"]}]})
    read = api.job(group)
    assert set(read.json) == JOB_FIELDS | {"items"}
    assert (read.json["state"], read.json["items"], read.json["merge_key"]) == ("done", None, "k")


def test_an_update_decides_whose_fixed_time_counts(api: Api) -> None:
    assert add(api, 1, time={"delay": "10s"}).json["due_at_ms"] == START_MS + 10_000
    assert add(api, 2, time={"delay": "5s"}).json["due_at_ms"] == START_MS + 10_000
    assert add(api, 3, time={"delay": "5s"}, update="always").json["due_at_ms"] == START_MS + 5_000
    late = {"at_ms": START_MS + 60_000}
    assert add(api, 4, time=late, update="always").json["due_at_ms"] == START_MS + 60_000
    capped = add(api, 1, "capped", late, max_wait_ms=20_000)
    assert capped.json["due_at_ms"] == START_MS + 20_000


def test_a_topic_gives_its_groups_their_defaults_and_shows_them(api: Api) -> None:
    merge = {"quiet_ms": 1_000, "max_wait_ms": 3_000, "max_items": 2, "update": "always"}
    made = api.put(T, {"merge": merge})
    assert (made.status, made.json["policy"]) == (201, {**DEFAULTS, "merge": merge})
    assert add(api, 1).json["due_at_ms"] == START_MS + 1_000
    assert add(api, 2).json == {**add_result(api), "items_count": 2}
    part = api.put(T, {"merge": {"quiet_ms": 5}})
    assert part.json["policy"]["merge"] == {"quiet_ms": 5, "max_wait_ms": None, "max_items": None, "update": None}
    assert api.put(T, {}).json["policy"] == DEFAULTS


def add_result(api: Api) -> dict[str, Any]:
    """SENT of the one group that is there, as an append that made it due now."""
    [job] = api.get(JOBS).json["jobs"]
    return {
        "id": job["id"],
        "topic": "t",
        "result": "appended",
        "state": "ready",
        "due_at_ms": START_MS,
        "version": job["version"],
    }


@pytest.mark.parametrize(
    ("merge", "code", "field"),
    [
        ({"key": "k"}, "unknown_field", "merge.key"),
        ({"quiet_ms": -1}, "invalid_field", "merge.quiet_ms"),
        ({"max_wait_ms": 316224000001}, "invalid_field", "merge.max_wait_ms"),
        ({"max_items": 1001}, "invalid_field", "merge.max_items"),
        ({"update": "x"}, "invalid_field", "merge.update"),
        ("k", "invalid_field", "merge"),
    ],
)
def test_a_topic_that_says_what_no_group_can_be_is_refused(api: Api, merge: Any, code: str, field: str) -> None:
    assert_error(api.put(T, {"merge": merge}), 400, code, field)
    assert_error(api.get(T), 404, "not_found")


def test_many_may_mix_plain_jobs_and_items_in_order(api: Api) -> None:
    merge = {"key": "k", "quiet_ms": 50}
    reply = api.post(JOBS, [{"body": 1, "merge": merge}, {"id": "p", "body": 2}, {"body": 3, "merge": merge}])
    assert reply.status == 201
    rows = reply.json["results"]
    assert [(row["result"], row["items_count"]) for row in rows] == [("created", 1), ("created", None), ("appended", 2)]
    assert rows[0]["id"] == rows[2]["id"]
    assert api.job(rows[0]["id"]).json["items"] == [1, 3]


def test_an_unknown_outcome_carries_the_item_id(api: Api) -> None:
    real = api.store.send

    async def unanswering(*call: Any) -> Any:
        await real(*call)
        raise UnknownOutcome

    api.store.send = unanswering  # type: ignore[method-assign]
    named, unnamed = add(api, 1, item_id="i1", quiet_ms=50), add(api, 2, quiet_ms=50)
    assert_error(named, 503, "unknown_outcome")
    assert_error(unnamed, 503, "unknown_outcome")
    assert (named.json["id"], unnamed.json["id"]) == ("i1", None)
    merge = {"key": "k", "item_id": "i3"}
    many = api.post(JOBS, [{"body": 3, "merge": merge}, {"body": 4, "merge": {"key": "k"}}])
    assert many.status == 503
    assert [row["id"] for row in many.json["results"]] == ["i3", None]
    for row in many.json["results"]:
        assert_refusal(row["error"], 503, "unknown_outcome")
    api.store.send = real  # type: ignore[method-assign]
    again = add(api, 1, item_id="i1", quiet_ms=50)
    assert (again.status, again.json["result"], again.json["items_count"]) == (200, "kept", 4)


def test_a_key_cancels_its_groups_but_the_leased_ones(api: Api) -> None:
    leased = add(api, 1, max_items=1).json["id"]
    [job] = api.pull()
    opened = add(api, 2, quiet_ms=50).json["id"]
    dry = api.post(T + "/cancel", {"merge_key": "k", "dry_run": True})
    assert dry == (200, {"matched": 2, "cancelled": 0, "dry_run": True})
    assert api.post(T + "/cancel", {"merge_key": "k"}) == (200, {"matched": 2, "cancelled": 1, "dry_run": False})
    assert [api.job(id).json["state"] for id in (leased, opened)] == ["leased", "cancelled"]
    assert api.post(T + "/cancel", {"merge_key": "k"}) == (200, {"matched": 1, "cancelled": 0, "dry_run": False})
    acked = api.post(T + "/ack", {"jobs": [{"id": leased, "lease": job["lease"]}]})
    assert acked.json == {"results": [{"id": leased, "result": "acked"}]}


def test_a_key_stands_alone_in_a_cancel_and_in_a_list(api: Api) -> None:
    for more in ({"ids": ["a"]}, {"filter": {}}):
        assert_error(api.post(T + "/cancel", {"merge_key": "k", **more}), 400, "invalid_field", "merge_key")
    for query in ("state=ready", "tag=x", "due_after_ms=1", "due_before_ms=1"):
        assert_error(api.get(f"{JOBS}?merge_key=k&{query}"), 400, "invalid_field", "merge_key")
    for call in (api.post(T + "/cancel", {"merge_key": ""}), api.get(JOBS + "?merge_key=")):
        assert_error(call, 400, "invalid_field", "merge_key")


def test_the_items_of_a_group_are_not_patched_but_its_time_is(api: Api) -> None:
    group = add(api, 1, quiet_ms=50).json["id"]
    for body in ({"body": 2}, {"body_base64": "AA=="}):
        assert_error(api.patch(f"{JOBS}/{group}", body), 400, "invalid_field", "body")
    patched = api.patch(f"{JOBS}/{group}", {"delay": "5s", "headers": {"a": "b"}})
    assert (patched.status, patched.json["items"]) == (200, [1])
    assert (patched.json["due_at_ms"], patched.json["headers"]) == (START_MS + 5_000, {"a": "b"})
    assert add(api, 2, quiet_ms=9).json["items_count"] == 2


def test_a_failed_group_gives_its_items_to_the_open_one_in_front(api: Api) -> None:
    failed = add(api, 1).json["id"]
    [job] = api.pull()
    opened = add(api, 2, quiet_ms=60_000).json["id"]
    reply = api.post(T + "/release", {"jobs": [{"id": failed, "lease": job["lease"], "error": "down"}]})
    assert reply == (200, {"results": [{"id": failed, "result": "released", "due_at_ms": START_MS + 60_000}]})
    assert api.job(opened).json["items"] == [1, 2]
    gone = api.job(failed).json
    assert (gone["state"], gone["items"]) == ("cancelled", None)
    assert opened in gone["last_error"]

"""Schedules in the native API: bytes in, bytes out. When their jobs come is tested in tests/unit/testing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from dueline.dialects.http import Request
from dueline.engine.schedule import ScheduleView
from dueline.engine.schedules import Schedules
from dueline.rights import Grant, Right

from .kit import JSON, START_MS, Api, Reply, assert_error

S = "/v1/schedules/daily"
STAY = "no further occurrence is sent; jobs that were already sent stay"
NINE = {"topic": "reports", "cron": "0 9 * * MON-FRI", "tz": "Europe/Madrid", "job": {"body": {"n": 1}}}
HOURLY = {"topic": "reports", "every": "1h", "job": {"body": 1}}
HOUR_MS = 3_600_000
MONDAY_NINE_MS = START_MS + 3 * 86_400_000  # the clock starts on a Friday at 09:00 in Madrid
WHOLE = {
    "topic": "reports",
    "every": "90m",
    "starts_at_ms": START_MS + 5,
    "ends_at_ms": START_MS + 100 * HOUR_MS,
    "jitter_ms": 500,
    "misfire": "all",
    "overlap": "skip",
    "paused": True,
    "owner": "billing",
    "job": {
        "body_base64": "AAE=",
        "headers": {"X-From": "schedule"},
        "tags": ["a", "b"],
        "retry": {"ladder": ["1m", "2m"]},
        "max_attempts": None,
        "ttl_ms": 60_000,
        "lease_ms": 5_000,
    },
}


def put(api: Api, name: str = "daily", **fields: Any) -> Any:
    reply = api.put(f"/v1/schedules/{name}", {**HOURLY, **fields})
    assert reply.status in (200, 201), reply
    return reply.json


def test_a_schedule_is_answered_with_its_defaults_and_its_next_occurrence(api: Api) -> None:
    reply = api.put(S, NINE)
    assert reply == (
        201,
        {
            "name": "daily",
            **NINE,
            "every": None,
            "starts_at_ms": None,
            "ends_at_ms": None,
            "jitter_ms": 0,
            "misfire": "latest",
            "overlap": "allow",
            "paused": False,
            "owner": None,
            "job": {"body": {"n": 1}, "tags": [], "headers": {}},
            "version": reply.json["version"],
            "next_at_ms": MONDAY_NINE_MS,
            "last_at_ms": None,
            "last_job": None,
            "last_error": None,
            "missed_count": 0,
        },
    )
    assert api.get(S) == (200, reply.json)
    assert api.get("/v1/schedules") == (200, {"schedules": [reply.json], "next_cursor": None})


def test_every_field_comes_back_as_it_was_written(api: Api) -> None:
    api.put(S, WHOLE)
    shown = api.get(S).json
    assert {name: shown[name] for name in WHOLE} == WHOLE
    assert (shown["cron"], shown["tz"], shown["next_at_ms"]) == (None, None, None)


def test_a_put_replaces_the_whole_schedule(api: Api) -> None:
    first = api.put(S, WHOLE).json
    second = api.put(S, HOURLY)
    assert (second.status, second.json["misfire"], second.json["paused"]) == (200, "latest", False)
    assert second.json["version"] > first["version"]
    assert second.json["next_at_ms"] == START_MS - START_MS % HOUR_MS + HOUR_MS


def test_a_version_that_does_not_match_changes_nothing_and_the_current_one_is_told(api: Api) -> None:
    version = put(api)["version"]
    before = api.get(S).json
    reply = api.put(S, {**NINE, "version": version + 5})
    assert_error(reply, 409, "version_mismatch", "version")
    assert reply.json["version"] == version
    assert api.get(S).json == before
    assert_error(api.put(S, {**NINE, "version": 0}), 409, "version_mismatch", "version")
    assert api.put(S, {**NINE, "version": version}).status == 200


def test_a_version_of_zero_only_makes_a_new_one(api: Api) -> None:
    assert api.put(S, {**NINE, "version": 0}).status == 201
    missing = api.put("/v1/schedules/other", {**NINE, "version": 3})
    assert_error(missing, 409, "version_mismatch", "version")
    assert missing.json["version"] == 0
    assert_error(api.get("/v1/schedules/other"), 404, "not_found")


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "no time": ({"cron": None}, "missing_field", "cron"),
    "two times": ({"every": "1h"}, "invalid_field", "every"),
    "wrong cron": ({"cron": "61 * * * *"}, "invalid_field", "cron"),
    "never": ({"cron": "0 0 30 2 *"}, "invalid_field", "cron"),
    "wrong zone": ({"tz": "Mars/Olympus"}, "invalid_field", "tz"),
    "zone of an interval": ({"cron": None, "every": "1h"}, "invalid_field", "tz"),
    "too often": ({"cron": None, "tz": None, "every": "10ms"}, "invalid_field", "every"),
    "no duration": ({"cron": None, "tz": None, "every": "soon"}, "invalid_field", "every"),
    "end before start": ({"starts_at_ms": 5, "ends_at_ms": 4}, "invalid_field", "ends_at_ms"),
    "nothing between start and end": ({"starts_at_ms": 5, "ends_at_ms": 6}, "invalid_field", "ends_at_ms"),
    "nothing before the end": ({"cron": "0 0 1 2 *", "ends_at_ms": 9}, "invalid_field", "ends_at_ms"),
    "nothing after the start": ({"starts_at_ms": 2**53 - 1}, "invalid_field", "starts_at_ms"),
    "no interval after the start": (
        {"cron": None, "tz": None, "every": "1h", "starts_at_ms": 2**53 - 1},
        "invalid_field",
        "starts_at_ms",
    ),
    "negative": ({"starts_at_ms": -1}, "invalid_field", "starts_at_ms"),
    "jitter": ({"jitter_ms": 86_400_001}, "invalid_field", "jitter_ms"),
    "misfire": ({"misfire": "some"}, "invalid_field", "misfire"),
    "overlap": ({"overlap": "queue"}, "invalid_field", "overlap"),
    "topic": ({"topic": "no topic"}, "invalid_field", "topic"),
    "owner": ({"owner": "a b"}, "invalid_field", "owner"),
    "unknown": ({"timezone": "UTC"}, "unknown_field", "timezone"),
    "no body": ({"job": {}}, "missing_field", "job.body"),
    "two bodies": ({"job": {"body": 1, "body_base64": "AA=="}}, "invalid_field", "job.body_base64"),
    "id": ({"job": {"body": 1, "id": "x"}}, "unknown_field", "job.id"),
    "delay": ({"job": {"body": 1, "delay": "1s"}}, "unknown_field", "job.delay"),
    "retry": ({"job": {"body": 1, "retry": {"ladder": ["soon"]}}}, "invalid_field", "job.retry.ladder[0]"),
    "tags": ({"job": {"body": 1, "tags": ["a", "a"]}}, "invalid_field", "job.tags"),
    "attempts": ({"job": {"body": 1, "max_attempts": 10_001}}, "invalid_field", "job.max_attempts"),
    "no job": ({"job": None}, "invalid_field", "job"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_schedule_is_refused_by_the_name_of_its_field_and_nothing_is_stored(api: Api, name: str) -> None:
    fields, code, field = WRONG[name]
    assert_error(api.put(S, {**NINE, **fields}), 400, code, field)
    assert_error(api.get(S), 404, "not_found")
    assert api.get("/v1/schedules") == (200, {"schedules": [], "next_cursor": None})


@pytest.mark.parametrize("name", WRONG)
def test_a_preview_refuses_what_a_put_refuses(api: Api, name: str) -> None:
    fields, code, field = WRONG[name]
    assert_error(api.post(S + "/next", {**NINE, **fields}), 400, code, field)


def test_a_schedule_whose_end_has_passed_is_accepted_and_has_ended(api: Api) -> None:
    """The code of a worker may still declare it."""
    answer = api.put(S, {**NINE, "ends_at_ms": START_MS - 86_400_000})
    assert (answer.status, answer.json["next_at_ms"], answer.json["missed_count"]) == (201, None, 0)
    assert api.get(f"{S}/next") == (200, {"next": []})


def test_a_body_that_is_too_large_is_refused(api: Api) -> None:
    assert_error(api.put(S, {**NINE, "job": {"body": "x" * 300_000}}), 413, "body_too_large", "job.body")


@pytest.mark.parametrize("name", ["a%20b", "a%2Fb", "x" * 129, "%00"])
def test_a_name_is_plain(api: Api, name: str) -> None:
    assert_error(api.put(f"/v1/schedules/{name}", NINE), 400, "invalid_field", "name")


def test_the_next_occurrences_are_listed(api: Api) -> None:
    put(api)
    first_ms = START_MS - START_MS % HOUR_MS + HOUR_MS
    assert api.get(S + "/next?count=3") == (200, {"next": [first_ms + n * HOUR_MS for n in range(3)]})
    assert len(api.get(S + "/next").json["next"]) == 10
    for count in ("0", "101", "x"):
        assert_error(api.get(f"{S}/next?count={count}"), 400, "invalid_field", "count")


def test_a_preview_lists_the_occurrences_of_a_schedule_that_is_not_stored(api: Api) -> None:
    first_ms = START_MS - START_MS % HOUR_MS + HOUR_MS
    hourly = {"topic": "t", "every": "1h", "job": {"body": 1}}
    assert api.post(S + "/next", hourly) == (200, {"next": [first_ms + n * HOUR_MS for n in range(10)]})
    assert_error(api.get(S), 404, "not_found")
    put(api)
    before = api.get(S).json
    assert api.post(S + "/next", {**hourly, "ends_at_ms": first_ms + 1}) == (200, {"next": [first_ms]})
    assert api.get(S).json == before
    assert_error(api.post(S + "/next", {**hourly, "cron": "@daily"}), 400, "invalid_field", "every")
    assert_error(api.post(S + "/next", {**hourly, "job": {"body": "x" * 300_000}}), 413, "body_too_large", "job.body")


def test_pause_and_resume_are_idempotent(api: Api) -> None:
    put(api)
    for _ in range(2):
        paused = api.post(S + "/pause")
        assert (paused.status, paused.json["paused"], paused.json["next_at_ms"]) == (200, True, None)
        assert paused.json["note"] == STAY
    for _ in range(2):
        resumed = api.post(S + "/resume")
        assert (resumed.status, resumed.json["paused"]) == (200, False)
        assert resumed.json["next_at_ms"] is not None


def test_a_run_sends_one_job_now_and_leaves_the_occurrences_alone(api: Api) -> None:
    before = put(api, job={"body": {"n": 7}, "tags": ["x"]})
    reply = api.post(S + "/run")
    id = f"daily@run-{START_MS}"
    assert (reply.status, reply.json["id"], reply.json["topic"]) == (201, id, "reports")
    job = api.get(f"/v1/topics/reports/jobs/{id}").json
    assert (job["body"], job["tags"], job["state"]) == ({"n": 7}, ["x"], "ready")
    assert api.get(S).json == before


def test_a_paused_schedule_can_be_run(api: Api) -> None:
    before = put(api, paused=True)
    assert (api.post(S + "/run").status, api.get(S).json) == (201, before)
    assert len(api.get(S + "/next?count=2").json["next"]) == 2


def test_a_deleted_schedule_is_gone(api: Api) -> None:
    put(api)
    assert api.delete(S) == (200, {"name": "daily", "result": "deleted", "note": STAY})
    for reply in (api.get(S), api.delete(S), api.post(S + "/run"), api.post(S + "/pause"), api.get(S + "/next")):
        assert_error(reply, 404, "not_found")
    assert put(api)["missed_count"] == 0


def test_schedules_are_listed_page_by_page(api: Api) -> None:
    names = [f"s{n}" for n in range(5)]
    for name in names:
        put(api, name)
    found, cursor = [], ""
    while cursor is not None:
        page = api.get(f"/v1/schedules?limit=2&cursor={cursor}").json
        found += [one["name"] for one in page["schedules"]]
        cursor = page["next_cursor"]
    assert sorted(found) == names
    assert_error(api.get("/v1/schedules?cursor=%25%25"), 400, "invalid_field", "cursor")


def test_namespaces_do_not_share_schedules(api: Api) -> None:
    put(api)
    assert api.get("/v1/schedules", **{"dueline-namespace": "other"}) == (200, {"schedules": [], "next_cursor": None})


SOME = Grant(frozenset({Right.MANAGE, Right.READ}), "default", ("a-*",), token_id="k1")


def as_caller(api: Api, method: str, target: str, body: Any = None, grant: Grant = SOME) -> Reply:
    found = api.router.find(method, target)
    content = b"" if body is None else json.dumps(body).encode()
    request = Request(method, target, "", JSON, content, found.params, grant)
    return Reply(api.run(api.router.respond(found, request)))


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", S, None),
        ("DELETE", S, None),
        ("GET", S + "/next", None),
        ("POST", S + "/run", None),
        ("POST", S + "/pause", None),
        ("POST", S + "/resume", None),
        ("PUT", S, {**HOURLY, "topic": "a-x"}),  # it would take the schedule away from its topic
        ("PUT", "/v1/schedules/new", HOURLY),
        ("POST", "/v1/schedules/new/next", HOURLY),
    ],
)
def test_a_token_for_some_topics_neither_sees_nor_changes_schedules_of_others(
    api: Api, method: str, path: str, body: Any
) -> None:
    before = put(api)
    assert_error(as_caller(api, method, path, body), 403, "forbidden", "topic")
    assert api.get("/v1/schedules").json["schedules"] == [before]
    assert as_caller(api, "GET", "/v1/schedules") == (200, {"schedules": [], "next_cursor": None})


def test_a_token_for_some_topics_manages_its_own_schedules(api: Api) -> None:
    put(api)
    own = "/v1/schedules/own"
    made = as_caller(api, "PUT", own, {**HOURLY, "topic": "a-x"})
    assert made.status == 201
    assert as_caller(api, "PUT", own, {**HOURLY, "topic": "a-y"}).status == 200
    statuses = [as_caller(api, "POST", f"{own}/{verb}").status for verb in ("run", "pause", "resume")]
    assert statuses == [201, 200, 200]
    version = api.get(own).json["version"]
    wrong = as_caller(api, "PUT", own, {**MINE, "version": version + 1})
    assert_error(wrong, 409, "version_mismatch", "version")
    assert wrong.json["version"] == version
    assert as_caller(api, "PUT", own, {**MINE, "version": version}).status == 200
    assert [one["name"] for one in as_caller(api, "GET", "/v1/schedules").json["schedules"]] == ["own"]
    assert as_caller(api, "DELETE", own).status == 200


MINE = {**HOURLY, "topic": "a-x"}


@pytest.mark.parametrize(
    ("method", "path", "ahead"),
    [
        ("DELETE", "", None),
        ("POST", "/run", None),
        ("POST", "/pause", None),
        ("POST", "/resume", None),
        ("PUT", "", None),
        ("PUT", "", 0),
        ("PUT", "", 1),  # the caller guesses the version that the schedule has after it was moved
    ],
)
def test_nobody_moves_a_schedule_away_between_the_check_of_its_topic_and_the_change(
    api: Api, monkeypatch: pytest.MonkeyPatch, method: str, path: str, ahead: int | None
) -> None:
    own = "/v1/schedules/own"
    version = as_caller(api, "PUT", own, MINE).json["version"]
    body = None if method != "PUT" else MINE if ahead is None else {**MINE, "version": version + ahead}
    get = Schedules.get

    async def moved_after_get(schedules: Schedules, namespace: str, name: str) -> ScheduleView:
        view = await get(schedules, namespace, name)
        await schedules.put(namespace, name, replace(view.schedule, topic="b"), None)
        return view

    monkeypatch.setattr(Schedules, "get", moved_after_get)
    refused = as_caller(api, method, own + path, body)
    assert_error(refused, 409, "version_mismatch", "version")
    monkeypatch.undo()
    assert api.get(own).json["topic"] == "b"
    assert api.get("/v1/topics/b").json["counts"]["ready"] == 0

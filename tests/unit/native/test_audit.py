"""What the audit log says about calls of the native API, and who may read it."""

from __future__ import annotations

from typing import Any

import pytest

from dueline.api.operations import OPERATIONS
from dueline.dialects.http import NotGranted, Request
from dueline.engine.errors import BodyTooLarge, DuelineError, Forbidden, RateLimited, StoreDown, Unauthorized
from dueline.rights import Grant, Right

from .kit import JSON, START_MS, Api, Reply, assert_error

T = "/v1/topics/t"
READER = Grant(frozenset({Right.READ}), "mine", token_id="k7", name="reports")
ADMIN = Grant(frozenset({Right.ADMIN}), "mine", token_id="k8", name="boss")


def entries(api: Api, query: str = "") -> list[dict[str, Any]]:
    """The log, newest first."""
    reply = api.get(f"/v1/audit?{query}" if query else "/v1/audit")
    assert reply.status == 200, reply
    return reply.json["entries"]


def newest(api: Api) -> dict[str, Any]:
    return entries(api)[0]


def as_caller(api: Api, grant: Grant, method: str, target: str, headers: dict[str, str] = JSON) -> Reply:
    path, _, query = target.partition("?")
    found = api.router.find(method, path)
    request = Request(method, path, query, headers, b"", found.params, grant, "192.0.2.7")
    return Reply(api.run(api.router.respond(found, request)))


def test_an_entry_says_who_did_what_where_and_with_which_result(api: Api) -> None:
    api.clock.advance(5)
    as_caller(api, Grant(frozenset({Right.ADMIN}), token_id="k1", name="deploy"), "POST", T + "/pause")
    [entry] = entries(api)
    assert entry == {
        "id": entry["id"],
        "at_ms": START_MS + 5,
        "who": "k1",
        "who_name": "deploy",
        "address": "192.0.2.7",
        "namespace": "default",
        "action": "pause",
        "topic": "t",
        "details": {},
        "status": 200,
        "code": None,
        "server": "",
    }


DETAILS: dict[str, tuple[str, str, Any, dict[str, Any]]] = {
    "pause": ("POST", T + "/pause", {"until_ms": START_MS + 9}, {"until_ms": START_MS + 9}),
    "resume": ("POST", T + "/resume", {}, {}),
    "cancel": ("DELETE", T + "/jobs/a", None, {"ids": ["a"], "ids_count": 1}),
    "cancel_jobs": ("POST", T + "/cancel", {"ids": ["a", "no"]}, {"ids": ["a", "no"], "ids_count": 2, "changed": 1}),
    "cancel_jobs by filter": (
        *("POST", T + "/cancel", {"filter": {"tag": "x"}, "dry_run": True}),
        {"filter": {"tag": "x"}, "dry_run": True, "matched": 1, "changed": 0},
    ),
    "cancel_jobs by key": (
        *("POST", T + "/cancel", {"merge_key": "k"}),
        {"merge_key": "k", "matched": 0, "changed": 0},
    ),
    "revive": (
        *("POST", T + "/dead/revive", {"filter": {}, "delay_ms": 5}),
        {"filter": {}, "delay_ms": 5, "matched": 1, "changed": 1},
    ),
    "purge": (
        *("POST", T + "/dead/purge", {"ids": ["gone"]}),
        {"ids": ["gone"], "ids_count": 1, "changed": 1},
    ),
    "put_topic": (
        *("PUT", T, {"lease_ms": 5, "on_dead": {"url": "http://127.0.0.9/secret"}}),
        {"fields": ["lease_ms", "on_dead"]},
    ),
    "put_schedule": (
        *("PUT", "/v1/schedules/s", {"topic": "t", "every": "1h", "job": {"body": "secret"}}),
        {"ids": ["s"], "ids_count": 1, "fields": ["topic", "job", "every"]},
    ),
    "put_push": (
        *("PUT", T + "/push", {"url": "http://127.0.0.9:81/x?k=1", "headers": {"Authorization": "Bearer abcdefgh"}}),
        {"fields": ["url", "headers"], "origin": "http://127.0.0.9:81"},
    ),
}


@pytest.mark.parametrize("name", DETAILS)
def test_details_say_what_was_asked_for_and_what_was_changed(api: Api, name: str) -> None:
    lease = api.lease("gone")
    api.post(T + "/release", {"jobs": [{"id": "gone", "lease": lease, "discard": True}]})
    api.send("a", tags=["x"])
    method, target, body, details = DETAILS[name]
    reply = api.delete(target) if body is None else api.put(target, body) if method == "PUT" else api.post(target, body)
    assert reply.status in (200, 201), reply
    [entry] = entries(api)
    assert (entry["action"], entry["topic"], entry["details"]) == (name.split(" ")[0], "t", details)


REFUSALS: dict[str, tuple[str, str, Any, int, str, dict[str, Any]]] = {
    "missing": ("DELETE", T + "/jobs/no", None, 404, "not_found", {"ids": ["no"], "ids_count": 1}),
    "not JSON": ("POST", T + "/cancel", b"{", 400, "bad_json", {}),
    "not empty": ("DELETE", T, None, 409, "topic_not_empty", {}),
    "all items": (
        *("POST", T + "/dead/revive", b'{"ids":["x"]}', 404, "not_found"),
        {"ids": ["x"], "ids_count": 1, "changed": 0},
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_call_that_failed_is_in_the_log(api: Api, name: str) -> None:
    api.send("a")
    method, target, body, status, code, details = REFUSALS[name]
    assert_error(api.raw(method, target, body or b""), status, code, results="changed" in details)
    [entry] = entries(api)
    assert (entry["status"], entry["code"], entry["details"]) == (status, code, details)


def test_no_more_than_twenty_ids_are_listed(api: Api) -> None:
    api.post(T + "/cancel", {"ids": [f"j{n}" for n in range(40)]})
    details = newest(api)["details"]
    assert (details["ids"], details["ids_count"]) == ([f"j{n}" for n in range(20)], 40)


def test_a_token_in_a_path_is_not_stored(api: Api) -> None:
    secret = "dl_k1_" + "s" * 43
    api.delete(f"{T}/jobs/{secret}")
    assert newest(api)["details"]["ids"] == ["dl_k1_***"]


def test_every_changing_operation_is_audited_except_those_of_a_jobs_normal_life() -> None:
    changing = {one.name for one in OPERATIONS if one.method != "GET"}
    normal = {"send", "patch", "fire", "pull", "pull_topics", "ack", "release", "extend"}
    normal.add("preview_schedule")  # changes nothing
    normal |= {"put_worker", "stop_worker"}
    assert {one.name for one in OPERATIONS if one.audited} == changing - normal


def test_sends_and_reads_are_not_in_the_log(api: Api) -> None:
    lease = api.lease("a")
    api.post(T + "/ack", {"jobs": [{"id": "a", "lease": lease}]})
    api.get(T)
    assert entries(api) == []


async def refuse(
    api: Api, method: str, target: str, grant: Grant, *errors: DuelineError, namespace: str = "mine"
) -> list[int]:
    """Refuse a call at its head, before a body is read, as a front does. Returns the statuses."""
    found = api.router.find(method, target)
    request = Request(method, target, "", {"dueline-namespace": namespace}, b"", found.params, grant, "192.0.2.7")
    statuses = [api.router.failed(found, request, error).status for error in errors]
    await api.engine.audit.stop()
    return statuses


def test_a_call_that_its_token_does_not_allow_is_in_the_log(api: Api) -> None:
    assert api.run(refuse(api, "DELETE", T, READER, NotGranted("no", READER))) == [403]
    [entry] = entries(api)
    assert (entry["who"], entry["who_name"], entry["namespace"]) == ("k7", "reports", "mine")
    assert (entry["action"], entry["status"], entry["code"]) == ("delete_topic", 403, "forbidden")


def test_a_call_refused_at_its_head_is_in_the_log_with_what_its_path_names(api: Api) -> None:
    api.run(refuse(api, "DELETE", T + "/jobs/a", READER, NotGranted("no", READER)))
    [entry] = entries(api)
    assert (entry["topic"], entry["details"]) == ("t", {"ids": ["a"], "ids_count": 1})


def test_a_refused_call_about_another_namespace_is_in_the_log_of_the_tokens_own(api: Api) -> None:
    api.run(refuse(api, "DELETE", T, READER, NotGranted("no", READER), namespace="theirs"))
    [entry] = entries(api)
    assert (entry["namespace"], entry["details"]) == ("mine", {"wanted_namespace": "theirs"})


@pytest.mark.parametrize("namespace", ["mine", None])
def test_a_secret_as_the_name_of_a_namespace_or_a_token_is_not_stored(api: Api, namespace: str | None) -> None:
    secret = "dl_k1_" + "s" * 43
    grant = Grant(frozenset({Right.READ}), namespace, token_id="k7", name=f"my {secret}")
    api.run(refuse(api, "DELETE", T, grant, NotGranted("no", grant), namespace=secret))
    [entry] = entries(api)
    assert entry["who_name"] == "my dl_k1_***"
    masked = ("mine", {"wanted_namespace": "dl_k1_***"}) if namespace else ("dl_k1_***", {})
    assert (entry["namespace"], entry["details"]) == masked


def test_a_body_that_is_too_large_is_in_the_log_and_an_unknown_caller_is_not(api: Api) -> None:
    errors = Unauthorized(), Forbidden("this address"), RateLimited(), StoreDown(), BodyTooLarge()
    assert api.run(refuse(api, "POST", T + "/cancel", READER, *errors)) == [401, 403, 429, 503, 413]
    assert [entry["code"] for entry in entries(api)] == ["body_too_large"]


def test_the_log_is_read_in_pages_and_by_filter(api: Api) -> None:
    for _ in range(3):
        api.post(T + "/pause")
        api.post(T + "/resume", namespace="other")
    assert [one["action"] for one in entries(api, "namespace=other")] == ["resume"] * 3
    assert [one["action"] for one in entries(api, "action=pause&who=")] == ["pause"] * 3
    assert entries(api, "who=k1") == entries(api, f"since_ms={START_MS + 1}") == []
    first = api.get("/v1/audit?limit=4").json
    rest = entries(api, f"cursor={first['next_cursor']}")
    assert [one["id"] for one in [*first["entries"], *rest]] == [one["id"] for one in entries(api)]


@pytest.mark.parametrize(
    ("query", "field"),
    [("cursor=x%25", "cursor"), ("since_ms=soon", "since_ms"), ("limit=0", "limit"), ("color=red", "color")],
)
def test_a_wrong_query_is_refused(api: Api, query: str, field: str) -> None:
    reply = api.get(f"/v1/audit?{query}")
    assert (reply.status, reply.json["error"]["field"]) == (400, field)


def test_a_token_of_one_namespace_sees_the_calls_in_it_only(api: Api) -> None:
    api.post(T + "/pause", namespace="mine")
    api.post(T + "/pause", namespace="other")
    seen = as_caller(api, ADMIN, "GET", "/v1/audit").json["entries"]
    assert [one["namespace"] for one in seen] == ["mine"]
    assert as_caller(api, ADMIN, "GET", "/v1/audit?namespace=mine").json["entries"] == seen
    assert_error(as_caller(api, ADMIN, "GET", "/v1/audit?namespace=other"), 403, "forbidden")


def test_a_token_for_some_topics_may_not_read_the_log(api: Api) -> None:
    some = Grant(frozenset({Right.ADMIN}), topics=("t*",))
    assert_error(as_caller(api, some, "GET", "/v1/audit"), 403, "forbidden")

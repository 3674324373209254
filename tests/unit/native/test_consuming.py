"""Pull, ack, release, extend: what a consumer does."""

from __future__ import annotations

import asyncio
import json

import pytest

from dueline.engine.commands import Send
from dueline.engine.job import BodyKind

from .kit import LEASED_FIELDS, START_MS, Api, assert_error, assert_refusal, until

T = "/v1/topics/t"


def jobs(*pairs: tuple[str, str], **fields: object) -> dict[str, object]:
    return {"jobs": [{"id": id, "lease": lease, **fields} for id, lease in pairs]}


def test_a_pulled_job_is_leased(api: Api) -> None:
    api.send(tags=["x"], headers={"A": "b"})
    [leased] = api.pull()
    lease = leased.pop("lease")
    assert isinstance(lease, str)
    assert leased == {
        "id": "a",
        "topic": "t",
        "body": {"n": 1},
        "attempt": 1,
        "delivery": 1,
        "max_attempts": 20,
        "lease_until_ms": START_MS + 30_000,
        "due_at_ms": START_MS,
        "created_at_ms": START_MS,
        "tags": ["x"],
        "headers": {"A": "b"},
        "merge_key": None,
    }
    assert {*leased, "lease"} - {"body"} == LEASED_FIELDS
    assert api.pull() == []


def test_a_pull_without_a_body_takes_one(api: Api) -> None:
    api.send("a")
    api.send("b")
    assert len(api.post(T + "/pull").json["jobs"]) == 1
    assert len(api.post(T + "/pull", {}).json["jobs"]) == 1
    assert api.post(T + "/pull") == (200, {"jobs": []})


def test_the_lease_is_the_pulls_else_the_jobs_else_the_topics(api: Api) -> None:
    api.put(T, {"lease_ms": 3000})
    api.send("a", lease_ms=2000)
    api.send("b")
    api.send("c")
    first = api.pull(max=1)[0]
    second = api.pull(max=1)[0]
    third = api.pull(max=1, lease_ms=1000)[0]
    assert [job["lease_until_ms"] - START_MS for job in (first, second, third)] == [2000, 3000, 1000]


def test_text_and_bytes_are_shown_as_what_they_are(api: Api) -> None:
    api.run(api.engine.send("default", "t", Send("x", 'say "hé"'.encode(), BodyKind.TEXT)))
    api.run(api.engine.send("default", "t", Send("y", b"\x00\xff", BodyKind.BYTES)))
    text, data = api.pull()
    assert text["body"] == 'say "hé"'
    assert data["body_base64"] == "AP8="
    assert "body" not in data


def test_a_pull_over_more_partitions_than_it_can_ask_is_refused(api: Api) -> None:
    for topic in ("a", "b", "c"):
        assert api.put(f"/v1/topics/{topic}", {"partitions": 1024}).status in (200, 201)
    assert api.post("/v1/pull", {"topics": ["a", "b"]}).status == 200
    reply = api.post("/v1/pull", {"topics": ["a", "b", "c"]})
    assert_error(reply, 400, "invalid_field", "topics")
    assert reply.json["error"]["message"] == (
        "have 3072 partitions in total; one pull takes at most 2048: name fewer topics"
    )
    assert api.post("/v1/pull", {"topics": [f"t{n}" for n in range(100)]}).status == 200


def test_several_topics_are_pulled_in_order_of_priority(api: Api) -> None:
    for topic in ("low", "high"):
        api.post(f"/v1/topics/{topic}/jobs", {"id": topic, "body": 1})
    reply = api.post("/v1/pull", {"topics": ["high", "low"], "max": 2})
    assert [(job["id"], job["topic"]) for job in reply.json["jobs"]] == [("high", "high"), ("low", "low")]
    assert_error(api.post("/v1/pull", {}), 400, "missing_field", "topics")
    assert_error(api.post("/v1/pull", {"topics": []}), 400, "invalid_field", "topics")
    assert_error(api.post("/v1/pull", {"topics": ["a", "a"]}), 400, "invalid_field", "topics")


async def test_a_waiting_pull_gets_what_is_sent_meanwhile(api: Api) -> None:
    waiting = asyncio.create_task(api.ask("POST", T + "/pull", b'{"wait_ms":60000}'))
    await until(lambda: api.engine.waiters > 0)
    await api.ask("POST", T + "/jobs", b'{"id":"a","body":1}')
    assert [job["id"] for job in (await waiting).json["jobs"]] == ["a"]


async def test_a_cancelled_wait_leaves_no_lease_behind(api: Api) -> None:
    waiting = asyncio.create_task(api.ask("POST", T + "/pull", b'{"wait_ms":60000}'))
    await until(lambda: api.engine.waiters > 0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await api.ask("POST", T + "/jobs", b'{"id":"a","body":1}')
    assert [job["attempt"] for job in (await api.ask("POST", T + "/pull")).json["jobs"]] == [1]


async def test_an_answer_that_was_not_delivered_gives_its_jobs_back_at_no_cost(api: Api) -> None:
    await api.ask("POST", T + "/jobs", b'{"id":"a","body":1}')
    tasks = len(asyncio.all_tasks())
    reply = await api.ask("POST", T + "/pull")
    assert reply.undelivered is not None
    reply.undelivered()
    await until(lambda: len(asyncio.all_tasks()) == tasks)
    [leased] = (await api.ask("POST", T + "/pull")).json["jobs"]
    assert (leased["attempt"], leased["delivery"]) == (1, 2)


def test_an_empty_answer_has_nothing_to_give_back(api: Api) -> None:
    assert api.post(T + "/pull").undelivered is None


def test_an_ack_ends_the_job_and_may_be_repeated(api: Api) -> None:
    lease = api.lease()
    for _ in range(2):
        assert api.post(T + "/ack", jobs(("a", lease))) == (200, {"results": [{"id": "a", "result": "acked"}]})
    assert api.job().json["state"] == "done"


def test_a_pull_acks_jobs_first_and_may_be_repeated(api: Api) -> None:
    for id in "abc":
        api.send(id)
    [first] = api.pull(max=1)
    ack = [{"id": "a", "lease": first["lease"]}, {"id": "a", "lease": "stale"}]
    answer = api.post(T + "/pull", {"ack": ack}).json
    assert [job["id"] for job in answer["jobs"]] == ["b"]
    assert answer["acked"][0] == {"id": "a", "result": "acked"}
    assert_refusal(answer["acked"][1]["error"], 409, "lease_lost")
    assert api.job().json["state"] == "done"
    again = api.post(T + "/pull", {"ack": ack[:1]}).json
    assert (again["acked"], again["jobs"][0]["id"]) == ([{"id": "a", "result": "acked"}], "c")


async def test_a_pull_that_waits_has_acked_before_it_waits(api: Api) -> None:
    await api.ask("POST", T + "/jobs", b'{"id":"a","body":1}')
    [leased] = (await api.ask("POST", T + "/pull")).json["jobs"]
    body = {"wait_ms": 60_000, "ack": [{"id": "a", "lease": leased["lease"]}]}
    waiting = asyncio.create_task(api.ask("POST", T + "/pull", json.dumps(body).encode()))
    await until(lambda: api.engine.waiters > 0)
    assert (await api.ask("GET", T + "/jobs/a")).json["state"] == "done"
    await api.ask("POST", T + "/jobs", b'{"id":"b","body":1}')
    answer = (await waiting).json
    assert [job["id"] for job in answer["jobs"]] == ["b"]
    assert answer["acked"] == [{"id": "a", "result": "acked"}]


def test_a_pull_with_a_malformed_ack_leases_nothing(api: Api) -> None:
    api.send("b")
    assert_error(api.post(T + "/pull", {"ack": [{"id": "", "lease": "x"}]}), 400, "invalid_field", "ack[0].id")
    assert len(api.pull()) == 1


def test_acks_are_answered_one_by_one(api: Api) -> None:
    lease = api.lease()
    reply = api.post(T + "/ack", jobs(("a", lease), ("nope", "x"), ("a", "stale")))
    assert reply.status == 200
    acked, missing, stale = reply.json["results"]
    assert acked == {"id": "a", "result": "acked"}
    assert_refusal(missing["error"], 404, "not_found")
    assert_refusal(stale["error"], 409, "lease_lost")


@pytest.mark.parametrize("call", ["ack", "release", "extend"])
def test_a_stale_lease_changes_nothing(api: Api, call: str) -> None:
    stale = api.lease(lease_ms=1000)
    api.clock.advance(1001)
    [leased] = api.pull()
    before = api.job().json
    extra = {"lease_ms": 1} if call == "extend" else {}
    reply = api.post(f"{T}/{call}", jobs(("a", stale), **extra))
    assert_error(reply, 409, "lease_lost", results=True)
    assert reply.json["results"][0]["id"] == "a"
    assert api.job().json == before
    assert api.post(T + "/ack", jobs(("a", leased["lease"]))).status == 200


@pytest.mark.parametrize("call", ["ack", "release", "extend"])
def test_an_unknown_job_is_not_found(api: Api, call: str) -> None:
    extra = {"lease_ms": 1} if call == "extend" else {}
    assert_error(api.post(f"{T}/{call}", jobs(("nope", "x"), **extra)), 404, "not_found", results=True)


def test_a_released_job_is_due_again_now_or_after_a_delay(api: Api) -> None:
    lease = api.lease(retry="none")
    released = {"id": "a", "result": "released", "due_at_ms": START_MS}
    assert api.post(T + "/release", jobs(("a", lease), error="out of paper")) == (200, {"results": [released]})
    assert api.job().json["last_error"] == "out of paper"
    [leased] = api.pull()
    assert leased["attempt"] == 2
    released = {"id": "a", "result": "released", "due_at_ms": START_MS + 500}
    assert api.post(T + "/release", jobs(("a", leased["lease"]), delay_ms=500)) == (200, {"results": [released]})
    assert api.pull() == []


def test_a_release_that_does_not_count_costs_no_attempt(api: Api) -> None:
    lease = api.lease(max_attempts=1)
    given_back = jobs(("a", lease), count=False, delay_ms=0)
    assert api.post(T + "/release", given_back).json["results"][0]["result"] == "released"
    [leased] = api.pull()
    assert (leased["attempt"], leased["delivery"]) == (1, 2)


def test_a_release_without_attempts_left_or_with_discard_is_dead(api: Api) -> None:
    one, two = api.lease("a", max_attempts=1), api.lease("b")
    dead = [{"id": "a", "result": "dead", "reason": "exhausted"}, {"id": "b", "result": "dead", "reason": "rejected"}]
    body = {"jobs": [{"id": "a", "lease": one}, {"id": "b", "lease": two, "discard": True}]}
    assert api.post(T + "/release", body) == (200, {"results": dead})


def test_a_lease_can_be_extended(api: Api) -> None:
    lease = api.lease()
    extended = {"id": "a", "result": "extended", "lease_until_ms": START_MS + 90_000}
    assert api.post(T + "/extend", jobs(("a", lease), lease_ms=90_000)) == (200, {"results": [extended]})


def test_refusals_name_the_item_and_its_field(api: Api) -> None:
    assert_error(api.post(T + "/ack", {"jobs": [{"id": "a"}]}), 400, "missing_field", "jobs[0].lease")
    assert_error(api.post(T + "/ack", {"jobs": [{"id": "a", "lease": 1}]}), 400, "invalid_field", "jobs[0].lease")
    assert_error(api.post(T + "/ack", jobs(("a", "é"))), 400, "invalid_field", "jobs[0].lease")
    assert_error(api.post(T + "/ack", jobs(("a", "x"), ("", "x"))), 400, "invalid_field", "jobs[1].id")
    assert_error(api.post(T + "/extend", jobs(("a", "x"))), 400, "missing_field", "jobs[0].lease_ms")
    assert_error(api.post(T + "/extend", jobs(("a", "x"), lease_ms=0)), 400, "invalid_field", "jobs[0].lease_ms")
    assert_error(api.post(T + "/release", jobs(("a", "x"), delay_ms=-1)), 400, "invalid_field", "jobs[0].delay_ms")
    assert_error(api.post(T + "/ack", jobs(("a", "x"), nope=1)), 400, "unknown_field", "jobs[0].nope")
    assert_error(api.post(T + "/cancel", {"ids": ["a", ""]}), 400, "invalid_field", "ids[1]")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"max": 0}, "max"),
        ({"max": 1001}, "max"),
        ({"wait_ms": -1}, "wait_ms"),
        ({"wait_ms": 300_001}, "wait_ms"),
        ({"lease_ms": 0}, "lease_ms"),
        ({"lease_ms": 10**12}, "lease_ms"),
    ],
)
def test_a_pull_outside_its_limits_is_refused(api: Api, body: dict[str, int], field: str) -> None:
    assert_error(api.post(T + "/pull", body), 400, "invalid_field", field)

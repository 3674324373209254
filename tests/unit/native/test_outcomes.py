"""When the store fails: 503 says whether the call was certainly not done or nobody knows; 507 says full."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dueline.dialects.native import encode
from dueline.engine import errors
from dueline.engine.commands import Sent
from dueline.engine.job import State

from .kit import CODES, Api, Reply, assert_error, assert_refusal

JOBS = "/v1/topics/t/jobs"


def failing(error: errors.DuelineError) -> Callable[..., Any]:
    async def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def every_error() -> list[type[errors.DuelineError]]:
    found: list[type[errors.DuelineError]] = []
    todo = [errors.DuelineError]
    while todo:
        kind = todo.pop()
        found.append(kind)
        todo.extend(other for other in kind.__subclasses__() if other.__module__ == errors.__name__)
    return [kind for kind in found if kind.code != "internal"]


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_every_refusal_has_its_status_and_the_one_shape(kind: type[errors.DuelineError]) -> None:
    reply = Reply(encode.response(encode.refused(kind(field="x"))))
    status = next(status for status, codes in CODES.items() if kind.code in codes)
    assert_error(reply, status, kind.code, "x")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.StoreDown(), 503, "store_down"),
        (errors.Loading(), 503, "loading"),
        (errors.ClockStep(), 503, "store_down"),
        (errors.StoreFull(), 507, "store_full"),
        (errors.RateLimited(), 429, "rate_limited"),
    ],
    ids=lambda value: str(value),
)
def test_a_send_that_was_certainly_not_done_says_so(
    api: Api, error: errors.DuelineError, status: int, code: str
) -> None:
    api.store.send = failing(error)
    assert_error(api.post(JOBS, {"id": "a", "body": 1}), status, code)


def test_a_send_of_unknown_outcome_has_the_id_to_retry_with(api: Api) -> None:
    api.store.send = failing(errors.UnknownOutcome())
    reply = api.post(JOBS, {"id": "a", "body": 1})
    assert_error(reply, 503, "unknown_outcome")
    assert reply.json["id"] == "a"
    made = api.post(JOBS, {"body": 1})
    assert_error(made, 503, "unknown_outcome")
    assert len(made.json["id"]) == 32


def test_many_with_an_unknown_outcome_are_a_503_that_lists_what_is_certain() -> None:
    sent = Sent("a", "t", "created", State.READY, 1, 1)
    outcomes = [sent, errors.IdExists(), errors.UnknownOutcome()]
    reply = Reply(encode.response(encode.sent_many(["a", "b", "c"], outcomes)))
    assert_error(reply, 503, "unknown_outcome", results=True)
    assert "id" not in reply.json
    first, second, third = reply.json["results"]
    assert first["result"] == "created"
    assert_refusal(second["error"], 409, "id_exists")
    assert_refusal(third["error"], 503, "unknown_outcome")
    assert third["id"] == "c"


def test_many_of_which_one_succeeded_are_a_success() -> None:
    sent = Sent("b", "t", "kept", State.READY, 1, 1)
    reply = Reply(encode.response(encode.sent_many(["a", "b"], [errors.StoreDown(), sent])))
    assert reply.status == 201
    assert set(reply.json) == {"results"}
    assert_refusal(reply.json["results"][0]["error"], 503, "store_down")


def test_many_of_which_none_succeeded_have_the_status_of_the_first_error() -> None:
    reply = Reply(encode.response(encode.sent_many(["a", "b"], [errors.StoreFull(), errors.IdExists()])))
    assert_error(reply, 507, "store_full", results=True)


MANY: dict[str, tuple[str, str, Callable[[list[str]], dict[str, Any]]]] = {
    "ack": ("ack", "ack", lambda ids: {"jobs": [{"id": id, "lease": "x"} for id in ids]}),
    "release": ("release", "release", lambda ids: {"jobs": [{"id": id, "lease": "x"} for id in ids]}),
    "extend": ("extend", "extend", lambda ids: {"jobs": [{"id": id, "lease": "x", "lease_ms": 5} for id in ids]}),
    "cancel": ("cancel", "cancel", lambda ids: {"ids": ids}),
    "revive": ("dead/revive", "revive", lambda ids: {"ids": ids}),
    "purge": ("dead/purge", "purge", lambda ids: {"ids": ids}),
}


@pytest.mark.parametrize("name", MANY)
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.UnknownOutcome(), 503, "unknown_outcome"),
        (errors.StoreDown(), 503, "store_down"),
        (errors.StoreFull(), 507, "store_full"),
    ],
    ids=lambda value: str(value),
)
def test_many_in_one_store_call_that_fails_have_a_result_each(
    api: Api, name: str, error: errors.DuelineError, status: int, code: str
) -> None:
    path, operation, body = MANY[name]
    setattr(api.store, operation, failing(error))
    reply = api.post(f"/v1/topics/t/{path}", body(["a", "b"]))
    assert_error(reply, status, code, results=True)
    assert [result["id"] for result in reply.json["results"]] == ["a", "b"]
    for result in reply.json["results"]:
        assert_refusal(result["error"], status, code)


def test_a_malformed_item_of_many_refuses_the_call_without_results(api: Api) -> None:
    reply = api.post("/v1/topics/t/ack", {"jobs": [{"id": "a", "lease": "x"}, {"id": "", "lease": "x"}]})
    assert_error(reply, 400, "invalid_field", "jobs[1].id")


def acks_of_600(api: Api, *failures: errors.DuelineError | None) -> Reply:
    """600 jobs are sent, pulled and acked in two store calls, of which each may fail."""
    for start in (0, 300):
        jobs = [{"id": f"job{number}", "body": 1} for number in range(start, start + 300)]
        assert api.post(JOBS, jobs).status == 201
    jobs = api.pull(1000)
    real, wanted = api.store.ack, list(failures)

    async def ack(line: Any, refs: Any) -> Any:
        failure = wanted.pop(0)
        if failure is not None:
            raise failure
        return await real(line, refs)

    api.store.ack = ack
    return api.post("/v1/topics/t/ack", {"jobs": [{"id": job["id"], "lease": job["lease"]} for job in jobs]})


def test_an_ack_whose_second_store_call_was_certainly_not_done_is_a_success_that_lists_it(api: Api) -> None:
    reply = acks_of_600(api, None, errors.StoreDown())
    assert (reply.status, set(reply.json)) == (200, {"results"})
    results = reply.json["results"]
    assert [result.get("result") for result in results] == ["acked"] * 500 + [None] * 100
    for result in results[500:]:
        assert_refusal(result["error"], 503, "store_down")
    assert api.counts()["leased"] == 100


def test_an_ack_whose_first_store_call_is_unknown_lists_the_certain_results_of_the_second(api: Api) -> None:
    reply = acks_of_600(api, errors.UnknownOutcome(), None)
    assert_error(reply, 503, "unknown_outcome", results=True)
    results = reply.json["results"]
    assert [result.get("result") for result in results] == [None] * 500 + ["acked"] * 100
    for result in results[:500]:
        assert_refusal(result["error"], 503, "unknown_outcome")


def test_an_ack_of_which_no_store_call_was_done_has_the_status_of_the_first_error(api: Api) -> None:
    reply = acks_of_600(api, errors.StoreFull(), errors.StoreDown())
    assert_error(reply, 507, "store_full", results=True)
    codes = [result["error"]["code"] for result in reply.json["results"]]
    assert codes == ["store_full"] * 500 + ["store_down"] * 100


def test_a_cancel_of_unknown_outcome_has_the_id(api: Api) -> None:
    api.send()
    api.store.cancel = failing(errors.UnknownOutcome())
    reply = api.delete(JOBS + "/a")
    assert_error(reply, 503, "unknown_outcome")
    assert reply.json["id"] == "a"

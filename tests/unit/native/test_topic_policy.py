"""Who set which field of a topic's policy: operators by PUT, workers with "set_by": "worker"."""

from __future__ import annotations

import pytest

from .kit import Api, assert_error

T = "/v1/topics/t"
LADDER = {"ladder": ["1m", "10m"]}


def worker_sets(api: Api, **fields: object) -> dict[str, object]:
    return api.put(T, {"set_by": "worker", **fields}).json["policy"]


def test_a_worker_sets_what_is_unset_and_replaces_what_a_worker_set(api: Api) -> None:
    first = api.put(T, {"set_by": "worker", "retry": LADDER, "max_attempts": 5})
    assert (first.status, first.json["policy"]["by_worker"]) == (201, ["max_attempts", "retry"])
    policy = worker_sets(api, retry="none", ttl_ms=9)
    assert (policy["retry"], policy["max_attempts"], policy["ttl_ms"]) == ("none", 5, 9)
    assert policy["by_worker"] == ["max_attempts", "retry", "ttl_ms"]
    api.send()
    job = api.job().json
    assert (job["retry"], job["max_attempts"]) == ("none", 5)


def test_what_an_operator_set_stays_when_a_worker_says_something_else(api: Api) -> None:
    api.put(T, {"retry": "none", "max_attempts": 7})
    policy = worker_sets(api, retry=LADDER, max_attempts=5, lease_ms=1_000)
    assert (policy["retry"], policy["max_attempts"], policy["lease_ms"]) == ("none", 7, 1_000)
    assert policy["by_worker"] == ["lease_ms"]


def test_what_an_operator_puts_is_the_operators_unless_it_says_that_it_stays_a_workers(api: Api) -> None:
    policy = worker_sets(api, retry=LADDER, max_attempts=5)
    kept = api.put(T, {**policy, "lease_ms": 1_000}).json["policy"]
    assert kept == {**policy, "lease_ms": 1_000}
    taken = api.put(T, {**policy, "by_worker": ["retry"]}).json["policy"]
    assert taken["by_worker"] == ["retry"]
    assert worker_sets(api, retry="none", max_attempts=9) == {**taken, "retry": "none"}
    assert api.put(T, {"max_attempts": 5}).json["policy"]["by_worker"] == []


def test_a_policy_as_it_is_shown_can_be_put_back(api: Api) -> None:
    worker_sets(api, retry={"base_ms": 5}, max_attempts=5)
    shown = api.get(T).json
    again = api.put(T, {**shown["policy"], "version": shown["version"]}).json
    assert again == {**shown, "version": again["version"]}
    assert again["version"] > shown["version"]


def test_a_version_that_is_no_longer_the_topics_is_a_conflict_and_changes_nothing(api: Api) -> None:
    version = api.put(T, {"lease_ms": 5, "version": 0}).json["version"]
    newer = api.put(T, {"lease_ms": 6, "version": version}).json
    assert_error(api.put(T, {"lease_ms": 7, "version": version}), 409, "version_mismatch", "version")
    assert_error(api.put(T, {"lease_ms": 7, "version": 0}), 409, "version_mismatch", "version")
    assert api.get(T).json == newer


def test_a_worker_that_changes_nothing_writes_nothing(api: Api) -> None:
    first = api.put(T, {"set_by": "worker", "retry": LADDER}).json
    assert api.put(T, {"set_by": "worker", "retry": LADDER}).json == first
    assert api.put(T, {"set_by": "worker"}).json == first


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"set_by": "operator"}, "set_by"),
        ({"set_by": "worker", "retry": LADDER, "by_worker": ["retry"]}, "by_worker"),
        ({"by_worker": ["retry"]}, "by_worker"),
        ({"by_worker": ["by_worker"]}, "by_worker"),
        ({"by_worker": ["nothing"]}, "by_worker"),
        ({"version": -1}, "version"),
    ],
)
def test_an_owner_that_makes_no_sense_is_refused_and_sets_nothing(api: Api, body: object, field: str) -> None:
    assert_error(api.put(T, body), 400, "invalid_field", field)
    assert_error(api.get(T), 404, "not_found")

"""When a call is tried again, and what is raised when it is not: pure decisions."""

from __future__ import annotations

from typing import Any

import pytest

from dueline.api import answers as r
from dueline.client import Lease, Patience, calls, errors
from dueline.client.calls import Answer, Call
from dueline.client.errors import DuelineApiError, error_of
from dueline.client.patience import Tries

RELEASE = calls.release("t", Lease("a", "L"))
ONCE = Call("fire", r.Outcome, repeatable=False)
UNKNOWN = error_of("unknown_outcome", "m", id="a")


def tries(patience: Patience = Patience(), call: Call[Any] = RELEASE, timeout_s: float = 10) -> Tries:
    return Tries(patience, call, timeout_s)


def wait(error: DuelineApiError, call: Call[Any] = RELEASE, patience: Patience = Patience()) -> float | None:
    """The wait after a first try, without jitter; None when the error itself is raised."""
    try:
        return tries(patience, call).wait_s(error, 0, draw=0)
    except type(error) as raised:
        return None if raised is error else -1


@pytest.mark.parametrize("code", ["store_down", "loading", "draining", "rate_limited"])
def test_what_was_certainly_not_done_is_tried_again_whatever_it_is(code: str) -> None:
    assert wait(error_of(code, "m"), call=ONCE) == 0.1


def test_an_unknown_outcome_is_followed_only_by_a_call_that_may_be_done_twice() -> None:
    assert (wait(UNKNOWN), wait(UNKNOWN, call=ONCE)) == (0.1, None)


@pytest.mark.parametrize("code", ["invalid_field", "not_found", "lease_lost", "store_full", "internal", "unauthorized"])
def test_a_refusal_is_final(code: str) -> None:
    assert wait(error_of(code, "m")) is None


def test_a_refused_connection_is_final_only_where_a_person_waits() -> None:
    refused = errors.Unreachable("unreachable", "m")
    assert (wait(refused), wait(refused, patience=Patience(unreachable=False))) == (0.1, None)


def test_waits_double_up_to_the_most_and_end_before_the_deadline() -> None:
    down, waits = error_of("store_down", "m"), list[float]()
    these = tries(Patience(deadline_s=10, first_s=0.5, most_s=3))
    for _ in range(5):
        waits.append(these.wait_s(down, sum(waits), draw=0))
    assert waits == [0.5, 1, 2, 3, 3]
    with pytest.raises(errors.Unavailable):
        these.wait_s(down, sum(waits), draw=0)


def test_time_that_the_tries_took_counts_against_the_deadline() -> None:
    these = tries(Patience(deadline_s=10))
    assert these.wait_s(UNKNOWN, elapsed_s=9, draw=0) == 0.1
    with pytest.raises(errors.UnknownOutcome):
        these.wait_s(UNKNOWN, elapsed_s=9.9)


def test_jitter_makes_a_wait_shorter_by_its_part_at_most() -> None:
    down = error_of("store_down", "m")
    drawn = [tries(Patience(first_s=1, jitter=0.25)).wait_s(down, 0, draw) for draw in (0.0, 0.5, 1.0)]
    assert drawn == [1.0, 0.875, 0.75]


def test_a_retry_after_is_never_shortened_and_one_past_the_deadline_ends_the_call_at_once() -> None:
    error = error_of("draining", "m")
    error.retry_after_s = 2.0
    assert tries().wait_s(error, 0, draw=1.0) == 2.05
    error.retry_after_s = 3600.0
    assert wait(error) is None


@pytest.mark.parametrize("call", [RELEASE, calls.pull(["t"], wait_ms=60_000)], ids=["release", "waiting pull"])
@pytest.mark.parametrize("error", [error_of("store_down", "m"), UNKNOWN], ids=["refused", "unknown"])
def test_no_patience_is_one_try(call: Call[Any], error: DuelineApiError) -> None:
    assert wait(error, call, Patience(deadline_s=0)) is None


def test_the_first_try_has_its_whole_timeout_and_later_ones_what_is_left() -> None:
    these = tries(Patience(deadline_s=12), timeout_s=10)
    assert these.timeout_s(0) == 10
    these.wait_s(UNKNOWN, 10)
    assert these.timeout_s(11) == 1


def test_a_pull_that_waits_has_its_wait_on_top() -> None:
    these = tries(Patience(deadline_s=12), calls.pull(["t"], wait_ms=60_000), timeout_s=10)
    assert these.timeout_s(0) == 70
    these.wait_s(UNKNOWN, 70)
    assert these.timeout_s(71) == 1


@pytest.mark.parametrize("code", ["lease_lost", "not_found", "already_done", "job_leased", "unauthorized"])
def test_a_refusal_after_a_try_of_unknown_outcome_is_unknown(code: str) -> None:
    these, refusal = tries(), error_of(code, "refused")
    these.wait_s(UNKNOWN, 0)
    with pytest.raises(errors.UnknownOutcome) as caught:
        these.wait_s(refusal, 1)
    assert (caught.value.code, caught.value.id, caught.value.__cause__) == ("unknown_outcome", "a", refusal)


def test_when_the_last_try_was_certainly_not_done_an_earlier_one_may_have_been() -> None:
    these = tries(Patience(deadline_s=10))
    these.wait_s(UNKNOWN, 0)
    with pytest.raises(errors.UnknownOutcome):
        these.wait_s(errors.Unreachable("unreachable", "m"), 10)


@pytest.mark.parametrize("code", ["id_exists", "invalid_field"])
def test_a_refusal_that_every_try_meets_is_certain(code: str) -> None:
    these, refusal = tries(), error_of(code, "m")
    these.wait_s(UNKNOWN, 0)
    with pytest.raises(type(refusal)) as caught:
        these.wait_s(refusal, 1)
    assert caught.value is refusal


def test_a_read_has_no_unknown_outcome() -> None:
    these, refusal = tries(call=calls.get("t", "a")), error_of("not_found", "m")
    these.wait_s(UNKNOWN, 0)
    with pytest.raises(errors.NotFound):
        these.wait_s(refusal, 1)


def test_refused_items_after_a_try_of_unknown_outcome_are_unknown_and_done_ones_are_done() -> None:
    done, lost = r.Outcome("a", "released"), r.Outcome("b", error=r.Refusal("lease_lost", "m"))
    answer = Answer(r.Outcomes((done, lost)), b"", 200)
    these = tries()
    assert these.answered(answer) is answer
    these.wait_s(UNKNOWN, 0)
    first, second = these.answered(answer).value.results
    assert (first, second.id, second.error and second.error.code) == (done, "b", "unknown_outcome")


def test_no_try_is_begun_that_would_be_refused_only_after_the_deadline() -> None:
    """The server needs 4 s to say that its store is down: with 2 s left, one more try would end as a timeout, which
    hides the reason and makes the outcome unknown."""
    these, down = tries(Patience(deadline_s=10)), error_of("store_down", "no store")
    assert these.wait_s(down, elapsed_s=4, draw=0) == 0.1
    with pytest.raises(errors.Unavailable) as raised:
        these.wait_s(down, elapsed_s=8.1, draw=0)
    assert (raised.value is down, str(down)) == (True, "no store, after 2 tries in 8.1 s (store_down)")


def test_the_first_try_that_fails_is_logged_and_the_others_are_not(caplog: pytest.LogCaptureFixture) -> None:
    these = tries(Patience(deadline_s=10))
    with caplog.at_level("INFO", "dueline"):
        for elapsed_s in (0.0, 1.0, 2.0):
            these.wait_s(error_of("store_down", "no store"), elapsed_s, draw=0)
        wait(error_of("not_found", "no job"))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "no store (store_down); trying again for up to 10 s")
    ]

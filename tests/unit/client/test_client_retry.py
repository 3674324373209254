"""When a call is tried again: a pure decision."""

from __future__ import annotations

import pytest

from dueline.client import Retry, errors
from dueline.client.errors import error_of
from dueline.client.retry import NEVER, wait_before_retry


def wait(
    error: errors.DuelineApiError, repeatable: bool = True, retry: Retry = Retry(), waited_s: float = 0
) -> float | None:
    return wait_before_retry(retry, error, 1, waited_s, repeatable)


@pytest.mark.parametrize("code", ["store_down", "loading", "draining", "rate_limited"])
def test_what_was_certainly_not_done_is_tried_again_whatever_it_is(code: str) -> None:
    assert wait(error_of(code, "m"), repeatable=False) == 0.1


def test_an_unknown_outcome_is_followed_only_by_a_call_that_may_be_done_twice() -> None:
    assert (wait(error_of("unknown_outcome", "m")), wait(error_of("unknown_outcome", "m"), False)) == (0.1, None)


@pytest.mark.parametrize("code", ["invalid_field", "not_found", "lease_lost", "store_full", "internal", "unauthorized"])
def test_a_refusal_is_final(code: str) -> None:
    assert wait(error_of(code, "m")) is None


def test_a_refused_connection_is_final_only_where_a_person_waits() -> None:
    refused = errors.Unreachable("unreachable", "m")
    assert (wait(refused), wait(refused, retry=Retry(unreachable=False))) == (0.1, None)


def test_waits_double_up_to_the_most_and_end_with_the_budget() -> None:
    retry, down, waits = Retry(budget_s=10, first_s=0.5, most_s=3), error_of("store_down", "m"), list[float]()
    while (next_s := wait_before_retry(retry, down, len(waits) + 1, sum(waits), True)) is not None:
        waits.append(next_s)
    assert waits == [0.5, 1, 2, 3, 3]


def test_the_servers_retry_after_is_obeyed_up_to_the_most() -> None:
    error = error_of("draining", "m")
    error.retry_after_s = 2.0
    assert wait(error) == 2.0
    error.retry_after_s = 3600.0
    assert wait(error) == Retry().most_s


def test_never_means_never() -> None:
    assert wait(error_of("store_down", "m"), retry=NEVER) is None

"""Many jobs as few requests: steps without I/O."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from dueline.api import answers as r
from dueline.api.requests import Lease
from dueline.client import Leased, bulk, calls, errors, new_job
from dueline.client.calls import Call
from dueline.client.encoding import http_request


def done(call: Call[Any]) -> r.Outcomes:
    """An answer in which all jobs of a call are done."""
    return r.Outcomes(tuple(r.Outcome(job.id, f"{call.operation} {call.params[0]}") for job in call.request.jobs))


def run(steps: Any, answer: Any = done) -> tuple[Any, list[Call[Any]]]:
    """The result of steps whose calls are answered by `answer`, and the calls."""
    asked: list[Call[Any]] = []
    try:
        call = next(steps)
        while True:
            asked.append(call)
            try:
                value = answer(call)
            except errors.DuelineApiError as error:
                call = steps.throw(error)
            else:
                call = steps.send(value)
    except StopIteration as stop:
        return stop.value, asked


def counts(matched: int, dry_run: bool = False, **changed: Any) -> r.Bulk:
    return r.Bulk(matched=matched, dry_run=dry_run, **changed)


def sizes(items: list[Raw]) -> list[int]:
    return [len(piece) for piece in bulk.pieces(items)]


def test_pieces_have_at_most_a_thousand_jobs() -> None:
    assert sizes([Raw(b"1")] * 2500) == [1000, 1000, 500]
    assert sizes([]) == []


def test_pieces_are_as_large_as_a_server_takes_to_the_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 64
    monkeypatch.setattr(bulk, "MAX_REQUEST_BYTES", limit)
    for width in range(1, 70):
        items = [Raw(b"1" * width)] * 9
        requests = [len(http_request(calls.send_many("t", piece))[2] or b"") for piece in bulk.pieces(items)]
        if width + 2 <= limit:
            assert max(requests) <= limit < requests[0] + width + 1 or len(requests) == 1
        else:
            assert len(requests) == 9  # too large for any request: alone, so that its refusal is its own


def test_jobs_are_read_one_piece_at_a_time() -> None:
    made: list[int] = []

    def jobs() -> Any:
        for n in range(2500):
            made.append(n)
            yield new_job(n)

    steps = bulk.send_many("t", jobs())
    next(steps)
    assert len(made) == 1001


def test_leases_of_several_topics_are_asked_by_topic_and_answered_in_their_order() -> None:
    jobs = [Leased(topic, str(n), "L") for n, topic in enumerate("abcab")]
    results, asked = run(bulk.on_leases(jobs, calls.ack))
    assert [call.params for call in asked] == [("a",), ("b",), ("c",)]
    assert [(item.id, item.result) for item in results] == [(str(n), f"ack {topic}") for n, topic in enumerate("abcab")]


def test_a_request_that_fails_leaves_the_results_before_it_and_names_the_job_in_the_whole_list() -> None:
    jobs = [Leased("a", "0", "L"), Leased("b", "1", "L"), Leased("b", "2", "L"), Leased("a", "3", "L")]

    def answer(call: Call[Any]) -> r.Outcomes:
        if call.params == ("b",):
            raise errors.error_of("invalid_field", "m", "jobs[1].lease", 400)
        return done(call)

    with pytest.raises(errors.InvalidRequest) as caught:
        run(bulk.on_leases(jobs, calls.ack), answer)
    assert caught.value.field == "jobs[2].lease"
    assert [item.id for item in caught.value.results] == ["0", "3"]


def test_a_request_that_is_too_large_is_halved_until_it_fits_and_the_order_stays() -> None:
    def answer(call: Call[Any]) -> r.Outcomes:
        if len(call.request.jobs) > 2:
            raise errors.error_of("too_many_items", "m", "jobs", 400)
        return done(call)

    leases = [Lease(str(n), "L") for n in range(7)]
    results, asked = run(bulk.in_pieces(leases, lambda part: calls.ack("t", part)), answer)
    assert [item.id for item in results] == [lease.id for lease in leases]
    assert len(asked) == 7


def test_one_job_that_is_too_large_is_its_own_refusal_and_nothing_is_halved() -> None:
    def answer(call: Call[Any]) -> Any:
        raise errors.error_of("body_too_large", "m", "[1].body", 413)

    with pytest.raises(errors.InvalidRequest) as caught:
        run(bulk.send_many("t", [new_job(n) for n in range(4)]), answer)
    assert caught.value.field == "[1].body"


def test_a_call_by_filter_goes_on_until_it_is_complete_and_adds_up() -> None:
    answers = iter([counts(5, cancelled=4, complete=False), counts(3, cancelled=3)])
    total, asked = run(bulk.matching(lambda dry: calls.cancel_matching("t", {}, dry), False), lambda _: next(answers))
    assert (total, len(asked)) == (counts(8, cancelled=7), 2)


def test_a_call_by_filter_that_makes_no_progress_ends() -> None:
    stuck = counts(5, cancelled=0, complete=False)
    total, asked = run(bulk.matching(lambda dry: calls.cancel_matching("t", {}, dry), False), lambda _: stuck)
    assert (total.complete, len(asked)) == (False, 1)


def test_a_dry_run_is_one_call() -> None:
    counted = counts(5, dry_run=True, cancelled=0, complete=False)
    total, asked = run(bulk.matching(lambda dry: calls.cancel_matching("t", {}, dry), True), lambda _: counted)
    assert (total, len(asked)) == (counted, 1)

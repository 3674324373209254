"""What an ending means for a job, and how much of a traceback is kept."""

from __future__ import annotations

import pytest

from dueline.worker import Discard, Ending, Retry, Snooze, Verdict
from dueline.worker.outcomes import DONE, MAX_ERROR_BYTES, ChildDied, TimedOut, bounded, error_text, verdict_of, worst


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


@pytest.mark.parametrize("value", [None, 0, False, "text", {"a": 1}, Exception])
def test_a_handler_that_returns_anything_is_done(value: object) -> None:
    assert verdict_of(value) == DONE


def test_the_three_words_mean_the_same_raised_or_returned() -> None:
    for word in (Retry("later", delay="5m"), Snooze("1h", "not yet"), Discard("no such order")):
        assert verdict_of(word) == verdict_of(raised(word))
    assert verdict_of(retry := Retry("later", delay="5m")) == Verdict(Ending.FAILED, 300_000, "later", retry)
    assert verdict_of(snooze := Snooze("1h", "not yet")) == Verdict(Ending.SNOOZED, 3_600_000, "not yet", snooze)
    assert verdict_of(discard := Discard("gone")) == Verdict(Ending.DISCARDED, None, "gone", discard)
    assert verdict_of(bare := Retry()) == Verdict(Ending.FAILED, None, "the handler asked for a retry", bare)


def test_a_retry_from_an_error_keeps_the_traceback_of_that_error() -> None:
    verdict = verdict_of(raised(Retry(delay=1), raised(ValueError("no money"))))
    assert verdict.delay_ms == 1000
    assert verdict.error is not None
    assert verdict.error.endswith("ValueError: no money")
    assert "in raised" in verdict.error


@pytest.mark.parametrize("delay", ["soon", -1, float("nan")])
def test_a_delay_that_is_none_is_refused_where_it_is_written(delay: object) -> None:
    with pytest.raises(ValueError, match="delay"):
        Snooze(delay)  # type: ignore[arg-type]


def test_the_end_of_a_long_traceback_is_kept_and_a_character_is_never_cut() -> None:
    text = error_text(raised(ValueError("é" * 3000)))
    assert MAX_ERROR_BYTES - 2 <= len(text.encode()) <= MAX_ERROR_BYTES
    frame, cut, rest = text.split("\n")
    assert (frame, cut, set(rest)) == (f"{__file__}:13 in raised", "...", {"é"})
    assert bounded("short") == "short"
    assert bounded("lone \ud800") == "lone ?"


def test_the_workers_own_endings_are_stored_without_a_traceback() -> None:
    assert error_text(TimedOut("it did not end")) == "it did not end"
    assert error_text(ChildDied("killed")) == "killed"


def test_of_several_handlers_the_worst_ending_counts_and_the_first_of_its_kind() -> None:
    failed, snoozed = Verdict(Ending.FAILED, error="a"), Verdict(Ending.SNOOZED, 5)
    discarded = Verdict(Ending.DISCARDED)
    assert worst([DONE, snoozed, failed, Verdict(Ending.FAILED, error="b")]) == failed
    assert worst([failed, discarded]) == discarded
    assert worst([DONE, snoozed]) == snoozed
    assert worst([]) == DONE

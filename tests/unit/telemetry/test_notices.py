"""Trouble that repeats is logged at once, then once a minute with a count."""

from __future__ import annotations

import pytest

from dueline.telemetry.notices import Notices
from tests.kit.log_lines import logged_events


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def line(event: str, **fields: object) -> dict[str, object]:
    return {"event": event, "level": "warning", **fields}


def test_the_first_is_logged_at_once_and_the_next_after_a_minute_counts_those_between(clock: Clock) -> None:
    with logged_events() as lines:
        notices = Notices("dueline.test", clock)
        notices.notice("a", "refused", host="h1")
        assert lines == [line("refused", host="h1")]
        for _ in range(3):
            notices.notice("a", "refused", host="h1")
        clock.now_s += 59.9
        notices.notice("a", "refused", host="h1")
        assert len(lines) == 1
        clock.now_s += 0.1
        notices.notice("a", "refused", host="h2")
        notices.notice("a", "refused", host="h2")
        assert lines[1:] == [line("refused", host="h2", suppressed=4)]
        clock.now_s += 3600
        notices.notice("a", "refused", host="h3")
        clock.now_s += 60
        notices.notice("a", "refused", host="h3")
    assert lines[2:] == [line("refused", host="h3", suppressed=1), line("refused", host="h3")]


def test_each_key_is_counted_on_its_own(clock: Clock) -> None:
    with logged_events() as lines:
        notices = Notices("dueline.test", clock)
        for key in ("a", ("b", 1), "a"):
            notices.notice(key, f"about {key}")
    assert lines == [line("about a"), line("about ('b', 1)")]


def test_too_many_keys_within_a_minute_share_one_line_until_there_is_a_place_again(clock: Clock) -> None:
    with logged_events() as lines:
        notices = Notices("dueline.test", clock, max_keys=2)
        for key in "abcde":
            notices.notice(key, key)
        assert [one["event"] for one in lines] == ["a", "b", "c"]
        clock.now_s += 60
        for key in "fghij":
            notices.notice(key, key)
    assert [one["event"] for one in lines[3:]] == ["f", "g", "h"]

"""The table of moves and the one rule that derives a state."""

from __future__ import annotations

import pytest

from dueline.engine.job import ENDED, LIVE, Reason, State
from dueline.engine.lifecycle import MOVES, Move, Verdict, judge

NOW_MS = 1_000


def test_every_state_is_live_or_ended_and_none_is_both() -> None:
    assert frozenset(State) == LIVE | ENDED
    assert frozenset() == LIVE & ENDED


@pytest.mark.parametrize("move", MOVES, ids=lambda move: f"{move.event}{'/' + move.reason if move.reason else ''}")
def test_every_move_is_legal(move: Move) -> None:
    """Nothing comes from nowhere but by a send, nothing vanishes before it ended, and only the dead have reasons."""
    assert bool(move.before) or move.event == "send"
    assert bool(move.after) or set(move.before) <= ENDED
    assert (move.reason is not None) == (move.after == (State.DEAD,))
    if move.before and set(move.before) <= ENDED and move.after:
        assert set(move.after) <= LIVE
        assert move.event in ("revive", "send with replace")


def test_no_move_stands_twice() -> None:
    moves = [(before, move.event) for move in MOVES for before in move.before or (None,)]
    assert len(moves) == len(set(moves))


def test_a_lease_begins_from_ready_only_and_ends_in_every_way() -> None:
    assert {before for move in MOVES if State.LEASED in move.after for before in move.before} == {State.READY}
    ways_out = {after for move in MOVES if State.LEASED in move.before for after in move.after}
    assert ways_out == {State.SCHEDULED, State.READY, State.DONE, State.DEAD, State.CANCELLED}


def test_done_and_cancelled_come_back_only_by_a_new_send() -> None:
    for state in (State.DONE, State.CANCELLED):
        events = [move.event for move in MOVES if state in move.before and move.after]
        assert events == ["send with replace"]


def test_every_reason_to_be_dead_has_a_move() -> None:
    assert {move.reason for move in MOVES if move.reason} == set(Reason)


SCHEDULED, READY, LEASED, DEAD = State.SCHEDULED, State.READY, State.LEASED, State.DEAD
EXHAUSTED, EXPIRED = Reason.EXHAUSTED, Reason.EXPIRED

# leased, time, attempts, max, expires -> state, reason, since
JUDGEMENTS = [
    (False, 1_001, 0, 10, None, SCHEDULED, None, 1_001),
    (False, 1_000, 0, 10, None, READY, None, 1_000),
    (False, 500, 3, 10, None, READY, None, 500),
    (False, 500, 0, 10, 1_001, READY, None, 500),
    (False, 500, 0, 10, 1_000, DEAD, EXPIRED, 1_000),
    (False, 500, 0, 10, 900, DEAD, EXPIRED, 900),
    (False, 2_000, 1, 10, 900, DEAD, EXPIRED, 900),
    (False, 500, 10, 10, None, READY, None, 500),
    (True, 1_001, 1, 10, None, LEASED, None, 1_001),
    (True, 1_001, 10, 10, None, LEASED, None, 1_001),
    (True, 1_001, 10, 10, 500, LEASED, None, 1_001),
    (True, 1_000, 1, 10, None, READY, None, 1_000),
    (True, 900, 9, 10, None, READY, None, 900),
    (True, 900, 10, 10, None, DEAD, EXHAUSTED, 900),
    (True, 900, 11, 10, None, DEAD, EXHAUSTED, 900),
    (True, 900, 99, None, None, READY, None, 900),
    (True, 900, 1, 10, 950, DEAD, EXPIRED, 950),
    (True, 900, 1, 10, 500, DEAD, EXPIRED, 900),
    (True, 900, 1, 10, 1_000, DEAD, EXPIRED, 1_000),
    (True, 900, 1, 10, 1_001, READY, None, 900),
    (True, 900, 10, 10, 500, DEAD, EXHAUSTED, 900),
]


@pytest.mark.parametrize(
    ("leased", "time_ms", "attempts", "most", "expires_ms", "state", "reason", "at_ms"), JUDGEMENTS
)
def test_a_state_follows_from_the_record_and_the_time(
    leased: bool,
    time_ms: int,
    attempts: int,
    most: int | None,
    expires_ms: int | None,
    state: State,
    reason: Reason | None,
    at_ms: int,
) -> None:
    verdict = judge(
        leased=leased,
        time_ms=time_ms,
        attempts=attempts,
        max_attempts=most,
        expires_at_ms=expires_ms,
        now_ms=NOW_MS,
    )
    assert verdict == Verdict(state, reason, at_ms)

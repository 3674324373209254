"""The table of moves between states, and the rule that derives a state from a record. No I/O.

Rules for the next editor:
1. A move that is not in MOVES does not exist. The page docs/lifecycle.md is generated from this table.
2. `ready` is derived, never written. `scheduled -> ready` happens by time alone.
3. `lease over`, `expired`, `exhausted` and `gone` are derived too. Clean-up only records what is already true, dated
   at the moment it became true. What a caller sees never depends on whether clean-up has run.
4. The same rules are implemented again in Lua (store/lua/lib/judge.lua). The model test keeps both equal.
"""

from __future__ import annotations

import msgspec

from .job import Reason, State

S, R, L = State.SCHEDULED, State.READY, State.LEASED
DONE, DEAD, CANCELLED = State.DONE, State.DEAD, State.CANCELLED


class Move(msgspec.Struct, frozen=True):
    """From one of `before`, by `event`, to one of `after`. Empty `before`: no job yet; empty `after`: job gone."""

    before: tuple[State, ...]
    event: str
    after: tuple[State, ...]
    reason: Reason | None = None


MOVES: tuple[Move, ...] = (
    Move((), "send", (S, R)),
    Move((S,), "due time comes", (R,)),
    Move((S, R), "reschedule, edit, fire", (S, R)),
    Move((S, R, L), "replace", (S, R)),
    Move((R,), "pull", (L,)),
    Move((L,), "ack", (DONE,)),
    Move((S, R, L), "ack without a token", (DONE,)),
    Move((L,), "release, lease over; attempts left", (R, S)),
    Move((L,), "release, lease over; none left", (DEAD,), Reason.EXHAUSTED),
    Move((L,), "target or worker says stop", (DEAD,), Reason.REJECTED),
    Move((R, L), "ttl passed (leased: found at lease end)", (DEAD,), Reason.EXPIRED),
    Move((S,), "ttl passed while waiting for a retry", (DEAD,), Reason.EXPIRED),
    Move((S, R, L), "checksum wrong", (DEAD,), Reason.CORRUPT),
    Move((S, R, L), "cancel", (CANCELLED,)),
    Move((S, R, L), "a failed merge group gives its items to the open one", (CANCELLED,)),
    Move((DEAD,), "revive", (S, R)),
    Move((DONE, DEAD, CANCELLED), "send with replace", (S, R)),
    Move((DONE, DEAD, CANCELLED), "retention over, purge", ()),
)


class Verdict(msgspec.Struct, frozen=True):
    """The derived state of a live record. `at_ms` is when it reached this state (for deaths: the time of death)."""

    state: State
    reason: Reason | None
    at_ms: int


def judge(
    *,
    leased: bool,
    time_ms: int,
    attempts: int,
    max_attempts: int | None,
    expires_at_ms: int | None,
    now_ms: int,
) -> Verdict:
    """The state of a live record. `time_ms` is its lease deadline when leased, else its due or retry time."""
    if leased:
        if time_ms > now_ms:
            return Verdict(State.LEASED, None, time_ms)
        if max_attempts is not None and attempts >= max_attempts:
            return Verdict(State.DEAD, Reason.EXHAUSTED, time_ms)
        if expires_at_ms is not None and expires_at_ms <= now_ms:
            return Verdict(State.DEAD, Reason.EXPIRED, max(expires_at_ms, time_ms))
        return Verdict(State.READY, None, time_ms)
    if expires_at_ms is not None and expires_at_ms <= now_ms:
        return Verdict(State.DEAD, Reason.EXPIRED, expires_at_ms)
    if time_ms > now_ms:
        return Verdict(State.SCHEDULED, None, time_ms)
    return Verdict(State.READY, None, time_ms)

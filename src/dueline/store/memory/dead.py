"""Reviving dead jobs and purging ended ones. No I/O."""

from __future__ import annotations

from msgspec.structs import replace

from ...engine.history import What
from ...engine.job import State
from ...engine.store import Code, Outcome, Revive
from .change import NOT_FOUND, Change
from .histories import remember
from .records import due_ms


def dead_ids(change: Change, limit: int) -> list[str]:
    """The oldest dead jobs."""
    dead = [(status.at_ms, record) for record, status in change.state.jobs(change.now_ms) if status.state is State.DEAD]
    dead.sort(key=lambda entry: (entry[0], entry[1].number))
    return [record.id for _, record in dead[:limit]]


def revive(change: Change, id: str, how: Revive) -> Outcome:
    found = change.find(id)
    if isinstance(found, Outcome):
        return found
    record, status = found
    if status.state is not State.DEAD:
        return NOT_FOUND
    if how.set_max_attempts:
        record.policy = replace(record.policy, max_attempts=how.max_attempts)
    attempt, error, reason = record.attempts, record.last_error, status.reason
    remember(change, record, What.DEAD, at_ms=status.at_ms, attempt=attempt, error=error, reason=reason)
    record.ended = record.reason = None
    record.started = True
    if record.group is not None:
        record.group.open = False  # even if only time has ended it
    record.refunds, record.given = record.deliveries, 0
    record.plan(due_ms(change.now_ms, how.delay_ms, None), change.record_set.take_number(), change.now_ms)
    remember(change, record, What.REVIVED, due_at_ms=record.due_at_ms)
    change.touched.append(record)
    return Outcome(Code.OK, record.due_at_ms, version=record.number)


def purge(change: Change, id: str) -> Outcome:
    found = change.find(id)
    if isinstance(found, Outcome):
        return found
    if found[1].live:
        return NOT_FOUND
    del change.record_set.records[id]
    return Outcome(Code.OK)

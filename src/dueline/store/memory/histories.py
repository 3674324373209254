"""Histories of jobs in memory: a list of entries per record, within the partition's budget. No I/O."""

from __future__ import annotations

from ...engine.history import MAX_ENTRIES, MAX_ERROR_BYTES, History, Past, What, bytes_of, cut_name, history_of
from ...engine.job import Reason
from .change import Change
from .partitions import PartitionState
from .records import Record, Status, job_of


def used_bytes(state: PartitionState, now_ms: int) -> int:
    """The bytes of all histories of a topic."""
    return sum(bytes_of(record.past) for record, _ in state.jobs(now_ms))


def remember(
    change: Change,
    record: Record,
    what: What,
    *,
    at_ms: int | None = None,
    attempt: int = 0,
    due_at_ms: int | None = None,
    by: str | None = None,
    error: str | None = None,
    reason: Reason | None = None,
) -> None:
    """Add an entry, in place of the oldest one if there are ten. If it does not fit, it is counted only."""
    if not change.history_budget:
        return
    cut = (error or "").encode()[:MAX_ERROR_BYTES]
    entry = Past(what, change.now_ms if at_ms is None else at_ms, attempt, due_at_ms, cut_name(by), cut, reason)
    past = [*record.past[-(MAX_ENTRIES - 1) :], entry]
    if change.history_used is None:
        change.history_used = used_bytes(change.state, change.now_ms)
    used = change.history_used + bytes_of(past) - bytes_of(record.past)
    if used > change.history_budget:
        change.state.history_dropped += 1
    else:
        change.history_used, record.past = used, past


def remember_lost(change: Change, record: Record) -> None:
    """Record that the lease of a job expired. Called when something else happens to the job."""
    if record.leased:
        remember(change, record, What.LEASE_LOST, at_ms=record.time_ms, attempt=record.attempts)


def shown(record: Record, status: Status) -> History:
    return history_of(job_of(record, status, False), record.past, record.edited_at_ms)

"""The history of a job: what happened to it, oldest first. No I/O.

A store keeps at most ten `Past` entries with a job: deliveries, releases, lost leases, edits and revivals. When the job
was sent and its end follow from the job itself, so they take no space. So does the last edit before the first delivery
if there is no entry for it: of a merge group, and where the budget has no room.

The bytes of all histories of a partition have a budget (`Limits.max_history_bytes`). An entry that no longer fits is
counted (`Stats.history_dropped`) and not kept. The history ends with its job, and so do its bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import msgspec

from .job import Job, Partition, Reason, State
from .limits import INTERNAL_NAMESPACE

MAX_ENTRIES = 10
MAX_ERROR_BYTES = 200
MAX_NAME_BYTES = 128
HISTORY_BYTES = 32  # what a history counts besides its entries: its head, and what the allocator adds
_ENTRY_BYTES, _DUE_BYTES, _NAME_BYTES = 11, 6, 1


def history_budget(max_bytes: int, partition: Partition) -> int:
    """The bytes that the histories of a partition may have. Schedules have none: nobody can read them."""
    return 0 if partition.namespace == INTERNAL_NAMESPACE else max_bytes


class What(IntEnum):
    """What happened. The scripts use the same numbers (store/lua/lib/history.lua); 6, 7 and 8 are other reasons of a
    death."""

    DELIVERED = 1
    RELEASED = 2
    LEASE_LOST = 3
    EDITED = 4
    DEAD = 5
    REVIVED = 9


class Past(msgspec.Struct, frozen=True):
    """An entry as stores keep it. `attempt` 0: none. `by`: the consumer that a pull named. `by` and `error` are cut."""

    what: What
    at_ms: int
    attempt: int = 0
    due_at_ms: int | None = None
    by: bytes = b""
    error: bytes = b""
    reason: Reason | None = None

    @property
    def bytes(self) -> int:
        """The size of the entry, as the budget counts it."""
        due = 0 if self.due_at_ms is None else _DUE_BYTES
        return _ENTRY_BYTES + due + (_NAME_BYTES + len(self.by) if self.by else 0) + len(self.error)


class HistoryEntry(msgspec.Struct, frozen=True):
    """One thing that happened: sent edited delivered released lease_lost dead revived acked cancelled. The words are
    those of events. `due_at_ms`: when the job was due from then on. `reason`: of a death."""

    at_ms: int
    what: str
    attempt: int | None = None
    by: str | None = None
    error: str | None = None
    due_at_ms: int | None = None
    reason: Reason | None = None


class History(msgspec.Struct, frozen=True):
    """`dropped`: deliveries that are not among the entries, because there were newer ones or no room."""

    entries: tuple[HistoryEntry, ...]
    dropped: int


def cut_name(name: str | None) -> bytes:
    """The name of a consumer, as an entry keeps it."""
    return (name or "").encode(errors="replace")[:MAX_NAME_BYTES]


def bytes_of(past: Sequence[Past]) -> int:
    """How many bytes of the budget the entries of one job use."""
    return HISTORY_BYTES + sum(entry.bytes for entry in past) if past else 0


def history_of(job: Job, past: Sequence[Past], edited_at_ms: int | None) -> History:
    """The history of a job as it is now, from what the store kept. `edited_at_ms`: the last edit that is older than the
    first entry in `past`."""
    entries = [HistoryEntry(job.created_at_ms, "sent")]
    if edited_at_ms is not None:
        entries.append(HistoryEntry(edited_at_ms, What.EDITED.name.lower()))
    entries += map(_shown, past)
    if job.ended_at_ms is not None:
        error = job.last_error if job.state is State.DEAD else None
        what = "acked" if job.state is State.DONE else job.state.value
        entries.append(HistoryEntry(job.ended_at_ms, what, job.attempts or None, error=error, reason=job.reason))
    return History(tuple(entries), job.deliveries - sum(entry.what is What.DELIVERED for entry in past))


def _shown(entry: Past) -> HistoryEntry:
    by, error = entry.by.decode(errors="ignore") or None, entry.error.decode(errors="ignore") or None
    what = entry.what.name.lower()
    return HistoryEntry(entry.at_ms, what, entry.attempt or None, by, error, entry.due_at_ms, entry.reason)

"""One page of a partition's jobs. No I/O.

Order: first live jobs by (time, number), then ended jobs by (end, number). The time of a leased job is its lease
deadline, otherwise the time at which it may be delivered. Dead jobs can also be listed from the newest to the oldest. A
cursor is the position of the last entry of its page, so jobs that vanish or appear between two pages do not affect
others. Tags find live and dead jobs. A merge key finds its live groups, in the order in which they were opened.
"""

from __future__ import annotations

import struct

from ...engine.job import State
from ...engine.open_groups import GroupPage, OpenGroup
from ...engine.store import Page, Query
from .partitions import PartitionState
from .records import Record, Status, job_of

_PLACE = struct.Struct(">Bqq")


def list_page(state: PartitionState, query: Query, now_ms: int) -> Page:
    """Up to `limit` matching entries after the cursor."""
    entries = sorted(
        (_place(query, record, status), record.id)
        for record, status in state.jobs(now_ms)
        if _matches(query, record, status)
    )
    if query.newest:
        after = [entry for entry in reversed(entries) if not query.cursor or entry[0] < query.cursor]
    else:
        after = [entry for entry in entries if not query.cursor or entry[0] > query.cursor]
    page = after[: query.limit]
    found = [state.record_set.find(id, now_ms) for _, id in page]
    jobs = [job_of(*one, query.body) for one in found if one is not None]
    return Page(jobs, page[-1][0] if len(after) > len(page) else None, now_ms)


def _place(query: Query, record: Record, status: Status) -> bytes:
    if query.merge_key is not None and record.group is not None:
        return _PLACE.pack(0, 0, record.group.number)
    return _PLACE.pack(0, record.time_ms, record.number) if status.live else _PLACE.pack(1, status.at_ms, record.number)


def _matches(query: Query, record: Record, status: Status) -> bool:
    if query.merge_key is not None:
        return status.live and record.group is not None and record.group.key == query.merge_key
    return (
        query.state in (None, status.state)
        and (query.tag is None or (query.tag in record.tags and status.state not in (State.DONE, State.CANCELLED)))
        and (query.due_after_ms is None or record.due_at_ms >= query.due_after_ms)
        and (query.due_before_ms is None or record.due_at_ms < query.due_before_ms)
    )


def group_page(state: PartitionState, cursor: bytes, limit: int, now_ms: int) -> GroupPage:
    """Up to `limit` open merge groups after the cursor."""
    found: list[tuple[bytes, OpenGroup]] = []
    for record, status in state.jobs(now_ms):
        group = record.group
        if group is None or not group.open or not status.live:
            continue
        key = group.key.encode()
        numbers = (len(group.items), group.max_items, group.bytes)
        shown = OpenGroup(record.id, group.key, *numbers, record.due_at_ms, record.created_at_ms, record.updated_at_ms)
        found.append((len(key).to_bytes(2, "big") + key, shown))
    after = [one for one in sorted(found, key=lambda one: one[0]) if not cursor or one[0] > cursor]
    page = after[:limit]
    return GroupPage([group for _, group in page], page[-1][0] if len(after) > len(page) else None)

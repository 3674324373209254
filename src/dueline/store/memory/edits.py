"""Editing a job that is not leased: its body, headers, tags, policy, ttl and time."""

from __future__ import annotations

from ...engine.history import What
from ...engine.job import State
from ...engine.store import Code, Edit, Outcome
from .change import Change
from .histories import remember, remember_lost
from .records import due_ms


def edited(change: Change, item: Edit) -> Outcome:
    found = change.find(item.id)
    if isinstance(found, Outcome):
        return found
    record, status = found
    if status.state is State.LEASED:
        return Outcome(Code.JOB_LEASED)
    if not status.live:
        return Outcome(Code.ALREADY_DONE)
    if item.version is not None and item.version != record.number:
        return Outcome(Code.VERSION_MISMATCH)
    if record.group is None:  # a group has items instead of a body
        record.body = record.body if item.body is None else item.body
        record.kind = record.kind if item.kind is None else item.kind
    record.headers = record.headers if item.headers is None else item.headers
    record.tags = record.tags if item.tags is None else item.tags
    record.policy = record.policy if item.policy is None else item.policy
    if item.ttl_ms is not None:
        record.ttl_ms = item.ttl_ms or None
    if record.started:
        remember_lost(change, record)
    number = change.record_set.take_number()
    if item.delay_ms is not None or item.at_ms is not None:
        record.plan(due_ms(change.now_ms, item.delay_ms, item.at_ms), number, change.now_ms)
    else:
        if item.ttl_ms is not None:
            record.expires_at_ms = None if record.ttl_ms is None else record.due_at_ms + record.ttl_ms
        record.number = number
        record.updated_at_ms = change.now_ms
        record.drop_lease()
    if record.started or record.group is None:
        remember(change, record, What.EDITED, due_at_ms=record.due_at_ms)
    record.started = record.started or bool(record.past)
    if not record.started:
        record.edited_at_ms = change.now_ms
    change.touched.append(record)
    return Outcome(Code.OK, record.due_at_ms, version=number)

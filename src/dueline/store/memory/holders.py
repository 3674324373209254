"""The operations of a lease holder: ack, release and extend. No I/O.

The token proves that the caller holds the lease (`engine.store`). Without a token, any caller is accepted.
"""

from __future__ import annotations

from ...engine.history import What
from ...engine.job import Reason, State
from ...engine.limits import MAX_REFUNDS
from ...engine.policy import wait_after
from ...engine.store import Code, Extend, Outcome, Ref, Release
from . import groups
from .change import Change
from .histories import remember
from .records import due_ms

LOST = Outcome(Code.LEASE_LOST)


def ack(change: Change, item: Ref) -> Outcome:
    found = change.find(item.id)
    if isinstance(found, Outcome):
        return found
    record, status = found
    if not status.live:
        if item.token is None:
            return Outcome(Code.ALREADY_DONE)
        return Outcome(Code.OK) if status.state is State.DONE and item.token == record.token else LOST
    if item.token is not None and item.token != record.token:
        return LOST
    record.end(State.DONE, None, change.now_ms, record.token)
    change.touched.append(record)
    return Outcome(Code.OK)


def release(change: Change, item: Release) -> Outcome:
    found = change.find(item.id)
    if isinstance(found, Outcome):
        return found
    record, status = found
    current = status.state is State.LEASED if item.token is None else item.token == record.token
    if not status.live or not current:
        return LOST
    now_ms = change.now_ms
    change.touched.append(record)
    record.fail(item.error)
    if item.progress is not None:
        record.progress = item.progress
    limited, attempt = record.policy.max_attempts is not None, record.attempts
    counted = item.count or (limited and record.given >= MAX_REFUNDS)
    if not counted:
        record.refunds += 1
        record.given += limited
    reason = item.dead
    if reason is None and counted and record.exhausted:
        reason = Reason.EXHAUSTED
    if reason is None and record.expires_at_ms is not None and record.expires_at_ms <= now_ms:
        reason = Reason.EXPIRED
    if reason is not None:
        record.end(State.DEAD, reason, now_ms)
        return Outcome(Code.DEAD, reason=reason)
    wait_ms = item.delay_ms
    if wait_ms is None and item.at_ms is None:
        wait_ms = wait_after(record.policy, record.attempts, item.jitter_draw)
    into = groups.give_to_open(change, record) if counted else None
    if into is not None:
        return Outcome(Code.OK, into.due_at_ms)
    record.drop_lease()
    due_at_ms = due_ms(now_ms, wait_ms, item.at_ms)
    if item.delay_ms == 0 and not counted:
        due_at_ms = min(record.due_at_ms, now_ms)  # returned unused: it keeps its old place in the order
    record.due_at_ms = record.time_ms = due_at_ms
    record.updated_at_ms = now_ms
    remember(change, record, What.RELEASED, attempt=attempt, due_at_ms=due_at_ms, error=item.error)
    return Outcome(Code.OK, record.due_at_ms)


def extend(change: Change, item: Extend) -> Outcome:
    found = change.find(item.id)
    if isinstance(found, Outcome):
        return found
    record, status = found
    if not status.live or item.token != record.token:
        return LOST
    record.time_ms = max(record.time_ms, change.now_ms + item.lease_ms)
    record.updated_at_ms = change.now_ms
    change.touched.append(record)
    return Outcome(Code.OK, record.time_ms)

"""Merge groups in memory: which group a send joins, and where the items of a failed group go. No I/O.

A group is open until it is first pulled, ends or is full. A key has at most one open group per partition. A failed
group (it was pulled, is live and not leased) moves its items to the open one if they fit. The open group then has the
items of both in send order, and keeps its own due time, attempts and policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...engine.job import Item, State
from ...engine.limits import LAST_MS
from ...engine.store import Code, Merge, MergeUpdate, SendItem, SendOutcome
from .change import Change
from .records import Group, Record, Status, due_ms, judged, look

GROUPS_LOOKED_AT = 100  # the oldest groups of a key, checked when a send opens a group


def join(change: Change, item: SendItem, merge: Merge, store: Callable[[SendItem, Group], Record]) -> SendOutcome:
    """Add an item to the open group of its key, or open one with `store`."""
    if merge.item_id is not None:
        holder = _holder(change, merge.key, merge.item_id)
        if holder is not None:
            return _answer(Code.KEPT, holder, change)
    into = open_group(change, change.state.partition.topic, merge.key)
    if into is not None and _has_room(_group(into), len(item.body)):
        _append(change, into, item, merge)
        return _answer(Code.APPENDED, into, change)
    if change.state.closed is not None:
        if into is not None:
            flush(change, into)
        return change.moved()
    taken = change.record_set.find(item.id, change.now_ms)
    if taken is not None:
        return _refusal(change, *taken)
    if into is not None:
        flush(change, into)
    group = Group(
        key=merge.key,
        number=change.record_set.last_number + 1,
        cap_ms=LAST_MS if merge.max_wait_ms is None else min(change.now_ms + merge.max_wait_ms, LAST_MS),
        max_items=merge.max_items,
        max_bytes=merge.max_bytes,
        waits_when_full=merge.waits_when_full,
    )
    into = store(item, group)
    _move(into, min(_requested_ms(change, item, merge), group.cap_ms))
    _add(change, into, item, merge)
    for failed in _failed(change, merge.key):
        if _fits(failed, into):
            give(change, failed, into)
    _flush_if_full(change, into)
    return _answer(Code.CREATED, into, change)


def open_group(change: Change, topic: str, key: str) -> Record | None:
    """The open group of a key. A group that has expired is not open, even if clean-up has not recorded it yet."""
    return next((record for record, status in _groups(change, topic, key) if status.live and _group(record).open), None)


def give_to_open(change: Change, failed: Record) -> Record | None:
    """Move the items of a failed group to the open one of its key, if there is one and they fit. Returns it or None."""
    if failed.group is None or failed.attempts < 1:
        return None
    into = open_group(change, failed.topic, failed.group.key)
    if into is None or not _fits(failed, into):
        return None
    give(change, failed, into)
    _flush_if_full(change, into)
    return into


def give(change: Change, failed: Record, into: Record) -> None:
    """Move all items. The failed group ends as cancelled, and its error names the other group. The item ids now refer
    to that group."""
    source, target = _group(failed), _group(into)
    target.items = sorted(source.items + target.items, key=lambda entry: entry[0])
    target.item_ids |= source.item_ids
    source.items, source.item_ids = [], set()
    into.updated_at_ms = change.now_ms
    failed.fail(f"its items went to group {into.id}")
    failed.end(State.CANCELLED, None, change.now_ms)
    failed.drop_body()
    change.touched += (failed, into)


def flush(change: Change, record: Record) -> None:
    """Close a full group. It is due now or keeps its due time, as its first send requested."""
    group = _group(record)
    group.open = False
    if not group.waits_when_full:
        _move(record, min(record.due_at_ms, change.now_ms))
    change.touched.append(record)


def _append(change: Change, into: Record, item: SendItem, merge: Merge) -> None:
    if merge.quiet_ms is not None or merge.update is MergeUpdate.ALWAYS:
        _move(into, min(_requested_ms(change, item, merge), _group(into).cap_ms))
    _add(change, into, item, merge)
    _flush_if_full(change, into)


def _add(change: Change, into: Record, item: SendItem, merge: Merge) -> None:
    group = _group(into)
    group.items.append((change.record_set.take_number(), Item(item.body, item.kind, merge.item_id)))
    if merge.item_id is not None:
        group.item_ids.add(merge.item_id)
    into.updated_at_ms = change.now_ms
    change.touched.append(into)


def _requested_ms(change: Change, item: SendItem, merge: Merge) -> int:
    """The due time that this send requests for its group."""
    if merge.quiet_ms is not None:
        return due_ms(change.now_ms, merge.quiet_ms, None)
    return due_ms(change.now_ms, item.delay_ms, item.at_ms)


def _move(record: Record, due_at_ms: int) -> None:
    """Set a new due time; the send number stays, and the ttl counts from the new time."""
    record.due_at_ms = record.time_ms = due_at_ms
    record.expires_at_ms = None if record.ttl_ms is None else due_at_ms + record.ttl_ms


def _flush_if_full(change: Change, record: Record) -> None:
    group = _group(record)
    if len(group.items) >= group.max_items:
        flush(change, record)


def _has_room(group: Group, size: int) -> bool:
    return len(group.items) < group.max_items and group.bytes + size <= group.max_bytes


def _fits(failed: Record, into: Record) -> bool:
    source, target = _group(failed), _group(into)
    return len(source.items) + len(target.items) <= target.max_items and source.bytes + target.bytes <= target.max_bytes


def _failed(change: Change, key: str) -> list[Record]:
    """The groups of a key that wait for their retry, oldest first. A group with an expired lease is not included,
    because its holder may still ack until a pull finds it."""
    live = [record for record, status in _groups(change, change.state.partition.topic, key) if status.live]
    live.sort(key=lambda one: _group(one).number)
    return [one for one in live[:GROUPS_LOOKED_AT] if not _group(one).open and not one.leased and one.attempts >= 1]


def _holder(change: Change, key: str, item_id: str) -> Record | None:
    """The readable group of a key that has, or had, an item with this id."""
    groups = _groups(change, change.state.partition.topic, key)
    return next((record for record, _ in groups if item_id in _group(record).item_ids), None)


def _groups(change: Change, topic: str, key: str) -> Iterator[tuple[Record, Status]]:
    """Every readable group of a key in this topic. With `namespace_ids` the set also holds jobs of other topics."""
    for record in change.record_set.records.values():
        if record.group is not None and record.group.key == key and record.topic == topic:
            status = look(record, change.now_ms)
            if status is not None:
                yield record, status


def _group(record: Record) -> Group:
    assert record.group is not None
    return record.group


def _answer(code: Code, record: Record, change: Change) -> SendOutcome:
    state = judged(record, change.now_ms).state
    count = len(_group(record).items)
    return SendOutcome(code, state, record.due_at_ms, record.number, group=record.id, items_count=count)


def _refusal(change: Change, taken: Record, status: Status) -> SendOutcome:
    """The outcome if another job has the id of the new group; nothing is done."""
    if taken.topic != change.state.partition.topic:
        return SendOutcome(Code.ELSEWHERE, status.state, 0, 0, taken.topic)
    return SendOutcome(Code.ID_EXISTS, status.state, taken.due_at_ms, taken.number)

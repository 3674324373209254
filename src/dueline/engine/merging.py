"""Turns the merge options of a send and its topic into numbers: which group it joins, and when it is due. No I/O.

A send gives its group's due time in one of two ways: by a quiet time (each new item moves the due time to `quiet_ms`
from now) or by a fixed time (`update` decides whether it replaces the group's). A topic's quiet time applies to sends
that give neither. All items of a group together have the size limit of one body, so that delivering a group is never
larger than delivering a plain job.
"""

from __future__ import annotations

from msgspec import UNSET

from ..bounds import MAX_GROUP_ITEMS
from .checks import Checks
from .commands import MergeInto, Send
from .errors import InvalidField
from .ids import new_id_in
from .limits import check_name
from .policy import MergePolicy
from .store import Merge, MergeUpdate
from .topics import Topic

_DEFAULTS = MergePolicy()


def merge_of(command: Send, into: MergeInto, topic: Topic, checks: Checks) -> Merge:
    """Check a send's merge options and resolve them: the send's own, else the topic's, else the defaults."""
    if command.id is not None:
        raise InvalidField("the server generates the id of a merge group; use merge.item_id for an item", "id")
    if (command.on_conflict, command.on_ended, command.on_overdue) != (None, None, None):
        raise InvalidField("cannot be combined with merge, because such a send has no id", "on_conflict")
    check_name(into.key, "merge.key")
    if into.item_id is not None:
        check_name(into.item_id, "merge.item_id")
    policy = topic.config.policy.merge or _DEFAULTS
    timed = command.delay_ms is not None or command.at_ms is not None
    quiet_ms, max_wait_ms = into.quiet_ms, into.max_wait_ms
    if quiet_ms is UNSET:
        quiet_ms = None if timed else policy.quiet_ms
    elif quiet_ms is not None and timed:
        raise InvalidField("give a quiet time or a fixed one (delay, at), not both", "merge.quiet_ms")
    if max_wait_ms is UNSET:
        max_wait_ms = policy.max_wait_ms
    # A configured number of items makes a full group due at once. The product's own bound does not: a group with a
    # fixed time is never early.
    wished = policy.max_items if into.max_items is UNSET else into.max_items
    max_items = MAX_GROUP_ITEMS if wished is None else wished
    update = into.update
    if update is UNSET:
        update = MergeUpdate.ONCE if policy.update is None else MergeUpdate[policy.update.upper()]
    checks.merge(quiet_ms, max_wait_ms, max_items)
    waits = quiet_ms is None and wished is None
    return Merge(into.key, quiet_ms, max_wait_ms, max_items, _max_bytes(command, topic), update, into.item_id, waits)


def _max_bytes(command: Send, topic: Topic) -> int:
    own_bytes = command.max_body_bytes if topic.config.policy.max_body_bytes is None else None
    return topic.max_body_bytes if own_bytes is None else max(topic.max_body_bytes, own_bytes)


def group_id(key: str, id: str, topic: Topic) -> str:
    """The id for a new group of this key: `id` if it belongs to the key's partition, else a new id that does. So the
    key and the id of a group lead to the same partition."""
    index = topic.map.index_of(key)
    return id if topic.map.index_of(id) == index else new_id_in(index, topic.map.count)

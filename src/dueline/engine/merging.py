"""Which merge group a send joins, and when that is due: from what a send and its topic say to numbers. No I/O.

A send says when its group is due in one of two ways: by a quiet time (each item of the group moves the time to
`quiet_ms` from now) or by a time of its own (a fixed one, over which `update` decides). A topic's quiet time is for
sends that say neither. All items of a group together are as large as one body may be, so that a delivery is never
larger than one of a plain job.
"""

from __future__ import annotations

from msgspec import UNSET

from .checks import Checks
from .commands import MergeInto, Send
from .errors import InvalidField
from .ids import new_id_in, partition_of
from .limits import MAX_GROUP_ITEMS, check_name
from .policy import MergePolicy
from .store import Merge, MergeUpdate
from .topics import Topic

_NONE_SAID = MergePolicy()


def merge_of(command: Send, into: MergeInto, topic: Topic, checks: Checks) -> Merge:
    """Check what a send says about its group, and make its numbers: the send's own, else the topic's, else defaults."""
    if command.id is not None:
        raise InvalidField("a merge group gets its id from the server; an item may have merge.item_id", "id")
    if (command.on_conflict, command.on_ended, command.on_overdue) != (None, None, None):
        raise InvalidField("goes with an id; a send with merge has none", "on_conflict")
    check_name(into.key, "merge.key")
    if into.item_id is not None:
        check_name(into.item_id, "merge.item_id")
    said = topic.config.policy.merge or _NONE_SAID
    timed = command.delay_ms is not None or command.at_ms is not None
    quiet_ms, max_wait_ms = into.quiet_ms, into.max_wait_ms
    if quiet_ms is UNSET:
        quiet_ms = None if timed else said.quiet_ms
    elif quiet_ms is not None and timed:
        raise InvalidField("give a quiet time or a fixed one (delay, at), not both", "merge.quiet_ms")
    if max_wait_ms is UNSET:
        max_wait_ms = said.max_wait_ms
    # A number of items that somebody asked for is a reason to deliver. The product's own bound is none: a group with a
    # fixed time is never early.
    wished = said.max_items if into.max_items is UNSET else into.max_items
    max_items = MAX_GROUP_ITEMS if wished is None else wished
    update = into.update
    if update is UNSET:
        update = MergeUpdate.ONCE if said.update is None else MergeUpdate[said.update.upper()]
    checks.merge(quiet_ms, max_wait_ms, max_items)
    waits = quiet_ms is None and wished is None
    return Merge(into.key, quiet_ms, max_wait_ms, max_items, _max_bytes(command, topic), update, into.item_id, waits)


def _max_bytes(command: Send, topic: Topic) -> int:
    own_bytes = command.max_body_bytes if topic.config.policy.max_body_bytes is None else None
    return topic.max_body_bytes if own_bytes is None else max(topic.max_body_bytes, own_bytes)


def group_id(key: str, id: str, topic: Topic) -> str:
    """The id for a group of this key, if one has to be opened: `id`, when it stands in the key's own partition, else a
    fresh one that does. So a group is found by its key and by its id in the same partition."""
    partitions = len(topic.partitions)
    partition = partition_of(key, partitions)
    return id if partition_of(id, partitions) == partition else new_id_in(partition, partitions)

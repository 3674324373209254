"""The merge fields of native requests, as the engine's values. No I/O."""

from __future__ import annotations

from msgspec import UNSET

from ...api import requests as r
from ...engine import commands, policy
from ...engine.errors import InvalidField
from ...engine.store import MergeUpdate

_UPDATES = {None: UNSET, "once": MergeUpdate.ONCE, "always": MergeUpdate.ALWAYS}


def merge_into(asked: r.Merge) -> commands.MergeInto:
    """The group that a send joins. For fields that are null or missing, the topic's policy applies."""
    return commands.MergeInto(
        key=asked.key,
        quiet_ms=UNSET if asked.quiet_ms is None else asked.quiet_ms,
        max_wait_ms=UNSET if asked.max_wait_ms is None else asked.max_wait_ms,
        max_items=UNSET if asked.max_items is None else asked.max_items,
        update=_UPDATES[asked.update],
        item_id=asked.item_id,
    )


def merge_policy(asked: r.MergePolicy | None) -> policy.MergePolicy | None:
    """The merge policy of a topic."""
    if asked is None:
        return None
    return policy.MergePolicy(asked.quiet_ms, asked.max_wait_ms, asked.max_items, asked.update)


def cancelled_key(asked: r.CancelJobs) -> str | None:
    """The merge key of a cancel, which excludes ids and a filter."""
    if asked.merge_key is not None and (asked.ids is not None or asked.filter is not None):
        raise InvalidField("give ids, a merge key or a filter, not two of them", "merge_key")
    return asked.merge_key

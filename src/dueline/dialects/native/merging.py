"""The merge fields of native requests, as the engine's values. No I/O."""

from __future__ import annotations

from msgspec import UNSET

from ...api import requests as r
from ...engine import commands, policy
from ...engine.errors import InvalidField
from ...engine.store import MergeUpdate

_UPDATES = {None: UNSET, "once": MergeUpdate.ONCE, "always": MergeUpdate.ALWAYS}


def merge_into(request: r.Merge) -> commands.MergeInto:
    """The group that a send joins. For fields that are null or missing, the topic's policy applies."""
    return commands.MergeInto(
        key=request.key,
        quiet_ms=UNSET if request.quiet_ms is None else request.quiet_ms,
        max_wait_ms=UNSET if request.max_wait_ms is None else request.max_wait_ms,
        max_items=UNSET if request.max_items is None else request.max_items,
        update=_UPDATES[request.update],
        item_id=request.item_id,
    )


def merge_policy(request: r.MergePolicy | None) -> policy.MergePolicy | None:
    """The merge policy of a topic."""
    if request is None:
        return None
    return policy.MergePolicy(request.quiet_ms, request.max_wait_ms, request.max_items, request.update)


def cancelled_key(request: r.CancelJobs) -> str | None:
    """The merge key of a cancel, which excludes ids and a filter."""
    if request.merge_key is not None and (request.ids is not None or request.filter is not None):
        raise InvalidField("give only one of ids, a merge key and a filter", "merge_key")
    return request.merge_key

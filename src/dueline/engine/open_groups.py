"""The merge groups that are filling up, as the store lists them. Part of the interface in `store`. No I/O."""

from __future__ import annotations

import msgspec


class OpenGroup(msgspec.Struct, frozen=True):
    """A merge group that later sends of its key still join. `bytes`: of its items."""

    id: str
    key: str
    items_count: int
    max_items: int
    bytes: int
    due_at_ms: int
    created_at_ms: int
    updated_at_ms: int


class GroupPage(msgspec.Struct, frozen=True):
    """Even an empty page may have a cursor, because one call inspects at most 500 groups."""

    groups: list[OpenGroup]
    cursor: bytes | None

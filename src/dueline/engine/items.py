"""The items of a merge group as one JSON array. No I/O.

A JSON item keeps its original text, a text becomes a JSON string, bytes become {"body_base64": "..."}.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .job import BodyKind, Item

_to_json = msgspec.json.Encoder().encode


def items_json(items: Sequence[Item]) -> bytes:
    """The items in their order, in one array."""
    return b"[" + b",".join(map(item_json, items)) + b"]"


def item_json(item: Item) -> bytes:
    """One item."""
    if item.kind is BodyKind.JSON:
        return item.body
    if item.kind is BodyKind.TEXT:
        return _to_json(item.body.decode(errors="replace"))
    return _to_json({"body_base64": item.body})

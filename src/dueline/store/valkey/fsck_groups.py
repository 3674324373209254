"""fsck of merge groups: every group has exactly its items, and everything in `g` belongs to a group. Pure.

The layout is that of lua/lib/items.lua.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from . import codec
from .items import read_key, sized, unpack_item

Wrong = Callable[[bytes | None, str], None]

_GROUP = 3


class _Found(msgspec.Struct):
    """A group, read from its record and items. `fresh`: it was never pulled and has not ended."""

    key: bytes
    fresh: bool
    item_ids: set[bytes]


def check_groups(
    j: Mapping[bytes, bytes], r: Mapping[bytes, bytes], g: Mapping[bytes, bytes], owed: set[bytes], wrong: Wrong
) -> None:
    """Report inconsistencies, and add the entries that the index of groups must have to `owed`."""
    groups: dict[bytes, _Found] = {}
    fields: set[bytes] = set()
    for id in j.keys() | r.keys():
        raw, run = j.get(id), r.get(id)
        flags = raw[0] if raw else codec.head_of(run)[0] if run is not None and run[:1] in (b"d", b"c") else 0
        if flags & 3 == _GROUP:
            fields.add(b"m" + id)
            found = _tombstone(id, g, wrong) if raw is None else _group(id, raw, run, g, fields, owed, wrong)
            if found is not None:
                groups[id] = found
    for field, value in g.items():
        kind = field[:1]
        if kind == b"k":
            _check_open(field[1:], value, groups, wrong)
        elif kind == b"i":
            key = read_key(field[1:])
            group = groups.get(value)
            if group is None or group.key != key or field[3 + len(key) :] not in group.item_ids:
                wrong(value, f"does not have the item {_text(field[3 + len(key) :])} that is recorded for it")
        elif field not in fields:
            wrong(field[3:] if kind == b"n" else field[1:], "is not a group, but has stored items")


def _tombstone(id: bytes, g: Mapping[bytes, bytes], wrong: Wrong) -> _Found | None:
    kept = g.get(b"m" + id)
    if kept is None or len(kept) < 2:
        wrong(id, "is an ended group without its key")
        return None
    key = read_key(kept)
    ids: set[bytes] = set()
    at = 2 + len(key)
    while at < len(kept):
        one = read_key(kept[at:])
        ids.add(one)
        at += 2 + len(one)
    return _Found(key, False, ids)


def _group(
    id: bytes,
    raw: bytes,
    run: bytes | None,
    g: Mapping[bytes, bytes],
    fields: set[bytes],
    owed: set[bytes],
    wrong: Wrong,
) -> _Found | None:
    try:
        record = codec.decode_record(raw, whole=False)
    except codec.UNREADABLE:
        return None  # reported as a record that cannot be read
    key = (record.merge_key or "").encode()
    if run is None or run[:1] in (b"L", b"W"):
        owed.add(b"\1" + sized(key) + record.opened.to_bytes(5, "big") + id)
    meta = g.get(b"m" + id, b"")
    if len(meta) != 12:
        wrong(id, "is a group without items")
        return _Found(key, False, set())
    count, size = int.from_bytes(meta[:2], "big"), int.from_bytes(meta[2:6], "big")
    numbers: list[bytes] = []
    ids: set[bytes] = set()
    found_bytes = 0
    if count == 0:
        wrong(id, "is a group without items")
    for place in range(1, count + 1):
        field = b"n" + place.to_bytes(2, "big") + id
        fields.add(field)
        stored = g.get(field)
        item = None if stored is None else unpack_item(stored)
        if stored is None or item is None:
            wrong(id, f"its item {place} {'is missing' if stored is None else 'does not match its checksum'}")
            continue
        numbers.append(stored[:5])
        found_bytes += len(item.body)
        if item.id:
            ids.add(item.id.encode())
    if numbers != sorted(numbers):
        wrong(id, "its items are not in send order")
    if len(numbers) == count and found_bytes != size:
        wrong(id, f"its items have {found_bytes} bytes, but its record has {size}")
    return _Found(key, run is None, ids)


def _check_open(key: bytes, id: bytes, groups: Mapping[bytes, _Found], wrong: Wrong) -> None:
    group = groups.get(id)
    if group is None or group.key != key:
        wrong(id, f"is not a group of the key {_text(key)}, but is recorded as its open one")
    elif not group.fresh:
        wrong(id, "was pulled or has ended, but is recorded as the open group of its key")


def _text(text: bytes) -> str:
    return repr(text.decode(errors="replace"))

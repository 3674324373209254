"""Encodes and decodes merge groups and their items (lua/lib/items.lua describes the format). Pure."""

from __future__ import annotations

import struct
import zlib

import msgspec

from ...engine.job import BodyKind, Item

_KINDS = (BodyKind.JSON, BodyKind.TEXT, BodyKind.BYTES)
_SETTINGS_BYTES = 17  # opened, cap, max items, max bytes
_short = struct.Struct(">H")
_crc = struct.Struct(">I")


class Group(msgspec.Struct, frozen=True):
    """The body section of a group's record, with the items that a script appended to it. `items` None: none were
    appended. `intact`: everything matches the stored checksums."""

    key: str
    opened: int  # the send number of its opening
    items: tuple[Item, ...] | None
    intact: bool


def sized(text: bytes) -> bytes:
    return _short.pack(len(text)) + text


def pack_item(body: bytes, kind: BodyKind, id: str | None) -> bytes:
    """An item as a send encodes it; the script adds the send number in front."""
    content = bytes((kind,)) + sized((id or "").encode()) + body
    return _crc.pack(zlib.crc32(content)) + content


def unpack_item(stored: bytes) -> Item | None:
    """Decode an item stored in `g`; None: it is damaged."""
    content = stored[9:]
    if len(content) < 3 or zlib.crc32(content) != int.from_bytes(stored[5:9], "big"):
        return None
    size = int.from_bytes(content[1:3], "big")
    return Item(content[3 + size :], _KINDS[content[0]], content[3 : 3 + size].decode() or None)


def read_key(text: bytes) -> bytes:
    """The key at the beginning of an ended group's kept data."""
    return text[2 : 2 + int.from_bytes(text[:2], "big")]


def read_group(section: bytes, crc: int) -> Group:
    """Decode the body section of a record. Raises IndexError or UnicodeDecodeError if it cannot be read."""
    if len(section) < _SETTINGS_BYTES + 2:
        raise IndexError("a group without a key")
    key = read_key(section[_SETTINGS_BYTES:])
    at = _SETTINGS_BYTES + 2 + len(key)
    opened, intact = int.from_bytes(section[:5], "big"), zlib.crc32(key) == crc
    if at == len(section):
        return Group(key.decode(), opened, None, intact)
    count = int.from_bytes(section[at : at + 2], "big")
    at += 2
    items: list[Item] = []
    for _ in range(count):
        size = int.from_bytes(section[at : at + 4], "big")
        item = unpack_item(section[at + 4 : at + 4 + size])
        at += 4 + size
        if item is not None:
            items.append(item)
    return Group(key.decode(), opened, tuple(items), intact and 0 < count == len(items))

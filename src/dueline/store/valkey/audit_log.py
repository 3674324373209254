"""The audit log in the store: calls audit.lua, and encodes its entries.

    entry   at:6  sizes of namespace, who, action: 2 each  namespace  who  action  the other fields, as a JSON array

The script sets the time. It filters by time, namespace, who and action, so these are not in the JSON. Entries that
arrive while a call is in flight are batched into the next one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import msgspec

from ...engine.audit_log import MAX_ENTRIES, AuditEntry, AuditFilter
from ...engine.limits import Limits
from ..audit_limits import INSPECTED, PAGE, bounded
from ..push_log_limits import pack_cursor, unpack_cursor
from .batching import Batcher, in_task
from .codec import pack_numbers, unpack_numbers
from .keys import audit_keys
from .push_log import Run

APPEND, PAGES = 1, 2
STEP = 500  # entries that one call inspects
_TIME_BYTES = 6
_SIZES = struct.Struct(">HHH")


class _PackedEntry(msgspec.Struct, frozen=True):
    """One entry to append. All entries of a batch have the same `max_entries`, because a process has one setting."""

    id: str
    data: bytes
    max_entries: int


class ValkeyAuditLog:
    """Implements `engine.audit_log.AuditLog`. `run` makes one call of a changing script and returns its reply."""

    def __init__(self, run: Run, prefix: str, limits: Limits) -> None:
        self._run = run
        self._keys = audit_keys(prefix)
        self._batcher: Batcher[_PackedEntry, None] = Batcher(
            in_task(lambda entries, _: self._append(entries)), _id_of, _size_of, _nothing, limits
        )

    async def append(self, entries: Sequence[AuditEntry], max_entries: int = 0) -> None:
        if entries:
            await self._batcher.call(
                [_PackedEntry(entry.id, pack_entry(bounded(entry)), max_entries) for entry in entries]
            )

    async def _append(self, entries: list[_PackedEntry]) -> list[None]:
        numbers = [APPEND, entries[-1].max_entries, MAX_ENTRIES, *(len(entry.data) for entry in entries)]
        await self._ask(numbers, b"".join(entry.data for entry in entries))
        return [None] * len(entries)

    async def page(self, which: AuditFilter, cursor: bytes, limit: int) -> tuple[list[AuditEntry], bytes | None]:
        below, limit = unpack_cursor(cursor), min(limit, PAGE)
        wanted = [None if text is None else text.encode() for text in (which.namespace, which.who, which.action)]
        sizes, blob = [-1 if text is None else len(text) for text in wanted], b"".join(text or b"" for text in wanted)
        found: list[AuditEntry] = []
        for _ in range(INSPECTED // STEP):
            asked = [PAGES, below, limit - len(found), which.since_ms, *sizes]
            (below, *lengths), data = await self._ask(asked, blob)
            at = 0
            for length in lengths:
                found.append(unpack_entry(data[at : at + length]))
                at += length
            if not below or len(found) == limit:
                break
        return found, pack_cursor(below) if below else None

    async def _ask(self, numbers: list[int], blob: bytes) -> tuple[list[int], bytes]:
        reply = await self._run("audit", self._keys, "", pack_numbers(numbers), blob)
        return unpack_numbers(reply[4]), reply[5]


def pack_entry(entry: AuditEntry) -> bytes:
    """A bounded entry without its time."""
    namespace, who, action = entry.namespace.encode(), entry.who.encode(), entry.action.encode()
    rest = (entry.id, entry.who_name, entry.address, entry.topic, entry.details, entry.status, entry.code, entry.server)
    return (
        _SIZES.pack(len(namespace), len(who), len(action)) + namespace + who + action + msgspec.json.encode(list(rest))
    )


_rest = msgspec.json.Decoder(tuple[str, str, str, str, dict[str, Any], int, str, str]).decode


def unpack_entry(data: bytes) -> AuditEntry:
    """The entry as the script stored it, with its time. Raises struct.error or ValueError if it is invalid."""
    texts: list[str] = []
    at = _TIME_BYTES + _SIZES.size
    for size in _SIZES.unpack_from(data, _TIME_BYTES):
        texts.append(data[at : at + size].decode())
        at += size
    namespace, who, action = texts
    id, who_name, address, topic, details, status, code, server = _rest(data[at:])
    at_ms = int.from_bytes(data[:_TIME_BYTES], "big")
    return AuditEntry(id, who, who_name, address, namespace, action, topic, details, status, code, server, at_ms)


def _id_of(entry: _PackedEntry) -> str:
    return entry.id


def _size_of(entry: _PackedEntry) -> int:
    return len(entry.data)


def _nothing() -> None:
    """The batcher stays when it is idle."""

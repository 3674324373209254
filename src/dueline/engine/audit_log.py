"""The audit log: who changed what. The store interface that `audit` writes to. No I/O here.

One log for all namespaces and all processes. Entries are stored in the order in which they were appended. The log is
bounded: the newest ones are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

MAX_ENTRIES = 10_000  # how many entries are kept if no server says otherwise


class AuditEntry(msgspec.Struct, frozen=True):
    """One call. `who`: the id of the caller's token, "" on a server without tokens, LOCAL for a program on the store
    itself. `details` are plain JSON values. `status` 0: the caller had disconnected before the answer. `code` "": it
    succeeded. `at_ms` is set by the store."""

    id: str
    who: str
    who_name: str
    address: str
    namespace: str
    action: str
    topic: str
    details: dict[str, Any]
    status: int
    code: str
    server: str
    at_ms: int = 0


class AuditFilter(msgspec.Struct, frozen=True):
    """Which entries to read. None: any; `since_ms` 0: from the oldest."""

    namespace: str | None = None
    who: str | None = None
    action: str | None = None
    since_ms: int = 0


class AuditLog(Protocol):
    """Each method is one store call, or a few, and each of them is bounded."""

    async def append(self, entries: Sequence[AuditEntry], max_entries: int = 0) -> None:
        """Append, then drop the oldest beyond `max_entries`. This number is remembered; 0: the remembered one, else
        MAX_ENTRIES. Oversized texts and details are cut."""
        ...

    async def page(self, which: AuditFilter, cursor: bytes, limit: int) -> tuple[list[AuditEntry], bytes | None]:
        """The newest first. A page may have fewer entries than `limit`, even none, and still have a cursor, because a
        call inspects a bounded number of them."""
        ...

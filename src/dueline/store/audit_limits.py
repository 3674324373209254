"""Size limits of the audit log. Every store cuts entries to them in the same way. No I/O."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from ..engine.audit_log import AuditEntry

PAGE = 500  # at most this many entries per page
INSPECTED = 10_000  # at most this many are inspected for one page
NAME_BYTES = 512  # of a namespace or a topic
TEXT_BYTES = 128  # of every other text
DETAILS_BYTES = 2048  # as JSON
CUT: dict[str, Any] = {"cut": True}  # in place of details that are too large


def bounded(entry: AuditEntry) -> AuditEntry:
    """The entry, cut to the limits."""
    return replace(
        entry,
        id=_cut(entry.id),
        who=_cut(entry.who),
        who_name=_cut(entry.who_name),
        address=_cut(entry.address),
        namespace=_cut(entry.namespace, NAME_BYTES),
        action=_cut(entry.action),
        topic=_cut(entry.topic, NAME_BYTES),
        details=_details(entry.details),
        status=max(0, min(entry.status, 999)),
        code=_cut(entry.code),
        server=_cut(entry.server),
    )


def _details(details: dict[str, Any]) -> dict[str, Any]:
    """The details, with fewer ids if they are too large."""
    kept: list[str] = details.get("ids", [])
    while (text := _encoded(details)) is not None and len(text) > DETAILS_BYTES and kept:
        kept = kept[: len(kept) // 2]
        details = {**details, "ids": kept}
    return CUT if text is None or len(text) > DETAILS_BYTES else msgspec.json.decode(text, type=dict[str, Any])


def _encoded(details: dict[str, Any]) -> bytes | None:
    """None: a text in it is not valid Unicode."""
    try:
        return msgspec.json.encode(details)
    except UnicodeEncodeError:
        return None


def _cut(text: str, most: int = TEXT_BYTES) -> str:
    """The text without control characters, cut between characters to at most `most` bytes."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() else "?" for char in text)
    return text.encode(errors="replace")[:most].decode(errors="ignore")

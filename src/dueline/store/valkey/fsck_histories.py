"""fsck of the histories of jobs: each can be read, and the partition counts the bytes of all. Pure.

The layout is that of lua/lib/history.lua.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...engine.history import HISTORY_BYTES, MAX_ENTRIES
from .histories import kept_past, unpack_past


def check_histories(
    m: Mapping[bytes, bytes], r: Mapping[bytes, bytes], wrong: Callable[[bytes | None, str], None]
) -> None:
    used = 0
    for id, run in r.items():
        count, entries = kept_past(run)
        used += HISTORY_BYTES + len(entries) if count else 0
        try:
            read = len(unpack_past(entries))
        except (ValueError, IndexError):
            wrong(id, "its history cannot be read")
            continue
        if read != count or count > MAX_ENTRIES:
            wrong(id, f"its history has {read} entries, but its run counts {count}")
    stored = int(m.get(b"hb", b"0"))
    if stored != used:
        wrong(None, f"counter hb is {stored}, but the histories have {used} bytes")

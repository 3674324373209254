"""fsck for the audit log: it is within its limit, its entries are readable, and its counter covers them."""

from __future__ import annotations

import struct
from typing import Any

from .audit_log import unpack_entry
from .keys import audit_keys

_NUMBERS = (b"n", b"k")


async def audit_faults(client: Any, prefix: str) -> list[str]:
    """The faults that appear in two consecutive reads, because an entry may arrive between the commands of a read."""
    faults = await _read(client, prefix)
    if not faults:
        return []
    again = set(await _read(client, prefix))
    return [fault for fault in faults if fault in again]


async def _read(client: Any, prefix: str) -> list[str]:
    state_key, log_key = audit_keys(prefix)
    return check_audit(await client.hash(state_key), await client.list(log_key))


def check_audit(state: dict[bytes, bytes], log: list[bytes]) -> list[str]:
    """All faults of the log. Pure."""
    if bool(state) != bool(log):
        return [f"audit: has {'a state but no log' if state else 'a log but no state'}"]
    if any(not state.get(field, b"0").isdigit() for field in _NUMBERS):
        return ["audit: the state cannot be read"]
    number, kept = (int(state.get(field, b"0")) for field in _NUMBERS)
    faults: list[str] = []
    if len(log) > kept:
        faults.append(f"audit: the log has {len(log)} entries, {kept} are kept")
    if number < len(log):
        faults.append(f"audit: the log has {len(log)} entries, {number} were counted")
    unreadable = sum(not _is_readable(entry) for entry in log)
    if unreadable:
        faults.append(f"audit: {unreadable} entries of the log cannot be read")
    return faults


def _is_readable(entry: bytes) -> bool:
    try:
        unpack_entry(entry)
    except (struct.error, ValueError):
        return False
    return True

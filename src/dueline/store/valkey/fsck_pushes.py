"""fsck for push targets: the log is within its limit, its entries are readable, and its counter covers them."""

from __future__ import annotations

import struct

from ..push_log_limits import KEPT
from .keys import push_keys
from .push_log import unpack_attempt
from .reader import StoreReader

_NUMBERS = (b"n", b"f", b"o")


async def push_faults(client: StoreReader, prefix: str, namespace: str, topic: str) -> list[str]:
    """The faults that appear in two consecutive reads, because a report may arrive between the commands of a read."""
    faults = await _read(client, prefix, namespace, topic)
    if not faults:
        return []
    again = set(await _read(client, prefix, namespace, topic))
    return [fault for fault in faults if fault in again]


async def _read(client: StoreReader, prefix: str, namespace: str, topic: str) -> list[str]:
    state_key, log_key = push_keys(prefix, namespace, topic)
    return check_push(await client.hash(state_key), await client.list(log_key))


def check_push(state: dict[bytes, bytes], log: list[bytes]) -> list[str]:
    """All faults of one target. Pure."""
    faults: list[str] = []
    if bool(state) != bool(log):
        faults.append(f"push: has {'a state but no log' if state else 'a log but no state'}")
    if any(not state.get(field, b"0").isdigit() for field in _NUMBERS):
        return [*faults, "push: the state cannot be read"]
    if len(log) > KEPT:
        faults.append(f"push: the log has {len(log)} attempts, {KEPT} are kept")
    if log and int(state.get(b"n", b"0")) < len(log):
        faults.append(f"push: the log has {len(log)} attempts, {int(state.get(b'n', b'0'))} were counted")
    unreadable = sum(not _is_readable(entry) for entry in log)
    if unreadable:
        faults.append(f"push: {unreadable} attempts of the log cannot be read")
    return faults


def _is_readable(entry: bytes) -> bool:
    try:
        unpack_attempt(entry)
    except (struct.error, ValueError, IndexError):
        return False
    return True

"""Histories of jobs as scripts keep and return them (lua/lib/history.lua)."""

from __future__ import annotations

from ...engine.history import History, Past, What, history_of
from ...engine.job import Partition
from . import codec
from .calls import Calls

_DUE, _NAME, _KIND = 16, 32, 15
_WITH_HISTORY = 2  # read.lua


async def history_of_job(calls: Calls, partition: Partition, id: str) -> History | None:
    """read.lua"""
    packed = codec.pack_id(id)
    _, n, blob = await calls.look("read", partition, codec.pack_numbers([_WITH_HISTORY, len(packed)]), packed)
    if len(n) < 3:  # unknown, or in another topic
        return None
    *shown, edited_ms, size = n
    [job] = codec.decode_shown(shown, blob, partition.topic)
    return None if job is None else history_of(job, unpack_past(blob[len(blob) - size :]), edited_ms or None)


def unpack_past(entries: bytes) -> list[Past]:
    """The entries of one job. Raises ValueError or IndexError if they cannot be read."""
    past: list[Past] = []
    at = 0
    while at < len(entries):
        size, what = entries[at], entries[at + 1]
        at_ms, attempt = (
            int.from_bytes(entries[at + 2 : at + 8], "big"),
            int.from_bytes(entries[at + 8 : at + 11], "big"),
        )
        tail = entries[at + 11 : at + 11 + size]
        at += 11 + size
        if at > len(entries):
            raise ValueError("an entry is longer than its history")
        due_ms, by = None, b""
        if what & _DUE:
            due_ms, tail = int.from_bytes(tail[:6], "big"), tail[6:]
        if what & _NAME:
            by, tail = tail[1 : 1 + tail[0]], tail[1 + tail[0] :]
        kind = what & _KIND
        reason = codec.REASONS[kind - What.DEAD + 1] if What.DEAD <= kind < What.REVIVED else None
        past.append(Past(What.DEAD if reason else What(kind), at_ms, attempt, due_ms, by, tail, reason))
    return past


def kept_past(run: bytes) -> tuple[int, bytes]:
    """How many entries a run has, and the entries."""
    if not run[1] & codec.HISTORY:
        return 0, b""
    return run[47], run[50 : 50 + int.from_bytes(run[48:50], "big")]

"""What a partition remembers of the schedules that send to it. No I/O; part of the interface in `store`.

A tombstone keeps an id taken for a minute, but a server that was stopped may repeat a send hours later. So a partition
keeps one fence per schedule: the newest version that it knows of, and the last occurrence that was decided here. A send
of an occurrence that is not later returns KEPT. One of an older version is refused (VERSION_MISMATCH). A skip writes a
time at which nothing occurs: if no other record is left, this distinguishes it from a send.
"""

from __future__ import annotations

import msgspec

GONE_KEEP_MS = 30 * 86_400_000  # how long the fence of a schedule that no longer sends here is kept


class Occurrence(msgspec.Struct, frozen=True):
    """Marks a send as the job of one occurrence. `schedule`: its name, the same in all partitions."""

    schedule: str
    version: int
    at_ms: int


class Fence(msgspec.Struct, frozen=True):
    """Writing a fence never lowers what is stored: an older version changes nothing, the later `at_ms` stays. `at_ms`
    0: no occurrence. `gone`: the schedule no longer sends here; even its own version is then refused, and clean-up
    drops the fence after GONE_KEEP_MS. A newer version revokes that."""

    schedule: str
    version: int
    at_ms: int = 0
    gone: bool = False

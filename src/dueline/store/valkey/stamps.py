"""Compares the epochs that the directory knows with those that the partitions have. For people, not for calls."""

from __future__ import annotations

import asyncio

import msgspec

from ...engine.job import Partition
from .epochs import lost_sends
from .keys import epoch_keys, partition_keys, partition_name, partition_named
from .reader import StoreReader

AT_ONCE = 100
SUNK, PENDING = "!", ("?", "-")  # marks before an epoch: in the partition, in the directory


class Stamp(msgspec.Struct, frozen=True):
    """A partition's epoch (empty: none) and last send number, the directory's `entry` (empty: none), and the highest
    send number that a server saw (0: unknown)."""

    partition: Partition
    epoch: str
    number: int
    entry: str
    had: int
    policy_version: int = 0

    @property
    def fault(self) -> str | None:
        """What is wrong, None: nothing. A partition that is being opened or retired is not wrong."""
        if self.epoch.startswith(SUNK):
            return f"{lost_sends(self.had, self.number)}; sends are refused"
        if not self.entry or self.entry.startswith(PENDING) or self.entry == self.epoch:
            return None
        if not self.epoch:
            had = f"it had send number {self.had:,}, " if self.had > 0 else ""
            return f"{had}the directory knows it, and it is gone"
        return "the directory knows it with other data"


async def read_stamps(reader: StoreReader, prefix: str, more: list[Partition] | None = None) -> list[Stamp]:
    """The stamps of all partitions that the directory knows, and of `more`, which it may not know."""
    entries = await reader.hash(epoch_keys(prefix)[1])
    known = [partition_named(name) for name in entries if name and not name.startswith(b"\1")]
    partitions = [*known, *(one for one in more or () if partition_name(one) not in entries)]

    async def stamp(partition: Partition) -> Stamp:
        key, name = partition_keys(prefix, partition).keys[0], partition_name(partition)
        epoch, number, had, version = await reader.command(key, "HMGET", key, "ep", "seq", "eh", "pv")
        seen = int(had or entries.get(b"\1" + name) or 0)
        entry = entries.get(name, b"").decode()
        return Stamp(partition, (epoch or b"").decode(), int(number or 0), entry, seen, int(version or 0))

    found: list[Stamp] = []
    for start in range(0, len(partitions), AT_ONCE):
        found += await asyncio.gather(*map(stamp, partitions[start : start + AT_ONCE]))
    return found

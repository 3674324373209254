"""`dueline store accept`: finds what a store has lost, and makes the servers use what is left. They need no restart.

    partition gone                     the directory forgets it; the next send opens it
    partition with lower numbers       it gets a new epoch
    directory gone                     the store keeps its epoch; partitions and topics that exist are listed again

At the end the time is recorded (`accepted` in the meta hash). From then on, servers ignore what they saw before it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Awaitable, Callable

import msgspec

from ...engine.job import Partition
from .epochs import number_of, shown
from .keys import (
    DATA_VERSION,
    directory_keys,
    epoch_copies,
    epoch_keys,
    meta_key,
    partition_keys,
    partition_name,
    partition_of,
    version_fault,
)
from .reader import StoreReader
from .stamps import Stamp, read_stamps

Register = Callable[[list[tuple[str, str]]], Awaitable[None]]
"""Puts topics into the directory of the opened store."""


class MissingData(msgspec.Struct, frozen=True):
    """What a store has lost. `epoch`: the one to continue with; `stamps`: all partitions that are known."""

    epoch: str
    is_directory_lost: bool
    stamps: list[Stamp]

    @property
    def partitions(self) -> list[Stamp]:
        return [one for one in self.stamps if one.fault is not None or self.is_foreign(one)]

    def is_foreign(self, stamp: Stamp) -> bool:
        """Whether it has the epoch of another store."""
        return bool(stamp.epoch) and stamp.epoch.rpartition(".")[0].lstrip("!") != self.epoch

    def lines(self) -> list[str]:
        """What an operator accepts, one line each."""
        lines = [
            f"{shown(one.partition)}: {one.fault or 'it has the data of another store'}" for one in self.partitions
        ]
        if self.is_directory_lost:
            kept = len(topics_of(self.stamps))
            lines.insert(0, f"the directory is lost: {kept} topics that hold data are listed again, without settings")
        return lines


def topics_of(stamps: list[Stamp]) -> list[tuple[str, str]]:
    return sorted({(one.partition.namespace, one.partition.topic) for one in stamps if one.number})


async def find_missing(reader: StoreReader, prefix: str) -> MissingData:
    """Compare the directory with the partitions. Raises ValueError if the data has another version."""
    meta = await reader.hash(meta_key(prefix))
    fault = version_fault(meta)
    if fault is not None:
        raise ValueError(fault)
    epoch = meta.get(b"epoch", b"").decode()
    copies = await _copies(reader, prefix)
    is_lost = not epoch or b"lost" in meta or any(copy != epoch for copy in copies)
    found: list[Partition] = []
    if is_lost:
        found = [one async for key in reader.keys(f"{prefix}:*") if (one := partition_of(prefix, key)) is not None]
    stamps = await read_stamps(reader, prefix, found)
    written = Counter(one.epoch.lstrip("!").rpartition(".")[0] for one in stamps if one.epoch)
    epoch = epoch or next(iter(copies), "") or next((text for text, _ in written.most_common(1)), "")
    return MissingData(epoch or os.urandom(8).hex(), is_lost, stamps)


async def accept(reader: StoreReader, prefix: str, missing: MissingData, register: Register) -> None:
    """Make the store usable as it is. Safe to repeat. `register` is called at the end, if the directory is lost."""
    meta, epochs, *_ = epoch_keys(prefix)
    stored = await reader.hash(meta)
    numbers = [number_of(one.epoch) for one in missing.stamps if one.epoch and not missing.is_foreign(one)]
    last = max([int(stored.get(b"n", 0)), *numbers])
    await reader.command(meta, "HSET", meta, "version", DATA_VERSION, "epoch", missing.epoch, "n", last)
    for copy in epoch_copies(prefix) if reader.is_cluster else ():
        await reader.command(copy, "SET", copy, missing.epoch)
    for stamp in missing.partitions:
        await _accept_partition(reader, prefix, missing.epoch, stamp)
    faulty = {one.partition for one in missing.partitions}
    for stamp in missing.stamps:
        if stamp.epoch and not stamp.entry and stamp.partition not in faulty:
            await reader.command(epochs, "HSET", epochs, partition_name(stamp.partition), stamp.epoch)
    seconds, micros = await reader.command(meta, "TIME")
    await reader.command(meta, "HSET", meta, "accepted", int(seconds) * 1000 + int(micros) // 1000)
    await reader.command(meta, "HDEL", meta, "lost")
    if missing.is_directory_lost:
        await register(topics_of(missing.stamps))
        await _number_configs(reader, prefix, missing.stamps)


async def _accept_partition(reader: StoreReader, prefix: str, store_epoch: str, stamp: Stamp) -> None:
    """The directory is written first: until the partition agrees, sends are refused."""
    meta, epochs, *_ = epoch_keys(prefix)
    key, name = partition_keys(prefix, stamp.partition).keys[0], partition_name(stamp.partition)
    if stamp.epoch:
        epoch = f"{store_epoch}.{await reader.command(meta, 'HINCRBY', meta, 'n', 1)}"
        await reader.command(epochs, "HSET", epochs, name, epoch)
        await reader.command(key, "HSET", key, "ep", epoch)
        await reader.command(key, "HDEL", key, "eh")
    else:
        await reader.command(epochs, "HDEL", epochs, name)
    await reader.command(epochs, "HDEL", epochs, b"\1" + name)


async def _number_configs(reader: StoreReader, prefix: str, stamps: list[Stamp]) -> None:
    """Make sure that a later config of a topic gets a version that no partition has seen."""
    config = directory_keys(prefix)[2]
    versions = max((one.policy_version for one in stamps), default=0)
    if versions:
        await reader.command(config, "HSET", config, "", versions.to_bytes(6, "big"))


async def _copies(reader: StoreReader, prefix: str) -> list[str]:
    """The copies of the store's epoch that are left."""
    if not reader.is_cluster:
        return []
    found = [await reader.command(key, "GET", key) for key in epoch_copies(prefix)]
    return [copy.decode() for copy in found if copy is not None]

"""What this process knows about the data of the store, and what it found missing. No I/O.

    epoch of the store       random, in the directory's meta hash, made once
    epoch of a partition     store epoch + "." + number; the directory hands out the numbers in rising order
    send number              of the last job that was stored in the partition

A process remembers, for each partition that it sends to, the epoch and the highest send number that a reply showed. A
send carries both, and the script refuses it unless the partition has this epoch and no lower number:

    absent      the shard was emptied, or the partition was retired (then the directory knows it)
    different   it was retired and opened again, or its loss was accepted; otherwise it is the data of another store
    lower       a replica that had not received everything has become the primary, or an old copy was restored

Only replies that count raise the highest number: with `replicated`, an answer that no replica has does not.
"""

from __future__ import annotations

import msgspec

from ...engine.errors import StoreReplaced
from ...engine.job import Partition
from ...event_log import EventLog

MOST_KNOWN = 65_536
FRESH_MS = 30 * 60_000  # the directory remembers retired partitions for longer (lua/epochs.lua)


Carried = tuple[int, bytes]  # the highest send number, the epoch


class KnownData:
    """The data of a partition. `seen_ms`: the store's time of the last reply."""

    __slots__ = ("epoch", "highest", "seen_ms")

    def __init__(self, epoch: str, seen_ms: int) -> None:
        self.epoch = epoch
        self.highest = 0
        self.seen_ms = seen_ms


class Loss(msgspec.Struct, frozen=True):
    """Why sends are refused. `partition` None: the directory, and with it the whole store."""

    partition: Partition | None
    what: str


class Epochs:
    """`accept_command`: what an operator runs to accept a loss."""

    def __init__(self, accept_command: str) -> None:
        self.store = ""  # the epoch of the store; empty before it was read
        self.losses: dict[Partition | None, Loss] = {}
        self._known: dict[Partition, KnownData] = {}
        self._checked_ms = 0  # the store's time when its epoch was last the expected one
        self._accept_command = accept_command
        self._log = EventLog("dueline.store")

    def known(self, partition: Partition) -> KnownData | None:
        """None: it must be found out first, and so must it while the whole store is lost."""
        return None if self.losses and None in self.losses else self._known.get(partition)

    def carried(self, known: KnownData | None) -> Carried:
        """What a send carries."""
        return (0, b"") if known is None else (known.highest, known.epoch.encode())

    def saw(self, partition: Partition, number: int, now_ms: int) -> None:
        """A reply showed this send number. Replies may come in any order, and from several threads."""
        known = self._known.get(partition)
        if known is not None:
            known.seen_ms = now_ms
            if number > known.highest:
                known.highest = number
        if self.losses:
            self.healed(partition)

    def adopt(self, partition: Partition, epoch: str, now_ms: int) -> None:
        """The directory says that the partition has this epoch."""
        if len(self._known) >= MOST_KNOWN:
            self._known.pop(next(iter(self._known)))
        self._known[partition] = KnownData(epoch, now_ms)
        self.healed(partition)

    def forget(self, partition: Partition) -> None:
        self._known.pop(partition, None)

    def judge_store(self, epoch: str, lost: bool, accepted_ms: int, now_ms: int) -> None:
        """Compare the epoch in the directory with the one that this process began with. Raises StoreReplaced."""
        if epoch and not lost and (not self.store or accepted_ms > self._checked_ms):
            if self.store and epoch != self.store:
                self._known.clear()
            self.store = epoch
        if epoch != self.store or lost or not epoch:
            raise self.lost(None, "it was emptied, or it is another store")
        self._checked_ms = now_ms
        self.healed(None)

    def is_retired(self, known: KnownData, accepted_ms: int, now_ms: int) -> bool:
        """Whether a partition that the directory does not know may be gone: a loss was accepted since, or this process
        has not used it for a long time."""
        return accepted_ms > known.seen_ms or now_ms > known.seen_ms + FRESH_MS

    def lost(self, partition: Partition | None, what: str) -> StoreReplaced:
        """Note that data is missing. Returns the error for the sends that are refused. A lost store is a guard, which
        logs it."""
        place = "the store" if partition is None else f"the partition {shown(partition)}"
        loss = Loss(partition, f"{place} does not have the data that this server knows: {what}")
        if partition is not None and partition not in self.losses:
            self._log.error("sends are refused, because data is missing", detail=loss.what, accept=self._accept_command)
        self.losses[partition] = loss
        return StoreReplaced(self.text(loss))

    def text(self, loss: Loss) -> str:
        return (
            f"{loss.what}. Sends to it are refused. Bring the data back, or accept that it is lost: "
            f"{self._accept_command}"
        )

    def healed(self, partition: Partition | None) -> None:
        if self.losses.pop(partition, None) is not None and partition is not None:
            self._log.info("sends are accepted again", partition=shown(partition))


def opening(epoch: str, listed: bool) -> Carried:
    """What the first send carries, which gives its partition this epoch (lua/lib/opening). `listed`: the directory has
    its topic."""
    return -1, (b"+" if listed else b"?") + epoch.encode()


def accept_command(shown_url: str, prefix: str) -> str:
    """What an operator runs to accept that data of this store is lost."""
    return f"dueline store accept {shown_url}" + ("" if prefix == "dueline" else f" --prefix {prefix}")


def shown(partition: Partition) -> str:
    return f"{partition.namespace}/{partition.topic}/{partition.number}"


def lost_sends(had: int, number: int) -> str:
    """What happened to a partition that has lost its last sends. Later changes may have taken the same numbers."""
    if had > number:
        return f"it had send number {had:,}, now {number:,}"
    return f"it has lost sends up to number {had:,}, and has used these numbers again"


def number_of(epoch: str) -> int:
    """The number at the end of a partition's epoch."""
    return int(epoch.rpartition(".")[2] or 0)

"""The guards of a store: conditions under which it must not, or cannot, do what callers ask. One table, no I/O.

A guard holds for one shard: a primary of the store. The store reports it from the call that it refuses (`GuardWatch`);
checks find it, too, and find when it is over (runtime.guards). docs/guards.md is made from this table.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import msgspec


class Guard(StrEnum):
    """Its value is the code in `/readyz`, in metrics and in the log."""

    EVICTION = "eviction"
    READ_ONLY = "read_only"
    STORE_REPLACED = "store_replaced"
    CLOCK_STEP = "clock_step"
    DISK_FULL = "disk_full"
    NOT_DURABLE = "not_durable"
    STORE_FULL = "store_full"
    DISK_LOW = "disk_low"
    NOT_REPLICATED = "not_replicated"
    SHARD_DOWN = "shard_down"


class GuardRule(msgspec.Struct, frozen=True):
    """One row. `when`: what shows it. `refuses` and `heals` are sentences for operators. `stops`: the shard does not
    serve; if that is so for all shards, the server is not ready. `refused_here`: the store would accept sends, so they
    are refused before they reach it. `whole`: it concerns all shards. `entered` and `left`: the log lines."""

    guard: Guard
    when: str
    refuses: str
    heals: str
    entered: str
    left: str
    stops: bool = True
    refused_here: bool = False
    whole: bool = False


_DRAINS = "Sends are refused; pull, ack, release, extend and cancel work."

RULES: dict[Guard, GuardRule] = {
    rule.guard: rule
    for rule in (
        GuardRule(
            Guard.EVICTION,
            "`maxmemory-policy` is not `noeviction`, and there is a `maxmemory`; checked every 5 s",
            "Sends are refused.",
            "Set maxmemory-policy to noeviction.",
            "the store may delete jobs",
            "the store does not delete jobs any more",
            refused_here=True,
        ),
        GuardRule(
            Guard.READ_ONLY,
            "the node is a replica: its role in a check, or a call that it answers with `READONLY`",
            "All changes are refused.",
            "Make the node a primary again, or give the address of the primary.",
            "the store is read-only",
            "the store accepts changes again",
        ),
        GuardRule(
            Guard.STORE_REPLACED,
            "the store was emptied, restored from an old copy, or is another one "
            "([more](stores.md#when-a-store-loses-data))",
            "Sends are refused.",
            "Bring the data back, or accept its loss: dueline store accept STORE_URL.",
            "the store does not have its data any more",
            "the data of the store is back, or its loss was accepted",
            whole=True,
        ),
        GuardRule(
            Guard.CLOCK_STEP,
            "the store's clock jumped: a call or a check finds it more than 1 s away from the expected time",
            "All changes are refused.",
            "It is over when the clock is back, or after 5 s if this machine's clock agrees with the new time.",
            "the store's clock jumped",
            "the store's clock is trusted again",
        ),
        GuardRule(
            Guard.DISK_FULL,
            "the store cannot write to its disk: a call that it answers with `MISCONF`, or `aof_last_write_status` in "
            "a check; the embedded store ends rather than confirm what it cannot keep",
            "All changes are refused, acks too.",
            "Make room on the store's disk, or repair it.",
            "the store cannot write to its disk",
            "the store writes to its disk again",
        ),
        GuardRule(
            Guard.NOT_DURABLE,
            "durability is `fsync`, and the append-only file is off, or a part of it has vanished",
            "Nothing is refused, but success does not mean that a job is on disk.",
            "The embedded store rewrites its file by itself.",
            "the store does not write its append-only file",
            "the append-only file is complete again",
        ),
        GuardRule(
            Guard.STORE_FULL,
            "memory: a send that is answered with `OOM`, or `used_memory` has reached `maxmemory`; over when 5 % are "
            "free",
            _DRAINS,
            "Finish or purge jobs, or give the store more memory (embedded: store.max_memory_bytes).",
            "the store is full",
            "the store has room again",
            stops=False,
        ),
        GuardRule(
            Guard.DISK_LOW,
            "the file system of the embedded store has less than `store.min_free_bytes` free",
            _DRAINS,
            "Make room on that disk.",
            "the disk is nearly full",
            "the disk has room again",
            stops=False,
        ),
        GuardRule(
            Guard.NOT_REPLICATED,
            "durability is `replicated`, and no replica confirms changes: `WAIT` in a call, or no replica that answers "
            "in a check; or the store answers with `NOREPLICAS` (`min-replicas-to-write`)",
            'Changes get unknown_outcome (store.degraded = "accept": they succeed and are counted).',
            'Connect a replica. Without replicas, set store.durability = "standard".',
            "changes reach no replica",
            "changes reach a replica again",
        ),
        GuardRule(
            Guard.SHARD_DOWN,
            "a shard of a Cluster does not answer, while others do",
            "Calls for its topics are refused.",
            "It is over when the shard, or another node for its slots, answers.",
            "a shard is unavailable",
            "a shard is available again, or another node serves its slots",
        ),
    )
}


class GuardWatch(Protocol):
    """What a store reports to, and asks. `closed` is False while all shards accept sends."""

    closed: bool

    def tripped(self, guard: Guard, shard: str, detail: str) -> None:
        """Note that a call on this shard was refused, and why."""
        ...

    def failed(self) -> None:
        """A call has found no store to answer it."""
        ...

    def refusal(self, shard: str) -> str | None:
        """Why sends to this shard must be refused, although it would accept them."""
        ...
